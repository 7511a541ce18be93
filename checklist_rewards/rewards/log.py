"""Metrics and per-completion logs for trainers that pass no `log_metric` or `log_extra`.

Only `GRPOTrainer` and `RLOOTrainer` pass these functions to a reward. For other trainers (`OnlineDPOTrainer`,
`AsyncGRPOTrainer`, custom loops) the same metrics are kept as running means, and optionally each completion is written
to a JSONL file. If the file cannot be written, logging stops and training continues.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.content import described
from checklist_rewards.rewards.trail import Trail
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import NO_ANSWER_STATES, Score, TargetState

logger = logging.getLogger(__name__)

NOT_ANSWERED: Mapping[TargetState, str] = {
    "empty": "are empty; they are scored as no_answer says.",
    "cut_in_thought": "were cut in their thought or never closed it; they are scored as no_answer says. Allow longer "
    "completions, or shorter thoughts.",
    "unfinished": "end with a tool call instead of an answer; they are scored as no_answer says. Allow more turns, or "
    "judge target='transcript'.",
    "cut": "reached the length limit in their answer; what they wrote is judged.",
}
"""The states that a reward counts, and what they mean."""


_MARKS = {True: "✓", False: "✗", None: "?"}
_NAMED, _WIDTH = 8, 32
"""The most items that a line names, and the most characters of a question."""


class RewardLog:
    """Running means of metrics, and an optional log file. Thread-safe; a pickled copy starts empty.

    Args:
        path (`str` or `Path`, *optional*):
            JSONL file to append to. Ranks other than 0 write to a file of their own with the rank in its name, such as
            "log.rank1.jsonl".
    """

    def __init__(self, path: str | Path | None = None):
        if path is not None and not isinstance(path, str | Path):
            raise SampleError(f"log={path!r} is not allowed; it must be the path of a JSONL file.")
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[float, int]] = {}
        self._broken = False

    def __reduce__(self) -> tuple[type[RewardLog], tuple[Path | None]]:
        return type(self), (self.path,)

    def add(self, numbers: Sequence[tuple[str, float]]) -> None:
        """Add values of metrics, given as pairs of name and value."""
        with self._lock:
            for name, value in numbers:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, count + 1

    def pop(self) -> dict[str, float]:
        """Return the mean of every metric since the last call, and reset them."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return {name: total / count for name, (total, count) in sums.items()}

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append one line per record in a single write. Never raises: after an error, it warns and stops logging."""
        if self.path is None or self._broken:
            return
        try:
            rank = os.environ.get("RANK", "0")
            path = self.path if rank == "0" else self.path.with_suffix(f".rank{rank}{self.path.suffix}")
            lines = "".join(json.dumps(record) + "\n" for record in records)
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock, path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except Exception as error:  # training must continue without the log
            self._broken = True
            logger.warning(
                "cannot write the log %s (%s: %s); continuing without it.",
                self.path,
                type(error).__name__,
                error,
            )


def log_records(
    step: int | None,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    samples: Sequence[Sample | None],
    rewards: Sequence[float | None],
    scores: Sequence[Score | None],
    trail: Trail,
) -> Iterator[dict[str, Any]]:
    """The records of completions for [`RewardLog.write`]. `completion` is the text that was judged; `written`, what
    the trainer passed, is added where that has no answer."""
    rows = zip(prompts, completions, samples, rewards, scores, strict=True)
    for place, (prompt, completion, sample, reward, score) in enumerate(rows):
        state = None if sample is None else sample.target_state
        yield {
            "step": step,
            "prompt": described(prompt),
            "completion": None if sample is None else sample.target,
            "state": state,
            **({"written": described(completion)} if state in NO_ANSWER_STATES else {}),
            "reward": reward,
            "checklist_hash": None if sample is None else sample.checklist.id,
            **trail.columns(place, None if sample is None else sample.checklist, score),
            "score": None if score is None else score.model_dump(),
        }


def one_line(score: Score | None) -> str:
    """A score for a table of completions, such as "2/3  ✓ tone  ✗ Is it short? .25".

    It has the passed and the answered items, and each item with its category if that names no other one, and its
    question otherwise. Soft values are added unless they are near 0 or 1. Of many items, those that pass are left out.
    """
    if score is None:
        return "not judged"
    if score.no_answer:
        return f"no answer: {score.state.replace('_', ' ')}"
    shared = Counter(line.category for line in score.items)
    shown = [line for line in score.items if len(score.items) <= _NAMED or line.passed is not True][:_NAMED]
    parts = [f"{sum(line.passed is True for line in score.items)}/{score.answered}"]
    for line in shown:
        name = line.category if line.category and shared[line.category] == 1 else _shortened(line.question)
        soft = "" if line.soft is None or not 0.05 <= line.soft <= 0.95 else f" {line.soft:.2f}".replace("0.", ".")
        parts.append(f"{_MARKS[line.passed]} {name}{soft}")
    return "  ".join(parts)


def _shortened(question: str) -> str:
    text = " ".join(question.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1].rstrip()}…"


def metrics_of(
    samples: Sequence[Sample | None],
    scores: Sequence[Score | None],
    rewards: Sequence[float | None],
    categories: Sequence[str],
) -> list[tuple[str, float]]:
    """The metrics of all completions, as pairs of name and value."""
    # TRL averages all logged values of all ranks, so missing values must not be logged.
    return [
        (name, value)
        for row in zip(samples, scores, rewards, strict=True)
        for name, value in completion_metrics(*row, categories).items()
        if value is not None
    ]


def completion_metrics(
    sample: Sample | None, score: Score | None, reward: float | None, categories: Sequence[str]
) -> dict[str, float | None]:
    """The metrics of one completion. The names are the same for all completions; a metric without a value is None."""
    lines = () if sample is None or score is None else tuple(zip(sample.checklist.items, score.items, strict=True))
    items = () if score is None or score.no_answer else lines
    metrics: dict[str, float | None] = {
        "score": reward,
        "pass_rate": None if score is None else score.pass_rate,
        "unscored": float(reward is None),
        "unanswered": _mean([line.unanswered is not None for _, line in items]),
        "abstained": _mean([line.answer is not None and item.values[line.answer] is None for item, line in items]),
        "mass": _mean([line.mass for _, line in items if line.mass is not None]),
        **{state: None if sample is None else float(sample.target_state == state) for state in NOT_ANSWERED},
    }
    for category in categories:
        passed = [line.passed for item, line in lines if item.category == category and line.passed is not None]
        metrics[f"category/{category}"] = _mean(passed)
    return metrics


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
