"""`probe`: test whether a model can be used as a judge."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import refuse, write_json
from checklist_rewards.judges.probe import DEFAULT_MARGIN, ProbeReport
from checklist_rewards.judges.probe import probe as ask

_HIDDEN = "unknown: the model is on a server"


@grouped
def probe(
    judge: o.ProbeOptions,
    margin: Annotated[
        float,
        typer.Option(
            min=-1,
            max=1,
            rich_help_panel=o.JUDGE,
            help="Smallest difference between the mean P(yes) of yes items and of no items.",
        ),
    ] = DEFAULT_MARGIN,
    summary: o.Summary = None,
) -> None:
    """Test a judge on twelve obvious questions, and reject a model that cannot tell yes from no.

    Reports the separation of yes and no items, the probability mass of the labels at the next token, the tokens read
    as yes and no, the position of the label in the model's own replies, and the end of the prompt (an open thinking
    block makes every read useless). Answers are not stored. Exit code 1 if the judge is rejected.

    **Examples**

    ```
    checklist-rewards probe --model org/judge
    checklist-rewards probe --model org/judge --base-url http://localhost:8000/v1
    ```
    """
    check_outputs([], summary=summary)
    report = ask(judge.engine, margin=margin, **judge.settings)
    out = Console()
    out.print(_items(report))
    out.print(_facts(report))
    if summary is not None:
        numbers = ("accuracy", "yes_mean", "no_mean", "margin", "mass", "answered", "label_first", "refusal")
        write_json(summary, {**{name: getattr(report, name) for name in numbers}, **asdict(report)})
    if report.refusal is not None:
        refuse(report.refusal)
        raise typer.Exit(1)


def _items(report: ProbeReport) -> Table:
    table = Table("question", "truth", "P(yes)", "mass", "its reply")
    for line in report.lines:
        table.add_row(
            line.item.question,
            "yes" if line.item.holds else "no",
            _number(line.p_yes) if line.unanswered is None else escape(line.unanswered),
            _number(line.mass),
            escape(repr((line.opening or "")[:24])),
        )
    return table


def _facts(report: ProbeReport) -> Table:
    table = Table(show_header=False)
    forms = _HIDDEN
    if report.labels is not None:
        forms = "; ".join(f"{label}: {' '.join(map(repr, tokens))}" for label, tokens in report.labels.items())
    first = f"first word in {report.label_first} of {len(report.lines)}"
    if all(line.opening is None for line in report.lines):
        first = "none: it writes no text"
    others = sorted({line.label_at for line in report.lines if line.label_at is not None and line.label_at > 1})
    for name, value in (
        ("accuracy", f"{report.accuracy:.2f} at threshold {report.threshold}"),
        ("mean P(yes), yes items", _number(report.yes_mean)),
        ("mean P(yes), no items", _number(report.no_mean)),
        ("margin", f"{_number(report.margin)}, at least {report.least_margin} required"),
        ("mean mass", _number(report.mass)),
        ("tokens read", forms),
        ("label in its own replies", first + (f"; also as word {', '.join(map(str, others))}" if others else "")),
        ("end of the prompt", _HIDDEN if report.tail is None else repr(report.tail)),
        ("thinking block at the end", report.thinking or _HIDDEN),
        ("verdict", "rejected" if report.refusal is not None else "usable as a judge"),
    ):
        table.add_row(name, escape(value))
    return table


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
