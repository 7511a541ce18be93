"""Options of a run on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from checklist_rewards.cli.options.base import option

CLUSTER = "Cluster"


@dataclass(frozen=True)
class Cluster:
    """Where and how a dataset of shards is processed."""

    ray: Annotated[
        bool,
        option(
            CLUSTER,
            "Process shards on a Ray cluster (pip install 'checklist-rewards[ray]'). ROWS is a folder or a quoted "
            "pattern of files, or one .jsonl file, which is cut; --output is a folder. Rerun to resume.",
            "--ray",
        ),
    ] = False
    actors: Annotated[int | None, option(CLUSTER, "Actors, each with an engine of its own.", min=1, default="1")] = (
        None
    )
    num_gpus: Annotated[
        float | None,
        option(CLUSTER, "GPUs per actor.", min=0, default="the judge's tensor_parallel_size, else 0"),
    ] = None
    shard_rows: Annotated[
        int | None, option(CLUSTER, "Rows per shard when one .jsonl file is cut.", min=1, default="16384")
    ] = None
