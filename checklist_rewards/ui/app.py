"""The app: the report's page with more views, served to one browser on this machine.

`GET /` and the paths of the views answer with the page, `GET /static/NAME` with its files, and `/api/...` with data.
Errors are `{"error": sentence}`: 400 for a request that cannot be carried out, 403 for a file outside of the project,
413 for a body that is too large. All text of models is data of JSON; the page shows it as text.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.labels import Labels
from checklist_rewards.evaluation.scored import PAIRS, ScoredFile, ScoredText, as_scored, shown_completion
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.cells import decoded
from checklist_rewards.files.rows import read_rows
from checklist_rewards.progress import Bar
from checklist_rewards.ui import annotations as answers
from checklist_rewards.ui.annotations import Task, ordered, read_tasks, text_of
from checklist_rewards.ui.building import Building
from checklist_rewards.ui.code import items_of, loop_commands, report_command, snippets, without_secrets
from checklist_rewards.ui.comparisons import exported
from checklist_rewards.ui.guard import Guard, TooLarge, cookie_name, joined, json_body, page_token
from checklist_rewards.ui.jobs import Jobs
from checklist_rewards.ui.judging import Judging, judges_of
from checklist_rewards.ui.library import ConflictError, Library, checklist_text
from checklist_rewards.ui.live import Live
from checklist_rewards.ui.project import OutsideError, Project, folder_of, opened, write_example
from checklist_rewards.ui.report import MONITOR_FILE, kind_of, page_file, parts_of, report_data
from checklist_rewards.ui.table import json_chunks
from checklist_rewards.ui.thumbnails import Thumbnails, has_places, with_row
from checklist_rewards.version import __version__

FOLDER = "uploads"
MAX_UPLOAD = 64 * 2**20
ALLOWED = (".jsonl", ".csv")


async def receive(project: Project, name: Any, parts: AsyncIterator[bytes]) -> str:
    """Save a file that the browser sends in the folder `uploads`; the result is its name in the project.

    Raises [`SampleError`] if the name is taken or of another kind, or the content cannot be read, and [`TooLarge`] if
    it has more than `MAX_UPLOAD` bytes.
    """
    if not isinstance(name, str) or "/" in name or Path(name).suffix.lower() not in ALLOWED:
        raise SampleError(f"{name!r:.120} cannot be uploaded; allowed are text files: {', '.join(ALLOWED)}.")
    saved = f"{FOLDER}/{name}"
    path = project.target(saved)
    if path.exists():
        raise SampleError(f"{saved} exists; rename the file, or choose the one in the project.")
    too_large = f"{name} is larger than {MAX_UPLOAD:,} bytes; copy it into the project folder instead."
    await asyncio.to_thread(_save, path, await joined(parts, MAX_UPLOAD, too_large))
    return saved


def _save(path: Path, content: bytes) -> None:
    """Save an uploaded file once it is known that the commands can read it."""
    with tempfile.TemporaryDirectory() as folder:
        received = Path(folder, path.name)
        received.write_bytes(content)
        try:
            sum(1 for _ in read_rows(received))
        except SampleError as error:
            raise SampleError(str(error).replace(str(received), path.name)) from None
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def _while_typed(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The answer, or `{"error": ...}` with status 200: a form that is still being edited is not a failed request."""

    def answered(body: dict[str, Any]) -> dict[str, Any]:
        try:
            return answer(body)
        except ChecklistRewardsError as error:
            return {"error": without_secrets(str(error))}

    return answered


VIEWS = ("", "report", "annotate", "judge", "compare", "build", "batch", "library", "live", "improve")
_STATUSES = {OutsideError: 403, TooLarge: 413, answers.UnwrittenError: 507}
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_KEPT = 8
_RESAMPLES = 200  # for intervals that appear within seconds; the commands draw more


