"""Shards on a Ray cluster of this machine against one process: rate, overhead, memory, and a resume after kill -9.

Every row has two code checks and one question, which an engine in the process of the actor answers instantly. Reports

- rows per second of one process and of Ray with one actor, for two sizes up to 200,000 rows, and of two actors. From
  these follow the costs of starting and per row, and the number of rows below which one process is faster;
- memory of every actor after a tenth of the rows and at the end, and the disk used by input, output and stores;
- a second run, of which the driver and all Ray processes are killed with SIGKILL half way, and which is then started
  again: reads made in all, and whether its shards have the rows of the undisturbed run in the same order.

    python -P recipes/studies/benchmarks/shards.py                        # 20,000 to 200,000 rows
    python -P recipes/studies/benchmarks/shards.py --rows 10_000_000 --folder /fast/disk/ray

Prints the figures and writes them to `runs/bench/shards.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checklist_rewards.backends import Answer, Backend, Engine, Usage
from checklist_rewards.datasets.shards import HIDDEN
from checklist_rewards.datasets.tasks import RowTask
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.files.store import Store
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rows import Columns

CHECKLIST = [
    {"question": "Are there at most eight words?", "check": '{"type": "words", "at_most": 8}'},
    {"question": "Are there at most two sentences?", "check": '{"type": "sentences", "at_most": 2}'},
    {"question": "Is it kind?", "check": None},
]
MOST_ALONE = 200_000
"""Most rows of the runs that are compared with one process."""
SHARD_ROWS = 16_384
"""Rows per shard; a small dataset has 16 shards."""
_ANSWER = Answer((math.log(0.7), math.log(0.3)))


class Instant(Backend):
    """An engine that answers yes at once, and writes the number of its reads to a file per process."""

    chunk_reads = 4096
    identity = "instant"

    def __init__(self, log: str):
        self.log, self.reads = log, 0

    def read(self, groups: Any, labels: Any) -> tuple[list[Answer], Usage]:
        self.reads += sum(len(group.tails) for group in groups)
        Path(self.log, f"{os.getpid()}.reads").write_text(str(self.reads))
        return [_ANSWER for group in groups for _ in group.tails], Usage()

    def generate(self, prompts: Any, sampling: Any, arrived: Any = None) -> Any:
        raise NotImplementedError


def task(log: Path) -> RowTask:
    """The work on the rows."""
    return RowTask(PipelineConfig(), Engine("instant", Instant(str(log))), Columns.of({"prompt": "", "target": ""}))


def write_input(folder: Path, rows: int) -> None:
    """Write the shards. Eight rows have one prompt."""
    folder.mkdir(parents=True)
    step = min(SHARD_ROWS, -(-rows // 16))
    for shard, start in enumerate(range(0, rows, step)):
        numbers = range(start, min(start + step, rows))
        table = pa.Table.from_pydict(
            {
                "prompt": [f"Write about place {number // 8}." for number in numbers],
                "target": [f"Place {number} is old. " + "It is quiet there. " * (number % 3) for number in numbers],
                "checklist": [CHECKLIST] * len(numbers),
            }
        )
        pq.write_table(table, folder / f"part-{shard:05d}.parquet")


def one_process(source: Path, output: Path, log: Path) -> None:
    """Score all shards as `checklist-rewards score` does with one file."""
    log.mkdir(parents=True)
    opened = task(log).open(Store(output.with_suffix(".sqlite")))
    with write_rows(output) as out:
        rows = (row for path in sorted(source.iterdir()) for row in read_rows(path))
        while chunk := list(islice(rows, 4096)):
            for row in opened.work.process(chunk):
                out.write(row)


def over_ray(source: Path, output: Path, log: Path, actors: int) -> None:
    """Score all shards on a new local cluster."""
    import ray

    from checklist_rewards.datasets.ray import run_shards

    log.mkdir(parents=True, exist_ok=True)
    memory = 100 * 2**20
    ray.init("local", num_cpus=actors, include_dashboard=False, object_store_memory=memory, logging_level="warning")
    started = time.perf_counter()
    totals = run_shards(task(log), source, output, actors=actors)
    (log / "seconds").write_text(str(time.perf_counter() - started))
    assert not totals.unanswered, totals.unanswered
    ray.shutdown()


def start(kind: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A run in a process of its own."""
    return subprocess.Popen([sys.executable, "-P", __file__, kind, *map(str, arguments)])


def timed(kind: str, *arguments: object) -> float:
    """Seconds of a run, with its start."""
    started = time.perf_counter()
    assert start(kind, *arguments).wait() == 0
    return time.perf_counter() - started


