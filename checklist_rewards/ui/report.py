"""Files of a run as one HTML page.

[`report_data`] reads every file once, row by row, and holds the rows that the page shows in columns, so memory is
bounded by `max_rows`. A larger file is sampled, and the page reports this. All figures are computed over all rows by
the functions of the other commands. Files with labels, and two scored files, are compared as `agree` does, which reads
them completely. [`write_report`] writes the data with the page as one file; the app serves the data alone.

A report also shows JSON results of `agree`, `calibrate`, `inspect` and `attack`, summaries of `score` and others, and
the file of a reward monitor (`monitor.jsonl`), as columns over the steps and a list of alarms. Of a run that was
started again, the steps and alarms after the last start count.

A page that is opened from a disk cannot import modules, so they are joined: each becomes a function that returns what
the module exports. Imports are on one line, and `export` stands before `function`, `class`, `const` or `async
function`. The page may run this script and no other (Content-Security-Policy), load nothing, and connect to nothing.
"""

from __future__ import annotations

import base64
import gzip
import html
import io
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import IO, Any

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import LIBRARIES, Bootstrap
from checklist_rewards.evaluation.labels import Labels
from checklist_rewards.evaluation.scored import CHECKLIST, ScoredFile, ScoredText, kind_of_row, read_scored
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.cells import decoded
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import FORMATS, SCORE_COLUMN, Row, read_rows
from checklist_rewards.progress import AddBar
from checklist_rewards.rows import INPUTS, TARGETS
from checklist_rewards.ui.annotations import ANNOTATION, Evidence, Spans
from checklist_rewards.ui.comparisons import against_labels, between, between_logs, read_log
from checklist_rewards.ui.figures import FileFigures, TrainingFigures, draw
from checklist_rewards.ui.sections import (
    ABOUT,
    DOCUMENTS,
    attention,
    curves,
    item_analysis,
    monitor_verdict,
    of_document,
    of_monitor,
    of_overview,
    tiles,
)
from checklist_rewards.ui.table import Names, Table, json_chunks, number_or_none
from checklist_rewards.ui.thumbnails import Thumbnails
from checklist_rewards.validation import install, missing, whole_number

_MOST_COLUMNS, _LONGEST = 100, 100


def read_document(path: Path, name: str) -> dict[str, Any]:
    """A JSON file with its kind. Raises [`SampleError`] if it is the result of none of these commands, and
    [`ConfigError`] if it is not valid JSON."""
    value = read_value(read_text(path), path)
    for kind, (keys, _) in DOCUMENTS.items():
        if isinstance(value, Mapping) and all(key in value for key in keys):
            return {"name": name, "kind": kind, "sections": of_document(name, kind, value)}
    raise SampleError(
        f"{path} is not a result that a report can show; allowed: --json of agree, calibrate or inspect, the "
        "file of attack, and --summary."
    )


def kind_of(path: Path) -> dict[str, Any]:
    """What a file of a project is, by its first row: the `kind`, and for rows the `columns`. Kinds of rows are
    `scored`, `rewards` (a reward log), `pairs`, `annotations`, `monitor`, `rows`, and `unreadable` with the `error`;
    other files are `document`, or `improvement`: what `improve --json` wrote."""
    if path.suffix.lower() not in FORMATS:
        try:
            with path.open("rb") as file:
                improved = _IMPROVED in file.read(_LONGEST)
        except OSError:  # it is gone, or not readable
            improved = False
        return {"kind": "improvement" if improved else "document"}
    try:
        first = next(iter(read_rows(path)), None)
    except SampleError as error:
        return {"kind": "unreadable", "error": str(error).replace(str(path), path.name)}
    if first is None:
        return {"kind": "unreadable", "error": f"{path.name} has no rows."}
    data = first.data
    kind: str | None = kind_of_row(data) or ("annotations" if data.keys() >= ANNOTATION else None)
    if str(data.get("format")).startswith(_FORMATS):
        kind = "monitor"
    return {"kind": kind or "rows", "columns": [name[:_LONGEST] for name in data][:_MOST_COLUMNS]}


def _label_columns(text: ScoredText) -> list[str]:
    """The columns of a row that may hold a label per item: lists of that length, and mappings."""
    others = {name: decoded(value) for name, value in text.data.items() if name not in _KNOWN_COLUMNS}
    return [
        name for name, value in others.items() if isinstance(value, list | Mapping) and len(value) == len(text.keys)
    ]


