"""What a reward tells of itself where its trainer has no hooks for it: means to be popped, and a file of details.

Only `GRPOTrainer` and `RLOOTrainer` pass `log_metric` and `log_extra`. For all others (`OnlineDPOTrainer`,
`AsyncGRPOTrainer`, a loop of one's own) the same numbers are kept as running sums, and a JSONL file, where one is
named, gets a line per completion. A file that cannot be written costs the log, not the training.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score

logger = logging.getLogger(__name__)


class RewardLog:
    """Sums since the last `pop`, and a file. Threads may share one; a pickled copy begins at zero.

    Args:
        path (`str` or `Path`, *optional*): a JSONL file, appended to. Each further rank of a run has its own, with its
            number in the name ("log.rank1.jsonl"), so that lines never mix.
    """

    def __init__(self, path: str | Path | None = None):
        if path is not None and not isinstance(path, str | Path):
            raise SampleError(f"log={path!r} is not allowed; it is the path of a JSONL file.")
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[float, int]] = {}
        self._broken = False

    def __reduce__(self) -> tuple[type[RewardLog], tuple[Path | None]]:
        return type(self), (self.path,)

    def add(self, numbers: Sequence[tuple[str, float]]) -> None:
        """Count these names and values."""
        with self._lock:
            for name, value in numbers:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, count + 1

    def pop(self) -> dict[str, float]:
        """The mean of every name since the last call."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return {name: total / count for name, (total, count) in sums.items()}

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append a line per record, in one write. Never raises: a log that breaks is given up with a warning."""
        if self.path is None or self._broken:
            return
        try:
            rank = os.environ.get("RANK", "0")
            path = self.path if rank == "0" else self.path.with_suffix(f".rank{rank}{self.path.suffix}")
            lines = "".join(json.dumps(record) + "\n" for record in records)
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock, path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except Exception as error:  # whatever breaks a log, it costs the log, not the training
            self._broken = True
            logger.warning(
                "the log %s takes no more lines (%s: %s); going on without it.",
                self.path,
                type(error).__name__,
                error,
            )


def numbers_of(
    sample: Sample | None, score: Score | None, reward: float | None, categories: Sequence[str]
) -> dict[str, float | None]:
    """What is logged of one completion; None for a number that it does not have. The names never depend on it."""
    items = () if sample is None or score is None else tuple(zip(sample.checklist.items, score.items, strict=True))
    numbers = {
        "score": reward,
        "pass_rate": None if score is None else score.pass_rate,
        "unscored": float(reward is None),
        "unanswered": _mean([line.unanswered is not None for _, line in items]),
        "abstained": _mean([line.answer is not None and item.values[line.answer] is None for item, line in items]),
        "mass": _mean([line.mass for _, line in items if line.mass is not None]),
    }
    for category in categories:
        passed = [line.passed for item, line in items if item.category == category and line.passed is not None]
        numbers[f"category/{category}"] = _mean(passed)
    return numbers


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
