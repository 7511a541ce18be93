"""A dataset as shards: files of rows that are processed one by one, in any order, on any machine.

Each shard becomes one Parquet file of the same name in the output folder. The file is created by renaming, so it is
complete or absent. Its metadata hold the settings of the run, the size and time of its source, and its totals.
A shard is finished if its file exists and matches settings and source. A rerun repeats only the other shards.

Files of the run other than its results are in the hidden folder `.checklist-rewards` of the output:

- `manifest.json`: the settings. A run with other settings is refused as soon as one shard has a result. Before that
  it takes the folder over, and the run that had it ends at its next result.
- `shards/`: the parts of a JSONL file, which is cut before the first run.
- `stores/`: one store of answers per shard. An unfinished shard repeats only what its store lacks, on whichever
  machine it continues. Machines do not share a store, except while one that was taken for dead still works.
- `attempts/`: notes of unfinished shards, per settings; see [`Attempts`].

A shard is processed so that one bad row fails alone:

- A row that is not valid is written without a result and listed.
- If a batch raises an error, its rows are processed one by one, and only the row that raises has no result.
- A row that ends the process (an engine crash, no memory) leaves a note of the batch in progress. A batch that was in
  progress at two such ends is split into smaller ones, down to one row, which then has no result.
"""

from __future__ import annotations

import glob
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checklist_rewards.datasets.tasks import RowTask, RowWork, Totals
from checklist_rewards.errors import (
    ConfigError,
    ModelError,
    PromptError,
    SampleError,
    StoreError,
    shown,
)
from checklist_rewards.files.atomic import atomic_path, write_json, write_text
from checklist_rewards.files.cells import JSON_TEXT, as_cell
from checklist_rewards.files.rows import CHUNK_ROWS, FORMATS, Row, file_format, read_rows, read_rows_for, write_batches
from checklist_rewards.files.spool import ArrowSpool, unified
from checklist_rewards.files.store import Store, key_of
from checklist_rewards.rows import moved
from checklist_rewards.scores.reasons import Reason, Unanswered

SHARD_ROWS = 16_384
"""Rows per shard when a JSONL file is cut."""
HIDDEN = ".checklist-rewards"
_RECORD = b"checklist_rewards"
_DEATHS = 2
_PARTS = 16
_NO_ROW = (ModelError, ConfigError, PromptError, StoreError)
"""Errors of the run, not of a row."""