_KNOWN_COLUMNS = (SCORE_COLUMN, CHECKLIST, *INPUTS, *TARGETS)
MONITOR_FORMAT = "checklist-rewards-monitor-1"
MONITOR_FILE = "monitor.jsonl"
"""The name that a reward monitor gives its file."""
_FORMATS = "checklist-rewards-monitor-"
_IMPROVED = b'"format": "checklist-rewards-improve-'


def read_monitor(path: Path) -> dict[str, Any]:
    """The steps, statistics, alarms, canaries and failures of a monitor, for the page. Raises [`SampleError`] for a
    later format."""
    about: dict[str, Mapping[str, Any]] = {}
    events: dict[str, list[dict[str, Any]]] = {"step": [], "alarm": [], "canary": [], "failure": []}
    for row in read_rows(path):
        if (name := row.data.get("format", MONITOR_FORMAT)) != MONITOR_FORMAT:
            raise SampleError(f"{row.where}: the format is {name!r}; this version reads {MONITOR_FORMAT!r}.")
        kind = row.data.get("kind")
        if kind == "start":
            given = row.data.get("signals")
            signals = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
            about |= {str(signal.get("name")): signal for signal in signals}
            first = row.data.get("step")
            if isinstance(first, int):  # what came after this step before is of a run that was started again
                events = {name: [one for one in some if one["step"] < first] for name, some in events.items()}
        elif kind in events:
            events[kind].append({**row.data, "step": _step(row)})
    by_step = {one["step"]: one for one in events["step"]}  # of a repeated step the last line counts
    steps = sorted(by_step)
    readings = _values([by_step[step].get("signals") for step in steps])
    statistics = _values([by_step[step].get("statistics") for step in steps])
    found: dict[str, Any] = {
        "name": path.name,
        "steps": steps,
        "statistics": {name: list(map(number_or_none, values)) for name, values in statistics.items()},
        "alarms": [{**one, "about": ABOUT.get(str(one.get("about")), one.get("about"))} for one in events["alarm"]],
        "canaries": events["canary"],
        "failures": events["failure"],
    }
    shown = {"sections": of_monitor(found, about, readings), "charts": curves(found["statistics"])}
    return {**found, "verdict": monitor_verdict(found), **shown}


def _values(lines: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of each name, one per line."""
    known = [line if isinstance(line, Mapping) else {} for line in lines]
    names = dict.fromkeys(name for line in known for name in line)
    return {name: [line.get(name) for line in known] for name in names}


def _step(row: Row) -> int:
    step = row.data.get("step")
    if not isinstance(step, int):
        raise SampleError(f"{row.where}: step must be a whole number, got {step!r:.40}.")
    return step


MAX_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A file of the report."""

    name: str
    rows: int
    """Number of rows in the file."""
    shown: int
    """Number of rows on the page: `rows`, or about `max_rows` of a larger file."""


def write_report(output: Path, paths: Sequence[Path], **options: Any) -> list[Shown]:
    """Write a report about files as one HTML file. The arguments are those of [`report_data`].

    Returns:
        `list[Shown]`: One per file of rows.

    Raises:
        SampleError: If a file cannot be read or shown, or the page cannot be written.
    """
    data = report_data(paths, **options)
    style, script = page_file("style.css"), joined_modules()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    filled = {"title": html.escape(data["title"]), "policy": policy, "style": style, "script": script}
    head, middle, tail = (
        re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], part)
        for part in page_file("index.html").split("{{data}}")
    )
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for before, part in zip((head, middle), parts_of(data), strict=True):  # the rows come last
            file.write(before)
            _write_data(file, json_chunks(part))
        file.write(tail)
    return [Shown(part["name"], part["total"], part["shown"]) for part in data["files"]]


