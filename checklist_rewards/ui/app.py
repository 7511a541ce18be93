"""The app: the report's page with more views, served to one browser on this machine.

`GET /` and the paths of the views answer with the page, `GET /static/NAME` with its files, and `/api/...` with data.
`guard` decides who may ask, `project` what can be read. Errors are `{"error": sentence}`: 400 for a request that
cannot be carried out, 403 for a file outside of the project, 413 for a body that is too large. All text of models is
data of JSON; the page shows it as text.

Files that the browser sends are text of a bounded size, checked before it appears in the project folder. What the
views Batch, Build, Library and Live do is in `jobs`, `building`, `library` and `live`.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse

from checklist_rewards.datasets.importing import AUTO
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.evaluation.agreement import Labels
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import read_rows
from checklist_rewards.ui import annotations as answers
from checklist_rewards.ui.annotations import Task, ordered, read_tasks
from checklist_rewards.ui.building import Building
from checklist_rewards.ui.bundle import page_file
from checklist_rewards.ui.code import items_of, loop_commands, snippets, without_secrets
from checklist_rewards.ui.comparisons import exported
from checklist_rewards.ui.guard import Guard, TooLarge, cookie_name, json_body, page_token
from checklist_rewards.ui.jobs import Jobs
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.library import Library, checklist_text
from checklist_rewards.ui.live import Live
from checklist_rewards.ui.project import DOCUMENTS, OutsideError, Project
from checklist_rewards.ui.records import RecordFile
from checklist_rewards.ui.report import report_data
from checklist_rewards.ui.table import json_chunks
from checklist_rewards.version import __version__

FOLDER = "uploads"
MAX_UPLOAD = 64 * 2**20
ALLOWED = (".jsonl", ".csv", *DOCUMENTS)


async def receive(project: Project, name: Any, parts: AsyncIterator[bytes], limit: int = MAX_UPLOAD) -> str:
    """Save a file that the browser sends in the folder `uploads`.

    Args:
        project ([`Project`]): The project.
        name (`str`): The name of the file, without folders.
        parts (async iterator of `bytes`): Its content.
        limit (`int`, *optional*): Most bytes.

    Returns:
        `str`: The name of the file in the project.

    Raises:
        SampleError: If the name is taken or of another kind, or the content is not UTF-8 text or cannot be read.
        TooLarge: If the content is larger than the limit.
    """
    if not isinstance(name, str) or "/" in name or Path(name).suffix.lower() not in ALLOWED:
        raise SampleError(f"{name!r:.120} cannot be uploaded; allowed are text files: {', '.join(ALLOWED)}.")
    saved = f"{FOLDER}/{name}"
    path = project.path(saved)
    if path.exists():
        raise SampleError(f"{saved} exists; rename the file, or choose the one in the project.")
    with tempfile.TemporaryDirectory() as folder:
        received = Path(folder, name)
        await _write(received, parts, limit, name)
        try:
            await asyncio.to_thread(_reader(received), received)
        except ChecklistRewardsError as error:
            raise SampleError(str(error).replace(str(received), name)) from None
        with atomic_path(path) as temporary:
            shutil.copyfile(received, temporary)
    return saved


async def _write(path: Path, parts: AsyncIterator[bytes], limit: int, name: str) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    with path.open("wb") as file:
        try:
            async for part in parts:
                size += len(part)
                if size > limit:
                    raise TooLarge(f"{name} is larger than {limit:,} bytes; copy it into the project folder instead.")
                if "\0" in decoder.decode(part):
                    raise SampleError(f"{name} is not a text file.")
                file.write(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise SampleError(f"{name} is not a text file in UTF-8.") from None


def _reader(path: Path) -> Callable[[Path], object]:
    suffix = path.suffix.lower()
    if suffix == ".md":
        return read_text
    if suffix in DOCUMENTS:
        return lambda file: read_value(read_text(file), file)
    return lambda file: sum(1 for _ in read_rows(file))


def add_batch(app: FastAPI, judging: Judging) -> None:
    """Jobs, uploads and downloads."""
    jobs, project = Jobs(judging), judging.project
    app.state.jobs = jobs

    @app.get("/api/jobs")
    async def listed() -> Response:
        return _json({"jobs": await asyncio.to_thread(jobs.all), "stored": judging.store is not None})

    @app.post("/api/jobs/models")
    async def models(request: Request) -> Response:
        settings = (await json_body(request)).get("settings") or {}
        return _json({"models": await asyncio.to_thread(judging.models, settings)})

    @app.get("/api/jobs/preview")
    async def preview(request: Request) -> Response:
        return _json(await asyncio.to_thread(jobs.preview, request.query_params.get("file", "")))

    @app.post("/api/jobs/forecast")
    async def forecast(request: Request) -> Response:
        return _json(await asyncio.to_thread(jobs.forecast, await json_body(request)))

    @app.post("/api/jobs/code")
    async def code(request: Request) -> Response:
        return _json(await asyncio.to_thread(jobs.code, await json_body(request)))

    @app.post("/api/jobs")
    async def create(request: Request) -> Response:
        return _json(await asyncio.to_thread(jobs.create, await json_body(request)))

    @app.post("/api/jobs/pause")
    async def pause(request: Request) -> Response:
        return _json(await asyncio.to_thread(jobs.pause, (await json_body(request)).get("id")))

    @app.post("/api/jobs/resume")
    async def resume(request: Request) -> Response:
        body = await json_body(request)
        return _json(await asyncio.to_thread(jobs.resume, body.get("id"), body.get("budget")))

    @app.post("/api/upload")
    async def upload(request: Request) -> Response:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_UPLOAD:
            return _json({"error": f"the file is larger than {MAX_UPLOAD:,} bytes; copy it into the folder."}, 413)
        return _json({"name": await receive(project, request.query_params.get("name"), request.stream())})

    @app.get("/api/download")
    async def download(request: Request) -> Response:
        path = project.existing(request.query_params.get("file", ""))
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def add_build(app: FastAPI, judging: Judging) -> None:
    """Stages, refiners and the preview of a checklist that is built."""
    building = Building(judging)

    @app.get("/api/build")
    async def choices() -> Response:
        return _json(await asyncio.to_thread(building.choices))

    @app.post("/api/build/plan")
    async def plan(request: Request) -> Response:
        return _json(await asyncio.to_thread(_while_typed, building.plan, await json_body(request)))

    @app.post("/api/build/stage")
    async def stage(request: Request) -> Response:
        return _json(await asyncio.to_thread(building.stage, await json_body(request)))

    @app.post("/api/build/checklist")
    async def checklist(request: Request) -> Response:
        return _json(await asyncio.to_thread(building.checklist, await json_body(request)))

    @app.post("/api/build/refine")
    async def refine(request: Request) -> Response:
        return _json(await asyncio.to_thread(building.refine, await json_body(request)))

    @app.post("/api/build/preview")
    async def preview(request: Request) -> Response:
        return _json(await asyncio.to_thread(_while_typed, building.preview, await json_body(request)))


def add_library(app: FastAPI, judging: Judging) -> None:
    """The files of the library."""
    library = Library(judging)

    @app.get("/api/library")
    async def listed() -> Response:
        return _json(await asyncio.to_thread(library.listed))

    @app.get("/api/library/file")
    async def read(request: Request) -> Response:
        return _json(await asyncio.to_thread(library.read, request.query_params.get("name")))

    @app.post("/api/library/check")
    async def check(request: Request) -> Response:
        body = await json_body(request)
        return _json(await asyncio.to_thread(library.check, body.get("name"), body.get("text")))

    @app.post("/api/library/file")
    async def save(request: Request) -> Response:
        body = await json_body(request)
        text = checklist_text(body["checklist"]) if "checklist" in body else body.get("text")
        saved = await asyncio.to_thread(library.save, body.get("name"), text, body.get("stamp"))
        return _json(saved)

    @app.post("/api/library/import")
    async def import_file(request: Request) -> Response:
        body = await json_body(request)
        file, output, format = body.get("file"), body.get("output"), body.get("format") or AUTO
        if not isinstance(format, str):
            raise SampleError(f"format must be a text, got {type(format).__name__}.")
        may_abstain = bool(body.get("may_abstain"))
        pitfalls = body.get("pitfalls")
        return _json(await asyncio.to_thread(library.import_file, file, output, format, may_abstain, pitfalls))


def add_live(app: FastAPI, project: Project) -> None:
    """The figures of a reward log that is still written."""
    live = Live(project)

    @app.get("/api/live")
    async def figures(request: Request) -> Response:
        query = request.query_params
        found = await asyncio.to_thread(live.figures, query.get("file", ""), query.get("known"))
        return Response(status_code=204) if found is None else _json(found)


def _while_typed(answer: Callable[[dict[str, Any]], dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
    """The answer, or `{"error": ...}` with status 200: a form that is still being edited is not a failed request."""
    try:
        return answer(body)
    except ChecklistRewardsError as error:
        return {"error": without_secrets(str(error), os.environ)}


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
        stamp = " ".join(map(_stamp, [*paths, *([] if labels is None else [labels])]))
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


def _report(path: Path, labels: Path | None) -> bytes:
    """The data of the page that `checklist-rewards report` writes, as JSON."""
    try:
        data = report_data([path], labels=None if labels is None else Labels(labels, lenient=True))
    except SampleError:
        if labels is None:
            raise
        data = report_data([path])  # labels of another file with this name
    return "".join(json_chunks(data)).encode()


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
