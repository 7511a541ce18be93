"""The same run over several seeds: finished ones are not repeated, and all are told as a mean with its spread.

A run is a function that returns what it measured. [`once`] writes that to `summary.json` beside the settings it was
made with, and a later call with the same settings reads it; with others, it runs again. A run that was interrupted
left no summary and starts anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from checklist_rewards.files.atomic import atomic_path

Result = dict[str, Any]


def once(folder: Path, settings: Result, run: Callable[[], Result]) -> Result:
    """What `run` measured, read from `folder/summary.json` if it was made with these settings."""
    path = folder / "summary.json"
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["settings"] == settings:
            return found
    folder.mkdir(parents=True, exist_ok=True)
    save_json(path, {"settings": settings, **run()})
    # Read back, so that a first call and a later one give the same (JSON has string keys only).
    return json.loads(path.read_text(encoding="utf-8"))


def save_json(path: Path, value: Result) -> None:
    """Write a summary, complete or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def spread(values: Sequence[float]) -> Result:
    """Mean, least, greatest and sample standard deviation (None for a single value), and the values themselves."""
    return {
        "mean": fmean(values),
        "min": min(values),
        "max": max(values),
        "std": stdev(values) if len(values) > 1 else None,
        "per_seed": list(values),
    }


def shown(found: Result, digits: int = 3) -> str:
    """A [`spread`] as text: the mean, and in brackets the least and the greatest."""
    return f"{found['mean']:.{digits}f} ({found['min']:.{digits}f}-{found['max']:.{digits}f})"


def band(axes: Any, steps: Sequence[float], runs: Sequence[Sequence[float]], label: str, color: str) -> None:
    """A curve of the mean over the runs, in a band from the least to the greatest of them."""
    columns = list(zip(*runs, strict=True))
    axes.plot(steps, [fmean(column) for column in columns], color=color, label=label, linewidth=2)
    axes.fill_between(steps, *zip(*((min(c), max(c)) for c in columns), strict=True), color=color, alpha=0.2)
