"""Parse request bodies into samples and errors.

[`Refused`] rejects the whole request, or a row of it. An invalid row becomes an error, a mapping of `row` (from 1;
null if it concerns the whole request), `field` and `message`, and does not affect the other rows; each endpoint
decides whether to score the others.

A row is read as by the commands (`rows.py`): the answer of the target is judged, without its thought. Target, input
and reference may be lists of chat messages; items with a scope are asked about those of the target. A row of `/score`
with `"as_is": true` has a target that its client has read already; see [`AsItIs`]. Its messages are in `messages`:
objects with `role`, `text`, and `shown`, the message as in a transcript ([`chat.Message`]).

Images are data URLs: in parts of chat messages, or in `images`, as in the column of this name. Each is counted by its
header, before it is decoded. Texts of a row that is `as_is` may contain their marks (`images.py`). Other marks, paths
and addresses are refused or cleaned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from checklist_rewards.chat import CompletionReader, Message
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.images import MAX_PIXELS, TooManyImages, bounded, clean
from checklist_rewards.rewards.integrations.labelled import answer_after, labelled_sample
from checklist_rewards.rows import SENT, images_of_row
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import TargetState
from checklist_rewards.server.guard import MAX_NESTED, TooManyValues, json_value

ErrorRecord = dict[str, Any]
MAX_ROWS = 4096
"""Most rows of a request."""
MAX_ITEMS = 1000
"""Most items of a row."""
MAX_READS = 2**16
"""Most items and options of the rows of a request together. The answer has some hundred bytes for each."""
LISTED = 100
"""Most errors in a response."""
_LONGEST = 500
_ROWS = "samples"
TEXTS = ("target", "input", "reference", "history")
_CHATS = TEXTS[:3]
"""Texts that may be chat messages."""
_FIELDS = ("checklist", *TEXTS, "as_is", "messages", "images")
MAX_IMAGES = 256
"""Most images of a request, equal ones counted for each row."""
MAX_IMAGE_PIXELS = 2 * MAX_PIXELS
"""Most pixels of the different images of a request together, by their headers."""
_READER = CompletionReader()
_COLUMNS = ("query", "prompts", "labels")


class Refused(Exception):
    """A request, or a row of one, answered with an error status and a sentence.

    `field` is the field of the request that caused the error (ignored for status 500 and above), unless `errors` has
    errors by row. `retry_after` are the seconds after which a client should try again (statuses 429 and 503).
    """

    def __init__(
        self,
        status: int,
        message: str,
        field: str = "body",
        errors: list[ErrorRecord] | None = None,
        retry_after: float = 1.0,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.field = status, message, field
        field_errors = [error_record(None, field, message)] if status < 500 else []
        self.errors = listed(field_errors if errors is None else errors)
        self.headers = dict(headers or {})
        if status in (429, 503):
            # Whole seconds, as in HTTP, and for clients such as ours the exact time too.
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
            self.headers["Retry-After-Ms"] = str(math.ceil(retry_after * 1000))

    @property
    def content(self) -> bytes:
        """The body of the response."""
        return as_json({"error": self.message, "errors": self.errors})


class AsItIs(Sample):
    """A sample whose target the client has prepared: it is judged unchanged, even if it is blank."""

    __slots__ = ()

    @property
    def target_state(self) -> TargetState:
        """Always `answered`, so that the judge is asked."""
        return "answered"


def as_json(content: Any) -> bytes:
    """JSON in ASCII: data of clients may contain half a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def error_record(row: int | None, field: str, message: str) -> ErrorRecord:
    """One entry of `errors`. Long texts are cut: they may repeat what the client has sent."""
    shown = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."
    return {"row": row, "field": field[:_LONGEST], "message": shown}


def listed(errors: Sequence[ErrorRecord]) -> list[ErrorRecord]:
    """The first errors as a response has them, and the number of the others."""
    more = len(errors) - LISTED
    if more <= 0:
        return list(errors)
    message = f"{more:,} more rows have errors, which are not listed."
    return [*errors[:LISTED], error_record(None, errors[LISTED]["field"], message)]


def score_samples(content: bytes, scorer: ChecklistScorer) -> tuple[int, list[tuple[int, Sample]], list[ErrorRecord]]:
    """The number of rows of a `/score` request, the valid samples with their row numbers, and one error per invalid
    row. Raises [`Refused`] if the body is not a `/score` request."""
    body = parsed_body(content)
    for field in body:
        if field != _ROWS:
            raise Refused(422, f"unknown field {field!r:.60}; allowed: {_ROWS}.", field)
    rows = _list(body, _ROWS)
    return len(rows), *_each(rows, lambda row, where: _requested(row, where, scorer))


