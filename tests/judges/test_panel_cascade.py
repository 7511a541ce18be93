"""A cheap judge first: what it is unsure of goes on, and nothing is lost on the way."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.errors import NoServerError, SampleError
from checklist_rewards.judges import CascadeJudge
from checklist_rewards.judges.panel import margin_of
from checklist_rewards.scores import Verdict
from tests.judges.voters import DEAD, Absent, Voter, sure

CHECKLIST = ["Is it sure?", "Is it unsure?", "Is it lost?"]


def cheap(read):
    return {"Is it sure?": sure(0.95), "Is it unsure?": sure(0.55), "Is it lost?": DEAD}[read.item.question]


def test_only_the_unsure_and_the_unanswered_go_on():
    strong = Voter(sure(0.1), "strong")
    score = ChecklistScorer(judge=CascadeJudge([Voter(cheap, "cheap"), strong])).score(CHECKLIST, "text")
    assert [read.item.question for read in strong.asked] == CHECKLIST[1:]
    assert [line.answer for line in score.items] == ["yes", "no", "no"]
    assert score.items[0].votes is None
    assert [vote.answer for vote in score.items[1].votes] == ["no", "no"]
    assert [vote.unanswered for vote in score.items[2].votes] == [DEAD.unanswered, None]


def test_when_the_strong_judge_fails_an_unsure_answer_stands_and_a_missing_one_stays_missing():
    judge = CascadeJudge([Voter(cheap), Voter(DEAD)])
    score = ChecklistScorer(judge=judge, min_answered=0).score(CHECKLIST, "text")
    assert score.items[1].probabilities["yes"] == pytest.approx(0.55)
    assert score.items[2].unanswered == DEAD.unanswered


def test_a_judge_without_a_server_is_one_that_failed_unless_nobody_is_left():
    scorer = ChecklistScorer(judge=CascadeJudge([Voter(cheap), Absent()]), min_answered=0)
    assert [line.answer for line in scorer.score(CHECKLIST, "text").items] == ["yes", "no", None]
    scorer = ChecklistScorer(judge=CascadeJudge([Absent(), Voter(sure(0.9))]))
    assert [line.answer for line in scorer.score(CHECKLIST, "text").items] == ["yes", "yes", "yes"]
    with pytest.raises(NoServerError, match="no server answers for one"):
        ChecklistScorer(judge=CascadeJudge([Absent("one"), Absent()])).score(CHECKLIST, "text")


def test_margin_zero_asks_again_only_where_there_is_no_answer():
    strong = Voter(sure(0.9))
    ChecklistScorer(judge=CascadeJudge([Voter(cheap), strong], margin=0)).score(CHECKLIST, "text")
    assert [read.item.question for read in strong.asked] == ["Is it lost?"]


def test_low_label_mass_goes_on():
    strong = Voter(sure(0.9))
    judge = CascadeJudge([Voter(sure(0.99, mass=0.6)), strong], mass=0.9)
    ChecklistScorer(judge=judge).score(["Is it?"], "text")
    assert len(strong.asked) == 1


def test_a_word_is_sure():
    strong = Voter(sure(0.9))
    ChecklistScorer(judge=CascadeJudge([Voter(Verdict(answer="no")), strong])).score(["Is it?"], "text")
    assert not strong.asked


def test_three_stages_and_the_progress_of_each_read_once():
    seen: list[int] = []
    last = Voter(sure(0.9), "last")
    judge = CascadeJudge([Voter(cheap), Voter(sure(0.6)), last])
    scorer = ChecklistScorer(judge=judge)
    scorer.score_batch([Sample(CHECKLIST, "text")], progress=seen.append)
    assert len(last.asked) == 2 and seen == [1, 0, 2]
    assert scorer.receipt.reads == 3 + 2 + 2


def test_the_margin_of_options_is_between_the_best_two():
    assert margin_of(Verdict({"a": 0.5, "b": 0.3, "c": 0.2})) == pytest.approx(0.2)
    assert margin_of(sure(0.2)) == pytest.approx(0.6)
    assert margin_of(Verdict(answer="yes")) is None


@pytest.mark.parametrize("settings", [{"margin": 1.5}, {"mass": -0.1}])
def test_settings_are_refused(settings):
    with pytest.raises(SampleError, match="a number from 0 to 1"):
        CascadeJudge([Voter(DEAD), Voter(DEAD)], **settings)
