"""Asking in words: a prompt to an engine, and its reply read by a function that says what is wrong with it.

A [`Question`] is a prompt with the function that reads its reply. A reply that cannot be read is answered with what is
wrong, so that the model can mend it, up to `attempts` replies in all; then, or where there is no reply, the outcome is
[`Lost`] with the reason. One that the engine gave no reply to is not asked again here: the store does not keep it, so
the next run does.

Of several samples each is read for itself and none is mended: the others vote without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from checklist_rewards.backends import Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.files.store import Store
from checklist_rewards.replies import sample_replies

Value = TypeVar("Value")

UNPARSABLE, CUT_OFF = "unparsable", "cut_off"
_SHOWN = 160


class Unreadable(ValueError):
    """A reply that does not hold what was asked for.

    Args:
        complaint (`str`): what is wrong, as a sentence without its full stop.
        partial (*optional*): what of the reply can be used all the same.
    """

    def __init__(self, complaint: str, partial: Any = None):
        super().__init__(complaint)
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Lost:
    """No usable reply, and why."""

    reason: str
    partial: Any = None
    """What of the last readable reply could be used."""
    complaint: str | None = None
    """What is wrong with the reply, for the model; None where there is no reply."""


@dataclass(frozen=True, slots=True)
class Question(Generic[Value]):
    """One prompt, and how its reply is read."""

    messages: Messages
    read: Callable[[str], Value]
    """Gives the value of a reply or raises [`Unreadable`]."""


def put(
    engine: Engine,
    questions: Sequence[Question[Value]],
    sampling: Sampling,
    *,
    store: Store | None = None,
    attempts: int = 3,
    progress: Progress | None = None,
) -> list[list[Value | Lost]]:
    """Put questions to an engine.

    Args:
        engine ([`Engine`]): who replies.
        questions (sequence of [`Question`]).
        sampling ([`Sampling`]): how; attempt k samples with `seed + k`.
        store ([`Store`], *optional*): where replies are kept.
        attempts (`int`, *optional*, defaults to `3`): replies per question at most, where one sample is asked for.
        progress (callable, *optional*): told how many questions got their first reply since its last call.

    Returns:
        per question, in order, `sampling.n` outcomes.
    """
    results: list[list[Value | Lost]] = [[] for _ in questions]
    pending: list[tuple[int, Messages]] = [(index, question.messages) for index, question in enumerate(questions)]
    for attempt in range(attempts if sampling.n == 1 else 1):
        asked = replace(sampling, seed=sampling.seed + attempt)
        told = progress if attempt == 0 else None
        replies = sample_replies(engine, [messages for _, messages in pending], asked, store, told)
        again: list[tuple[int, Messages]] = []
        for (index, _), group in zip(pending, replies, strict=True):
            question, before = questions[index], results[index]
            results[index] = [_outcome(reply, question.read, sampling.max_tokens) for reply in group]
            [outcome, *_], [reply, *_] = results[index], group
            if not isinstance(outcome, Lost):
                continue
            if outcome.complaint is not None:
                again.append((index, _with_complaint(question.messages, reply.text or "", outcome.complaint)))
            elif before:
                # The first reply was read and found wanting; that the second never came does not make it better.
                [first] = before
                assert isinstance(first, Lost)
                results[index] = [replace(first, reason=f"{first.reason}; asked again: {outcome.reason}")]
        pending = again
        if not pending:
            break
    return results


def _outcome(reply: Reply, read: Callable[[str], Value], max_tokens: int) -> Value | Lost:
    if reply.text is None:
        return Lost(reply.unanswered or UNPARSABLE)
    try:
        return read(reply.text)
    except Unreadable as error:
        if reply.finish_reason == "length":
            complaint = f"the reply is longer than max_tokens={max_tokens}"
            return Lost(f"{CUT_OFF}: {complaint}", error.partial, complaint)
        got = f", got {reply.text[:_SHOWN]!r}" if error.partial is None else ""
        return Lost(f"{UNPARSABLE}: {error}{got}", error.partial, str(error))


def _with_complaint(messages: Messages, reply: str, complaint: str) -> Messages:
    """The conversation so far, with the unusable reply and what is wrong with it."""
    return [
        *messages,
        {"role": "assistant", "content": reply or "(nothing)"},
        {"role": "user", "content": f"That cannot be used: {complaint}. Answer again, in the form asked for."},
    ]
