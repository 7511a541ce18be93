"""Classifies failed requests.

Each kind of failure has a reason, which becomes the reason of the unanswered read: `too_long`, `refused`, `not_json`
(a web page with status 200), `error_body` (an error with status 200), `empty_choices`, `timeout`, and `backend_error:
...` for all others.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from checklist_rewards.scores.reasons import Reason, Unanswered

RATE_LIMITED = 429
_RETRIED = (408, 409, RATE_LIMITED)
UNAVAILABLE = (0, RATE_LIMITED, 502, 503, 504)
"""Statuses of a server that takes no requests at present, whatever they contain. 0 is a server that did not answer."""
NOT_SERVED = (404, 405, 501)
"""Statuses of a path that the server does not have."""
_FATAL = (401, 402, 403, *NOT_SERVED)
_ABOUT_PROMPT = (Reason.TOO_LONG, Reason.REFUSED)
_LONG = re.compile(r"context.{0,9}(length|window|size)|maximum.{0,40}tokens|(prompt|input).{0,20}too long", re.I)
_REFUSED = re.compile(r"content.?(filter|policy|management)|moderation|flagged", re.I)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed."""

    unanswered: Unanswered
    """Why the reads of the request are unanswered."""
    retry: bool = False
    """Whether a retry of the request may succeed."""
    down: bool = False
    """Whether the server or a proxy does not work. The breaker counts these failures."""
    wait: float | None = None
    """Seconds to wait, as requested by the server."""
    status: int = 200
    message: str = ""
    """The server's own message; "" if there is none."""
    fatal: bool = False
    """Whether all other requests would fail too, for example because of a wrong key or an unknown model."""

    @property
    def bad_request(self) -> bool:
        """Whether the server rejected the request for a reason other than the content of the prompt, as far as
        known."""
        return 400 <= self.status < 500 and not self.retry and self.unanswered.reason not in _ABOUT_PROMPT


def no_connection(error: Exception) -> Failure:
    """The failure for a connection that was refused, reset, or closed before the response."""
    detail = textwrap.shorten(str(error), 200, placeholder=" …") or "no answer"
    return Failure(Unanswered(Reason.BACKEND_ERROR, f"connection failed ({detail})"), retry=True, down=True, status=0)


def timed_out() -> Failure:
    """The failure for a request without a response in time."""
    return Failure(Unanswered(Reason.TIMEOUT), retry=True, down=True, status=0)


def answer_of(status: int, headers: Mapping[str, str], content: bytes, key: str | None) -> dict[str, Any] | Failure:
    """Parse a response: its JSON object, in which `key` contains the answers, or the failure."""
    if status >= 300:
        return _refusal(status, headers, content)
    try:
        body = json.loads(content)
    except ValueError:
        return Failure(Unanswered(Reason.NOT_JSON), retry=True, down=True)
    if key is None and isinstance(body, dict):
        return body
    entries = body.get(key) if isinstance(body, dict) else None
    # The answers of decisions are a list or an object, depending on the protocol.
    if (isinstance(entries, list) and (entries or key != "choices")) or (
        isinstance(entries, dict) and key == "answers"
    ):
        return body
    if entries == [] and not body.get("error"):
        return Failure(Unanswered(Reason.EMPTY_CHOICES), retry=True)
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return Failure(Unanswered(Reason.ERROR_BODY), retry=code not in (400, *_FATAL), down=code != RATE_LIMITED)


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> Failure:
    message = _message(content)
    why = Unanswered(Reason.BACKEND_ERROR, f"status {status}: {message}")
    if status in _RETRIED or (status >= 500 and status not in NOT_SERVED):
        down = status not in (409, RATE_LIMITED)
        return Failure(why, retry=True, down=down, wait=_wait(headers), status=status, message=message)
    if status == 413 or _LONG.search(message):
        return Failure(Unanswered(Reason.TOO_LONG), status=status, message=message)
    if _REFUSED.search(message):
        return Failure(Unanswered(Reason.REFUSED), status=status, message=message)
    return Failure(why, status=status, message=message, fatal=status in _FATAL)


def _message(content: bytes) -> str:
    text = content.decode(errors="replace")
    try:
        body = json.loads(text)
        error = body.get("error", body)
        text = str(error.get("message") or error.get("detail") or text) if isinstance(error, dict) else str(error)
        details = body.get("errors")  # a reward server returns one error per row
        if details and isinstance(details, list):
            text = str(details[0].get("message") or text)
    except (ValueError, AttributeError):
        pass
    return textwrap.shorten(text, 300, placeholder=" …") or "no message"


def _wait(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to `Retry-After-Ms` or `Retry-After` (a number or a date)."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        try:
            return max(0.0, float(value))
        except ValueError:
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
