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
    """The reasons of the judges, engines and commands of this package."""

    TOO_LONG = "too_long"
    """The prompt does not fit the model's context. Prompts are never truncated."""
    OFF_LABEL = "off_label"
    """The label mass is below the mass floor, or the answer is not one of the labels."""
    BACKEND_ERROR = "backend_error"
    """The engine or the connection to the server failed."""
    BUDGET = "budget"
    """The call does not fit the budget of the run."""
    TIMEOUT = "timeout"
    """The server did not respond in time."""
    DEADLINE = "deadline"
    """The time for all reads of a call was over; see the argument `deadline` of [`ChecklistReward`]."""
    NOT_JSON = "not_json"
    """The server's response has status 200, but is not JSON."""
    ERROR_BODY = "error_body"
    """The server's response has status 200, but contains an error, or does not match the request."""
    EMPTY_CHOICES = "empty_choices"
    """The server's response has no choices."""
    NULL_CONTENT = "null_content"
    """The server's choice has no text."""
    CUT_OFF = "cut_off"
    """The reply reached its token limit before an answer."""
    REFUSED = "refused"
    """The server rejected the content, or the model declined to reply."""
    NOT_FINITE = "not_finite"
    """An encoder computed NaN or an infinite number."""
    TIE = "tie"
    """As many samples of a reasoned judge abstain as answer."""
    MISSING = "missing"
    """The reply of a batch judge does not answer this question."""
    UNPARSABLE = "unparsable"
    """The judge's reply cannot be parsed."""
    QUORUM = "quorum"
    """Too few judges of a panel, or of several replies of one judge, have an answer."""
    NO_MAJORITY = "no_majority"
    """No answer has more than half of a panel's votes."""
    DISAGREEMENT = "disagreement"
    """The judges of a unanimous panel gave different answers."""
    CHECK_ERROR = "check_error"
    """The code check failed on the text."""
    UNCALIBRATED = "uncalibrated"
    """A contextual calibration requires a read of an empty target, which has no probabilities."""
    NOT_READ = "not_read"
    """A stored score does not contain the item; see [`rescore`]."""
    NOT_NEEDED = "not_needed"
    """The score was fixed before the item was read (the former `decide_early`). No failure."""
    NOT_SHARED = "not_shared"
    """Only one of two compared candidates has an answer to the item; see `preferences.py`."""
    NO_ANSWER = "no_answer"
    """The target has no answer: it is empty, cut in its thought, or ends with a tool call. The judge is not asked."""
    NO_CHECKLIST = "no_checklist"
    """The row or task has no checklist."""
    NO_REPLY = "no_reply"
    """The model that writes or rewrites texts gave no reply."""
    NOT_GENERATED = "not_generated"
    """The generator gave no checklist."""
    INVALID_ROW = "invalid_row"
    """The row cannot be scored, for example because its target is not a text."""
    ROW_FAILED = "row_failed"
    """The row raised an error, or ended the process, each time it was processed."""
    SHARD_FAILED = "shard_failed"
    """A file of a run over shards could not be finished."""


ADVICE: Mapping[str, str] = {
    Reason.TOO_LONG: "the prompt is longer than the model's context",
    Reason.OFF_LABEL: "the judge's most likely reply is not one of the labels (see --judge.mass-floor and `probe`)",
    Reason.BACKEND_ERROR: "the engine failed; rerun the command to retry",
    Reason.BUDGET: "the --budget is spent; rerun the command with a larger budget to continue",
    Reason.TIMEOUT: "the request timed out; rerun the command to retry",
    Reason.DEADLINE: "the time for all reads of a step was over (see the reward's deadline)",
    Reason.NOT_JSON: "the server's response is not JSON; rerun the command to retry",
    Reason.ERROR_BODY: "the server's response contains an error; rerun the command to retry",
    Reason.EMPTY_CHOICES: "the server's response contains no reply; rerun the command to retry",
    Reason.NULL_CONTENT: "the server's reply has no text",
    Reason.CUT_OFF: "the reply reached its token limit before an answer; allow more tokens",
    Reason.REFUSED: "the server or the model refused to answer",
    Reason.NOT_FINITE: "the encoder computed NaN or an infinite number; check its weights and its dtype",
    Reason.TIE: "as many samples abstain as answer",
    Reason.MISSING: "the judge's reply does not answer this question, even after a second request",
    Reason.UNPARSABLE: "the judge's reply cannot be parsed, even after a second request",
    Reason.QUORUM: "too few judges of the panel, or too few of several replies, answered",
    Reason.NO_MAJORITY: "no answer has more than half of the panel's votes",
    Reason.DISAGREEMENT: "the panel is not unanimous",
    Reason.CHECK_ERROR: "the code check failed on this text",
    Reason.UNCALIBRATED: "the calibration requires a read of an empty target, which was not answered",
    Reason.NOT_READ: "the stored score does not contain this item; score the text again",
    Reason.NOT_NEEDED: "the score was fixed before this item was read (the former --decide-early)",
    Reason.NOT_SHARED: "only one of the two candidates has an answer to this item",
    Reason.NO_ANSWER: "the text has no answer (empty, cut in its thought, or ends with a tool call); see --no-answer",
    Reason.NO_CHECKLIST: "the row's checklist is null",
    Reason.NO_REPLY: "the policy gave no reply",
    Reason.NOT_GENERATED: "no checklist could be parsed from the writer's replies",
    Reason.INVALID_ROW: "the row is not valid; correct it in its shard and rerun the command",
    Reason.ROW_FAILED: "processing the row fails each time",
    Reason.SHARD_FAILED: "the shard could not be finished; rerun the command to retry",
}
"""What each reason means for the user of a command, and what to do."""

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
        return Reason(self.reason) if self.reason in TRANSIENT else None

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
