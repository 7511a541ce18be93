"""The interface between this package and an inference engine.

A [`Backend`] has two methods. `generate` samples replies to chat messages. `read` answers reads (one item about one
target): each [`ReadGroup`] is a prompt prefix with the question tails that share it, and the engine returns the
log-probability of each label as the next token of every tail.

A prompt that does not fit the context is unanswered with the reason "too_long"; prompts are never truncated. If an
engine fails, it raises [`BackendError`].

A [`deadline`] is the time that is left for the reads of a call:

    >>> with deadline(30):
    ...     seconds = time_left()
    >>> 0 < seconds <= 30 and time_left() is None
    True

It belongs to the context of a call ([`contextvars`]), with the threads and requests that the call starts. When it has
passed, requests to servers and in vLLM are cancelled and nothing more is sent; transformers finishes its chunk. Reads
without an answer are unanswered with the reason "deadline" and are not stored, so a later call repeats them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from checklist_rewards.errors import ModelError
from checklist_rewards.images import has_images
from checklist_rewards.scores.reasons import Outcome, Reason, Unanswered, is_transient

MISSED = Unanswered(Reason.DEADLINE)
"""Why a read is missing whose call has no time left."""
_END: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Context manager that gives the reads in it this many seconds, or less if an outer deadline ends before. None
    sets no deadline."""
    left = time_left()
    if seconds is None or (left is not None and left <= seconds):
        yield
        return
    token = _END.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _END.reset(token)


def time_left() -> float | None:
    """Seconds until the deadline, at least 0. None without a deadline."""
    end = _END.get()
    return None if end is None else max(0.0, end - time.monotonic())


def is_over() -> bool:
    """Whether the deadline has passed."""
    return time_left() == 0


Message = dict[str, str]
Messages = Sequence[Message]
Progress = Callable[[int], None]
"""Called with the number of reads or prompts answered since the last call."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the assistant has already written before a label is read: a thought, which the engine opens and closes as
    the chat template does."""

    thought: str
    """Data: control tokens and closing tags inside it are text."""
    question: str = ""
    """The question to answer, if the prompt has several; it is put after the thought."""


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Reads that share a prefix. The user message of read i is `prefix + tails[i]`."""

    system: str | None
    prefix: str
    tails: tuple[str, ...] = ()
    context: tuple[tuple[str, str], ...] = ()
    """Name and text of the input and the reference, for an encoder, whose prefix is the target alone. Prompts contain
    them in the prefix."""
    written: tuple[Written, ...] = ()
    """The start of the assistant's reply in each read, one per tail; empty if the label is its first token. Requires
    an engine with `continues`."""
    start: bytes | None = None
    """Equal keys mean an equal beginning of the prefix, such as that of all completions of one prompt. None if groups
    share nothing."""

    @property
    def sees(self) -> bool:
        """Whether a text of the prompts has an image."""
        return has_images("\n".join([self.system or "", self.prefix, *self.tails]))


@dataclass(slots=True)
class Answer(Outcome):
    """The answer of an engine to one read. Exactly one of `logprobs`, `label` and `unanswered` is set."""

    logprobs: tuple[float, ...] | None = None
    """ln P(label) in the order of the requested labels. Each is the sum over all surface forms of the label, from the
    softmax over the full vocabulary. -inf for a label that is missing from a server's list of likely tokens."""
    unanswered: Unanswered | None = None
    label: str | None = None
    """The label that the model wrote, if a server returns no probabilities."""
    exact: bool = True
    """Whether `logprobs` come from the full vocabulary. False if they come from a server's list of likely tokens."""
    mass_reported: bool = True
    """Whether the probabilities sum to the label mass. False if a server normalizes them over the labels."""
    keep: bool = True
    """Whether the result may be stored, if its reason is not transient. False if it holds only for the current start
    of the engine, for example a prompt that is too long for the context with which a server was started."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of reads in tokens."""

    prompt_tokens: int = 0
    """Tokens of all prompts, as if each were computed separately."""
    computed_tokens: int | None = 0
    """Prompt tokens that the engine computed. None if the engine does not report cached tokens."""
    floor_tokens: int = 0
    """Prompt tokens if those with which several prompts start are computed once: the tokens of their tree."""
    separate: int = 0
    """Reads whose prompt was computed separately, because sharing the prefix would not be exact for this model."""
    cached: int = 0
    """Reads in rows below a prefix that was computed once and kept."""
    completion_tokens: int | None = None
    """Tokens that the engine generated. None means one per answered read."""

    @classmethod
    def reported(cls, prompt: int, cached: int | None, completion: int) -> Usage:
        """The usage of one request to a server. `cached` is None if the server does not report it."""
        return cls(prompt, None if cached is None else prompt - cached, completion_tokens=completion)

    @classmethod
    def total(cls, usages: Sequence[Usage]) -> Usage:
        """The sum of the usage of several calls. A count that is None in one of them is None."""
        columns = zip(*map(attrgetter(*cls.__slots__), usages), strict=True)
        sums = [None if None in column else sum(column) for column in columns]
        return cls(*sums) if sums else NO_USAGE  # type: ignore[arg-type]


NO_USAGE = Usage(completion_tokens=0)
"""The usage without a call."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. With the same `seed`, a run is repeatable on the same engine and version. The seed is part
    of the store's key."""

    max_tokens: int = 512
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    n: int = 1
    """Replies per prompt."""
    seed: int = 0
    schema: str | None = None
    """A JSON schema, as JSON text, for the reply. Not every engine can enforce it, so callers must also describe the
    format in the prompt and validate the reply."""


