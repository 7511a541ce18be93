"""Variance components: known components are recovered, and equal answers have no judge variance."""

import numpy as np
import pytest

from checklist_rewards import Checklist
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.variance import Variance
from checklist_rewards.scores import Verdict, score_checklist
from tests.evaluation.files import NO_ANSWER, score_of

NO_INTERVALS = Bootstrap(0)
ITEMS = Checklist.parse(["Is it red?", "Is it short?", "Is it loud?"])


def scores(values):
    """One score per repeat; `values` is items x repeats, and NaN is unanswered."""
    return [score_of(ITEMS, *(None if np.isnan(p) else p for p in repeat)) for repeat in np.asarray(values).T]


def simulated(rng, prompts, texts, repeats, sd):
    """Texts x items x repeats of every prompt, with these standard deviations of the effects."""
    draw = lambda name, *shape: rng.normal(0, sd.get(name, 0), shape)  # noqa: E731
    item, repeat = draw("item", 3, 1), draw("repeat", 1, repeats)
    for _ in range(prompts):
        prompt = draw("prompt", 1)
        for _ in range(texts):
            noise = draw("noise", 3, repeats) + draw("text_repeat", 1, repeats)
            yield prompt, 0.5 + prompt + draw("text", 1, 1) + item + draw("text_item", 3, 1) + repeat + noise


