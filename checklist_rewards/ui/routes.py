"""The requests of the views Batch, Build, Library and Live.

See `jobs`, `uploads`, `building`, `library` and `live`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

from checklist_rewards.datasets.importing import AUTO
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.ui.building import Building
from checklist_rewards.ui.guard import json_body
from checklist_rewards.ui.jobs import Jobs
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.library import Library, checklist_text
from checklist_rewards.ui.live import Live
from checklist_rewards.ui.project import Project
from checklist_rewards.ui.snippets import without_secrets
from checklist_rewards.ui.uploads import MAX_UPLOAD, receive


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


def _json(content: Any, status: int = 200) -> Response:
    # In ASCII: a text may contain half a surrogate pair, which UTF-8 cannot encode.
    return Response(json.dumps(content, separators=(",", ":")).encode("ascii"), status, media_type="application/json")
