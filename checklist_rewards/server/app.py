"""The endpoints of the reward server.

`POST /score` takes rows and returns [`Score`]s, `POST /reward` implements OpenRLHF's remote reward interface, and
`POST /v1/decisions` and `POST /v1/systemone` answer the requests of Decisions APIs (`decisions.py`). `GET /v1/models`
names the judge; `GET /health` and `GET /metrics` (Prometheus text) are for monitoring. All requests share one
[`MicroBatcher`], so even requests with a single row reach the engine in batches.

Errors have the body `{"error": sentence, "errors": [{"row", "field", "message"}, ...]}`:

- 400: a decision cannot be read.
- 401: the token is missing or wrong.
- 404: a decision names another model.
- 408: the body did not arrive in time.
- 413: the body is too large.
- 422: no row of `/score`, or not every row of `/reward`, is valid.
- 429: too many rows are waiting.
- 500: the judge failed for the whole request.
- 503: the judge could not score a row of `/reward` or answer a decision, or the server is shutting down.

An invalid row of `/score` does not affect the others: its place in `scores` is null and `errors` has the row (from 1)
and the field. The response of `/reward` has no place for errors, so a single invalid or unscored row fails the
request. OpenRLHF sends a request five times whatever its status, and then skips the reward, so invalid rows of
`/reward` are also logged here as errors. A failure of the judge is never a number.

Rows are parsed and validated in threads, because large rows would block the event loop. A client that disconnects is
counted with status 499, and its rows leave the queue unless they are being scored.

With a token, all paths except `/health` require `Authorization: Bearer <token>`. On shutdown the server accepts no new
connections, answers the requests it has received, and then closes the queue.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checklist_rewards.errors import BackendError, ChecklistRewardsError, ConfigError, ModelError, StoreError
from checklist_rewards.rewards.integrations.labelled import score_details, unscored_reason
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
from checklist_rewards.server.decisions import (
    DecisionRequest,
    decision_answers,
    decision_request,
    system_one_answers,
    system_one_request,
)
from checklist_rewards.server.metrics import PATHS, RequestMetrics
from checklist_rewards.server.rows import (
    ErrorRecord,
    Refused,
    error_record,
    refused_rows,
    reward_samples,
    score_samples,
)
from checklist_rewards.version import __version__

logger = logging.getLogger(__name__)

Parse = Callable[[bytes, ChecklistScorer], DecisionRequest]
Answers = Callable[[DecisionRequest, Score, str], dict[str, Any]]
DEFAULT_MAX_BODY = 16 * 2**20
BODY_SECONDS = 60.0
"""Longest time for a request body to arrive."""
CLOSE_SECONDS = 5.0
"""Longest time to wait at exit for a batch whose clients are gone."""
_LARGE = 2**16
"""Request size in bytes from which scores are serialized in a thread, so that small requests do not wait."""
_DISCONNECTED = 499
"""nginx's status for a client that disconnected before the response."""


class _AsciiJson(JSONResponse):
    """JSON in ASCII, because client data may contain half a surrogate pair, which UTF-8 cannot encode."""

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
    """Build the ASGI application, to be run in a single process.

    Args:
        scorer ([`ChecklistScorer`]):
            Scorer for all requests. Its judge is checked here, and loaded at the first row if it is not loaded yet.
        max_wait, max_batch, max_queue:
            As in [`MicroBatcher`]. Requests get status 429 while the queue is full.
        max_body (`int`, *optional*, defaults to `16 * 2**20`):
            Maximum size of a request body in bytes.
        token (`str`, *optional*):
            Bearer token that clients must send.

    Returns:
        `FastAPI`: The application.

    Raises:
        ChecklistRewardsError: If the judge cannot be used.
    """
    scorer.check()
    queue = MicroBatcher(scorer, max_wait=max_wait, max_batch=max_batch, max_queue=max_queue)
    request_metrics = RequestMetrics(queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        # In a daemon thread, so that the process can exit even if the engine never returns.
        closing = threading.Thread(target=queue.close, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)

    app = FastAPI(title="checklist-rewards", version=__version__, lifespan=lifespan)
    app.add_middleware(_AuthAndMetrics, metrics=request_metrics, token=token)

    @app.exception_handler(Refused)
    async def _refused(request: Request, error: Refused) -> Response:
        if request.url.path == "/reward" and error.status == 422:
            for record in error.errors:
                _log_invalid(record["field"], record["message"])
        headers = {429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}, 408: {"Connection": "close"}}
        return _AsciiJson(_error(error.message, error.errors), error.status, headers=headers.get(error.status))

    @app.exception_handler(ClientDisconnect)
    async def _disconnected(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_DISCONNECTED)  # only counted, since the client is gone

    @app.exception_handler(HTTPException)
    async def _no_such_path(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}; the paths are {', '.join(PATHS)}."
        return _AsciiJson(
            _error(message, [error_record(None, "path", message)]), error.status_code, headers=error.headers
        )

    @app.post("/score")
    async def score(request: Request) -> Response:
        content = await _body(request, max_body)
        rows, samples, errors = await asyncio.to_thread(score_samples, content, scorer)
        if not samples:
            raise refused_rows(errors, rows)
        scores: list[Score | None] = [None] * rows
        outcomes = await _scored(request, queue, [sample for _, sample in samples], "samples", request_metrics)
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
        logs: list[dict[str, float]] = []
        errors: list[ErrorRecord] = []
        unscored: list[ErrorRecord] = []
        for number, outcome in enumerate(await _scored(request, queue, samples, "query", request_metrics), start=1):
            if not isinstance(outcome, Score):
                errors.append(error_record(number, "query", _reason(outcome)))
            elif outcome.primary_score is None:
                unscored.append(error_record(number, "query", unscored_reason(outcome)))
            else:
                rewards.append(outcome.primary_score)
                logs.append(score_details(outcome))
        if errors:
            raise refused_rows(errors, len(samples))
        if unscored:
            message = f"the judge could not score {len(unscored)} of the {len(samples)} rows."
            raise Refused(503, message, errors=unscored)
        extra_logs = {name: [numbers[name] for numbers in logs] for name in logs[0]}
        return _AsciiJson({"rewards": rewards, "scores": rewards, "extra_logs": extra_logs})

    async def decide(request: Request, parse: Parse, answers: Answers) -> Response:
        asked = await asyncio.to_thread(parse, await _body(request, max_body), scorer)
        [outcome] = await _scored(request, queue, [asked.sample], "questions", request_metrics)
        if not isinstance(outcome, Score):
            raise Refused(400, _reason(outcome), "questions")
        return _AsciiJson(answers(asked, outcome, scorer.judge.name))

    @app.post("/v1/decisions")
    async def decisions(request: Request) -> Response:
        return await decide(request, decision_request, decision_answers)

    @app.post("/v1/systemone")
    async def system_one(request: Request) -> Response:
        return await decide(request, system_one_request, system_one_answers)

    @app.get("/v1/models")
    async def models() -> Response:
        return _AsciiJson({"object": "list", "data": [{"id": scorer.judge.name, "object": "model"}]})

    @app.get("/health")
    async def health() -> Response:
        return _AsciiJson({"status": "ok", "version": __version__, "judge": scorer.judge.name, "waiting": len(queue)})

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(request_metrics.text(), media_type="text/plain; version=0.0.4")

    return app


