"""Which commands exist, under which heading; errors become exit codes.

The module of a command is imported when the command is used or its own help is shown. The table has what the list of
commands needs.
"""

from __future__ import annotations

import io
import logging
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import override

from checklist_rewards.cli.help import SETTINGS, Command, Group
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.version import __version__


class _Entry(NamedTuple):
    """A command in the table."""

    heading: str
    place: str
    """Module in `checklist_rewards.cli`, and the function or typer app, unless it has the name of the command."""
    summary: str
    """First sentence of its help."""


_TABLE = {
    "Write": {
        "generate": ("scoring", "Write a checklist for every input, or one for a whole corpus."),
        "checklists": ("checklists:checklists_app", "Import checklists from other projects, and export them."),
        "list": ("checklists:show", "List pipelines, generators, refiners, scorers, backends, checks and prompts."),
        "lint": (
            "checklists",
            "Validate prompts (.md), configs (.json, .yaml) and checklists (.json, or rows in .jsonl, .csv, "
            ".parquet).",
        ),
    },
    "Score": {
        "score": ("scoring", "Score texts by their checklists."),
        "run": ("scoring", "Write a checklist for every input and score the target by it."),
        "rerank": ("candidates", "Rank candidates by their checklist score (best-of-N)."),
        "pairs": (
            "candidates",
            "Build preference pairs from candidates by their checklist scores, for DPO, KTO or a reward model.",
        ),
        "refine": ("candidates", "Let a model revise its own answers until they pass their checklists (STICK)."),
        "replay": ("replaying", "Score a reward log or a scored file again, without sampling new texts."),
    },
    "Train": {
        "demo": ("training", "Run an end-to-end demo with the pocket model: checklists, GRPO, best-of-8 and a plot."),
        "audit": ("training:audit_log", "Look for reward hacking in the reward log of a training run."),
        "distill": (
            "training",
            "Fine-tune a small encoder into a judge, from human labels or the probabilities of a larger judge.",
        ),
    },
    "Trust": {
        "probe": (
            "trust",
            "Test a judge on twelve obvious questions, and reject a model that cannot tell yes from no.",
        ),
        "attack": ("attacking", "Attack a judge: how much it rewards texts that should not be rewarded."),
        "agree": (
            "trust",
            "Measure the agreement of judges with labels, or with each other, with confidence intervals.",
        ),
        "calibrate": (
            "trust",
            "Calibrate a judge on labelled reads, with its error on held-out groups before and after.",
        ),
        "fit": ("improving", "Fit the weights of checklist items to ratings or preferences of people."),
        "improve": (
            "improving",
            "Improve a checklist on labelled rows: change items, and keep what raises the agreement on other rows.",
        ),
        "cascade": (
            "replaying",
            "Simulate a judge cascade from two scored files: cost against agreement at each margin.",
        ),
        "diff": (
            "replaying",
            "Compare two scorings of the same texts: flipped answers, changed scores, and the order within groups.",
        ),
        "inspect": (
            "looking",
            "Rank checklist items by how much they contribute: pass rate, variance, discrimination, redundancy.",
        ),
    },
    "Serve": {
        "serve": ("serving", "Serve rewards over HTTP: one judge for any number of trainers."),
        "ui": (
            "serving",
            "Open the app: look at files, annotate responses, judge and compare, and export settings as code.",
        ),
        "store": ("checklists:store_app", "Merge stores of answers."),
    },
    "Look": {
        "report": (
            "looking",
            "Write one HTML page about a run: scores, every answer, training curves, comparisons, agreement with "
            "labels.",
        ),
    },
}
_ENTRIES = {name: _Entry(heading, *entry) for heading, commands in _TABLE.items() for name, entry in commands.items()}
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}
"""Context settings of `demo`, whose options are those of its script."""


