"""`make test` runs both halves side by side and reports which one failed."""

import shutil
import subprocess

import pytest

from tests.conftest import REPO

MARK = "mark" + ".vllm"
PYTHON = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *"not vllm"*) exit $MOST;; *) exit $VLLM;; esac
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("target", "most", "vllm", "code", "said"),
    [
        ("test", 0, 0, 0, "all but the vLLM tests passed, the vLLM tests passed"),
        ("test", 0, 3, 3, "all but the vLLM tests passed, the vLLM tests FAILED (exit 3)"),
        ("test-all", 1, 0, 1, "all but the vLLM tests FAILED (exit 1), the vLLM tests passed"),
    ],
)
def test_both_halves_run_and_report_whatever_the_other_gives(tmp_path, target, most, vllm, code, said):
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for name in (".torch", ".installed", ".installed-test"):  # nothing is left to install
        (tmp_path / name).touch()
    done = subprocess.run(
        ["make", target, f"VENV={tmp_path}", f"RUN={python}"],
        cwd=REPO,
        env={"PATH": "/usr/bin:/bin", "CALLS": str(calls), "MOST": str(most), "VLLM": str(vllm)},
        capture_output=True,
        text=True,
    )
    left_out = "not vllm and not study" if target == "test" else "not vllm "
    marked = {str(path.relative_to(REPO)) for path in REPO.glob("tests/**/test_*.py") if MARK in path.read_text()}
    *others, of_vllm = sorted(calls.read_text().splitlines(), key=lambda call: " -m vllm " in call)
    assert others == [f"-m pytest -n 3 --dist loadfile --no-loadscope-reorder -m {left_out}"]
    assert of_vllm.startswith("-m pytest -m vllm ") and set(of_vllm.split()[4:]) == marked
    assert done.stdout.splitlines()[-1] == f"make test: {said}"
    assert (done.returncode == 0) == (code == 0) and (code == 0 or f"Error {code}" in done.stderr)
