"""Where rows to import come from: a file, a folder or a pattern of shards, a dataset, a name on the hub.

JSONL, CSV and Parquet are read as a stream. A CSV file or a list with one criterion per row and no prompt is one row,
the list of its criteria. Documents (.json, .yaml) are read whole:

- Autorubric's `RubricDataset` becomes a row per submission,
- a promptfoo configuration a row per test and prompt,
- a mapping with a list of rows (`data`), or of rows by name, a row for each,
- a list a row for each entry, and any other mapping one row.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from checklist_rewards.datasets.names import (
    ANSWERED,
    LISTS,
    OF_A_CRITERION,
    PROMPTS,
    REFERENCES,
    WEIGHTS,
    spelled,
)
from checklist_rewards.datasets.promptfoo import promptfoo_rows
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import decoded, messages_in
from checklist_rewards.files.documents import FORMATS as DOCUMENTS
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import FORMATS, Row, read_rows, rows_of_tables, saved_dataset, unknown_extension
from checklist_rewards.messages import speaker
from checklist_rewards.validation import import_extra, missing

if TYPE_CHECKING:
    from datasets import Dataset

EXTENSIONS = (*FORMATS, *DOCUMENTS)
_ROWS = 256
"""Rows of a dataset that are in memory at once."""
_ASKED = {"prompt", "question", "instruction", "query", "messages", "input", "problem"}
WHOLE = "rubric"
"""The key of the only row of a file that is a list of criteria."""
SHARED = "_shared"
"""The column of [`Shared`], which no other row has."""


class Shared(NamedTuple):
    """What the rows of one document share."""

    rubric: str
    """Where the rubric stands, for errors."""
    unassessed: frozenset[int]
    """The indices of items that CANNOT_ASSESS labels in any row with this rubric."""
    unused: list[str]
    """Fields that were dropped."""


class SourceRows(NamedTuple):
    """What there is to import."""

    rows: Iterator[Row]
    features: Callable[[], Mapping[str, Any]]
    """The types of its columns, as `datasets` knows them; none if they are not known."""


def read_source(source: str | Path | Dataset) -> SourceRows:
    """The rows of a file with one of `EXTENSIONS`, of a folder or a pattern (`data/*.parquet`) of such files, of a
    dataset of the library `datasets`, or of one on the hub (`"org/name"`, or `"org/name:split"`). Images are cells of
    `datasets.Image`, with their bytes as they are stored.

    Raises:
        SampleError: Immediately, if there is nothing to read; while iterating, if a row is malformed.
    """
    dataset: Any = source
    if isinstance(source, str | Path):
        files = source_files(source)
        if files is not None:
            return SourceRows((row for file in files for row in _of_file(file)), partial(_features, files[0]))
        dataset = _of_hub(str(source))
    name = str(source) if isinstance(source, str | Path) else "the dataset"
    if hasattr(dataset, "keys"):
        raise SampleError(f"{name} has the splits {', '.join(dataset)}; pass one of them.")
    rows = (replace(row, where=f"{name}, {row.where}") for row in rows_of_dataset(dataset))
    return SourceRows(rows, lambda: getattr(dataset, "features", None) or {})


def source_files(source: str | Path) -> list[Path] | None:
    """The files of a source, in order of their names; None for a name on the hub. Raises [`SampleError`] if a folder
    or a pattern has no file that can be read."""
    path = Path(source)
    if saved_dataset(path):
        return [path]
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in EXTENSIONS and file.is_file())
        # Jupyter and others keep copies in hidden folders.
        files = [file for file in found if not any(part[0] == "." for part in file.relative_to(path).parts)]
        rows = [file for file in files if file.suffix.lower() in FORMATS]  # beside them, .json describes the dataset
        if not files:
            raise SampleError(f"{path}: the folder has no file to import; allowed: {', '.join(EXTENSIONS)}.")
        return rows or files
    text = str(source)
    if not path.exists() and glob.has_magic(text):
        found = sorted(Path(name) for name in glob.glob(text, recursive=True))
        if not found:
            raise SampleError(f"{text}: no file has such a name.")
        return found
    owner, slash, name = text.partition(":")[0].partition("/")
    named = slash and owner not in ("", ".", "..", "~") and name and "/" not in name
    if named and not path.exists() and path.suffix.lower() not in EXTENSIONS:
        return None
    return [path]


def _of_file(path: Path) -> Iterator[Row]:
    extension = path.suffix.lower()
    if not saved_dataset(path):
        if extension in DOCUMENTS:
            yield from _of_document(read_value(read_text(path), path), path)
            return
        if extension not in FORMATS:
            raise unknown_extension(path, EXTENSIONS)
    rows = read_rows(path)
    first = next(rows, None)
    if first is not None and first.csv and _is_a_criterion_alone(first.data):
        criteria = [{key: cell for key, cell in row.data.items() if cell} for row in chain([first], rows)]
        yield Row(1, {WHOLE: criteria}, str(path))
    elif first is not None:
        yield from chain([first], rows)


def _of_list(entries: list[Any], path: Path) -> Iterator[Row]:
    """A row for each entry, or one row with the list of criteria."""
    first = entries[0] if entries else None
    if isinstance(first, dict) and not _is_criterion(first) and not _is_a_criterion_alone(first):
        for number, entry in enumerate(entries, start=1):
            if not isinstance(entry, dict):
                raise SampleError(f"{path}, row {number}: expected a mapping, got {entry!r:.60}.")
            yield Row(number, entry, f"{path}, row {number}")
    elif entries:
        yield Row(1, {WHOLE: entries}, str(path))


def _is_criterion(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a list is a criterion (or a section of them), and not a row with a prompt."""
    return bool({"requirement", "criterion", "criteria", "weight", "points"} & entry.keys()) and not (
        {"rubric", "rubrics", "checklist", "messages", "instruction", "prompt"} & entry.keys()
    )