def reward_samples(content: bytes, scorer: ChecklistScorer) -> list[Sample]:
    """Parse the body of a `/reward` request: the lists `query`, `prompts` and `labels`, and optionally `images`, with
    the data URLs of each row or null. Fields of other names are ignored, because OpenRLHF may add some. Raises
    [`Refused`] if a row is invalid, with an error per invalid row."""
    body = parsed_body(content)
    queries, prompts, labels = (_list(body, name) for name in _COLUMNS)
    if not len(queries) == len(prompts) == len(labels):
        raise Refused(
            422,
            "query, prompts and labels must have the same length, got "
            f"{len(queries)}, {len(prompts)} and {len(labels)}.",
            "labels" if len(queries) == len(prompts) else "prompts",
        )
    images = body.get("images")
    if images is None or images == []:
        images = [None] * len(queries)
    if not isinstance(images, list) or len(images) != len(queries):
        got = f"{len(images)} entries" if isinstance(images, list) else _shown(images)
        raise Refused(422, f"images must have one entry per query ({len(queries)}), or be null, got {got}.", "images")
    rows = list(zip(queries, prompts, labels, images, strict=True))
    samples, errors = _each(rows, lambda row, where: _labelled(row, where, scorer))
    if errors:
        raise refused_rows(errors, len(rows))
    return [sample for _, sample in samples]


def refused_rows(errors: list[ErrorRecord], total: int) -> Refused:
    """The error of a request that is rejected because of invalid rows."""
    count = "none" if len(errors) == total else f"{len(errors)}"
    verb = "cannot" if count != "none" else "can"
    return Refused(422, f"{count} of the {total} rows {verb} be scored; see errors.", errors=errors)


