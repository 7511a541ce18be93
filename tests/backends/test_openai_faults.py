"""Every fault of a server, at the `Backend` seam and through the scorer: a reason for its read, and no other harm."""

import json
import math
from functools import cache

import pytest

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


def answer(read) -> str:
    if read.label is not None:
        return read.label
    return LABELS[max(range(len(LABELS)), key=lambda place: read.logprobs[place])]