def _is_a_criterion_alone(row: Mapping[str, Any]) -> bool:
    """Whether a row of a table is one criterion: a text with a weight or a kind, and no prompt, answer or list."""
    keys = {spelled(key) for key in row}
    text = next((name for name in OF_A_CRITERION if name in keys), None)
    if text is None or keys - {text} & {*PROMPTS, *LISTS, *REFERENCES, *ANSWERED}:
        return False
    if any(isinstance(decoded(value), list | Mapping) for value in row.values()):
        return False
    return bool(keys & ({*WEIGHTS} - {"score"})) or text not in ("question", "criteria")


def _of_document(value: Any, path: Path) -> Iterator[Row]:
    where = str(path)
    if isinstance(value, list):
        yield from _of_list(value, path)
        return
    if not isinstance(value, dict):
        raise SampleError(f"{path}: expected a mapping or a list, got {type(value).__name__} {value!r:.60}.")
    if isinstance(value.get("tests"), list) or ("prompts" in value and {"tests", "scenarios"} & value.keys()):
        yield from promptfoo_rows(value, path)
    elif "items" in value and "rubric" in value:
        yield from _autorubric(value, path)
    elif len(value) > 1 and all(isinstance(row, dict) and _ASKED & row.keys() for row in value.values()):
        yield from (
            Row(n, {"id": key, **row}, f"{path}, {key!r}") for n, (key, row) in enumerate(value.items(), start=1)
        )
    elif rows := _rows_in(value):
        yield from _of_list(rows, path)
    elif "source_method" in value and "items" in value:  # a checklist of AutoChecklist
        prompt = {"input": value["input"]} if value.get("input") else {}
        yield Row(1, {**prompt, "checklist": value}, where)
    else:
        yield Row(1, value, where)