def report_of(rng, prompts, texts, repeats, sd, bootstrap=NO_INTERVALS, how="reworded"):
    variance = Variance(repeats)
    for number, (_, values) in enumerate(simulated(rng, prompts, texts, repeats, sd)):
        assert values.min() > 0 and values.max() < 1
        variance.add(str(number // texts), scores(values))
    return variance.result(how, bootstrap, 0.02)


@pytest.mark.parametrize(
    ("repeats", "sd"),
    [
        (4, {"prompt": 0.05, "text": 0.02, "noise": 0.02, "text_item": 0.05}),
        (2, {"prompt": 0.02, "text": 0.05, "noise": 0.05, "text_item": 0.02}),
    ],
)
def test_known_components_are_recovered_on_average(repeats, sd):
    """The estimates vary with the drawn effects, so their mean over several drawn sets of texts is compared."""
    reports = [report_of(np.random.default_rng(seed), 40, 5, repeats, sd) for seed in range(8)]

    def mean(part, name):
        return np.mean([part(report).figures[name].value for report in reports])

    close = lambda expected: pytest.approx(expected, rel=0.2, abs=5e-5)  # noqa: E731
    scored, item = lambda report: report.scores, lambda report: report.items[0]
    assert mean(scored, "residual") == close(sd["noise"] ** 2 / 3)
    assert mean(scored, "text") == close(sd["text"] ** 2 + sd["text_item"] ** 2 / 3)
    assert mean(scored, "prompt") == pytest.approx(sd["prompt"] ** 2, rel=0.25, abs=2.5e-4)  # 3 standard errors
    assert mean(item, "residual") == close(sd["noise"] ** 2)
    assert mean(item, "text") == close(sd["text"] ** 2 + sd["text_item"] ** 2)
    for report in reports:
        assert report.needed == max(1, np.ceil(report.scores.figures["judge"].value / 0.02**2 - 1e-9))


def test_a_strict_wording_is_a_repeat_effect_and_cancels_within_a_group():
    report = report_of(np.random.default_rng(3), 40, 4, 8, {"repeat": 0.08, "noise": 0.01})
    figures = report.scores.figures
    assert figures["repeat"].value > 0.001 and figures["residual"].value < 1e-4
    assert figures["judge"].value == pytest.approx(figures["repeat"].value + figures["residual"].value)


def test_the_two_way_estimates_are_those_of_statsmodels():
    smf = pytest.importorskip("statsmodels.formula.api")
    anova = pytest.importorskip("statsmodels.stats.anova")
    import pandas as pd

    rng = np.random.default_rng(5)
    values = np.clip(
        0.5 + rng.normal(0, 0.1, (30, 1)) + rng.normal(0, 0.05, (1, 4)) + rng.normal(0, 0.05, (30, 4)), 0, 1
    )
    variance = Variance(4)
    for number, row in enumerate(values):
        variance.add(str(number), scores([row] * 3))
    figures = variance.result("reworded", NO_INTERVALS, 0.02).scores.figures
    frame = pd.DataFrame({"y": values.ravel(), "a": np.repeat(range(30), 4), "r": np.tile(range(4), 30)})
    table = anova.anova_lm(smf.ols("y ~ C(a) + C(r)", frame).fit())
    squares = table["mean_sq"]
    assert figures["residual"].value == pytest.approx(squares["Residual"])
    assert figures["text"].value == pytest.approx((squares["C(a)"] - squares["Residual"]) / 4)
    assert figures["repeat"].value == pytest.approx((squares["C(r)"] - squares["Residual"]) / 30)
    assert figures["prompt"].value is None  # one text per prompt


def test_equal_answers_have_no_judge_variance():
    report = report_of(np.random.default_rng(1), 10, 3, 3, {"text": 0.1, "text_item": 0.1})
    assert report.scores.figures["judge"].value == pytest.approx(0, abs=1e-12)
    assert report.needed == 1 and {item.figures["judge"].value < 1e-9 for item in report.items} == {True}


def test_unanswered_reads_and_texts_without_an_answer_are_left_out():
    missing = score_of(ITEMS, *[NO_ANSWER] * 3)
    full = np.array([[0.9, 0.8], [0.4, 0.4], [0.2, 0.3]])
    holed = full.copy()
    holed[0, 1] = np.nan
    variances = Variance(2), Variance(2)
    for prompt, values in (("A", full), ("A", holed), ("A", full * 0.5), ("B", np.full((3, 2), np.nan))):
        for variance in variances:
            variance.add(prompt, scores(values))
        variances[1].add(prompt, [missing, missing])
    report, after = (variance.result("reworded", NO_INTERVALS, 0.02) for variance in variances)
    assert (report.rows, report.incomplete, report.scores.texts) == (4, 1, 3)
    assert {item.question: item.texts for item in report.items}["Is it red?"] == 2
    assert (after.rows, after.no_answer, after.incomplete) == (8, 4, 1)
    assert after.model_copy(update={"rows": 4, "no_answer": 0}) == report


def test_items_that_code_answers_are_left_out():
    verdicts = [Verdict(answer="yes", method="check"), *[Verdict({"yes": 0.6, "no": 0.4})] * 2]
    variance = Variance(2)
    variance.add("A", [score_checklist(ITEMS, verdicts)] * 2)
    questions = {item.question for item in variance.result("reworded", NO_INTERVALS, 0.02).items}
    assert questions == {"Is it short?", "Is it loud?"}


def test_the_copies_of_a_repeated_question_are_two_items_that_count_a_text_once():
    checklist = Checklist.parse(["Is it red?", "Is it short?", "Is it red?"])
    variance = Variance(2)
    for p in (0.2, 0.4, 0.8):
        variance.add("prompt", [score_of(checklist, p, 0.5, p / 2)] * 2)
    report = variance.result("reworded", NO_INTERVALS, 0.02)
    assert [item.texts for item in report.items] == [3, 3, 3] and report.all_items == 3


def test_the_interval_of_a_share_ends_at_1():
    report = report_of(np.random.default_rng(0), 15, 2, 2, {"noise": 0.05}, Bootstrap(60), "resampled")
    share = report.scores.figures["judge_share"]
    assert share.low <= share.value <= share.high <= 1.0


def test_intervals_hold_for_other_wordings_from_4_repeats_on():
    truth = {"judge": 8e-4, "judge_share": 0.4, "repeat": 4e-4}
    held, shorter = {name: [] for name in truth}, []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        shift, variance = rng.normal(0, 0.02, 4), Variance(4)
        for text, values in enumerate(0.5 + rng.normal(0, 0.0346, (60, 1)) + shift + rng.normal(0, 0.02, (60, 4))):
            variance.add(str(text // 4), scores([values] * 3))
        these, others = (
            variance.result(how, Bootstrap(100), 0.02).scores.figures for how in ("resampled", "reworded")
        )
        shorter.append(these["judge"].low <= truth["judge"] <= these["judge"].high)
        for name, value in truth.items():
            held[name].append(others[name].low <= value <= others[name].high)
    assert np.mean(shorter) < 0.6 and min(map(np.mean, held.values())) > 0.8


def test_intervals_for_other_wordings_end_at_the_limits_and_need_four():
    rng, variance = np.random.default_rng(0), Variance(4)
    for text in range(40):  # every second wording turns the answers round
        variance.add(str(text), scores([np.abs([0, 1, 0, 1] - 0.1 * rng.random(4))] * 3))
    figures = variance.result("reworded", Bootstrap(50), 0.02).scores.figures
    report = report_of(np.random.default_rng(0), 15, 4, 2, {"text": 0.05, "noise": 0.02}, Bootstrap(50))
    for name in ("repeat", "judge", "judge_share"):
        assert figures[name].high == 1.0
        assert report.scores.figures[name].refused == "needs 4 repeats, has 2"
    assert report.scores.figures["residual"].low is not None