class Attempts:
    """Notes of the batches in progress, in a file that outlives the process."""

    def __init__(self, path: Path):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="ascii").split("start\n") if path.exists() else []
        last = [lines.splitlines()[-1] for lines in before if lines.endswith("\n")]
        self._deaths = Counter(last)
        self._file = path.open("a", encoding="ascii")
        self._note("start")

    def deaths(self, rows: Sequence[Row]) -> int:
        """How often the process ended during this batch."""
        return self._deaths[_batch(rows)]

    def begin(self, rows: Sequence[Row]) -> None:
        """Note that this batch is in progress."""
        self._note(_batch(rows))

    def stopped(self) -> None:
        """Note that an error ended this attempt, which says nothing about the batch in progress."""
        self._note("error")
        self._file.close()

    def done(self) -> None:
        """Delete the notes."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _note(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


def process_shard(task: RowTask, folder: ShardFolder, shard: Shard, *, keep: bool = True) -> Totals:
    """Process one shard and write its result. Answers are stored if `keep`, so that an unfinished shard continues.

    Raises:
        ShardError: If the source cannot be read.
        ChecklistRewardsError: If the result cannot be written, or if the judge cannot be used. Then no shard can be
            processed.
    """
    store, output = folder.store(shard), folder.output(shard)
    work = task.of(shard.folder).open(Store(store) if keep else None, shard.name)
    attempts = Attempts(folder.attempts(shard))
    inputs = task.columns.inputs

    def rows() -> Iterator[Row]:
        with shard.reading():
            yield from read_rows_for(shard.source, output)

    def results() -> Iterator[dict[str, Any]]:
        for batch in in_groups(rows(), CHUNK_ROWS, lambda row: [row.data.get(key) for key in inputs]):
            for row in _results(work, batch, attempts):
                yield moved(row, shard.folder, output.parent)

    try:
        folder.write(shard, results(), lambda: work.totals_with_cost)
    except Exception as error:  # raised again; only the note of the batch in progress is closed
        attempts.stopped()
        if isinstance(error, ShardError):
            folder.confirm()  # another run may have replaced the parts of a file
        raise
    attempts.done()
    return work.totals_with_cost


def _results(work: RowWork, rows: Sequence[Row], attempts: Attempts) -> list[dict[str, Any]]:
    """The output rows of a batch, in order."""
    if attempts.deaths(rows) < _DEATHS:
        attempts.begin(rows)
        return _processed(work, rows)
    if len(rows) == 1:
        return [work.failed(rows[0], Unanswered(Reason.ROW_FAILED, "the process ended while it was processed"))]
    step = -(-len(rows) // _PARTS)
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    return [result for part in parts for result in _results(work, part, attempts)]


def _processed(work: RowWork, rows: Sequence[Row]) -> list[dict[str, Any]]:
    try:
        return work.process(rows, skip_invalid=True)
    except _NO_ROW:
        raise
    except Exception as error:  # anything that one row may raise; the other rows must not be lost
        if len(rows) == 1:
            why = Unanswered(Reason.ROW_FAILED, f"{type(error).__name__}: {error}"[:200])
            return [work.failed(rows[0], why)]
    return [result for row in rows for result in _processed(work, [row])]


def _batch(rows: Sequence[Row]) -> str:
    return f"{rows[0].number} {len(rows)}"


class ShardError(SampleError):
    """The source of a shard cannot be read. Other shards are not affected."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of rows."""

    source: Path
    of: Path | None = None
    """The file that it was cut from."""

    @property
    def folder(self) -> Path:
        """Where relative paths of images begin."""
        return (self.of or self.source).parent

    @property
    def name(self) -> str:
        """Its name without extension, which is also the name of its result."""
        return self.source.stem

    @property
    def stamp(self) -> str:
        """Size and time of the source. Another stamp means that the source has changed."""
        with self.reading():
            status = self.source.stat()
        return f"{status.st_size}-{status.st_mtime_ns}"

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn the errors of reading the source into [`ShardError`]."""
        try:
            yield
        except SampleError as error:
            raise ShardError(str(error)) from error
        except OSError as error:
            raise ShardError(f"{self.source}: cannot be read ({error.strerror or error}).") from error


@dataclass(frozen=True)
class ShardFolder:
    """The output folder of a run. It is created if it does not exist."""

    path: Path
    settings: dict[str, Any]
    """The settings of the run, as JSON values."""
    stores: Path | None = None
    """The folder of the stores; None for `stores` in the hidden folder."""

    @property
    def hidden(self) -> Path:
        """The folder of the files other than results."""
        return self.path / HIDDEN

    @property
    def digest(self) -> str:
        """Hash of the settings."""
        return key_of(json.dumps(self.settings, sort_keys=True)).hex()

    def output(self, shard: Shard) -> Path:
        """The result of a shard."""
        return self.path / f"{shard.name}.parquet"

    def store(self, shard: Shard) -> Path:
        """The store of a shard."""
        return (self.stores or self.hidden / "stores") / f"{shard.name}.sqlite"

    def attempts(self, shard: Shard) -> Path:
        """The notes of an unfinished shard. Other settings have other notes."""
        return self.hidden / "attempts" / f"{shard.name}-{self.digest[:12]}"

    def check_settings(self) -> None:
        """Raises [`SampleError`] if the folder holds results of a run with other settings."""
        if self._manifest.exists() and (found := self._difference()) and any(self.path.glob("*.parquet")):
            name, old, new = found
            raise SampleError(
                f"{self.path} holds results with {name} = {shown(old)}, now {shown(new)}; choose another "
                "--output, or delete the folder to start again."
            )

    def claim(self) -> None:
        """Create the manifest."""
        write_json(self._manifest, self.settings)

    def confirm(self) -> None:
        """Raises [`SampleError`] if a run with other settings has claimed the folder since, or if it was deleted."""
        try:
            found = self._difference()
        except FileNotFoundError:
            raise SampleError(f"{self.path} was deleted during the run; start the run again.") from None
        if found is not None:
            name, other, own = found
            raise SampleError(
                f"{self.path} is now the output of another run, with {name} = {shown(other)} where this run has "
                f"{shown(own)}; choose another --output."
            )

    @property
    def _manifest(self) -> Path:
        return self.hidden / "manifest.json"

    def _difference(self) -> tuple[str, Any, Any] | None:
        return _difference(json.loads(self._manifest.read_text(encoding="utf-8")), self.settings)

    def check(self, shards: Sequence[Shard]) -> None:
        """Raises [`SampleError`] if the folder has Parquet files other than the results of these shards."""
        expected = {self.output(shard) for shard in shards}
        others = sorted(path for path in self.path.glob("*.parquet") if path not in expected)
        if others:
            raise SampleError(f"{others[0]} is not the result of a shard of this run; choose another --output.")

    def finished(self, shard: Shard) -> Totals | None:
        """The totals of a finished shard, otherwise None. A shard with failures that may not recur, such as timeouts,
        is not finished."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            record = json.loads((pq.read_schema(self.output(shard)).metadata or {})[_RECORD])
            stamp = shard.stamp
        except (OSError, KeyError, ValueError, pa.ArrowException):  # with ShardError: the run lists that shard
            return None
        totals = Totals.load(record["totals"])
        same = record["settings"] == self.digest and record["source"] == stamp
        return totals if same and not totals.transient else None

    def write(self, shard: Shard, rows: Iterator[dict[str, Any]], totals: Callable[[], Totals]) -> None:
        """Write the result of a shard. `totals` is called after the last row.

        Raises [`SampleError`] if the result cannot be written, or belongs to a folder of another run by now.
        """
        stamp, output = shard.stamp, self.output(shard)
        with atomic_path(output) as temporary:
            spool = ArrowSpool(output.parent)
            try:
                for row in rows:
                    spool.write(row)
                record = {"settings": self.digest, "source": stamp, "totals": totals().dump()}
                schema = spool.schema
                schema = schema.with_metadata({**(schema.metadata or {}), _RECORD: json.dumps(record).encode()})
                write_batches(temporary, schema, spool.batches())
            finally:
                spool.close()
            self.confirm()