def _rows_in(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The only list of rows in a mapping that is not a row, such as its `data`; empty if it has none or several."""
    lists = [entries for entries in value.values() if isinstance(entries, list) and entries]
    rows = [
        entries
        for entries in lists
        if all(
            isinstance(entry, dict)
            and _ASKED & entry.keys()
            and not _is_criterion(entry)
            and any(isinstance(part, list | dict) for part in entry.values())
            for entry in entries
        )
    ]
    return rows[0] if len(rows) == 1 and not _ASKED & value.keys() else []


def _autorubric(document: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """The submissions of a `RubricDataset` with what they share with the others: prompt, rubric and reference. What
    only the whole document says is in the column [`SHARED`]."""
    items = document["items"]
    if not isinstance(items, list):
        raise SampleError(f"{path}: a RubricDataset must be a mapping with 'rubric' and a list of 'items'.")
    common = {key: document.get(key) for key in ("prompt", "rubric", "reference_submission")}
    of_all = _unassessed(item for item in items if isinstance(item, dict) and item.get("rubric") is None)
    for number, item in enumerate(items, start=1):
        where = f"{path}, item {number}"
        if not isinstance(item, dict):
            raise SampleError(f"{where}: expected a mapping, got {type(item).__name__} {item!r:.60}.")
        own = item.get("rubric") is not None
        row = common | {key: value for key, value in item.items() if value is not None}
        unused = [f"dataset.{key}" for key in document if key not in (*common, "items")] if number == 1 else []
        if row["rubric"] is None:
            raise SampleError(f"{where}: 'rubric' is missing in both the item and the file.")
        if "ground_truth_reasons" in row:
            row["reasons"] = row.pop("ground_truth_reasons")
        submission = row.pop("submission", None)
        if not isinstance(submission, str):
            raise SampleError(f"{where}: 'submission' must be a string, got {submission!r:.60}.")
        asked, answer = _asked_and_answered(submission)
        if asked is not None:
            unused += ["prompt"] if row["prompt"] else []
            row["prompt"] = asked
        elif not isinstance(row["prompt"], str):
            raise SampleError(f"{where}: the item or the file needs a 'prompt' string, got {row['prompt']!r:.60}.")
        unassessed = _unassessed([item]) if own else of_all
        shared = Shared(f"{where if own else path}, rubric", unassessed, unused)
        yield Row(number, {**row, "submission": answer, SHARED: shared}, where)


def _unassessed(items: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    truths = [truth for item in items if isinstance(truth := item.get("ground_truth"), list)]
    return frozenset(place for truth in truths for place, value in enumerate(truth) if value == "CANNOT_ASSESS")


def _asked_and_answered(submission: str) -> tuple[Any, str]:
    """The prompt of a submission that is a conversation as JSON (CHARM-100: messages, ResearcherBench: a question
    and its response), and the answer. None and the submission if it is a text; then the prompt of the file applies,
    which otherwise only says what the grader does."""
    whole = messages_in(submission)
    if isinstance(whole, list):
        last = whole[-1]
        if len(whole) > 1 and speaker(last) == "assistant" and isinstance(last.get("content"), str):
            return whole[:-1], last["content"]
        return None, submission
    whole = decoded(submission)
    if isinstance(whole, dict) and whole.keys() == {"question", "response"}:
        if all(isinstance(part, str) for part in whole.values()):
            return whole["question"], whole["response"]
    return None, submission


def rows_of_dataset(dataset: Any) -> Iterator[Row]:
    """The rows of a dataset, as its transform shows them if it has one."""
    if transformed(dataset) or getattr(dataset, "features", None) is None:
        return (Row(n, dict(row), f"row {n}") for n, row in enumerate(dataset, start=1))
    return rows_of_tables(dataset.with_format("arrow").iter(_ROWS))


def transformed(dataset: Any) -> bool:
    """Whether `set_transform` shows the rows of a dataset otherwise than it stores them."""
    return (getattr(dataset, "format", None) or {}).get("type") == "custom"


def _features(path: Path) -> Mapping[str, Any]:
    [datasets] = import_extra("datasets", extra="datasets")
    if saved_dataset(path):
        return datasets.load_from_disk(str(path)).features
    if path.suffix.lower() != ".parquet":
        return {}
    import pyarrow.parquet as pq

    return datasets.Features.from_arrow_schema(pq.read_schema(path))


def _of_hub(name: str) -> Any:
    """A dataset of the hub, as a stream."""
    repository, _, split = name.partition(":")
    if missing("datasets"):
        raise SampleError(
            f"{name}: no such file; for a dataset of the hub, pip install 'checklist-rewards[datasets]'."
        )
    [datasets] = import_extra("datasets", extra="datasets")
    try:
        return datasets.load_dataset(repository, split=split or "train", streaming=True)
    except Exception as error:  # whatever the hub, the network or the loader raise
        reason = str(error).partition("\n")[0]
        raise SampleError(
            f"{name}: there is no such file, and the hub gives no dataset of this name ({reason})."
        ) from None
