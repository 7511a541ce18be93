"""Items about single messages of a conversation: which texts are read, and what the answers mean together."""

import re

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.chat import CompletionReader
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ChecklistError
from checklist_rewards.judges.scoped import combine
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Reason, Unanswered, Verdict
from checklist_rewards.scores.scales import on_scale, ordinal_scale, with_abstention
from tests.fakes import FakeBackend

CALL = {"function": {"name": "delete", "arguments": {"path": "a.txt"}}}
EPISODE = [
    {"role": "assistant", "content": "May I delete a.txt?"},
    {"role": "user", "content": "Yes."},
    {"role": "assistant", "content": "<think>The secret is 7.</think>Deleting.", "tool_calls": [CALL]},
    {"role": "tool", "name": "delete", "content": "ERROR: a.txt is locked"},
    {"role": "assistant", "content": "It is locked, the key is 42."},
]
TARGET = CompletionReader(part="transcript").read(EPISODE)


class Recording(FakeBackend):
    """Says yes if the last message in the prompt has the word in the question; keeps what it was asked."""

    def __init__(self):
        self.seen: list[tuple[str, str]] = []
        super().__init__(self.answer)

    def answer(self, prefix: str, tail: str) -> float:
        self.seen.append((prefix, tail))
        last = re.split(r"\n\n(?=assistant|tool|user)", prefix)[-1]
        return 0.9 if tail.split("`")[1] in last else 0.1


def scores(scope: str, word: str, backend=None, **options):
    backend = backend or Recording()
    scorer = ChecklistScorer(backend=backend, store=False, **options)
    item = {"question": f"Does it contain `{word}`?", "scope": scope}
    sample = Sample([item], TARGET.text, "Delete a.txt.", messages=TARGET.messages)
    return scorer.score_batch([sample])[0], backend


def test_each_message_is_read_after_those_before_it():
    score, backend = scores("any_turn", "key")
    assert score.items[0].answer == "yes" and score.items[0].reasoning == "message 3 of 3 decides"
    transcripts = [prefix for prefix, _ in backend.seen]
    assert len(transcripts) == 3
    first, second, third = (text[text.index("assistant: May") :] for text in sorted(transcripts, key=len))
    assert "Deleting" not in first and "locked" not in second and "key is 42" in third
    assert "assistant calls delete" in second and "tool delete: ERROR" in third
    assert all("secret is 7" not in text for text in transcripts)
    assert all(tail.count("Consider only the last message") == 1 for _, tail in backend.seen)


def test_prompts_of_a_growing_conversation_start_with_each_other_and_cost_their_new_tokens():
    _, backend = scores("any_turn", "key")
    prefixes = sorted((prefix for prefix, _ in backend.seen), key=len)
    closing = [prefix[: prefix.rindex("</target-")] for prefix in prefixes]
    assert closing[1].startswith(closing[0].rstrip()) and closing[2].startswith(closing[1].rstrip())
    scorer = ChecklistScorer("pocket", backend="transformers", store=False)
    items = [{"question": f"Does it contain the word {word}?", "scope": "any_turn"} for word in ("key", "sun")]
    score = scorer.score_batch([Sample(items, TARGET.text, "Delete a.txt.", messages=TARGET.messages)])[0]
    receipt = scorer.receipt
    assert receipt.computed_tokens == receipt.floor_tokens < 0.6 * receipt.prompt_tokens
    texts = [prefix + tail for prefix, tail in backend.seen]
    assert len(set(texts)) == 3 and all(line.answer is not None for line in score.items)


@pytest.mark.parametrize(
    ("scope", "word", "answer", "reads"),
    [
        ("any_turn", "key", "yes", 3),
        ("any_turn", "penguin", "no", 3),
        ("every_turn", "key", "no", 3),
        ("final", "key", "yes", 1),
        ("final", "May", "no", 1),
        ("any_tool_result", "ERROR", "yes", 1),
        ("every_tool_result", "ERROR", "yes", 1),
        ("any_tool_result", "May", "no", 1),
    ],
)
def test_scopes(scope, word, answer, reads):
    score, backend = scores(scope, word)
    assert (score.items[0].answer, len(backend.seen)) == (answer, reads)


def test_a_judge_of_the_final_message_sees_it_alone():
    _, backend = scores("final", "key")
    [(prefix, tail)] = backend.seen
    assert "It is locked, the key is 42." in prefix and "May I delete" not in prefix and "Consider" not in tail


