"""The endpoints of the reward server.

`POST /score` takes rows and returns [`Score`]s, `POST /reward` is OpenRLHF's remote reward interface, and `POST
/v1/decisions` and `POST /v1/systemone` are Decisions APIs (`decisions.py`). `GET /v1/models` names the judge. `GET
/health`, `GET /ready` and `GET /metrics` (Prometheus text) are for monitoring. All requests share one queue
(`scoring`), so even requests with a single row reach the engine in batches.

Every response with scores, rewards or decisions, and `/health`, have the judge's name and the hash of its models,
prompts and settings (`identity`), so that a client notices a server that was restarted with another judge.

Errors have the body `{"error": sentence, "errors": [{"row", "field", "message"}, ...]}`:

- 400: a decision or a header cannot be read.
- 401: the token is missing or wrong.
- 403, 415: without a token, the request may come from a web page: another `Host`, `Origin` or content type (`guard`).
- 404: a decision names another model.
- 408: the body did not arrive in time.
- 413: the body is too large, has too many rows, items or JSON values, or more tokens than the queue may hold.
- 422: no row of `/score`, or not every row of `/reward`, is valid; or a row of `/reward` has no answer and
  `no_answer="unscored"` is set.
- 429: too many tokens are waiting. `Retry-After` is the time after which there is room at the measured rate.
- 431: the request line and the headers are larger than 64 KiB; the connection is closed (`connections`).
- 500: the judge failed for the whole request.
- 503: the judge could not score a row of `/reward` or answer a decision, or the server is shutting down. `/ready`: the
  server should get no requests.

An invalid row of `/score` does not affect the others: its place in `scores` is null and `errors` has the row (from 1)
and the field. The response of `/reward` has no place for errors, so a single invalid or unscored row fails the
request. OpenRLHF sends a request five times whatever its status, and then skips the reward, so invalid rows of
`/reward` are also logged here as errors. A failure of the judge is never a number.

Rows are parsed and validated in threads, because large rows would block the event loop. A client that disconnects is
counted with status 499, and its rows leave the queue unless they are being scored.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import DEADLINE_HEADER, TOKEN_VARIABLE
from checklist_rewards.rewards.integrations.labelled import score_details, unscored_reason
from checklist_rewards.rewards.integrations.queue import DEFAULT_MAX_BATCH, DEFAULT_MAX_WAIT
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.server.connections import Drain
from checklist_rewards.server.decisions import (
    DecisionRequest,
    decision_answers,
    decision_request,
    system_one_answers,
    system_one_request,
)
from checklist_rewards.server.guard import is_unrebound, refusal
from checklist_rewards.server.metrics import PATHS
from checklist_rewards.server.rows import (
    ErrorRecord,
    Refused,
    as_json,
    error_record,
    listed,
    refused_rows,
    reward_samples,
    score_samples,
)
from checklist_rewards.server.scoring import DEFAULT_MAX_TOKENS, Outcome, ScoringQueue
from checklist_rewards.version import __version__


def json_response(content: Any) -> Response:
    """A response of JSON in ASCII."""
    return Response(as_json(content), media_type="application/json")


def refused_response(refused: Refused) -> Response:
    """The response for an error."""
    return Response(refused.content, refused.status, refused.headers, "application/json")


def score_content(scores: Sequence[Score | None], errors: Sequence[ErrorRecord], judge: Mapping[str, str]) -> bytes:
    """The body of a response of `/score`, with the fields of `judge`."""
    items = ",".join("null" if score is None else _score_json(score) for score in scores)
    return b'{"scores":[%s],%s' % (items.encode(), as_json({"errors": listed(errors), **judge})[1:])


def _score_json(score: Score) -> str:
    try:
        return score.model_dump_json()
    except ValueError:  # half a surrogate pair
        return as_json(score.model_dump(mode="json")).decode()


_HINT = f"; set {TOKEN_VARIABLE} on the server and the client to be answered under any name"
_OPEN_PATHS = ("/health", "/ready")
"""Paths without a token, for the probes of an orchestrator."""


class AuthAndMetrics:
    """Middleware that checks the token, refuses requests of web pages (`guard`) and counts requests: `count` is called
    with path, status and seconds of each. It is plain ASGI, because Starlette's middleware class runs every request in
    its own task, which costs more than the rest of a small request."""

    def __init__(self, app: ASGIApp, count: Callable[[str, int, float], None], token: str | None):
        self.app, self.count = app, count
        self.token = None if token is None else token.strip().encode()
        message = "this server requires the header 'Authorization: Bearer <token>'."
        refused = Refused(401, message, "Authorization", headers={"WWW-Authenticate": "Bearer"})
        self.refusal = refused_response(refused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await (self._refusal(scope["path"], Headers(scope=scope)) or self.app)(scope, receive, watched)
        finally:
            self.count(scope["path"], status, time.perf_counter() - started)

    def _refusal(self, path: str, headers: Headers) -> ASGIApp | None:
        """Why a request is refused. The token shows that a request is not that of a web page; without one, the
        headers of browsers do."""
        if self.token is None:
            foreign = refusal(headers, is_unrebound, _HINT)
            return foreign and refused_response(Refused(foreign.status, foreign.message, foreign.header))
        if path in _OPEN_PATHS:
            return None
        # Compare bytes, because hmac.compare_digest raises for strings that are not ASCII.
        scheme, _, token = headers.get("authorization", "").encode("latin-1").partition(b" ")
        is_equal = hmac.compare_digest(token.strip(), self.token) and scheme.lower() == b"bearer"
        return None if is_equal else self.refusal


logger = logging.getLogger(__name__)

Parse = Callable[[bytes, ChecklistScorer], DecisionRequest]
Answers = Callable[[DecisionRequest, Score, str], dict[str, Any]]
Respond = Callable[[Request, bytes], Awaitable[Response]]
MAX_BODY = 16 * 2**20
"""Maximum size of a request body in bytes."""
BODY_SECONDS = 60.0
"""Longest time for a request body to arrive."""
CLOSE_SECONDS = 3.0
"""Longest time to wait at exit for a batch whose clients are gone."""
_LARGE = 2**16
"""Request size in bytes from which scores are serialized in a thread, so that small requests do not wait."""
_DISCONNECTED = 499
"""nginx's status for a client that disconnected before the response."""


