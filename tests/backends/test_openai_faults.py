"""Every fault of a server, at the `Backend` seam and through the scorer: a reason for its read, and no other harm."""

import json
import math
from functools import cache

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import ReadGroup, Sampling, is_transient
from checklist_rewards.backends.openai import OpenAIBackend
from tests.backends.answers import LABELS, user
from tests.conftest import HANG
from tests.faultserver import DRESSED, FAULTS, INDICES, MARK

QUESTIONS = ("Is it fine (yes)?", "Is it red (no)?")
SETTINGS = {"timeout": HANG, "attempts": 3, "pause": 0.01}
HASTY = {"timeout": 2.0, "attempts": 1}
"""For a server that hangs: its sound answers are there long before, on a busy machine too."""
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"answers": {"type": "array", "items": {"type": "object"}}},
        "required": ["answers"],
    }
)
NO_REPLY = {
    "null": "null_content",
    "empty_choices": "empty_choices",
    "html": "not_json",
    "error_body": "error_body",
    "500": "backend_error: status 500: out of order",
    "hang": "timeout",
    "drop": "backend_error: connection failed (Server disconnected)",
    "refusal": "refused",
    "cut": "cut_off",
}
OFF_LABEL = ("fenced", "prose", "think", "na", "off_label")
WORD_ONLY = ("no_logprobs", "words_only", "logprobs_refused")
PASSING = {"html", "empty_choices", "error_body", "500", "hang", "drop"}


@cache
def judge(fault: str, url: str) -> OpenAIBackend:
    """A served model whose answers about marked texts go wrong."""
    return OpenAIBackend(f"{fault}@some", url, **(HASTY if fault == "hang" else SETTINGS))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_label_read_is_right_or_unanswered_with_its_reason(fault, fault_server):
    sound, broken = ReadGroup("Be fair.", "A text. ", QUESTIONS), ReadGroup("Be fair.", f"A {MARK} text. ", QUESTIONS)
    answers, usage = judge(fault, fault_server).read([sound, broken], LABELS)
    first, second = answers[: len(QUESTIONS)], answers[len(QUESTIONS) :]
    for read, right in zip(first, LABELS, strict=True):
        assert read.unanswered is None
        assert answer(read) == right and (read.logprobs is None) == (read.label is not None)
    for read, right in zip(second, LABELS, strict=True):
        if fault in NO_REPLY:
            assert read.unanswered == NO_REPLY[fault]
            assert is_transient(read.unanswered) == (fault in PASSING)
        elif fault in OFF_LABEL:
            assert sum(math.exp(p) for p in read.logprobs) < 0.06
        elif fault in WORD_ONLY:
            assert (read.label, read.logprobs) == (right, None)
        else:
            assert answer(read) == right
            assert sum(math.exp(p) for p in read.logprobs) > 0.9
    assert usage.prompt_tokens > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reply_comes_back_as_it_is_or_with_its_reason(fault, fault_server):
    numbered = 'Reply in JSON: {"answers": ...}\n1. Is it fine (yes)?\n2. Is it red (no)?'
    prompts = [user(text) for text in (numbered, f"{MARK}\n{numbered}")]
    [[sound], [broken]] = judge(fault, fault_server).generate(prompts, Sampling(schema=SCHEMA))
    assert [entry["answer"] for entry in json.loads(sound.text)["answers"]] == ["yes", "no"]
    assert (sound.finish_reason, sound.prompt_tokens, sound.completion_tokens) == ("stop", 100, 10)
    if fault in NO_REPLY:
        assert (broken.text, broken.unanswered) == (None, NO_REPLY[fault])
    elif fault == "truncated":
        assert broken.finish_reason == "length" and sound.text.startswith(broken.text)
    elif fault in (*DRESSED, *INDICES, "na"):
        assert broken.unanswered is None and broken.text != sound.text
    else:
        assert broken.text == sound.text


@pytest.mark.parametrize("fault", FAULTS)
def test_the_scorer_loses_no_row_and_believes_no_wrong_answer(fault, fault_server):
    scorer = ChecklistScorer(fault, backend=judge(fault, fault_server), store=False)
    texts = ["First text.", f"Second {MARK} text.", "Third text."]
    scores = scorer.score_batch([Sample(list(QUESTIONS), text) for text in texts])
    for score in (scores[0], scores[2]):
        assert [item.answer for item in score.items] == ["yes", "no"]
        assert score.pass_rate == 0.5
    for item, right in zip(scores[1].items, LABELS, strict=True):
        if fault in NO_REPLY or fault in OFF_LABEL:
            assert item.answer is None and item.unanswered == NO_REPLY.get(fault, "off_label")
        else:
            assert (item.answer, item.unanswered) == (right, None)
    if fault in NO_REPLY or fault in OFF_LABEL:
        assert (scores[1].primary_score, scores[1].answered) == (None, 0)


def test_what_a_server_refuses_is_asked_of_it_once(fault_server):
    engine = OpenAIBackend("schema_refused", fault_server, **SETTINGS)
    prompt = user('Reply in JSON: {"answers": ...}\n1. Is it fine (yes)?')
    for _ in range(2):
        [[reply]] = engine.generate([prompt], Sampling(schema=SCHEMA))
        assert json.loads(reply.text)["answers"][0]["answer"] == "yes"
        assert engine._without == {"response_format"}


def answer(read) -> str:
    if read.label is not None:
        return read.label
    return LABELS[max(range(len(LABELS)), key=lambda place: read.logprobs[place])]
