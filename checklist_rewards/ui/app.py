"""The app: the report's page with more views, served to one browser on this machine.

`GET /` and the paths of the views answer with the page, `GET /static/NAME` with its files, and `/api/...` with data.
`guard` decides who may ask, `project` what can be read. Errors are `{"error": sentence}`: 400 for a request that
cannot be carried out, 403 for a file outside of the project, 413 for a body that is too large. All text of models is
data of JSON; the page shows it as text.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.ui import annotations as answers
from checklist_rewards.ui.bundle import page_file, read_data
from checklist_rewards.ui.guard import Guard, TooLarge, cookie_name, json_body, page_token
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.labels import ExportedLabels, exported
from checklist_rewards.ui.project import OutsideError
from checklist_rewards.ui.records import RecordFile
from checklist_rewards.ui.report import write_report
from checklist_rewards.ui.routes import add_batch, add_build, add_library, add_live
from checklist_rewards.ui.snippets import items_of, loop_commands, snippets, without_secrets
from checklist_rewards.ui.tasks import Task, ordered, read_tasks
from checklist_rewards.version import __version__

VIEWS = ("", "report", "annotate", "judge", "compare", "build", "batch", "library", "live")
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_KEPT = 8


def build_ui(judging: Judging, token: str) -> FastAPI:
    """Build the app.

    Args:
        judging ([`Judging`]): The project, the judge and the writer.
        token (`str`): The token that requests must have.

    Returns:
        `FastAPI`: The application, to be run in a single process.
    """
    project = judging.project
    app = FastAPI(title="checklist-rewards ui", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, token=token)
    queues = _Files(lambda path: read_tasks(path))
    reports = _Files(lambda path: _report(path, exported(project, path)))
    static = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in files("checklist_rewards.ui").joinpath("page").iterdir()
        if Path(entry.name).suffix in _TYPES
    }

    @app.exception_handler(ChecklistRewardsError)
    async def _sentence(_: Request, error: ChecklistRewardsError) -> Response:
        status = 403 if isinstance(error, OutsideError) else 413 if isinstance(error, TooLarge) else 400
        return _json({"error": without_secrets(str(error), os.environ)}, status)

    async def page(request: Request) -> Response:
        answer = HTMLResponse(page_file("app.html"))
        if "token" in request.query_params:
            name = cookie_name(request.headers)
            answer.set_cookie(name, page_token(token), httponly=True, samesite="strict")
        return answer

    for view in VIEWS:
        app.get(f"/{view}")(page)

    @app.get("/static/{name}")
    async def static_file(name: str) -> Response:
        if name not in static:
            return _json({"error": f"{name:.80} is not a file of the page."}, 404)
        return Response(static[name], media_type=_TYPES[Path(name).suffix])

    @app.get("/api/project")
    async def overview() -> Response:
        listed = await asyncio.to_thread(project.files)
        entries = [{"name": file.name, "size": file.size, "changed": file.changed} for file in listed]
        return _json({"folder": project.folder.name, "version": __version__, "files": entries})

    @app.get("/api/choices")
    async def choices() -> Response:
        return _json(await asyncio.to_thread(judging.choices))

    @app.get("/api/report")
    async def report(request: Request) -> Response:
        path = project.existing(request.query_params.get("file", ""))
        paths = RecordFile(path).paths  # a reward log includes those of the other ranks
        for one in paths:
            project.existing(one.relative_to(project.folder).as_posix())
        labels = exported(project, path)
        stamp = " ".join(map(_stamp, [*paths, *([] if labels is None else [labels.path])]))
        if request.query_params.get("known") == stamp:
            return Response(status_code=204)
        data = await asyncio.to_thread(reports.get, path, stamp)
        return Response(data, media_type="application/json", headers={"x-stamp": stamp})

    @app.get("/api/annotate/queue")
    async def queue(request: Request) -> Response:
        query = request.query_params
        name = answers.check_name(query.get("annotator"))
        file, tasks = await _tasks(query)
        other = query.get("other")
        others = None if not other else await asyncio.to_thread(queues.get, project.existing(other))
        places = ordered(tasks, query.get("order", "random"), _whole(query.get("seed", "0"), "seed"), others)  # type: ignore[arg-type]
        people = await asyncio.to_thread(answers.annotators, project, file, tasks)
        own = answers.answers_of(people, name)
        done: dict[str, int] = {}
        for (row, _), answer in own.items():
            done[row] = done.get(row, 0) + (answer.label is not None)
        rows = [
            {
                "place": place,
                "id": tasks[place].id,
                "items": len(tasks[place].items),
                "done": done.get(tasks[place].id, 0),
            }
            for place in places
        ]
        return _json({"rows": rows, **answers.progress(tasks, people)})

    @app.get("/api/annotate/task")
    async def task(request: Request) -> Response:
        query = request.query_params
        name = answers.check_name(query.get("annotator"))
        file, tasks = await _tasks(query)
        place = _whole(query.get("place", ""), "place")
        if place >= len(tasks):
            raise SampleError(f"row {place + 1} does not exist: {file} has {len(tasks)} rows.")
        shown = tasks[place]
        people = await asyncio.to_thread(answers.annotators, project, file, tasks)
        own = answers.answers_of(people, name)
        mine = {key: own[shown.id, key].shown() for key in shown.keys if (shown.id, key) in own}
        return _json({**shown.shown(), "mine": mine})

    @app.post("/api/annotate/answer")
    async def answer(request: Request) -> Response:
        body = await json_body(request)
        name = answers.check_name(body.get("annotator"))
        file, tasks = await _tasks(body)
        annotated = next((one for one in tasks if one.id == body.get("row")), None)
        if annotated is None:
            raise SampleError(f"{file} has no row {body.get('row')!r:.80}.")
        await asyncio.to_thread(answers.record, project, file, annotated, name, str(body.get("item")), body)
        people = await asyncio.to_thread(answers.annotators, project, file, tasks)
        return _json(await asyncio.to_thread(answers.progress, tasks, people))

    @app.post("/api/annotate/export")
    async def export(request: Request) -> Response:
        body = await json_body(request)
        file, tasks = await _tasks(body)
        people = await asyncio.to_thread(answers.annotators, project, file, tasks)
        names = body.get("annotators")
        done = await asyncio.to_thread(answers.export, project, file, tasks, people, names)
        scored = all(task.score is not None for task in tasks)
        return _json({**done, "commands": loop_commands(file, done["name"], scored, judging.config, judging.judge)})

    @app.post("/api/judge")
    async def judge(request: Request) -> Response:
        body = await json_body(request)
        return StreamingResponse(_events(judging.score(body)), media_type="application/x-ndjson")

    @app.post("/api/generate")
    async def generate(request: Request) -> Response:
        checklist = await asyncio.to_thread(judging.write, await json_body(request))
        return _json({"items": items_of(checklist), "source": checklist.source, "model": checklist.model})

    @app.post("/api/code")
    async def code(request: Request) -> Response:
        body = await json_body(request)
        config = await asyncio.to_thread(judging.config_of, body.get("settings") or {})
        return _json(snippets(config, judging.engine_of(config), judging.sample(body), judging.store_path))

    add_batch(app, judging)
    add_build(app, judging)
    add_library(app, judging)
    add_live(app, project)

    async def _tasks(query: Mapping[str, Any]) -> tuple[str, list[Task]]:
        file = str(query.get("file") or "")
        return file, await asyncio.to_thread(queues.get, project.existing(file))

    return app


class _Files:
    """What was read of files, as long as they do not change."""

    def __init__(self, read: Any):
        self.read = read
        self._known: OrderedDict[Path, tuple[str, Any]] = OrderedDict()
        self._reading: dict[tuple[Path, str], Future[Any]] = {}
        self._lock = Lock()

    def get(self, path: Path, stamp: str | None = None) -> Any:
        """What `read` gives for the file, as long as it has the same stamp. While a file is read, other files are
        available, and further calls for the same file wait for the same result."""
        stamp = stamp or _stamp(path)
        with self._lock:
            if path in self._known and self._known[path][0] == stamp:
                self._known.move_to_end(path)
                return self._known[path][1]
            waiting = self._reading.get((path, stamp))
            if waiting is None:
                reading = self._reading[path, stamp] = Future()
        if waiting is not None:
            return waiting.result()
        try:
            value = self.read(path)
        except BaseException as error:
            reading.set_exception(error)
            raise
        else:
            with self._lock:
                self._known[path] = (stamp, value)
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
            reading.set_result(value)
            return value
        finally:
            with self._lock:
                del self._reading[path, stamp]


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_mtime_ns}-{status.st_size}"


def _report(path: Path, labels: ExportedLabels | None) -> bytes:
    """The data of a file's report: that of the page which `checklist-rewards report` writes."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        try:
            write_report(page, [path], labels=labels)
        except SampleError:
            if labels is None:
                raise
            write_report(page, [path])  # labels of another file with this name
        return read_data(page)


def _events(events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    try:
        for event in events:
            if "message" in event:
                event = {**event, "message": without_secrets(event["message"], os.environ)}
            yield _encoded(event) + b"\n"
    except Exception as error:  # the response has begun, so this is the only way to tell the page
        message = f"the judge failed ({type(error).__name__}: {error})."
        yield _encoded({"event": "error", "message": without_secrets(message, os.environ)}) + b"\n"


def _json(content: Any, status: int = 200) -> Response:
    return Response(_encoded(content), status, media_type="application/json")


def _encoded(content: Any) -> bytes:
    # In ASCII: a text may contain half a surrogate pair, which UTF-8 cannot encode.
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def _whole(text: Any, name: str) -> int:
    if not str(text).isdecimal():
        raise SampleError(f"{name} must be a whole number, got {text!r:.40}.")
    return int(text)
