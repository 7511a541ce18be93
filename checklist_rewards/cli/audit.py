"""`audit`: look for reward hacking in the log of a training run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.options.generated import group_of, setting
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import console, write_json
from checklist_rewards.files.rows import write_rows
from checklist_rewards.monitor import Audit, MonitorSettings, audit
from checklist_rewards.monitor.signals import SIGNALS, About
from checklist_rewards.validation import one_of

_SETTINGS = ("start", "window", "certainty", *(f"max_{signal.name}" for signal in SIGNALS))
"""The settings that apply to a log; the others say what is read during training."""
_PANEL = "Thresholds"
_OPTIONS: Any = group_of(*(setting(MonitorSettings, name, panel=_PANEL) for name in _SETTINGS))


class Thresholds(_OPTIONS):
    """Options that change the settings of the signals."""

    def settings(self) -> MonitorSettings:
        """The settings."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return MonitorSettings(**{name: value for name, value in given.items() if value is not None})


@grouped
def audit_log(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="LOG...", show_default=False, help="Reward logs of one run (rewards.jsonl)."),
    ],
    thresholds: Thresholds,
    about: Annotated[
        list[str] | None,
        typer.Option(show_default="all", help="Alarms that count: about hacking, the judge or training. Repeatable."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(show_default=False, help="Signal that must be evaluated. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="Write the records of a monitor to this JSONL file.",
        ),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", show_default=False, rich_help_panel=o.OUTPUT, help="Write the result to this JSON file."
        ),
    ] = None,
) -> None:
    r"""Look for reward hacking in the reward log of a training run.

    Computes the signals of the reward monitor from the file of `ChecklistReward(log=...)`, without a model. Logs of
    other ranks (rewards.rank1.jsonl) are included. The log of a monitored reward also has the signals of its held-out
    items, its shadow judge and its retests.

    Signals that could not be evaluated are listed with the reason: the log has no data for them, or too few steps.

    Exit code 0: nothing found; 1: an alarm; 2: invalid input; 3: no alarm, but the log has too few steps for some
    signals, or a signal of --require was not evaluated.

    **Example**

    ```
    checklist-rewards audit rewards.jsonl --json audit.json
    ```
    """
    check_outputs(logs, output=output, json=json)
    for name in about or ():
        one_of("--about", name, get_args(About))
    for name in require or ():
        one_of("--require", name, [signal.name for signal in SIGNALS])
    settings = thresholds.settings()
    with ExitStack() as stack:
        record = None if output is None else stack.enter_context(write_rows(output)).write
        result = audit(logs, settings, record)
    counted = [alarm for alarm in result.alarms if about is None or alarm.about in about]
    console.print(_table(result, settings))
    for alarm in counted:
        console.print(escape(str(alarm)), style="yellow" if alarm.about == "training" else "red")
    asked = {signal.name for signal in SIGNALS if about is None or signal.about in about}
    signals = len([name for name in asked if settings.threshold(name) is not None])
    missing = {name: reason for name, reason in result.not_evaluated.items() if name in asked}
    found = f"{len(counted)} alarms" if counted else f"nothing found by {signals - len(missing)} signals"
    console.print(f"{result.completions} completions in {result.steps} steps: {found}.")
    if missing:
        console.print(f"{len(missing)} of {signals} signals could not be evaluated:")
        for reason in dict.fromkeys(missing.values()):
            names = ", ".join(name for name, why in missing.items() if why == reason)
            console.print(f"  {reason}: {names}")
    if json is not None:
        write_json(json, result.as_json())
    if counted:
        raise typer.Exit(1)
    if result.too_short or result.not_evaluated.keys() & set(require or ()):
        raise typer.Exit(3)


def _table(result: Audit, settings: MonitorSettings) -> Table:
    table = Table("signal", "about", "start", "recent", "size", "threshold", "alarms", title="audit")
    table.title_justify = "left"
    table.columns[0].no_wrap = True
    for signal in SIGNALS:
        threshold = settings.threshold(signal.name)
        reading = result.readings.get(signal.name)
        if reading is None:
            continue
        steps = [str(alarm.step) for alarm in result.alarms if alarm.signal == signal.name]
        numbers = (reading.start, reading.recent, reading.size, threshold)
        shown = ["–" if number is None else f"{number:.3g}" for number in numbers]
        table.add_row(signal.name, signal.about, *shown, ", ".join(f"step {step}" for step in steps))
    return table
