"""`make mutants`: a random sample of mutants of the core modules, each against the tests of its module.

A mutant is one change by an operator of cosmic-ray (another comparison, a number one higher, `and` for `or`, ...) in a
copy of this repository. It is *killed* if a test of the module fails or does not end, and *survived* otherwise: then a
wrong program would pass. Some survivors are equivalent to the original; that is for a reader to decide. The tests of
`scores/tally.py` are `tests/scores/test_tally.py` or, if that does not exist, the files of `tests/scores` that name
the module. A mutant that survives them, or that only slow tests of the module could kill, meets all tests of the
folder. Slow tests do not run. On a busy machine a slow run may count as a hang, which is printed.

    python tests/mutants/run.py --number 30 --seed 1
    python tests/mutants/run.py --number 30 --seed 1 scores judges/panel.py
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

REPO = Path(__file__).resolve().parent.parent.parent
PACKAGE = "checklist_rewards"
CORE = (
    "*.py",
    "backends",
    "checks",
    "evaluation",
    "files",
    "judges",
    "monitor",
    "refiners",
    "replies",
    "rewards",
    "scores",
)
"""Where mutants are made if no other modules are named."""
NOT_CORE = ("__init__.py", "/vllm.py", "/transformers.py", "/integrations/", "/sandbox/", "/version.py")
"""Parts of paths without mutants: engines and hosts whose tests are slow."""
NEEDS_ARGUMENTS = ("VariableInserter", "VariableReplacer")
LIMIT, TIMES = 60.0, 5
"""A run of tests is a hang after `LIMIT` seconds, or `TIMES` its time without a mutant."""
Span = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Mutant:
    """One change of a module."""

    module: Path
    operator: str
    occurrence: int
    line: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Test a sample of mutants and print the results by module. Returns the exit status: 1 if nothing was tested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=CORE, help="Modules or folders of the package, or patterns.")
    parser.add_argument("--number", type=int, default=100, help="Number of mutants.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the sample.")
    options = parser.parse_args(arguments)
    mutants = sample(modules_of(options.modules), options.number, random.Random(options.seed))
    results: dict[Path, dict[str, int]] = defaultdict(lambda: {"killed": 0, "survived": 0, "undecided": 0})
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "repo"
        ignored = shutil.ignore_patterns(".*", "runs", "site", "build", "dist", "__pycache__")
        shutil.copytree(REPO, copy, ignore=ignored)
        seconds: dict[Path, float | None] = {}
        for mutant in mutants:
            if mutant.module not in seconds:
                started = time.monotonic()
                passes = tested(copy, tests_of(mutant.module), 10 * LIMIT) != "killed"
                seconds[mutant.module] = time.monotonic() - started if passes else None
            result, change = "undecided", "the tests of this module fail without a mutant"
            if (unchanged := seconds[mutant.module]) is not None:
                result, change = outcome(copy, mutant, max(LIMIT, TIMES * unchanged))
            results[mutant.module][result] += 1
            print(f"{result}: {mutant.module}:{mutant.line} {mutant.operator.split('/')[-1]}\n{change}", flush=True)
    print(table(results))
    return 0 if any(found["killed"] + found["survived"] for found in results.values()) else 1


def modules_of(patterns: Sequence[str]) -> list[Path]:
    """The modules of the package that these folders, files or patterns name, relative to the repository."""
    root, found = REPO / PACKAGE, set()
    for pattern in patterns:
        named = root.glob(f"{pattern}/**/*.py" if (root / pattern).is_dir() else pattern)
        found |= {path.relative_to(REPO) for path in named}
    return sorted(path for path in found if not any(part in f"/{path}" for part in NOT_CORE))


def sample(modules: Sequence[Path], number: int, chance: random.Random) -> list[Mutant]:
    """Mutants at different places. A module is chosen by its number of lines, a place in it with equal probability."""
    lines = [len((REPO / module).read_text(encoding="utf-8").splitlines()) for module in modules]
    chosen: list[Mutant] = []
    for module, count in sorted(Counter(chance.choices(modules, lines, k=number)).items()):
        places: dict[Span, list[Mutant]] = defaultdict(list)
        for span, mutant in mutants_of(module):
            places[span].append(mutant)
        chosen += [
            chance.choice(places[span]) for span in sorted(chance.sample(sorted(places), min(count, len(places))))
        ]
    return chosen


def mutants_of(module: Path) -> Iterator[tuple[Span, Mutant]]:
    """All mutants of a module with their places. Annotations are left out: they are never evaluated."""
    code = (REPO / module).read_text(encoding="utf-8")
    unevaluated = annotations(code)
    tree = get_ast(code)
    for name in operator_names():
        if name.split("/")[-1] in NEEDS_ARGUMENTS:
            continue
        positions = (span for node in nodes(tree) for span in get_operator(name)().mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            if not any(first <= start and end <= last for first, last in unevaluated):
                yield (start, end), Mutant(module, name, occurrence, start[0])


def nodes(node: Any) -> Iterator[Any]:
    """A node of a syntax tree and all under it, in cosmic-ray's order."""
    yield node
    for child in getattr(node, "children", ()):
        yield from nodes(child)