def children(root: int) -> list[int]:
    """A process and everything it started."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def memory(processes: list[int]) -> dict[int, float]:
    """Resident MiB of the actors among these processes."""
    sizes = {}
    for process in processes:
        try:
            name = Path(f"/proc/{process}/cmdline").read_text()
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        if name.startswith("ray::_Worker"):
            sizes[process] = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return sizes


def reads(log: Path) -> int:
    """Reads that all engines of a run have made."""
    return sum(int(path.read_text() or 0) for path in log.glob("*.reads"))


def disk(path: Path) -> float:
    """MiB of a file or folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


def compared(folder: Path, other: Path) -> tuple[int, bool]:
    """Rows of the shards in a folder, and whether another folder has the same shards with the same rows in order."""
    names = sorted(path.name for path in folder.glob("*.parquet"))
    same = names == sorted(path.name for path in other.glob("*.parquet"))
    rows = sum(pq.read_metadata(folder / name).num_rows for name in names)
    return rows, same and all(pq.read_table(folder / name).equals(pq.read_table(other / name)) for name in names)


def watched(folder: Path, source: Path, rows: int, kill_at: float | None, output: str) -> dict[str, Any]:
    """A run with two actors: memory at a tenth of the rows and at the end; killed at a fraction of the rows."""
    log, out = folder / f"{output}.log", folder / output
    started, early, late, killed = time.perf_counter(), {}, {}, None
    run = start("ray", source, out, log, 2)
    while run.poll() is None:
        time.sleep(0.5)
        done = reads(log) / rows if log.exists() else 0.0
        late = memory(children(run.pid)) or late
        if not early and done >= 0.1:
            early = late
        if kill_at is not None and done >= kill_at:
            killed = done
            for process in children(run.pid):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            run.wait()
            break
    assert killed is not None or run.returncode == 0
    return {
        "seconds": time.perf_counter() - started,
        "MiB per actor at 10%": sorted(round(size, 1) for size in early.values()),
        "MiB per actor at the end": sorted(round(size, 1) for size in late.values()),
        "killed at": killed,
        "shards finished": len(list(out.glob("*.parquet"))),
        "reads": reads(log),
    }


def measure(folder: Path, rows: int) -> dict[str, Any]:
    """All figures."""
    result: dict[str, Any] = {"rows": rows, "load at start": os.getloadavg()}
    sizes = [min(rows, MOST_ALONE) // 10, min(rows, MOST_ALONE)]
    for size in {*sizes, rows}:
        write_input(folder / f"in-{size}", size)
    for size in sizes:
        source, name = folder / f"in-{size}", f"{size:,} rows"
        alone = timed("alone", source, folder / f"alone-{size}.parquet", folder / f"alone-{size}.log")
        with_ray = timed("ray", source, folder / f"one-{size}", folder / f"one-{size}.log", 1)
        inside = float((folder / f"one-{size}.log" / "seconds").read_text())
        result[name] = {
            "one process": {"seconds": alone, "rows/s": size / alone},
            "Ray, 1 actor": {"seconds": with_ray, "rows/s": size / with_ray, "seconds without start of Ray": inside},
            "shards": len(list(source.iterdir())),
        }
        print(name, json.dumps(result[name]), flush=True)
    source = folder / f"in-{rows}"
    result["undisturbed"] = watched(folder, source, rows, None, "undisturbed")
    result["undisturbed"]["rows/s"] = rows / result["undisturbed"]["seconds"]
    result["MiB"] = {
        "input": disk(source),
        "output": sum(disk(path) for path in (folder / "undisturbed").glob("*.parquet")),
        "stores": disk(folder / "undisturbed" / HIDDEN / "stores"),
    }
    print("undisturbed", json.dumps(result["undisturbed"]), json.dumps(result["MiB"]), flush=True)
    result["killed"] = watched(folder, source, rows, 0.5, "killed")
    print("killed", json.dumps(result["killed"]), flush=True)
    result["resumed"] = watched(folder, source, rows, None, "killed")
    print("resumed", json.dumps(result["resumed"]), flush=True)
    result["rows of the resumed run"], result["same output"] = compared(folder / "killed", folder / "undisturbed")
    result["reads made twice"] = result["resumed"]["reads"] - rows
    result["load at end"] = os.getloadavg()
    print(
        f"{result['rows of the resumed run']:,} rows, equal to the undisturbed run: {result['same output']}; "
        f"{result['reads made twice']} reads repeated"
    )
    return result


def main() -> int:
    """Run the benchmark, or one of its processes."""
    if sys.argv[1:2] == ["alone"]:
        one_process(*map(Path, sys.argv[2:5]))
        return 0
    if sys.argv[1:2] == ["ray"]:
        over_ray(*map(Path, sys.argv[2:5]), actors=int(sys.argv[5]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the largest run (default: 200,000)")
    parser.add_argument("--folder", type=Path, default=Path("runs/bench/ray"), help="folder for all files; replaced")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    result = measure(arguments.folder.resolve(), arguments.rows)
    arguments.folder.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result["same output"] else 1


if __name__ == "__main__":
    sys.exit(main())
