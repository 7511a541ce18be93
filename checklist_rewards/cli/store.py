"""`store`: work on the files that keep answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.cli.report import bars, console
from checklist_rewards.files.store import Store

app = typer.Typer(help="Merge stores of answers.", no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def _stores() -> None:
    """Merge stores of answers."""


@app.command()
def merge(
    stores: Annotated[list[Path], typer.Argument(help="SQLite files of answers.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Store that gets all answers; created if it does not exist.")
    ],
) -> None:
    """Add the answers of stores to one store, for example those of the shards of a run with --ray.

    **Example**

    ```
    checklist-rewards store merge scored/.checklist-rewards/stores/*.sqlite -o all.sqlite
    ```
    """
    store = Store(output)
    with bars() as bar:
        progress = bar("stores", len(stores))
        added = 0
        for path in stores:
            added += store.merge(path)
            progress(1)
    console.print(f"{added:,} answers added; {output} has {len(store):,}.")
