"""The commands put together: names, the front help, and one place that turns errors into exit codes."""

from __future__ import annotations

import errno
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from checklist_rewards import __version__
from checklist_rewards.cli import (
    agree,
    calibrate,
    cascade,
    checklists,
    demo,
    distill,
    generate,
    inspect,
    lint,
    listing,
    pairs,
    probe,
    refine,
    rerank,
    score,
    serve,
)
from checklist_rewards.cli.report import console, refuse
from checklist_rewards.errors import ChecklistRewardsError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a write gives where there is no room: a full disk, a quota, a limit on the size of a file."""


class _Commands(TyperGroup):
    """Turns what a command raises on purpose into one line and an exit code, in one place for all of them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ChecklistRewardsError as error:
            refuse(str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            console.print(
                "Interrupted: nothing was written. What was answered so far is in the store (unless --no-store), so "
                "the same command goes on from here.",
                style="yellow",
            )
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno not in _FULL:
                raise
            refuse(
                f"a file could not be written to its end ({error.strerror or error}). An unfinished file is not kept. "
                "What was answered so far is in the store (unless --no-store, or the store's own disk is the full "
                "one), so the same command goes on from here once there is room."
            )
            raise typer.Exit(1) from None


app = typer.Typer(
    name="checklist-rewards",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    """Checklists of yes/no questions about texts: written by a model, answered by a judge, one token per question.

    The same scorer is the reward of TRL's trainers, so these commands give the numbers that a policy is trained on.

    **Files** are JSONL, CSV or Parquet, by extension. **Models** are "pocket" (tiny, packaged, knows
    only its own small world), a folder, a Hub id, or with --base-url the name on an OpenAI-compatible server.

    **Exit codes**: 0 everything is answered, 1 something is not (a table says what and why), 2 bad usage or
    input.
    """


app.command("generate", rich_help_panel="Checklists")(generate.generate)
app.command("score", rich_help_panel="Checklists")(score.score)
app.command("run", rich_help_panel="Checklists")(score.run)
app.command("refine", rich_help_panel="Checklists")(refine.refine)
app.command("rerank", rich_help_panel="Checklists")(rerank.rerank)
app.command("pairs", rich_help_panel="Checklists")(pairs.pairs)
app.command("inspect", rich_help_panel="Checklists")(inspect.inspect)
app.add_typer(checklists.app, name="checklists", rich_help_panel="Checklists")
app.command("list", rich_help_panel="Pipelines")(listing.show)
app.command("lint", rich_help_panel="Pipelines")(lint.lint)
app.command("cascade", rich_help_panel="Judges")(cascade.cascade)
app.command("agree", rich_help_panel="Judges")(agree.agree)
app.command("calibrate", rich_help_panel="Judges")(calibrate.calibrate)
app.command("distill", rich_help_panel="Judges")(distill.distill)
app.command("probe", rich_help_panel="Judges")(probe.probe)
app.command("serve", rich_help_panel="Judges")(serve.serve)
app.command("demo", rich_help_panel="Judges", context_settings=demo.PASS_THROUGH)(demo.demo)


def main() -> None:
    """Entry point of `checklist-rewards`."""
    app()