def build_ui(judging: Judging, token: str) -> FastAPI:
    """Build the app, to be run in a single process. `token` is what requests must have."""
    project = judging.project
    app = FastAPI(title="checklist-rewards ui", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, token=token)
    queues = _Files(lambda path: read_tasks(path, **columns_of(path)))
    reading: dict[Path, Bar] = {}  # of the reports that are read
    reports = _Files(
        lambda path, labels, *other: _report(project, [path, *other], labels, reading, columns_of(path, *other))
    )
    kinds = _Files(kind_of, kept=4096)
    building, library, live = Building(judging), Library(judging), Live(project)
    jobs = app.state.jobs = Jobs(judging)
    static = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in files("checklist_rewards.ui").joinpath("page").iterdir()
        if Path(entry.name).suffix in _TYPES
    }

    def columns_of(*paths: Path) -> dict[str, Any]:
        """The columns that the job of a file has named, if all files have them."""
        first, *others = (jobs.columns_of(path.relative_to(project.folder).as_posix()) for path in paths)
        return first if all(other == first for other in others) else {}

    @app.exception_handler(ChecklistRewardsError)
    async def _sentence(_: Request, error: ChecklistRewardsError) -> Response:
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 400)
        more = {"stamp": error.stamp} if isinstance(error, ConflictError) else {}
        return _json({"error": without_secrets(str(error)), **more}, status)

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

    def numbered(query: Mapping[str, Any]) -> ScoredText:
        """A row of a file by its number, which needs no score. A pair is read as its prompt."""
        path, number = project.existing(query.get("file", "")), _whole(query.get("row", "1"), "row")
        rows = enumerate(ScoredFile(path, unscored=True, **columns_of(path)), start=1)
        found = next((record for n, record in rows if n == number), None)
        if found is None:
            raise SampleError(f"{path.name} has no row {number}.")
        return replace(found, kind="scored") if found.kind == "pairs" else found

    def seen(body: dict[str, Any]) -> dict[str, Any]:
        """A request with the images of the row that its texts are `of`, if they have places for images."""
        of = body.get("of")
        if not isinstance(of, Mapping) or not has_places(body, "input", "target"):
            return body
        record = numbered(of)
        if of.get("text") != text_of(record):
            raise SampleError(f"{record.where} has changed since it was opened; open it again.")
        return with_row(body, record, project.holds)

    def pictured(record: ScoredText, file: str, number: int | str) -> dict[str, Any]:
        """What the page has of a row with images: thumbnails, and what it sends to have them seen."""
        if not record.images:
            return {}
        of = {"file": file, "row": number, "text": text_of(record)}
        return {"images": Thumbnails(project.holds).of(record), "of": of}

    @app.post("/api/judge")
    async def judge(request: Request) -> Response:
        body = await asyncio.to_thread(seen, await json_body(request))
        return StreamingResponse(_events(judging.score(body)), media_type="application/x-ndjson")

    @app.post("/api/upload")
    async def upload(request: Request) -> Response:
        return _json({"name": await receive(project, request.query_params.get("name"), request.stream())})

    def overview(_: Mapping[str, Any]) -> Any:
        listed = [file.shown() | kinds.get(project.path(file.name)) for file in project.files()]
        logs = {folder_of(file["name"]): file["name"] for file in reversed(listed) if file["kind"] == "rewards"}
        files = [file | opened(file, logs) for file in listed]
        judge = judging.of_the_app()
        return {"folder": project.folder.name, "files": files, "judge": judge}

    def download(query: Mapping[str, Any]) -> Any:
        path = project.existing(query.get("file", ""))
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)

    def report(query: Mapping[str, Any]) -> Any:
        files = [project.existing(name) for name in (query.get("file", ""), *filter(None, [query.get("other")]))]
        column = query.get("labels")
        known = (exported(project, path) for path in files) if column is None else ()
        labels = next(filter(None, known), None)
        paths = [source for path in files for source in _sources(project, path)]
        stamp = " ".join(map(_stamp, filter(None, [*paths, labels])))
        if query.get("known"):  # the page asks only whether the file has changed
            return None if query["known"] == stamp else {"stamp": stamp}
        key = (files[0], column or labels, *files[1:])
        if query.get("rows"):  # those of the head that the page has, even if the file has grown since
            found = reports.kept_of(query["rows"], *key)
            if found is None:
                raise SampleError(f"{files[0].name} has changed while it was read; reload the page.")
            return Response(found[1], media_type="application/json")
        head, _, command = reports.get(files[0], stamp, *key[1:])
        headers = {"x-stamp": stamp, "x-command": quote(command)}
        return Response(head, media_type="application/json", headers=headers)

    def progress(query: Mapping[str, Any]) -> Any:
        """How many rows of a report are read, and of how many; nothing before the first and after the last one."""
        bar = reading.get(project.existing(query.get("file", "")))
        return {} if bar is None else {"done": bar.done, "total": bar.total}

    def row(query: Mapping[str, Any]) -> Any:
        path, id = project.existing(query.get("file", "")), query.get("id")
        for number, record in enumerate(ScoredFile(path, **columns_of(path)), start=1):
            if record.id == id:
                lines = () if record.score is None else record.score.items
                items = [{"question": one.question, "weight": one.weight, "required": one.required} for one in lines]
                column = record.checklist if record.score is None or record.known else None
                shown = items if column is None else items_of(as_scored(column, record.score))
                texts = {"input": record.prompt, "target": record.text}
                found = {**texts, "checklist": shown, **pictured(record, query["file"], number)}
                if record.score is None:
                    return found
                settings, like = judging.like(record.score)
                of = {"file": query["file"], "id": id, "score": record.score.primary_score, **texts}
                return {**found, "settings": settings, "scored": {**of, **like, "judge": settings.get("judge")}}
        raise SampleError(f"{path.name} has no row {id!r:.80}.")

    def candidates(query: Mapping[str, Any]) -> Any:
        record = numbered(query)
        return _several_texts(record) | pictured(record, query["file"], query.get("row", "1"))

    def tasks_of(query: Mapping[str, Any]) -> tuple[str, list[Task]]:
        file = str(query.get("file") or "")
        return file, queues.get(project.existing(file))

    def queue(query: Mapping[str, Any]) -> Any:
        name = answers.check_name(query.get("annotator"))
        file, tasks = tasks_of(query)
        others = queues.get(project.existing(query["other"])) if query.get("other") else None
        places = ordered(tasks, query.get("order", "random"), _whole(query.get("seed", "0"), "seed"), others)
        people = answers.annotators(project, file, tasks)
        own = next((person.answers for person in people if person.name == name), {})
        done = Counter(row for (row, _), answer in own.items() if answer["label"] is not None)
        rows = [
            {"place": place, "id": task.id, "items": len(task.items), "done": done[task.id]}
            for place, task in ((place, tasks[place]) for place in places)
        ]
        return {"rows": rows, **answers.progress(tasks, people)}

    def task(query: Mapping[str, Any]) -> Any:
        name = answers.check_name(query.get("annotator"))
        file, tasks = tasks_of(query)
        place = _whole(query.get("place", ""), "place")
        if place >= len(tasks):
            raise SampleError(f"row {place + 1} does not exist: {file} has {len(tasks)} rows.")
        shown = tasks[place]
        people = answers.annotators(project, file, tasks)
        own = next((person.answers for person in people if person.name == name), {})
        mine = {key: one for (row, key), one in own.items() if row == shown.id}
        images = {} if shown.pictured is None else {"images": Thumbnails(project.holds).of(shown.pictured)}
        return {**shown.shown(), **images, "mine": mine}

    def answer(body: dict[str, Any]) -> Any:
        name = answers.check_name(body.get("annotator"))
        file, tasks = tasks_of(body)
        annotated = next((one for one in tasks if one.id == body.get("row")), None)
        if annotated is None:
            raise SampleError(f"{file} has no row {body.get('row')!r:.80}.")
        answers.record(project, file, annotated, name, str(body.get("item")), body)
        return answers.progress(tasks, answers.annotators(project, file, tasks))

    def export(body: dict[str, Any]) -> Any:
        file, tasks = tasks_of(body)
        people = answers.annotators(project, file, tasks)
        sampled = body.get("order") == "sample"
        sample = answers.label_sample(tasks, _whole(str(body.get("seed", 0)), "seed")) if sampled else None
        done = answers.export(project, file, tasks, people, sample)
        judges = judges_of(task.score for task in tasks) if all(task.score is not None for task in tasks) else None
        pictured = any(task.images for task in tasks)
        commands = loop_commands(file, done["name"], judges, judging, jobs.options_of(file), pictured)
        return {**done, "commands": commands}

    def generate(body: dict[str, Any]) -> Any:
        checklist = judging.write(seen(body))
        return {"items": items_of(checklist), "source": checklist.source, "model": checklist.model}

    def code(body: dict[str, Any]) -> Any:
        config = judging.config_of(body.get("settings") or {})
        return snippets(config, judging.engine_of(config), judging.sample(seen(body)), judging.store_path)

    def save(body: dict[str, Any]) -> Any:
        text = checklist_text(body["checklist"]) if "checklist" in body else body.get("text")
        return library.save(body.get("name"), text, body.get("stamp"))

    gets: Mapping[str, Callable[[dict[str, Any]], Any]] = {
        "project": overview,
        "choices": lambda _: judging.choices(),
        "health": lambda _: judging.health(),
        "report": report,
        "report/progress": progress,
        "row": row,
        "candidates": candidates,
        "download": download,
        "annotate/queue": queue,
        "annotate/task": task,
        "jobs": lambda _: {"jobs": jobs.all(), "stored": judging.store is not None},
        "jobs/preview": lambda query: jobs.preview(query.get("file", "")),
        "build": lambda _: building.choices(),
        "build/progress": lambda query: building.progress(query.get("run")),
        "library": lambda _: library.listed(),
        "library/file": lambda query: library.read(query.get("name")),
        "live": lambda query: live.figures(query.get("file", ""), query.get("known")),
    }
    posts: Mapping[str, Callable[[dict[str, Any]], Any]] = {
        "probe": lambda _: judging.probed(),
        "example": lambda _: write_example(project),
        "annotate/answer": answer,
        "annotate/export": export,
        "generate": generate,
        "code": code,
        "jobs": jobs.create,
        "settings": _while_typed(lambda body: judging.described(body.get("settings") or {})),
        "jobs/forecast": jobs.forecast,
        "jobs/code": jobs.code,
        "jobs/pause": lambda body: jobs.pause(body.get("id")),
        "jobs/resume": lambda body: jobs.resume(body.get("id"), body.get("budget")),
        "build/plan": _while_typed(building.plan),
        "build/stage": building.stage,
        "build/stop": lambda body: building.stop(body.get("run")),
        "build/checklist": building.checklist,
        "build/refine": building.refine,
        "build/preview": _while_typed(building.preview),
        "library/check": lambda body: library.check(body.get("name"), body.get("text")),
        "library/file": save,
        "library/import": library.import_file,
    }
    for path, work in gets.items():
        app.add_route(f"/api/{path}", _endpoint(work), methods=["GET"])
    for path, work in posts.items():
        app.add_route(f"/api/{path}", _endpoint(work, has_body=True), methods=["POST"])
    return app


