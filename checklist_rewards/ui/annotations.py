"""Answers of people, stored as plain JSONL in the project folder: `annotations/<name>.jsonl`, one file per annotator.

Lines are only appended; the last one of a row and item counts, and a `label` of null withdraws an answer. Two branches
merge as text. A line that a crash cut off is skipped, and the next one starts on a new line. Every line holds a hash
of the text that was shown, and the question: answers about another text or question are not used, and are counted as
outdated.

People annotate the rows of a file with a checklist, in the order in which they are shown. The file is a scored file,
or has the columns `target` (or `completion`), `checklist`, and optionally `prompt` (or `input`) and `id`. Rows and
items have the names that `agree` uses, so that labels match the scored file. A task has no answer of the judge: people
who see it follow it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import multimode
from typing import Any, Literal, get_args

from checklist_rewards.backends.embedding import QUOTED
from checklist_rewards.checklists import CANNOT_ASSESS, NO, YES, ChecklistItem, content_hash
from checklist_rewards.checks.text import as_words
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import agreement_of
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.labels import PROBABILITY
from checklist_rewards.evaluation.rates import LabelSample
from checklist_rewards.evaluation.scored import CHECKLIST, ScoredFile, ScoredText, read_scored
from checklist_rewards.files.atomic import locked
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.rows import SCORE_COLUMN, read_rows, write_rows
from checklist_rewards.keys import image_key, prompt_identity
from checklist_rewards.messages import with_places
from checklist_rewards.scores import ItemScore, Score, item_keys
from checklist_rewards.ui.project import Project

ANNOTATION = {"file", "row", "item", "label", "spans"}
"""The columns of an annotation."""
Key = tuple[str, str]
"""Row id and item key."""
Asked = tuple[str, str, str]
"""Row id, item key and question."""
Spans = Mapping[Asked, Sequence[Mapping[str, Any]]]
"""Marked spans by row, item and question; see [`Evidence`]."""
Order = Literal["random", "sample", "uncertain", "differ"]
FOLDER, LABELS = "annotations", "labels"
"""The folders of the annotations, and of the labels that are exported from them."""
LONGEST_NOTE = 10_000
MOST_SPANS = 100
logger = logging.getLogger(__name__)
_NAME = re.compile(r"\w[\w.-]{0,63}")
_lock = threading.Lock()
_unreadable: set[tuple[Path, int]] = set()
"""Lines that have been warned of."""


@dataclass(frozen=True, slots=True)
class Task:
    """A response with the items that people answer about it."""

    id: str
    prompt: str | None
    target: str
    items: tuple[ChecklistItem, ...]
    keys: tuple[str, ...]
    """One per item: its id, with "#2" appended for a repeated question."""
    score: Score | None = None
    """The judge's answers, for the order of the tasks only."""
    group: str | None = None
    pictured: ScoredText | None = None
    """The row, if it has images, which are not read."""

    @property
    def images(self) -> Sequence[Any]:
        """The images of prompt and response."""
        return () if self.pictured is None else self.pictured.images

    @property
    def text(self) -> str:
        """Hash of what people see. Answers about another text are not used."""
        return content_hash(prompt_identity(self.prompt, self.images), self.target)

    def shown(self) -> dict[str, Any]:
        """The task for the page."""
        items = [
            {
                "key": key,
                "question": item.question,
                "category": item.category,
                "labels": [label for label, value in item.values.items() if value is not None],
                "abstention": abstention(item),
                "yes_no": item.yes_no,
            }
            for key, item in zip(self.keys, self.items, strict=True)
        ]
        return {"id": self.id, "prompt": self.prompt, "target": self.target, "text": self.text, "items": items}


def text_of(record: ScoredText) -> str:
    """Hash of what the page shows of a row: its texts and its images."""
    return content_hash(prompt_identity(record.prompt, record.images), record.text or "")


def abstention(item: ChecklistItem) -> str:
    """The label of "cannot assess": that of the item, or one that only annotations have."""
    return next((label for label, value in item.values.items() if value is None), CANNOT_ASSESS)


def read_tasks(path: Path, **columns: Any) -> list[Task]:
    """The tasks of a file, in order. `columns` are arguments of [`ScoredFile`] for a scored file. Raises
    [`SampleError`] if it has no responses with checklists."""
    first = next(iter(read_rows(path)), None)
    if first is None:
        raise SampleError(f"{path.name} has no rows.")
    texts = read_scored(path, **columns) if SCORE_COLUMN in first.data else _unscored(path)
    tasks = [_task(text) for text in texts if text.cell is not None or text.score is not None]
    if not tasks:
        raise SampleError(f"{path.name} has no row with a checklist.")
    return tasks


