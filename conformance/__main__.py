"""Run the suite: `python -m conformance [ADAPTER ...] [--python ADAPTER=PATH ...] [--output RESULTS.json]`.

Each adapter runs in a process of its own, by `--python` with the Python of another environment, against a server of
its own. Prints a table, and with `--verbose` every case that went wrong. Exit status 1 if a failure became a score, or
if a sound reply did not get the right one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.adapters import ADAPTERS, Adapter
from conformance.server import Judge, serving

HERE = Path(__file__).parent


def load_cases() -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """The cases and their checklists."""
    data = json.loads((HERE / "cases.json").read_text())
    return data["cases"], data["checklists"]


def applies(case: Mapping[str, Any], kind: str, can: frozenset[str]) -> bool:
    """Whether a case can happen to a reward."""
    return kind in case["to"] and set(case["needs"]) <= can


def is_sound(case: Mapping[str, Any], score: float | None) -> bool:
    """Whether a score is what a sound reward gives: none, or one that the answers justify."""
    if score is None:
        return not case["must"]
    return math.isfinite(score) and any(low <= score <= high for low, high in case["allow"])


def run(name: str, python: str = sys.executable) -> dict[str, Any] | None:
    """The outcomes of an adapter: its version, and per case the score and whether it is sound. None if its package is
    not installed."""
    adapter = ADAPTERS[name]
    mine = cases_for(adapter)
    with served(adapter) as url:
        command = [python, "-m", "conformance.adapters", name, url]
        environment = os.environ | {"PYTHONPATH": str(HERE.parent), "PYTHONWARNINGS": "ignore"}
        lines = "".join(json.dumps({"id": case["id"], "items": case["items"]}) + "\n" for case in mine)
        done = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    version = next((line["version"] for line in found if "version" in line), "")
    if version is None:
        return None
    outcomes = judged(mine, (line for line in found if "id" in line))
    if len(outcomes) != len(mine):
        raise SystemExit(f"{name}: the adapter ended early: {done.stderr[-2000:]}")
    return {"adapter": name, "package": adapter.package, "version": version, "outcomes": outcomes}


def cases_for(adapter: Adapter) -> list[dict[str, Any]]:
    """The cases that can happen to an adapter, with the items of their checklists."""
    cases, checklists = load_cases()
    mine = [case for case in cases if applies(case, adapter.kind, adapter.can)]
    return [case | {"items": checklists[case["checklist"]]} for case in mine]


@contextmanager
def served(adapter: Adapter) -> Iterator[str]:
    """The address of a server that replies in the form of an adapter's judge."""
    with serving(Judge(*load_cases(), adapter.kind, adapter.form)) as port:
        yield f"http://127.0.0.1:{port}/v1"


def judged(cases: Sequence[Mapping[str, Any]], found: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Outcomes by the id of their case, with whether each is sound."""
    by_id = {case["id"]: case for case in cases}
    return {each["id"]: each | {"sound": is_sound(by_id[each["id"]], each["score"])} for each in found}


def summary(result: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The counts of an adapter: failures that became a score, and sound replies without the right one."""
    outcomes = result["outcomes"]
    mine = [case for case in cases if case["id"] in outcomes]
    failures = [outcomes[case["id"]] for case in mine if not case["must"]]
    controls = [outcomes[case["id"]] for case in mine if case["must"]]
    return {
        "failures": len(failures),
        "scored": sum(not each["sound"] for each in failures),
        "controls": len(controls),
        "right": sum(each["sound"] for each in controls),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m conformance", description=__doc__.splitlines()[0])
    parser.add_argument("adapters", nargs="*", help=f"any of {', '.join(ADAPTERS)}; all by default")
    parser.add_argument("--python", action="append", default=[], metavar="ADAPTER=PATH", help="Python of an adapter")
    parser.add_argument("--output", type=Path, help="write all outcomes to this JSON file")
    parser.add_argument("--verbose", action="store_true", help="list every case that went wrong")
    given = parser.parse_args(arguments)
    pythons = dict(entry.split("=", 1) for entry in given.python)
    if unknown := {*given.adapters, *pythons} - set(ADAPTERS):
        parser.error(f"{', '.join(sorted(unknown))}: not an adapter; allowed: {', '.join(ADAPTERS)}")
    cases, _ = load_cases()
    results, wrong = [], 0
    print("| reward | version | failures that became a score | sound replies scored right |\n|---|---|---|---|")
    for name in given.adapters or ADAPTERS:
        result = run(name, pythons.get(name, sys.executable))
        if result is None:
            print(f"| {name} | not installed | | |", flush=True)
            continue
        results.append(result)
        counts = summary(result, cases)
        wrong += counts["scored"] + counts["controls"] - counts["right"]
        scored = f"{counts['scored']} of {counts['failures']} ({counts['scored'] / counts['failures']:.0%})"
        right = f"{counts['right']} of {counts['controls']}"
        print(f"| {name} | {result['version']} | {scored} | {right} |", flush=True)
        for case in cases if given.verbose else ():
            found = result["outcomes"].get(case["id"])
            if found is not None and not found["sound"]:
                print(f"  {case['id']}: {found['score']} {found['why']}   [{case['says']}]")
    if given.output is not None:
        given.output.write_text(json.dumps(results, indent=1, allow_nan=True) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
