"""The columns of a dataset with checklists, and datasets of rows in memory-mapped files.

A row has a `prompt` in TRL's format (a string or chat messages), the four checklist columns, and the other columns of
its source. The types of the checklist columns are declared instead of inferred, so that shards can be concatenated.
All other columns get a type that fits all of their rows (`files/spool.py`).
"""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.cells import as_cell
from checklist_rewards.files.spool import ArrowSpool
from checklist_rewards.images import image_of
from checklist_rewards.rows import PROMPT
from checklist_rewards.validation import one_of

if TYPE_CHECKING:
    from datasets import Dataset, Features

CHECKLIST_COLUMNS = ("checklist", "checklist_id", "checklist_source", "checklist_model")


def checklist_features(prompt: Literal["text", "messages"] = "text") -> Features:
    """The features of the prompt and checklist columns, for prompts that are strings or chat messages."""
    from datasets import Features, List, Value

    one_of("prompt", prompt, ("text", "messages"))
    text, number, flag = Value("string"), Value("float64"), Value("bool")
    item = {
        "id": text,
        "question": text,
        "weight": number,
        "category": text,
        "required": flag,
        "options": List({"label": text, "value": number, "na": flag}),
        "check": text,
        "scope": text,
        "evidence": {"start": Value("int64"), "end": Value("int64"), "text": text},
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


def checklist_columns(checklist: Checklist | GenerationError | None) -> dict[str, Any]:
    """The four checklist columns of one row; all null without a checklist. `Checklist.parse(row["checklist"])` is the
    inverse."""
    if not isinstance(checklist, Checklist):
        return dict.fromkeys(CHECKLIST_COLUMNS)
    return {
        "checklist": [item.model_dump(exclude={"sources"}) for item in checklist.items],
        "checklist_id": checklist.id,
        "checklist_source": checklist.source,
        "checklist_model": checklist.model,
    }


def in_order(dataset: Dataset) -> Dataset:
    """The dataset with `prompt` first, the checklist columns last, and the others between them in their order."""
    others = [name for name in dataset.column_names if name not in (PROMPT, *CHECKLIST_COLUMNS)]
    return dataset.select_columns([PROMPT, *others, *CHECKLIST_COLUMNS])


def media(features: Mapping[str, Any]) -> Features:
    """The columns with images, audio, videos or documents, which `datasets` stores as bytes and decodes when they are
    read."""
    from datasets import Features

    kinds = ("Image(", "Audio(", "Video(", "Pdf(")
    return Features({name: type for name, type in features.items() if any(kind in str(type) for kind in kinds)})


def _is_pillow(value: Any) -> bool:
    """Whether a value is a PIL image. PIL, which is an optional library, is not imported."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _stored(value: Any) -> Any:
    """A value with cells of `datasets.Image` in place of PIL images: PNG files with the pixels that models see."""
    if _is_pillow(value):
        file = io.BytesIO()
        image_of(value).pillow.save(file, "PNG")
        return {"bytes": file.getvalue(), "path": None}
    if isinstance(value, Mapping):
        return {name: _stored(inner) for name, inner in value.items()}
    return [_stored(inner) for inner in value] if isinstance(value, list | tuple) else value


def dataset_from_rows(
    rows: Iterable[Mapping[str, Any]], declared: Features | None = None, cell: Callable[[Any], str] = as_cell
) -> Dataset | None:
    """A memory-mapped dataset of rows; None without rows. Its file is in the cache folder of `datasets` that is
    deleted when the process ends. `declared` has the types of some columns; `cell` as in [`ArrowSpool`]. PIL images
    are stored as cells of `datasets.Image`; a column of them has this type."""
    import pyarrow as pa
    from datasets import Dataset, Features, Image, List
    from datasets.fingerprint import get_temporary_cache_files_directory

    folder, features = get_temporary_cache_files_directory(), declared or Features()
    spool = ArrowSpool(folder, {field.name: field.type for field in features.arrow_schema}, cell)
    pictured: dict[str, Any] = {}
    try:
        for row in rows:
            for name, value in row.items():
                if _is_pillow(value):
                    pictured[name] = Image()
                elif isinstance(value, list | tuple) and any(map(_is_pillow, value)):
                    pictured[name] = List(Image())
            spool.write({name: _stored(value) for name, value in row.items()})
        if not spool.columns:
            return None
        inferred = Features.from_arrow_schema(spool.schema) | pictured
        schema = Features({**inferred, **features}).arrow_schema
        path = str(Path(folder, f"checklists-{secrets.token_hex(8)}.arrow"))
        with pa.ipc.new_stream(path, schema) as writer:
            for batch in spool.batches():
                # Casting to the same type fails in pyarrow for a null struct with lists.
                writer.write_batch(batch if batch.schema.equals(schema) else batch.cast(schema))
        return Dataset.from_file(path)
    finally:
        spool.close()
