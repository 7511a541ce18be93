"""The checklist-guided judge: all questions with a justification, then a grade."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Score
from checklist_rewards.scores import Aggregation, rescore
from tests.judges.fakes import Script

QUESTIONS = ["Is it short?", {"question": "Is it polite?", "weight": 3}]


def graded(quality, *answers: str) -> str:
    entries = [{"index": n, "justification": f"Because {n}.", "answer": a} for n, a in enumerate(answers, 1)]
    return json.dumps({"answers": entries} | ({} if quality is None else {"grade": quality}))


def scored(*script: str, **options) -> tuple[Score, Script]:
    backend = Script(list(script))
    scorer = ChecklistScorer(backend=backend, mode="quality", store=False, **options)
    return scorer.score(QUESTIONS, "Hi."), backend


def test_answers_become_verdicts_and_the_grade_the_quality():
    score, backend = scored(graded(4, "yes", "no"))
    assert (score.quality, score.primary_metric, score.primary_score) == (4, "quality", 0.75)
    assert (score.lower, score.upper) == (0.75, 0.75)
    assert [(item.answer, item.reasoning) for item in score.items] == [("yes", "Because 1."), ("no", "Because 2.")]
    assert score.pass_rate == 0.5 and score.weighted_score == 0.25
    schema = json.loads(backend.samplings[0].schema)
    assert list(schema["properties"]) == ["answers", "grade"]
    assert list(schema["properties"]["answers"]["items"]["properties"]) == ["index", "justification", "answer"]


@pytest.mark.parametrize(("said", "quality"), [(1, 1), (5, 5), ("3", 3), (2.0, 2)])
def test_grades_as_they_are_written(said, quality):
    assert scored(graded(said, "yes", "no"))[0].quality == quality


@pytest.mark.parametrize("said", [0, 6, 3.5, "4/5", "good", True, None])
def test_a_reply_without_a_grade_is_asked_for_again_and_its_answers_count(said):
    score, backend = scored(graded(said, "yes", "no"), graded(2, "yes", "no"))
    assert score.quality == 2 and '"grade" must be a whole number from 1 to 5' in backend.prompts[1][-1]["content"]
    score, backend = scored(*[graded(said, "yes", "no")] * 3)
    assert score.quality is None and score.pass_rate == 0.5 and len(backend.prompts) == 3
    assert score.primary_score is None and (score.lower, score.upper) == (0.0, 1.0)


def test_two_grades_in_one_reply_are_none():
    two = f"{graded(5, 'yes', 'no')}\n{graded(2, 'yes', 'no')}"
    score, backend = scored(two, graded(3, "yes", "no"))
    assert score.quality == 3 and len(backend.prompts) == 2
    assert scored(*[two] * 3)[0].quality is None


def test_a_grade_without_all_answers_is_asked_for_again_as_a_whole():
    score, backend = scored(graded(5, "yes"), graded(3, "yes", "no"))
    assert (score.quality, score.answered) == (3, 2)
    assert "[2] have no answer" in backend.prompts[1][-1]["content"]
    score, _ = scored(*[graded(5, "N/A", "yes")] * 3)
    assert (score.quality, score.answered, score.items[0].unanswered) == (
        5,
        1,
        "unparsable: 'N/A' is no possible answer",
    )


def test_a_misnumbered_reply_gives_neither_answers_nor_a_grade():
    text = graded(5, "yes", "no").replace('"index": 1', '"index": 0')
    score, _ = scored(*[text] * 3)
    assert score.quality is score.primary_score is None and score.unanswered == {"unparsable": 2}


def test_another_metric_may_be_primary_and_the_grade_survives_storing_and_rescoring():
    score, _ = scored(graded(4, "yes", "no"), metric="weighted")
    assert (score.primary_score, score.quality) == (0.25, 4)
    stored = Score.model_validate_json(score.model_dump_json())
    again = rescore(Checklist.parse(QUESTIONS), stored, Aggregation(primary_metric="quality"))
    assert (again.quality, again.primary_score) == (4, 0.75)


def test_a_failed_gate_makes_the_graded_score_zero():
    backend = Script([graded(5, "no")])
    scorer = ChecklistScorer(backend=backend, mode="quality", store=False)
    score = scorer.score([{"question": "a?", "required": True}], "Hi.")
    assert (score.quality, score.primary_score) == (5, 0.0)
