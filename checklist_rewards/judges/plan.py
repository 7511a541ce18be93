"""The planner: which reads an engine must really answer, and in what order. Pure functions over rendered text.

Identical reads are made once. Reads are grouped by prefix, groups are sorted by it (so the completions of one input,
which share its rules and instruction, stand together however a trainer mixed them, and what they share stays in the
engine's cache), and a group is never cut between two chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.store import Key


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


def chunks(groups: Sequence[PlannedGroup], chunk_reads: int) -> Iterator[list[PlannedGroup]]:
    """Cut into runs of at most `chunk_reads` reads, or a single group where one is larger."""
    chunk: list[PlannedGroup] = []
    size = 0
    for group in groups:
        if chunk and size + len(group.keys) > chunk_reads:
            yield chunk
            chunk, size = [], 0
        chunk.append(group)
        size += len(group.keys)
    if chunk:
        yield chunk