class _Lazy(dict[str, Any]):
    """The commands by name; each is built when it is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_ENTRIES))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = _built(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


def _built(name: str) -> Any:
    entry = _ENTRIES[name]
    module, _, attribute = entry.place.partition(":")
    found = getattr(import_module(f"checklist_rewards.cli.{module}"), attribute or name)
    one = typer.Typer(**SETTINGS)
    one.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        one.add_typer(found, name=name, rich_help_panel=entry.heading)
    else:
        settings = _PASSED_ON if name == "demo" else None
        one.command(name, cls=Command, rich_help_panel=entry.heading, context_settings=settings)(found)
    return typer.main.get_group(one).commands[name]


class _Commands(Group):
    """The commands of the table. The package's own errors are one line with an exit code; other exceptions keep their
    traceback."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.commands = _Lazy()

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of the table."""
        return list(_ENTRIES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under their headings."""
        for heading, commands in _TABLE.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ChecklistRewardsError as error:
            from checklist_rewards.cli.output import refuse

            refuse(str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            # Nothing is imported here: the interrupted command may have been importing it.
            typer.secho(f"Interrupted: {self._after_interruption(ctx)}", fg="yellow", err=True)
            raise typer.Exit(130) from None
        except OSError as error:
            from checklist_rewards.cli.output import DISK_FULL, NO_ACCESS, refuse

            if error.errno in NO_ACCESS and error.filename is not None:
                refuse(f"{error.filename}: cannot be read or written ({error.strerror}).")
                raise typer.Exit(2) from None
            if error.errno not in DISK_FULL:
                raise
            stored = (
                "Answers received so far are in the store (unless --no-store is set or the store is on the full "
                "disk); free some space and rerun the same command to continue."
            )
            again = stored if self._has_store(ctx) else "Free some space and rerun the same command."
            reason = error.strerror or error
            file = error.filename or "the output"
            refuse(f"{file} could not be written completely ({reason}), so it was discarded. {again}")
            raise typer.Exit(1) from None

    def _after_interruption(self, ctx: Any) -> str:
        if ctx.invoked_subcommand not in self.commands:
            return "the command had not begun."
        if not self._has_store(ctx):
            return "this command keeps no answers; rerun it to start from the beginning."
        return (
            "no output was written. Answers received so far are in the store (unless --no-store is set); rerun the "
            "same command to continue."
        )

    def _has_store(self, ctx: Any) -> bool:
        """Whether the command keeps answers, from which a rerun continues."""
        name = ctx.invoked_subcommand
        return name in self.commands and any(one.name == "no_store" for one in self.commands[name].params)


app = typer.Typer(name="checklist-rewards", cls=_Commands, **SETTINGS)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"checklist-rewards {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Score texts with checklists: a model writes yes/no questions, a judge answers each with a single token.

    These commands use the same scorer as the reward for TRL trainers, so their scores equal the training rewards.

    **Files** are JSONL, CSV or Parquet, chosen by extension. **Models** are "pocket" (a tiny packaged model for tests
    and demos), "english-encoder" and "english" (small packaged judges of English), "english-writer" (writes
    checklists), a local folder, a Hub id or, with --base-url, the model name on an OpenAI-compatible server.

    **Exit codes**: 0 success; 1 some results are missing (a table lists them with the reason); 2 invalid arguments
    or input.
    """


class _Lines(logging.Handler):
    """Prints messages on stderr, above progress bars."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        from checklist_rewards.cli.output import console

        console.print(self.format(record))


def run() -> None:
    """Run the command. Lines say when a model is loaded and when it is ready, because a large one takes minutes.
    Engines are closed before Python's exit handlers run."""
    engines = logging.getLogger("checklist_rewards.backends.engine")
    engines.setLevel(logging.INFO)
    engines.addHandler(_Lines())
    if isinstance(sys.stdout, io.TextIOWrapper):  # an encoding without a character of a table must not end a command
        with suppress(OSError):  # its descriptor was replaced by that of a pipe
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    finally:
        backends = sys.modules.get("checklist_rewards.backends")  # no command without engines imports it
        if backends is not None:
            backends.close_engines()
