"""Benchmark of the local app (`make bench`), on a backend that answers at once.

- Judge: milliseconds from the request to the first answer and to the score, and the overhead per answer over calling
  the scorer directly, for the checklist of one response; medians over the repeats.
- A project with a scored file of 20,000 rows x 10 items: first paint of the app's own report in headless Chromium, if
  it is installed, when the file is read for the first time and when its report is known; and the memory of the server
  process before and after.

Prints a table and writes `runs/bench/app.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 3)]
from studies.benchmarks.figures import figures, finish, memory_mib, parser_of, server
from studies.benchmarks.report import chromium, rows

from checklist_rewards import ChecklistScorer
from checklist_rewards.ui.guard import HEADER
from tests.fakes import FakeBackend

TOKEN = "benchmark"
DEADLINE = 120
SERVER = """
import sys
from pathlib import Path
from checklist_rewards.backends import Engine
from checklist_rewards.cli.serving import listen, run_server
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui.app import build_ui
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests.fakes import FakeBackend

engine = Engine("instant", FakeBackend(lambda prefix, tail: 0.9))
app = build_ui(Judging(Project.at(sys.argv[1]), PipelineConfig(), {}, engine, engine), sys.argv[2])
with listen("127.0.0.1", 0) as listening:
    print(listening.getsockname()[1], flush=True)
    run_server(app, listening)
"""
PAINTED = "return performance.getEntriesByType('paint').length > 0 && document.querySelector('.tiles') !== null"


def judge(client: httpx.Client, items: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of the view Judge, and of the scorer alone."""
    checklist = [f"Does the response meet condition {number}?" for number in range(items)]
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.9), store=False)
    times: dict[str, list[float]] = {"scorer": [], "app, first answer": [], "app, all answers": []}
    for number in range(repeats + 1):
        target = f"A response, number {number}."
        started = time.perf_counter()
        with client.stream("POST", "/api/judge", json={"target": target, "checklist": checklist}) as answer:
            first = 0.0
            for line in answer.iter_lines():
                first = first or ('"item"' in line and time.perf_counter()) or 0.0
        ended = time.perf_counter()
        scorer.score(checklist, target)
        alone = time.perf_counter() - ended
        if number:  # the first one builds the pipeline
            for name, seconds in (("app, first answer", first - started), ("app, all answers", ended - started)):
                times[name].append(1000 * seconds)
            times["scorer"].append(1000 * alone)
    return times


def first_paint(base: str, repeats: int, folder: Path) -> dict[str, list[float]] | None:
    """Milliseconds until the report is shown; None without Chromium."""
    with chromium(folder) as driver:
        if driver is None:
            return None
        driver.get(f"{base}/?token={TOKEN}")
        time.sleep(1)
        times = []
        for _ in range(repeats + 1):
            driver.get("about:blank")
            started = time.perf_counter()
            driver.get(f"{base}/report?file=scored.jsonl")
            while not driver.execute_script(PAINTED):
                if time.perf_counter() - started > DEADLINE:
                    sys.exit(f"the report was not shown within {DEADLINE} s.")
                time.sleep(0.005)
            times.append(1000 * (time.perf_counter() - started))
        return {"known": times[1:], "new": times[:1]}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script."""
    args = parser_of(__doc__, __file__, rows=20_000, items=10, repeats=5).parse_args(argv)
    result: dict[str, Any] = {"rows": args.rows, "items": args.items}
    with tempfile.TemporaryDirectory() as name:
        project = Path(name, "project")
        project.mkdir()
        with (project / "scored.jsonl").open("w") as file:
            for row in rows(args.rows, args.items, words=80):
                file.write(json.dumps(row) + "\n")
        with server("-c", SERVER, str(project), TOKEN) as (base, process):
            with httpx.Client(base_url=base, headers={HEADER: TOKEN}, timeout=600, trust_env=False) as client:
                result["judge"] = judge(client, args.items, 4 * args.repeats)
                before = memory_mib(process.pid)
                result["report_seconds"] = []
                for _ in range(2):
                    started = time.perf_counter()
                    client.get("/api/report", params={"file": "scored.jsonl"}).raise_for_status()
                    result["report_seconds"].append(time.perf_counter() - started)
                memory = {"file": (project / "scored.jsonl").stat().st_size / 2**20, "before": before}
                memory |= {"after": memory_mib(process.pid), "at most": memory_mib(process.pid, "VmHWM")}
                result["memory"] = memory if before else None
            (project / "scored.jsonl").touch()  # the browser's first request reads the file again
            result["browser"] = first_paint(base, args.repeats, Path(name))
    found = figures(
        "ms",
        result["judge"],
        "scorer",
        "view Judge, 8 answers" if args.items == 8 else f"view Judge, {args.items} answers",
    )
    reports = {"first time": result["report_seconds"][0], "again": result["report_seconds"][1]}
    found += figures("seconds", reports, "first time", "request of a report")
    if result["browser"]:
        found += figures("ms", result["browser"], "known", "first paint of a report")
    if result["memory"]:
        found += figures("MiB", result["memory"], "file", "memory of the server")
    return finish(args.output, f"The app, {args.rows:,} rows x {args.items} items", found, result)


if __name__ == "__main__":
    main()
