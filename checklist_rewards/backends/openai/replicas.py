"""Detects that a server is down, and chooses the replica that gets a request. Pure: no clock and no network.

All requests about one text have the same key, and go to the replica whose prefix cache holds the text. The replicas
are ordered by rendezvous hashing: by a hash of the key and the replica's address (Thaler and Ravishankar, 1998). The
order depends on nothing else, so all clients of the replicas agree on it, and a replica that leaves or joins moves
only its own keys. A request goes to the first replica in this order that is neither set aside nor busy: with more
reads in flight than 1.25 times the mean (consistent hashing with bounded loads; Mirrokni, Thorup and Zadimoghaddam,
2018). A replica with few reads in flight is never busy, or the first reads about a text would be spread.

[`Replicas`] is the failure detector of each replica, and of the server as a whole:

    up       The replica gets requests.
    aside    It failed, or asked to wait (`Retry-After`). Its requests go to the other replicas. After a pause it gets
             one request as a probe. A failed probe doubles the pause, up to 15 s, unless the server says how long to
             wait. A response ends this.
    down     All replicas are aside, and there was no valid response to `failures` requests in a row. Then nothing is
             sent but the probes. A response of any replica ends this.
    gone     No probe was answered for `patience` seconds, and a last one of each replica, sent at their end, was not
             either. All waiting requests fail, and so do all new requests within the next `patience` seconds. Then
             probes are sent again.

A dead server therefore delays a run only once. Then the run ends and lists all missing reads.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

LOAD_FACTOR = 1.25
FREE_READS = 64
"""A replica with at most this many reads in flight is not busy."""
_LONGEST_PAUSE = 15.0


def prefix_key(*parts: str | None) -> str:
    """The key of a prefix: a short hash of its parts."""
    return blake2b("\0".join(part or "" for part in parts).encode(errors="surrogatepass"), digest_size=12).hexdigest()


class Sent(NamedTuple):
    """A request to one replica. It ends with exactly one of `answered`, `failed` and `released`."""

    place: int
    reads: int
    probe: bool
    """Whether the replica is set aside, and this is its only request."""
    at: float
    """When it was sent."""


@dataclass(slots=True)
class _Replica:
    """What is known about one replica."""

    pause: float
    """Seconds until its next probe."""
    is_up: bool = True
    failures: int = 0
    """Failures since the last answer."""
    until: float = 0.0
    """When the next probe is due, if it is set aside."""
    probing: bool = False
    reads: int = 0
    """Reads in flight."""

    def is_ready(self, now: float) -> bool:
        """Whether it gets requests, or a probe is due."""
        return self.is_up or (not self.probing and now >= self.until)


class Replicas:
    """The replicas of a server, by their place in the list of addresses. `pause`, `failures` and `patience` are those
    of [`Settings`]; a replica is first probed after `pause` seconds."""

    def __init__(self, addresses: Sequence[str], pause: float, failures: int, patience: float):
        self.addresses, self.pause, self.failures, self.patience = tuple(addresses), pause, failures, patience
        self.last = ""
        """The last failure while no other replica was up."""
        self.down_since: float | None = None
        """When the server was found to be down. None if it is not."""
        self._replicas = [_Replica(pause) for _ in self.addresses]
        self._failures = 0
        """Failures while no other replica was up, since the last answer."""
        self._gone_until = 0.0

    def order(self, key: str) -> list[int]:
        """All replicas in the order in which they get requests with this key."""
        hashes = [blake2b(f"{key} {address}".encode(), digest_size=8).digest() for address in self.addresses]
        return sorted(range(len(hashes)), key=hashes.__getitem__)

    def up(self) -> set[int]:
        """The replicas that are not set aside."""
        return {place for place, replica in enumerate(self._replicas) if replica.is_up}

    def due(self) -> float | None:
        """When the next replica is probed. None if one is up."""
        return None if self.up() else min(replica.until for replica in self._replicas)

    def wait(self, now: float) -> float:
        """Seconds until [`choose`] has a replica for a request; infinite while all replicas are probed."""
        if self.down_since is None or any(replica.is_ready(now) for replica in self._replicas):
            return 0.0
        return min((replica.until - now for replica in self._replicas if not replica.probing), default=math.inf)

    def is_gone(self, now: float) -> bool:
        """Whether the server counts as gone."""
        return now < self._gone_until

    def home(self, key: str) -> int:
        """The replica that holds this key, however busy it is: the first one in order that is up."""
        order, up = self.order(key), self.up()
        return next((place for place in order if place in up), order[0])

    def choose(self, key: str, now: float, reads: int = 1, avoid: Collection[int] = ()) -> Sent | None:
        """Choose the replica of a request, and count its reads as in flight. None if the server is down and no probe
        is due. `key` is the same for all requests that share a prefix. Replicas in `avoid` failed this request; they
        get it only if no other one is up."""
        order = self.order(key)
        ready = [place for place in order if self._replicas[place].is_ready(now)]
        if not ready and self.down_since is not None:
            return None
        ready = ready or [min(order, key=lambda place: self._replicas[place].until)]
        candidates = [place for place in ready if place not in avoid] or ready
        mean = sum(self._replicas[place].reads for place in candidates) / len(candidates)
        bound = max(FREE_READS, LOAD_FACTOR * mean)
        # The least busy replica is below the mean, so one is found.
        place = next(place for place in candidates if self._replicas[place].reads <= bound)
        return self.send_to(place, now, reads)

    def send_to(self, place: int, now: float, reads: int = 1) -> Sent:
        """Count a request to a given replica."""
        replica = self._replicas[place]
        sent = Sent(place, reads, not replica.is_up and not replica.probing, now)
        replica.reads += reads
        replica.probing |= sent.probe
        return sent

    def answered(self, sent: Sent) -> None:
        """End a request to which the replica responded."""
        replica = self._end(sent)
        replica.is_up, replica.failures, replica.pause = True, 0, self.pause
        self._failures, self.down_since, self._gone_until = 0, None, 0.0

    def failed(
        self, sent: Sent, now: float, *, wait: float | None = None, tolerated: int = 0, reason: str | None = None
    ) -> bool:
        """End a request that failed. Returns whether the replica is set aside.

        Args:
            sent ([`Sent`]): The request.
            now (`float`): The time in seconds.
            wait (`float`, *optional*): Seconds that the replica asked to wait, instead of a growing pause.
            tolerated (`int`, *optional*, defaults to `0`): Number of consecutive failures after which the replica is
                not yet set aside.
            reason (`str`, *optional*): Why there was no valid response. None if there was one, such as status 429.
        """
        replica = self._end(sent)
        replica.failures += 1
        if replica.is_up and replica.failures > tolerated:
            self._set_aside(replica, now, wait)
        elif sent.probe and sent.at >= replica.until:
            replica.pause = min(2 * replica.pause, _LONGEST_PAUSE)
            self._set_aside(replica, now, wait)
        elif not replica.is_up and wait is not None:
            replica.until = max(replica.until, now + wait)
        if reason is not None and not self.up() - {sent.place}:
            self._unanswered(now, reason, sent.probe)
        return not replica.is_up

    def set_aside(self, place: int, now: float) -> None:
        """Set a replica aside that is up, although it responds."""
        if self._replicas[place].is_up:
            self._set_aside(self._replicas[place], now, None)

    def released(self, sent: Sent) -> None:
        """End a request that does not show whether the replica works: it was cancelled."""
        self._end(sent)

    def _unanswered(self, now: float, reason: str, probe: bool) -> None:
        self.last = reason
        self._failures += 1
        if self.down_since is None and self._failures >= self.failures:
            self.down_since = now
        if self.down_since is None:
            return
        gives_up = max(self.down_since + self.patience, self._gone_until)
        if now >= gives_up:
            if probe and not any(replica.probing or replica.until <= gives_up for replica in self._replicas):
                self._gone_until = now + self.patience
                for replica in self._replicas:
                    replica.until = self._gone_until
        else:
            for replica in self._replicas:  # the last probes are sent when the patience ends, and not after it
                replica.until = min(replica.until, gives_up)

    @staticmethod
    def _set_aside(replica: _Replica, now: float, wait: float | None) -> None:
        replica.is_up, replica.until = False, now + (replica.pause if wait is None else wait)

    def _end(self, sent: Sent) -> _Replica:
        replica = self._replicas[sent.place]
        replica.reads -= sent.reads
        replica.probing &= not sent.probe
        return replica
