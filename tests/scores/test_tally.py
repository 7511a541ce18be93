"""The aggregates of a batch do not move when a judge fails about some of its rows."""

import pytest
from scipy.stats import t

from checklist_rewards import Checklist
from checklist_rewards.datasets.table import BatchScore
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.rewards.batch import metrics_of
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score, Verdict, score_checklist
from checklist_rewards.scores.tally import PassRate, tally, wilson
from checklist_rewards.ui.figures import FileFigures, TrainingFigures

CHECKLIST = Checklist.parse(
    [
        {"question": "Is it one word?", "check": {"type": "words", "exactly": 1}, "category": "form"},
        {"question": "Is it kind?", "category": "tone"},
        {"question": "Is it true?", "category": "form"},
    ]
)
LOST = Verdict(unanswered="backend_error: the server is gone")


def score_of(answers: str, lost: bool = False) -> Score:
    checked, *judged = answers.split()
    code = Verdict(answer=checked, judge="code", method="check")
    return score_checklist(CHECKLIST, [code, *(LOST if lost else Verdict(answer=answer) for answer in judged)])


ROWS = ("yes yes yes", "yes no no", "no yes yes", "no no no")


@pytest.mark.parametrize("lost", [(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1)], ids=str)
def test_rows_without_a_score_are_in_no_rate(lost):
    found = [score_of(answers, gone) for answers, gone in zip(ROWS, lost, strict=True)]
    batch = BatchScore(found)
    known = tally(score for score in found if score.primary_score is not None)
    for name in ("macro", "micro", "mean"):
        assert getattr(batch, name) == getattr(known, name)
    rates = {name: known.by_category[name].macro if known.by_category else None for name in ("form", "tone")}
    assert {name: rate.macro for name, rate in batch.by_category.items()} == rates
    assert (batch.tally.scored, batch.tally.unscored) == (4 - sum(lost), sum(lost))

    frame = batch.to_dataframe()
    expected = float("nan") if batch.macro is None else batch.macro
    assert frame["checklist_score.pass_rate"].mean() == pytest.approx(expected, nan_ok=True)
    assert frame["checklist_score.answered"].sum() == batch.tally.reads - sum(batch.tally.unanswered.values())

    file, training = FileFigures(), TrainingFigures()
    for number, score in enumerate(found):
        record = ScoredText(str(number), f"row {number}", score, step=0, reward=score.primary_score)
        file.add(record)
        training.add(record)
    assert (file.tally.macro, file.tally.micro, file.tally.unscored) == (batch.macro, batch.micro, sum(lost))
    assert training.as_json()["series"]["pass_rate"] == [batch.micro]
    check = file.overview()["items"][0]  # the rate of a code check is that of the complete run
    assert (check["rate"], check["counted"]) == (0.5, 4)


def test_a_trainer_logs_no_pass_rate_of_a_completion_without_a_score():
    lost, sample = score_of("yes yes yes", lost=True), Sample(CHECKLIST, "Hi")
    metrics = dict(metrics_of([(sample, lost, None)], ("form", "tone")))
    assert not {"pass_rate", "category/form", "category/tone"} & metrics.keys()
    assert metrics["unscored"] == 1.0


def test_fewer_than_15_targets_have_no_interval():
    rate = PassRate()
    assert rate.interval is None
    for n in range(15):
        assert rate.interval is None
        rate.add(n % 2, 1)
    assert rate.interval is not None


def test_an_interval_contains_its_rate():
    for counted in range(1, 300):
        for passed in {0, 1, counted // 3, counted}:
            low, high = wilson(passed, counted)
            assert 0 <= low <= passed / counted <= high <= 1
    assert wilson(0, 0) is None


def test_the_interval_counts_dependent_items_of_a_target_as_fewer_answers():
    single, alike, apart = PassRate(), PassRate(), PassRate()
    for n in range(40):
        single.add(n % 2, 1)
        alike.add(4 * (n % 2), 4)  # four items that always agree say no more than one
        apart.add(2, 4)
    quantile = t.ppf(0.975, 39)
    for rate in (single, alike):
        assert rate.interval == pytest.approx(wilson(19.5, 39, quantile), abs=1e-4)
    assert apart.interval == pytest.approx(wilson(20, 40, quantile), abs=1e-4)
    single += alike
    assert single.interval[0] < single.micro < single.interval[1]
