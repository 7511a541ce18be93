"""Scores from files: their states, and the answers that `diff` compares."""

from checklist_rewards import Checklist, Score
from checklist_rewards.evaluation.differences import stored_reads
from checklist_rewards.scores import Verdict, score_checklist

CHECKLIST = Checklist.parse(["Is it red?", {"question": "Is it rude?", "weight": -1}])
NONE = score_checklist(CHECKLIST, [Verdict(unanswered="no_answer: cut_in_thought")] * 2, state="cut_in_thought")


def test_a_score_of_an_earlier_version_has_no_state():
    dumped = NONE.model_dump(mode="json")
    assert Score.model_validate(dumped).recorded_state == "cut_in_thought" == NONE.recorded_state
    del dumped["state"]
    assert Score.model_validate(dumped).recorded_state is None


def test_a_text_without_an_answer_has_a_score_and_no_answers():
    assert NONE.primary_score == 0 and [line.value for line in NONE.items] == [0, 1]
    reads = stored_reads(NONE).values()
    assert [(read.answer, read.p, read.value) for read in reads] == [(None, None, None)] * 2
