"""When a request may be sent: one limiter.

A [`Limiter`] admits requests in the order in which they ask: at most `slots` at a time, at most a number of requests
and tokens per minute, and none while the server asks for a pause. A server that responds with status 429 and
`Retry-After` means all requests of this process, not only the one that it refused, so all of them wait until the
server takes requests again ([`Replicas.due`]). Then one request is sent, and only its success lets others
follow: the number of concurrent requests doubles per round up to half of what the server refused, then grows by one
per round. This is the congestion control of TCP Tahoe (Jacobson 1988). However many clients and reads wait, a server
that refuses everything gets one request per pause. A request whose deadline ends within the pause fails at once.
While the server refuses all requests, the wait for a slot counts too, so a run waits for such a server only once:
after it has refused all of them for the `deadline` of a request, each later request has one attempt, until one is
answered.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass

from checklist_rewards.backends.openai.wire import RATE_LIMITED, Failure
from checklist_rewards.images import images_in, shown

CHARACTERS_PER_TOKEN = 4
"""An estimate, which only the rate of tokens depends on."""
_PIXELS_PER_TOKEN, _TOKENS_WITHOUT_SIZE = 750, 1000
"""The same for images; those on the web have no known size."""


def estimated_tokens(*texts: str) -> int:
    """Tokens of some messages, in which an image counts by its pixels.

    >>> from PIL import Image as Pillow
    >>> from checklist_rewards.images import image_of
    >>> red = image_of(Pillow.new("RGB", (750, 100), "red"))
    >>> estimated_tokens(f"What is {red.mark}?"), estimated_tokens("What is it?")
    (104, 2)
    """
    sizes = [image.size for image in images_in(*texts)]
    of_images = [_TOKENS_WITHOUT_SIZE if size is None else size[0] * size[1] // _PIXELS_PER_TOKEN for size in sizes]
    return sum(of_images) + sum(len(shown(text)) for text in texts) // CHARACTERS_PER_TOKEN


@dataclass(slots=True, eq=False)
class Permit:
    """The permission to send one request, for which the request may have to wait. It ends with [`Limiter.done`]."""

    left: float
    """Seconds that are left to the request, without the pauses that it waited for."""
    since: float
    """Until when its wait is deducted from that, by the loop's clock."""
    pauses: int
    """Number of pauses of the server before it was given."""