def report_data(
    paths: Sequence[Path],
    *,
    title: str | None = None,
    labels: Labels | None = None,
    max_rows: int = MAX_ROWS,
    seed: int = 0,
    intervals: Bootstrap | None = None,
    inputs: Sequence[str] | None = None,
    target: str | None = None,
    id_key: str | None = None,
    extra: Mapping[str, Any] | None = None,
    progress: AddBar | None = None,
    may_read: Callable[[Path], bool] | None = None,
) -> dict[str, Any]:
    """Read files for a report.

    Args:
        paths (sequence of `Path`):
            Scored files, reward logs and pairs (.jsonl, .csv, .parquet), files of annotations and of reward monitors,
            and results of `agree`, `calibrate` and `inspect` and summaries (.json).
        title (`str`, *optional*):
            Defaults to the names of the files.
        labels ([`Labels`], *optional*):
            Labels of the scored files.
        max_rows (`int`, *optional*, defaults to `20000`):
            Most rows of a file on the page. Of a larger file a random sample of rows, or of the groups of a training
            run, is shown, drawn with `seed`; its figures are those of all rows.
        intervals ([`Bootstrap`], *optional*):
            Settings of the confidence intervals of comparisons.
        inputs, target, id_key (sequence of `str`, `str`, `str`, *optional*):
            Columns of the prompt, of the judged text and of row ids in scored files.
        extra (mapping, *optional*):
            Further parts of the page: `items`, an item analysis of the first file; `tables`, heading -> {name:
            number}; and `view`, the name of the view that opens first.
        progress, may_read (callables, *optional*):
            Adds a progress bar; whether the file of an image may be read (by default, every file).

    Returns:
        `dict`: The data of the page, for [`json_chunks`].

    Raises:
        SampleError: If a file cannot be read or shown.
    """
    whole_number("max_rows", max_rows)
    intervals = intervals or Bootstrap()
    names = _names(paths)
    documents = [read_document(path, name) for path, name in names.items() if path.suffix.lower() == ".json"]
    tables = [path for path in paths if path.suffix.lower() != ".json"]
    known = {path: kind_of(path)["kind"] for path in tables}
    annotated, monitors = ([path for path in tables if known[path] == kind] for kind in ("annotations", "monitor"))
    rows_of = [path for path in tables if known[path] not in ("annotations", "monitor")]
    watched = [{**read_monitor(path), "name": names[path]} for path in monitors]
    if not rows_of:
        raise SampleError(f"{paths[0]} has no scores; give the scored file or reward log of it too.")
    files = [ScoredFile(path, inputs=inputs, target=target, id_key=id_key) for path in rows_of]
    others = {path for file in files for path in file.paths[1:]}
    files = [file for file in files if file.path not in others]
    scored = {names[file.path]: file.path for file in files if file.kind == "scored"}
    logs = {names[file.path]: file for file in files if file.kind == "rewards"}
    judged: dict[str, list[ScoredText]] = {}
    notes: list[str] = []
    evidence = Evidence(annotated)
    if annotated and not any(evidence.about(file.path) for file in files):
        about = ", ".join(path.name for path in evidence.files)
        notes.append(f"The annotations are about {about}, not about a file of this report.")
    if labels is not None and not scored:
        raise SampleError("labels require a scored file; none of the files has scores.")
    if (labels is not None or len(scored) > 1 or len(logs) > 1) and (lacking := missing(*LIBRARIES)):
        notes.append(f"Comparisons require {lacking[0]}: {install('evaluation')}.")
        labels, scored, logs = None, {}, {}
    if labels is not None:
        judged = {name: labels.read(str(path)) for name, path in scored.items()}
    elif len(scored) > 1:
        judged = {name: read_scored(path, id_key=id_key) for name, path in scored.items()}
    alarms = sum(len(one["alarms"]) for one in watched)
    texts, thumbnails, parts = Names(), Thumbnails(may_read), []
    trust: dict[str, Any] = {}
    for file in files:
        given: dict[str, list[str | None]] = {}
        name = names[file.path]
        if labels is not None and name in judged:
            labelled, unmatched = labels.of(judged[name])
            judged[name] = labelled  # two files are also compared with each other by their labels
            trust[name] = against_labels(name, labels, labelled, unmatched, intervals)
            given = {
                text.id: [None if label is None else label.label for label in text.labels]
                for text in labelled
                if isinstance(text.labels, Sequence)
            }
        table = Table(texts, thumbnails)
        parts.append(_part(name, file, table, given, evidence.of(file.path), max_rows, seed, progress, alarms))
    notes += thumbnails.notes
    compared = _comparisons(judged, logs, intervals, notes)
    return {
        "title": title or ", ".join(names.values()),
        "notes": notes,
        "files": parts,
        "comparisons": compared,
        "trust": trust,
        "documents": documents,
        "monitors": watched,
        "extra": dict(extra or {}),
        "texts": texts,  # last: the tables before it have added all of them
    }


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """By path: the name of the file, after the folders that tell it from other files of this name."""
    names = {}
    for path in paths:
        parts = path.absolute().parts
        same = [other.absolute().parts for other in paths if other != path and other.name == path.name]
        depths = (n for n in range(1, len(parts)) if not any(other[-n:] == parts[-n:] for other in same))
        names[path] = "/".join(parts[-next(depths, len(parts)) :])
    return names


