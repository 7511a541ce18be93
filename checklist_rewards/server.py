"""The reward server: one judge, many trainers, over HTTP.

`POST /score` takes rows and gives [`Score`]s, `POST /reward` speaks OpenRLHF's form, `GET /health` and `GET /metrics`
(Prometheus text) are for whoever watches. All requests put their rows into one [`MicroBatcher`], so requests of one
row each still reach the engine as batches.

Who asks for too much is told so: 413 for a body that is too large, 429 while too many rows are waiting. A malformed
row of `/score` fails alone: its place in `scores` is null and `errors` names row (from 1) and field; where no row can
be used the answer is 422. `/reward` has no place for an error, so one malformed row refuses the request with 422, and
a row that the judge could not answer makes it 503: OpenRLHF asks again, and then leaves the reward out. A judge's
failure is never a number here.

With a token every path but `/health` wants `Authorization: Bearer <token>`. On shutdown the server takes no new
connections, answers the requests that it has, and then closes the queue.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from checklist_rewards.chat import opens_thinking, strip_thinking
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.microbatch import (
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_QUEUE,
    DEFAULT_MAX_WAIT,
    SAMPLE_ERRORS,
    MicroBatcher,
    QueueClosed,
    QueueFull,
)
from checklist_rewards.rewards.samplewise import answer_after, labelled_sample, unscored_reason
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.version import __version__

DEFAULT_MAX_BODY = 16 * 2**20
_FIELDS = ("checklist", "target", "input", "reference", "history")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Json(JSONResponse):
    """JSON in ASCII: what a client sent may hold half a surrogate pair, which UTF-8 cannot carry back."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class _Refused(Exception):
    """A request that is answered with an error; `errors` are mappings of row, field and message."""

    def __init__(self, status: int, message: str, errors: list[dict[str, Any]] | None = None):
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors or []


class _RowError(Exception):
    """A row that cannot be scored as it is."""

    def __init__(self, row: int, field: str, message: str):
        super().__init__(message)
        self.record = {"row": row, "field": field, "message": message}


