"""Processing the shards of a dataset on the machines of a Ray cluster.

    from checklist_rewards.datasets.ray import run_shards
    from checklist_rewards.datasets.tasks import RowTask

    totals = run_shards(RowTask(config, judge, columns), "answers/", "scored/", actors=8, num_gpus=1)

One actor holds one engine and processes one shard at a time, so all reads of a shard share a prefix cache. Actors read
and write the shared file system; no row passes through Ray's object store. An actor that ends is replaced, and its
shard continues on the next free actor. Actors that do not fit on the cluster wait for a node that joins later.

Shards are the unit of work, so this uses plain actors and not `ray.data` (2.60), whose checkpoints require a column of
unique ids in memory, whose output files do not follow those of the input, and where a row that ends its process costs
a whole block.

This requires Ray: `pip install 'checklist-rewards[ray]'`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from checklist_rewards.datasets.shards import (
    HIDDEN,
    SHARD_ROWS,
    Shard,
    ShardError,
    ShardFolder,
    align,
    cut,
    find_shards,
    first_row,
    process_shard,
    rewrite,
    settings_of,
)
from checklist_rewards.datasets.tasks import RowTask, Totals
from checklist_rewards.errors import BackendError, ChecklistRewardsError, ModelError, SampleError
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import finite, whole_number

logger = logging.getLogger(__name__)

_MAX_DEATHS = 12
"""Attempts of a shard. Isolating a row that ends its process takes two deaths per level of `datasets/shards.py`."""
_MAX_STARTS = 5
_WAIT_S = 60
_CONNECT_S = 10


def run_shards(
    task: RowTask,
    source: str | Path,
    output: str | Path,
    *,
    actors: int = 1,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    shard_rows: int = SHARD_ROWS,
    store: bool | str | Path = True,
    progress: Callable[[int, str], None] | None = None,
) -> Totals:
    """Process all shards that are not finished yet, on the cluster of `ray.init` or of the environment.

    Args:
        task ([`RowTask`]): what to do with the rows.
        source (`str` or `Path`): a folder or a glob pattern of .parquet, .jsonl or .csv files; or one .jsonl file,
            which is cut into shards first.
        output (`str` or `Path`): the folder of the results, one Parquet file per shard. All machines must have access
            to `source` and `output` under the same paths.
        actors (`int`, *optional*, defaults to `1`): number of actors, each with its own engine.
        num_cpus, num_gpus (`float`, *optional*): what Ray reserves for each actor. `num_gpus` defaults to the judge's
            `tensor_parallel_size`, otherwise to 0.
        shard_rows (`int`, *optional*, defaults to 16384): lines per shard when a file is cut.
        store (`bool` or path, *optional*, defaults to `True`): keep answers, in one store per shard: in this folder,
            or with True in a hidden folder of the output.
        progress (callable, *optional*): called after each shard with its number of rows and with a text, such as
            "3 of 10 shards".

    Returns:
        [`Totals`]: of all shards, including those that were finished before. Shards that could not be finished are
        counted as `shard_failed`.

    Raises:
        ChecklistRewardsError: If the settings, the columns or the first row are not valid, before anything starts; or
            if the judge cannot be used. Finished shards are kept.
    """
    whole_number("actors", actors)
    whole_number("shard_rows", shard_rows)
    finite("num_cpus", num_cpus, at_least=0)
    if num_gpus is None:
        num_gpus = float(task.judge.settings.get("tensor_parallel_size", 0))
    finite("num_gpus", num_gpus, at_least=0)
    path = Path(output).resolve()
    whole = Path(source).is_file() and Path(source).suffix.lower() == ".jsonl"
    stores = None if isinstance(store, bool) else Path(store).resolve()
    folder = ShardFolder(path, settings_of(task, source, shard_rows if whole else None), stores)
    shards = find_shards(source)
    if path.is_file():
        raise SampleError(f"--output {output} is a file, expected a folder.")
    if path in {shard.source.parent for shard in shards}:
        raise SampleError(f"--output {output} is the folder of the input; choose another one.")
    task.validate()
    task.open(None).validate(first_row(shards))
    for shard in shards:
        if whole or folder.finished(shard) is None:
            _check_images(task, shard)
    folder.check_settings()
    if not whole:
        folder.check(shards)
    results: dict[str, Totals | str] = {}

    def done(shard: Shard, result: Totals | str) -> None:
        results[shard.name] = result
        if progress is not None:
            progress(0 if isinstance(result, str) else result.rows, f"{len(results)} of {len(shards)} shards")

    with _connected():  # before any file is written
        folder.claim()
        if whole:
            keys = task.columns.inputs
            parts = path / HIDDEN / "shards"
            shards = cut(shards[0].source, parts, shard_rows, lambda row: [row.get(key) for key in keys])
            folder.check(shards)
        for shard in shards:
            if (finished := folder.finished(shard)) is not None:
                done(shard, finished)
        left = [shard for shard in shards if shard.name not in results]
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_restarts": 0}
        worker = ray.remote(_Worker).options(**options)
        for shard, result in _process(lambda: worker.remote(task, folder, bool(store), os.getcwd()), left, actors):
            done(shard, result)
        files = [folder.output(shard) for shard in shards if isinstance(results[shard.name], Totals)]
        ray.get([ray.remote(rewrite).remote(file, schema) for file, schema in align(files)])
    totals = Totals()
    for shard in shards:
        result = results[shard.name]
        if isinstance(result, Totals):
            totals += result
        else:
            totals.miss(Unanswered(Reason.SHARD_FAILED, result), shard.name)
    return totals


def _check_images(task: RowTask, shard: Shard) -> None:
    """Refuse a row with images that is not valid. Other invalid rows, and a file that cannot be read, are reported by
    the workers, and the rest is processed."""
    work = task.of(shard.folder).open(None)
    for row in _readable(shard):
        if work.has_images(row):
            work.validate(row)


def _readable(shard: Shard) -> Iterator[Row]:
    """The rows of a shard, up to one that cannot be read."""
    with suppress(ShardError), shard.reading():
        yield from read_rows(shard.source)


class _Worker:
    """An actor: one process with one engine."""

    def __init__(self, task: RowTask, folder: ShardFolder, keep: bool, where: str):
        self._task, self._folder, self._keep = task, folder, keep
        if os.path.isdir(where):  # the settings may name files by relative paths
            os.chdir(where)

    def ready(self) -> None:
        """Return when the actor has started."""

    def process(self, shard: Shard) -> Totals:
        """Process one shard."""
        return process_shard(self._task, self._folder, shard, keep=self._keep)


def _process(start: Callable[[], Any], shards: Sequence[Shard], actors: int) -> Iterator[tuple[Shard, Totals | str]]:
    """The totals of each shard as it is finished, or why it failed.

    Every actor has one call in flight: `ready`, or a shard. So an actor that waits for a node holds no shard.
    """
    queue, deaths, failed_starts = deque(shards), Counter[Shard](), 0
    running: dict[Any, tuple[Any, Shard | None]] = {}

    def begin(actor: Any, shard: Shard | None) -> None:
        running[actor.ready.remote() if shard is None else actor.process.remote(shard)] = actor, shard

    try:
        for _ in range(min(actors, len(shards))):
            begin(start(), None)
        while running:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_WAIT_S)
            if not ready:
                if all(shard is None for _, shard in running.values()):
                    logger.warning("no actor can start on the cluster, which has %s free.", ray.available_resources())
                continue
            actor, shard = running.pop(ready[0])
            try:
                result = ray.get(ready[0])
            except RayTaskError as error:
                cause = error.cause
                if isinstance(cause, ShardError):  # its source; the other shards may be fine
                    result = str(cause)
                elif shard is None or isinstance(cause, ChecklistRewardsError | OSError):
                    ray.kill(actor)  # it would keep its engine while the caller keeps the error
                    raise cause from None
                else:
                    result = f"{type(cause).__name__}: {cause}"[:200]
            except RayError as error:  # its process or its machine has ended
                ray.kill(actor)
                if shard is None:
                    failed_starts += 1
                    if failed_starts >= _MAX_STARTS:
                        raise BackendError(
                            f"the actors end before they start ({error}); see the logs of Ray."
                        ) from None
                    begin(start(), None)
                    continue
                deaths[shard] += 1
                logger.warning("an actor ended during shard %s, which is continued by another actor.", shard.name)
                if deaths[shard] < _MAX_DEATHS:
                    queue.append(shard)
                else:
                    yield shard, f"the process ended in each of {_MAX_DEATHS} attempts ({error})"[:300]
                if queue:
                    begin(start(), None)
                continue
            failed_starts = 0
            if shard is not None:
                yield shard, result
            if queue:
                begin(actor, queue.popleft())
            else:
                ray.kill(actor)
    finally:  # an error or an interrupt: no actor may write after the run has ended
        for actor, _ in running.values():
            ray.kill(actor)


@contextmanager
def _connected() -> Iterator[None]:
    """Connect to a cluster, unless the caller has: to that of `RAY_ADDRESS` or of this machine, or to a new one."""
    if ray.is_initialized():
        yield
        return
    _check_address()
    try:
        ray.init(include_dashboard=False, logging_level=logging.WARNING)
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _no_cluster(error) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_address() -> None:
    """Connect to the address of a cluster, such as "head:6379", once: Ray waits for minutes for one that does not
    answer. Raises [`ModelError`] if it does not connect within `_CONNECT_S`."""
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.rpartition("//")[2].partition("/")[0].rpartition(":")
    if host and port.isdigit():  # "auto" and "local" have no port
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        except OSError as error:
            raise _no_cluster(error) from error


def _no_cluster(error: Exception) -> ModelError:
    address = os.environ.get("RAY_ADDRESS")
    where = f"the cluster at RAY_ADDRESS={address} cannot be reached" if address else "Ray cannot be started here"
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return ModelError(f"{where}: {reason}.")