def _endpoint(
    work: Callable[[dict[str, Any]], Any], has_body: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that calls `work` in a thread, with the body of the request or its query. None is sent as 204."""

    async def answer(request: Request) -> Response:
        given = await json_body(request) if has_body else dict(request.query_params)
        found = await asyncio.to_thread(work, given)
        if isinstance(found, Response):
            return found
        return Response(status_code=204) if found is None else _json(found)

    return answer


class _Files:
    """What was read of files, as long as they do not change."""

    def __init__(self, read: Any, kept: int = _KEPT):
        self.read, self.kept = read, kept
        self._known: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._lock = Lock()

    def get(self, path: Path, stamp: str | None = None, *more: Any) -> Any:
        """What `read(path, *more)` gives, as long as the file has the same stamp. While a file is read, other files
        are available, and further calls for the same file wait for the result."""
        stamp, key = stamp or _stamp(path), (path, *more)
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
            while len(self._known) > self.kept:
                self._known.popitem(last=False)
        with known.lock:
            if known.stamp != stamp:
                known.value, known.stamp = self.read(path, *more), stamp
            return known.value

    def kept_of(self, stamp: str, *key: Any) -> Any:
        """What was read of a file when it had this stamp; None if it has been read again, or is no longer kept."""
        with self._lock:
            known = self._known.get(key)
        return known.value if known is not None and known.stamp == stamp else None


@dataclass
class _Known:
    stamp: str | None = None
    value: Any = None
    lock: Any = field(default_factory=Lock)


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_mtime_ns}-{status.st_size}"


def _sources(project: Project, path: Path) -> list[Path]:
    """The files that the report of a file reads: with a reward log, those of other ranks and the monitor's."""
    paths, monitor = ScoredFile(path).paths, path.parent / MONITOR_FILE
    if kind_of(path)["kind"] == "rewards" and project.holds(monitor) and kind_of(monitor)["kind"] == "monitor":
        paths.append(monitor)
    for one in paths:
        project.existing(one.relative_to(project.folder).as_posix())
    return paths


def _report(
    project: Project,
    files: Sequence[Path],
    labels: str | Path | None,
    reading: dict[Path, Bar],
    columns: Mapping[str, Any],
) -> tuple[bytes, bytes, str]:
    """The data of the page that `checklist-rewards report` writes of one or two files, as JSON: what it shows first,
    and the rows; and the command that writes it.

    `labels` is a column of the files, or of one of them, whose labels are those of the same texts in the other; or a
    file of labels, which is left out if it does not fit. `columns` are those of prompt and response, where a job has
    named them. Meanwhile `reading` has how far it is."""
    found = [one for path in files for one in _sources(project, path) if one in files or one.name == MONITOR_FILE]
    paths, column = list(dict.fromkeys(found)), labels if isinstance(labels, str) else None
    having = [path for path in files if column is not None and column in kind_of(path).get("columns", ())]
    if column is not None and len(having) == 1 < len(files):
        labels = having[0]
    given = None
    if labels is not None:
        source = None if isinstance(labels, str) else labels
        key = column or "labels"
        given = Labels(source, key=key, target_key=columns.get("target"), lenient=source is not None)

    def started(name: str, total: int | None) -> Bar:
        reading[files[0]] = bar = Bar(name, total, lambda _: None)
        return bar

    options = {"intervals": Bootstrap(_RESAMPLES), "progress": started, "may_read": project.holds, **columns}
    try:
        data = report_data(paths, labels=given, **options)
    except SampleError:
        if labels is None or column is not None:
            raise
        labels, data = None, report_data(paths, **options)
    finally:
        reading.pop(files[0], None)
    head, rows = parts_of(data)
    names = [one.relative_to(project.folder).as_posix() for one in paths]
    labelled = labels.relative_to(project.folder).as_posix() if isinstance(labels, Path) else None
    command = report_command(names, labelled, column, **columns)
    return "".join(json_chunks(head)).encode(), "".join(json_chunks(rows)).encode(), command


def _several_texts(record: ScoredText) -> dict[str, Any]:
    """The prompt, the texts and the items of a row with `candidates`, or with a `chosen` and a `rejected` text, for
    the view Compare. Raises [`SampleError`] if the row has neither."""
    data, columns = record.data, record.columns
    given = decoded(data.get("candidates")) or [data[name] for name in PAIRS if name in data]
    texts = [shown_completion(text) for text in given] if isinstance(given, list) else []
    if len(texts) < 2:
        raise SampleError(
            f"{record.where}: the row has no two texts; expected a list `candidates`, or `chosen` and `rejected`."
        )
    checklist = columns.checklist_of(data, record.where) if data.get(columns.checklist) else None
    items = None if checklist is None else items_of(checklist)
    return {"input": record.prompt or "", "texts": texts, "checklist": items}


def _events(events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    try:
        for event in events:
            if "message" in event:
                event = {**event, "message": without_secrets(event["message"])}
            yield _encoded(event) + b"\n"
    except Exception as error:  # the response has begun, so this is the only way to tell the page
        message = f"the judge failed ({type(error).__name__}: {error})."
        yield _encoded({"event": "error", "message": without_secrets(message)}) + b"\n"


def _json(content: Any, status: int = 200) -> Response:
    return Response(_encoded(content), status, media_type="application/json")


def _encoded(content: Any) -> bytes:
    # In ASCII: a text may contain half a surrogate pair, which UTF-8 cannot encode.
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def _whole(text: Any, name: str) -> int:
    if not str(text).isdecimal():
        raise SampleError(f"{name} must be a whole number, got {text!r:.40}.")
    return int(text)
