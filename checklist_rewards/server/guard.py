"""What a web page can do to a server on this machine, and what is refused: for the reward server and the app.

Two kinds of requests reach a server on `http://localhost` without asking it first:

- those that need no preflight: the page cannot read the answer, but the server does the work. Browsers name the page
  in `Origin` and `Sec-Fetch-Site`, and such a body has the type `text/plain` or that of a form;
- those to a name of the attacker that is resolved to this machine (DNS rebinding): the page can read the answer. They
  have that name in `Host`.

[`refusal`] refuses both. Other clients send none of these headers: curl, Python clients, SDKs, load balancers, and
probes, which name an IP address in `Host`. curl's default type, that of an encoded form, is accepted: a form cannot
encode JSON in it. No response has CORS headers.

Bodies are bounded in bytes and in JSON values ([`json_value`]): a value of two bytes takes 60 bytes or more in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

from starlette.datastructures import Headers

MAX_VALUES = 2**20
"""Most values in the JSON of a request, estimated by its brackets and commas."""
MAX_NESTED = 2**17
"""The same for JSON that is the text of a field, such as a checklist."""
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{1,5})?", re.IGNORECASE)
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_OF_FORMS = ("text/plain", "multipart/form-data")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_MARKS = (b",", b"[", b"{")


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    header: str
    message: str


def refusal(
    headers: Headers, is_own: Callable[[str], bool], hint: str = "", *, has_page: bool = False
) -> Refusal | None:
    """Why a request may come from a web page of someone else; None if it does not. `is_own` says whether a value of
    `Host` is a name of this machine, and `hint`, at the end of the messages, what to do. A server that `has_page`
    shows pages, which other sites may link to; the caller then checks that the data of the page has a token."""
    host, origin = headers.get("host"), headers.get("origin")
    if host is not None and not is_own(host):
        return Refusal(
            403, "Host", f"this server answers requests for this machine only, got Host {host!r:.80}{hint}."
        )
    site = headers.get("sec-fetch-site", "none")
    if origin not in (None, f"http://{host}"):
        return Refusal(403, "Origin", f"this request comes from another page, {origin!r:.80}{hint}.")
    if site not in ("same-origin", "none") and not has_page:
        return Refusal(403, "Sec-Fetch-Site", f"this request comes from another page ({site:.20}){hint}.")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _OF_FORMS:
        message = f"the content type {kind!r} is that of a form; send JSON as 'application/json'{hint}."
        return Refusal(415, "Content-Type", message)
    return None


def is_loopback(host: str) -> bool:
    """Whether `Host` is localhost, 127.0.0.1 or [::1]."""
    return _LOOPBACK.fullmatch(host) is not None


def is_unrebound(host: str) -> bool:
    """Whether `Host` is a name that no one can point to this machine: an IP address, a name without a dot such as
    `localhost` or that of a container, or one below `.localhost`."""
    found = _AUTHORITY.fullmatch(host)
    if found is None:
        return False
    address, name = found.groups()
    if address is not None or name.replace(".", "").isdigit():
        try:
            ip_address(address or name)
        except ValueError:
            return False
        return True
    return "." not in name or name.lower().endswith(".localhost")


def json_value(content: bytes, most: int = MAX_VALUES) -> Any:
    """The JSON value of a body. Raises [`TooManyValues`] above `most` values, before they take memory, and
    `ValueError` or `RecursionError` for text that is not JSON."""
    if _marks(content) > most and _marks(_STRING.sub(b"", content)) > most:
        raise TooManyValues(f"the JSON has more than {most:,} values; send less at once.")
    return json.loads(content)


class TooManyValues(Exception):
    """JSON with too many values."""


def _marks(content: bytes) -> int:
    return sum(map(content.count, _MARKS))
