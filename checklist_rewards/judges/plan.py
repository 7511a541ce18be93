"""The planner: which reads an engine must really answer, in what order, and how many at once.

Identical reads are made once. Reads are grouped by prefix, groups are sorted by it (so the completions of one input,
which share its rules and instruction, stand together however a trainer mixed them, and what they share stays in the
engine's cache), and a group is never cut between two chunks. [`Pace`] keeps chunks short enough that answers reach
the store every few seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.files.store import Key

_CHUNK_SECONDS = 5.0
_GROWTH = 8
_FASTER = 1.5
_LATENCIES = 8


@dataclass(frozen=True, slots=True)
class RenderedRead:
    """A read as text, with the key of everything its answer depends on."""

    key: Key
    system: str | None
    prefix: str
    tail: str


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group for the engine, with the key of each tail."""

    group: ReadGroup
    keys: tuple[Key, ...]


def distinct(reads: Sequence[RenderedRead]) -> dict[Key, RenderedRead]:
    """Each read once, in order of first appearance."""
    return {read.key: read for read in reads}


def group_by_prefix(reads: Sequence[RenderedRead]) -> list[PlannedGroup]:
    """Group distinct reads by what they share; groups that begin alike (completions of one input) become
    neighbours."""
    groups: dict[tuple[str | None, str], list[RenderedRead]] = {}
    for read in reads:
        groups.setdefault((read.system, read.prefix), []).append(read)
    return [
        PlannedGroup(ReadGroup(system, prefix, tuple(r.tail for r in members)), tuple(r.key for r in members))
        for (system, prefix), members in sorted(groups.items(), key=lambda group: (group[0][0] or "", group[0][1]))
    ]


class Pace:
    """How many reads to hand to an engine at once, so that a killed run loses a few seconds of work.

    The first chunk is one group. Each later one is larger, at most 8 times, as long as it is expected to take 5 s.
    An engine that answers many reads at once but each one late (a busy server) would be idle most of the time: it is
    known by being faster on larger chunks, and gets chunks of 8 times the quickest one. Chunks never shrink, because
    an engine that has become slow may have become such an engine.
    """

    def __init__(self) -> None:
        self.reads = 1
        """Reads in the next chunk at most."""
        self._quickest = math.inf
        self._first_rate: float | None = None

    def took(self, reads: int, seconds: float) -> None:
        """Learn from a chunk that the engine answered."""
        seconds = max(seconds, 1e-9)
        self._quickest = min(self._quickest, seconds)
        growth = _CHUNK_SECONDS / seconds
        if self._first_rate is None:
            self._first_rate, growth = reads / seconds, max(growth, 2)
        elif reads / seconds > _FASTER * self._first_rate:
            growth = max(growth, _LATENCIES * self._quickest / seconds)
        self.reads = max(self.reads, int(reads * min(growth, _GROWTH)))


def chunks(groups: Sequence[PlannedGroup], chunk_reads: int, pace: Pace | None = None) -> Iterator[list[PlannedGroup]]:
    """Cut into runs of at most `chunk_reads` reads, or a single group where one is larger.

    Args:
        groups (sequence of [`PlannedGroup`]): What to cut.
        chunk_reads (`int`): The engine's own limit.
        pace ([`Pace`], *optional*): A lower limit, looked up whenever a group would be added.
    """
    chunk: list[PlannedGroup] = []
    size = 0
    for group in groups:
        most = chunk_reads if pace is None else min(chunk_reads, pace.reads)
        if chunk and size + len(group.keys) > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(group)
        size += len(group.keys)
    if chunk:
        yield chunk
