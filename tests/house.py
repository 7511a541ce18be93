"""Counts how much a reader must hold in the head. `make house` prints the table; no test uses it.

    python tests/house.py                                    # this checkout
    python tests/house.py --root ../old --root . --aim       # checkouts side by side, with the aim

Each checkout is counted by its own files. What has to be run (a call of a reward, a help page) runs in a process of
its own with the package of that checkout. What cannot be counted is "-". Files are counted as `wc -l` does: Python,
and of `docs/` the Markdown without the generated `docs/api/`.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = "checklist_rewards"
AIM = {
    "package: lines": 45000,
    "package: modules": 170,
    "one completion: functions": 95,
    "one completion: modules": 12,
    "one completion: changes of module": 90,
    "score --help: options": 15,
    "score --help: lines": 60,
    "tests: lines": 40000,
    "recipes: lines": 8000,
    "docs: lines": 5000,
    "imports: floors": 14,
    "imports: arrows": 180,
}

CALL = """
import sys
from pathlib import Path
import checklist_rewards
from checklist_rewards.rewards.trl import ChecklistReward

package = str(Path(checklist_rewards.__file__).parent) + "/"
reward = ChecklistReward(model="pocket", store=False, backend="transformers")
asked = [["Does the response end with a question mark?"]]

def call(text):
    return reward(prompts=["Say something."], completions=[text], checklist=asked)

call("one?"), call("two?")  # imports, the loaded model and what is computed once
functions, places = set(), []

def watch(frame, event, argument):
    code = frame.f_code
    if event in ("call", "return") and code.co_filename.startswith(package):
        places.append(code.co_filename)
        if not code.co_name.endswith(("comp>", "expr>")):  # they belong to the function around them
            functions.add((code.co_filename, code.co_qualname))

sys.setprofile(watch)
call("three?")
sys.setprofile(None)
print(len(functions), len(set(places)), sum(one != other for one, other in zip(places, places[1:])))
"""
"""The functions and modules that one completion passes, and how often the next call or return is in another module."""

HELP = """
import re
from typer.testing import CliRunner
from checklist_rewards.cli import app

shown = CliRunner().invoke(app, ["score", "--help"]).stdout
names = re.findall(r"^. (?:[*] )? *(--[a-z.-]+)", shown, re.M)
print(len(set(names) - {"--help", "--help-all"}), len(shown.splitlines()))
"""
"""The options of the help page of `score`, and its lines on a terminal of 140 columns."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", action="append", type=Path, help="a checkout; repeatable (default: this one)")
    parser.add_argument("--aim", action="store_true", help="also print the aim")
    given = parser.parse_args()
    roots = given.root or [Path(__file__).resolve().parents[1]]
    columns = {root.resolve().name: counts(root.resolve()) for root in roots}
    columns |= {"aim": AIM} if given.aim else {}
    width = max(map(len, AIM))
    print(" " * width, *(f"{name:>10.10}" for name in columns))
    for name in AIM:
        print(f"{name:{width}}", *(f"{column.get(name, '-'):>10}" for column in columns.values()))


def counts(root: Path) -> dict[str, int]:
    """All indicators of a checkout."""
    package = sources(root / PACKAGE)
    floors, arrows = drawing(root)
    found = {
        "package: lines": lines(package),
        "package: modules": len(package),
        "tests: lines": lines(sources(root / "tests")),
        "recipes: lines": lines(sources(root / "recipes")),
        "docs: lines": lines(path for path in (root / "docs").rglob("*.md") if path.parent.name != "api"),
        "imports: floors": floors,
        "imports: arrows": arrows,
    }
    for names_of, code in (
        (["one completion: functions", "one completion: modules", "one completion: changes of module"], CALL),
        (["score --help: options", "score --help: lines"], HELP),
    ):
        found |= dict(zip(names_of, run(root, code), strict=False))
    return found


def run(root: Path, code: str) -> list[int]:
    """The numbers that a program prints in its last line, with the package of a checkout; none if it fails."""
    environment = os.environ | {"PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "COLUMNS": "140"}
    environment["TERMINAL_WIDTH"] = environment["COLUMNS"]
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return []
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder."""
    return sorted(folder.rglob("*.py"))


def lines(paths: Iterable[Path]) -> int:
    """The number of lines, as `wc -l` counts them."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def drawing(root: Path) -> tuple[int, int]:
    """Floors and arrows of the import drawing.

    A room is a folder of the package with all below it, a module next to these folders, the recipes, or the
    conformance cases. An arrow leads from a room to another that one of its files imports, anywhere in the file. Rooms
    that import each other in a circle share a floor. A room stands one floor above the highest room that it imports.
    """
    arrows: dict[str, set[str]] = {}
    for folder in (PACKAGE, "recipes", "conformance"):
        for path in (root / folder).rglob("*.py"):
            room = room_of(root, path.relative_to(root).with_suffix("").parts)
            arrows.setdefault(room, set()).update(
                other for name in imports(path) if (other := room_of(root, tuple(name.split("."))))
            )
    arrows = {room: {other for other in others if other in arrows} - {room} for room, others in arrows.items()}
    reached = {room: reach(room, arrows) for room in arrows}
    circle = {room: min({other for other in reached[room] if room in reached[other]} | {room}) for room in arrows}
    floor: dict[str, int] = {}
    for room in sorted(arrows, key=lambda one: len(reached[one] | {one})):
        below = {circle[other] for one in arrows if circle[one] == circle[room] for other in arrows[one]}
        floor[circle[room]] = 1 + max((floor[other] for other in below if other != circle[room]), default=0)
    return max(floor.values()), sum(map(len, arrows.values()))


def room_of(root: Path, parts: tuple[str, ...]) -> str:
    """The room of a module; "" for one that is not of the project."""
    if parts[0] in ("recipes", "conformance"):
        return parts[0]
    if parts[0] != PACKAGE:
        return ""
    inside = len(parts) > 1 and ((root / PACKAGE / parts[1]).is_dir() or (root / PACKAGE / f"{parts[1]}.py").is_file())
    return f"{PACKAGE}.{parts[1]}" if inside and parts[1] != "__init__" else PACKAGE


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports; a name of a module with the module before it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reach(room: str, arrows: dict[str, set[str]]) -> set[str]:
    """The rooms that a room imports, itself or through others."""
    found: set[str] = set()
    todo = [room]
    while todo:
        new = arrows[todo.pop()] - found
        found |= new
        todo += new
    return found


if __name__ == "__main__":
    main()
