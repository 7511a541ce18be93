"""Prompt an engine, parse its replies, and ask again with a complaint if a reply is unusable.

A [`Question`] is a prompt with a function that parses its reply. If parsing fails, the model receives the complaint
and can revise its reply, up to `attempts` replies in all. If no reply is usable, or the engine gave none, the outcome
is [`Lost`] with the reason. A prompt that the engine did not answer is not repeated here; it is not stored, so the
next run repeats it.

With several samples per prompt, each is parsed on its own and none is revised: the usable ones vote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from checklist_rewards.backends import Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.files.store import Store
from checklist_rewards.replies import sample_replies
from checklist_rewards.scores.reasons import Reason, Unanswered

Value = TypeVar("Value")

_SHOWN = 160


class Unreadable(ValueError):
    """Raised by a parser for an unusable reply.

    Args:
        complaint (`str`):
            What is wrong, as a sentence without full stop. It is sent to the model.
        partial (*optional*):
            The usable part of the reply.
    """

    def __init__(self, complaint: str, partial: Any = None):
        super().__init__(complaint)
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Lost:
    """The outcome of a question without a usable reply."""

    unanswered: Unanswered
    partial: Any = None
    """The usable part of the last reply."""
    complaint: str | None = None
    """What is wrong with the reply, to send to the model; None if the engine gave no reply."""


@dataclass(frozen=True, slots=True)
class Question(Generic[Value]):
    """One prompt, and the function that parses its reply."""

    messages: Messages
    read: Callable[[str], Value]
    """Returns the value of a reply, or raises [`Unreadable`]."""


def ask_questions(
    engine: Engine,
    questions: Sequence[Question[Value]],
    sampling: Sampling,
    *,
    store: Store | None = None,
    attempts: int = 3,
    progress: Progress | None = None,
) -> list[list[Value | Lost]]:
    """Ask an engine questions, and repeat those whose reply cannot be parsed.

    Args:
        engine ([`Engine`]):
            Engine that replies.
        questions (sequence of [`Question`]):
            Prompts with their parsers.
        sampling ([`Sampling`]):
            Sampling settings. Attempt k uses `seed + k`.
        store ([`Store`], *optional*):
            Store for the replies.
        attempts (`int`, *optional*, defaults to `3`):
            Maximum number of replies per question. With `sampling.n > 1` there is only one attempt.
        progress (`Callable[[int], None]`, *optional*):
            Called with the number of questions that received their first reply since the last call.

    Returns:
        `list[list[Value | Lost]]`: `sampling.n` outcomes per question, in order.
    """
    results: list[list[Value | Lost]] = [[] for _ in questions]
    pending: list[tuple[int, Messages]] = [(index, question.messages) for index, question in enumerate(questions)]
    for attempt in range(attempts if sampling.n == 1 else 1):
        attempt_sampling = replace(sampling, seed=sampling.seed + attempt)
        attempt_progress = progress if attempt == 0 else None
        prompts = [messages for _, messages in pending]
        replies = sample_replies(engine, prompts, attempt_sampling, store, attempt_progress)
        retries: list[tuple[int, Messages]] = []
        for (index, _), group in zip(pending, replies, strict=True):
            question, before = questions[index], results[index]
            results[index] = [_outcome(reply, question.read, sampling.max_tokens) for reply in group]
            [outcome, *_], [reply, *_] = results[index], group
            if not isinstance(outcome, Lost):
                continue
            if outcome.complaint is not None:
                retries.append((index, _with_complaint(question.messages, reply.text or "", outcome.complaint)))
            elif before:
                # The first reply was unusable and the second request failed: report both reasons.
                [first] = before
                assert isinstance(first, Lost)
                both = f"{first.unanswered.detail}; asked again: {outcome.unanswered}"
                results[index] = [replace(first, unanswered=Unanswered(first.unanswered.reason, both))]
        pending = retries
        if not pending:
            break
    return results


def _outcome(reply: Reply, read: Callable[[str], Value], max_tokens: int) -> Value | Lost:
    if reply.text is None:
        return Lost(reply.unanswered or Unanswered(Reason.UNPARSABLE))
    try:
        return read(reply.text)
    except Unreadable as error:
        if reply.finish_reason == "length":
            complaint = f"the reply is longer than max_tokens={max_tokens}"
            return Lost(Unanswered(Reason.CUT_OFF, complaint), error.partial, complaint)
        got = f", got {reply.text[:_SHOWN]!r}" if error.partial is None else ""
        return Lost(Unanswered(Reason.UNPARSABLE, f"{error}{got}"), error.partial, str(error))


def _with_complaint(messages: Messages, reply: str, complaint: str) -> Messages:
    """The conversation, extended by the unusable reply and the complaint about it."""
    return [
        *messages,
        {"role": "assistant", "content": reply or "(nothing)"},
        {"role": "user", "content": f"That cannot be used: {complaint}. Answer again, in the form asked for."},
    ]
