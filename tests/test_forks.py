"""`tests/forks.py`: what forks report is what one process reports, and a fork that ends fails its test."""

import os
import re
import subprocess
import sys

from tests.conftest import REPO

FILES = {
    "conftest.py": """
import os
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "vllm")

@pytest.fixture(scope="session")
def first_process():
    return PROCESS

@pytest.fixture(scope="session")
def shared():
    yield os.getpid()
    with open("torn_down", "a") as log:
        print(os.getpid(), file=log)

PROCESS = os.getpid()
""",
    "test_passes.py": """
import os
import warnings
import pytest

@pytest.mark.parametrize("number", range(3))
def test_it(number, shared, first_process, tmp_path):
    assert os.getpid() == shared != first_process and not list(tmp_path.iterdir())
    warnings.warn(f"careful {number}", DeprecationWarning)

@pytest.mark.skip(reason="not today")
def test_skipped(): pass
""",
    "test_fails.py": """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError("the fixture is broken")

def test_it(shared):
    print("printed before")
    assert [1, 2] == [1, 3]

def test_after(broken): pass
""",
    "test_ends.py": "import os\n\ndef test_it(): os._exit(7)\n\ndef test_after(): pass\n",
    **{
        f"test_engine_{name}.py": """
import os
import pytest

@pytest.mark.vllm
def test_engine():
    with open("engines", "a") as log:
        print(os.getpid(), file=log)

def test_other(): pass
"""
        for name in "ab"
    },
}


def test_forks_report_what_happens_in_them(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.forks", "-p", "no:cacheprovider", "-ra", "--forks", "3"]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run([*command, "."], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 8 passed, 1 skipped, 3 warnings, 1 error in" in done.stdout, done.stdout
    for reported in (
        "FAILED test_fails.py::test_it - assert [1, 2] == [1, 3]",
        "ERROR test_fails.py::test_after - OSError: the fixture is broken",
        "test_ends.py::test_it - The process of this test ended with 7.",
        "SKIPPED [1] test_passes.py:",
        "printed before",
        "DeprecationWarning: careful 2",
    ):
        assert reported in done.stdout, done.stdout
    assert len(set((tmp_path / "engines").read_text().split())) == 1, "the engines' tests share a process"
    torn_down = (tmp_path / "torn_down").read_text().split()
    assert len(torn_down) == len(set(torn_down)) in (1, 2) and not re.search("INTERNALERROR", done.stdout)
