"""Which key of a row holds what, and the checks that a row must pass before any model is loaded.

A key that the user names must be there in every row. Where none is named, the first row decides between the two names
that the field uses (`prompt` or `input`, `target` or `completion`), and all rows must agree with it. Chat messages are
taken as a trainer's reward takes them (`chat.py`).

What a writer may be shown besides (a reference, candidates, ...) is taken from the keys of these names, where its
prompt speaks of it; a row without such a key has none, unless the user named it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.generators import Request
from checklist_rewards.pipelines.requests import CANDIDATES, fields_of, joined
from checklist_rewards.scorer import Sample

PROMPT, HISTORY, REFERENCE = "prompt", "history", "reference"
INPUTS, TARGETS = (PROMPT, "input"), ("target", "completion")
_TEXT = "a string or chat messages"


@dataclass(frozen=True)
class Columns:
    """The keys of a file of rows. Make it with [`Columns.of`]."""

    inputs: tuple[str, ...]
    """May be empty: then the judge sees no input."""
    target: str
    checklist: str
    reference: str | None = None
    """What the judge is shown as a known good answer."""
    history: str = HISTORY
    """The turns before the input, where they are not in its chat messages."""
    writer: Mapping[str, str] = field(default_factory=dict)
    """What a writer is shown besides: the name of a field of [`Request`], and its key."""
    shared: Checklist | None = None
    """One checklist for all rows, instead of the column."""
    optional: frozenset[str] = frozenset()
    """Keys that nobody named: a row may lack them."""
    blank_is_null: bool = False
    """CSV has no null: an empty cell stands for it."""

    @classmethod
    def of(
        cls,
        first: Mapping[str, Any],
        *,
        inputs: Sequence[str] | None = None,
        target: str | None = None,
        checklist: str | None = None,
        reference: str | None = None,
        history: str | None = None,
        writer: Mapping[str, str | None] | None = None,
        shared: Checklist | None = None,
        blank_is_null: bool = False,
    ) -> Columns:
        """The keys that a file with this first row uses; None stands for "not named by the user".

        `writer` has a field for everything that the writer can be shown.
        """
        default = [next((key for key in INPUTS if key in first), None)]
        fields = {name: key or name for name, key in (writer or {}).items()}
        unnamed = {name for name, key in (writer or {}).items() if key is None} | ({HISTORY} if not history else set())
        return cls(
            tuple(inputs) if inputs else tuple(key for key in default if key is not None),
            target or next((key for key in TARGETS if key in first), TARGETS[0]),
            checklist or "checklist",
            reference,
            history or HISTORY,
            fields,
            shared,
            frozenset(unnamed - set(filter(None, (reference, history)))),
            blank_is_null,
        )

    def input_of(self, row: Mapping[str, Any], where: str) -> tuple[str | None, str | None]:
        """What was asked, and the turns before it. Several keys are joined by a blank line, empty ones left out."""
        texts = [self._input(row, key, where) for key in self.inputs]
        before = None if self._absent(row, self.history) else self.get(row, self.history, "--history-key", where)
        if before is not None and not isinstance(before, str):
            kind = "a string (the turns of chat messages belong into the input)"
            raise SampleError(f"{where}: {self.history!r} must be {kind}, got {_shown(before)}.")
        history = joined([before, *(history for _, history in texts)])
        return texts[0][0] if len(texts) == 1 else joined([text for text, _ in texts]), history

    def request_of(self, row: Mapping[str, Any], where: str) -> Request:
        """What a checklist is wanted for. Raises [`SampleError`] if nothing is asked there."""
        if not self.inputs:
            self.get(row, PROMPT, "--input-key", where)
        input, history = self.input_of(row, where)
        if input is None or not input.strip():
            keys = ", ".join(self.inputs)
            raise SampleError(f"{where}: the input is blank ({keys}); a checklist needs something asked.")
        values = {
            name: (self.list_of if name == CANDIDATES else self.get)(row, key, f"--{name}-key", where)
            for name, key in self.writer.items()
            if not self._absent(row, key)
        }
        return Request(input, history=history, **fields_of(values, where, self.writer))

    def messages_of(self, row: Mapping[str, Any], where: str) -> str | list[dict[str, str]] | None:
        """What was asked, as a policy is asked: chat messages stay chat messages."""
        value = row.get(self.inputs[0]) if len(self.inputs) == 1 else None
        if isinstance(value, str) or value is None:
            return self.input_of(row, where)[0]
        input, history = self.input_of(row, where)  # refuses what is no conversation
        return [dict(message) for message in value] if input or history else None

    def sample_of(self, row: Mapping[str, Any], where: str, checklist: Any) -> Sample:
        """The row as a [`Sample`] with this checklist. Raises [`SampleError`] if it cannot be one."""
        input, history = self.input_of(row, where)
        return Sample(checklist, self.target_of(row, where), input, self.reference_of(row, where), history)

    def target_of(self, row: Mapping[str, Any], where: str) -> str:
        """The text being scored, without thinking, as a reward takes it. Raises [`SampleError`] if there is none."""
        target = self.get(row, self.target, "--target-key", where)
        try:
            return completion_text(None if target == [] else target)  # no messages at all are no text
        except SampleError:
            raise SampleError(f"{where}: {self.target!r} must be {_TEXT}, got {_shown(target)}.") from None

    def checklist_of(self, row: Mapping[str, Any], where: str) -> Checklist | None:
        """The row's checklist; None if it is null, as where none could be generated."""
        if self.shared is not None:
            return self.shared
        value = self.get(row, self.checklist, "--checklist-key, or give --checklist FILE", where)
        if value is None or (value == "" and self.blank_is_null):
            return None
        return Checklist.parse(value, f"{where}, {self.checklist!r}")

    def list_of(self, row: Mapping[str, Any], key: str, option: str, where: str) -> Any:
        """`row[key]`, which should be a list; CSV, which has none, holds it as JSON."""
        value = self.get(row, key, option, where)
        if not isinstance(value, str):
            return value
        if value == "" and self.blank_is_null:
            return None
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise SampleError(
                f"{where}: {key!r} must be a list, or JSON of one ({error}); got {value!r:.60}."
            ) from None

    def reference_of(self, row: Mapping[str, Any], where: str) -> str | None:
        """The known good answer, if there is one."""
        if self.reference is None:
            return None
        value = self.get(row, self.reference, "--reference-key", where)
        return fields_of({REFERENCE: value}, where, {REFERENCE: self.reference})[REFERENCE]

    @staticmethod
    def get(row: Mapping[str, Any], key: str, option: str, where: str) -> Any:
        """`row[key]`, or a sentence that lists the keys there are and the option that names another."""
        if key not in row:
            keys = ", ".join(map(repr, row)) or "no keys at all"
            raise SampleError(
                f"{where}: there is no key {key!r}; the row has {keys} (name the right one with {option})."
            )
        return row[key]

    def _absent(self, row: Mapping[str, Any], key: str) -> bool:
        return key in self.optional and key not in row

    def _input(self, row: Mapping[str, Any], key: str, where: str) -> tuple[str | None, str | None]:
        value = self.get(row, key, "--input-key", where)
        if value is None or isinstance(value, str):
            return value, None
        try:
            return prompt_text(value)
        except SampleError:
            raise SampleError(f"{where}: {key!r} must be {_TEXT}, got {_shown(value)}.") from None


def read_checklist(path: Path) -> Checklist:
    """The checklist in a JSON file. Raises [`ChecklistError`] naming the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChecklistError(f"{path}: the checklist cannot be read as UTF-8 text ({error}).") from None
    return Checklist.parse(text, str(path))


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"
