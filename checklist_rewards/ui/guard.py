"""Who may talk to the app: one browser on this machine, with the token of the printed URL.

- The printed URL has a random token. The page keeps it and sends it as a header with every request for data; its own
  scripts and style are sent to a browser with the cookie of that URL. The cookie alone opens no data, because browsers
  send cookies to every server of this machine, whatever its port.
- Requests for another host name (DNS rebinding), from another origin and with the body of a form are refused, as the
  reward server does (`server.guard`). CORS is disabled.
- All responses carry a Content-Security-Policy without inline scripts, and `nosniff`.
- Request bodies are bounded.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from checklist_rewards.errors import SampleError
from checklist_rewards.server.guard import MAX_NESTED, TooManyValues, is_loopback, json_value, refusal

HEADER = "x-checklist-rewards-token"
MAX_BODY = 16 * 2**20
COOKIE = "checklist_rewards_page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware that refuses requests without the token, from other origins, and for other hosts."""

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token
        self.page_token = page_token(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on; the response gets the security headers in both cases."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(Request(scope))
        await (self.app if refusal is None else refusal)(scope, receive, secured)

    def _refusal(self, request: Request) -> ASGIApp | None:
        headers = request.headers
        is_data = request.url.path.startswith("/api/")
        foreign = refusal(headers, is_loopback, has_page=not is_data)
        if foreign is not None:
            return _refused(foreign.status, foreign.message)
        if is_data:
            if _equal(headers.get(HEADER), self.token):
                return None
            return _refused(401, "this request has no valid token; open the URL that `checklist-rewards ui` printed.")
        if _equal(request.query_params.get("token"), self.token) or _equal(
            request.cookies.get(cookie_name(headers)), self.page_token
        ):
            return None
        return PlainTextResponse("Open the URL that `checklist-rewards ui` printed; it has the token.\n", 401)


def page_token(token: str) -> str:
    """The value of the cookie for scripts and style: it follows from the token, and not the token from it."""
    return hashlib.sha256(f"page {token}".encode()).hexdigest()


def cookie_name(headers: Headers) -> str:
    """The name of the cookie, with the port: browsers share cookies between the ports of a host."""
    return f"{COOKIE}_{urlsplit('//' + headers.get('host', '')).port or 80}"


async def json_body(request: Request, limit: int = MAX_BODY) -> dict[str, Any]:
    """The JSON object of a request. Raises [`SampleError`] for another body and [`TooLarge`] above the limit."""
    body = await joined(request.stream(), limit, f"the request is larger than {limit:,} bytes.")
    try:
        value = json_value(body, MAX_NESTED)
    except TooManyValues as error:
        raise TooLarge(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise SampleError(f"the request is not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise SampleError(f"the request must be a JSON object, got {type(value).__name__}.")
    return value


async def joined(parts: AsyncIterator[bytes], limit: int, message: str) -> bytes:
    """The parts as one. Raises [`TooLarge`] with the message above the limit."""
    content = bytearray()
    async for part in parts:
        content += part
        if len(content) > limit:
            raise TooLarge(message)
    return bytes(content)


class TooLarge(SampleError):
    """A request body above the limit."""


def _equal(given: str | None, expected: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), expected.encode())


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
