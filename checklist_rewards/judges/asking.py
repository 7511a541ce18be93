"""Ask an engine for the answers of a judge: the reasons of a verdict for [`sample_values`].

If a reply cannot be parsed, the model receives the complaint and can revise its reply. If no reply is usable, or the
engine gave none, the outcome is [`Lost`] with the reason. With several samples per prompt, each is parsed on its own
and none is revised: the usable ones vote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from checklist_rewards.backends import Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.store import Store
from checklist_rewards.replies import NoReply, sample_values, with_complaint
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


class Lost(GenerationError):
    """The outcome of a prompt without a usable reply.

    Args:
        unanswered ([`Unanswered`]):
            Why the read is unanswered.
        partial (*optional*):
            The usable part of the last reply.
        complaint (`str`, *optional*):
            What is wrong with the reply, to send to the model.
    """

    def __init__(self, unanswered: Unanswered, partial: Any = None, complaint: str = ""):
        super().__init__(complaint)
        self.unanswered, self.partial = unanswered, partial


def ask_judge(
    engine: Engine,
    prompts: Sequence[Messages],
    readers: Sequence[Callable[[str], Value]],
    sampling: Sampling,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[list[Value | Lost]]:
    """Ask an engine, and repeat the prompts whose reply cannot be parsed, up to three replies in all.

    Args:
        engine, prompts, sampling, store, progress:
            As in [`sample_values`].
        readers (sequence of callables, one per prompt):
            Called with the text of a reply. Returns its value, or raises [`Unreadable`].

    Returns:
        `list[list[Value | Lost]]`: `sampling.n` outcomes per prompt, in order.
    """

    def parse(index: int, reply: Reply) -> Value:
        text = reply.text or ""
        try:
            return readers[index](text)
        except Unreadable as error:
            if reply.finish_reason == "length":
                complaint = f"the reply is longer than max_tokens={sampling.max_tokens}"
                raise Lost(Unanswered(Reason.CUT_OFF, complaint), error.partial, complaint) from None
            got = f", got {text[:_SHOWN]!r}" if error.partial is None else ""
            raise Lost(Unanswered(Reason.UNPARSABLE, f"{error}{got}"), error.partial, str(error)) from None

    outcomes = sample_values(engine, prompts, parse, sampling, store=store, retry=_retry, progress=progress)
    return [[_lost(each) if isinstance(each, GenerationError) else each for each in group] for group in outcomes]


def _lost(error: GenerationError) -> Lost:
    if isinstance(error, Lost):
        return error
    assert isinstance(error, NoReply)
    if isinstance(error.first, Lost):  # the first reply was unusable and the second request failed: report both
        first = error.first.unanswered
        both = Unanswered(first.reason, f"{first.detail}; asked again: {error.unanswered}")
        return Lost(both, error.first.partial)
    return Lost(error.unanswered)


def _retry(messages: Messages, reply: str, complaint: str) -> Messages:
    complaint = f"That cannot be used: {complaint}. Answer again, in the form asked for."
    return with_complaint(messages, reply or "(nothing)", complaint)
