"""Detects that a server is down, and chooses the replica that gets a request. Pure: no clock and no network.

All requests about one text have the same key, and go to the replica whose prefix cache holds the text. The replicas
are ordered by rendezvous hashing: by a hash of the key and the replica's address (Thaler and Ravishankar, 1998). The
order depends on nothing else, so all clients of the replicas agree on it, and a replica that leaves or joins moves
only its own keys. A request goes to the first replica in this order that is neither set aside nor busy: with more
reads in flight than 1.25 times the mean (consistent hashing with bounded loads; Mirrokni, Thorup and Zadimoghaddam,
2018). A replica with few reads in flight is never busy, or the first reads about a text would be spread.

An [`Outage`] is the failure detector of one replica, and of all of them together (`limits.Breaker`):

    up       Gets requests.
    down     Failed, or asked to wait (`Retry-After`). After a pause it gets one request as a probe. A failed probe
             doubles the pause, up to 15 s, unless the server says how long to wait. An answer ends the outage.

The requests of a replica that is down are sent to the other replicas; it is set aside.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

LOAD_FACTOR = 1.25
FREE_READS = 64
"""A replica with at most this many reads in flight is not busy."""
_LONGEST_PAUSE = 15.0


def prefix_key(*parts: str | None) -> str:
    """The key of a prefix: a short hash of its parts."""
    return blake2b("\0".join(part or "" for part in parts).encode(), digest_size=12).hexdigest()


class Sent(NamedTuple):
    """A request to one replica. It ends with exactly one of `answered`, `failed` and `released`."""

    place: int
    reads: int
    probe: bool


class Outage:
    """Whether a server, or one of its replicas, is down, and when it is probed.

    Args:
        pause (`float`):
            Seconds before the first probe.
    """

    def __init__(self, pause: float):
        self.first_pause = self.pause = pause
        self.failures = 0
        """Failures since the last answer."""
        self.since: float | None = None
        """When the outage began. None while the server is up."""
        self.until = 0.0
        """When the next probe is due."""
        self.probing = False

    @property
    def is_up(self) -> bool:
        """Whether the server gets requests."""
        return self.since is None

    def is_due(self, now: float) -> bool:
        """Whether the next request is a probe."""
        return self.since is not None and not self.probing and now >= self.until

    def ended(self, probe: bool) -> None:
        """Record the end of a request, whatever its outcome."""
        self.probing &= not probe

    def answered(self) -> None:
        """Record a request that the server answered."""
        self.failures, self.since, self.pause = 0, None, self.first_pause

    def failed(self, now: float, probe: bool, tolerated: int = 0, wait: float | None = None) -> bool:
        """Record a request without a valid response.

        Args:
            now (`float`):
                The time in seconds.
            probe (`bool`):
                Whether the request was the probe. Others were in flight when the outage began, and do not lengthen the
                pause.
            tolerated (`int`, *optional*, defaults to `0`):
                Number of consecutive failures after which the server still counts as up.
            wait (`float`, *optional*):
                Seconds that the server asked to wait, instead of a growing pause.

        Returns:
            `bool`: Whether the outage began, or a probe of it failed.
        """
        self.failures += 1
        if self.since is None and self.failures > tolerated:
            self.since = now
        elif self.since is not None and probe:
            self.pause = min(2 * self.pause, _LONGEST_PAUSE)
        else:
            if self.since is not None and wait is not None:
                self.until = max(self.until, now + wait)
            return False
        self.until = now + (self.pause if wait is None else wait)
        return True


class _State:
    def __init__(self, pause: float):
        self.outage = Outage(pause)
        self.reads = 0
        """Reads in flight."""


class Replicas:
    """The replicas of a server, by their place in the list of addresses.

    Args:
        addresses (sequence of `str`):
            One address per replica.
        pause (`float`):
            Seconds after which a replica that failed is probed.
    """

    def __init__(self, addresses: Sequence[str], pause: float):
        self.addresses, self.pause = tuple(addresses), pause
        self._states = [_State(pause) for _ in self.addresses]
        self._reads = 0
        self._aside = 0

    def order(self, key: str) -> list[int]:
        """All replicas in the order in which they get requests with this key."""
        if len(self.addresses) == 1:
            return [0]
        hashes = [blake2b(f"{key} {address}".encode(), digest_size=8).digest() for address in self.addresses]
        return sorted(range(len(hashes)), key=hashes.__getitem__)

    def up(self) -> set[int]:
        """The replicas that are not set aside."""
        return {place for place, state in enumerate(self._states) if state.outage.is_up}

    def due(self) -> float | None:
        """When the next replica is probed. None if one is up."""
        return None if self.up() else min(state.outage.until for state in self._states)

    def home(self, key: str) -> int:
        """The replica that holds this key, however busy it is: the first one in order that is up."""
        order, up = self.order(key), self.up()
        return next((place for place in order if place in up), order[0])

    def choose(self, key: str, now: float, reads: int = 1, avoid: Collection[int] = ()) -> Sent:
        """Choose the replica of a request, and count its reads as in flight.

        Args:
            key (`str`):
                The same for all requests that share a prefix.
            now (`float`):
                The time in seconds.
            reads (`int`, *optional*, defaults to `1`):
                Number of reads in the request.
            avoid (collection of `int`, *optional*):
                Replicas that failed this request. They get it only if no other one is up.
        """
        if not avoid and not self._aside:  # the usual case, without a look at every replica
            bound = max(FREE_READS, LOAD_FACTOR * self._reads / len(self._states))
            return self.send_to(next(place for place in self.order(key) if self._states[place].reads <= bound), reads)
        outages = [state.outage for state in self._states]
        ready = [place for place in self.order(key) if outages[place].is_up or outages[place].is_due(now)]
        if not ready:
            ready = [min(range(len(outages)), key=lambda place: outages[place].until)]
        candidates = [place for place in ready if place not in avoid] or ready
        mean = sum(self._states[place].reads for place in candidates) / len(candidates)
        bound = max(FREE_READS, LOAD_FACTOR * mean)
        # The least busy replica is below the mean, so one is found.
        return self.send_to(next(place for place in candidates if self._states[place].reads <= bound), reads)

    def send_to(self, place: int, reads: int = 1) -> Sent:
        """Count a request to a given replica."""
        state = self._states[place]
        sent = Sent(place, reads, probe=not state.outage.is_up and not state.outage.probing)
        state.reads += reads
        self._reads += reads
        state.outage.probing |= sent.probe
        return sent

    def answered(self, sent: Sent) -> None:
        """End a request that the replica answered. The replica is up."""
        outage = self._end(sent)
        self._aside -= not outage.is_up
        outage.answered()

    def failed(self, sent: Sent, now: float, *, wait: float | None = None, tolerated: int = 0) -> bool:
        """End a request that failed.

        Args:
            sent ([`Sent`]):
                The request.
            now (`float`):
                The time in seconds.
            wait (`float`, *optional*):
                Seconds that the replica asked to wait, instead of a growing pause.
            tolerated (`int`, *optional*, defaults to `0`):
                Number of consecutive failures after which the replica is not yet set aside.

        Returns:
            `bool`: Whether the replica is set aside.
        """
        outage = self._end(sent)
        was_up = outage.is_up
        outage.failed(now, sent.probe, tolerated, wait)
        self._aside += was_up and not outage.is_up
        return not outage.is_up

    def set_aside(self, place: int, now: float) -> None:
        """Set a replica aside that is up, although it responds."""
        outage = self._states[place].outage
        if outage.is_up:
            self._aside += outage.failed(now, probe=False)

    def released(self, sent: Sent) -> None:
        """End a request that does not show whether the replica works, such as one that was cancelled."""
        self._end(sent)

    def _end(self, sent: Sent) -> Outage:
        state = self._states[sent.place]
        state.reads -= sent.reads
        self._reads -= sent.reads
        state.outage.ended(sent.probe)
        return state.outage
