"""Figures of the benchmarks: the arguments of a script, the order of turns, medians, one table and one file.

A script measures several ways to do the same work. [`figures`] makes a figure of each: the median, its range, and its
ratio to one of the ways, the *peer*, in the same run. [`finish`] prints the figures and writes them to one JSON file,
with everything else that the script measured. `bench.py` collects these files. No failure is handled here: a script
that fails writes no file.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Figure = dict[str, Any]


def parser_of(doc: str, script: str, **settings: float) -> argparse.ArgumentParser:
    """The parser of a script: `--output`, and an option for each setting, with its default and type."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in settings.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    output = Path("runs/bench") / f"{Path(script).stem}.json"
    parser.add_argument("--output", type=Path, default=output, help="file for the results (default: %(default)s)")
    return parser


def turns(names: Iterable[str], repeat: int) -> list[str]:
    """The order of a repeat. Each repeat begins with the next name, so that other load affects all of them."""
    order = list(names)
    start = repeat % len(order)
    return order[start:] + order[:start]


@contextmanager
def server(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address and process of a server: Python with these arguments, which prints its port. It ends with the block."""
    command, root = [sys.executable, *arguments], Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline()
            if not port:
                sys.exit("the server did not start; see its error message above.")
            yield f"http://127.0.0.1:{int(port)}", process
        finally:
            process.terminate()


def memory_mib(pid: int, name: str = "VmRSS") -> float | None:
    """Resident memory of a process, or with `VmHWM` at most; None where the system does not report it."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(rf"{name}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else None


def figures(unit: str, values: Mapping[str, float | Sequence[float]], to: str, about: str = "") -> list[Figure]:
    """A figure for each way to do the same work: median, range, and ratio of the median to that of the way `to`."""
    lists = {name: [one] if isinstance(one, int | float) else list(one) for name, one in values.items()}
    peer = statistics.median(lists[to])
    found = []
    for name, some in lists.items():
        median = statistics.median(some)
        figure = {"name": name, "about": about, "unit": unit, "value": median, "low": min(some), "high": max(some)}
        found.append(figure | {"ratio": median / peer if peer else None, "to": to})
    return found


def shown(number: float | None) -> str:
    """A number with three digits, or all digits before the point."""
    if number is None:
        return ""
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.3f}" if abs(number) < 1 and number else f"{number:#.3g}".rstrip(".") if number else "0"


def rows(some: Sequence[Figure]) -> list[list[str]]:
    """The cells of a table of figures: name, median, range, unit, ratio. A peer is named with its value next to the
    ratios to it, and has no row of its own."""
    ways = [(one["about"], one["unit"], one["to"]) for one in some]
    peers = {(one["about"], one["unit"], one["name"]): one["value"] for one in some if one["name"] == one["to"]}
    return [
        [
            f"{one['about']}: {one['name']}" if one["about"] else one["name"],
            shown(one["value"]),
            "" if one["low"] == one["high"] else f"{shown(one['low'])} to {shown(one['high'])}",
            one["unit"],
            "" if one["name"] == one["to"] else f"{shown(one['ratio'])} x {one['to']} ({shown(peers[way])})",
        ]
        for one, way in zip(some, ways, strict=True)
        if one["name"] != one["to"] or ways.count(way) == 1
    ]


COLUMNS = ("", "median", "range", "unit", "ratio to its peer (the peer)")


def finish(output: Path, title: str, some: Sequence[Figure], results: Mapping[str, Any]) -> dict[str, Any]:
    """Print the figures and write them, with all results, to a file."""
    table = Table(*COLUMNS, title=title, title_justify="left")
    for row in rows(some):
        table.add_row(*row)
    Console(width=140).print(table)
    output.parent.mkdir(parents=True, exist_ok=True)
    everything = {"title": title, "figures": list(some), **results}
    output.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    return everything