class Limiter:
    """Limits the requests to a server, or to all of its replicas.

    Args:
        slots (`int`):
            Maximum number of concurrent requests.
        requests_per_minute (`float`, *optional*):
            Maximum number of requests per minute, spaced evenly so that no minute exceeds it and a run does not start
            with a burst. No limit by default.
        tokens_per_minute (`float`, *optional*):
            The same for tokens.
        deadline (`float`, *optional*):
            Seconds to wait for a server that refuses all requests.
    """

    def __init__(
        self,
        slots: int,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        deadline: float = math.inf,
    ):
        self.slots, self.deadline = slots, deadline
        self.under_way = 0
        """Number of permits that have not ended."""
        self._window = self._threshold = float(slots)
        self._waiting: OrderedDict[Permit, asyncio.Future[Failure | None]] = OrderedDict()
        """The permits for which requests wait. None gives one, and a failure refuses it."""
        self._pauses = 0
        self._refuses_since: float | None = None
        """When the server refused a request because of its rate, if it has answered none since."""
        self._resumes: asyncio.TimerHandle | None = None
        """Ends the pause. None if the server asks for none."""
        self._refusal: Failure | None = None
        self._per_request = 60 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._request_free = self._token_free = 0.0
        """When the rates allow the next request, by the loop's clock."""
        self._turn = asyncio.Lock()

    async def admit(self, left: float) -> Permit | Failure:
        """Wait until a request may be sent.

        Args:
            left (`float`):
                Seconds that are left to the request. The pauses of the server count; the wait for a slot counts only
                while the server refuses all requests.

        Returns:
            `Permit` or [`Failure`]: The permit; or the failure by which the server asked for a longer pause than that.
        """
        loop = asyncio.get_running_loop()
        permit = Permit(left, loop.time(), self._pauses)
        if self._resumes is not None:
            permit.left -= self._resumes.when() - permit.since
            permit.since = self._resumes.when()
            if (permit.left <= 0 or self.is_over) and self._refusal is not None:
                return self._refusal
        elif not self._waiting and self.under_way < int(self._window):
            self.under_way += 1
            return permit
        given = self._waiting[permit] = loop.create_future()
        try:
            return await given or permit
        except BaseException:  # cancelled, perhaps just after it was given
            if self._waiting.pop(permit, None) is None and not given.cancelled() and given.result() is None:
                self.done(permit, None)
            raise

    @property
    def is_over(self) -> bool:
        """Whether the server has refused all requests for the whole deadline."""
        since = self._refuses_since
        return since is not None and asyncio.get_running_loop().time() - since >= self.deadline

    async def spend(self, tokens: int) -> bool:
        """Wait until the rates allow a request with this many tokens.

        Returns:
            `bool`: Whether it may be sent. False, and nothing is spent, if the server asks for a pause by then.
        """
        if not self._per_request and not self._per_token:
            return self._resumes is None
        clock = asyncio.get_running_loop().time
        async with self._turn:  # first come, first served; whoever is cancelled has spent nothing
            now = clock()
            start = max(now, self._request_free, self._token_free)
            if start > now:
                await asyncio.sleep(start - now)
            if self._resumes is not None:
                return False
            self._request_free = start + self._per_request
            self._token_free = start + tokens * self._per_token
            return True

    def done(self, permit: Permit, outcome: object, resumes: float | None = None) -> None:
        """Record the end of a request.

        Args:
            permit ([`Permit`]):
                The permit of the request.
            outcome (response, [`Failure`] or None):
                The outcome; None if the request was cancelled.
            resumes (`float`, *optional*):
                When the server takes requests again, by the loop's clock, if it refused this one because of its rate
                and said how long.
        """
        self.under_way -= 1
        is_latest = permit.pauses == self._pauses
        if isinstance(outcome, Failure) and outcome.status == RATE_LIMITED:
            self._refusal = outcome
            if self._refuses_since is None:
                self._refuses_since = asyncio.get_running_loop().time()
            if resumes is not None:
                if is_latest:  # later refusals are of requests that were sent before this pause
                    self._pauses += 1
                    self._threshold, self._window = max(1.0, self._window / 2), 1.0
                self._pause(resumes, outcome)
        elif outcome.is_response if isinstance(outcome, Failure) else outcome is not None:
            self._refuses_since = None
            if is_latest and self._window < self.slots:
                self._window += 1.0 if self._window < self._threshold else 1 / self._window
                self._window = min(self._window, float(self.slots))
        self._admit_waiting()

    def _pause(self, until: float, refusal: Failure) -> None:
        """Begin a pause, or extend it. It is deducted in advance from what is left to the requests that wait."""
        loop = asyncio.get_running_loop()
        self._refusal = refusal
        begins = loop.time() if self._resumes is None else self._resumes.when()
        if until <= begins:
            return
        if self._resumes is not None:
            self._resumes.cancel()
        self._resumes = loop.call_at(until, self._resume)
        for permit, given in list(self._waiting.items()):
            self._deduct_wait(permit, loop.time())
            permit.left -= until - begins
            permit.since = until
            if permit.left <= 0 or self.is_over:
                del self._waiting[permit]
                if not given.done():
                    given.set_result(refusal)

    def _resume(self) -> None:
        self._resumes = None
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._resumes is None and self.under_way < int(self._window):
            permit, given = self._waiting.popitem(last=False)
            if given.done():  # cancelled
                continue
            self._deduct_wait(permit, asyncio.get_running_loop().time())
            if permit.left <= 0 and self._refusal is not None:
                given.set_result(self._refusal)
            else:
                self.under_way += 1
                permit.pauses = self._pauses
                given.set_result(None)

    def _deduct_wait(self, permit: Permit, now: float) -> None:
        """Deduct the wait for a slot, which counts while the server refuses all requests."""
        if self._refuses_since is not None:
            permit.left -= max(0.0, now - max(permit.since, self._refuses_since))
        permit.since = max(permit.since, now)
