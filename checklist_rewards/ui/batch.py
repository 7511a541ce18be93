"""Scoring a file of the project in the background, as `score` does.

A job is two files: `batch/NAME.json`, its settings and progress, and `batch/NAME.jsonl`, the scored rows, written when
all are scored. A paused job, and one that was running when the app stopped, starts again from the first row: what the
judge has answered is in the store, so only the rest is asked. All rows are checked before the judge is called.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import Row, read_rows, read_rows_for, write_rows
from checklist_rewards.pipelines import Pipeline
from checklist_rewards.scorer import Sample
from checklist_rewards.scores.table import SCORE_COLUMN
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.records import CHECKLIST, INPUTS, TARGETS

FOLDER = "batch"
CHUNK = 32
_NAME = re.compile(r"\w[\w.-]{0,63}")


@dataclass(frozen=True)
class Job:
    """A job, as its file stores it."""

    name: str
    file: str
    target: str
    prompt: str | None = None
    reference: str | None = None
    checklist: str | None = CHECKLIST
    """Column of the checklist; not used with `checklist_file`."""
    checklist_file: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    status: str = "new"
    """new, running, paused, stopped (the app ended), done or failed."""
    rows: int = 0
    done: int = 0
    reads: int = 0
    error: str | None = None

    @property
    def output(self) -> str:
        """The name of the scored file."""
        return f"{FOLDER}/{self.name}.jsonl"


class _Paused(Exception):
    """The job was paused."""


class Batch:
    """The jobs of a project.

    Args:
        judging ([`Judging`]): The project and its judge.
    """

    def __init__(self, judging: Judging):
        self.judging, self.project = judging, judging.project
        self._running: dict[str, threading.Event] = {}
        self._known: dict[str, Job] = {}
        self._lock = threading.Lock()

    def columns(self, file: str) -> dict[str, Any]:
        """The columns of a file, and which of them have the usual names."""
        first = next(iter(read_rows(self.project.existing(file))), None)
        if first is None:
            raise SampleError(f"{file} has no rows.")
        usual = {"prompt": INPUTS, "target": TARGETS, "checklist": (CHECKLIST,)}
        guessed = {field: next((name for name in names if name in first.data), None) for field, names in usual.items()}
        return {"columns": list(first.data), **guessed}

    def job(self, values: Mapping[str, Any]) -> Job:
        """A job from the settings of the page. Raises [`SampleError`]."""
        texts = ("name", "file", "target", "prompt", "reference", "checklist", "checklist_file")
        given = {name: values.get(name) or None for name in texts}
        for name, value in given.items():
            if not isinstance(value, str | None) or (value is None and name in ("name", "file", "target")):
                raise SampleError(f"{name} must be a name, got {value!r:.60}.")
        if not _NAME.fullmatch(str(given["name"])):
            raise SampleError(f"{given['name']!r:.80} is not a name for a job: use letters, digits, '.', '-' and '_'.")
        settings = values.get("settings") or {}
        if not isinstance(settings, Mapping):
            raise SampleError("settings must be an object.")
        return Job(**given, settings=dict(settings))  # type: ignore[arg-type]

    def dry_run(self, job: Job) -> Job:
        """Check every row, and count rows and reads. The judge is not called."""
        pipe = self.judging.pipeline(job.settings)
        pipe.scorer.check()
        rows = reads = 0
        for row, sample in self._samples(job, pipe):
            rows += 1
            if sample is not None:
                pipe.check_checklist(sample.checklist, row.where)
                reads += len(sample.checklist)
        if not rows:
            raise SampleError(f"{job.file} has no rows.")
        return replace(job, rows=rows, reads=reads)

    def start(self, job: Job) -> Job:
        """Check a job and run it in a thread; a job with the same settings goes on where it was."""
        known = self.read(job.name)
        if known is not None and _task(known) != _task(job):
            raise SampleError(f"there is a job {job.name!r} with other settings; choose another name.")
        job = replace(self.dry_run(job), status="running")
        with self._lock:
            if job.name in self._running:
                raise SampleError(f"the job {job.name!r} is running.")
            pause = self._running[job.name] = threading.Event()
        self._save(job)
        threading.Thread(target=self._run, args=(job, pause), daemon=True).start()
        return job

    def pause(self, name: str) -> None:
        """Pause a running job after the rows that are being scored."""
        with self._lock:
            if name in self._running:
                self._running[name].set()

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs of the project, by name."""
        folder = self.project.folder / FOLDER
        names = sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []
        jobs = [job for name in names if _NAME.fullmatch(name) and (job := self.read(name)) is not None]
        return [{**asdict(job), "output": job.output if job.status == "done" else None} for job in jobs]

    def read(self, name: str) -> Job | None:
        """The job with this name; None if there is none, or its file is no job."""
        if name in self._running and name in self._known:
            return self._known[name]
        try:
            path = self.project.existing(f"{FOLDER}/{name}.json")
            job = Job(**read_value(read_text(path), path))
        except (ChecklistRewardsError, TypeError):
            return None
        return replace(job, status="stopped") if job.status == "running" else job

    def _run(self, job: Job, pause: threading.Event) -> None:
        try:
            pipe = self.judging.pipeline(job.settings)
            samples = self._samples(job, pipe)
            with write_rows(self.project.path(job.output)) as out:
                while chunk := list(islice(samples, CHUNK)):
                    if pause.is_set():
                        raise _Paused
                    scores = iter(pipe.score_batch([sample for _, sample in chunk if sample is not None]))
                    for row, sample in chunk:
                        score = None if sample is None else next(scores).model_dump()
                        out.write(row.data | {SCORE_COLUMN: score})
                    job = replace(job, done=job.done + len(chunk))
                    self._save(job)
            job = replace(job, status="done")
        except _Paused:
            job = replace(job, status="paused")
        except Exception as error:  # shown with the job; there is nobody else to tell
            job = replace(job, status="failed", error=str(error))
        self._save(job)
        with self._lock:
            del self._running[job.name]

    def _samples(self, job: Job, pipe: Pipeline) -> Iterator[tuple[Row, Sample | None]]:
        path = self.project.existing(job.file)
        shared = None
        if job.checklist_file is not None:
            file = self.project.existing(job.checklist_file)
            shared = Checklist.parse(read_text(file), job.checklist_file)
        for row in read_rows_for(path, self.project.path(job.output)):
            checklist = shared
            if checklist is None:
                column = _cell(row, job.checklist or CHECKLIST)
                checklist = None if column in (None, "") else Checklist.parse(column, f"{row.where}, {job.checklist}")
            input, history = _input(row, job.prompt)
            reference = None if job.reference is None else _text(row, job.reference)
            target = _text(row, job.target) or ""
            yield row, None if checklist is None else Sample(checklist, target, input, reference, history)

    def _save(self, job: Job) -> None:
        self._known[job.name] = job
        path: Path = self.project.path(f"{FOLDER}/{job.name}.json")
        write_text(path, json.dumps(asdict(job), indent=2) + "\n")


def _task(job: Job) -> Job:
    return Job(
        job.name, job.file, job.target, job.prompt, job.reference, job.checklist, job.checklist_file, job.settings
    )


def _cell(row: Row, name: str) -> Any:
    if name not in row.data:
        raise SampleError(f"{row.where}: column {name!r} not found; the row has {', '.join(map(repr, row.data))}.")
    return row.data[name]


def _input(row: Row, name: str | None) -> tuple[str | None, str | None]:
    value = None if name is None else _cell(row, name)
    if value is None or isinstance(value, str):
        return value, None
    try:
        return prompt_text(value)
    except SampleError as error:
        raise SampleError(f"{row.where}, {name!r}: {error}") from None


def _text(row: Row, name: str) -> str | None:
    value = _cell(row, name)
    try:
        return completion_text(None if value == [] else value)
    except SampleError as error:
        raise SampleError(f"{row.where}, {name!r}: {error}") from None
