"""Benchmark of the local app (`make bench`), on a backend that answers at once.

- Judge: milliseconds from the request to the first answer and to the score, and the overhead per answer over calling
  the scorer directly, for the checklist of one response; medians over the repeats.
- A project with a scored file of 20,000 rows x 10 items: first paint of the app's own report in headless Chromium, if
  it is installed, when the file is read for the first time and when its report is known; and the memory of the server
  process before and after.

Prints a table and writes `runs/bench/app.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from checklist_rewards import ChecklistScorer
from checklist_rewards.ui.guard import HEADER
from recipes.studies.benchmarks.report import rows
from tests.fakes import FakeBackend

TOKEN = "benchmark"
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
PAINTED = "return performance.getEntriesByType('paint').length > 0 && document.querySelector('.tile') !== null"


def judge(client: httpx.Client, items: int, repeats: int) -> dict[str, float]:
    """Milliseconds of the view Judge, and of the scorer alone."""
    checklist = [f"Does the response meet condition {number}?" for number in range(items)]
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.9), store=False)
    times: dict[str, list[float]] = {"first_answer_ms": [], "app_ms": [], "scorer_ms": []}
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
            for name, seconds in (("first_answer_ms", first - started), ("app_ms", ended - started)):
                times[name].append(1000 * seconds)
            times["scorer_ms"].append(1000 * alone)
    found = {name: statistics.median(values) for name, values in times.items()}
    found["app_over_scorer"] = found["app_ms"] / found["scorer_ms"]
    found["overhead_per_answer_ms"] = (found["app_ms"] - found["scorer_ms"]) / items
    return found


def first_paint(base: str, repeats: int, folder: Path) -> dict[str, float] | None:
    """Milliseconds until the report is shown; None without Chromium."""
    from tests.ui import browser

    if browser.found() is None:
        return None
    driver = browser.start(folder / "profile")
    try:
        driver.get(f"{base}/?token={TOKEN}")
        time.sleep(1)
        times = []
        for _ in range(repeats + 1):
            driver.get("about:blank")
            started = time.perf_counter()
            driver.get(f"{base}/report?file=scored.jsonl")
            while not driver.execute_script(PAINTED):
                time.sleep(0.005)
            times.append(1000 * (time.perf_counter() - started))
        return {"first_paint_new_ms": times[0], "first_paint_known_ms": statistics.median(times[1:])}
    finally:
        driver.quit()


def memory_mib(process: int) -> dict[str, float]:
    """Resident memory of a process, now and at most; empty where /proc does not exist."""
    status = Path(f"/proc/{process}/status")
    text = status.read_text() if status.exists() else ""
    named = {"now": "VmRSS", "peak": "VmHWM"}
    found = {name: re.search(rf"{key}:\s+(\d+) kB", text) for name, key in named.items()}
    return {name: int(match[1]) / 1024 for name, match in found.items() if match}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("runs/bench/app.json"))
    args = parser.parse_args(argv)
    result: dict[str, Any] = {"rows": args.rows, "items": args.items}
    with tempfile.TemporaryDirectory() as name:
        project = Path(name, "project")
        project.mkdir()
        with (project / "scored.jsonl").open("w") as file:
            for row in rows(args.rows, args.items, words=80):
                file.write(json.dumps(row) + "\n")
        command = [sys.executable, "-c", SERVER, str(project), TOKEN]
        root = Path(__file__).resolve().parents[3]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as server:
            assert server.stdout is not None
            base = f"http://127.0.0.1:{int(server.stdout.readline())}"
            try:
                with httpx.Client(base_url=base, headers={HEADER: TOKEN}, timeout=600, trust_env=False) as client:
                    result["judge"] = judge(client, args.items, 4 * args.repeats)
                    before = memory_mib(server.pid)
                    started = time.perf_counter()
                    client.get("/api/report", params={"file": "scored.jsonl"}).raise_for_status()
                    result["report_request_seconds"] = time.perf_counter() - started
                    after = memory_mib(server.pid)
                    if before:
                        size = (project / "scored.jsonl").stat().st_size / 2**20
                        result["memory"] = {
                            "file_mib": size,
                            "peak_growth_over_file": (after["peak"] - before["now"]) / size,
                        } | {
                            "before_mib": before["now"],
                            "after_mib": after["now"],
                            "peak_mib": after["peak"],
                        }
                (project / "scored.jsonl").touch()  # the browser's first request reads the file again
                result["browser"] = first_paint(base, args.repeats, Path(name))
            finally:
                server.terminate()
    table = Table(
        title=f"The app with {args.rows:,} rows x {args.items} items", title_justify="left", show_header=False
    )
    table.add_row("report request, seconds", f"{result['report_request_seconds']:,.2f}")
    for part in ("judge", "memory", "browser"):
        for key, value in (result.get(part) or {}).items():
            table.add_row(f"{part}: {key.replace('_', ' ')}", f"{value:,.2f}")
    Console().print(table)
    if result["browser"] is None:
        Console().print("No browser: apt-get install chromium chromium-driver.")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main()