@dataclass(slots=True)
class Reply(Outcome):
    """One sampled text, or the reason why it is missing."""

    text: str | None
    finish_reason: str | None = None
    """ "stop" or "length"."""
    unanswered: Unanswered | None = None
    prompt_tokens: int = 0
    """Tokens of the prompt, counted only in the first of several replies. 0 if the engine does not report them."""
    completion_tokens: int = 0
    """Tokens of this reply."""
    keep: bool = True
    """Whether the reply may be stored; as in [`Answer`]."""
    thought: str | None = None
    """The thought, if a server returned it apart from the text. Otherwise the text contains it, as a `<think>` block.
    """


Arrived = Callable[[int, list[Reply]], None]
"""Called with the index of a prompt and its replies."""


def is_kept(outcome: Answer | Reply) -> bool:
    """Whether to store this result, because a retry would give the same one."""
    return outcome.keep and not is_transient(outcome.unanswered)


_ROUNDING = 0.01
"""How far rounding may take a log-probability above 0."""
_SUM_ROUNDING = 0.05
"""How far rounding may take the sum of the probabilities of several tokens above 1."""


def not_logprobs(values: Sequence[float], *, distinct: bool = True) -> Unanswered | None:
    """The reason if numbers cannot be log-probabilities, such as the logits that a server may be set to return; None
    if they can. Those of `distinct` tokens must add up to a probability of 1 at most, but for rounding."""
    wrong = None
    if not all([value <= _ROUNDING for value in values]):  # False for NaN; a list, because this runs for every read
        wrong = next(value for value in values if not value <= _ROUNDING)
    else:
        total = math.fsum([math.exp(value) for value in values]) if distinct else 0.0
        if total <= 1 + _SUM_ROUNDING:
            return None
    found = f"probabilities that add up to {total:.3g}" if wrong is None else f"the log-probability {wrong:g}"
    return Unanswered(
        Reason.BACKEND_ERROR,
        f"the engine returned {found}; vLLM must return log-probabilities, not logits (--logprobs-mode raw_logprobs)",
    )


def check_continues(backend: Backend) -> None:
    """Raise [`ModelError`] if an engine cannot read labels after a text that the assistant has already written."""
    if not backend.continues:
        raise ModelError(
            "thinking=... requires an engine that can continue a reply exactly: transformers, vLLM, or a vLLM server "
            "whose tokenizer can be loaded here; a chat server cannot. Use capture_reasoning=True with it."
        )


def reply_seed(seed: int, prompt: Messages | Sequence[int], index: int = 0) -> int:
    """Derive the seed of one reply, in [0, 2**31), from the run's seed, the prompt (messages or token ids) and the
    index of the reply. It does not depend on the other prompts, so an interrupted run can be resumed at any point."""
    digest = blake2b(json.dumps([seed, list(prompt), index]).encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big") >> 1


class Backend:
    """Base class of engines with a loaded model. [`load_backend`] builds them and shares them between callers."""

    chunk_reads: int
    """Number of reads per call: enough to use the engine fully, but few enough to store results often."""
    identity: str
    """Hash of the model (weights, tokenizer, chat template); part of the key of every stored read."""
    name: str | None = None
    """The name by which [`load_backend`] builds it, where judges depend on it."""
    model_name: str | None = None
    """The name of a model that was not loaded by its name."""
    in_process: bool = False
    """Whether the model runs in the calling process."""
    writes: bool = True
    """Whether it generates text. False for engines that only answer questions."""
    continues: bool = False
    """Whether a label can be read after a text that the assistant has written."""
    sees: bool = False
    """Whether its prompts may contain images, as marks in their texts (`images.py`)."""
    limit: int | None = None
    """The context in tokens, if it is known. Longer conversations are read in windows."""
    tokens: Any = None
    """The [`ChatTokenizer`] of the model, if it is here."""
    requests_per_read: int = 1
    """Most requests for a label."""
    context: tuple[str, ...] = ()
    """What an encoder reads besides target and question: "input", "reference", both or nothing."""

    def stay_awake(self) -> AbstractContextManager[None]:
        """Context manager in which an engine that sleeps between calls stays awake."""
        return nullcontext()

    def stand_in(self, max_tokens: int, place: int) -> str | None:  # noqa: ARG002 - for those that have one
        """The thought to assume where an engine that only counts has written none."""
        return None

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Compute the log-probabilities of the labels for every tail of every group.

        Args:
            groups (sequence of [`ReadGroup`]): The prompts.
            labels (sequence of `str`): The labels, such as "yes" and "no".

        Returns:
            `tuple[list[Answer], Usage]`: One answer per tail, in the order of the groups, and the cost in tokens.

        Raises:
            ModelError: If a label has no single-token surface form, or if two labels share one.
            BackendError: If the engine fails.
        """
        raise NotImplementedError

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample `sampling.n` replies to each prompt.

        Up to floating-point noise, a reply depends only on its prompt, on `sampling` and on the model, but not on the
        other prompts.

        Args:
            prompts (sequence of chat messages): Any number of prompts. The engine splits them into batches.
            sampling ([`Sampling`]): The sampling parameters.
            arrived (callable, *optional*): Called in this thread with the index and the replies of each prompt as soon
                as they are complete, in any order. An engine that returns all replies at once may not call it.

        Returns:
            `list[list[Reply]]`: `sampling.n` replies per prompt, in order.

        Raises:
            BackendError: If the engine fails. Replies already passed to `arrived` remain valid.
        """
        raise NotImplementedError
