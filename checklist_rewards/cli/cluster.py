"""`--ray` of `score`, `generate` and `run`: the same work on the shards of a dataset, on a Ray cluster."""

from __future__ import annotations

from typing import Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.forecast import prices_from
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import DISK_FULL, RunReport, bars, console, refuse, warn_of_models
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.rows import Columns
from checklist_rewards.datasets.shards import find_shards, first_row
from checklist_rewards.datasets.tasks import Source
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import FORMATS
from checklist_rewards.validation import import_extra


def run_on_ray(
    command: Work,
    report: RunReport,
    files: o.Files,
    cluster: o.Cluster,
    dry: o.Dry,
    store: o.StoreOptions,
    *models: str,
    columns: dict[str, Any],
    scores: bool = True,
    checklists: Source | Checklist = Source.COLUMN,
) -> None:
    """Process all shards and print the report of all actors.

    Args:
        command ([`Work`]): config and engines.
        report ([`RunReport`]): the report of the command.
        files, cluster, dry, store: options of the command.
        *models (`str`): the models, to warn about the pocket model.
        columns (`dict`): arguments of [`Columns.of`].
        scores, checklists: as in [`RowTask`].
    """
    [module] = import_extra("checklist_rewards.datasets.ray", extra="ray")
    for name, value in (("--dry-run", dry.dry_run or None), ("--budget", dry.budget)):
        if value is not None:
            raise SampleError(f"{name} counts the calls of one process, so it cannot be combined with --ray; omit it.")
    shards = find_shards(files.rows)
    check_outputs(
        [files.rows, *(shard.source for shard in shards)], folders={"--output": files.output}, summary=files.summary
    )
    if files.output.suffix.lower() in FORMATS:
        raise SampleError(
            f"--output {files.output} looks like a file; --ray writes a folder with one Parquet file per shard, so "
            "give the name of a folder."
        )
    first = first_row(shards)
    blank = first.where.split(", ")[0].lower().endswith(".csv")
    task = command.task(Columns.of(first.data, blank_is_null=blank, **columns), scores=scores, checklists=checklists)
    prices = prices_from(dry.price)
    warn_of_models(*models)
    keep = store.store or not store.no_store
    settings = {"actors": cluster.actors, "num_gpus": cluster.num_gpus, "shard_rows": cluster.shard_rows}
    try:
        with bars() as bar:
            report += module.run_shards(
                task,
                files.rows,
                files.output,
                store=keep,
                progress=bar("rows", None),
                **{name: value for name, value in settings.items() if value is not None},
            )
    except KeyboardInterrupt:
        console.print(
            "Interrupted: finished shards are kept, and so are answers (unless --no-store is set); rerun the same "
            "command to continue.",
            style="yellow",
        )
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        refuse(
            f"a shard could not be written completely ({error.strerror or error}), so it was discarded. Finished "
            "shards are kept; free some space and rerun the same command to continue."
        )
        raise typer.Exit(1) from None
    command.account(report, prices)
    raise typer.Exit(report.finish(files.output, report.judged, files.summary))


def stores_of(cluster: o.Cluster, store: o.StoreOptions) -> o.StoreOptions:
    """The store that this process opens: none with --ray, where --store is the folder of the stores of the shards.

    Raises:
        SampleError: For cluster options without --ray.
    """
    if cluster.ray:
        store.check()
        return o.StoreOptions(no_store=True)
    for name in ("actors", "num_gpus", "shard_rows"):
        if (value := getattr(cluster, name)) is not None:
            raise SampleError(f"--{name.replace('_', '-')} {value} requires --ray; omit it.")
    return store