def build_app(
    scorer: ChecklistScorer,
    *,
    max_wait: float = DEFAULT_MAX_WAIT,
    max_batch: int = DEFAULT_MAX_BATCH,
    max_queue: int = DEFAULT_MAX_QUEUE,
    max_body: int = DEFAULT_MAX_BODY,
    token: str | None = None,
) -> FastAPI:
    """The application, for uvicorn or any ASGI server, in one process.

    Args:
        scorer ([`ChecklistScorer`]): answers everything; its judge is checked here, and loaded at the first row.
        max_wait, max_batch, max_queue: of the [`MicroBatcher`]; a request that finds the queue full gets 429.
        max_body (`int`, *optional*, defaults to 16 MiB): bytes of a request.
        token (`str`, *optional*): what clients must bring.

    Raises:
        ChecklistRewardsError: for a judge that cannot be used.
    """
    scorer.check()
    queue = MicroBatcher(scorer, max_wait=max_wait, max_batch=max_batch, max_queue=max_queue)
    meter = _Meter(queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()

    app = FastAPI(title="checklist-rewards", version=__version__, lifespan=lifespan)

    @app.middleware("http")
    async def _measured(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        path = request.url.path
        if token is not None and path != "/health" and not _authorized(request, token):
            message = "this server wants the header 'Authorization: Bearer <token>' with its token."
            response: Response = _Json(_error(message), 401, headers={"WWW-Authenticate": "Bearer"})
        else:
            response = await call_next(request)
        known = path if path in ("/score", "/reward", "/health", "/metrics") else "other"
        meter.count(known, response.status_code, time.perf_counter() - started)
        return response

    @app.exception_handler(_Refused)
    async def _refused(_: Request, error: _Refused) -> Response:
        headers = {"Retry-After": "1"} if error.status in (429, 503) else None
        return _Json(_error(error.message, error.errors), error.status, headers=headers)

    @app.post("/score")
    async def score(request: Request) -> Response:
        rows = _list(await _body(request, max_body), "samples")
        samples: list[tuple[int, Sample]] = []
        errors: list[dict[str, Any]] = []
        for number, row in enumerate(rows, start=1):
            try:
                samples.append((number, _sample(row, number, scorer)))
            except _RowError as error:
                errors.append(error.record)
        if errors and not samples:
            raise _Refused(422, f"none of the {len(rows)} rows can be scored; see errors.", errors)
        scores: list[Any] = [None] * len(rows)
        outcomes = await _scored(queue, [sample for _, sample in samples], max_queue, meter)
        for (number, _), outcome in zip(samples, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                errors.append({"row": number, "field": "sample", "message": str(outcome)})
            else:
                scores[number - 1] = outcome.model_dump(mode="json")
        if errors and all(found is None for found in scores):
            raise _Refused(422, f"none of the {len(rows)} rows can be scored; see errors.", errors)
        return _Json({"scores": scores, "errors": sorted(errors, key=lambda error: error["row"])})

    @app.post("/reward")
    async def reward(request: Request) -> Response:
        body = await _body(request, max_body)
        queries, prompts, labels = (_list(body, name) for name in ("query", "prompts", "labels"))
        if not len(queries) == len(prompts) == len(labels):
            raise _Refused(
                422,
                "query, prompts and labels must be equally long, "
                f"got {len(queries)}, {len(prompts)} and {len(labels)}.",
            )
        samples, errors = [], []
        for number, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True), start=1):
            try:
                samples.append(_labelled(query, prompt, label, number, scorer))
            except _RowError as error:
                errors.append(error.record)
        if errors:
            raise _Refused(422, f"{len(errors)} of the {len(labels)} rows cannot be scored; see errors.", errors)
        rewards: list[float] = []
        rates: list[float] = []
        unscored: list[dict[str, Any]] = []
        for number, outcome in enumerate(await _scored(queue, samples, max_queue, meter), start=1):
            if isinstance(outcome, BaseException):
                errors.append({"row": number, "field": "labels", "message": str(outcome)})
            elif outcome.primary_score is None:
                unscored.append({"row": number, "field": "query", "message": unscored_reason(outcome)})
            else:
                rewards.append(outcome.primary_score)
                rates.append(-1.0 if outcome.pass_rate is None else outcome.pass_rate)
        if errors:
            raise _Refused(422, f"{len(errors)} of the {len(labels)} rows cannot be scored; see errors.", errors)
        if unscored:
            raise _Refused(503, f"the judge left {len(unscored)} of the {len(labels)} rows unscored.", unscored)
        return _Json({"rewards": rewards, "scores": rewards, "extra_logs": {"checklist_pass_rate": rates}})

    @app.get("/health")
    async def health() -> Response:
        return _Json({"status": "ok", "version": __version__, "waiting": len(queue)})

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(meter.text(), media_type="text/plain; version=0.0.4")

    return app


class _Meter:
    """Counts what `/metrics` shows."""

    def __init__(self, queue: MicroBatcher):
        self.queue = queue
        self.requests: Counter[tuple[str, int]] = Counter()
        self.buckets: Counter[float] = Counter()
        self.seconds, self.timed = 0.0, 0
        self.unscored = 0

    def count(self, path: str, status: int, seconds: float) -> None:
        self.requests[path, status] += 1
        if path in ("/score", "/reward"):
            self.seconds += seconds
            self.timed += 1
            self.buckets.update(bound for bound in _BUCKETS if seconds <= bound)

    def text(self) -> str:
        name = "checklist_rewards"
        lines = [f"# TYPE {name}_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'{name}_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append(f"# TYPE {name}_request_seconds histogram")
        lines += [f'{name}_request_seconds_bucket{{le="{bound}"}} {self.buckets[bound]}' for bound in _BUCKETS]
        lines.append(f'{name}_request_seconds_bucket{{le="+Inf"}} {self.timed}')
        lines += [f"{name}_request_seconds_sum {self.seconds:.6f}", f"{name}_request_seconds_count {self.timed}"]
        for what, kind, value in (
            ("samples_total", "counter", self.queue.scored),
            ("unscored_total", "counter", self.unscored),
            ("batches_total", "counter", self.queue.batches),
            ("waiting", "gauge", len(self.queue)),
        ):
            lines += [f"# TYPE {name}_{what} {kind}", f"{name}_{what} {value}"]
        return "\n".join(lines) + "\n"


async def _scored(queue: MicroBatcher, samples: list[Sample], max_queue: int, meter: _Meter) -> list[Any]:
    """A score or its own error per sample. Raises [`_Refused`] for what concerns the whole request."""
    if len(samples) > max_queue:
        raise _Refused(413, f"{len(samples)} rows in one request; at most {max_queue} are taken.")
    try:
        futures = queue.submit(samples)
    except QueueFull as error:
        raise _Refused(429, str(error)) from None
    except QueueClosed as error:
        raise _Refused(503, str(error)) from None
    outcomes = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, SAMPLE_ERRORS):
            raise _Refused(500, f"the judge broke: {outcome}")
    meter.unscored += sum(not isinstance(o, BaseException) and o.primary_score is None for o in outcomes)
    return outcomes


async def _body(request: Request, limit: int) -> Mapping[str, Any]:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _Refused(413, f"the body is larger than {limit} bytes; send fewer rows at once.")
        parts.append(part)
    try:
        body = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise _Refused(400, f"the body is not JSON ({error}).") from None
    if not isinstance(body, Mapping):
        raise _Refused(422, f"the body must be a JSON object, got {type(body).__name__}.")
    return body


def _list(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if not isinstance(value, list) or not value:
        got = "nothing" if field not in body else f"{value!r:.60}"
        message = f"{field} must be a list of at least one row, got {got}."
        raise _Refused(422, message, [{"row": None, "field": field, "message": message}])
    return value


def _sample(row: Any, number: int, scorer: ChecklistScorer) -> Sample:
    if not isinstance(row, Mapping):
        raise _RowError(number, "samples", f"a row must be an object, got {type(row).__name__} {row!r:.60}.")
    for field in row:
        if field not in _FIELDS:
            raise _RowError(number, field, f"unknown field; allowed: {', '.join(_FIELDS)}.")
    for field in _FIELDS[1:]:
        text = row.get(field)
        if not isinstance(text, str) and (text is not None or field == "target"):
            got = "nothing" if field not in row else f"{type(text).__name__} {text!r:.60}"
            raise _RowError(number, field, f"must be a string, got {got}.")
    try:
        checklist = Checklist.parse(row.get("checklist"), f"row {number}")
        for item in checklist.items:
            scorer.judge.check_item(item, f"row {number}")
    except ChecklistRewardsError as error:
        raise _RowError(number, "checklist", str(error)) from None
    return Sample(checklist, row["target"], *(row.get(field) for field in _FIELDS[2:]))


def _labelled(query: Any, prompt: Any, label: Any, number: int, scorer: ChecklistScorer) -> Sample:
    where = f"row {number}"
    try:
        answer = answer_after(prompt, query, where)
    except ChecklistRewardsError as error:
        raise _RowError(number, "query" if isinstance(prompt, str) else "prompts", str(error)) from None
    try:
        sample = labelled_sample(label, strip_thinking(answer, opened=opens_thinking(prompt)), prompt, where)
        for item in sample.checklist.items:
            scorer.judge.check_item(item, where)
    except ChecklistRewardsError as error:
        raise _RowError(number, "labels", str(error)) from None
    return sample


def _authorized(request: Request, token: str) -> bool:
    # As bytes: hmac refuses to compare strings beyond ASCII, and a client may send any.
    given = request.headers.get("authorization", "").encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, f"Bearer {token}".encode())


def _error(message: str, errors: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"error": message, "errors": errors or []}
