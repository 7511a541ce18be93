"""The columns of a dataset with checklists, and the Arrow file they are written to.

A row has a `prompt` as TRL takes it (a string or chat messages), the four checklist columns, and whatever else its
source had. The types of the checklist columns are declared, not inferred, so shards concatenate and Arrow never
invents a union; all other columns get the type that fits every one of their rows (`spool.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from datasets import Dataset, Features, List, Value
from datasets.fingerprint import get_temporary_cache_files_directory

from checklist_rewards.chat import prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.spool import ArrowSpool
from checklist_rewards.generators import Request

PROMPT = "prompt"
CHECKLIST_COLUMNS = ("checklist", "checklist_id", "checklist_source", "checklist_model")


def checklist_features(prompt: Literal["text", "messages"] = "text") -> Features:
    """The declared columns of a dataset with checklists.

    Args:
        prompt (`str`, *optional*, defaults to `"text"`): whether prompts are strings or chat messages.
    """
    if prompt not in ("text", "messages"):
        raise SampleError(f"prompt={prompt!r} is not known; allowed: 'text', 'messages'.")
    text, number, flag = Value("string"), Value("float64"), Value("bool")
    item = {
        "id": text,
        "question": text,
        "weight": number,
        "category": text,
        "required": flag,
        "options": List({"label": text, "value": number, "na": flag}),
        "check": text,
    }
    return Features(
        {
            PROMPT: text if prompt == "text" else List({"role": text, "content": text}),
            "checklist": List(item),
            "checklist_id": text,
            "checklist_source": text,
            "checklist_model": text,
        }
    )


def checklist_columns(checklist: Checklist) -> dict[str, Any]:
    """The four checklist columns of one row; `Checklist.parse(row["checklist"])` is the way back."""
    return {
        "checklist": [item.model_dump(exclude={"sources"}) for item in checklist.items],
        "checklist_id": checklist.id,
        "checklist_source": checklist.source,
        "checklist_model": checklist.model,
    }


def prompt_of(row: Mapping[str, Any], keys: Sequence[str], where: str) -> Any:
    """The prompt of a row: the value of its one key, or the texts of several, an empty line between those not blank.

    Raises [`SampleError`] that begins with `where` if texts are to be joined and one is none.
    """
    if len(keys) == 1:
        return row[keys[0]]
    for key in keys:
        if row[key] is not None and not isinstance(row[key], str):
            raise SampleError(f"{where}: only texts can be joined into a prompt, and {key!r} holds {row[key]!r:.60}.")
    return "\n\n".join(row[key] for key in keys if row[key] and row[key].strip())


def request_of(prompt: Any, reference: Any, where: str) -> Request:
    """What a generator is asked about a prompt: the last message by the user is the input, the others its history.

    Raises [`SampleError`] that begins with `where` for a prompt that asks for nothing.
    """
    try:
        text, history = prompt_text(prompt)
    except SampleError as error:
        raise SampleError(f"{where}: {error}") from None
    if text is None or not text.strip():
        raise SampleError(f"{where}: the prompt asks for nothing; it is {prompt!r:.60}.")
    if reference is not None and not isinstance(reference, str):
        raise SampleError(f"{where}: a reference must be a string, got {type(reference).__name__} {reference!r:.60}.")
    return Request(text, reference or None, history)


def in_order(dataset: Dataset) -> Dataset:
    """`prompt` first, the checklist last, everything else between them as it was."""
    others = [name for name in dataset.column_names if name not in (PROMPT, *CHECKLIST_COLUMNS)]
    return dataset.select_columns([PROMPT, *others, *CHECKLIST_COLUMNS])


class ArrowFile:
    """An Arrow file being written, in the folder of `datasets` that vanishes with the process."""

    def __init__(self, features: Features):
        self._schema = features.arrow_schema
        self._path = Path(get_temporary_cache_files_directory(), f"checklists-{secrets.token_hex(8)}.arrow")
        self._writer = pa.ipc.new_stream(str(self._path), self._schema)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows."""
        self._writer.write_batch(pa.RecordBatch.from_pylist(list(rows), schema=self._schema))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows that are in Arrow form."""
        self._writer.write_batch(batch.cast(self._schema))

    def dataset(self) -> Dataset:
        """What was written, mapped from disk; nothing can be written after it."""
        self._writer.close()
        return Dataset.from_file(str(self._path))

    def __enter__(self) -> ArrowFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()


def dataset_from_rows(rows: Iterable[Mapping[str, Any]], declared: Sequence[str] = ()) -> Dataset | None:
    """A dataset of rows; None if there are none. Columns in `declared` have the types of `checklist_features`."""
    features = Features({name: checklist_features()[name] for name in declared})
    spool = ArrowSpool(
        get_temporary_cache_files_directory(), {field.name: field.type for field in features.arrow_schema}
    )
    try:
        for row in rows:
            spool.write(row)
        if not spool.columns:
            return None
        inferred = Features.from_arrow_schema(spool.schema)
        with ArrowFile(Features({**inferred, **features})) as file:
            for batch in spool.batches():
                file.write_batch(batch)
            return file.dataset()
    finally:
        spool.close()