def parts_of(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data of [`report_data`] in two: what the page shows at once, and the rows, which it reads meanwhile."""
    tables = [file["table"] for file in data["files"]]
    pairs = [compared.get("pairs") for compared in data["comparisons"]]
    head = {
        **data,
        "files": [{**file, "table": None} for file in data["files"]],
        "comparisons": [{**compared, "pairs": None} for compared in data["comparisons"]],
    }
    return head, {"tables": tables, "pairs": pairs, "texts": head.pop("texts")}


def _sampled(file: ScoredFile, count: int, most: int, seed: int) -> int | None:
    """The sampling threshold of a file with `count` rows: rows whose [`draw`] is at most this number are kept; None if
    it has at most `most` rows. Rows with the same key are kept or dropped together, and two files with the same ids
    keep the same rows."""
    if count <= most:
        return None
    sizes: dict[int, int] = {}
    for record, _ in file.counted():
        number = draw(record.group, seed)
        sizes[number] = sizes.get(number, 0) + 1
    total, threshold = 0, min(sizes)
    for number in sorted(sizes):
        total += sizes[number]
        if total > most:
            break
        threshold = number
    return threshold


def _part(
    name: str,
    file: ScoredFile,
    table: Table,
    labels: Mapping[str, list[str | None]],
    evidence: Spans,
    max_rows: int,
    seed: int,
    progress: AddBar | None,
    alarms: int,
) -> dict[str, Any]:
    count = file.count()
    threshold = _sampled(file, count, max_rows, seed)
    figures, training = FileFigures(), TrainingFigures()
    advance = (lambda _: None) if progress is None else progress(name, count)
    for record, counts in file.counted():
        figures.add(record)
        if file.kind == "rewards" and counts:
            training.add(record)
        if threshold is None or draw(record.group, seed) <= threshold:
            table.add(record, labels.get(record.id, ()), evidence, counts)
        advance(1)
    analysis = item_analysis(figures)
    return {
        "name": name,
        "path": str(file.path),
        "kind": file.kind,
        "total": figures.rows,
        "shown": len(table),
        "seed": seed,
        "labels": _label_columns(next(iter(file))) if file.kind == "scored" else [],
        "overview": figures.overview(),
        "tiles": tiles(figures),
        "sections": of_overview(figures),
        "attention": attention(figures, analysis, alarms),
        "analysis": analysis,
        "training": training.as_json() if training.steps else None,
        "table": table.as_json(),
    }


def _comparisons(
    judged: Mapping[str, list[ScoredText]], logs: Mapping[str, ScoredFile], intervals: Bootstrap, notes: list[str]
) -> list[dict[str, Any]]:
    logged: dict[str, Any] = {}
    try:
        if len(logs) > 1:
            logged = {name: read_log(file) for name, file in logs.items()}
    except SampleError as error:
        notes.append(str(error))
    compared = []
    compare: Any
    for compare, read in ((between, judged), (between_logs, logged)):
        for (one, rows), (other, others) in combinations(read.items(), 2):
            try:
                compared.append(compare((one, other), rows, others, intervals))
            except SampleError as error:
                notes.append(str(error))
    return compared


_IMPORT = re.compile(r"""^import \{ ([^}]+) \} from "\./([\w-]+\.js)";\n""", re.M)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const) (\w+))", re.M)
_BLOCK = 3 * 2**16
"""Bytes that are encoded at once: a multiple of 3, so that the pieces join."""


def page_file(name: str) -> str:
    """A file of the page."""
    return files("checklist_rewards.ui").joinpath("page", name).read_text(encoding="utf-8")


def joined_modules() -> str:
    """All modules of the page as one script."""
    functions: dict[str, str] = {}

    def add(name: str) -> None:
        source = page_file(name)
        for _, imported in _IMPORT.findall(source):
            if imported not in functions:
                add(imported)
        functions[name] = _as_function(name, source)

    add("main.js")
    return '"use strict";\n' + "\n".join(functions.values())


def _as_function(name: str, source: str) -> str:
    body = _IMPORT.sub(lambda match: f"const {{ {match[1]} }} = {_variable(match[2])};\n", source)
    exported = [match[1] for match in _EXPORT.findall(body)]
    body = _EXPORT.sub(r"\1", body)
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _variable(name: str) -> str:
    return name.removesuffix(".js").replace("-", "_") + "_module"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _write_data(file: IO[str], chunks: Iterable[str]) -> None:
    """Write JSON as gzip in base64."""
    with tempfile.TemporaryFile() as packed:
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=6, mtime=0) as zipped:
            with io.TextIOWrapper(zipped, encoding="utf-8", newline="\n") as text:
                text.writelines(chunks)
        packed.seek(0)
        while block := packed.read(_BLOCK):
            file.write(base64.b64encode(block).decode())
