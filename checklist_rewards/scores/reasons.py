"""Why an answer is missing.

A read, a vote or a reply that is missing has an [`Unanswered`]: a [`Reason`] and the details of the case. It is text,
"timeout" or "backend_error: connection refused", so it compares, prints and is saved as that text. Text is split into
reason and detail in one place, the constructor of [`Unanswered`]. Reasons that this version does not define (those of
a custom judge, or of a file that another version wrote) are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic_core import CoreSchema, core_schema


class Reason(StrEnum):
    """The reasons of the judges, engines and commands of this package, with what each means for the user of a command
    and what to do."""

    advice: str

    def __new__(cls, value: str, advice: str) -> Self:
        """A member with its advice."""
        self = str.__new__(cls, value)
        self._value_, self.advice = value, advice
        return self

    TOO_LONG = "too_long", "the prompt is longer than the model's context"
    OFF_LABEL = (
        "off_label",
        "the judge's most likely reply is not one of the labels (see --judge.mass-floor and `probe`)",
    )
    BACKEND_ERROR = "backend_error", "the engine failed; rerun the command to retry"
    BUDGET = "budget", "the --budget is spent; rerun the command with a larger budget to continue"
    TIMEOUT = (
        "timeout",
        "the request timed out; rerun the command to retry, for long replies with a larger engine setting `timeout`",
    )
    DEADLINE = "deadline", "the time for all reads of a step was over (see the reward's deadline)"
    NOT_JSON = "not_json", "the server's response is not JSON; rerun the command to retry"
    ERROR_BODY = "error_body", "the server's response contains an error; rerun the command to retry"
    EMPTY_CHOICES = "empty_choices", "the server's response contains no reply; rerun the command to retry"
    NULL_CONTENT = "null_content", "the server's reply has no text"
    CUT_OFF = "cut_off", "the reply reached its token limit before an answer; allow more tokens"
    REFUSED = "refused", "the server or the model refused to answer"
    NOT_FINITE = "not_finite", "the encoder computed NaN or an infinite number; check its weights and its dtype"
    TIE = "tie", "as many samples abstain as answer"
    MISSING = "missing", "the judge's reply does not answer this question, even after a second request"
    UNPARSABLE = "unparsable", "the judge's reply cannot be parsed, even after a second request"
    QUORUM = "quorum", "too few judges of the panel, or too few of several replies, answered"
    NO_MAJORITY = "no_majority", "no answer has more than half of the panel's votes"
    DISAGREEMENT = "disagreement", "the panel is not unanimous"
    CHECK_ERROR = "check_error", "the code check failed on this text"
    UNCALIBRATED = "uncalibrated", "the calibration requires a read of an empty target, which was not answered"
    NOT_READ = "not_read", "the stored score does not contain this item; score the text again"
    NOT_NEEDED = "not_needed", "the score was fixed before this item was read (the former --decide-early)"
    NOT_SHARED = "not_shared", "only one of the two candidates has an answer to this item"
    NO_ANSWER = (
        "no_answer",
        "the text has no answer (empty, cut in its thought, or ends with a tool call); see --no-answer",
    )
    NO_CHECKLIST = "no_checklist", "the row's checklist is null"
    NO_REPLY = "no_reply", "the policy gave no reply"
    NOT_GENERATED = "not_generated", "no checklist could be parsed from the writer's replies"
    INVALID_ROW = "invalid_row", "the row is not valid; correct it in its shard and rerun the command"
    ROW_FAILED = "row_failed", "processing the row fails each time"
    SHARD_FAILED = "shard_failed", "the shard could not be finished; rerun the command to retry"


ADVICE: Mapping[str, str] = {reason: reason.advice for reason in Reason}
"""The advice of each reason."""

TRANSIENT = frozenset(
    {
        Reason.BACKEND_ERROR,
        Reason.TIMEOUT,
        Reason.DEADLINE,
        Reason.NOT_JSON,
        Reason.ERROR_BODY,
        Reason.EMPTY_CHOICES,
        Reason.BUDGET,
    }
)
"""Reasons for failures that may not recur. Answers with one of these reasons are not stored."""

_COMPOSED = frozenset({Reason.QUORUM, Reason.UNCALIBRATED})
_REASONS: Mapping[str, Reason] = {reason.value: reason for reason in Reason}


class Unanswered(str):
    """Why an answer is missing: a reason with the details of the case. As text, "reason" or "reason: detail".

    Args:
        reason (`str`):
            A [`Reason`], another word, or the whole text.
        detail (`str`, *optional*):
            Details, such as an error message. A verdict that combines others has the transient failure that caused
            it, if any, as in "quorum: timeout: 1 of 3 judges answered".

    >>> why = Unanswered(Reason.TIMEOUT, "60 s")
    >>> why == "timeout: 60 s" == Unanswered("timeout: 60 s"), why.reason is Reason.TIMEOUT, why.detail
    (True, True, '60 s')
    """

    __slots__ = ("detail", "reason")
    reason: Reason | str
    """A [`Reason`], or the word of a custom judge or of another version."""
    detail: str
    """Empty without details."""

    def __new__(cls, reason: str, detail: str = "") -> Self:
        """Join a reason and its details, or split a text."""
        self = super().__new__(cls, f"{reason}: {detail}" if detail else reason)
        if not detail:
            reason, _, detail = str(reason).partition(":")
            detail = detail.strip()
        self.reason, self.detail = _REASONS.get(reason, reason), detail
        return self

    def __reduce__(self) -> tuple[type[Unanswered], tuple[str]]:
        """Copied and pickled as its text."""
        return Unanswered, (str(self),)

    @property
    def transient_reason(self) -> Reason | None:
        """The reason for which a retry may succeed: this one, or the one that caused it ("timeout" in
        "quorum: timeout: ..."). None if a retry gives the same result."""
        if self.reason in _COMPOSED:
            return Unanswered(self.detail).transient_reason
        return self.reason if isinstance(self.reason, Reason) and self.reason in TRANSIENT else None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """A string in JSON."""
        text = core_schema.str_schema()
        plain = core_schema.plain_serializer_function_ser_schema(str, return_schema=text)
        return core_schema.no_info_after_validator_function(cls, text, serialization=plain)


class Outcome:
    """Base of the values that may be unanswered. Judges and engines of other authors may pass the reason as text.

    They are written once and then shared, like all values of this package, but are not frozen: every read has two of
    them, and a frozen dataclass calls `object.__setattr__` for each of up to 11 fields.
    """

    __slots__ = ()
    unanswered: Unanswered | None

    def __post_init__(self) -> None:
        """Convert text to [`Unanswered`]."""
        if self.unanswered is not None and not isinstance(self.unanswered, Unanswered):
            self.unanswered = Unanswered(self.unanswered)


def is_transient(unanswered: str | None) -> bool:
    """Whether a retry may succeed after the failure `unanswered` (a reason, optionally with ": detail")."""
    return unanswered is not None and Unanswered(unanswered).transient_reason is not None
