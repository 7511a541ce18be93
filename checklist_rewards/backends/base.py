"""The seam between this package and an inference engine: text out, label log-probabilities out.

A [`Backend`] has two methods. `generate` samples replies to chat messages. `read` answers reads: each [`ReadGroup`] is
one prompt prefix with the question tails that share it, and for every tail the engine returns the log-probability of
each label as the next token. How a prefix is computed once and shared is the engine's own affair; what it cost is in
the result.

A prompt that does not fit the context is unanswered("too_long"), never truncated. An engine that breaks raises
[`BackendError`]; nothing is made up in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

Message = dict[str, str]
Messages = Sequence[Message]
Progress = Callable[[int], None]
"""Called with the number of reads or prompts that were answered since the last call."""

TOO_LONG = "too_long"

TRANSIENT = ("backend_error", "timeout", "not_json", "error_body", "empty_choices", "budget")
"""Reasons that may be gone at the next try; answers that carry one are not kept in the store."""
COMPOSED = ("quorum", "uncalibrated")
"""Reasons of verdicts made of other verdicts. Where a transient failure of these is the cause, its reason follows:
"quorum: timeout: 1 of 3 judges answered"."""


def is_transient(unanswered: str | None) -> bool:
    """Whether `unanswered` (a reason, optionally with ": detail") says nothing about the prompt itself."""
    if unanswered is None:
        return False
    reason, _, detail = unanswered.partition(":")
    return reason in TRANSIENT or (reason in COMPOSED and is_transient(detail.lstrip()))


def transient_reason(unanswered: str) -> str:
    """The bare reason of an `unanswered` that is transient: "timeout" of "quorum: timeout: ..."."""
    reason, _, detail = unanswered.partition(":")
    return reason if reason in TRANSIENT else transient_reason(detail.lstrip())


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Reads that share a prefix. The user message of read i is `prefix + tails[i]`."""

    system: str | None
    prefix: str
    tails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelRead:
    """One read's raw outcome: `logprobs`, or a bare `answer`, or the reason why there is neither."""

    logprobs: tuple[float, ...] | None
    """ln P(label) in the order of the labels asked for; each is the sum over all surface forms of the label, taken
    from the softmax over the full vocabulary. -inf for a label that a server's list of likely tokens leaves out."""
    unanswered: str | None = None
    answer: str | None = None
    """The label that the model wrote, where a server gives no probabilities: a word only."""
    exact: bool = True
    """Whether `logprobs` were read from the full vocabulary. False: from a server's list of the most likely tokens."""
    keep: bool = True
    """Whether the store may keep it, if its reason is not transient. False: true of this start of the engine only,
    such as a prompt that is too long for the context a server was started with."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What `Backend.read` returns, and what it cost in prompt tokens."""

    reads: list[tuple[LabelRead, ...]]
    """One tuple per group, one entry per tail, in the order asked."""
    prompt_tokens: int = 0
    """Tokens of all prompts as if each were computed alone."""
    computed_tokens: int | None = 0
    """Prompt tokens that the engine computed; None if the engine does not report what it took from its cache."""
    floor_tokens: int = 0
    """The least that can be computed: each prefix once and each tail once."""
    separate: int = 0
    """Reads whose prompt was computed by itself, because a shared prefix would not be exact for this model."""
    completion_tokens: int | None = None
    """Tokens that the engine generated; None for one per answered read."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample replies. `seed` makes a run repeatable on one engine and version; it is part of the store's
    key."""

    max_tokens: int = 512
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    n: int = 1
    """Replies per prompt."""
    seed: int = 0
    schema: str | None = None
    """A JSON schema, as JSON text, that the reply must follow. An engine that can hold a model to it does; the caller
    says the same in words and checks, since not all of them can."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One sampled text, or the reason why there is none."""

    text: str | None
    finish_reason: str | None = None
    """ "stop" or "length"."""
    unanswered: str | None = None
    prompt_tokens: int = 0
    """Of the prompt behind it; with several replies per prompt counted at the first. 0 where the engine tells
    nothing."""
    completion_tokens: int = 0
    """Of this reply."""
    keep: bool = True
    """See [`LabelRead`]."""


Arrived = Callable[[int, list[Reply]], None]
"""Called with the place of a prompt among those asked and with its replies."""


def is_kept(outcome: LabelRead | Reply) -> bool:
    """Whether the store keeps this outcome: it will be the same at the next try."""
    return outcome.keep and not is_transient(outcome.unanswered)


def reply_seed(seed: int, prompt: Messages | Sequence[int], index: int = 0) -> int:
    """The seed of one reply, in [0, 2**31): from the run's seed, the reply's own prompt and its place among that
    prompt's replies. It does not depend on what else is sampled, so an interrupted run can be resumed anywhere.

    Args:
        seed (`int`): [`Sampling.seed`].
        prompt (chat messages or token ids): what is replied to.
        index (`int`, *optional*, defaults to `0`): of several replies to the prompt.
    """
    digest = blake2b(json.dumps([seed, list(prompt), index]).encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big") >> 1


class Backend(Protocol):
    """One engine with one model loaded. Build it with [`load_backend`], which shares engines between callers."""

    identity: str
    """Hash of the model (weights, tokenizer, chat template): what a stored read depends on besides its text."""
    chunk_reads: int
    """How many reads to hand over at once: enough to keep the engine full, few enough to store results often."""

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Read the labels' log-probabilities for every tail of every group.

        Raises:
            ModelError: if a label has no single-token surface form, or two labels share one.
            BackendError: if the engine fails.
        """
        ...

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample `sampling.n` replies to each prompt.

        A reply depends on its own prompt, on `sampling` and on the model, not on the prompts beside it; floating-point
        noise aside.

        Args:
            prompts (sequence of chat messages): each a list of {"role", "content"}. Any number: the engine cuts them
                into batches of its own.
            sampling ([`Sampling`]): how.
            arrived (callable, *optional*): called in this thread with each prompt's place and replies as soon as they
                are there, in any order. An engine that has all replies at once may leave it out.

        Raises:
            BackendError: if the engine fails. What `arrived` was called with stands.
        """
        ...
