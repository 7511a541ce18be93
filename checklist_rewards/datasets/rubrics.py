"""Reading rubrics and checklists of other projects into rows with a checklist each.

| format | file | keys of an item |
|---|---|---|
| `autorubric` | Autorubric's `RubricDataset`, JSON or YAML: submissions, with their ground truth | `requirement` |
| `rubric` | a rubric of Autorubric or of the `rubric` package, JSON or YAML: one, without a prompt | `requirement` |
| `healthbench` | rows with `prompt` and `rubrics` | `criterion`, `points` |
| `rar` | rows of Rubrics as Rewards, with `question` and `rubric` | `description` |
| `autochecklist` | a `Checklist` of AutoChecklist (JSON), or rows of its runs (JSONL) | `question` |

`criteria.py` converts criteria to items. All other columns of a row are kept. In a `RubricDataset`, the submission
becomes `target`, the ground truth becomes `labels` (one per item) and its reasons become `reasons`, the format of
few-shot examples that `FewShot.load` reads.

HealthBench divides the earned points by the sum of positive points and clips only the mean over rows. The unclipped
number of a row is `raw_score` divided by the sum of the positive weights. In RaR, a pitfall has a negative weight and
its text describes the fault; weights are kept unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from checklist_rewards.checklists import CANNOT_ASSESS, NO, YES, Checklist
from checklist_rewards.datasets.criteria import CriteriaReader, json_or_text, keys_of
from checklist_rewards.errors import SampleError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.pipelines.files import FORMATS as DOCUMENTS

RubricFormat = Literal["autorubric", "rubric", "healthbench", "rar", "autochecklist"]
FORMATS: tuple[str, ...] = get_args(RubricFormat)

_VERDICTS = {"MET": YES, "UNMET": NO, "CANNOT_ASSESS": CANNOT_ASSESS}
_LISTS = {"healthbench": "rubrics", "rar": "rubric", "autochecklist": "checklist"}


FoundRows = Iterator[tuple[str, dict[str, Any]]]
"""Location and columns of each row. `checklist` is a [`Checklist`]; `prompt` is missing if the file has none."""


def rubric_format(path: str | Path) -> str | None:
    """Detect the format of a file from its first entries; None if it is not one of `FORMATS`.

    Raises:
        ChecklistRewardsError: If the file cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() not in DOCUMENTS:
        row = next(read_rows(path), None)
        return None if row is None else _format_of_row(row.data)
    value = read_value(read_text(path), path)
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return _format_of_row(value[0]) or ("rubric" if {"requirement", "criteria"} & value[0].keys() else None)
    if not isinstance(value, Mapping):
        return None
    if "rubric" in value and "items" in value:
        return "autorubric"
    if "source_method" in value and "items" in value:
        return "autochecklist"
    return "rubric" if {"rubric", "sections", "criteria"} & value.keys() else None


def read_rubrics(path: str | Path, format: str, left_out: Counter[str]) -> FoundRows:
    """Read a file in one of `FORMATS`.

    Args:
        path (`str` or `Path`): the file.
        format (`str`): one of `FORMATS`; see the module docstring.
        left_out (`Counter`): counts the dropped fields; complete once all rows have been read.

    A criterion allows "cannot_assess" if the file has such an option for it or a ground truth of CANNOT_ASSESS.

    Raises:
        SampleError, ChecklistError: If the file or a row is not valid. Errors of a row are raised when it is read.
    """
    path = Path(path)
    reader = CriteriaReader(format, left_out)
    document = read_value(read_text(path), path) if path.suffix.lower() in DOCUMENTS else None
    if format in ("autorubric", "rubric") and document is None:
        raise SampleError(f"{path}: format={format!r} requires a {', '.join(DOCUMENTS)} file.")
    if format == "autorubric":
        return _autorubric(document, str(path), reader)
    if format == "rubric":
        return iter([(str(path), {"checklist": reader.checklist(document, str(path))})])
    if format == "autochecklist" and isinstance(document, Mapping):
        return iter([(str(path), _autochecklist({}, document, str(path), reader))])
    return _rows(_as_rows(document, path), format, reader)


