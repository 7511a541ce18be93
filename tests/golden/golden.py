"""The golden set: what commands and functions gave at 46fd139, on the packaged pocket judge, and that they still do.

A case is a command line in `commands.toml` or a function of `entries.py`. It runs in an empty folder with a copy of
`inputs/` and `old/`, with an empty home and a copy of the store `answers.sqlite`, which has every answer of a model.
What it gives (exit code, files, values) is compared with `expected/NAME.json`: numbers to 1e-9, texts exactly. A case
that stores an answer asked a model for something that the store already had under another key: it fails.

After a deliberate change, record again, and look at the diff:

    CHECKLIST_REWARDS_RECORD=1 python tests/golden/golden.py            # all cases
    CHECKLIST_REWARDS_RECORD=1 python tests/golden/golden.py score_csv  # cases whose name contains a word

As a script, it takes the package from `PYTHONPATH`, which may be another checkout. Options and names of functions that
were renamed are changed in `commands.toml` and `entries.py`; that needs no new recording.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import math
import os
import re
import shlex
import shutil
import sqlite3
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
STORE = HERE / "answers.sqlite"
TOLERANCE = 1e-9
VOLATILE = {"seconds", "judge_seconds", "started", "created", "version", "stamp", "quiet"}
"""Keys whose values differ between two runs."""


class Case(NamedTuple):
    """A command line, or a function that returns plain values."""

    name: str
    command: list[str] | None = None
    function: Callable[[], Any] | None = None
    prints: bool = False
    """Whether what a command prints is compared too: of commands that write no file."""
    quick: bool = False
    """Whether `test_golden_quick.py` runs it."""
    tolerance: float = TOLERANCE
    """The largest relative and absolute difference of numbers. It is larger where a model answers without the store:
    processors round otherwise."""


def cases() -> list[Case]:
    """All cases: the table of commands, then the functions of `entries.py`."""
    table = tomllib.loads((HERE / "commands.toml").read_text(encoding="utf-8"))
    commands = [Case(name, shlex.split(entry.pop("run")), **entry) for name, entry in table.items()]
    if __package__:
        from tests.golden import entries
    else:  # as a script, with the package of another checkout
        import entries
    functions = [
        Case(function.__name__, function=function, quick=function.__name__ in entries.QUICK)
        for function in entries.ENTRIES
    ]
    names = [case.name for case in commands + functions]
    assert len(set(names)) == len(names), "two cases have one name"
    return commands + functions


@contextmanager
def fresh(folder: Path, store: Path = STORE) -> Iterator[Path]:
    """The inputs in `folder`, which is the working folder; an empty home. Gives the copy of the store."""
    models = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checklist-rewards" / "models"
    cache = folder / "home" / ".cache" / "checklist-rewards"
    cache.mkdir(parents=True)
    if models.is_dir():
        (cache / "models").symlink_to(models.resolve())
    if store.exists():
        shutil.copy(store, cache / "store.sqlite")
    for source in ("inputs", "old"):
        shutil.copytree(HERE / source, folder / "work", dirs_exist_ok=True)
    before, where = {name: os.environ.get(name) for name in ("HOME", "XDG_CACHE_HOME")}, Path.cwd()
    os.environ.update(HOME=str(folder / "home"), XDG_CACHE_HOME=str(cache.parent))
    os.chdir(folder / "work")
    try:
        yield cache / "store.sqlite"
    finally:
        os.chdir(where)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def run(case: Case, folder: Path) -> tuple[Any, int]:
    """What a case gives, as plain values, and how many answers it added to the store."""
    with fresh(folder) as store:
        answers = count(store)
        inputs = {path: path.read_bytes() for path in files()}
        given = printed(case) if case.command else {"value": case.function()}
        written = {str(path): content(path) for path in files() if inputs.get(path) != path.read_bytes()}
        return plain({**given, "files": written}, str(folder)), count(store) - answers


def printed(case: Case) -> dict[str, Any]:
    """The exit code of a command, and what it printed where that is compared."""
    from typer.testing import CliRunner

    from checklist_rewards.cli import app
    from checklist_rewards.cli.output import console

    console.width = 1000
    done = CliRunner().invoke(app, case.command)
    if done.exit_code not in (0, 1, 3) or (done.exception and not isinstance(done.exception, SystemExit)):
        raise AssertionError(f"{shlex.join(case.command)}\n{done.output}\n{done.exception!r}") from done.exception
    shown = {"printed": [line.strip() for line in done.stdout.splitlines() if line.strip()]} if case.prints else {}
    return {"exit": done.exit_code, **shown}


def files() -> list[Path]:
    """The files in the working folder."""
    return sorted(
        path for path in Path().rglob("*") if path.is_file() and path.suffix != ".png" and ".sqlite" not in path.name
    )


def content(path: Path) -> Any:
    """A file as plain values: its rows, its JSON, or its text."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix == ".csv":
        rows = csv.DictReader(text.splitlines(keepends=True))  # without the plain columns, which repeat the score
        return [{k: v for k, v in row.items() if not k.startswith("checklist_score.")} for row in rows]
    if path.suffix == ".html":
        data = re.findall(r'<script[^>]*type="application/gzip">(.*?)</script>', text, re.DOTALL)
        return [json.loads(gzip.decompress(base64.b64decode(one))) for one in data]
    return json.loads(text) if path.suffix == ".json" else text


