"""Counts ideas: how much a reader must hold in the head. `make house` prints the table; no test uses it.

    python tests/house.py                                    # this checkout
    python tests/house.py --root ../old --root . --aim       # checkouts side by side, with the aim

Each checkout is counted by its own files. What has to be run (a call of a reward, a help page) runs in a process of
its own with the package of that checkout. What cannot be counted is "-". Files are counted as `wc -l` does: Python,
and of `docs/` the Markdown without the generated `docs/api/`. Ideas are counted by the names in the lists below: a
list that names no class or function of today counts too little, so add the new name where an idea is replaced.
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
    "a judge's dialects": 1,
    "record classes of a scored text": 1,
    "parsers of labels": 1,
    "readers of rows": 1,
    "score --help: options": 15,
    "score --help: lines": 60,
    "tests: lines": 40000,
    "recipes: lines": 8000,
    "docs: lines": 5000,
    "imports: floors": 14,
    "imports: arrows": 180,
}

DIALECTS = {
    "the model": ("judges/settings.py:JudgeConfig",),
    "a file of judges": ("judges/settings.py:_known",),
    "a pipeline file": ("pipelines/config.py:GeneratorConfig",),
    "the YAML of a reward": ("rewards/configured.py:reward_of",),
    "Python": ("judges/settings.py:JudgeKwargs", "judges/settings.py:JudgeSettings"),
}
"""Ways to write a judge, each by functions and classes of which one shows that it has a parser of its own."""
RECORDS = (
    "Record StoredRow StoredScore JudgedRow Logged Seen LabelledScores LabelledRow LabelledPair LabelledRead Example "
    "AttackRow Prepared StoredFile ScoredText"
).split()
"""Classes that hold a scored text."""
LABEL_PARSERS = (
    "evaluation/agreement/scored.py:labels_of",
    "distill/labels.py:LabelledPair",
    "judges/questions.py:Example",
    "judges/labels.py:read_column",
)
"""What reads labels from cells, by module and name."""
ROW_READERS = (
    "datasets/rows.py:Columns",
    "rows.py:Columns",
    "datasets/sources.py:read_source",
    "datasets/importing.py:imported_rows",
    "distill/labels.py:LabelledPair",
    "server/rows.py:_sample",
    "server/rows.py:_sample",
    "ui/records.py:RecordFile",
)
"""What has an idea of its own of the columns of a row."""

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
    places = set(definitions(root / PACKAGE, package))
    names = {place.rpartition(":")[2] for place in places}
    floors, arrows = drawing(root)
    found = {
        "package: lines": lines(package),
        "package: modules": len(package),
        "a judge's dialects": sum(any(name in places for name in ways) for ways in DIALECTS.values()),
        "record classes of a scored text": sum(name in names for name in RECORDS),
        "parsers of labels": sum(name in places for name in LABEL_PARSERS),
        "readers of rows": sum(name in places for name in ROW_READERS),
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


def definitions(folder: Path, paths: Iterable[Path]) -> Iterator[str]:
    """The functions and classes of modules, as `folder/module.py:name`."""
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{path.relative_to(folder).as_posix()}:{node.name}"


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
