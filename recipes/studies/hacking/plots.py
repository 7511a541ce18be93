"""Plots of the hacking study: proxy and gold of every bias with the onset and the alarms, and gold by prevention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.common import smoothed
from studies.hacking.logs import RunLog
from studies.hacking.onset import GOLD_WIDTH
from studies.hacking.study import STRENGTH

Curves = Mapping[Path, Sequence[float]]


def draw(runs: Sequence[RunLog], gold: Curves, alarms: Mapping[Path, Mapping[str, int]], folder: Path) -> None:
    """Write `hacking_runs.png` and, if there are runs with a prevention, `hacking_prevention.png`.

    Args:
        runs (sequence of [`RunLog`]): All finished runs; those of other strengths than the first are left out.
        gold (mapping): The gold curve of each run's folder.
        alarms (mapping): The first alarm of each detector in the runs without prevention, by folder.
        folder (`Path`): Where to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    runs = [run for run in runs if run.settings["strength"] == STRENGTH]
    plain = [run for run in runs if run.settings["prevention"] == "none"]
    names = list(dict.fromkeys(run.bias for run in plain))
    figure, axes = plt.subplots(
        2, -(-len(names) // 2), figsize=(9.6, 5), sharex=True, sharey=True, layout="constrained"
    )
    for axis, name in zip(axes.flat, names, strict=False):
        _runs(axis, [run for run in plain if run.bias == name], gold, alarms)
        axis.set_title(name, fontsize=10)
    found = dict(zip(*[[*reversed(part)] for part in _legend(axes.flat)], strict=True))
    figure.legend(found.values(), found.keys(), loc="outside upper center", frameon=False, fontsize=8, ncols=5)
    figure.supxlabel("GRPO step", fontsize=9)
    figure.savefig(folder / "hacking_runs.png", dpi=100)
    ways = list(dict.fromkeys(run.settings["prevention"] for run in runs))
    if len(ways) > 1:
        _prevention(runs, gold, ways, folder / "hacking_prevention.png")


def _runs(axis: Any, runs: Sequence[RunLog], gold: Curves, alarms: Mapping[Path, Mapping[str, int]]) -> None:
    for number, run in enumerate(runs):
        labels = ("reward (judge)", "gold (code)") if number == 0 else (None, None)
        axis.plot(smoothed(run.proxy, GOLD_WIDTH), color="C0", linewidth=1, label=labels[0])
        axis.plot(gold[run.folder], color="C1", linewidth=1, label=labels[1])
        for detector, color, marker in (("rewardspy", "C4", "s"), ("monitor", "C3", "v")):
            step = alarms.get(run.folder, {}).get(detector)
            if step is not None:
                place = step, smoothed(run.proxy, GOLD_WIDTH)[step]
                axis.plot(*place, marker, color=color, markersize=5, linestyle="none", label=f"alarm: {detector}")
        if run.onset is not None:
            axis.axvline(run.onset, color="grey", linestyle=":", linewidth=0.8)
    axis.set_ylim(0, 1.02)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(axes: Any) -> tuple[list[str], list[Any]]:
    """Labels and handles of all axes."""
    handles, labels = zip(*(axis.get_legend_handles_labels() for axis in axes), strict=True)
    return [label for part in labels for label in part], [handle for part in handles for handle in part]


def _prevention(runs: Sequence[RunLog], gold: Curves, ways: Sequence[str], path: Path) -> None:
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(run.bias for run in runs if run.bias != "clean"))
    figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for number, way in enumerate(ways):
        ends = [
            [fmean(gold[r.folder][-10:]) for r in runs if (r.bias, r.settings["prevention"]) == (name, way)]
            for name in names
        ]
        places = [at + (number - (len(ways) - 1) / 2) * 0.2 for at in range(len(names))]
        axis.bar(
            places, [fmean(end) if end else 0 for end in ends], width=0.18, label=way, color=f"C{number}", alpha=0.7
        )
        for place, end in zip(places, ends, strict=True):
            axis.plot([place] * len(end), end, "k.", markersize=4)
    clean = [fmean(gold[run.folder][-10:]) for run in runs if run.bias == "clean"]
    if clean:
        axis.axhline(fmean(clean), color="grey", linestyle=":", label="clean judge")
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("gold, last ten steps")
    figure.legend(loc="outside upper center", frameon=False, fontsize=8, ncols=5)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