def plain(value: Any, folder: str) -> Any:
    """Values as JSON has them, without those that differ between two runs. JSON in a cell is read."""
    if isinstance(value, dict):
        return {str(key): plain(one, folder) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [plain(one, folder) for one in value]
    if isinstance(value, str):
        if value[:1] in "[{" and value:
            try:
                return plain(json.loads(value), folder)
            except ValueError:
                pass
        return value.replace(folder, "FOLDER")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def differences(given: Any, expected: Any, where: str = "", tolerance: float = TOLERANCE) -> list[str]:
    """Where two plain values differ, one line each."""
    if isinstance(given, dict) and isinstance(expected, dict):
        found = [f"{where}.{key} is new" for key in given.keys() - expected.keys()]
        found += [f"{where}.{key} is missing" for key in expected.keys() - given.keys()]
        return found + [
            line
            for key in expected
            if key in given
            for line in differences(given[key], expected[key], f"{where}.{key}", tolerance)
        ]
    if isinstance(given, list) and isinstance(expected, list) and len(given) == len(expected):
        pairs = enumerate(zip(given, expected, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{where}[{place}]", tolerance)]
    if isinstance(given, float | int) and isinstance(expected, float | int):
        return (
            []
            if math.isclose(given, expected, rel_tol=tolerance, abs_tol=tolerance)
            else [told(given, expected, where)]
        )
    return [] if given == expected else [told(given, expected, where)]


def told(given: Any, expected: Any, where: str) -> str:
    return f"{where.lstrip('.')}: {given!r:.200}, expected {expected!r:.200}"


def count(store: Path) -> int:
    """The number of answers in a store."""
    if not store.exists():
        return 0
    connection = sqlite3.connect(store)
    try:
        return connection.execute("SELECT count(*) FROM answers").fetchone()[0]
    finally:
        connection.close()


def expected(case: Case) -> Any:
    """What was recorded of a case."""
    return json.loads((HERE / "expected" / f"{case.name}.json").read_text(encoding="utf-8"))


def check(case: Case, folder: Path) -> None:
    """Run a case and compare it."""
    given, added = run(case, folder)
    found = differences(given, expected(case), tolerance=case.tolerance)
    assert not found, f"{case.name} differs in {len(found)} places:\n" + "\n".join(found[:20])
    assert added == 0, f"{case.name} asked for {added} answers that the store has under other keys"


def record(case: Case, folder: Path) -> None:
    """Run a case to fill the store, and once more to record what it gives without any read."""
    with fresh(folder / "first") as store:
        before = count(store)
        printed(case) if case.command else case.function()
        new = count(store) - before
        packed(store)
    given, added = run(case, folder / "second")
    if added:
        print(f"{case.name}: {added} answers are asked for again in a second run")
    (HERE / "expected").mkdir(exist_ok=True)
    text = json.dumps(given, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    (HERE / "expected" / f"{case.name}.json").write_text(text + "\n", encoding="utf-8")
    about = f"exit {given['exit']}" if case.command else "a function"
    written = ", ".join(given["files"]) or "none"
    print(f"{case.name}: {about}, files: {written}; {len(text)} characters, {new} new answers")


def packed(store: Path) -> None:
    """Make a store the one of the golden set, without its log and without free pages."""
    if not store.exists():
        return
    STORE.unlink(missing_ok=True)
    for file, statement in ((store, f"VACUUM INTO '{STORE}'"), (STORE, "PRAGMA journal_mode=DELETE")):
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute(statement)
        connection.close()


def main() -> None:
    """Record the cases whose names contain one of the arguments, or all."""
    import tempfile

    if os.environ.get("CHECKLIST_REWARDS_RECORD") != "1":
        sys.exit("set CHECKLIST_REWARDS_RECORD=1: this replaces what is expected")
    import checklist_rewards

    print("recording with", Path(checklist_rewards.__file__).parent)
    for case in cases():
        if not sys.argv[1:] or any(word in case.name for word in sys.argv[1:]):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    record(case, Path(folder))
                except AssertionError as error:
                    print(f"{case.name}: NOT RECORDED\n{error}")


if __name__ == "__main__":
    main()
