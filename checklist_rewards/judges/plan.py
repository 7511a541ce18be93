"""The planner: which reads to send to an engine, in what order, and in chunks of which size.

Identical reads are computed once. Reads are grouped by prefix and groups are sorted by prefix, so that completions of
one input, which share rules and instruction, are adjacent in any batch and their common prefix stays in the engine's
cache. A group is never split between two chunks. [`Pace`] limits chunks so that answers are stored every few seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checklist_rewards.backends.base import ReadGroup, Written
from checklist_rewards.files.store import Key

_CHUNK_SECONDS = 5.0
_GROWTH = 8
_FASTER = 1.5
_LATENCIES = 8


@dataclass(frozen=True, slots=True)
class RenderedRead:
    """A read rendered to text, with the store key of everything its answer depends on."""

    key: Key
    system: str | None
    prefix: str
    tail: str
    context: tuple[tuple[str, str], ...] = ()
    """As in [`ReadGroup`]."""
    written: Written | None = None
    """The thought after which the label is read."""


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group for the engine, with the key of each tail."""

    group: ReadGroup
    keys: tuple[Key, ...]


def distinct(reads: Sequence[RenderedRead]) -> dict[Key, RenderedRead]:
    """Each read once, in order of first appearance."""
    return {read.key: read for read in reads}


def group_by_prefix(reads: Sequence[RenderedRead]) -> list[PlannedGroup]:
    """Group distinct reads by system prompt, prefix and context, sorted so that groups with a common start are
    adjacent. Reads of several questions after one thought are a group of their own, whose prefix includes the thought.
    """
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...], str], list[RenderedRead]] = {}
    for read in reads:
        thought = read.written.thought if read.written is not None and read.written.question else ""
        groups.setdefault((read.system or "", read.prefix, read.context, thought), []).append(read)
    return [
        PlannedGroup(
            ReadGroup(
                members[0].system,
                members[0].prefix,
                tuple(read.tail for read in members),
                members[0].context,
                tuple(read.written for read in members if read.written is not None),
            ),
            tuple(read.key for read in members),
        )
        for _, members in sorted(groups.items(), key=lambda group: group[0])
    ]


class Pace:
    """The number of reads per chunk, chosen so that a killed run loses only a few seconds of work.

    The first chunk is one group. Each later chunk may grow up to 8 times, as long as it is expected to take at most
    5 s. An engine with high latency and high throughput, such as a busy server, would be idle most of the time. It is
    recognized by a higher rate on larger chunks, and gets chunks that take 8 times as long as the quickest one. Chunks
    never shrink, because an engine that became slower may be such an engine.
    """

    def __init__(self) -> None:
        self.reads = 1
        """Maximum number of reads in the next chunk."""
        self._quickest = math.inf
        self._first_rate: float | None = None

    def took(self, reads: int, seconds: float) -> None:
        """Update the chunk size with the duration of an answered chunk."""
        seconds = max(seconds, 1e-9)
        self._quickest = min(self._quickest, seconds)
        growth = _CHUNK_SECONDS / seconds
        if self._first_rate is None:
            self._first_rate, growth = reads / seconds, max(growth, 2)
        elif reads / seconds > _FASTER * self._first_rate:
            growth = max(growth, _LATENCIES * self._quickest / seconds)
        self.reads = max(self.reads, int(reads * min(growth, _GROWTH)))


def chunks(groups: Sequence[PlannedGroup], chunk_reads: int, pace: Pace | None = None) -> Iterator[list[PlannedGroup]]:
    """Split groups into chunks of at most `chunk_reads` reads; a larger group is a chunk of its own.

    Args:
        groups (sequence of [`PlannedGroup`]):
            Groups to split.
        chunk_reads (`int`):
            Limit of the engine.
        pace ([`Pace`], *optional*):
            Lower limit, evaluated before each group is added.
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
