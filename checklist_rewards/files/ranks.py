"""The names of reward logs: rank 0 writes `rewards.jsonl`, rank 1 `rewards.rank1.jsonl`."""

from __future__ import annotations

import re
from pathlib import Path


def rank_of(path: Path, log: Path) -> int | None:
    """The rank whose log has this path, if `log` is that of rank 0; None for any other path."""
    if path.parent.resolve() != log.parent.resolve():
        return None
    match = re.fullmatch(rf"{re.escape(log.stem)}\.rank(\d+){re.escape(log.suffix)}", path.name)
    return None if match is None else int(match[1])


def other_ranks(log: Path) -> list[Path]:
    """The logs of the other ranks in the folder of `log`, by rank."""
    ranks = {path: rank_of(path, log) for path in sorted(log.parent.glob("*.rank*"))}
    return sorted((path for path, rank in ranks.items() if rank is not None), key=lambda path: ranks[path] or 0)
