"""Batch jobs: `checklist-rewards score` on a file of the project, in a process of its own.

A job is a file, `jobs/<id>.json`, with what was asked for: the file, its columns, the settings and the judge. It holds
no command: the command is built from it and from the judge that the app was started with, so a file that came with a
project cannot start another program or send a key to another server. The process writes its log and its summary to
`jobs/.run/`, outlives the app, and holds a lock as long as it runs, from which an app that was restarted knows it.

Pausing ends the process, and resuming starts it again: the answers it has received are in the store.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from checklist_rewards.checklists import content_hash
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.atomic import locked, write_text
from checklist_rewards.files.rows import FORMATS, read_rows
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import Columns, read_checklist
from checklist_rewards.ui.annotations import FOLDER as ANNOTATIONS
from checklist_rewards.ui.code import (
    Job,
    arguments,
    engine_arguments,
    environment,
    file_snippets,
    validated,
    without_secrets,
)
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import OutsideError

FOLDER = "jobs"
COMMAND = (sys.executable, "-P", "-m", "checklist_rewards.cli")  # -P: no module is imported from the project folder
LONGEST_FORECAST = 600.0
"""Seconds after which a dry run is stopped."""
SHOWN_ROWS = 3
_OPTIONS = "options"
_RUN = f"{FOLDER}/.run"
_ID = re.compile(r"[0-9a-z][0-9a-z-]{0,63}")
_TAIL = 16_384
_CELL = 200
_GRACE = 10.0
_NOTES = {
    "running": "The job goes on without this page and without the app.",
    "pausing": "The process is told to end.",
    "paused": "Answers are stored every few seconds: resuming asks only for the others.",
    "stopped": "The job ended without a result. Answers are stored every few seconds: resuming asks only for the "
    "others.",
    "new": "This job has not run on this machine.",
}
_PROGRESS = re.compile(r"^reads: ([\d,]+)(?: of ([\d,]+))?[^\n]*$", re.M)
_ERROR = re.compile(r"^(?:error: .*|\w+Error: .*|Interrupted: .*|Killed)$", re.M)


@dataclass(frozen=True)
class Jobs:
    """The jobs of a project."""

    judging: Judging
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def all(self) -> list[dict[str, Any]]:
        """All jobs, the newest first. A file that is not a job is shown with its error."""
        shown = []
        for id in self._ids():
            try:
                shown.append(self.shown(id))
            except SampleError as error:
                shown.append({"id": id, "state": "invalid", "message": str(error)})
        return shown

    def _ids(self) -> Iterator[str]:
        paths = self.judging.project.folder.joinpath(FOLDER).glob("*.json")
        return (path.stem for path in sorted(paths, reverse=True) if _ID.fullmatch(path.stem))

    def columns_of(self, name: str) -> dict[str, Any]:
        """The columns of prompt and response of a file that a job has written, for [`ScoredFile`]; nothing for other
        files, whose columns are the usual ones."""
        job = self._writing(name)
        found = {} if job is None else {"inputs": job.columns.input, "target": job.columns.target}
        return {field: value for field, value in found.items() if value}

    def options_of(self, name: str) -> dict[str, Any]:
        """The options that name the columns and the checklist of a file that a job has written, for `score`."""
        job = self._writing(name)
        return {} if job is None else {**job.column_options, "checklist": job.checklist}

    def _writing(self, name: str) -> Job | None:
        """The newest job whose result is a file of the project, if any."""
        for id in self._ids():
            try:
                if (job := self._load(id)).output == name:
                    return job
            except SampleError:  # the view Batch shows why
                continue
        return None

    def shown(self, id: Any) -> dict[str, Any]:
        """A job with its state: running, pausing, paused, done, stopped (it failed or was killed) or new. `note` says
        what the state means."""
        job = self._load(id)
        with self._lock:
            running = self._running(job.id)
        log = self._log(job.id)
        found = list(_PROGRESS.finditer(log))
        counts = found[-1].groups() if found else (None, None)
        done, total = (count and int(count.replace(",", "")) for count in counts)
        summary = None if running else self._summary(job.id)
        if running:
            state = "pausing" if job.paused else "running"
        elif summary is not None:
            state = "done"
        else:
            state = "paused" if job.paused else "stopped" if log else "new"
        errors = _ERROR.findall(log)
        return {
            **job.model_dump(mode="json", exclude={"paused"}),
            "judge": str(job.settings.get("judge") or job.engine.get("judge") or job.engine.get("model")),
            "state": state,
            "note": _NOTES.get(state),
            "done": done,
            "total": total,
            "progress": found[-1][0] if found else None,
            "message": self._public(errors[-1]) if errors and state == "stopped" else None,
            "log": self._public(log) if state == "stopped" and not errors else None,
            "summary": summary,
        }

    def preview(self, file: str) -> dict[str, Any]:
        """The columns of a file, and its first rows as short texts."""
        first = islice(read_rows(self.judging.project.existing(file)), SHOWN_ROWS)
        rows = [{name: _cell(value) for name, value in row.data.items()} for row in first]
        return {"columns": list(dict.fromkeys(name for row in rows for name in row)), "rows": rows}

    def forecast(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What `score --dry-run` prints: the table of calls, tokens and price, and its notes."""
        job = self._job(request)
        self._checked(job).save(self._run(job.id, "yaml"))
        try:
            ran = subprocess.run(
                [*self._command(job), "--dry-run"],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=LONGEST_FORECAST,
                env=environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SampleError(f"the dry run took more than {LONGEST_FORECAST:.0f} seconds and was stopped.") from None
        finally:
            self._run(job.id, "yaml").unlink(missing_ok=True)
        output, errors = (stream.decode("utf-8", "replace") for stream in (ran.stdout, ran.stderr))
        if ran.returncode:
            raise SampleError(self._public((_ERROR.findall(errors) or [errors[-500:] or "the dry run failed."])[-1]))
        found = json.loads(output.splitlines()[-1])  # a library may have printed something before it
        return {**found, "notes": list(map(self._public, found["notes"]))}

    def code(self, request: Mapping[str, Any]) -> dict[str, str]:
        """The job as Python, as a command, and as YAML; see [`file_snippets`]."""
        job = self._job(request)
        config = self._checked(job)
        return file_snippets(config, self.judging.engine_of(config), job, self.judging.store_path)

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Save a new job and start it. Raises [`SampleError`]; then nothing was started."""
        job = self._job(request)
        self._checked(job)
        self._check_first_row(job)
        self._start(job)
        return self.shown(job.id)

    def resume(self, id: Any, budget: Any = None) -> dict[str, Any]:
        """Start a job again, with another budget if one is given. What the store has is not asked again."""
        job = self._load(id)
        if budget is not None:
            job = validated({**job.model_dump(), "budget": budget}, "the job")
        self._start(job.model_copy(update={"paused": False}))
        return self.shown(job.id)

    def pause(self, id: Any) -> dict[str, Any]:
        """End the process of a job: at first as Ctrl-C does, after a while by force."""
        job = self._load(id)
        with self._lock:
            process = self._leader(job.id)
            if process is None:
                raise SampleError(f"job {job.id} is not running.")
            self._save(job.model_copy(update={"paused": True}))
        threading.Thread(target=self._stop, args=(job.id, process), daemon=True).start()
        return self.shown(job.id)

    def running(self) -> list[str]:
        """The jobs that are running."""
        return [job["id"] for job in self.all() if job["state"] in ("running", "pausing")]

    def _job(self, request: Mapping[str, Any]) -> Job:
        now = datetime.now(UTC)
        made = {
            "id": f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
            "created": now.isoformat(timespec="seconds"),
            "engine": self._judge(),
        }
        return validated({**request, **made}, "the job")

    def _start(self, job: Job) -> None:
        judge = self._judge()
        if {_OPTIONS: judge[_OPTIONS], **job.engine} != judge:
            raise SampleError(
                f"job {job.id} was started with the judge {job.engine.get('judge', job.engine.get('model'))!r:.80}; "
                "start the app with the same judge options to resume it."
            )
        with self._lock:
            if self._running(job.id):
                raise SampleError(f"job {job.id} is already running.")
            config = self._checked(job)
            self._check_result(job)
            config.save(self._run(job.id, "yaml"))
            command = [*self._command(job), f"--summary={self._run(job.id, 'summary.json')}"]
            self._run(job.id, "summary.json").unlink(missing_ok=True)
            self._run(job.id, "log").unlink(missing_ok=True)
            self._save(job)
            lock = _open(self._run(job.id, "lock"))
            log = _open(self._run(job.id, "log"))
            try:
                if locked(lock) is False:
                    raise SampleError(f"job {job.id} cannot be started: another app is starting it.")
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment(),
                    start_new_session=True,
                    pass_fds=(lock,),
                )
                os.truncate(lock, 0)
                os.write(lock, str(process.pid).encode())
            except OSError as error:
                raise SampleError(f"job {job.id} cannot be started ({error.strerror or error}).") from error
            finally:
                os.close(lock)  # the process holds it
                os.close(log)
            self._processes[job.id] = process

    def _command(self, job: Job) -> list[str]:
        return [*COMMAND, "score", *arguments(job, self.judging, self._run(job.id, "yaml"))]

    def _judge(self) -> dict[str, Any]:
        """What the app was started with, without keys: the judge, and a hash of the other options."""
        config = self.judging.config
        jury = config.scorer.judge
        shown = engine_arguments(self.judging.judge) if jury is None else {"judge": self._public(jury)}
        return shown | {_OPTIONS: content_hash(config.model_dump_json())}

    def _checked(self, job: Job) -> PipelineConfig:
        """The config of a job's pipeline. The job may have come with the project, so all its files are checked."""
        project = self.judging.project
        if Path(job.output).suffix.lower() not in FORMATS:
            raise SampleError(f"{job.output}: the result must be one of {', '.join(FORMATS)}.")
        if job.output.partition("/")[0].lower() == ANNOTATIONS:
            raise SampleError(f"{job.output}: this folder is for the files of annotators; choose another one.")
        project.existing(job.file)
        project.target(job.output)
        if job.checklist is not None:
            project.existing(job.checklist)
        return self.judging.config_of(job.settings)

    def _check_first_row(self, job: Job) -> None:
        """Refuse a job whose columns the first row does not have: its process would end there, without a result."""
        project, named = self.judging.project, job.columns.model_dump()
        checklist = None if job.checklist is None else project.existing(job.checklist)
        try:
            shared = None if checklist is None else read_checklist(checklist)
            rows = Columns.each(project.existing(job.file), inputs=named.pop("input"), shared=shared, **named)
            for row, columns in islice(rows, 1):
                if (own := columns.checklist_of(row.data, row.where)) is not None:
                    columns.sample_of(row.data, row.where, own)
        except ChecklistRewardsError as error:
            raise SampleError(self._public(str(error))) from None

    def _check_result(self, job: Job) -> None:
        """Refuse to replace a file that is not the result of this job, or that has changed since."""
        path, summary = self.judging.project.target(job.output), self._run(job.id, "summary.json")
        own = self._summary(job.id) is not None and path.exists() and path.stat().st_mtime <= summary.stat().st_mtime
        if path.exists() and not own:
            raise SampleError(f"{job.output} exists; choose another name for the result.")
        for other in self.all():
            if other["id"] != job.id and other.get("output") == job.output:
                raise SampleError(f"{job.output} is the result of job {other['id']}; choose another name.")

    def _load(self, id: Any) -> Job:
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise SampleError(f"{id!r:.80} is not the id of a job.")
        name = f"{FOLDER}/{id}.json"
        try:
            value = json.loads(self.judging.project.existing(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SampleError(f"{name} cannot be read as a job ({error}).") from None
        job = validated(value, name)
        if job.id != id:
            raise SampleError(f"{name} has the id {job.id!r:.80}; the id of a job is the name of its file.")
        return job

    def _save(self, job: Job) -> None:
        path = self.judging.project.target(f"{FOLDER}/{job.id}.json")
        write_text(path, json.dumps(job.model_dump(mode="json", exclude_defaults=True), indent=2) + "\n")

    def _run(self, id: str, kind: str) -> Path:
        """A file of the process. Raises [`SampleError`] for a symbolic link."""
        try:
            path = self.judging.project.own(f"{_RUN}/{id}.{kind}")
        except OutsideError as error:
            raise SampleError(str(error)) from None
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _running(self, id: str) -> bool:
        process = self._processes.get(id)
        if process is not None and process.poll() is not None:
            del self._processes[id]
        try:
            lock = os.open(self._run(id, "lock"), os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return False
        free = locked(lock)
        os.close(lock)
        return id in self._processes if free is None else not free

    def _leader(self, id: str) -> int | None:
        """The process of a running job; it is the leader of its group. Call it with the lock."""
        if not self._running(id):
            return None
        try:
            process = int(self._run(id, "lock").read_text())
        except (OSError, ValueError):
            return None
        return process if process > 1 else None

    def _stop(self, id: str, process: int) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self._lock:
                if self._leader(id) != process:
                    return
                try:
                    os.killpg(process, number)
                except OSError:
                    return
            until = time.monotonic() + _GRACE
            while time.monotonic() < until:
                time.sleep(0.1)
                with self._lock:
                    if not self._running(id):
                        return

    def _log(self, id: str) -> str:
        """The end of the log."""
        try:
            log = os.open(self._run(id, "log"), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return ""
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            return file.read().decode("utf-8", "replace")

    def _summary(self, id: str) -> dict[str, Any] | None:
        path = self._run(id, "summary.json")
        if path.is_symlink():
            return None
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _public(self, text: str) -> str:
        """A message of the process with names of the project instead of paths, and without keys."""
        return without_secrets(self.judging.project.public(text.removeprefix("error: ")))


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _CELL else text[:_CELL] + " …"