def parsed_body(content: bytes) -> Mapping[str, Any]:
    """The JSON object of a request. Raises [`Refused`] for anything else."""
    try:
        body = json_value(content)
    except TooManyValues as error:
        raise Refused(413, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON ({error}).") from None
    if not isinstance(body, Mapping):
        raise Refused(422, f"the body must be a JSON object, got {type(body).__name__}.")
    return body


def _list(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if not isinstance(value, list) or not value:
        got = "nothing" if field not in body else _shown(value)
        raise Refused(422, f"{field} must be a list of at least one row, got {got}.", field)
    if len(value) > MAX_ROWS:
        raise Refused(413, f"{field} has {len(value):,} rows; send at most {MAX_ROWS:,} in one request.", field)
    return value


@contextmanager
def bounded_images() -> Iterator[None]:
    """Bound the images of a request, and their pixels, while it is parsed. Raises [`Refused`] for too many."""
    try:
        with bounded(MAX_IMAGES, MAX_IMAGE_PIXELS):
            yield
    except TooManyImages as error:
        raise Refused(413, str(error)) from None


@bounded_images()
def _each(
    rows: Sequence[Any], read: Callable[[Any, str], Sample]
) -> tuple[list[tuple[int, Sample]], list[ErrorRecord]]:
    """The valid samples with their row numbers, and one error per invalid row."""
    samples: list[tuple[int, Sample]] = []
    errors: list[ErrorRecord] = []
    reads = images = 0
    for number, row in enumerate(rows, start=1):
        try:
            sample = read(row, f"row {number}")
        except Refused as refused:  # of this row
            errors.append(error_record(number, refused.field, refused.message))
            continue
        samples.append((number, sample))
        images += len({*sample.images, *sample.target_images})
        if images > MAX_IMAGES:
            raise Refused(413, f"the request has more than {MAX_IMAGES} images; send less at once.")
        reads += sum(max(1, len(item.options or ())) for item in sample.checklist.items)
        if reads > MAX_READS:
            raise Refused(413, f"the rows have more than {MAX_READS:,} items and options; send fewer rows at once.")
    return samples, errors


@contextmanager
def _errors_in(field: str) -> Iterator[None]:
    """Convert any exception to an error of this row and field."""
    try:
        yield
    except (TooManyImages, MemoryError):  # of the whole request
        raise
    except ChecklistRewardsError as error:
        raise Refused(422, str(error), field) from None
    except RecursionError:
        raise Refused(422, "the value is nested too deeply.", field) from None
    except Exception as error:
        raise Refused(422, f"the value cannot be used ({type(error).__name__}: {error}).", field) from error


def _requested(row: Any, where: str, scorer: ChecklistScorer) -> Sample:
    if not isinstance(row, Mapping):
        raise Refused(422, f"a row must be an object, got {_shown(row)}.", _ROWS)
    for field in row:
        if field not in _FIELDS:
            raise Refused(422, f"unknown field; allowed: {', '.join(_FIELDS)}.", field)
    for field in TEXTS:
        text = row.get(field)
        chats = field in _CHATS and not row.get("as_is")
        if not isinstance(text, str | list if chats else str) and (text is not None or field == "target"):
            got = "nothing" if field not in row else _shown(text)
            raise Refused(422, f"must be a string{' or a list of chat messages' if chats else ''}, got {got}.", field)
    as_is = row.get("as_is")
    if not isinstance(as_is, bool | None):
        raise Refused(422, f"must be true or false, got {_shown(as_is)}.", "as_is")
    if "checklist" not in row:
        raise Refused(422, "must be a list of questions, got nothing.", "checklist")
    with _errors_in("checklist"):
        _check_nested(row["checklist"], where)
        checklist = Checklist.parse(row["checklist"], where)
        _check_items(checklist, where, scorer)
    messages = _messages(row.get("messages"))
    with _errors_in("images"):
        images = images_of_row({"images": row.get("images")}, where, None)
    if as_is:
        others = (text and clean(text, images) for text in map(row.get, TEXTS[1:]))
        return AsItIs(checklist, row["target"], *others, messages=messages, target_images=images)
    if messages:
        raise Refused(422, 'requires "as_is": true; give chat messages as the target otherwise.', "messages")
    for field, read in (("input", SENT.input_of), ("reference", SENT.reference_of)):
        if isinstance(row.get(field), list):
            with _errors_in(field):
                read(row, where)
    with _errors_in("target"):
        return SENT.sample_of(row, where, checklist)


def _messages(value: Any) -> tuple[Message, ...]:
    """The messages of a row that its client has read."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Refused(422, f"must be a list of messages, got {_shown(value)}.", "messages")
    for number, message in enumerate(value, start=1):
        fields = message.items() if isinstance(message, Mapping) else ()
        if set(dict(fields)) != set(Message._fields) or not all(isinstance(text, str) for _, text in fields):
            allowed = ", ".join(Message._fields)
            raise Refused(422, f"message {number} must have the texts {allowed}, got {_shown(message)}.", "messages")
    return tuple(Message(**message) for message in value)


def _labelled(row: tuple[Any, Any, Any, Any], where: str, scorer: ChecklistScorer) -> Sample:
    query, prompt, label, given = row
    with _errors_in("images"):
        images = images_of_row({"images": given}, where, None)
    with _errors_in("query" if isinstance(prompt, str) else "prompts"):
        answer = answer_after(prompt, query, where)
        target = _READER.read(answer, raw=answer, opened=_READER.opened(prompt))
    with _errors_in("labels"):
        _check_nested(label, where)
        sample = labelled_sample(label, target, prompt, where, images=images)
        _check_items(sample.checklist, where, scorer)
    return sample


def _check_nested(value: Any, where: str) -> None:
    """Bound a checklist, or the check of an item, that is given as the text of its JSON. What is in its strings counts
    too, because it may be JSON again."""
    if isinstance(value, str) and sum(map(value.count, "[{,")) > MAX_NESTED:
        raise SampleError(f"{where}: the text has more than {MAX_NESTED:,} values of JSON; send less at once.")
    if isinstance(value, Mapping):
        for name in ("checklist", "items", "check"):
            _check_nested(value.get(name), where)
    if isinstance(value, list):
        for entry in value:
            _check_nested(entry if isinstance(entry, Mapping) else None, where)


def _check_items(checklist: Checklist, where: str, scorer: ChecklistScorer) -> None:
    if len(checklist.items) > MAX_ITEMS:
        raise SampleError(f"{where}: the checklist has {len(checklist.items)} items; at most {MAX_ITEMS} are allowed.")
    for item in checklist.items:
        scorer.check_item(item, where)


def _shown(value: Any) -> str:
    kind = type(value).__name__
    try:
        return f"{kind} {value!r:.60}"
    except (RecursionError, ValueError):  # deeply nested, or a number with thousands of digits
        return kind
