"""A cascade replayed from stored scores: a table worked by hand, and the same outcome as the cascade itself."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.cascade_replay import choose, plot_curve, replay
from checklist_rewards.evaluation.scored import ItemAnswer, ScoredText
from checklist_rewards.judges import CascadeJudge
from tests.judges.voters import DEAD, Voter, sure

QUESTIONS = ["a?", "b?", "c?", "d?"]
CHECKLIST = Checklist.parse(QUESTIONS)
# margins .9, .5, .1 and no answer
CHEAP = dict(zip(QUESTIONS, [sure(0.95), sure(0.75), sure(0.55), DEAD], strict=True))
STRONG = dict(zip(QUESTIONS, [sure(0.9), sure(0.2), sure(0.9), sure(0.9)], strict=True))
TRUTH = ["yes", "yes", "yes", "no"]


def scorer(table):
    return ChecklistScorer(judge=Voter(lambda read: table[read.item.question]), min_answered=0)


@pytest.fixture
def scores():
    return [scorer(table).score(CHECKLIST, "text") for table in (CHEAP, STRONG)]


def pair(cheap, strong, labels=None):
    """A text scored by both judges, with its labels."""
    given = None if labels is None else [label and ItemAnswer(label, None, None) for label in labels]
    return ScoredText("1", "row 1", cheap, labels=given), ScoredText("1", "row 1", strong)


def test_the_curve_by_hand(scores, tmp_path):
    points = replay([pair(*scores, TRUTH)], by_labels=True, cheap_cost=0.1, margins=[0, 0.2, 0.6, 1])
    assert [point.escalated for point in points] == [0.25, 0.5, 0.75, 1]
    assert [point.cost for point in points] == pytest.approx([0.35, 0.6, 0.85, 1.1])
    # right at margin 0: a and b by the cheap judge (c is no at .55), d by the strong one is yes and wrong
    assert [point.agreement for point in points] == [0.5, 0.75, 0.5, 0.5]
    assert {point.coverage for point in points} == {1.0}
    assert choose(points).margin == 0.2
    assert choose(points, tolerance=0.3).margin == 0
    plot_curve(points, choose(points), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000
    without_labels = replay([pair(*scores)], margins=[0, 1])  # the strong judge is the truth
    assert [point.agreement for point in without_labels] == [0.5, 1.0]


def test_what_nobody_answered_or_labelled_is_in_the_coverage_only(scores):
    dead = scorer(dict.fromkeys(QUESTIONS, DEAD)).score(CHECKLIST, "text")
    [point] = replay([pair(scores[0], dead, TRUTH)], by_labels=True, margins=[1])
    assert (point.coverage, point.agreement) == (0.75, pytest.approx(2 / 3))
    [point] = replay([pair(dead, dead)], margins=[1])
    assert point.agreement is None
    with pytest.raises(SampleError, match="no margin can be chosen"):
        choose([point])
    for labels, found in ((["yes", None, None, None], (0.25, 1.0)), (None, (0, None))):
        [point] = replay([pair(*scores, labels)], by_labels=True, margins=[0])
        assert (point.coverage, point.agreement) == found


@pytest.mark.parametrize("margin", [0, 0.5, 1])
def test_the_replay_is_what_the_cascade_does(scores, margin):
    strong = Voter(lambda read: STRONG[read.item.question])
    judge = CascadeJudge([Voter(lambda read: CHEAP[read.item.question]), strong], margin=margin)
    [score] = ChecklistScorer(judge=judge).score_batch([Sample(CHECKLIST, "text")])
    [point] = replay([pair(*scores, TRUTH)], by_labels=True, margins=[margin])
    assert point.escalated == len(strong.asked) / 4
    assert point.agreement == sum(line.answer == true for line, true in zip(score.items, TRUTH, strict=True)) / 4


def test_scores_of_other_rows_are_refused(scores):
    other = scorer({"x?": sure(1.0)}).score(["x?"], "text")
    with pytest.raises(SampleError, match="target 1: the two scores do not have the same items"):
        replay([pair(scores[0], other)])


def test_a_text_without_an_answer_is_no_read_of_a_cascade(scores):
    cheap, strong = scores
    none = scorer(CHEAP).score(CHECKLIST, "")
    assert none.no_answer
    three = [pair(cheap, strong, TRUTH), pair(none, none, TRUTH), pair(cheap, none)]
    assert replay(three, by_labels=True) == replay(three[:1], by_labels=True)
    with pytest.raises(SampleError, match="no items that a judge has read"):
        replay([pair(none, none)])