def annotations(code: str) -> list[Span]:
    """Where the annotations of a module are."""
    found = []
    for node in ast.walk(ast.parse(code)):
        for name in ("annotation", "returns"):
            if (one := getattr(node, name, None)) is not None:
                found.append(((one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)))
    return found


def outcome(copy: Path, mutant: Mutant, limit: float) -> tuple[str, str]:
    """`killed`, `survived` or `undecided`, and the change."""
    before = (copy / mutant.module).read_text(encoding="utf-8")
    after = mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    if after is None or ast.dump(ast.parse(before)) == ast.dump(ast.parse(after)):
        return "undecided", "no change"
    lines = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[:2] in ("- ", "+ ")]
    others = tuple(sorted(set(folder_of(mutant.module)) - set(tests_of(mutant.module))))
    result = survives(copy, mutant.module, after, tests_of(mutant.module), limit)
    if result != "killed" and others and (unchanged := seconds_of(copy, others)) is not None:
        result = survives(copy, mutant.module, after, others, max(LIMIT, TIMES * unchanged))
    return result, "\n".join(lines)


def survives(copy: Path, module: Path, code: str, names: Sequence[str], limit: float) -> str:
    """The result of these tests with other code in a module, which is restored afterwards."""
    path = copy / module
    before = path.read_text(encoding="utf-8")
    path.write_text(code, encoding="utf-8")
    try:
        return tested(copy, names, limit)
    finally:
        path.write_text(before, encoding="utf-8")


@cache
def seconds_of(copy: Path, names: tuple[str, ...]) -> float | None:
    """How long these tests take without a mutant; None if one fails."""
    started = time.monotonic()
    return time.monotonic() - started if tested(copy, names, 10 * LIMIT) == "survived" else None


def tested(copy: Path, names: Sequence[str], limit: float) -> str:
    """`survived` if these tests pass in the copy, `killed` if one fails, `undecided` if there are none."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not vllm"]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_SEED": "0"}
    try:
        status = subprocess.run(
            [*command, *names], cwd=copy, env=settings, timeout=limit, capture_output=True
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"no end after {limit:.0f} s:", *names, flush=True)
        return "killed"
    return {0: "survived", 5: "undecided"}.get(status, "killed")


def tests_of(module: Path) -> list[str]:
    """The file that mirrors a module; else those of the nearest folder of tests that name the module, or all of it."""
    inside = module.relative_to(PACKAGE)
    mirror = Path("tests") / inside.with_name(f"test_{inside.name}")
    if (REPO / mirror).is_file():
        return [str(mirror)]
    files = folder_of(module)
    name = ".".join(module.with_suffix("").parts)
    naming = [
        path for path in files if name in (REPO / path).read_text(encoding="utf-8") or inside.stem in Path(path).stem
    ]
    return naming or files


def folder_of(module: Path) -> list[str]:
    """All files of the nearest folder of tests and of its subfolders; of `tests` itself, only the files in it."""
    folder = (REPO / "tests" / module.relative_to(PACKAGE)).parent
    while not any(folder.glob("test_*.py")):
        folder = folder.parent
    find = folder.glob if folder == REPO / "tests" else folder.rglob
    return [str(path.relative_to(REPO)) for path in sorted(find("test_*.py"))]


def table(results: dict[Path, dict[str, int]]) -> str:
    """The results by module, and of all."""
    names = ("killed", "survived", "undecided")
    total = {name: sum(found[name] for found in results.values()) for name in names}
    rows = [(str(path.relative_to(PACKAGE)), found) for path, found in results.items()] + [("all", total)]
    lines = [f"| {path} | {' | '.join(str(found[name]) for name in names)} | {share(found)} |" for path, found in rows]
    return "\n".join(
        ["| module | killed | survived | undecided | killed of the decided |", "|---|---|---|---|---|", *lines]
    )


def share(found: dict[str, int]) -> str:
    """Killed mutants as a share of those that were decided."""
    decided = found["killed"] + found["survived"]
    return f"{found['killed'] / decided:.0%}" if decided else "-"


if __name__ == "__main__":
    sys.exit(main())