def ordered(tasks: Sequence[Task], order: Order, seed: int, others: Sequence[Task] | None = None) -> list[int]:
    """The places of the tasks in the order in which people see them; equal ones are in random order.

    `sample` is a random order that prefers those about which the judge is uncertain, with known probabilities, so that
    `agree` can correct rates by the labels ([`LabelSample`]). `uncertain` begins with those about which the judge is
    least certain, `differ` with those about which most items differ between the judges, in `others` (the tasks of a
    second scored file) or in the votes of a panel. Labels of the last two orders correct no rate.

    Raises:
        SampleError: If the file has no scores, or no second judge, for this order.
    """
    if order not in get_args(Order):
        raise SampleError(f"order {order!r} is not allowed; allowed: {', '.join(get_args(Order))}.")
    places = list(range(len(tasks)))
    random.Random(seed).shuffle(places)
    if order == "random":
        return places
    if not any(task.score for task in tasks):
        raise SampleError(f"order {order!r} requires a scored file; score the file, or choose the order random.")
    if order == "sample":
        return list(label_sample(tasks, seed).order)
    if order == "uncertain":
        return sorted(places, key=lambda place: _margin(tasks[place]))
    partners = {(task.id, task.text): task for task in others or ()}
    if others is None and not any(line.votes for task in tasks if task.score for line in task.score.items):
        raise SampleError("order 'differ' requires a second scored file, or scores of a panel with votes.")
    return sorted(
        places, key=lambda place: -_differing(tasks[place], partners.get((tasks[place].id, tasks[place].text)))
    )


def label_sample(tasks: Sequence[Task], seed: int) -> LabelSample:
    """The order `sample` of the tasks, with the probabilities of its first ones."""
    return LabelSample.of([task.id for task in tasks], [task.score for task in tasks], seed)


def _unscored(path: Path) -> list[ScoredText]:
    """The rows of a file without scores. If one of them has no id, rows are named by their numbers."""
    texts = list(ScoredFile(path, unscored=True, images="show"))
    named = all(text.has_id for text in texts)
    seen: set[str] = set()
    for number, text in enumerate(texts):
        texts[number] = text if named else replace(text, id=str(number + 1))
        if (name := texts[number].id) in seen:
            raise SampleError(f"{text.where}: duplicate id {name!r}; ids must be unique.")
        seen.add(name)
        if CHECKLIST not in text.data:
            raise SampleError(f"{text.where}: column {CHECKLIST!r} not found; the row has {', '.join(text.data)}.")
    return texts


def _task(text: ScoredText) -> Task:
    items = text.checklist.items if text.score is None and text.checklist is not None else text.items
    column, data = text.columns.target, text.data
    cell, images = with_places(messages_in(data.get(column)))
    target = text.columns.target_of({**data, column: cell} if images else data, text.where).text
    pictured = text if text.images else None
    group = None if data.get("group") in (None, "") else str(data["group"])
    return Task(text.id, text.prompt, target, items, item_keys(items), text.score, group, pictured)


def _margin(task: Task) -> float:
    if task.score is None:
        return math.inf
    return min((_certainty(line, task.score.aggregation.threshold) for line in task.score.items), default=math.inf)


def _certainty(line: ItemScore, threshold: float) -> float:
    """How far the judge was from another answer: 0 where it gave none, infinite without probabilities."""
    if line.unanswered is not None:
        return 0.0
    shares = line.probabilities or {}
    if set(shares) == {YES, NO}:
        return abs(shares[YES] - threshold)
    known = sorted(shares.values(), reverse=True)
    return known[0] - known[1] if len(known) > 1 else math.inf


def _differing(task: Task, other: Task | None) -> int:
    if task.score is None:
        return -1
    theirs = dict(zip(other.keys, other.score.items, strict=True)) if other is not None and other.score else {}
    differing = 0
    for key, line in zip(task.keys, task.score.items, strict=True):
        among = {vote.answer for vote in line.votes or () if vote.answer is not None}
        differing += len(among) > 1 or (key in theirs and theirs[key].answer != line.answer)
    return differing


class UnwrittenError(SampleError):
    """An answer that could not be written, for example because the disk is full. It may be sent again."""


@dataclass(frozen=True)
class Annotator:
    """The answers of one person about one file."""

    name: str
    answers: Mapping[Key, Mapping[str, Any]]
    """By row and item: `label`, `note` and `spans`, the evidence: `start` and `end` in the response, in characters,
    and its `text`."""
    outdated: int
    """Answers about a text or a question that the file no longer has."""


