"""Benchmark of the report page with 20,000 rows x 10 items (`make bench`).

Generation: rows per second, peak memory of the process above its start, and the size of the page. In headless
Chromium, if it is installed: time from opening the file to the overview, to the rows, and to the matrix as the first
view, and the times of a filter by answer, of a text search and of a sort, with the drawing of the rows; medians over
the repeats, next to those of a page of 100 rows.

Prints a table and writes `runs/bench/report.json`.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 3)]
from studies.benchmarks.figures import figures, finish, parser_of

from checklist_rewards import Checklist
from checklist_rewards.scores import Verdict, score_checklist

SMALL = 100
"""Rows of the page that the times in the browser are compared with."""
OPENED = "return Boolean(document.querySelector('main').dataset.view)"
WATCH = """
window.seen = {};
new MutationObserver(() => {
    const {view, rows} = document.querySelector('main')?.dataset ?? {};
    if (view) window.seen.overview_ms ??= performance.now();
    if (view && rows) window.seen.rows_ms ??= performance.now();
}).observe(document, {subtree: true, childList: true, attributes: true});
"""
"""Milliseconds after which the overview, which comes first in the file, and the rows are there."""
FILTER = """
const [label, value, done] = arguments;
const started = performance.now();
const status = document.querySelector('[role=status]');
const seen = new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
    seen.disconnect();
    done(performance.now() - started);
})));
seen.observe(status, {childList: true});
if (label === null) {
    document.querySelectorAll('.grid-head button')[1].click();
} else {
    const input = [...document.querySelectorAll('.filters label')].find((one) => one.textContent.startsWith(label))
        .querySelector('input, select');
    input.value = value;
    input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input'));
}
"""


def rows(count: int, items: int, words: int) -> Iterator[dict[str, Any]]:
    """Scored rows with random answers and texts."""
    rng = random.Random(0)
    checklist = Checklist.parse([f"Does the response meet condition {number}?" for number in range(items)])
    vocabulary = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    for number in range(count):
        ps = [rng.random() for _ in range(items)]
        verdicts = [Verdict({"yes": p, "no": 1 - p}, mass=0.9 + 0.1 * rng.random(), judge="judge") for p in ps]
        yield {
            "prompt": " ".join(rng.choices(vocabulary, k=20)) + f" {number // 8}",
            "target": " ".join(rng.choices(vocabulary, k=words)),
            "checklist_score": score_checklist(checklist, verdicts).model_dump(mode="json"),
        }


def generation(path: Path, page: Path) -> dict[str, float]:
    """Seconds and memory of the generation, in a process of its own."""
    code = (
        "import json, resource, sys, time\n"
        "from pathlib import Path\n"
        "from checklist_rewards.ui.report import write_report\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before, started = peak(), time.perf_counter()\n"
        "[shown] = write_report(Path(sys.argv[2]), [Path(sys.argv[1])])\n"
        "seconds = time.perf_counter() - started\n"
        "print(json.dumps({'rows': shown.rows, 'seconds': seconds, 'memory_mib': peak() - before}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path, page], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    size = page.stat().st_size / 2**20
    return {**measured, "rows_per_second": measured["rows"] / measured["seconds"], "page_mib": size}


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """A driver of headless Chromium; None, with a message, if it is not installed."""
    from tests.ui import browser

    if browser.found() is None:
        print("No browser: apt-get install chromium chromium-driver.")
        yield None
        return
    driver = browser.start(folder / "profile")
    try:
        yield driver
    finally:
        driver.quit()


def in_browser(page: Path, repeats: int, folder: Path) -> dict[str, float] | None:
    """Milliseconds in Chromium; None if it is not installed."""
    with chromium(folder) as driver:
        if driver is None:
            return None
        times: dict[str, list[float]] = {}
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        for _ in range(repeats):
            driver.get("about:blank")
            driver.get(f"file://{page}#/0/overview")
            while not driver.execute_script("return window.seen.rows_ms"):
                time.sleep(0.05)
            for name, value in driver.execute_script("return window.seen").items():
                times.setdefault(name, []).append(value)
            driver.get("about:blank")
            started = time.perf_counter()
            driver.get(f"file://{page}#/0/matrix")
            while not driver.execute_script(OPENED):
                time.sleep(0.005)
            times.setdefault("first_view_ms", []).append(1000 * (time.perf_counter() - started))
            time.sleep(0.5)
            for name, label, value in (
                ("filter_ms", "answer", "fail"),
                ("search_ms", "search", "ab"),
                ("search_again_ms", "search", "abc"),
                ("sort_ms", None, None),
            ):
                times.setdefault(name, []).append(driver.execute_async_script(FILTER, label, value))
        return {name: statistics.median(values) for name, values in times.items()}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script."""
    args = parser_of(__doc__, __file__, rows=20_000, items=10, words=80, repeats=5).parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, page = folder / "scored.jsonl", folder / "report.html"
        with path.open("w") as file:
            for row in rows(args.rows, args.items, args.words):
                file.write(json.dumps(row) + "\n")
        result: dict[str, Any] = {"rows": args.rows, "items": args.items, "generation": generation(path, page)}
        started = time.perf_counter()
        with path.open() as file:
            read = sum(bool(json.loads(line)) for line in file)
        result["plain"] = read / (time.perf_counter() - started)
        result["file_mib"] = path.stat().st_size / 2**20
        little, small_page = folder / "small.jsonl", folder / "small.html"
        with little.open("w") as file:
            for row in rows(SMALL, args.items, args.words):
                file.write(json.dumps(row) + "\n")
        generation(little, small_page)
        times = [in_browser(one, args.repeats, folder) for one in (small_page, page)]
        result["browser"] = times[0] and times[1] and {name: [times[0][name], times[1][name]] for name in times[0]}
    ways = {"plain loop of json.loads": result["plain"], "report": result["generation"]["rows_per_second"]}
    found = figures("rows per second", ways, "plain loop of json.loads")
    sizes = {"file of scores": result["file_mib"], "page": result["generation"]["page_mib"]}
    sizes["memory while writing"] = result["generation"]["memory_mib"]
    found += figures("MiB", sizes, "file of scores")
    for name, values in (result["browser"] or {}).items():
        step = name.removesuffix("_ms").replace("_", " ")
        small = f"{SMALL} rows"
        found += figures("ms", {small: values[0], f"{args.rows:,} rows": values[1]}, small, step)
    return finish(args.output, f"Report page of {args.rows:,} rows x {args.items} items", found, result)


if __name__ == "__main__":
    main()
