"""The README of the studies: one line per script."""

import re

from tests.conftest import REPO

STUDIES = REPO / "recipes" / "studies"
HELPERS = {"benchmarks/instant.py", "benchmarks/rivals.py"}
"""Started by `served.py`."""


def test_every_script_has_a_line_with_its_question_and_command():
    text = (STUDIES / "README.md").read_text(encoding="utf-8")
    commands = [line.split("|")[2] for line in text.splitlines() if line.startswith("|") and "`python" in line]
    named = {path for command in commands for path in re.findall(r"recipes/studies/([\w/]+\.py)", command)}
    scripts = {
        path.relative_to(STUDIES).as_posix()
        for path in STUDIES.rglob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    assert named == scripts - HELPERS and all((STUDIES / path).is_file() for path in HELPERS)
