"""Recipes that are copied into another project, without the files beside them."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPO

pytestmark = pytest.mark.slow


def run_copy(folder, name, *arguments):
    shutil.copy(REPO / "recipes" / name, folder)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, name, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["grpo.py", "dpo.py", "best_of_n.py"])
def test_a_recipe_runs_alone(tmp_path, name):
    done = run_copy(tmp_path, name, "--help")
    assert done.returncode == 0 and "--output_dir" in done.stdout, done.stderr


def test_best_of_n_alone_requires_data(tmp_path):
    done = run_copy(tmp_path, "best_of_n.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: without --data the prompts are those of recipes/pocket")
