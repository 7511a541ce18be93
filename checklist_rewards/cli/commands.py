"""The typer app: registers the commands, and turns errors into exit codes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from checklist_rewards import __version__
from checklist_rewards.cli import (
    agree,
    audit,
    calibrate,
    cascade,
    checklists,
    demo,
    diff,
    distill,
    generate,
    inspect,
    lint,
    listing,
    pairs,
    probe,
    refine,
    replay,
    report_page,
    rerank,
    score,
    serve,
    store,
    ui,
)
from checklist_rewards.cli.report import DISK_FULL, console, refuse
from checklist_rewards.errors import ChecklistRewardsError


class _Commands(TyperGroup):
    """Report the package's own errors as one line with an exit code; other exceptions keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ChecklistRewardsError as error:
            refuse(str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            console.print(
                "Interrupted: no output was written. Answers received so far are in the store (unless --no-store is "
                "set); rerun the same command to continue.",
                style="yellow",
            )
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            refuse(
                f"the output could not be written completely ({error.strerror or error}), so it was discarded. "
                "Answers received so far are in the store (unless --no-store is set or the store is on the full "
                "disk); free some space and rerun the same command to continue."
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
    """Score texts with checklists: a model writes yes/no questions, a judge answers each with a single token.

    These commands use the same scorer as the reward for TRL trainers, so their scores equal the training rewards.

    **Files** are JSONL, CSV or Parquet, chosen by extension. **Models** are "pocket" (a tiny packaged model for tests
    and demos), "english-encoder" and "english" (small packaged judges of English), a local folder, a Hub id or, with
    --base-url, the model name on an OpenAI-compatible server.

    **Exit codes**: 0 success; 1 some results are missing (a table lists them with the reason); 2 invalid arguments
    or input.
    """


app.command("generate", rich_help_panel="Checklists")(generate.generate)
app.command("score", rich_help_panel="Checklists")(score.score)
app.command("run", rich_help_panel="Checklists")(score.run)
app.command("refine", rich_help_panel="Checklists")(refine.refine)
app.command("rerank", rich_help_panel="Checklists")(rerank.rerank)
app.command("pairs", rich_help_panel="Checklists")(pairs.pairs)
app.command("replay", rich_help_panel="Checklists")(replay.replay)
app.command("inspect", rich_help_panel="Checklists")(inspect.inspect)
app.command("report", rich_help_panel="Checklists")(report_page.report)
app.add_typer(checklists.app, name="checklists", rich_help_panel="Checklists")
app.add_typer(store.app, name="store", rich_help_panel="Checklists")
app.command("list", rich_help_panel="Pipelines")(listing.show)
app.command("lint", rich_help_panel="Pipelines")(lint.lint)
app.command("cascade", rich_help_panel="Judges")(cascade.cascade)
app.command("diff", rich_help_panel="Judges")(diff.diff)
app.command("audit", rich_help_panel="Judges")(audit.audit_log)
app.command("agree", rich_help_panel="Judges")(agree.agree)
app.command("calibrate", rich_help_panel="Judges")(calibrate.calibrate)
app.command("distill", rich_help_panel="Judges")(distill.distill)
app.command("probe", rich_help_panel="Judges")(probe.probe)
app.command("serve", rich_help_panel="Judges")(serve.serve)
app.command("ui", rich_help_panel="Judges")(ui.ui)
app.command("demo", rich_help_panel="Judges", context_settings=demo.PASS_THROUGH)(demo.demo)


def main() -> None:
    """Entry point of `checklist-rewards`."""
    app()
