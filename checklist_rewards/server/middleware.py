"""Authorization and counting of requests."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checklist_rewards.errors import SampleError
from checklist_rewards.server.responses import error_response
from checklist_rewards.server.rows import error_record

_OPEN_PATHS = ("/health", "/ready")
"""Paths without a token, for the probes of an orchestrator."""


def check_token(token: str | None) -> None:
    """Raise [`SampleError`] for a blank token, which every client could send."""
    if token is not None and not token.strip():
        raise SampleError("the token is blank; set one, or token=None to accept requests without a token.")


class AuthAndMetrics:
    """Middleware that checks the token and counts requests.

    It is plain ASGI, because Starlette's middleware class runs every request in its own task, which costs more than
    the rest of a small request.

    Args:
        app (`ASGIApp`):
            The application.
        count (`Callable[[str, int, float], None]`):
            Called with path, status and seconds of each answered request.
        token (`str`, *optional*):
            Bearer token that clients must send.
    """

    def __init__(self, app: ASGIApp, count: Callable[[str, int, float], None], token: str | None):
        self.app, self.count = app, count
        self.token = None if token is None else token.strip().encode()
        message = "this server requires the header 'Authorization: Bearer <token>'."
        record = error_record(None, "Authorization", message)
        self.refusal = error_response(message, [record], 401, {"WWW-Authenticate": "Bearer"})

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
            app = self.app if self._authorized(scope) else self.refusal
            await app(scope, receive, watched)
        finally:
            self.count(scope["path"], status, time.perf_counter() - started)

    def _authorized(self, scope: Scope) -> bool:
        if self.token is None or scope["path"] in _OPEN_PATHS:
            return True
        # Compare bytes, because hmac.compare_digest raises for strings that are not ASCII.
        scheme, _, token = Headers(scope=scope).get("authorization", "").encode("latin-1").partition(b" ")
        return hmac.compare_digest(token.strip(), self.token) and scheme.lower() == b"bearer"