def find_shards(source: str | Path) -> list[Shard]:
    """The shards that a folder, a glob pattern or a file names, in order of their names. Raises [`SampleError`] if
    nothing is found, or two files have the same name."""
    path = Path(source)
    if path.is_dir():
        found = [file for file in path.iterdir() if file.suffix.lower() in FORMATS and not file.name.startswith(".")]
    else:
        found = [path] if path.is_file() else [Path(name) for name in glob.glob(str(source))]
    if not found:
        raise SampleError(f"{source}: no rows found; give a folder or a pattern of {', '.join(FORMATS)} files.")
    shards = sorted((Shard(file.resolve()) for file in found), key=lambda shard: shard.name)
    for one, other in zip(shards, shards[1:], strict=False):
        if one.name == other.name:
            raise SampleError(f"{one.source} and {other.source} have the same name; rename one of them.")
    for shard in shards:
        file_format(shard.source)
    return shards


def cut(source: Path, folder: Path, rows: int, key: Callable[[dict[str, Any]], Any]) -> list[Shard]:
    """Cut a JSONL file into shards of about `rows` lines in a folder, unless it was cut before; see [`in_groups`]."""
    mark = folder / "cut.json"
    state = json.dumps([str(source), Shard(source).stamp, rows])
    if not mark.exists() or mark.read_text(encoding="utf-8") != state:
        shutil.rmtree(folder, ignore_errors=True)
        with source.open("rb") as stream:
            for number, lines in enumerate(in_groups(stream, rows, lambda line: _key(line, key))):
                with atomic_path(folder / f"part-{number:05d}.jsonl") as temporary:
                    temporary.write_bytes(b"".join(lines))
        write_text(mark, state)
    return [replace(part, of=source) for part in find_shards(folder)]