def build_app(
    scorer: ChecklistScorer,
    *,
    max_wait: float = DEFAULT_MAX_WAIT,
    max_batch: int = DEFAULT_MAX_BATCH,
    max_queue: int | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    token: str | None = None,
) -> FastAPI:
    """Build the ASGI application.

    Args:
        scorer ([`ChecklistScorer`]):
            Scorer for all requests. Its judge is checked here, and loaded at the first row if it is not loaded yet.
        max_wait, max_batch, max_queue, max_tokens:
            As in [`MicroBatcher`], with estimated tokens (see `scoring`). Requests get status 429 while the queue is
            full.
        token (`str`, *optional*):
            Bearer token that clients must send. It must not be blank.

    Returns:
        `FastAPI`: The application.

    Raises:
        ChecklistRewardsError: If the judge cannot be used.
        SampleError: If the token is blank.
    """
    if token is not None and not token.strip():  # every client could send it
        raise SampleError("the token is blank; set one, or token=None to accept requests without a token.")
    scorer.validate()
    queue = ScoringQueue(scorer, max_wait=max_wait, max_batch=max_batch, max_queue=max_queue, max_tokens=max_tokens)
    drain = Drain()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        # In a daemon thread, so that the process can exit even if the engine never returns.
        closing = threading.Thread(target=queue.close, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)

    judged_by = {"judge": scorer.judge.name, "identity": scorer.identity}
    app = FastAPI(title="checklist-rewards", version=__version__, lifespan=lifespan)
    app.state.drain = drain
    app.add_middleware(AuthAndMetrics, count=queue.counts.count, token=token)

    @app.exception_handler(Refused)
    async def _refused(request: Request, error: Refused) -> Response:
        if request.url.path == "/reward" and error.status == 422:
            for record in error.errors:
                _log_invalid(record["field"], record["message"])
        return refused_response(error)

    @app.exception_handler(ClientDisconnect)
    async def _disconnected(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_DISCONNECTED)  # only counted, since the client is gone

    @app.exception_handler(HTTPException)
    async def _no_such_path(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}; the paths are {', '.join(PATHS)}."
        return refused_response(Refused(error.status_code, message, "path", headers=error.headers))

    def posted(path: str, respond: Respond) -> None:
        @app.post(path, name=path)
        async def received(request: Request) -> Response:
            content = await _body(request)
            with drain:
                return await respond(request, content)

    async def score_rows(request: Request, content: bytes) -> Response:
        rows, samples, errors = await asyncio.to_thread(score_samples, content, scorer)
        if not samples:
            raise refused_rows(errors, rows)
        scores: list[Score | None] = [None] * rows
        outcomes = await _scored(request, queue, [sample for _, sample in samples], "samples")
        for (number, _), outcome in zip(samples, outcomes, strict=True):
            if isinstance(outcome, Score):
                scores[number - 1] = outcome
            else:
                errors.append(error_record(number, "sample", outcome.message))
        errors.sort(key=lambda error: error["row"])
        if len(errors) == rows:
            raise refused_rows(errors, rows)
        if len(content) < _LARGE:
            answer = score_content(scores, errors, judged_by)
        else:
            answer = await asyncio.to_thread(score_content, scores, errors, judged_by)
        return Response(answer, media_type="application/json")

    async def reward_rows(request: Request, content: bytes) -> Response:
        samples = await asyncio.to_thread(reward_samples, content, scorer)
        rewards: list[float] = []
        logs: list[dict[str, float]] = []
        errors: list[ErrorRecord] = []
        unscored: list[ErrorRecord] = []
        for number, outcome in enumerate(await _scored(request, queue, samples, "query"), start=1):
            if not isinstance(outcome, Score):
                errors.append(error_record(number, "query", outcome.message))
            elif outcome.primary_score is None and outcome.no_answer:
                message = f"row {number}: the query has no answer ({outcome.state}), which is not scored."
                errors.append(error_record(number, "query", message))
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
        return json_response({"rewards": rewards, "scores": rewards, "extra_logs": extra_logs, **judged_by})

    async def decide(parse: Parse, answers: Answers, request: Request, content: bytes) -> Response:
        decision = await asyncio.to_thread(parse, content, scorer)
        [outcome] = await _scored(request, queue, [decision.sample], "questions")
        if not isinstance(outcome, Score):
            raise Refused(400, outcome.message, "questions")
        identity = judged_by["identity"]
        named = {"identity": identity, "system_fingerprint": identity}
        return json_response(answers(decision, outcome, scorer.judge.name) | named)

    posted("/score", score_rows)
    posted("/reward", reward_rows)
    posted("/v1/decisions", functools.partial(decide, decision_request, decision_answers))
    posted("/v1/systemone", functools.partial(decide, system_one_request, system_one_answers))

    @app.get("/v1/models")
    async def models() -> Response:
        return json_response({"object": "list", "data": [{"id": scorer.judge.name, "object": "model"}]})

    @app.get("/health")
    async def health() -> Response:
        return json_response(
            {
                "status": "ok",
                "version": __version__,
                **judged_by,
                "waiting": queue.waiting,
                "messages_threshold": float(scorer.aggregation.threshold),  # rows may have messages
            }
        )

    @app.get("/ready")
    async def ready() -> Response:
        problem = "the server is shutting down" if drain.requested.is_set() else queue.problem()
        if problem is not None:
            raise Refused(503, f"the server is not ready: {problem}.")
        return json_response({"status": "ready", "judge": scorer.judge.name, "waiting": queue.waiting})

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(queue.counts.text(), media_type="text/plain; version=0.0.4")

    return app


