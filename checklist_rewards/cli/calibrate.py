"""`calibrate`: fit calibration maps for a judge's probabilities on labelled reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.labels import Json, Labelled, Plots, Resamples, Seed
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import bars, write_json
from checklist_rewards.cli.report import console as stderr
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.rows import Columns
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, JudgedRow
from checklist_rewards.evaluation.agreement.compare import plot_reliability
from checklist_rewards.evaluation.agreement.measures import DEFAULT_RESAMPLES
from checklist_rewards.evaluation.calibration import (
    KindReport,
    ThresholdChoice,
    ThresholdRule,
    fit_calibration,
    labelled_reads,
)
from checklist_rewards.judges import Read
from checklist_rewards.judges.calibration import EMPTY, Calibration, CalibrationMap, CalibrationMethod
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import Verdict

_FIT = "Calibration"


@grouped
def calibrate(
    rows: Annotated[
        Path, typer.Argument(metavar="SCORED", show_default=False, help="A file written by `score` or `run`.")
    ],
    labelled: Labelled,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="JSON file to write the calibration to.",
        ),
    ],
    keys: o.Keys,
    judge: o.OnlyJudge,
    method: Annotated[
        CalibrationMethod | None,
        typer.Option(
            show_default="the lowest Brier score on held-out groups",
            rich_help_panel=_FIT,
            help="Calibration method for yes/no items. Items with options always use temperature.",
        ),
    ] = None,
    fit_threshold: Annotated[
        ThresholdRule | None,
        typer.Option(rich_help_panel=_FIT, help="Also fit a yes/no threshold: highest F1, or lowest cost."),
    ] = None,
    costs: Annotated[
        str,
        typer.Option(
            metavar="YES,NO",
            rich_help_panel=_FIT,
            help="For --fit-threshold cost: the cost of a wrong yes and of a wrong no.",
        ),
    ] = "1,1",
    contextual: Annotated[
        bool,
        typer.Option(
            "--contextual",
            rich_help_panel=_FIT,
            help="Subtract the bias of --model, measured by its answers about an empty target.",
        ),
    ] = False,
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
    json: Json = None,
    plots: Plots = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Calibrate a judge on labelled reads, with its error on held-out groups before and after.

    Pass the result to `score`, `run` and other commands with **--calibration**, or to a scorer as `calibration`. The
    reported Brier score, calibration error (ECE), accuracy and F1 are cross-validated over groups; the saved
    calibration is fitted on all reads.

    **Examples**

    ```
    checklist-rewards calibrate scored.jsonl --label-key human --group-key document -o map.json --plots plots
    checklist-rewards calibrate scored.jsonl --label-key human -o map.json --fit-threshold cost --costs 5,1
    checklist-rewards score answers.jsonl -o calibrated.jsonl --model org/judge --calibration map.json
    ```
    """
    check_outputs([rows, labelled.labels, store_options.store], folders={"--plots": plots}, output=output, json=json)
    threshold = None if fit_threshold is None else ThresholdChoice(fit_threshold, *_costs(costs))
    scored = labelled.read(rows)
    given, _ = labelled.of(scored)
    reads = labelled_reads(scored, given)  # raises for unusable labels before the judge is called
    if contextual:
        empty = _empty_targets(scored, reads.judge, labelled, keys, judge, store_options)
        reads = labelled_reads(scored, given, empty)
    with bars() as bar:
        intervals = Bootstrap(bootstrap, seed, bar("bootstrap draws", None))
        calibration, reports = fit_calibration(reads, method=method, threshold=threshold, bootstrap=intervals)
    calibration.save(output)
    stdout = Console()
    for report in reports:
        about = f"{report.kind} items: {report.reads} reads, {report.groups} groups, held out"
        stdout.print(escape(f"{calibration.judge}, {about}"), soft_wrap=True)
        stdout.print(_table(report))
        stdout.print(escape(f"saved: {report.method}, {_parameters(calibration.maps[report.kind])}"), soft_wrap=True)
        if not report.helped:
            stderr.print(
                f"[yellow]On held-out groups the {escape(report.method)} map of {escape(report.kind)} items does not "
                "lower the Brier score; consider using the judge without calibration.[/]"
            )
    if reads.left_out:
        stdout.print(f"{reads.left_out} labelled items without probabilities were skipped.")
    stdout.print(f"written: {escape(str(output))}")
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for report in reports:
            name = re.sub(r"\W+", "_", report.kind)
            curves = {"before": report.confidences["before"], report.method: report.confidences[report.method]}
            plot_reliability(plots / f"reliability_{name}.png", curves, f"{report.kind} items, held out")
    if json is not None:
        write_json(json, _record(calibration, reports, reads.left_out))


def _costs(text: str) -> tuple[float, float]:
    try:
        false_yes, false_no = (float(part) for part in text.split(","))
    except ValueError:
        raise SampleError(
            f"--costs {text!r}: expected two numbers, the cost of a wrong yes and of a wrong no, such as 5,1."
        ) from None
    return false_yes, false_no


def _empty_targets(
    rows: Sequence[JudgedRow],
    name: str,
    labelled: Labelled,
    keys: o.Keys,
    judge: o.JudgeOptions,
    store_options: o.StoreOptions,
) -> dict[tuple[str, str], Verdict]:
    """The judge's verdict on every item for an empty target."""
    scorer = Work.of(o.Preset(), store_options, judge=judge).pipeline.scorer
    assert isinstance(scorer, ChecklistScorer)
    if scorer.judge.name != name:
        raise SampleError(
            f"the file was scored by {name!r} but --model is {scorer.judge.name!r}; --contextual requires the same "
            "judge."
        )
    columns = Columns.of(rows[0].data, inputs=keys.input_key, reference=keys.reference_key, history=keys.history_key)
    reads, places = [], []
    for number, row in enumerate(rows):
        input, history = columns.input_of(row.data, row.where)
        reference = columns.reference_of(row.data, row.where)
        for key, item in zip(row.keys, row.items, strict=True):
            if item.check is None:
                scorer.judge.check_item(item, row.where)
                reads.append(Read(item, EMPTY, input, reference, history, number))
                places.append((row.id, key))
    scorer.check()
    with bars() as bar:
        verdicts = scorer.judge.judge(reads, bar("empty targets", len(reads)))
    return dict(zip(places, verdicts, strict=True))


def _table(report: KindReport) -> Table:
    columns = {"before": report.before, **report.after}
    table = Table("", *columns)
    for figure in dict.fromkeys(name for figures in columns.values() for name in figures):
        table.add_row(figure, *(escape(f[figure].shown(4)) if figure in f else "" for f in columns.values()))
    return table


def _parameters(fitted: CalibrationMap) -> str:
    named = {name: getattr(fitted, name) for name in ("temperature", "slope", "intercept", "threshold")}
    shown = [f"{name} {value:.4g}" for name, value in named.items() if value is not None]
    return ", ".join(shown if fitted.knots is None else [f"{len(fitted.knots)} knots", *shown])


def _record(calibration: Calibration, reports: Sequence[KindReport], left_out: int) -> dict[str, Any]:
    def dumped(figures: Any) -> dict[str, Any]:
        return {name: figure.model_dump() for name, figure in figures.items()}

    return {
        "judge": calibration.judge,
        "read_by": calibration.read_by,
        "contextual": calibration.contextual,
        "left_out": left_out,
        "kinds": {
            report.kind: {
                "reads": report.reads,
                "groups": report.groups,
                "method": report.method,
                "before": dumped(report.before),
                "after": {name: dumped(figures) for name, figures in report.after.items()},
            }
            for report in reports
        },
    }
