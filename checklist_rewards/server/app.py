"""The paths of the reward server, and what they answer.

`POST /score` takes rows and gives [`Score`]s, `POST /reward` speaks OpenRLHF's form, `GET /health` and `GET /metrics`
(Prometheus text) are for whoever watches. All requests put their rows into one [`MicroBatcher`], so requests of one
row each still reach the engine as batches.

Whatever is refused is answered with `{"error": sentence, "errors": [{"row", "field", "message"}, ...]}`: 401 without
the token, 413 for a body that is too large, 429 while too many rows are waiting. A malformed row of `/score` fails
alone: its place in `scores` is null and `errors` names row (from 1) and field; where no row can be used the answer is
422. `/reward` has no place for an error, so one malformed row refuses the request with 422, and a row that the judge
could not answer makes it 503: OpenRLHF asks again, and then leaves the reward out. A judge's failure is never a number
here.

With a token every path but `/health` wants `Authorization: Bearer <token>`. On shutdown the server takes no new
connections, answers the requests that it has, and then closes the queue.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checklist_rewards.microbatch import (
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_QUEUE,
    DEFAULT_MAX_WAIT,
    SAMPLE_ERRORS,
    MicroBatcher,
    QueueClosed,
    QueueFull,
)
from checklist_rewards.rewards.samplewise import unscored_reason
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.server.meter import PATHS, Meter
from checklist_rewards.server.rows import (
    ErrorRecord,
    Refused,
    error_record,
    parse_body,
    refused_rows,
    reward_rows,
    reward_samples,
    score_rows,
    score_samples,
)
from checklist_rewards.version import __version__

DEFAULT_MAX_BODY = 16 * 2**20
_MANY_ROWS = 32
"""From here up rows are checked and scores written in a thread, so that small requests need not wait for it."""

T = TypeVar("T")


class _Json(JSONResponse):
    """JSON in ASCII: what a client sent may hold half a surrogate pair, which UTF-8 cannot carry back."""

    def render(self, content: Any) -> bytes:
        return _json(content)


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
        scorer ([`ChecklistScorer`]): answers everything; its judge is checked here, and loaded at the first row
            unless it was before.
        max_wait, max_batch, max_queue: of the [`MicroBatcher`]; a request that finds the queue full gets 429.
        max_body (`int`, *optional*, defaults to 16 MiB): bytes of a request.
        token (`str`, *optional*): what clients must bring.

    Raises:
        ChecklistRewardsError: for a judge that cannot be used.
    """
    scorer.check()
    queue = MicroBatcher(scorer, max_wait=max_wait, max_batch=max_batch, max_queue=max_queue)
    meter = Meter(queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()

    app = FastAPI(title="checklist-rewards", version=__version__, lifespan=lifespan)
    app.add_middleware(_Gate, meter=meter, token=token)

    @app.exception_handler(Refused)
    async def _refused(_: Request, error: Refused) -> Response:
        headers = {"Retry-After": "1"} if error.status in (429, 503) else None
        return _Json(_error(error.message, error.errors), error.status, headers=headers)

    @app.exception_handler(HTTPException)
    async def _no_such_path(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}; the paths are {', '.join(PATHS)}."
        return _Json(_error(message, [error_record(None, "path", message)]), error.status_code, headers=error.headers)

    @app.post("/score")
    async def score(request: Request) -> Response:
        rows = score_rows(parse_body(await _body(request, max_body)))
        samples, errors = await _aside(len(rows), score_samples, rows, scorer)
        if not samples:
            raise refused_rows(errors, len(rows))
        scores: list[Score | None] = [None] * len(rows)
        outcomes = await _scored(queue, [sample for _, sample in samples], "samples", meter)
        for (number, _), outcome in zip(samples, outcomes, strict=True):
            if isinstance(outcome, Score):
                scores[number - 1] = outcome
            else:
                errors.append(error_record(number, "sample", str(outcome)))
        errors.sort(key=lambda error: error["row"])
        if len(errors) == len(rows):
            raise refused_rows(errors, len(rows))
        content = await _aside(len(rows), _score_content, scores, errors)
        return Response(content, media_type="application/json")

    @app.post("/reward")
    async def reward(request: Request) -> Response:
        rows = reward_rows(parse_body(await _body(request, max_body)))
        samples = await _aside(len(rows), reward_samples, rows, scorer)
        rewards: list[float] = []
        rates: list[float] = []
        errors: list[ErrorRecord] = []
        unscored: list[ErrorRecord] = []
        for number, outcome in enumerate(await _scored(queue, samples, "query", meter), start=1):
            if not isinstance(outcome, Score):
                errors.append(error_record(number, "query", str(outcome)))
            elif outcome.primary_score is None:
                unscored.append(error_record(number, "query", unscored_reason(outcome)))
            else:
                rewards.append(outcome.primary_score)
                rates.append(-1.0 if outcome.pass_rate is None else outcome.pass_rate)
        if errors:
            raise refused_rows(errors, len(rows))
        if unscored:
            message = f"the judge left {len(unscored)} of the {len(rows)} rows unscored."
            raise Refused(503, message, errors=unscored)
        return _Json({"rewards": rewards, "scores": rewards, "extra_logs": {"checklist_pass_rate": rates}})

    @app.get("/health")
    async def health() -> Response:
        return _Json({"status": "ok", "version": __version__, "judge": scorer.judge.name, "waiting": len(queue)})

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(meter.text(), media_type="text/plain; version=0.0.4")

    return app


class _Gate:
    """Asks for the token and counts, around everything else.

    As plain ASGI: Starlette's class for middleware runs every request in a task of its own, which costs more than the
    rest of a small request.
    """

    def __init__(self, app: ASGIApp, meter: Meter, token: str | None):
        self.app, self.meter = app, meter
        self.wanted = None if token is None else token.strip().encode()
        message = "this server wants the header 'Authorization: Bearer <token>' with its token."
        record = error_record(None, "Authorization", message)
        self.refusal = _Json(_error(message, [record]), 401, headers={"WWW-Authenticate": "Bearer"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            app = self.app if self._may_pass(scope) else self.refusal
            await app(scope, receive, watched)
        finally:
            self.meter.count(scope["path"], status, time.perf_counter() - started)

    def _may_pass(self, scope: Scope) -> bool:
        if self.wanted is None or scope["path"] == "/health":
            return True
        # As bytes: hmac refuses to compare strings beyond ASCII, and a client may send any.
        scheme, _, given = Headers(scope=scope).get("authorization", "").encode("latin-1").partition(b" ")
        return hmac.compare_digest(given.strip(), self.wanted) and scheme.lower() == b"bearer"


def _error(message: str, errors: Sequence[ErrorRecord]) -> dict[str, Any]:
    return {"error": message, "errors": list(errors)}


async def _body(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise Refused(413, f"the body is larger than {limit} bytes; send fewer rows at once.")
        parts.append(part)
    return b"".join(parts)


async def _aside(rows: int, work: Callable[..., T], *arguments: Any) -> T:
    return work(*arguments) if rows < _MANY_ROWS else await asyncio.to_thread(work, *arguments)


async def _scored(queue: MicroBatcher, samples: list[Sample], field: str, meter: Meter) -> list[Score | BaseException]:
    """A score or its own error per sample. Raises [`Refused`] for what concerns the whole request."""
    if queue.max_queue is not None and len(samples) > queue.max_queue:
        raise Refused(413, f"{len(samples)} rows in one request; at most {queue.max_queue} are taken.", field)
    try:
        futures = queue.submit(samples)
    except QueueFull as error:
        raise Refused(429, str(error), field) from None
    except QueueClosed as error:
        raise Refused(503, str(error), field) from None
    outcomes = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, SAMPLE_ERRORS):
            raise Refused(500, f"the judge broke: {outcome}", field)
    meter.unscored += sum(isinstance(outcome, Score) and outcome.primary_score is None for outcome in outcomes)
    return outcomes


def _score_content(scores: Sequence[Score | None], errors: Sequence[ErrorRecord]) -> bytes:
    found = ",".join("null" if score is None else _score_json(score) for score in scores)
    return b'{"scores":[%s],"errors":%s}' % (found.encode(), _json(errors))


def _score_json(score: Score) -> str:
    try:
        return score.model_dump_json()
    except ValueError:  # half a surrogate pair
        return _json(score.model_dump(mode="json")).decode()


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
