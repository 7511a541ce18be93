"""Convert rows to the inputs of generators and scorers. Every error begins with the row's location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import CompletionReader, completion_text
from checklist_rewards.errors import SampleError
from checklist_rewards.generators import Request
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import NO_ANSWER_STATES
from checklist_rewards.validation import string

TEXTS = ("reference", "history", "context", "chosen", "rejected")
"""The text fields of a row that a generator may use in addition to `input`."""
CANDIDATES = "candidates"
TRIED = 20
_READER = CompletionReader()


def request_from(row: Mapping[str, Any], where: str) -> Request:
    """The generator request of a row. Raises [`SampleError`] if the input is blank or a value has the wrong type."""
    input = text_of(row, "input", where)
    if input is None or not input.strip():
        raise SampleError(f"{where}: the input is blank; a checklist needs an instruction.")
    return Request(input, **fields_of({name: row.get(name) for name in (*TEXTS, CANDIDATES)}, where))


def fields_of(values: Mapping[str, Any], where: str, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Fields of a [`Request`] from values of a row.

    Args:
        values (mapping): field to value: a string, which is not changed, or chat messages, of which the answer is
            used; for `candidates` a list of strings. None and empty strings count as missing.
        where (`str`): the row, for error messages.
        keys (mapping, *optional*): field to column name, for error messages.

    Raises:
        SampleError: If a value has another type.
    """
    fields: dict[str, Any] = {}
    for name, value in values.items():
        key = (keys or {}).get(name, name)
        if name == CANDIDATES:
            fields[name] = candidates_of(value, where, key)
            continue
        try:
            fields[name] = (value if value is None or isinstance(value, str) else completion_text(value)) or None
        except SampleError:
            got = f"{type(value).__name__} {value!r:.60}"
            raise SampleError(f"{where}: {key!r} must be a string or chat messages with roles, got {got}.") from None
    return fields


def text_of(row: Mapping[str, Any], name: str, where: str) -> str | None:
    """A string of the row, or None if missing. Raises [`SampleError`] for other types."""
    value = row.get(name)
    if value is not None:
        string(f"{where}: {name!r}", value)
    return value


def candidates_of(value: Any, where: str, key: str = CANDIDATES) -> tuple[str, ...]:
    """Candidates as a tuple; empty for None. Raises [`SampleError`] unless `value` is a list of strings."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise SampleError(f"{where}: {key!r} must be a list of strings, got {type(value).__name__} {value!r:.60}.")
    return tuple(value)


def joined(texts: Sequence[str | None]) -> str | None:
    """The nonblank texts joined by blank lines; None if there are none."""
    return "\n\n".join(text for text in texts if text and text.strip()) or None


def sample_from(row: Mapping[str, Any], where: str, checklist: Any) -> Sample | None:
    """A sample of the answer in the row's target with `checklist`; None if the row has no target."""
    text, input, reference, history = (text_of(row, name, where) for name in ("target", "input", *TEXTS[:2]))
    if text is None:
        return None
    target = _READER.read(text)
    return Sample(checklist, target.text, input, reference, history, state=target.state)


def a_few(samples: Sequence[Sample]) -> list[Sample]:
    """At most `TRIED` evenly spaced samples, to limit the reads of unit tests (every question on every sample).
    Samples without an answer are used only if there are no others."""
    samples = [sample for sample in samples if sample.target_state not in NO_ANSWER_STATES] or samples
    step = max(1, -(-len(samples) // TRIED))
    return list(samples[::step])


def samples_of(request: Request, checklist: Any) -> list[Sample]:
    """The answers of the responses in a request, as samples for refiners that test a checklist on texts."""
    texts = (*request.candidates, request.chosen, request.rejected)
    targets = [_READER.read(text) for text in texts if text is not None]
    distinct = {target.text: target.state for target in targets if target.has_answer}
    return [
        Sample(checklist, text, request.input, request.reference, request.history, state=state)
        for text, state in distinct.items()
    ]
