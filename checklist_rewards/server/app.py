"""The paths of the reward server, and what they answer.

`POST /score` takes rows and gives [`Score`]s, `POST /reward` speaks OpenRLHF's form, `GET /health` and `GET /metrics`
(Prometheus text) are for whoever watches. All requests put their rows into one [`MicroBatcher`], so requests of one
row each still reach the engine as batches.

Whatever is refused is answered with `{"error": sentence, "errors": [{"row", "field", "message"}, ...]}`: 401 without
the token, 408 for a body that does not arrive in time, 413 for one that is too large, 429 while too many rows are
waiting. A malformed row of `/score` fails alone: its place in `scores` is null and `errors` names row (from 1) and
field; where no row can be used the answer is 422. `/reward` has no place for an error, so one malformed row refuses
the request with 422, and a row that the judge could not answer makes it 503: OpenRLHF asks again, and then leaves the
reward out. A judge's failure is never a number here. 500 means that the judge itself broke, for every row.

The event loop only moves bytes: rows are parsed and checked in threads, because a row decides how long that takes. A
client that hangs up is counted with status 499; its rows leave the queue unless they are being scored.

With a token every path but `/health` requires `Authorization: Bearer <token>`. On shutdown the server accepts no new
connections, answers the requests that it has received, and then closes the queue.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checklist_rewards.errors import BackendError, ChecklistRewardsError, ConfigError, ModelError, StoreError
from checklist_rewards.rewards.integrations.labelled import unscored_reason
from checklist_rewards.rewards.integrations.queue import (
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_QUEUE,
    DEFAULT_MAX_WAIT,
    MicroBatcher,
    QueueClosed,
    QueueFull,
)
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.server.meter import PATHS, Meter
from checklist_rewards.server.rows import (
    ErrorRecord,
    Refused,
    error_record,
    refused_rows,
    reward_samples,
    score_samples,
)
from checklist_rewards.version import __version__

DEFAULT_MAX_BODY = 16 * 2**20
BODY_SECONDS = 60.0
"""How long a body may take to arrive."""
CLOSE_SECONDS = 5.0
"""How long the batch in the engine may hold up the exit, once nobody waits for it."""
_LARGE = 2**16
"""Bytes of a request from which its scores are written in a thread, so that small requests need not wait for it."""
_HUNG_UP = 499
"""nginx's status for a client that closed its connection before the answer."""


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
        # In a thread of its own, which does not outlive the process where the engine never returns.
        closing = threading.Thread(target=queue.close, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)

    app = FastAPI(title="checklist-rewards", version=__version__, lifespan=lifespan)
    app.add_middleware(_Gate, meter=meter, token=token)

    @app.exception_handler(Refused)
    async def _refused(_: Request, error: Refused) -> Response:
        headers = {429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}, 408: {"Connection": "close"}}
        return _Json(_error(error.message, error.errors), error.status, headers=headers.get(error.status))

    @app.exception_handler(ClientDisconnect)
    async def _hung_up(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_HUNG_UP)  # nobody gets it; it is counted

    @app.exception_handler(HTTPException)
    async def _no_such_path(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}; the paths are {', '.join(PATHS)}."
        return _Json(_error(message, [error_record(None, "path", message)]), error.status_code, headers=error.headers)

    @app.post("/score")
    async def score(request: Request) -> Response:
        content = await _body(request, max_body)
        rows, samples, errors = await asyncio.to_thread(score_samples, content, scorer)
        if not samples:
            raise refused_rows(errors, rows)
        scores: list[Score | None] = [None] * rows
        outcomes = await _scored(request, queue, [sample for _, sample in samples], "samples", meter)
        for (number, _), outcome in zip(samples, outcomes, strict=True):
            if isinstance(outcome, Score):
                scores[number - 1] = outcome
            else:
                errors.append(error_record(number, "sample", _reason(outcome)))
        errors.sort(key=lambda error: error["row"])
        if len(errors) == rows:
            raise refused_rows(errors, rows)
        if len(content) < _LARGE:
            answer = _score_content(scores, errors)
        else:
            answer = await asyncio.to_thread(_score_content, scores, errors)
        return Response(answer, media_type="application/json")

    @app.post("/reward")
    async def reward(request: Request) -> Response:
        samples = await asyncio.to_thread(reward_samples, await _body(request, max_body), scorer)
        rewards: list[float] = []
        rates: list[float] = []
        errors: list[ErrorRecord] = []
        unscored: list[ErrorRecord] = []
        for number, outcome in enumerate(await _scored(request, queue, samples, "query", meter), start=1):
            if not isinstance(outcome, Score):
                errors.append(error_record(number, "query", _reason(outcome)))
            elif outcome.primary_score is None:
                unscored.append(error_record(number, "query", unscored_reason(outcome)))
            else:
                rewards.append(outcome.primary_score)
                rates.append(-1.0 if outcome.pass_rate is None else outcome.pass_rate)
        if errors:
            raise refused_rows(errors, len(samples))
        if unscored:
            message = f"the judge left {len(unscored)} of the {len(samples)} rows unscored."
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
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise Refused(413, f"the body is larger than {limit} bytes; send fewer rows at once.")
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:g} s; send fewer rows at once.") from None
    return b"".join(parts)


async def _scored(
    request: Request, queue: MicroBatcher, samples: list[Sample], field: str, meter: Meter
) -> list[Score | BaseException]:
    """A score or its own error per sample.

    Raises:
        Refused: For what concerns the whole request.
        ClientDisconnect: If the client hung up. Its samples are not scored, unless they are in a batch already.
    """
    if queue.max_queue is not None and len(samples) > queue.max_queue:
        raise Refused(413, f"{len(samples)} rows in one request; at most {queue.max_queue} are taken.", field)
    try:
        futures = queue.submit(samples)
    except QueueFull as error:
        raise Refused(429, str(error), field) from None
    except QueueClosed as error:
        raise Refused(503, str(error), field) from None
    scoring = asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    gone = asyncio.ensure_future(request.receive())  # after the body nothing but the end of the connection comes
    try:
        await asyncio.wait((scoring, gone), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        raise Refused(503, "the server stops before these rows are scored; send them again.", field) from None
    finally:
        gone.cancel()
        for future in futures:
            future.cancel()
    if not scoring.done():
        raise ClientDisconnect
    outcomes = scoring.result()
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and _is_everybodys(outcome):
            raise Refused(500, f"the judge broke: {outcome}", field)
    meter.unscored += sum(isinstance(outcome, Score) and outcome.primary_score is None for outcome in outcomes)
    return outcomes


def _is_everybodys(error: BaseException) -> bool:
    """Whether the judge or the machine failed, rather than one sample."""
    if isinstance(error, ChecklistRewardsError | RecursionError):
        return isinstance(error, ModelError | BackendError | ConfigError | StoreError)
    return isinstance(error, RuntimeError | OSError | MemoryError) or not isinstance(error, Exception)


def _reason(error: BaseException) -> str:
    known = isinstance(error, ChecklistRewardsError | UnicodeError)
    return str(error) if known else f"the sample cannot be scored ({type(error).__name__}: {error})."


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