def _autorubric(document: Any, where: str, reader: CriteriaReader) -> FoundRows:
    if not isinstance(document, Mapping) or not isinstance(document.get("items"), list):
        raise SampleError(f"{where}: a RubricDataset must be a mapping with 'rubric' and a list of 'items'.")
    items = list(document["items"])
    for number, item in enumerate(items, start=1):
        if not isinstance(item, Mapping):
            raise SampleError(f"{where}, item {number}: expected a mapping, got {type(item).__name__} {item!r:.60}.")
    whole = document.get("rubric")
    shared = None
    if whole is not None:
        truths = [item.get("ground_truth") for item in items if item.get("rubric") is None]
        shared = reader.checklist(whole, f"{where}, rubric", _unassessed(*truths))
    has_reference = any(source.get("reference_submission") is not None for source in (document, *items))
    reader.left_out.update(f"dataset.{key}" for key in document if key not in _OF_A_DATASET)
    for number, item in enumerate(items, start=1):
        place, own, truth = f"{where}, item {number}", item.get("rubric"), item.get("ground_truth")
        checklist = shared
        if own is not None:
            checklist = reader.checklist(own, f"{place}, rubric", _unassessed(truth))
        if checklist is None:
            raise SampleError(f"{place}: 'rubric' is missing in both the item and the file.")
        prompt = item.get("prompt") if item.get("prompt") is not None else document.get("prompt")
        if not isinstance(prompt, str):
            raise SampleError(f"{place}: the item or the file needs a 'prompt' string, got {prompt!r:.60}.")
        if not isinstance(item.get("submission"), str):
            raise SampleError(f"{place}: 'submission' must be a string, got {item.get('submission')!r:.60}.")
        row: dict[str, Any] = {"prompt": prompt, "target": item["submission"]}
        if has_reference:
            own_reference = item.get("reference_submission")
            row["reference"] = document.get("reference_submission") if own_reference is None else own_reference
        row |= {key: value for key, value in item.items() if key not in _OF_AN_ITEM}
        row["labels"] = _labels(truth, checklist, place)
        if item.get("ground_truth_reasons") is not None:
            row["reasons"] = item["ground_truth_reasons"]
        yield place, row | {"checklist": checklist}


_OF_A_DATASET = ("prompt", "rubric", "reference_submission", "items")
_OF_AN_ITEM = ("prompt", "submission", "rubric", "reference_submission", "ground_truth", "ground_truth_reasons")


def _unassessed(*truths: Any) -> frozenset[int]:
    """The item indices labelled CANNOT_ASSESS in any ground truth."""
    lists = [truth for truth in truths if isinstance(truth, list)]
    return frozenset(place for truth in lists for place, value in enumerate(truth) if value == "CANNOT_ASSESS")


def _labels(truth: Any, checklist: Checklist, where: str) -> list[str] | None:
    if truth is None:
        return None
    if not isinstance(truth, list) or len(truth) != len(checklist):
        raise SampleError(
            f"{where}: 'ground_truth' must be a list of {len(checklist)}, one per criterion; got {truth!r:.60}."
        )
    labels = []
    for number, (value, item) in enumerate(zip(truth, checklist.items, strict=True), start=1):
        by_name = {label.casefold(): label for label in item.values}
        label = _VERDICTS.get(value, value) if item.yes_no and isinstance(value, str) else value
        match = by_name.get(label.casefold()) if isinstance(label, str) else None
        if match is None:
            allowed = ", ".join(_VERDICTS if item.yes_no else item.values)
            raise SampleError(f"{where}, ground_truth {number}: {value!r:.60} is not a verdict; allowed: {allowed}.")
        labels.append(match)
    return labels


def _rows(rows: Iterator[Row], format: str, reader: CriteriaReader) -> FoundRows:
    key = _LISTS[format]
    for row in rows:
        if key not in row.data:
            raise SampleError(f"{row.where}: key {key!r} not found; the keys are {keys_of(row.data)}.")
        value, others = json_or_text(row.data[key]), {name: value for name, value in row.data.items() if name != key}
        if format == "autochecklist":
            if not isinstance(value, Mapping):
                raise SampleError(f"{row.where}: 'checklist' must be a mapping with 'items'.")
            yield row.where, _autochecklist(others, value, row.where, reader)
            continue
        if format == "rar":
            others = {_RAR.get(name, name): content for name, content in others.items()}
        yield row.where, others | {"checklist": reader.checklist(value, row.where)}


_RAR = {"question": "prompt", "reference_answer": "reference"}


def _autochecklist(
    others: Mapping[str, Any], value: Mapping[str, Any], where: str, reader: CriteriaReader
) -> dict[str, Any]:
    prompt = others.get("input") or value.get("input")
    columns = {name: content for name, content in others.items() if name != "input"}
    return ({"prompt": prompt} if prompt else {}) | columns | {"checklist": reader.checklist(value, where)}


def _as_rows(document: Any, path: Path) -> Iterator[Row]:
    if path.suffix.lower() not in DOCUMENTS:
        return read_rows(path)
    if not isinstance(document, list) or not all(isinstance(entry, Mapping) for entry in document):
        raise SampleError(f"{path}: expected a list of rows, got {type(document).__name__} {document!r:.60}.")
    return iter([Row(n, dict(entry), f"{path}, row {n}") for n, entry in enumerate(document, start=1)])


def _format_of_row(row: Mapping[str, Any]) -> str | None:
    for format, keys in (("healthbench", {"criterion", "points"}), ("rar", {"description", "weight"})):
        entries = json_or_text(row.get(_LISTS[format]))
        if isinstance(entries, list) and entries and isinstance(entries[0], Mapping) and keys <= entries[0].keys():
            return format
    checklist = json_or_text(row.get("checklist"))
    return "autochecklist" if isinstance(checklist, Mapping) and "source_method" in checklist else None
