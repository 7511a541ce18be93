"""What a sample of completions says about a set of checklists before training."""

import pytest

from checklist_rewards import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.gradient import GradientForecast
from checklist_rewards.scores import Aggregation, Verdict, score_checklist

CHECKLIST = Checklist.parse(["Is it short?", "Is it red and is it round?", "The response is kind."])


def score(*yes, metric="weighted", mass=0.9):
    verdicts = [Verdict({"yes": p, "no": 1 - p}, mass=mass) for p in yes]
    return score_checklist(CHECKLIST, verdicts, Aggregation(primary_metric=metric))


def test_figures_by_hand():
    forecast = GradientForecast()
    for length, yes in ((10, (0.9, 0.1, 0.9)), (20, (0.9, 0.9, 0.9)), (30, (0.9, 0.9, 0.9)), (40, (0.9, 0.1, 0.9))):
        forecast.add("apart", score(*yes), length)
        forecast.add("equal", score(0.9, 0.1, 0.1, mass=0.3), length)
    forecast.add("alone", score(0.9, 0.9, 0.9), 5)
    forecast.add_canary("apart", "empty praise", score(0.9, 0.9, 0.1))
    forecast.add_canary("equal", "empty praise", score(0.9, 0.9, 0.1))
    report = forecast.report()
    assert (report.prompts, report.completions, report.size) == (2, 8, 4)
    assert report.gradient.value == 0.5
    assert (report.all_pass, report.none_pass) == pytest.approx((3 / 6, 2 / 6))
    assert report.faults == {"asks two questions; write one item for each": 1, "must end with a question mark": 1}
    assert report.items == 3 and report.low_mass == pytest.approx(12 / 27)
    assert report.length == pytest.approx(0.0, abs=1e-9)
    assert report.canaries == {"empty praise": 0.5}  # 2/3 against medians of 5/6 and 1/3
    assert (
        report.sentence == "This set gives a gradient on about 50% [9%, 91%] of the groups of 4 (2 prompts sampled)."
    )


def test_a_question_with_options_need_not_be_answered_with_yes_or_no():
    options = [{"label": "poor", "value": 0}, {"label": "fine", "value": 1}]
    checklist = Checklist.parse([{"question": "How clear is it?", "options": options}, "What is red?"])
    forecast = GradientForecast()
    for clear in (0.2, 0.9):
        verdicts = [Verdict({"poor": 1 - clear, "fine": clear}), Verdict({"yes": clear, "no": 1 - clear})]
        forecast.add("p", score_checklist(checklist, verdicts), 5)
    assert forecast.report().faults == {"cannot be answered with yes or no": 1} and forecast.report().items == 2


def test_an_item_that_was_answered_once_has_no_pass_rate():
    forecast = GradientForecast()
    read = [Verdict({"yes": 0.9, "no": 0.1}), *[Verdict(unanswered="timeout")] * 2]
    once = score_checklist(CHECKLIST, read, Aggregation(min_answered=0.0))
    for scores in (once, score(0.1, 0.9, 0.9), score(0.9, 0.9, 0.9)):
        forecast.add("a", scores, 10)
    for scores in (once, once):
        forecast.add("b", scores, 10)
    forecast.add("b", score(0.9, 0.1, 0.9), 10)
    report = forecast.report()
    assert (report.all_pass, report.none_pass) == pytest.approx((3 / 4, 0))


def test_smaller_groups_than_were_sampled():
    forecast = GradientForecast(size=2)
    for number in range(40):
        for place in range(4):  # one of four differs: two drawn of them differ in half of the draws
            forecast.add(f"prompt {number}", score(0.9, 0.9 if place else 0.1, 0.9), 10)
    assert forecast.report().gradient.value == pytest.approx(0.5, abs=0.03)
    forecast.size = 8
    with pytest.raises(SampleError, match="groups of 8 cannot be predicted from 4 completions per prompt"):
        forecast.report()


def test_differences_of_soft_scores_near_zero_and_one_are_no_gradient():
    forecast = GradientForecast()
    forecast.add("alone", score(0.9, 0.9, 0.9), 5)
    report = forecast.report()  # no group
    assert report.prompts == 0 and report.gradient.value is None and "nothing is known" in report.sentence
    for number, yes in enumerate([(0.99, 0.01, 0.99), (0.985, 0.01, 0.99), (0.99, 0.015, 0.99)]):
        forecast.add("same", score(*yes, metric="expected"), number)
        forecast.add("other", score(0.99, 0.4 * number, 0.99, metric="expected"), number)
    assert forecast.report().gradient.value == 0.5
