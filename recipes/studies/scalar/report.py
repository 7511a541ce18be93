"""The table and the plot of the study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.common import band, figure, markdown, shown, smoothed, spread
from studies.scalar.rewards import ARMS

COLORS = {"judge": "C0", "calibrated": "C2", "scalar": "C3"}
NAMES = {"judge": "checklist judge", "calibrated": "checklist judge, calibrated", "scalar": "scalar reward model"}
LINES = {"oracle": ("best by gold", "k"), "greedy": ("greedy", "C7"), "random": ("at random", "C7")}
STYLES = {"oracle": "-", "greedy": "--", "random": ":"}
Cells = Sequence[dict[str, Any]]
"""Finished cells: `arm`, `budget`, `seed`, the figures of `best`, and those of `grpo` if it was run."""


def of(cells: Cells, arm: str, budget: int) -> list[dict[str, Any]]:
    """The cells of an arm and a budget, one per seed."""
    return [cell for cell in cells if (cell["arm"], cell["budget"]) == (arm, budget)]


def summarize(cells: Cells, references: dict[str, Any]) -> dict[str, Any]:
    """Every figure over the seeds, by budget and arm."""
    rows = []
    for budget in sorted({cell["budget"] for cell in cells}):
        for arm in ARMS:
            found = of(cells, arm, budget)
            if not found:
                continue
            trained = [cell["grpo"] for cell in found if cell.get("grpo")]
            row: dict[str, Any] = {"budget": budget, "arm": arm, "seeds": len(found)}
            row |= {name: spread([cell["best"][name] for cell in found]) for name in ("ordered", "gold", "gap")}
            if trained:
                row |= {f"grpo_{name}": spread([run[name] for run in trained]) for name in ("gold", "gap")}
            rows.append(row)
    return {"references": references, "rows": rows}


def table(summary: dict[str, Any]) -> str:
    """The results as Markdown: means over the seeds, with the least and the greatest."""
    columns = {"ordered": "pairs in order", "gold": "gold", "gap": "gap", "grpo_gold": "GRPO gold", "grpo_gap": "gap"}
    head = ["labels", "reward", "seeds", *columns.values()]
    rows = []
    for row in summary["rows"]:
        figures = [_shown(row[name], signed="gap" in name) if name in row else "" for name in columns]
        rows.append([f"{row['budget']:,}", NAMES[row["arm"]], row["seeds"], *figures])
    known = summary["references"]
    for name, (text, _) in LINES.items():
        rows.append(["", text, "", "", f"{known[name]:.3f}", "", "", ""])
    for name, text in (("start", "judge before any label"), ("packaged", "pocket judge, fully trained")):
        cells = [f"{known[name][key]:.3f}" for key in ("ordered", "gold")]
        rows.append(["", text, "", *cells, f"{known[name]['gap']:+.3f}", "", ""])
    return markdown(head, rows) + "\n"


def _shown(figure: dict[str, Any], signed: bool) -> str:
    if not signed:
        return shown(figure)
    return "{mean:+.3f} ({min:+.3f} to {max:+.3f})".format(**figure)


def plot(cells: Cells, summary: dict[str, Any], path: Path) -> None:
    """Left: gold of the best of N by labels. Then, for each budget with GRPO runs, reward and gold by step."""
    budgets = sorted({cell["budget"] for cell in cells if cell.get("grpo")})
    with figure(path, columns=1 + len(budgets), figsize=(5.2 + 3.6 * len(budgets), 4.2)) as found:
        axes = list(found) if budgets else [found]
        _labels(axes[0], cells, summary["references"])
        for axis in axes[2:]:
            axis.sharey(axes[1])
        for axis, budget in zip(axes[1:], budgets, strict=True):
            _steps(axis, cells, budget)


def _labels(axes: Any, cells: Cells, known: dict[str, Any]) -> None:
    for arm in ARMS:
        curve = {
            budget: [cell["best"]["gold"] for cell in of(cells, arm, budget)]
            for budget in sorted({cell["budget"] for cell in cells if cell["arm"] == arm})
        }
        if curve:
            band(axes, curve, NAMES[arm], COLORS[arm])
    for name, (text, color) in LINES.items():
        axes.axhline(known[name], color=color, linestyle=STYLES[name], linewidth=1)
        axes.annotate(text, (1, known[name]), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    budgets = sorted({cell["budget"] for cell in cells})
    axes.set_xscale("log")
    axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
    axes.minorticks_off()
    axes.set(xlabel="labels", ylabel="constraints met (gold)", title="Best of N, chosen by the reward")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.93))  # below the line of the best


def _steps(axes: Any, cells: Cells, budget: int) -> None:
    for arm in ARMS:
        runs = [cell["grpo"] for cell in of(cells, arm, budget) if cell.get("grpo")]
        if not runs:
            continue
        for name, style in (("gold", "-"), ("proxy", "--")):
            curves = [smoothed([entry[name] for entry in run["curve"]], 5) for run in runs]
            means = [sum(values) / len(values) for values in zip(*curves, strict=True)]
            axes.plot(range(1, len(means) + 1), means, color=COLORS[arm], linestyle=style, linewidth=2)
            if name == "gold":
                lowest, highest = (list(map(pick, zip(*curves, strict=True))) for pick in (min, max))
                axes.fill_between(range(1, len(means) + 1), lowest, highest, color=COLORS[arm], alpha=0.15)
    axes.plot([], [], color="k", label="gold")
    axes.plot([], [], color="k", linestyle="--", label="reward, on the scale of gold")
    axes.set(xlabel="GRPO step", title=f"GRPO, {budget:,} labels")
    axes.legend(frameon=False, fontsize=8, loc="best")
