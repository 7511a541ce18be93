"""Two reward logs compared row by row, with the figures of `agree`.

If at least half of the completions of the smaller log are in the other one too (two judges scored the same
completions), rows with the same prompt and completion are compared. Otherwise (two runs) the n-th completion of a
prompt in a step of one log is compared with the n-th of the same prompt and step of the other: their texts differ, so
differences of single rows are chance, and those of items and of groups are what counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, JudgedRow, judged_row
from checklist_rewards.ui.records import Record, RecordFile
from checklist_rewards.ui.table import Column
from checklist_rewards.ui.trust import between

Match = Literal["completion", "step"]
_MATCHES: tuple[Match, ...] = ("completion", "step")
_SHARED = 0.5
"""Share of the smaller log that both must have for a comparison of completions."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A scored row of a reward log."""

    row: JudgedRow
    """Its id is the number of the row."""
    keys: dict[Match, str]
    """What rows of the other log must have in common with it."""


def read_log(file: RecordFile) -> list[Logged]:
    """The scored rows of a reward log. Raises [`SampleError`] if it has none, or items of unknown options."""
    seen: Counter[str] = Counter()
    rows = []
    for record in file:
        if record.score is None:
            continue
        group = _hash(record.key)
        row = judged_row(record.id, group, record.where, {}, record.score)
        keys: dict[Match, str] = {
            "completion": _hash(f"{record.prompt}\n{record.target}"),
            "step": _hash(_step(record)),
        }
        for match, key in keys.items():
            seen[key] += 1
            keys[match] = f"{key}#{seen[key]}"
        rows.append(Logged(row, keys))
    if not rows:
        raise SampleError(f"{file.path} has no scored rows.")
    return rows


def between_logs(
    names: tuple[str, str], one: Sequence[Logged], other: Sequence[Logged], intervals: Bootstrap
) -> dict[str, Any]:
    """The figures of [`between`], how the rows were matched, and the numbers of the matched rows.

    Raises:
        SampleError: If the logs have no row in common.
    """
    shared = {match: _matched(one, other, match) for match in _MATCHES}
    enough = len(shared["completion"]) >= _SHARED * min(len(one), len(other))
    how: Match = "completion" if enough or not shared["step"] else "step"
    pairs = shared[how]
    if not pairs:
        raise SampleError(
            f"{names[0]} and {names[1]} are not compared row by row: they have no completion of the same prompt, and "
            "no step with the same prompt, in common."
        )
    first = [replace(logged.row, id=logged.keys[how]) for logged in one]
    second = [replace(logged.row, id=logged.keys[how]) for logged in other]
    columns = Column.places(), Column.places()
    for pair in pairs:
        for column, logged in zip(columns, pair, strict=True):
            column.add(int(logged.row.id))
    return {**between(names, first, second, intervals), "match": how, "pairs": columns}


def _matched(one: Sequence[Logged], other: Sequence[Logged], match: Match) -> list[tuple[Logged, Logged]]:
    partners = {logged.keys[match]: logged for logged in other}
    return [(logged, partners[key]) for logged in one if (key := logged.keys[match]) in partners]


def _step(record: Record) -> str:
    return f"{record.step}\n{record.prompt}"


def _hash(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()