@functools.lru_cache(maxsize=1024)
def _log_invalid(field: str, message: str) -> None:
    """Log an invalid row of `/reward` once: OpenRLHF hides the response and repeats the request."""
    logger.error("POST /reward: %s: %s", field, message)


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise Refused(413, f"the body is larger than {MAX_BODY} bytes; send fewer rows at once.")
                parts.append(part)
    except TimeoutError:
        message = f"the body did not arrive within {BODY_SECONDS:g} s; send fewer rows at once."
        raise Refused(408, message, headers={"Connection": "close"}) from None
    return b"".join(parts)


async def _scored(request: Request, queue: ScoringQueue, samples: list[Sample], field: str) -> list[Outcome]:
    """A score or an error per sample.

    Raises:
        Refused: For an error of the whole request.
        ClientDisconnect: If the client disconnected. Its samples are not scored unless their batch already runs.
    """
    work = queue.score(samples, field, client=_client(request), seconds=_seconds_left(request))
    scoring = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(request.receive())  # after the body, the only message is the disconnect
    try:
        await asyncio.wait((scoring, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not scoring.done():
            raise ClientDisconnect
        outcomes = scoring.result()
    except asyncio.CancelledError:
        raise Refused(
            503, "the server is shutting down before these rows are scored; send them again.", field
        ) from None
    finally:
        disconnect.cancel()
        scoring.cancel()
    for outcome in outcomes:
        if isinstance(outcome, Refused) and outcome.status == 500:
            raise outcome
    return outcomes


def _client(request: Request) -> str:
    """Whose turn a request is: its address and its API key."""
    host = "" if request.client is None else request.client.host
    return f"{host} {request.headers.get('authorization', '')}"


def _seconds_left(request: Request) -> float | None:
    """Seconds that the client waits for the response; None without the header."""
    header = request.headers.get(DEADLINE_HEADER)
    if header is None:
        return None
    try:
        milliseconds = float(header)
    except ValueError:
        milliseconds = float("nan")
    if not 0 <= milliseconds < float("inf"):
        message = f"{DEADLINE_HEADER} must be the number of milliseconds that the client waits, got {header!r:.40}."
        raise Refused(400, message, DEADLINE_HEADER)
    return milliseconds / 1000
