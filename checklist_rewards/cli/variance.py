"""The tables of `replay --repeat`: variance components, and the repeats that a precision needs."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from checklist_rewards.evaluation.agreement import Figure
from checklist_rewards.evaluation.variance import Components, VarianceReport

_SHOWN_ITEMS = 20
_QUESTION = 60


def show_variance(console: Console, report: VarianceReport) -> None:
    """Print the tables of a report."""
    rows = f"{report.rows} rows, {report.repeats} repeats, {report.how}"
    if report.incomplete:
        rows += f"; {report.incomplete} rows without a score in one of the repeats are left out"
    for name, components in (("scores", report.scores), ("reads", report.reads)):
        if components is not None:
            console.print(_components(f"variance of the {name} ({rows})", components))
    if report.items:
        console.print(_items(report))
    if report.standard_errors:
        table = Table("repeats", "standard error", "within a group", title="precision", title_justify="left")
        for error in report.standard_errors:
            table.add_row(str(error.repeats), f"{error.all_texts:.4f}", f"{error.within_repeat:.4f}")
        console.print(table)
        console.print(f"A standard error of {report.precision:g} or less needs {report.needed} answers per question.")


def _components(title: str, components: Components) -> Table:
    table = Table("component", "variance", "share", title=title, title_justify="left")
    parts = {name: f for name, f in components.figures.items() if name not in ("judge", "judge_share")}
    whole = sum(figure.value or 0.0 for figure in parts.values())
    for name, figure in parts.items():
        share = "" if figure.value is None or whole == 0 else f"{figure.value / whole:.1%}"
        table.add_row(name, figure.shown(4), share)
    table.add_section()
    table.add_row("judge", components.figures["judge"].shown(4), _percent(components.figures["judge_share"]))
    return table


def _items(report: VarianceReport) -> Table:
    more = report.all_items - min(_SHOWN_ITEMS, len(report.items))
    title = "items with the largest judge variance" + (f" ({more} more)" if more else "")
    table = Table(
        Column("item", min_width=32),
        "texts",
        "text variance",
        "judge variance",
        "judge's share",
        title=title,
        title_justify="left",
    )
    for item in report.items[:_SHOWN_ITEMS]:
        figures = item.figures
        table.add_row(
            escape(item.question[:_QUESTION]),
            str(item.texts),
            figures["text"].shown(4),
            figures["judge"].shown(4),
            _percent(figures["judge_share"]),
        )
    return table


def _percent(figure: Figure) -> str:
    if figure.value is None:
        return ""
    known = figure.low is not None and figure.high is not None
    return f"{figure.value:.1%}" + (f" [{figure.low:.1%}, {figure.high:.1%}]" if known else "")
