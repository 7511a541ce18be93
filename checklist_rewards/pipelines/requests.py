"""From a row to what a generator and a scorer are given. Every error begins with the row's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import completion_text
from checklist_rewards.errors import SampleError
from checklist_rewards.generators import Request
from checklist_rewards.scorer import Sample

TEXTS = ("reference", "history", "context", "chosen", "rejected")
"""What a row may hold for a generator beside its input, as texts."""
CANDIDATES = "candidates"
TRIED = 20


def request_from(row: Mapping[str, Any], where: str) -> Request:
    """What a checklist is wanted for. Raises [`SampleError`] for a blank input or a value of another type."""
    input = text_of(row, "input", where)
    if input is None or not input.strip():
        raise SampleError(f"{where}: the input is blank; a checklist needs something that was asked.")
    return Request(input, **fields_of({name: row.get(name) for name in (*TEXTS, CANDIDATES)}, where))


def fields_of(values: Mapping[str, Any], where: str, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Fields of a [`Request`] from values of a row.

    Args:
        values (mapping): field to value: a text, or chat messages, of which the last by the assistant is taken; for
            `candidates` a list of texts. None and blank texts are absent.
        where (`str`): the row, for errors.
        keys (mapping, *optional*): field to the row's own name for it, for errors.

    Raises [`SampleError`] for anything else.
    """
    fields: dict[str, Any] = {}
    for name, value in values.items():
        key = (keys or {}).get(name, name)
        if name == CANDIDATES:
            fields[name] = candidates_of(value, where, key)
            continue
        try:
            fields[name] = None if value is None else completion_text(value, keep_thinking=True) or None
        except SampleError:
            got = f"{type(value).__name__} {value!r:.60}"
            raise SampleError(f"{where}: {key!r} must be a string or chat messages, got {got}.") from None
    return fields


def text_of(row: Mapping[str, Any], name: str, where: str) -> str | None:
    """A text of the row, or None. Raises [`SampleError`] for anything else."""
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise SampleError(f"{where}: {name!r} must be a string, got {type(value).__name__} {value!r:.60}.")
    return value


def candidates_of(value: Any, where: str, key: str = CANDIDATES) -> tuple[str, ...]:
    """Candidates as a tuple; none for None. Raises [`SampleError`] for anything but a list of texts."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise SampleError(f"{where}: {key!r} must be a list of texts, got {type(value).__name__} {value!r:.60}.")
    return tuple(value)


def joined(texts: Sequence[str | None]) -> str | None:
    """The texts that are not blank, an empty line between them; None where there is none."""
    return "\n\n".join(text for text in texts if text and text.strip()) or None


def sample_from(row: Mapping[str, Any], where: str, checklist: Any) -> Sample | None:
    """The row's target with this checklist; None where the row has no target."""
    target, *others = (text_of(row, name, where) for name in ("target", "input", "reference", "history"))
    return None if target is None else Sample(checklist, target, *others)


def a_few(samples: Sequence[Sample]) -> list[Sample]:
    """At most `TRIED` samples, evenly spread: every question about each of them is asked in a unit test."""
    step = max(1, -(-len(samples) // TRIED))
    return list(samples[::step])


def samples_of(request: Request, checklist: Any) -> list[Sample]:
    """The responses that a request came with, for refiners that try a checklist on texts."""
    texts = (*request.candidates, request.chosen, request.rejected)
    distinct = dict.fromkeys(text for text in texts if text is not None)
    return [Sample(checklist, text, request.input, request.reference, request.history) for text in distinct]
