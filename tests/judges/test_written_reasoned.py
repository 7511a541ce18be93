"""The judge that writes: reason before answer, words alone, votes, and replies that cannot be read."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistItem, Option
from checklist_rewards.backends import Reply
from checklist_rewards.errors import BackendError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, ReasonedJudge
from checklist_rewards.judges.questions import in_order
from checklist_rewards.scores import Aggregation, rescore, score_checklist
from checklist_rewards.scores.scales import ordinal_scale
from tests.judges.fakes import Script

SHORT, POLITE = ChecklistItem(question="Is it short?"), ChecklistItem(question="Is it polite?")
TONE = ChecklistItem(
    question="Tone?",
    options=(Option(label="rude", value=0), Option(label="kind", value=1), Option(label="cannot_assess", na=True)),
)


def reasoned(answer: str, reasoning: str = "Two words.") -> str:
    return json.dumps({"reasoning": reasoning, "answer": answer})


def test_the_reason_comes_first_and_is_kept():
    backend = Script([reasoned("yes"), f"Here you are:\n```json\n{reasoned('No')}\n```"])
    verdicts = ReasonedJudge(backend=backend).answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")])[0]
    assert [(v.answer, v.reasoning, v.method) for v in verdicts] == [
        ("yes", "Two words.", "reply"),
        ("no", "Two words.", "reply"),
    ]
    assert verdicts[0].probabilities is None
    [sampling] = backend.samplings
    assert list(json.loads(sampling.schema)["properties"]) == ["reasoning", "answer"]
    assert json.loads(sampling.schema)["properties"]["answer"]["enum"] == ["yes", "no"]
    assert (sampling.temperature, sampling.n) == (0.0, 1)
    user = backend.prompts[0][-1]["content"]
    assert user.index("Hi.") < user.index("Is it short?") < user.index('"answer"')


def test_items_with_options_are_told_their_answers_and_may_abstain():
    backend = Script([reasoned("kind"), reasoned("cannot assess")])
    verdicts = ReasonedJudge(backend=backend).answer([Ask(TONE, "Hi."), Ask(TONE, "Ho.")])[0]
    assert [verdict.answer for verdict in verdicts] == ["kind", "cannot_assess"]
    assert f"Possible answers: {', '.join(in_order(TONE, 'Hi.', 'pocket'))}" in backend.prompts[0][-1]["content"]
    assert json.loads(backend.samplings[0].schema)["properties"]["answer"]["enum"] == list(TONE.values)


def test_words_only_take_the_label_that_the_reply_begins_with():
    backend = Script(["Yes.", "No. It never says yes.", "kind"])
    judge = ReasonedJudge(backend=backend, reasoning=False)
    verdicts = judge.answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi."), Ask(TONE, "Hi.")])[0]
    assert [(v.answer, v.reasoning) for v in verdicts] == [("yes", None), ("no", None), ("kind", None)]
    assert [sampling.schema for sampling in backend.samplings] == [None]
    assert "Answer yes or no." in backend.prompts[0][-1]["content"]
    assert "one of the possible answers" in backend.prompts[2][-1]["content"]


def test_a_reply_that_cannot_be_read_is_asked_for_again_with_what_is_wrong():
    backend = Script([reasoned("maybe"), "It is short.", reasoned("yes")])
    [verdict] = ReasonedJudge(backend=backend).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.answer == "yes"
    first, second, third = backend.prompts
    assert second[: len(first)] == first and second[-2] == {"role": "assistant", "content": reasoned("maybe")}
    assert '"answer" must be "yes" or "no"' in second[-1]["content"]
    assert "there is no JSON" in third[-1]["content"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("It is short.", "unparsable: there is no JSON object in it, got 'It is short.'"),
        (reasoned("N/A"), 'unparsable: the "answer" must be "yes" or "no"'),
        ('{"verdict": "yes"}', 'unparsable: the JSON has no "answer"'),
        ("", "unparsable: there is no JSON"),
        (Reply('{"reasoning": "Two wo', "length"), "cut_off: the reply is longer than max_tokens=1024"),
        (Reply(None, None, "empty_choices"), "empty_choices"),
        (Reply(None, None, "too_long"), "too_long"),
    ],
)
def test_what_never_can_be_read_is_unanswered_with_the_reason_and_spoils_no_neighbour(reply, reason):
    backend = Script(lambda messages: reasoned("yes") if "polite" in messages[1]["content"] else reply)
    lost, fine = ReasonedJudge(backend=backend).answer([Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")])[0]
    assert lost.answer is None and lost.unanswered.startswith(reason)
    assert fine.answer == "yes"


def test_three_replies_at_most_and_a_truncated_one_that_is_whole_counts():
    backend = Script(lambda messages: "what?")
    ReasonedJudge(backend=backend).answer([Ask(SHORT, "Hi.")])
    assert len(backend.prompts) == 3
    whole = Script([Reply(reasoned("no") + " and so", "length")])
    assert ReasonedJudge(backend=whole).answer([Ask(SHORT, "Hi.")])[0][0].answer == "no"


def test_a_broken_engine_leaves_its_chunk_unanswered_and_unstored(tmp_path):
    store = Store(tmp_path / "s")
    broken = Script([BackendError("the engine broke")])
    [verdict] = ReasonedJudge(backend=broken, store=store).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.unanswered == "backend_error: the engine broke"
    mended = Script([reasoned("yes")])
    judge = ReasonedJudge(backend=mended, store=store)
    [verdict], spent = judge.answer([Ask(SHORT, "Hi.")])
    assert verdict.answer == "yes" and (spent.asked, spent.stored) == (1, 0)


def test_an_engine_that_breaks_on_the_second_try_does_not_hide_why_there_was_one():
    backend = Script(["what?", BackendError("the engine broke")])
    [verdict] = ReasonedJudge(backend=backend).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.unanswered.startswith("unparsable: there is no JSON")
    assert verdict.unanswered.endswith("; asked again: backend_error: the engine broke")


def test_equal_reads_are_asked_once_and_stored_replies_cost_nothing(tmp_path):
    store = Store(tmp_path / "s")
    reads = [Ask(SHORT, "Hi."), Ask(SHORT, "Hi."), Ask(POLITE, "Hi.")]
    seen: list[int] = []
    judge = ReasonedJudge("judge-1", backend=Script([reasoned("yes"), reasoned("no")]), store=store)
    before, r = judge.answer(reads, seen.append)
    assert [verdict.answer for verdict in before] == ["yes", "yes", "no"] and sum(seen) == 3 and min(seen) > 0
    assert (r.reads, r.deduplicated, r.stored, r.asked, r.unanswered) == (3, 1, 0, 2, 0)
    assert (r.calls, r.prompt_tokens, r.completion_tokens) == (2, 200, 20)
    assert r.cost({"judge-1": (1.0, 10.0)}) == pytest.approx((200 + 20 * 10) / 1e6)
    again = ReasonedJudge("judge-1", backend=Script([]), store=store)
    verdicts, r = again.answer(reads)
    assert verdicts == before
    assert (r.stored, r.asked, r.calls, r.prompt_tokens, r.engine_seconds) == (2, 0, 0, 0, 0.0)


# --- votes -----------------------------------------------------------------------------------------------------------


def votes(item: ChecklistItem, *answers: str | Reply):
    backend = Script([[a if isinstance(a, Reply) else reasoned(a, f"because {a}") for a in answers]])
    [verdict] = ReasonedJudge(backend=backend, votes=len(answers)).answer([Ask(item, "Hi.")])[0]
    assert backend.samplings[0].temperature == 0.7 and len(backend.prompts) == 1
    return verdict


def test_the_majority_is_the_answer_and_the_shares_are_its_probabilities():
    verdict = votes(SHORT, "no", "yes", "yes")
    assert (verdict.answer, verdict.method, verdict.reasoning) == ("yes", "votes", "because yes")
    assert verdict.probabilities == {"yes": pytest.approx(2 / 3), "no": pytest.approx(1 / 3)}


def test_a_majority_below_the_threshold_is_a_majority_also_when_scored_again():
    checklist = Checklist(items=(SHORT,))
    verdict = votes(SHORT, *["yes"] * 4, *["no"] * 3)  # 0.571: a read at this probability would be a no
    score = score_checklist(checklist, [verdict], Aggregation(threshold=0.6))
    assert score.items[0].answer == "yes" and score.expected_score == pytest.approx(4 / 7)
    assert rescore(checklist, type(score).model_validate_json(score.model_dump_json())) == score


def test_unreadable_samples_are_no_votes():
    verdict = votes(SHORT, "yes", "maybe", "N/A", Reply(None, None, "empty_choices"), "no", "yes")
    assert verdict.answer == "yes" and verdict.probabilities == {
        "yes": pytest.approx(2 / 3),
        "no": pytest.approx(1 / 3),
    }
    nothing = votes(SHORT, "maybe", "perhaps", "maybe")
    assert nothing.unanswered.startswith("unparsable") and nothing.probabilities is None


def test_one_lucky_vote_is_no_verdict():
    lucky = votes(SHORT, "maybe", "perhaps", "maybe", "who knows", "yes")
    assert lucky.unanswered == "quorum: 1 of 5 replies answered" and lucky.probabilities is None
    assert [vote.answer for vote in lucky.votes] == [None] * 4 + ["yes"]
    assert votes(SHORT, "maybe", "yes").answer == "yes"  # half of them
    gone = Reply(None, None, "timeout")
    assert votes(SHORT, gone, gone, gone, gone, "yes").unanswered == "quorum: timeout: 1 of 5 replies answered"


@pytest.mark.parametrize(
    "text",
    [f"{reasoned('yes')}\n{reasoned('no')}", '{"reasoning": "So.", "answer": "yes", "answer": "no"}'],
    ids=["two objects", "one key twice"],
)
def test_two_verdicts_in_one_reply_are_none(text):
    backend = Script([text, reasoned("no")])
    [verdict] = ReasonedJudge(backend=backend).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.answer == "no" and len(backend.prompts) == 2
    [verdict] = ReasonedJudge(backend=Script([text] * 3)).answer([Ask(SHORT, "Hi.")])[0]
    assert verdict.answer is None and verdict.unanswered.startswith("unparsable")
    quoted = f"The form is {json.dumps({'reasoning': '...', 'answer': 'yes or no'})}.\n{reasoned('yes')}"
    assert ReasonedJudge(backend=Script([quoted])).answer([Ask(SHORT, "Hi.")])[0][0].answer == "yes"


def test_a_tie_of_yes_and_no_is_the_worst_for_the_target():
    for weight, answer in ((1, "no"), (-1, "yes")):
        item = ChecklistItem(question=SHORT.question, weight=weight)
        verdict = votes(item, "yes", "no", "maybe")
        assert verdict.answer == answer and verdict.probabilities == {"yes": 0.5, "no": 0.5}
        score = score_checklist(Checklist(items=(item,)), [verdict])
        assert (score.pass_rate, score.expected_score) == (0, 0.5)
        assert (score.items[0].agreement, [vote.answer for vote in score.items[0].votes]) == (0.5, ["yes", "no", None])


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["80", "90"], "80"),  # as near to the mean: the lower
        (["0", "0", "90", "90", "100"], "90"),  # the mean is 56
        (["0", "0", "10", "90", "90"], "0"),  # the mean is 38
    ],
)
def test_of_tied_steps_the_one_nearest_the_mean_counts_and_the_mean_is_the_soft_value(answers, winner):
    item = ChecklistItem(question="How short?", options=ordinal_scale(101))
    verdict = votes(item, *answers)
    assert verdict.answer == winner
    score = score_checklist(Checklist(items=(item,)), [verdict])
    assert score.expected_score == pytest.approx(sum(map(int, answers)) / len(answers) / 100)


def test_a_tie_with_an_abstention_is_a_tie():
    assert votes(TONE, "kind", "cannot_assess").unanswered == "tie: kind 1, cannot_assess 1"
    assert votes(TONE, "kind", "cannot_assess", "cannot_assess").answer == "cannot_assess"


def test_the_pocket_judge_says_in_words_what_its_probabilities_say(pocket):
    from checklist_rewards import ChecklistScorer

    questions = ["Does the response end with a question mark?", "Does the response contain a digit?"]
    targets = ["the old lamo sees a bako?", "My 3 keno like this red tisa."]
    read = ChecklistScorer(backend=pocket, store=False, threshold=0.5)
    # One token: the pocket model was taught to say the label first, not to stop after it.
    write = ChecklistScorer(backend=pocket, store=False, use_logprobs=False, max_tokens=1)
    for target in targets:
        words, probabilities = write.score(questions, target), read.score(questions, target)
        assert [item.answer for item in words.items] == [item.answer for item in probabilities.items]
        assert {item.method for item in words.items} == {"reply"} and words.answered == 2
    assert write.receipt.calls == 4
