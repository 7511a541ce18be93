"""Items about single messages of a conversation: which texts are read, and what the answers mean together."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends import Answer, ReadGroup, pocket_dir
from checklist_rewards.backends.tokens import load_chat_tokenizer
from checklist_rewards.chat import CompletionReader
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import PanelJudge
from checklist_rewards.judges.logprob import LogprobJudge
from checklist_rewards.judges.scoped import combine, pieces, windows
from checklist_rewards.scores import Reason, Unanswered, Verdict
from checklist_rewards.scores.scales import on_scale, ordinal_scale, with_abstention
from tests.backends.answerserver import connect, serving
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


def episode(*items) -> Sample:
    return Sample(list(items), TARGET.text, "Delete a.txt.", messages=TARGET.messages)


def judged(backend, sample, **settings):
    """The lines of a sample."""
    return ChecklistScorer(backend=backend, store=False, **settings).score_batch([sample])[0].items


def contains(word: str, scope: str) -> dict:
    return {"question": f"Does it contain `{word}`?", "scope": scope}


def test_each_message_is_read_after_those_before_it():
    backend = Recording()
    [line] = judged(backend, episode(contains("key", "any_turn")))
    assert line.answer == "yes" and line.reasoning == "message 3 of 3 decides"
    assert all(tail.count("Consider only the last message") == 1 for _, tail in backend.seen)
    prefixes = sorted((prefix for prefix, _ in backend.seen), key=len)
    assert len(prefixes) == 3 and all("secret is 7" not in prefix for prefix in prefixes)
    first, second, third = (prefix[prefix.index("assistant: May") :] for prefix in prefixes)
    assert "Deleting" not in first and "locked" not in second and "key is 42" in third
    assert "assistant calls delete" in second and "tool delete: ERROR" in third
    # Prompts of a growing conversation start with each other, and cost their new tokens.
    closing = [prefix[: prefix.rindex("</target-")] for prefix in prefixes]
    assert closing[1].startswith(closing[0].rstrip()) and closing[2].startswith(closing[1].rstrip())
    scorer = ChecklistScorer("pocket", backend="transformers", store=False)
    items = [{"question": f"Does it contain the word {word}?", "scope": "any_turn"} for word in ("key", "sun")]
    [score] = scorer.score_batch([episode(*items)])
    receipt = scorer.receipt
    assert receipt.computed_tokens == receipt.floor_tokens < 0.6 * receipt.prompt_tokens
    assert all(line.answer is not None for line in score.items)


@pytest.mark.parametrize(
    ("scope", "word", "answer", "reads"),
    [
        ("any_turn", "penguin", "no", 3),
        ("every_turn", "key", "no", 3),
        ("final", "key", "yes", 1),
        ("any_tool_result", "ERROR", "yes", 1),
        ("every_tool_result", "May", "no", 1),
    ],
)
def test_scopes(scope, word, answer, reads):
    backend = Recording()
    [line] = judged(backend, episode(contains(word, scope)))
    assert (line.answer, len(backend.seen)) == (answer, reads)
    if scope == "final":  # the message alone
        [(prefix, tail)] = backend.seen
        assert "It is locked, the key is 42." in prefix
        assert "May I delete" not in prefix and "Consider" not in tail


def test_code_checks_see_the_text_of_each_message_alone():
    words = [({"at_most": 4}, "every_turn"), ({"at_most": 1}, "any_turn"), ({"at_most": 4}, None)]
    checklist = [{"question": "short?", "check": {"type": "words", **bound}, "scope": scope} for bound, scope in words]
    assert [line.answer for line in judged(Recording(), episode(*checklist))] == ["no", "yes", "no"]


def test_a_target_without_messages_is_one_message():
    backend = Recording()
    scopes = ("any_turn", "every_turn", "final", "any_tool_result", "every_tool_result")
    lines = judged(backend, Sample([contains("key", scope) for scope in scopes], "the key"))
    assert [line.answer for line in lines] == ["yes", "yes", "yes", "no", "yes"]
    assert len(backend.seen) == 1 and "Consider" not in backend.seen[0][1]  # one text, one question: one read


def test_an_episode_that_ends_with_a_call_has_no_final_message():
    target = CompletionReader(part="transcript").read(EPISODE[:4])
    sample = Sample([contains("May", "final"), contains("May", "any_turn")], target.text, messages=target.messages)
    final, any_turn = judged(Recording(), sample, min_answered=0.1)
    assert str(final.unanswered) == "no_answer: no final message" and any_turn.answer == "yes"


LOST = Verdict(unanswered=Unanswered(Reason.TIMEOUT, "slow"))


def p(yes: float) -> Verdict:
    return Verdict({"yes": yes, "no": 1 - yes})


@pytest.mark.parametrize(
    ("scope", "verdicts", "expected"),
    [
        ("any_turn", [p(0.2), p(0.9), LOST], 0.9),
        ("any_turn", [p(0.2), p(0.3), LOST], None),
        ("every_turn", [p(0.9), p(0.1), LOST], 0.1),
        ("every_turn", [p(0.9), p(0.8), LOST], None),
        ("every_turn", [p(0.9), p(0.8)], 0.8),
    ],
)
def test_an_unanswered_message_counts_only_if_it_could_change_the_answer(scope, verdicts, expected):
    names = ["one", "two", "three"][: len(verdicts)]
    found = combine(ChecklistItem(question="Is it?", scope=scope), verdicts, 0.6, names)
    if expected is None:
        assert found.unanswered is not None and found.unanswered.reason == Reason.TIMEOUT
    else:
        assert found.probabilities["yes"] == expected


def test_a_scope_is_part_of_the_id_and_options_are_refused():
    plain, scoped = ChecklistItem(question="Is it?"), ChecklistItem(question="Is it?", scope="any_turn")
    assert plain.id != scoped.id
    options = [{"label": "a", "value": 1}, {"label": "b", "value": 0}]
    for scope, message in (("final", "an item with a scope is answered by yes or no"), ("turns", "any_turn")):
        with pytest.raises(ChecklistError, match=message):
            Checklist.parse([{"question": "Is it?", "scope": scope, "options": options}])
    for changed in (on_scale([scoped, plain], ordinal_scale(5)), with_abstention([scoped, plain])):
        assert [item.options is None for item in changed.items] == [True, False]  # items with a scope are left alone


# ----- longer than the context -----

SKY = ("The sky is blue. " * 58).strip()
TOKENS = load_chat_tokenizer(str(pocket_dir()))


def conversation(turns: int, needle: int | None):
    """Turns of the assistant of 1,000 characters, each followed by a tool result; one of them has the word penguin."""
    messages = []
    for turn in range(turns):
        said = f"{turn}. {SKY}" + " A penguin swims." * (turn == needle)
        messages += [{"role": "assistant", "content": said}, {"role": "tool", "name": "look", "content": "fine"}]
    return CompletionReader(part="transcript").read(messages)


def sample(target, *scopes: str) -> Sample:
    return Sample([contains("penguin", scope) for scope in scopes], target.text, "Look.", messages=target.messages)


class Small(Recording):
    """Refuses prompts of more than `limit` tokens, and counts those. It reports its context and its tokens."""

    def __init__(self, limit: int = 2048, tokens=TOKENS, silent: bool = False):
        super().__init__()
        self.most, self.refused = limit, 0
        if not silent:
            self.limit, self.tokens = limit, tokens

    def _read(self, prefix: str, tail: str) -> Answer:
        if len(TOKENS.encoder.data([prefix + tail])[0]) > self.most:
            self.refused += 1
            return Answer(None, "too_long", keep=False)
        return super()._read(prefix, tail)


@pytest.mark.parametrize(
    ("known", "refused"),
    [
        ({}, 0),
        ({"limit": 3000, "tokens": None}, 16),
        ({"silent": True}, 2 * 8),
    ],  # two items at each step of a bisection
    ids=["tokens", "its length", "nothing"],
)
def test_a_long_conversation_is_read_in_windows(known, refused):
    target, backend = conversation(120, needle=100), Small(**known)
    found, every, final = judged(backend, sample(target, "any_turn", "every_turn", "final"))
    assert len(target.text) > 120_000 and (found.answer, every.answer) == ("yes", "no")
    assert re.fullmatch(r"message 101 of 120, read after the \d+ before it, decides", found.reasoning)
    assert str(final.unanswered) == "no_answer: no final message"
    # Each window has the rules once, so what is sent grows with the conversation and not with its square.
    sent = {prefix for prefix, _ in backend.seen}
    assert len(sent) == 120 and sum(map(len, sent)) < 12 * len(target.text)
    assert backend.refused <= refused
    assert "Earlier messages are left out" in max(sent, key=lambda prefix: prefix.count("penguin"))


@pytest.mark.parametrize("silent", [False, True], ids=["context known", "context unknown"])
def test_a_message_longer_than_the_context_is_read_in_parts(silent):
    text = " ".join([SKY] * 40 + ["A penguin swims."] + [SKY] * 10)
    items = [contains("penguin", scope) for scope in ("any_turn", "every_turn")]
    some, every = judged(Small(silent=silent), Sample(items, text))
    where = re.fullmatch(r"message 1 of 1, characters ([\d,]+) to ([\d,]+), decides", some.reasoning)
    first, last = (int(number.replace(",", "")) for number in where.groups())
    assert some.answer == "yes" and "penguin" in text[first - 1 : last] and last - first < 10_000
    assert every.answer == "no" and every.reasoning.endswith("decides")


def test_what_has_no_meaning_in_parts_is_unanswered_with_the_reason():
    text = " ".join([SKY] * 20)
    scorer = ChecklistScorer(backend=Small(), store=False, min_answered=0.1)
    checklist = [{"question": "`penguin`?", "scope": scope} for scope in ("final", "any_turn")] + ["Is it `penguin`?"]
    final, turn, whole = scorer.score(checklist, text).items
    assert str(whole.unanswered) == "too_long" and turn.answer == "no"
    assert str(final.unanswered).startswith("too_long: an item about the final message needs the whole message")
    lost = scorer.score(checklist, text, input=" ".join([SKY] * 20)).items[1]
    assert str(lost.unanswered) == "too_long: not even a part of a message fits into the judge's context"


def test_reads_that_fit_are_those_of_a_judge_with_a_longer_context(tmp_path):
    store, target = Store(tmp_path / "store"), conversation(5, needle=2)
    before = ChecklistScorer(backend=Small(10**6, silent=True), store=store)
    after = ChecklistScorer(backend=Small(3300), store=store)
    asked = [sample(target, "any_turn", "every_turn")]
    assert before.score_batch(asked) == after.score_batch(asked)
    assert after.receipt.asked == 0 and before.receipt.asked == 5
    whole = Small(3300)
    ChecklistScorer(backend=whole, store=store).score_batch([sample(conversation(40, needle=2), "any_turn")])
    fresh = [prefix for prefix, _ in whole.seen]
    assert len(fresh) == 35 and all("left out" in prefix for prefix in fresh)


def test_a_panel_reads_what_its_smallest_context_takes():
    small, large = Small(), Small(10**6)
    panel = PanelJudge([LogprobJudge(small), LogprobJudge(large)], quorum=1)
    line = ChecklistScorer(judge=panel).score_batch([sample(conversation(12, needle=8), "any_turn")])[0].items[0]
    assert line.answer == "yes" and [vote.unanswered for vote in line.votes] == [None, None]


def test_a_server_whose_tokenizer_is_here_gets_no_prompt_that_is_too_long():
    target = conversation(120, needle=None)
    with serving() as server:  # reports a context of 2,048 tokens
        [line] = judged(connect(server), sample(target, "any_turn"))
        prompts = [prompt for request in server.asked for prompt in request["prompt"]]
    assert line.answer == "no" and len(prompts) == 121 and max(map(len, prompts)) < 2048  # one is the probe


def test_a_server_that_names_its_context_in_an_error_is_not_asked_for_more_again():
    with serving() as server:
        server.card = {}
        server.refuses = lambda asked: "This model's maximum context length is 8192 tokens; you requested more."
        backend = connect(server)
        backend.read([ReadGroup(None, "Hello.", ("Is it?",))], ("yes", "no"))
        assert backend.limit == 8192


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(8, 40))
def test_windows_hold_every_message_with_as_many_before_it_as_fit(sizes, room):
    for at, start in enumerate(windows(sizes, room)):
        if sizes[at] > room:
            assert start is None
        else:
            assert start is not None and sum(sizes[start : at + 1]) <= room


@given(st.text(alphabet="ab .!?\n。", max_size=400), st.integers(16, 120))
def test_parts_of_a_text_hold_all_of_it_and_overlap(text, room):
    spans = pieces(text, room, lambda texts: [len(text) for text in texts])
    assert not text or spans[0][0] == 0
    assert all(last - first <= room for first, last in spans)
    assert all(one[0] < two[0] <= one[1] < two[1] for one, two in zip(spans, spans[1:], strict=False))
    assert not text or spans[-1][1] == len(text)
