"""TICK's baselines over any judge: grades, grades with a checklist in view, preferences in both orders."""

import json

import pytest

from checklist_rewards import Sample
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.evaluation.baselines import (
    DIRECT_PROMPT,
    PREFERENCE_PROMPT,
    ResponsePair,
    check_then_scores,
    direct_scores,
    preferences,
    preferred,
)
from checklist_rewards.judges import LogprobJudge, ReasonedJudge
from tests.judges.fakes import Labels, Script

SAMPLES = [Sample(["Is it short?", "Is it polite?"], "Hi.", "Greet me."), Sample(["Is it red?"], "Ho.", "Greet me.")]


def answer(label: str) -> str:
    return json.dumps({"reasoning": f"so {label}", "answer": label})


def test_a_reasoned_judge_grades_the_response_as_a_whole():
    backend = Script([answer("4"), answer("6"), answer("six"), answer("0")])
    four, lost = direct_scores(ReasonedJudge(backend=backend, prompt=DIRECT_PROMPT), SAMPLES)
    assert (four.grade, four.expected, four.reasoning, four.unanswered) == (4, 4.0, "so 4", None)
    assert lost.grade is lost.expected is None and lost.unanswered.startswith("unparsable")
    assert "Is it short?" not in backend.prompts[0][-1]["content"] and "Greet me." in backend.prompts[0][-1]["content"]


def test_a_one_token_judge_gives_the_mean_grade_as_well():
    backend = Labels({"1": 0.1, "2": 0.1, "3": 0.1, "4": 0.3, "5": 0.4})
    first, _ = direct_scores(LogprobJudge(backend=backend, prompt=DIRECT_PROMPT), SAMPLES)
    assert first.grade == 5 and first.expected == pytest.approx(0.1 + 0.2 + 0.3 + 1.2 + 2.0)
    assert backend.read_calls[0][0] == ("1", "2", "3", "4", "5")


def test_check_then_score_shows_the_checklist():
    backend = Script([answer("2"), answer("3")])
    graded = check_then_scores(ReasonedJudge(backend=backend, prompt=DIRECT_PROMPT), SAMPLES)
    assert [grade.grade for grade in graded] == [2, 3]
    assert "1. Is it short?\n2. Is it polite?" in backend.prompts[0][-1]["content"]
    assert "1. Is it red?" in backend.prompts[1][-1]["content"]


@pytest.mark.parametrize(
    ("given", "swapped", "winner", "consistent", "share"),
    [
        ("A", "B", "first", True, 1.0),
        ("B", "A", "second", True, 0.0),
        ("C", "C", "tie", True, 0.5),
        ("A", "A", "tie", False, 0.5),  # whatever stands first
        ("A", "C", "tie", False, 0.75),
    ],
)
def test_a_preference_must_hold_in_both_orders(given, swapped, winner, consistent, share):
    backend = Script([answer(given), answer(swapped)])
    judge = ReasonedJudge(backend=backend, prompt=PREFERENCE_PROMPT)
    [found] = preferences(judge, [ResponsePair("red text", "blue text", "Write.")])
    assert (found.winner, found.consistent, found.share) == (winner, consistent, share)
    assert found.reasoning == (f"so {given}", f"so {swapped}")
    one, other = (messages[-1]["content"] for messages in backend.prompts)
    assert one.index("red text") < one.index("blue text") and other.index("blue text") < other.index("red text")


def test_a_lost_order_is_no_preference():
    backend = Script([answer("A"), "no idea", "none", "none"])
    [found] = preferences(ReasonedJudge(backend=backend, prompt=PREFERENCE_PROMPT), [ResponsePair("a", "b")])
    assert found.winner is found.share is found.consistent is None and found.unanswered.startswith("unparsable")
    broken = Script([BackendError("gone")] * 2)
    [found] = preferences(ReasonedJudge(backend=broken, prompt=PREFERENCE_PROMPT), [ResponsePair("a", "b")])
    assert found.unanswered == "backend_error: gone"


def test_scores_of_any_kind_give_a_preference():
    assert [preferred(*pair) for pair in ((0.9, 0.2), (1, 3), (2, 2), (None, 1))] == ["first", "second", "tie", None]


def test_what_is_no_text_is_refused_by_number():
    with pytest.raises(SampleError, match="pair 2: second must be a string, got int 7"):
        preferences(ReasonedJudge(backend=Script([])), [ResponsePair("a", "b"), ResponsePair("a", 7)])
    with pytest.raises(SampleError, match="sample 1: target must be a string, got NoneType"):
        direct_scores(ReasonedJudge(backend=Script([])), [Sample(["a?"], None)])


@pytest.mark.parametrize("graded", [direct_scores, check_then_scores])
def test_a_target_without_an_answer_is_not_graded(graded):
    backend = Script([answer("4")])
    samples = [Sample(["Is it short?"], " \n"), SAMPLES[0], Sample(["Is it red?"], "", state="cut_in_thought")]
    empty, four, cut = graded(ReasonedJudge(backend=backend, prompt=DIRECT_PROMPT), samples)
    assert (empty.grade, empty.expected, empty.unanswered) == (None, None, "no_answer: empty")
    assert four.grade == 4 and cut.unanswered == "no_answer: cut_in_thought" and len(backend.prompts) == 1
