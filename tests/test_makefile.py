"""`make test` runs both halves side by side and reports which one failed."""

import shutil
import subprocess

import pytest

from tests.conftest import REPO

PYTHON = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *"not vllm"*) exit $MOST;; *) exit $VLLM;; esac
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(("target", "left_out"), [("test", "not vllm and not study"), ("test-all", "not vllm ")])
@pytest.mark.parametrize(
    ("most", "vllm", "code", "said"),
    [
        (0, 0, 0, "all but the vLLM tests passed, the vLLM tests passed"),
        (1, 0, 1, "all but the vLLM tests FAILED (exit 1), the vLLM tests passed"),
        (0, 3, 3, "all but the vLLM tests passed, the vLLM tests FAILED (exit 3)"),
        (1, 3, 1, "all but the vLLM tests FAILED (exit 1), the vLLM tests FAILED (exit 3)"),
    ],
)
def test_both_halves_run_and_report_whatever_the_other_gives(tmp_path, target, left_out, most, vllm, code, said):
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for name in (".installed", ".installed-test"):  # nothing is left to install
        (tmp_path / name).touch()
    done = subprocess.run(
        ["make", target, f"VENV={tmp_path}", f"RUN={python}"],
        cwd=REPO,
        env={"PATH": "/usr/bin:/bin", "CALLS": str(calls), "MOST": str(most), "VLLM": str(vllm)},
        capture_output=True,
        text=True,
    )
    assert set(calls.read_text().splitlines()) == {
        f"-m pytest -n 3 --dist loadfile --no-loadscope-reorder -m {left_out}",
        "-m pytest -m vllm",
    }
    assert done.stdout.splitlines()[-1] == f"make test: {said}"
    assert (done.returncode == 0) == (code == 0) and (code == 0 or f"Error {code}" in done.stderr)