def test_code_checks_see_the_text_of_each_message_alone():
    checklist = [
        {"question": "short?", "check": {"type": "words", "at_most": 4}, "scope": "every_turn"},
        {"question": "short?", "check": {"type": "words", "at_most": 1}, "scope": "any_turn"},
        {"question": "short?", "check": {"type": "words", "at_most": 4}},
    ]
    scorer = ChecklistScorer(backend=Recording(), store=False)
    score = scorer.score_batch([Sample(checklist, TARGET.text, messages=TARGET.messages)])[0]
    assert [line.answer for line in score.items] == ["no", "yes", "no"]


def test_a_target_without_messages_is_one_message():
    backend = Recording()
    scorer = ChecklistScorer(backend=backend, store=False)
    items = [
        {"question": "Does it contain `key`?", "scope": scope}
        for scope in ("any_turn", "every_turn", "final", "any_tool_result", "every_tool_result")
    ]
    score = scorer.score(items, "the key")
    assert [line.answer for line in score.items] == ["yes", "yes", "yes", "no", "yes"]
    assert len(backend.seen) == 1 and "Consider" not in backend.seen[0][1]  # one text, one question: one read


def test_an_episode_that_ends_with_a_call_has_no_final_message():
    target = CompletionReader(part="transcript").read(EPISODE[:4])
    scorer = ChecklistScorer(backend=Recording(), store=False, min_answered=0.1)
    items = [{"question": "Does it contain `May`?", "scope": "final"}, {"question": "`May`?", "scope": "any_turn"}]
    final, any_turn = scorer.score_batch([Sample(items, target.text, messages=target.messages)])[0].items
    assert str(final.unanswered) == "no_answer: no final message" and any_turn.answer == "yes"


LOST = Verdict(unanswered=Unanswered(Reason.TIMEOUT, "slow"))


def p(yes: float) -> Verdict:
    return Verdict({"yes": yes, "no": 1 - yes})


@pytest.mark.parametrize(
    ("scope", "verdicts", "expected"),
    [
        ("any_turn", [p(0.2), p(0.9), LOST], 0.9),
        ("any_turn", [p(0.2), p(0.3), LOST], None),
        ("any_turn", [p(0.2), p(0.3)], 0.3),
        ("every_turn", [p(0.9), p(0.1), LOST], 0.1),
        ("every_turn", [p(0.9), p(0.8), LOST], None),
        ("every_turn", [p(0.9), p(0.8)], 0.8),
        ("every_turn", [LOST, LOST], None),
    ],
)
def test_an_unanswered_message_counts_only_if_it_could_change_the_answer(scope, verdicts, expected):
    found = combine(ChecklistItem(question="Is it?", scope=scope), verdicts, 0.6)
    if expected is None:
        assert found.unanswered is not None and found.unanswered.reason == Reason.TIMEOUT
    else:
        assert found.probabilities["yes"] == expected


def test_a_reward_passes_the_messages_of_a_completion():
    backend = Recording()
    reward = ChecklistReward(ChecklistScorer(backend=backend, store=False), target="transcript")
    items = [{"question": "Does it contain `key`?", "scope": "any_turn", "weight": -1}]
    values = reward(prompts=[[{"role": "user", "content": "Delete."}]], completions=[EPISODE], checklist=[items])
    assert values == [pytest.approx(0.1)] and len(backend.seen) == 3


def test_scales_and_abstentions_leave_items_with_a_scope_alone():
    items = [{"question": "Is it?", "scope": "any_turn"}, "Is it clear?"]
    for changed in (on_scale(items, ordinal_scale(5)), with_abstention(items)):
        scoped, plain = changed.items
        assert scoped.options is None and plain.options is not None


def test_a_scope_is_part_of_the_id_and_options_are_refused():
    plain, scoped = ChecklistItem(question="Is it?"), ChecklistItem(question="Is it?", scope="any_turn")
    assert plain.id != scoped.id
    assert Checklist.parse([scoped.model_dump()]).items[0] == scoped
    assert "scope" not in Checklist(items=(plain,)).id
    with pytest.raises(ChecklistError, match="an item with a scope is answered by yes or no"):
        Checklist.parse(
            [{"question": "?", "scope": "final", "options": [{"label": "a", "value": 1}, {"label": "b", "value": 0}]}]
        )
    with pytest.raises(ChecklistError, match="any_turn"):
        Checklist.parse([{"question": "Is it?", "scope": "turns"}])
