"""`agree`: agreement of judges with labels, and with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.checklists import YES
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.labels import LABELS, JsonOutput, Labelled, Plots, Resamples, Seed
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import bars, write_json
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import (
    Bootstrap,
    Comparison,
    JudgedRow,
    PairedTest,
    Section,
    Target,
    Unit,
    compare,
    compare_judges,
    compare_raters,
    pairs_of,
    units_against_labels,
    units_of_judges,
)
from checklist_rewards.evaluation.agreement.compare import plot_confusion, plot_reliability
from checklist_rewards.evaluation.agreement.measures import AGAINST_LABELS, CATEGORICAL, DEFAULT_RESAMPLES
from checklist_rewards.judges.calibration import YES_NO

_ORDER = (
    *CATEGORICAL,
    *AGAINST_LABELS,
    *("auc", "rmse", "mae", "bias", "pearson", "spearman", "kendall", "emd", "ks"),
)


@grouped
def agree(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCORED...", show_default=False, help="Files written by `score` or `run`, one per judge."
        ),
    ],
    labelled: Labelled,
    label_range: Annotated[
        str,
        typer.Option(metavar="LOW,HIGH", rich_help_panel=LABELS, help="Range of numeric row labels, worst to best."),
    ] = "0,1",
    input_key: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            rich_help_panel=LABELS,
            help="Column of the input. Every two rows with the same value are compared as a preference pair.",
        ),
    ] = None,
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
    json: JsonOutput = None,
    plots: Plots = None,
) -> None:
    r"""Measure the agreement of judges with labels, or with each other, with confidence intervals.

    With labels (**--label-key** or **--labels**), each file is compared with the labels, and every two files are
    tested against each other (McNemar test and group permutation test). Without labels, every two files are compared.
    Unanswered items count only in the coverage. Confidence intervals are 95 % bootstrap intervals that resample groups
    (**--group-key**), or rows.

    **Examples**

    ```
    checklist-rewards agree scored.jsonl --label-key human --group-key document
    checklist-rewards agree one.jsonl other.jsonl --labels gold.jsonl --json agreement.json
    checklist-rewards agree candidates_scored.jsonl --label-key stars --label-range 1,5 --input-key prompt_id
    ```
    """
    check_outputs([*files, labelled.labels], folders={"--plots": plots}, json=json)
    if len(files) < 2 and not labelled.named:
        raise SampleError(
            f"{files[0]} is the only file and has no labels to compare with; set --label-key or --labels, or add "
            "another scored file."
        )
    scale = _range(label_range)
    scored = {str(path): labelled.read(path) for path in files}
    if len(scored) < len(files):
        raise SampleError(f"each scored file may be given only once, got {', '.join(map(str, files))}.")
    with bars() as bar:
        intervals = Bootstrap(bootstrap, seed, bar("bootstrap draws", None))
        if labelled.named:
            compared = [
                _with_labels(name, rows, labelled, scale, input_key, intervals) for name, rows in scored.items()
            ]
            tests = [
                compare_judges((one.one, other.one), units, others, intervals)
                for (one, units), (other, others) in combinations(compared, 2)
            ]
        else:
            compared = [
                _with_each_other(one, other, input_key, intervals) for one, other in combinations(scored.items(), 2)
            ]
            tests = []
        raters = compare_raters(list(scored.values()), intervals) if len(scored) > 1 else {}
    _show([comparison for comparison, _ in compared], tests, raters, len(scored))
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for number, (comparison, units) in enumerate(compared, start=1):
            _draw(plots, f"{number}_" if len(compared) > 1 else "", comparison, units, labelled.named)
    if json is not None:
        write_json(
            json,
            {
                "bootstrap": {"resamples": bootstrap, "seed": seed, "groups": labelled.group_key or "rows"},
                "comparisons": [comparison.model_dump() for comparison, _ in compared],
                "tests": [test.model_dump() for test in tests],
                "judges_among_each_other": {kind: section.model_dump() for kind, section in raters.items()},
            },
        )


def _with_labels(
    name: str,
    rows: Sequence[JudgedRow],
    labelled: Labelled,
    scale: tuple[float, float],
    input_key: str | None,
    intervals: Bootstrap,
) -> tuple[Comparison, list[Unit]]:
    given, unmatched = labelled.of(rows)
    units, targets = units_against_labels(rows, given)
    targets = [_scaled(target, rows, *scale) for target in targets]
    inputs = _inputs(rows, targets, input_key)
    names, counts = (name, labelled.shown), {"unmatched_rows": unmatched}
    return compare(names, units, targets, intervals, against_labels=True, inputs=inputs, **counts), units


def _with_each_other(
    one: tuple[str, Sequence[JudgedRow]],
    other: tuple[str, Sequence[JudgedRow]],
    input_key: str | None,
    intervals: Bootstrap,
) -> tuple[Comparison, list[Unit]]:
    names = one[0], other[0]
    pairs, unmatched_rows = pairs_of(one[1], other[1], names)
    units, targets, unmatched_items = units_of_judges(pairs)
    counts = {"unmatched_rows": unmatched_rows, "unmatched_items": unmatched_items}
    inputs = _inputs(one[1], targets, input_key)
    return compare(names, units, targets, intervals, against_labels=False, inputs=inputs, **counts), units


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low = high = 0.0
    if not low < high < float("inf"):
        raise SampleError(f"--label-range {text!r}: expected two increasing numbers, worst and best, such as 1,5.")
    return low, high


def _scaled(target: Target, rows: Sequence[JudgedRow], low: float, high: float) -> Target:
    """The target with its numeric label rescaled from [low, high] to [0, 1]."""
    if not target.given or target.other is None:
        return target
    if not low <= target.other <= high:
        where = next(row.where for row in rows if row.id == target.key)
        raise SampleError(
            f"{where}: label {target.other:g} is outside the range {low:g} to {high:g}; set --label-range to the "
            "worst and the best label."
        )
    return Target(target.key, target.group, target.one, (target.other - low) / (high - low), True)


def _inputs(rows: Sequence[JudgedRow], targets: Sequence[Target], key: str | None) -> list[str] | None:
    if key is None:
        return None
    inputs: dict[str, str] = {}
    for row in rows:
        if key not in row.data:
            raise SampleError(f"{row.where}: column {key!r} not found; set --input-key to a column of this file.")
        inputs[row.id] = str(row.data[key])
    return [inputs[target.key] for target in targets]


def _show(
    comparisons: Sequence[Comparison], tests: Sequence[PairedTest], raters: Mapping[str, Section], judges: int
) -> None:
    console = Console()
    for comparison in comparisons:
        console.print(escape(f"{comparison.one} and {comparison.other}: {_coverage(comparison)}"), soft_wrap=True)
        console.print(_comparison(comparison))
        for kind, section in comparison.items.items():
            if section.confusion is not None and section.units:
                console.print(
                    escape(f"{kind}: rows are {comparison.one}, columns are {comparison.other}"), soft_wrap=True
                )
                console.print(_confusion(section))
    if raters and judges > 2:
        console.print(f"Agreement among all {judges} judges:")
        table = Table("items", "units", "alpha", "interval alpha", "Fleiss' kappa")
        for kind, section in raters.items():
            table.add_row(escape(kind), str(section.units), *(str(figure) for figure in section.figures.values()))
        console.print(table)
    for test in tests:
        console.print(escape(f"{test.one} against {test.other}:"), soft_wrap=True)
        console.print(_test(test))


def _comparison(comparison: Comparison) -> Table:
    sections = {**comparison.items, "targets": comparison.targets, "preferences": comparison.preferences}
    shown = {name: section for name, section in sections.items() if section is not None and section.units}
    table = Table("", *(escape(name) for name in shown))
    table.add_row("units", *(str(section.units) for section in shown.values()))
    names = dict.fromkeys(name for section in shown.values() for name in section.figures)
    for name in sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        figures = [section.figures.get(name) for section in shown.values()]
        if any(figure is not None and figure.value is not None for figure in figures):
            table.add_row(name, *("" if figure is None else escape(str(figure)) for figure in figures))
    return table


def _coverage(comparison: Comparison) -> str:
    parts = [f"coverage {comparison.coverage} of {comparison.units} items"]
    for what, count in (("rows", comparison.unmatched_rows), ("items", comparison.unmatched_items)):
        if count:
            parts.append(f"{count} {what} in one file only")
    return "; ".join(parts)


def _confusion(section: Section) -> Table:
    assert section.labels is not None and section.confusion is not None
    table = Table("", *map(escape, section.labels))
    for label, row in zip(section.labels, section.confusion, strict=True):
        table.add_row(escape(label), *map(str, row))
    return table


def _test(test: PairedTest) -> Table:
    table = Table(show_header=False)
    for name, value in (
        ("items answered by both", str(test.units)),
        ("correct only in the first, only in the second", f"{test.only_one_right}, {test.only_other_right}"),
        ("difference in accuracy", _number(test.accuracy_difference)),
        ("p, McNemar (items independent)", _number(test.mcnemar_p)),
        ("p, permutation of groups", _number(test.permutation_p)),
        ("difference in mean absolute error", _number(test.error_difference)),
        ("p, permutation of groups", _number(test.error_permutation_p)),
    ):
        table.add_row(name, value)
    return table


def _draw(folder: Path, prefix: str, comparison: Comparison, units: Sequence[Unit], against_labels: bool) -> None:
    for kind, section in comparison.items.items():
        if section.confusion is not None and section.units:
            name = re.sub(r"\W+", "_", kind).strip("_")
            plot_confusion(folder / f"{prefix}confusion_{name}.png", section, comparison.one, comparison.other)
    read = [
        (unit.one.soft, float(unit.other.label == YES))
        for unit in units
        if unit.one is not None and unit.other is not None and unit.item.options is None and unit.one.probabilities
    ]
    if against_labels and read:
        curve = [p for p, _ in read if p is not None], [truth for p, truth in read if p is not None]
        plot_reliability(folder / f"{prefix}reliability.png", {comparison.one: curve}, f"{YES_NO} items")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
