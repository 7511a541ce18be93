"""The judge that writes: reason before answer, words alone, votes, and replies that cannot be read."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistItem, ChecklistScorer, Score
from checklist_rewards.backends import Engine, Reply
from checklist_rewards.errors import BackendError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, ReasonedJudge
from checklist_rewards.scores import Aggregation, rescore, score_checklist
from checklist_rewards.scores.scales import ordinal_scale
from tests.judges.fakes import POLITE, SHORT, TONE, Script, answers


def reasoned(answer: str, reasoning: str = "Two words.") -> str:
    return json.dumps({"reasoning": reasoning, "answer": answer})


def test_the_reason_comes_first_and_is_kept():
    backend = Script([reasoned("yes"), f"Here you are:\n```json\n{reasoned('No')}\n```"])
    verdicts = answers(ReasonedJudge(backend), SHORT, POLITE)
    assert [(v.answer, v.reasoning, v.method) for v in verdicts] == [(a, "Two words.", "reply") for a in ("yes", "no")]
    assert verdicts[0].probabilities is None
    [sampling] = backend.samplings
    properties = json.loads(sampling.schema)["properties"]
    assert list(properties) == ["reasoning", "answer"] and properties["answer"]["enum"] == ["yes", "no"]
    assert (sampling.temperature, sampling.n) == (0.0, 1)
    user = backend.prompts[0][-1]["content"]
    assert user.index("Hi.") < user.index("Is it short?") < user.index('"answer"')


def test_words_only_take_the_label_that_the_reply_begins_with():
    backend = Script(["Yes.", "No. It never says yes.", "kind"])
    verdicts = answers(ReasonedJudge(backend, reasoning=False, max_tokens=7), SHORT, POLITE, TONE)
    assert [(v.answer, v.reasoning) for v in verdicts] == [("yes", None), ("no", None), ("kind", None)]
    assert [(sampling.schema, sampling.max_tokens) for sampling in backend.samplings] == [(None, 7)]
    assert "Answer yes or no." in backend.prompts[0][-1]["content"]
    assert "one of the possible answers" in backend.prompts[2][-1]["content"]


def test_a_reply_that_cannot_be_read_is_asked_for_again_with_what_is_wrong():
    backend = Script([reasoned("maybe"), "It is short.", reasoned("yes")])
    assert answers(ReasonedJudge(backend), SHORT)[0].answer == "yes"
    first, second, third = backend.prompts
    assert second[: len(first)] == first and second[-2] == {"role": "assistant", "content": reasoned("maybe")}
    assert '"answer" must be "yes" or "no"' in second[-1]["content"]
    assert "there is no JSON" in third[-1]["content"]


@pytest.mark.parametrize(
    ("reply", "reason", "tries"),
    [
        ("It is short.", "unparsable: there is no JSON object in it, got 'It is short.'", 3),
        (reasoned("N/A"), 'unparsable: the "answer" must be "yes" or "no"', 3),
        ('{"verdict": "yes"}', 'unparsable: the JSON has no "answer"', 3),
        (Reply('{"reasoning": "Two wo', "length"), "cut_off: the reply is longer than max_tokens=1024", 3),
        (Reply(None, None, "too_long"), "too_long", 1),
    ],
)
def test_what_never_can_be_read_is_unanswered_with_the_reason_and_spoils_no_neighbour(reply, reason, tries):
    backend = Script(lambda messages: reasoned("yes") if "polite" in messages[1]["content"] else reply)
    lost, fine = answers(ReasonedJudge(backend), SHORT, POLITE)
    assert lost.answer is None and lost.unanswered.startswith(reason)
    assert fine.answer == "yes" and len(backend.prompts) == tries + 1


QUOTED = f"The form is {json.dumps({'reasoning': '...', 'answer': 'yes or no'})}."


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(reasoned("no") + " and so", "length"), "no"),  # cut off, but whole
        (f"{QUOTED}\n{reasoned('yes')}", "yes"),
        (f"{reasoned('yes')}\n{reasoned('no')}", None),
        ('{"reasoning": "So.", "answer": "yes", "answer": "no"}', None),
    ],
    ids=["whole", "the form quoted", "two objects", "one key twice"],
)
def test_a_reply_has_one_verdict_or_none(reply, answer):
    backend = Script([reply, reasoned("yes")])
    assert answers(ReasonedJudge(backend), SHORT)[0].answer == (answer or "yes")
    assert len(backend.prompts) == (1 if answer else 2)


def test_a_broken_engine_leaves_its_chunk_unanswered_and_unstored(tmp_path):
    broken = "backend_error: the engine broke"
    store = Store(tmp_path / "s")
    [verdict] = answers(ReasonedJudge(Script([BackendError("the engine broke")]), store=store), SHORT)
    assert verdict.unanswered == broken
    [verdict], spent = ReasonedJudge(Script([reasoned("yes")]), store=store).answer([Ask(SHORT, "Hi.")])
    assert verdict.answer == "yes" and (spent.asked, spent.stored) == (1, 0)
    # On the second try, it does not hide why there was one.
    [verdict] = answers(ReasonedJudge(Script(["what?", BackendError("the engine broke")])), SHORT)
    assert verdict.unanswered.startswith("unparsable: there is no JSON")
    assert verdict.unanswered.endswith(f"; asked again: {broken}")


def test_equal_reads_are_asked_once_and_stored_replies_cost_nothing(tmp_path):
    store, seen = Store(tmp_path / "s"), []
    reads = [Ask(SHORT, "Hi."), Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")]
    judge = ReasonedJudge(Engine("judge-1", Script([reasoned("yes"), reasoned("no")])), store=store)
    before, r = judge.answer(reads, seen.append)
    assert [verdict.answer for verdict in before] == ["yes", "yes", "no"] and sum(seen) == 3 and min(seen) > 0
    assert (r.reads, r.deduplicated, r.stored, r.asked, r.unanswered) == (3, 1, 0, 2, 0)
    assert (r.calls, r.prompt_tokens, r.completion_tokens) == (2, 200, 20)
    assert r.cost({"judge-1": (1.0, 10.0)}) == pytest.approx((200 + 20 * 10) / 1e6)
    verdicts, r = ReasonedJudge(Engine("judge-1", Script([])), store=store).answer(reads)
    assert verdicts == before
    assert (r.stored, r.asked, r.calls, r.prompt_tokens, r.engine_seconds) == (2, 0, 0, 0, 0.0)


# --- votes -----------------------------------------------------------------------------------------------------------


def votes(item: ChecklistItem, *said: str | Reply):
    backend = Script([[a if isinstance(a, Reply) else reasoned(a, f"because {a}") for a in said]])
    [verdict] = answers(ReasonedJudge(backend, votes=len(said)), item)
    assert backend.samplings[0].temperature == 0.7 and len(backend.prompts) == 1
    return verdict


def test_the_majority_is_the_answer_and_the_shares_are_its_probabilities():
    verdict = votes(SHORT, "no", "maybe", "yes", Reply(None, None, "empty_choices"), "N/A", "yes")
    assert (verdict.answer, verdict.method, verdict.reasoning) == ("yes", "votes", "because yes")
    assert verdict.probabilities == {"yes": pytest.approx(2 / 3), "no": pytest.approx(1 / 3)}
    assert [vote.answer for vote in verdict.votes] == ["no", None, "yes", None, None, "yes"]
    none = votes(SHORT, "maybe", "perhaps", "maybe")
    assert none.unanswered.startswith("unparsable") and none.probabilities is None and len(none.votes) == 3


@pytest.mark.parametrize(
    ("item", "said", "reason"),
    [
        (SHORT, ["maybe", "perhaps", "yes"], "quorum: 1 of 3 replies answered"),
        (SHORT, [Reply(None, None, "timeout")] * 2 + ["yes"], "quorum: timeout: 1 of 3 replies answered"),
        (TONE, ["kind", "cannot_assess"], "tie: kind 1, cannot_assess 1"),
    ],
)
def test_votes_that_decide_nothing(item, said, reason):
    verdict = votes(item, *said)
    assert verdict.unanswered == reason and (verdict.probabilities is None) == (item is SHORT)


SCALE = ChecklistItem(question="How short?", options=ordinal_scale(101))
PENALTY = ChecklistItem(question=SHORT.question, weight=-1)


@pytest.mark.parametrize(
    ("item", "said", "winner", "expected_score"),
    [
        (SHORT, ["maybe", "yes"], "yes", 1),  # half of them are a quorum
        (SHORT, ["yes", "no", "maybe"], "no", 0.5),  # of a tie, the worst for the target
        (PENALTY, ["yes", "no", "maybe"], "yes", 0.5),
        (TONE, ["kind", "cannot_assess", "cannot_assess"], "cannot_assess", None),
        # Of tied steps, the one nearest to the mean; the mean is the soft value.
        (SCALE, ["80", "90"], "80", 0.85),  # as near: the lower
        (SCALE, ["0", "0", "90", "90", "100"], "90", 0.56),
    ],
)
def test_which_votes_win(item, said, winner, expected_score):
    verdict = votes(item, *said)
    score = score_checklist(Checklist(items=(item,)), [verdict])
    assert verdict.answer == winner and score.expected_score == (expected_score and pytest.approx(expected_score))


def test_a_majority_below_the_threshold_is_a_majority_also_when_scored_again():
    checklist = Checklist(items=(SHORT,))
    verdict = votes(SHORT, *["yes"] * 4, *["no"] * 3)  # 0.571: a read at this probability would be a no
    score = score_checklist(checklist, [verdict], Aggregation(threshold=0.6))
    assert score.items[0].answer == "yes" and score.expected_score == score.items[0].agreement == pytest.approx(4 / 7)
    assert rescore(checklist, type(score).model_validate_json(score.model_dump_json())) == score


# --- checklist-guided: all questions with a justification, then a grade ----------------------------------------------


QUESTIONS = ["Is it short?", {"question": "Is it polite?", "weight": 3}]


def graded(quality, *answers: str) -> str:
    entries = [{"index": n, "justification": f"Because {n}.", "answer": a} for n, a in enumerate(answers, 1)]
    return json.dumps({"answers": entries} | ({} if quality is None else {"grade": quality}))


def scored(*script: str, questions=QUESTIONS, **settings) -> tuple[Score, Script]:
    backend = Script(list(script))
    return ChecklistScorer(backend=backend, mode="quality", store=False, **settings).score(questions, "Hi."), backend


def test_answers_become_verdicts_and_the_grade_the_quality():
    score, backend = scored(graded(4, "yes", "no"))
    assert (score.quality, score.primary_metric, score.primary_score) == (4, "quality", 0.75)
    assert (score.lower, score.upper, score.pass_rate, score.weighted_score) == (0.75, 0.75, 0.5, 0.25)
    assert [(item.answer, item.reasoning) for item in score.items] == [("yes", "Because 1."), ("no", "Because 2.")]
    schema = json.loads(backend.samplings[0].schema)
    assert list(schema["properties"]) == ["answers", "grade"]
    assert list(schema["properties"]["answers"]["items"]["properties"]) == ["index", "justification", "answer"]
    gated, _ = scored(graded(5, "no"), questions=[{"question": "a?", "required": True}])
    assert (gated.quality, gated.primary_score) == (5, 0.0)


@pytest.mark.parametrize("said", [0, 3.5, "4/5", True, None])
def test_a_reply_without_a_grade_is_asked_for_again_and_its_answers_count(said):
    text = graded(said, "yes", "no")
    score, backend = scored(text, graded("3", "yes", "no"))
    assert score.quality == 3 and len(backend.prompts) == 2
    assert '"grade" must be a whole number from 1 to 5' in backend.prompts[1][-1]["content"]
    score, backend = scored(*[text] * 3)
    assert score.quality is score.primary_score is None and len(backend.prompts) == 3
    assert (score.pass_rate, score.lower, score.upper) == (0.5, 0.0, 1.0)


def test_of_two_grades_there_is_none():
    score, backend = scored(*[f"{graded(5, 'yes', 'no')}\n{graded(2, 'yes', 'no')}"] * 3)
    assert score.quality is score.primary_score is None and len(backend.prompts) == 3


def test_a_grade_without_all_answers_is_asked_for_again_as_a_whole():
    score, backend = scored(graded(5, "yes"), graded(3, "yes", "no"))
    assert (score.quality, score.answered) == (3, 2)
    assert "[2] have no answer" in backend.prompts[1][-1]["content"]
    score, _ = scored(*[graded(5, "N/A", "yes")] * 3)
    assert (score.quality, score.answered) == (5, 1)
    assert score.items[0].unanswered == "unparsable: 'N/A' is no possible answer"