def check_name(name: Any) -> str:
    """The name of an annotator, which is the name of a file. Raises [`SampleError`]."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SampleError(
            f"{name!r:.80} is not a name for an annotator: use up to 64 letters, digits, '.', '-' and '_', and begin "
            "with a letter or digit."
        )
    return name


def record(project: Project, file: str, task: Task, name: str, item: str, value: Mapping[str, Any]) -> None:
    """Check what an annotator answered to an item (its key) of a row of a file, and append it. An answer that is the
    last one of the item already is not written again. `value` has the `text`, the hash of what was shown, and the
    `question`, and of `label` (null withdraws the answer), `note` and `spans` those that change: the others stay as
    they are in the file, where another window of the annotator may have changed them.

    Raises:
        SampleError: For an answer that the item does not have, or about another text or question. Nothing is written.
        UnwrittenError: If the file cannot be written now.
    """
    path = project.target(f"{FOLDER}/{check_name(name)}.jsonl")
    if item not in task.keys:
        raise SampleError(f"row {task.id!r} has no item {item!r:.80}.")
    asked = task.items[task.keys.index(item)]
    about = {"text": task.text, "question": asked.question}
    if about != {"text": value.get("text"), "question": value.get("question", asked.question)}:
        raise SampleError(f"row {task.id!r} of {file} has changed since it was shown; reload the page.")
    before = read_annotations(path).get((file, task.id, item), {}) if path.exists() else {}
    value = {**(before if before.items() >= about.items() else {}), **value}
    label = value.get("label")
    allowed = [*asked.values, abstention(asked)]
    if label is not None and label not in allowed:
        raise SampleError(f"{label!r:.80} is not an answer to {asked.question!r:.80}; allowed: {', '.join(allowed)}.")
    note = value.get("note") or ""
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        raise SampleError(f"a note must be a text of up to {LONGEST_NOTE:,} characters.")
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "file": file,
        "row": task.id,
        "item": item,
        "question": asked.question,
        "label": label,
        "note": note,
        "spans": _spans(value.get("spans") or (), task.target),
        "text": task.text,
    }
    if line | {"time": None} != before | {"time": None}:  # sent again, because the reply was lost
        _append(path, json.dumps(line))


def annotators(project: Project, file: str, tasks: Sequence[Task]) -> list[Annotator]:
    """Everybody who has answered about a file, by name."""
    texts = {task.id: task.text for task in tasks}
    asked = {(task.id, key): item.question for task in tasks for key, item in zip(task.keys, task.items, strict=True)}
    folder = project.folder / FOLDER
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        if not _NAME.fullmatch(path.stem) or not project.holds(path):
            continue
        answers: dict[Key, Mapping[str, Any]] = {}
        outdated = 0
        for (name, row, item), line in read_annotations(path).items():
            answer = {part: line[part] for part in ("label", "note", "spans")}
            if name != file or answer == {"label": None, "note": "", "spans": []}:
                continue
            if line.get("text") != texts.get(row) or line.get("question") != asked.get((row, item), ""):
                outdated += 1
            else:
                answers[row, item] = answer
        if answers or outdated:
            found.append(Annotator(path.stem, answers, outdated))
    return found


def progress(tasks: Sequence[Task], people: Sequence[Annotator]) -> dict[str, Any]:
    """Counts per annotator, and their agreement as `agree` computes it, without intervals."""
    return {
        "items": sum(len(task.items) for task in tasks),
        "annotators": [
            {
                "name": person.name,
                "answered": sum(one["label"] is not None for one in person.answers.values()),
                "rows": len({row for (row, _), one in person.answers.items() if one["label"] is not None}),
                "outdated": person.outdated,
            }
            for person in people
        ],
        "agreement": _agreement(tasks, people),
    }


def _agreement(tasks: Sequence[Task], people: Sequence[Annotator]) -> dict[str, Any]:
    """Krippendorff's alpha and Fleiss' kappa of the annotators, by kind of item, on items that two of them answered.

    "Cannot assess" counts as an answer where the item has this option, and as none where it has not.
    """
    units = []
    for task in tasks:
        for key, item in zip(task.keys, task.items, strict=True):
            answers = [person.answers.get((task.id, key), {}).get("label") for person in people]
            given = [label if label in item.values else None for label in answers]
            if sum(label is not None for label in given) > 1:
                units.append((item, task.group or task.id, given))
    return {kind: section.model_dump() for kind, section in agreement_of(units, Bootstrap(0)).items()}


def export(
    project: Project,
    file: str,
    tasks: Sequence[Task],
    people: Sequence[Annotator],
    sample: LabelSample | None = None,
) -> dict[str, Any]:
    """Write the labels file of a file, which `agree`, `calibrate`, `distill` and few-shot examples read.

    A row has `id`, `prompt`, `target`, `checklist`, `labels` (one per item, null for none) and `reasons` (the notes).
    The label of several annotators is that of the majority; without a majority there is none. If people saw the tasks
    in the order of a `sample`, the rows before the first one with an open item get the column `label_probability`,
    which `agree` uses; it is null in others.

    Returns:
        `dict`: The name of the file, and its numbers of rows, labels, ties and answers without a label, and of
        `sampled` rows, which have a probability.

    Raises:
        SampleError: If no item has been answered.
    """
    name = name_of(file)
    counts: Counter[str] = Counter()
    rows = []
    chances: dict[int, float] = {}
    if sample is not None:
        closed = {key for person in people for key, one in person.answers.items() if one["label"] is not None}
        open_ = [any((task.id, key) not in closed for key in task.keys) for task in tasks]
        chances = sample.probabilities(next((n for n, place in enumerate(sample.order) if open_[place]), len(tasks)))
    for place, task in enumerate(tasks):
        labels, reasons = [], []
        for key, item in zip(task.keys, task.items, strict=True):
            given = [person.answers[task.id, key] for person in people if (task.id, key) in person.answers]
            counts["cannot_assess"] += sum(one["label"] not in (None, *item.values) for one in given)
            most = multimode(one["label"] for one in given if one["label"] in item.values)
            counts["ties"] += len(most) > 1
            label = most[0] if len(most) == 1 else None
            labels.append(label)
            notes = (one["note"] for one in given if one["note"] and one["label"] == label is not None)
            reasons.append(next(notes, None))
        if any(label is not None for label in labels):
            counts["labels"] += sum(label is not None for label in labels)
            rows.append(
                {
                    "id": task.id,
                    "prompt": task.prompt,
                    "target": task.target,
                    "checklist": [item.model_dump(mode="json", exclude_defaults=True) for item in task.items],
                    "labels": labels,
                    "reasons": reasons,
                    **({} if task.pictured is None else {"images": _hashes(task.pictured)}),
                    **({} if task.group is None else {"group": task.group}),
                    **({} if sample is None else {PROBABILITY: chances.get(place)}),
                }
            )
    if not rows:
        raise SampleError(f"{file} has no labels to export; answer at least one of its items first.")
    with write_rows(project.target(name)) as output:
        for row in rows:
            output.write(row)
    counted = {kind: counts[kind] for kind in ("labels", "ties", "cannot_assess")}
    found = {"name": name, "rows": len(rows), **counted, "sampled": len(chances)}
    return found | {"annotators": [person.name for person in people]}


def _spans(value: Any, target: str) -> list[dict[str, Any]]:
    if not isinstance(value, list | tuple) or len(value) > MOST_SPANS:
        raise SampleError(f"spans must be a list of up to {MOST_SPANS} spans.")
    spans = []
    for span in value:
        start, end = (span.get(name) if isinstance(span, Mapping) else None for name in ("start", "end"))
        if not (type(start) is type(end) is int and 0 <= start < end <= len(target)):
            raise SampleError(f"the span {span!r:.80} is not a part of the response.")
        spans.append({"start": start, "end": end, "text": target[start:end]})
    return spans


def _append(path: Path, line: str) -> None:
    """Append a line in one write, on a line of its own."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock, path.open("ab+") as file:
            locked(file.fileno(), wait=True)
            torn = file.seek(0, os.SEEK_END) and path.read_bytes()[-1:] != b"\n"
            file.write(b"\n" * bool(torn) + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnwrittenError(f"{path.name}: the answer cannot be written ({error.strerror or error}).") from error


def read_annotations(path: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The last line of an annotator about every file, row and item, by these three.

    A line that is not valid JSON, such as one that a crash cut off, is skipped with a warning. One that is no
    annotation is skipped too, so that an earlier answer remains valid.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            if text.strip() and (path, number) not in _unreadable:  # the file is read again for every answer
                _unreadable.add((path, number))
                logger.warning("%s, line %d: not valid JSON, so this answer is not used.", path, number)
            continue
        if not isinstance(line, dict):
            continue
        place = line.get("file"), line.get("row"), line.get("item")
        line |= {"label": line.get("label"), "note": line.get("note") or "", "spans": line.get("spans") or []}
        valid = isinstance(line["label"], str | None) and isinstance(line["note"], str)
        if all(isinstance(name, str) for name in place) and valid and isinstance(line["spans"], list):
            found.pop(place, None)  # type: ignore[arg-type]
            found[place] = line  # type: ignore[index]
    return found


class Evidence:
    """The marked spans of several annotators.

    Args:
        paths (iterable of `Path`): Annotation files. The name of a file is the name of the annotator.
    """

    def __init__(self, paths: Iterable[Path]):
        self.files: dict[Path, Path] = {}
        """The annotated files, with the project of each."""
        self._spans: dict[Path, dict[Asked, list[dict[str, Any]]]] = {}
        for path in paths:
            project = path.resolve().parent.parent  # of annotations/ann.jsonl
            for (name, row, item), line in read_annotations(path).items():
                file = (project / name).resolve()
                self.files[file] = project
                for span in line["spans"]:
                    if isinstance(span, Mapping) and all(isinstance(span.get(end), int) for end in ("start", "end")):
                        place = {"start": span["start"], "end": span["end"], "text": span.get("text")}
                        mark = {"by": path.stem, "label": line["label"], **place}
                        asked = row, item, str(line.get("question"))
                        self._spans.setdefault(file, {}).setdefault(asked, []).append(mark)

    def about(self, path: Path) -> list[Path]:
        """Those of the annotated files that this file is. Of files with the same name in the project of the
        annotations, the path counts; a copy elsewhere is known by its name."""
        own = path.resolve()
        return [
            file
            for file, project in self.files.items()
            if file == own or (file.name == own.name and not (file.is_file() and own.is_relative_to(project)))
        ]

    def of(self, path: Path) -> dict[Asked, list[dict[str, Any]]]:
        """The spans of a file: by row, item and question a list of `by`, `label`, `start`, `end` (in characters), and
        `text`."""
        found: dict[Asked, list[dict[str, Any]]] = {}
        for file in self.about(path):
            for key, spans in self._spans.get(file, {}).items():
                found.setdefault(key, []).extend(spans)
        return found


def marked(target: str | None, spans: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The spans whose text the response has at their place, without their text.

    >>> spans = [{"by": "ann", "start": 2, "end": 5, "text": "red"}, {"by": "ann", "start": 0, "end": 2, "text": "x"}]
    >>> marked("a red thing", spans)
    [{'by': 'ann', 'start': 2, 'end': 5}]
    """
    return [
        {name: value for name, value in span.items() if name != "text"}
        for span in spans
        if target is not None
        and 0 <= span["start"] < span["end"]
        and target[span["start"] : span["end"]] == span["text"]
    ]


_WORD = re.compile(r"[^\W_]")
_MOST_PLACES = 20
"""Places of one quote."""


def quoted(target: str | None, texts: Iterable[str | None], answers: Collection[str]) -> list[dict[str, Any]]:
    """Where the response has, as whole words, what a judge quotes in its reasoning. Its answers are not quotes.

    >>> quoted("a red thing", ['It says "red", so "yes".'], ["yes", "no"])
    [{'by': None, 'start': 2, 'end': 5}]
    """
    found = [quote for text in texts if text for match in QUOTED.finditer(text) for quote in match.groups() if quote]
    quotes = dict.fromkeys(map(str.strip, found))
    spans = []
    for quote in quotes if target is not None else ():
        if quote in answers or not _WORD.search(quote):
            continue
        surely, perhaps = as_words(quote)
        spans += [
            {"by": None, "start": match.start(), "end": match.end()}
            for match in islice((perhaps or surely).finditer(str(target)), _MOST_PLACES)
        ]
    return spans


def _hashes(row: ScoredText) -> list[dict[str, str]]:
    """The images of a row in a labels file: as in a log, without their paths. Labels are compared by those of the
    prompt; examples and training data are text, so what reads them refuses a row with an image."""
    return [{"hash": image_key(image)} for image in row.prompt_images or row.images]


def name_of(file: str) -> str:
    """The name of the labels file of an annotated file, by its name in the project: no two files share one.

    >>> name_of("scored.jsonl"), name_of("a/scored.jsonl"), name_of("scored.csv")
    ('labels/scored.jsonl', 'labels/a/scored.jsonl', 'labels/scored.csv.jsonl')
    """
    stem, dot, ending = file.rpartition(".")
    plain = ending == "jsonl" and not stem.endswith((".jsonl", ".csv", ".parquet"))
    return f"{LABELS}/{file if plain else f'{file}.jsonl'}"