class _AuthAndMetrics:
    """Middleware that checks the token and counts requests.

    It is plain ASGI, because Starlette's middleware class runs every request in its own task, which costs more than
    the rest of a small request.
    """

    def __init__(self, app: ASGIApp, metrics: RequestMetrics, token: str | None):
        self.app, self.metrics = app, metrics
        self.token = None if token is None else token.strip().encode()
        message = "this server requires the header 'Authorization: Bearer <token>'."
        record = error_record(None, "Authorization", message)
        self.refusal = _AsciiJson(_error(message, [record]), 401, headers={"WWW-Authenticate": "Bearer"})

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
            app = self.app if self._authorized(scope) else self.refusal
            await app(scope, receive, watched)
        finally:
            self.metrics.count(scope["path"], status, time.perf_counter() - started)

    def _authorized(self, scope: Scope) -> bool:
        if self.token is None or scope["path"] == "/health":
            return True
        # Compare bytes, because hmac.compare_digest raises for strings that are not ASCII.
        scheme, _, token = Headers(scope=scope).get("authorization", "").encode("latin-1").partition(b" ")
        return hmac.compare_digest(token.strip(), self.token) and scheme.lower() == b"bearer"


@functools.lru_cache(maxsize=1024)
def _log_invalid(field: str, message: str) -> None:
    """Log an invalid row of `/reward` once: OpenRLHF hides the response and repeats the request."""
    logger.error("POST /reward: %s: %s", field, message)


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
    request: Request, queue: MicroBatcher, samples: list[Sample], field: str, request_metrics: RequestMetrics
) -> list[Score | BaseException]:
    """A score or an error per sample.

    Raises:
        Refused: For an error of the whole request.
        ClientDisconnect: If the client disconnected. Its samples are not scored unless their batch already runs.
    """
    if queue.max_queue is not None and len(samples) > queue.max_queue:
        raise Refused(413, f"{len(samples)} rows in one request are too many; send at most {queue.max_queue}.", field)
    try:
        futures = queue.submit(samples)
    except QueueFull as error:
        raise Refused(429, str(error), field) from None
    except QueueClosed as error:
        raise Refused(503, str(error), field) from None
    scoring = asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    disconnect = asyncio.ensure_future(request.receive())  # after the body, the only message is the disconnect
    try:
        await asyncio.wait((scoring, disconnect), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        raise Refused(
            503, "the server is shutting down before these rows are scored; send them again.", field
        ) from None
    finally:
        disconnect.cancel()
        for future in futures:
            future.cancel()
    if not scoring.done():
        raise ClientDisconnect
    outcomes = scoring.result()
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and _is_judge_failure(outcome):
            raise Refused(500, f"the judge failed: {outcome}", field)
    request_metrics.unscored += sum(
        isinstance(outcome, Score) and outcome.primary_score is None for outcome in outcomes
    )
    return outcomes


def _is_judge_failure(error: BaseException) -> bool:
    """Whether the judge or the machine failed, rather than a single sample."""
    if isinstance(error, ChecklistRewardsError | RecursionError):
        return isinstance(error, ModelError | BackendError | ConfigError | StoreError)
    return isinstance(error, RuntimeError | OSError | MemoryError) or not isinstance(error, Exception)


def _reason(error: BaseException) -> str:
    known = isinstance(error, ChecklistRewardsError | UnicodeError)
    return str(error) if known else f"the sample cannot be scored ({type(error).__name__}: {error})."


def _score_content(scores: Sequence[Score | None], errors: Sequence[ErrorRecord]) -> bytes:
    items = ",".join("null" if score is None else _score_json(score) for score in scores)
    return b'{"scores":[%s],"errors":%s}' % (items.encode(), _json(errors))


def _score_json(score: Score) -> str:
    try:
        return score.model_dump_json()
    except ValueError:  # half a surrogate pair
        return _json(score.model_dump(mode="json")).decode()


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
