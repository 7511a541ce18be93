"""Plots of agreement: confusion matrices and reliability diagrams.

matplotlib is imported at the first plot. PNG files are written atomically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.evaluation.agreement.compare import Section
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.judges.calibration import reliability
from checklist_rewards.validation import import_extra

_SIZE = 4.2


def plot_confusion(path: Path, section: Section, one: str, other: str) -> None:
    """Plot a confusion matrix: the judge in rows, the other side in columns."""
    assert section.labels is not None and section.confusion is not None
    figure, axes = _figure()
    top = max(max(row) for row in section.confusion) or 1
    axes.imshow(section.confusion, cmap="Blues", vmin=0, vmax=top)
    for down, row in enumerate(section.confusion):
        for across, count in enumerate(row):
            color = "white" if count > top / 2 else "black"
            axes.text(across, down, f"{count:,}", ha="center", va="center", color=color)
    places = range(len(section.labels))
    axes.set_xticks(places, section.labels, rotation=30 if len(section.labels) > 2 else 0)
    axes.set_yticks(places, section.labels)
    axes.set_xlabel(other)
    axes.set_ylabel(one)
    _save(figure, path)


def plot_reliability(path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str) -> None:
    """Plot a reliability diagram: the observed frequency against the predicted probability.

    A calibrated judge lies on the diagonal.

    Args:
        path (`Path`): the PNG file.
        curves (mapping of `str` to a pair of sequences): by legend name, the probabilities and the outcomes (1 or 0).
        title (`str`): title of the plot.
    """
    figure, axes = _figure()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="--")
    for name, (probabilities, truths) in curves.items():
        bins = [bin for bin in reliability(probabilities, truths) if bin.count]
        [line] = axes.plot([bin.confidence for bin in bins], [bin.frequency for bin in bins], marker="o", label=name)
        most = max(bin.count for bin in bins)
        for bin in bins:  # bar heights show how many reads a point is based on
            axes.bar(bin.confidence, 0.1 * bin.count / most, 0.02, color=line.get_color(), alpha=0.4)
    axes.set(xlabel="probability", ylabel="share that is true", title=title, xlim=(-0.02, 1.02), ylim=(0, 1.02))
    axes.legend()
    _save(figure, path)


def _figure() -> tuple[Any, Any]:
    [figures] = import_extra("matplotlib.figure")
    figure = figures.Figure(figsize=(_SIZE, _SIZE), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> None:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
