"""Run an experiment over several seeds: finished runs are not repeated, and results are means with their spread.

A run is a function that returns its results. [`once`] writes them to `summary.json` together with the settings. A
later call with the same settings reads the file; with other settings, the run is repeated. An interrupted run leaves
no summary and starts again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from checklist_rewards.files.atomic import atomic_path

Result = dict[str, Any]


def once(folder: Path, settings: Result, run: Callable[[], Result]) -> Result:
    """The results of `run`, read from `folder/summary.json` if the file has these settings."""
    path = folder / "summary.json"
    if path.is_file():
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["settings"] == settings:
            return summary
    folder.mkdir(parents=True, exist_ok=True)
    save_json(path, {"settings": settings, **run()})
    # Read it back, so that the first and later calls return the same value (JSON has only string keys).
    return json.loads(path.read_text(encoding="utf-8"))


def save_json(path: Path, value: Result) -> None:
    """Write a summary atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def spread(values: Sequence[float]) -> Result:
    """Mean, minimum, maximum, sample standard deviation (None for a single value), and the values themselves."""
    return {
        "mean": fmean(values),
        "min": min(values),
        "max": max(values),
        "std": stdev(values) if len(values) > 1 else None,
        "per_seed": list(values),
    }


def shown(summary: Result, digits: int = 3) -> str:
    """A [`spread`] as text: the mean, with minimum and maximum in parentheses."""
    return f"{summary['mean']:.{digits}f} ({summary['min']:.{digits}f}-{summary['max']:.{digits}f})"


def band(axes: Any, curve: Mapping[int, Sequence[float]], label: str, color: str) -> None:
    """Plot the values of all runs by step: their mean as a curve, in a band from the minimum to the maximum."""
    axes.plot(list(curve), [fmean(values) for values in curve.values()], color=color, label=label, linewidth=2)
    lowest, highest = map(min, curve.values()), map(max, curve.values())
    axes.fill_between(list(curve), list(lowest), list(highest), color=color, alpha=0.2)


@contextmanager
def figure(path: Path, columns: int = 1, **how: Any) -> Iterator[Any]:
    """The axes of a figure, or a list of axes for several columns. The figure is saved when the block ends."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(1, columns, layout="constrained", **how)
    yield axes
    for one in drawn.axes:
        one.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=110)
    plt.close(drawn)
