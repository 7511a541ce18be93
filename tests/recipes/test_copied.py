"""Recipes that are copied into another project, without the files beside them."""

import os
import shutil

import pytest

from tests import zygote
from tests.conftest import HANG, REPO

pytestmark = pytest.mark.slow


def run_copy(folder, name, *arguments):
    shutil.copy(REPO / "recipes" / name, folder)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return zygote.run([name, *arguments], cwd=folder, env=environment, timeout=HANG)


@pytest.mark.parametrize("name", ["grpo.py", "dpo.py"])
def test_a_recipe_runs_alone(tmp_path, name):
    code, written = run_copy(tmp_path, name, "--help")
    assert code == 0 and "--output_dir" in written, written


def test_best_of_n_alone_requires_data(tmp_path):
    code, written = run_copy(tmp_path, "best_of_n.py")
    assert code == 1
    assert written.splitlines()[-1].startswith("error: without --data the prompts are those of recipes/pocket")
