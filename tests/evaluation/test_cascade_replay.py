"""A cascade replayed from stored scores: a table worked by hand, and the same outcome as the cascade itself."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.cascade_replay import choose, plot_curve, replay
from checklist_rewards.judges import CascadeJudge
from tests.judges.voters import DEAD, Voter, sure

QUESTIONS = ["a?", "b?", "c?", "d?"]
CHECKLIST = Checklist.parse(QUESTIONS)
# margins .9, .5, .1 and no answer
CHEAP = dict(zip(QUESTIONS, [sure(0.95), sure(0.75), sure(0.55), DEAD], strict=True))
STRONG = dict(zip(QUESTIONS, [sure(0.9), sure(0.2), sure(0.9), sure(0.9)], strict=True))
ITEMS = [CHECKLIST.items]
TRUTH = ["yes", "yes", "yes", "no"]


def scorer(table):
    return ChecklistScorer(judge=Voter(lambda read: table[read.item.question]), min_answered=0)


@pytest.fixture
def scores():
    return [[scorer(table).score(CHECKLIST, "text")] for table in (CHEAP, STRONG)]


def test_the_curve_by_hand(scores):
    points = replay(ITEMS, *scores, [TRUTH], cheap_cost=0.1, margins=[0, 0.2, 0.6, 1])
    assert [point.escalated for point in points] == [0.25, 0.5, 0.75, 1]
    assert [point.cost for point in points] == pytest.approx([0.35, 0.6, 0.85, 1.1])
    # right at margin 0: a and b by the cheap judge (c is no at .55), d by the strong one is yes and wrong
    assert [point.agreement for point in points] == [0.5, 0.75, 0.5, 0.5]
    assert {point.coverage for point in points} == {1.0}
    assert choose(points).margin == 0.2
    assert choose(points, tolerance=0.3).margin == 0


def test_without_labels_the_strong_judge_is_the_truth(scores):
    points = replay(ITEMS, *scores, margins=[0, 1])
    assert [point.agreement for point in points] == [0.5, 1.0]


def test_what_nobody_answered_is_in_the_coverage_only(scores):
    dead = [scorer(dict.fromkeys(QUESTIONS, DEAD)).score(CHECKLIST, "text")]
    [point] = replay(ITEMS, scores[0], dead, [TRUTH], margins=[1])
    assert (point.coverage, point.agreement) == (0.75, pytest.approx(2 / 3))
    [point] = replay(ITEMS, dead, dead, margins=[1])
    assert point.agreement is None
    with pytest.raises(SampleError, match="no margin can be chosen"):
        choose([point])


@pytest.mark.parametrize("margin", [0, 0.1, 0.3, 0.5, 0.7, 1])
def test_the_replay_is_what_the_cascade_does(scores, margin):
    strong = Voter(lambda read: STRONG[read.item.question])
    judge = CascadeJudge([Voter(lambda read: CHEAP[read.item.question]), strong], margin=margin)
    [score] = ChecklistScorer(judge=judge).score_batch([Sample(CHECKLIST, "text")])
    [point] = replay(ITEMS, *scores, [TRUTH], margins=[margin])
    assert point.escalated == len(strong.asked) / 4
    assert point.agreement == sum(line.answer == true for line, true in zip(score.items, TRUTH, strict=True)) / 4


def test_what_has_no_label_is_not_covered(scores):
    [point] = replay(ITEMS, *scores, [["yes", None, None, None]], margins=[0])
    assert (point.coverage, point.agreement) == (0.25, 1.0)
    [point] = replay(ITEMS, *scores, [None], margins=[0])
    assert (point.coverage, point.agreement) == (0, None)


def test_scores_of_other_rows_are_refused(scores):
    other = [scorer({"x?": sure(1.0)}).score(["x?"], "text")]
    with pytest.raises(SampleError, match="target 1: the two scores do not have the same items"):
        replay(ITEMS, scores[0], other)
    with pytest.raises(SampleError, match="must have the same length"):
        replay(ITEMS, scores[0], [])


def test_the_plot(scores, tmp_path):
    points = replay(ITEMS, *scores, [TRUTH])
    plot_curve(points, choose(points), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_a_text_without_an_answer_is_no_read_of_a_cascade(scores):
    cheap, strong = scores
    none = scorer(CHEAP).score(CHECKLIST, "")
    assert none.no_answer
    with_it = replay([*ITEMS, *ITEMS, *ITEMS], [*cheap, none, *cheap], [*strong, none, none], [TRUTH, TRUTH, None])
    assert with_it == replay(ITEMS, *scores, [TRUTH])
    with pytest.raises(SampleError, match="no items that a judge has read"):
        replay(ITEMS, [none], [none])
