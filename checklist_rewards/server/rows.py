"""From a request's body to samples, or to errors that name row and field.

An error is a mapping of `row` (from 1; null where it concerns the whole request), `field` and `message`: what a client
gets in `errors`. [`Refused`] is an answer that refuses the request; a row that cannot be used is an error beside the
samples of the others, and what becomes of those the path decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from checklist_rewards.chat import opens_thinking, strip_thinking
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.rewards.samplewise import answer_after, labelled_sample
from checklist_rewards.scorer import ChecklistScorer, Sample

ErrorRecord = dict[str, Any]
_ROWS = "samples"
_FIELDS = ("checklist", "target", "input", "reference", "history")
_COLUMNS = ("query", "prompts", "labels")
_TOO_DEEP = "it is nested too deeply."


class Refused(Exception):
    """A request that is answered with an error.

    Args:
        status (`int`): of HTTP.
        message (`str`): a sentence.
        field (`str`, *optional*, defaults to `"body"`): what of the request is to blame, under 500.
        errors (list, *optional*): one per row, instead of the one that `field` makes.
    """

    def __init__(self, status: int, message: str, field: str = "body", errors: list[ErrorRecord] | None = None):
        super().__init__(message)
        self.status, self.message = status, message
        blamed = [error_record(None, field, message)] if status < 500 else []
        self.errors = blamed if errors is None else errors


class _RowError(Exception):
    """A row that cannot be scored as it is."""

    def __init__(self, row: int, field: str, message: str):
        super().__init__(message)
        self.record = error_record(row, field, message)


def error_record(row: int | None, field: str, message: str) -> ErrorRecord:
    """One entry of `errors`."""
    return {"row": row, "field": field, "message": message}


def parse_body(content: bytes) -> Mapping[str, Any]:
    """The JSON object of a body. Raises [`Refused`]."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON ({error}).") from None
    if not isinstance(body, Mapping):
        raise Refused(422, f"the body must be a JSON object, got {type(body).__name__}.")
    return body


def score_rows(body: Mapping[str, Any]) -> list[Any]:
    """The rows of a `/score` request. Raises [`Refused`]."""
    for field in body:
        if field != _ROWS:
            raise Refused(422, f"unknown field {field!r:.60}; allowed: {_ROWS}.", field)
    return _list(body, _ROWS)


def score_samples(rows: list[Any], scorer: ChecklistScorer) -> tuple[list[tuple[int, Sample]], list[ErrorRecord]]:
    """The samples of `/score` with their row numbers, and an error for every other row."""
    samples: list[tuple[int, Sample]] = []
    errors: list[ErrorRecord] = []
    for number, row in enumerate(rows, start=1):
        try:
            samples.append((number, _sample(row, number, scorer)))
        except _RowError as error:
            errors.append(error.record)
    return samples, errors


def reward_rows(body: Mapping[str, Any]) -> list[tuple[Any, Any, Any]]:
    """The rows of a `/reward` request: query, prompt, label. Raises [`Refused`].

    Other fields are OpenRLHF's to add, and not looked at.
    """
    queries, prompts, labels = (_list(body, name) for name in _COLUMNS)
    if not len(queries) == len(prompts) == len(labels):
        raise Refused(
            422,
            f"query, prompts and labels must be equally long, got {len(queries)}, {len(prompts)} and {len(labels)}.",
            "labels" if len(queries) == len(prompts) else "prompts",
        )
    return list(zip(queries, prompts, labels, strict=True))


def reward_samples(rows: list[tuple[Any, Any, Any]], scorer: ChecklistScorer) -> list[Sample]:
    """The samples of `/reward`. Raises [`Refused`] with an error for every row that cannot be used."""
    samples, errors = [], []
    for number, row in enumerate(rows, start=1):
        try:
            samples.append(_labelled(*row, number, scorer))
        except _RowError as error:
            errors.append(error.record)
    if errors:
        raise refused_rows(errors, len(rows))
    return samples


def refused_rows(errors: list[ErrorRecord], total: int) -> Refused:
    """The answer where rows cannot be scored and the others are worth nothing without them."""
    count = "none" if len(errors) == total else f"{len(errors)}"
    verb = "cannot" if count != "none" else "can"
    return Refused(422, f"{count} of the {total} rows {verb} be scored; see errors.", errors=errors)


def _list(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if not isinstance(value, list) or not value:
        got = "nothing" if field not in body else _shown(value)
        raise Refused(422, f"{field} must be a list of at least one row, got {got}.", field)
    return value


def _sample(row: Any, number: int, scorer: ChecklistScorer) -> Sample:
    if not isinstance(row, Mapping):
        raise _RowError(number, _ROWS, f"a row must be an object, got {_shown(row)}.")
    for field in row:
        if field not in _FIELDS:
            raise _RowError(number, field, f"unknown field; allowed: {', '.join(_FIELDS)}.")
    for field in _FIELDS[1:]:
        text = row.get(field)
        if not isinstance(text, str) and (text is not None or field == "target"):
            got = "nothing" if field not in row else _shown(text)
            raise _RowError(number, field, f"must be a string, got {got}.")
    if "checklist" not in row:
        raise _RowError(number, "checklist", "must be a list of questions, got nothing.")
    try:
        checklist = Checklist.parse(row["checklist"], f"row {number}")
        for item in checklist.items:
            scorer.check_item(item, f"row {number}")
    except ChecklistRewardsError as error:
        raise _RowError(number, "checklist", str(error)) from None
    except RecursionError:
        raise _RowError(number, "checklist", _TOO_DEEP) from None
    return Sample(checklist, row["target"], *(row.get(field) for field in _FIELDS[2:]))


def _labelled(query: Any, prompt: Any, label: Any, number: int, scorer: ChecklistScorer) -> Sample:
    where = f"row {number}"
    try:
        answer = answer_after(prompt, query, where)
    except (ChecklistRewardsError, RecursionError) as error:
        message = str(error) if isinstance(error, ChecklistRewardsError) else _TOO_DEEP
        raise _RowError(number, "query" if isinstance(prompt, str) else "prompts", message) from None
    try:
        sample = labelled_sample(label, strip_thinking(answer, opened=opens_thinking(prompt)), prompt, where)
        for item in sample.checklist.items:
            scorer.check_item(item, where)
    except ChecklistRewardsError as error:
        raise _RowError(number, "labels", str(error)) from None
    except RecursionError:
        raise _RowError(number, "labels", _TOO_DEEP) from None
    return sample


def _shown(value: Any) -> str:
    kind = type(value).__name__
    try:
        return f"{kind} {value!r:.60}"
    except RecursionError:
        return f"{kind}, nested too deeply to show"
