"""`ui`: run the app on this machine."""

from __future__ import annotations

import secrets
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.cli import options as o
from checklist_rewards.cli.forecast import CHECKLISTS, SCORES
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import console, warn_of_models
from checklist_rewards.cli.serve import SERVER, listen, run_server
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError

DEFAULT_PORT = 8091


@grouped
def ui(
    preset: o.Preset,
    judge: o.JudgeOptions,
    writer: o.OwnWriter,
    folder: Annotated[
        Path,
        typer.Argument(metavar="[FOLDER]", help="Project folder: the only files that the app reads and writes."),
    ] = Path("."),
    port: Annotated[
        int, typer.Option(rich_help_panel=SERVER, min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free one.")
    ] = DEFAULT_PORT,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", rich_help_panel=SERVER, help="Only print the URL; open no browser.")
    ] = False,
    concurrency: o.Concurrency = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Open the app: look at files, annotate responses, judge and compare, and export settings as code.

    The app runs on this machine, for one browser: the printed URL has a random token, without which every request is
    refused. It reads and writes only the files of FOLDER. Judge options are those of **score**; keys of servers stay
    in the environment.

    **Examples**

    ```
    checklist-rewards ui
    checklist-rewards ui runs/demo --model org/judge --base-url http://localhost:8000/v1
    checklist-rewards ui project --no-browser --port 8091
    ```
    """
    try:
        from checklist_rewards.server import connections  # noqa: F401
        from checklist_rewards.ui.app import build_ui
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn", "httptools"):
            raise
        raise SampleError(
            f"ui requires {error.name}, which is not installed: pip install 'checklist-rewards[ui]'."
        ) from None
    from checklist_rewards.ui.judging import Judging
    from checklist_rewards.ui.project import Project

    project = Project.at(folder)
    engine = writer.engine_beside(judge)
    work = Work.of(preset, store_options, writing=writer, writer=engine, judge=judge, concurrency=concurrency)
    assert work.writer is not None
    chosen = None if store_options.store is None else str(store_options.store.resolve())
    judging = Judging(
        project,
        work.config,
        judge.settings,
        work.engine(SCORES, work.judge),
        work.engine(CHECKLISTS, work.writer),
        work.store,
        chosen,
    )
    judging.pipeline({}).scorer.check()
    warn_of_models(work.judge_name)
    token = secrets.token_urlsafe(24)
    app = build_ui(judging, token)
    with listen("127.0.0.1", port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}"
        console.print(f"The app of {project.folder} is at {address}", soft_wrap=True, markup=False)
        console.print("Press Ctrl-C to stop.")
        if not no_browser:
            webbrowser.open(address)
        run_server(app, listening)
    for job in app.state.jobs.running():
        console.print(f"Job {job} goes on without the app; open the app again to follow or pause it.", markup=False)
