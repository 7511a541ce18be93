"""`diff`: what changes between two scorings of the same texts."""

from __future__ import annotations

import json as json_text
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.labels import Json, Resamples, Seed
from checklist_rewards.cli.options.rows import InputKey
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import bars, console, write_json
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.evaluation.agreement.measures import DEFAULT_RESAMPLES
from checklist_rewards.evaluation.differences import DifferenceReport, Differences, Matching, StoredScore, stored_reads
from checklist_rewards.files.rows import file_format, read_rows, write_rows
from checklist_rewards.progress import Bar
from checklist_rewards.ui.records import ID, Record, RecordFile

_SHOWN_ITEMS = 20
_SHOWN = 60


def diff(
    one: Annotated[Path, typer.Argument(metavar="ONE", show_default=False, help="A scored file or a reward log.")],
    other: Annotated[
        Path, typer.Argument(metavar="OTHER", show_default=False, help="The same texts with other scores.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="File with a row per text (.jsonl, .csv or .parquet): both scores and advantages, and all answers.",
        ),
    ] = None,
    json: Json = None,
    id_key: Annotated[
        str | None,
        typer.Option(
            show_default="id, else step, prompt and text",
            rich_help_panel=o.ROWS,
            help="Column of row ids, to match rows across files.",
        ),
    ] = None,
    input_key: InputKey = None,
    target_key: Annotated[
        str | None,
        typer.Option(show_default="target, else completion", rich_help_panel=o.ROWS, help="Column of the text."),
    ] = None,
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
) -> None:
    r"""Compare two scorings of the same texts: flipped answers, changed scores, and the order within groups.

    Reads two scored files, or two reward logs, for example a log and its `replay`. Rows are matched by their id, or by
    step, prompt and text, in any order; rows of one file only are counted and named. A group is the texts of a prompt,
    in a log of one step.

    **Examples**

    ```
    checklist-rewards diff rewards.jsonl again.jsonl
    checklist-rewards diff scored.jsonl lenient.jsonl --json diff.json -o diff.parquet
    ```
    """
    files = [one, other]
    check_outputs(files, output=output, json=json)
    if output is not None:
        file_format(output)
    sources = [RecordFile(path, input_key, target_key, id_key) for path in files]
    for source in sources:
        if source.kind() == "pairs":
            raise SampleError(f"{source.path} has pairs; `diff` requires scored files or reward logs.")
    named = id_key is not None or all(_has_id(source) for source in sources)
    with Matching() as matching, bars() as bar:
        for side, source in enumerate(sources):
            _load(matching, side, source, named, bar(source.path.name, source.count()))
        differences = Differences(matching)
        compared = bar("compared", None)
        if output is None:
            for _ in differences.rows():
                compared(1)
        else:
            with write_rows(output) as rows:
                for record in differences.rows():
                    rows.write(record)
                    compared(1)
        report = differences.report((str(one), str(other)), Bootstrap(bootstrap, seed, bar("bootstrap draws", None)))
    if report.rows == 0:
        raise SampleError(
            f"{one} and {other} have no row in common: the first rows are {_first(report.only_one.first)} and "
            f"{_first(report.only_other.first)} (set the id column with --id-key)."
        )
    _show(report)
    if json is not None:
        write_json(json, report.model_dump())


def _load(matching: Matching, side: int, source: RecordFile, named: bool, advance: Bar) -> None:
    for record in source:
        prompt = json_text.dumps([record.step, record.prompt])
        # A row without a prompt is a group of its own.
        group = prompt if record.prompt is not None else f"{prompt} {record.target}"
        # A row without an id among rows with ids is matched by its texts: its number may be the id of another row.
        texts = json_text.dumps([record.step, record.prompt, record.target])
        key = texts if not named else f"id {record.id}" if record.has_id else f"texts {texts}"
        matching.add(side, _digest(key), _digest(group), _stored(record).dumped())
        advance(1)


def _stored(record: Record) -> StoredScore:
    name = record.id if record.step is None else record.where
    score = None if record.score is None else record.score.primary_score
    return StoredScore(name, record.step, record.prompt, record.target, score, stored_reads(record.score))


def _has_id(source: RecordFile) -> bool:
    first = next(iter(read_rows(source.path)))
    return source.kind() == "scored" and first.data.get(ID) is not None


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="replace"), digest_size=16).digest()


def _first(names: tuple[str, ...]) -> str:
    return names[0] if names else "missing"


def _show(report: DifferenceReport) -> None:
    out = Console()
    for name, only in ((report.one, report.only_one), (report.other, report.only_other)):
        if only.rows:
            more = ", …" if only.rows > len(only.first) else ""
            console.print(
                f"{name}: {only.rows} rows are only in this file: {', '.join(only.first)}{more}", markup=False
            )
    out.print(_totals(report))
    if report.items:
        out.print(_items(report))
    if report.reads:
        out.print(_reads(report))


def _totals(report: DifferenceReport) -> Table:
    counts, figures = report.counts, report.figures
    table = Table("", "count", "share or mean", title=f"{report.one} → {report.other}", title_justify="left")
    lines: list[tuple[str, str, Any]] = [
        ("rows in both", str(report.rows), None),
        ("answers flipped", _of(counts["flips"], counts["reads"]), figures.get("flips")),
        ("kappa (yes/no items)", "", figures.get("kappa")),
        ("change of P(yes)", "", figures.get("shift")),
        ("absolute change of P(yes)", "", figures.get("distance")),
        ("scores changed", _of(counts["changed"], counts["scored"]), None),
        ("change of the score", "", figures.get("change")),
        ("absolute change of the score", "", figures.get("size")),
        ("order within groups (Kendall)", f"{counts['ranked']} groups", figures.get("kendall")),
        ("advantages reversed", _of(counts["reversed"], counts["advantages"]), figures.get("advantages_reversed")),
        ("another best or worst text", _of(counts["other_pair"], counts["pairs"]), figures.get("other_pair")),
        ("best below worst", _of(counts["reversed_pair"], counts["pairs"]), figures.get("reversed_pair")),
        ("groups without variance", f"{counts['flat_one']} → {counts['flat_other']} of {counts['groups']}", None),
    ]
    for name, count, figure in lines:
        table.add_row(name, count, "" if figure is None else figure.shown())
    if counts["unmatched_items"]:
        table.add_row("items in one of the two scores only", str(counts["unmatched_items"]), "")
    return table


def _items(report: DifferenceReport) -> Table:
    more = report.all_items - min(_SHOWN_ITEMS, len(report.items))
    title = "items" + (f" with the most flips ({more} more)" if more else "")
    table = Table(
        Column("item", min_width=32), "flips", "share", "kappa", "change of P(yes)", title=title, title_justify="left"
    )
    for item in report.items[:_SHOWN_ITEMS]:
        figures = item.figures
        table.add_row(
            escape(item.question[:_SHOWN]),
            _of(item.flips, item.reads),
            *(figures[name].shown(2) for name in ("flips", "kappa", "shift")),
        )
    return table


def _reads(report: DifferenceReport) -> Table:
    table = Table("row", "question", "text", "answers", "P(yes)", title="reads that differ most", title_justify="left")
    for read in report.reads:
        p = "" if read.p_one is None or read.p_other is None else f"{read.p_one:.2f} → {read.p_other:.2f}"
        texts = [escape((text or "").replace("\n", " ")[:_SHOWN]) for text in (read.question, read.completion)]
        table.add_row(escape(read.row), *texts, escape(f"{read.one} → {read.other}"), p)
    return table


def _of(count: int, total: int) -> str:
    return f"{count} of {total}"
