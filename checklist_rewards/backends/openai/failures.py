"""What went wrong with a request, and what is to be done about it.

Every way of getting no answer has a reason of its own, which is what an unanswered read says: `too_long`, `refused`,
`not_json` (a web page with status 200), `error_body` (an error with status 200), `empty_choices`, `timeout`, and
`backend_error: ...` for the rest.
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

from checklist_rewards.backends.base import TOO_LONG

TIMEOUT = "timeout"
RATE_LIMITED = 429
_RETRIED = (408, 409, RATE_LIMITED)
_FATAL = (401, 402, 403, 404, 405)
_LONG = re.compile(r"context.{0,9}(length|window|size)|maximum.{0,40}tokens|(prompt|input).{0,20}too long", re.I)
_REFUSED = re.compile(r"content.?(filter|policy|management)|moderation|flagged", re.I)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no answer."""

    reason: str
    """As in `unanswered`."""
    retry: bool = False
    """The same request may fare better later."""
    down: bool = False
    """The server, or what is in front of it, does not work: the breaker counts it."""
    wait: float | None = None
    """Seconds that the server asks to wait."""
    status: int = 200
    fatal: bool = False
    """No other request would fare better: a wrong key, no such model."""

    @property
    def bad_request(self) -> bool:
        """The server did not take the request as it was, and it is not the prompt's fault as far as one can see."""
        return 400 <= self.status < 500 and not self.retry and self.reason not in (TOO_LONG, "refused")


def no_connection(error: Exception) -> Failure:
    """The transport failed: refused, reset, closed before the answer."""
    detail = textwrap.shorten(str(error), 200, placeholder=" …") or "no answer"
    return Failure(f"backend_error: connection failed ({detail})", retry=True, down=True, status=0)


def timed_out() -> Failure:
    """No answer in time."""
    return Failure(TIMEOUT, retry=True, down=True, status=0)


def answer_of(status: int, headers: Mapping[str, str], content: bytes, key: str | None) -> dict[str, Any] | Failure:
    """The JSON object of a response whose list `key` holds what was asked for, or what is wrong with it."""
    if status >= 300:
        return _refusal(status, headers, content)
    try:
        body = json.loads(content)
    except ValueError:
        return Failure("not_json", retry=True, down=True)
    if key is None and isinstance(body, dict):
        return body
    found = body.get(key) if isinstance(body, dict) else None
    if isinstance(found, list) and (found or key != "choices"):
        return body
    if found == [] and not body.get("error"):
        return Failure("empty_choices", retry=True)
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return Failure("error_body", retry=code not in (400, *_FATAL), down=code != RATE_LIMITED)


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> Failure:
    message = _message(content)
    reason = f"backend_error: status {status}: {message}"
    if status in _RETRIED or status >= 500:
        down = status not in (409, RATE_LIMITED)
        return Failure(reason, retry=True, down=down, wait=_wait(headers), status=status)
    if status == 413 or _LONG.search(message):
        return Failure(TOO_LONG, status=status)
    if _REFUSED.search(message):
        return Failure("refused", status=status)
    return Failure(reason, status=status, fatal=status in _FATAL)


def _message(content: bytes) -> str:
    text = content.decode(errors="replace")
    try:
        body = json.loads(text)
        error = body.get("error", body)
        text = str(error.get("message") or error.get("detail") or text) if isinstance(error, dict) else str(error)
        details = body.get("errors")  # a reward server's, one per row
        if details and isinstance(details, list):
            text = str(details[0].get("message") or text)
    except (ValueError, AttributeError):
        pass
    return textwrap.shorten(text, 300, placeholder=" …") or "no message"


def _wait(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `Retry-After`, given as a number or a date, or `Retry-After-Ms`."""
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