def in_groups(rows: Any, size: int, key: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """Split rows into lists of `size`, or up to twice that where it keeps adjacent rows with equal keys together.

    >>> list(in_groups("aabbbc", 3, key=str))
    [['a', 'a', 'b', 'b', 'b'], ['c']]
    """
    batch: list[Any] = []
    for row in rows:
        if len(batch) >= size and (len(batch) >= 2 * size or key(row) != key(batch[-1])):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def align(paths: Sequence[Path]) -> list[tuple[Path, Any]]:
    """The files whose columns differ from the columns of all files together, each with the schema to rewrite it with:
    a column that is null in all rows of one shard may hold numbers in another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = {path: pq.read_schema(path).remove_metadata() for path in paths}
    types: dict[str, Any] = {}
    texts: set[str] = set()
    for schema in {schema.to_string(): schema for schema in schemas.values()}.values():
        for field in schema:
            if field.metadata == JSON_TEXT:
                texts.add(field.name)
            try:
                types[field.name] = unified(types.get(field.name, pa.null()), field.type)
            except (pa.ArrowException, ValueError):  # no common type: JSON text, as in a single file
                texts.add(field.name)
    types |= dict.fromkeys(texts, pa.string())
    common = pa.schema(
        [pa.field(name, type, metadata=JSON_TEXT if name in texts else None) for name, type in types.items()]
    )
    return [(path, common) for path, schema in schemas.items() if not schema.equals(common, check_metadata=True)]


def rewrite(path: Path, schema: Any) -> None:
    """Rewrite a Parquet file with the columns of `schema`. Values of a column that becomes text are written as
    JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file, atomic_path(path) as temporary:
        metadata = {_RECORD: file.schema_arrow.metadata[_RECORD]}
        texts = {
            field.name
            for field in file.schema_arrow
            if schema.field(field.name).metadata == JSON_TEXT and field.metadata != JSON_TEXT
        }

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in file.iter_batches(batch_size=1000):
                rows = batch.to_pylist()
                for name in texts:
                    rows = [row | {name: None if row[name] is None else as_cell(row[name])} for row in rows]
                yield pa.RecordBatch.from_pylist(rows, schema=schema)

        write_batches(temporary, schema.with_metadata(metadata), batches())


def settings_of(task: RowTask, source: str | Path, shard_rows: int | None) -> dict[str, Any]:
    """The settings of a run, as JSON values: those of the task with the content of the files that they name."""
    settings = {"source": str(Path(source).resolve()), **task.settings}
    if shard_rows is not None:
        settings["shard_rows"] = shard_rows
    return json.loads(json.dumps(_with_contents(settings)))


def _with_contents(value: Any) -> Any:
    """Values with the hash of the content of each file that they name: a prompt, a calibration, a file of judges."""
    if isinstance(value, dict):
        return {name: entry if name == "source" else _with_contents(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_with_contents(entry) for entry in value]
    if isinstance(value, str) and len(value) < 1000 and "\n" not in value and Path(value).is_file():
        return f"{value} ({key_of(Path(value).read_bytes()).hex()[:12]})"
    return value


def _difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first value that differs: its name, the old and the new value."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            found = _difference(before.get(key), now.get(key), f"{name}.{key}" if name else key)
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)


def _key(line: bytes, key: Callable[[dict[str, Any]], Any]) -> Any:
    """The key of a line; None if it is not a row, which is reported when the shard is read."""
    try:
        return key(json.loads(line))
    except (ValueError, RecursionError, AttributeError):
        return None


def first_row(shards: Sequence[Shard]) -> Row:
    """The first row of the first shard that has one. Raises [`SampleError`] if none has."""
    for shard in shards:
        for row in read_rows(shard.source):
            return row
    raise SampleError(f"{shards[0].source.parent} has no rows.")
