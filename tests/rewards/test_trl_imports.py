"""What importing the rewards, the integrations and the reward server brings along."""

import subprocess
import sys

import pytest

from tests.conftest import REPO
from tests.rewards.conftest import MODULES

TRAINERS = {"trl", "accelerate", "torch", "transformers", "datasets"}
WRITERS = {f"checklist_rewards.{room}" for room in ("generators", "refiners", "pipelines", "datasets", "cli")}
OF_TRAINERS = {f"checklist_rewards.rewards.{name}" for name in ("trl", "reward", "configured")}


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (["trl", "configured", *(f"integrations.{name}" for name in ("areal", "openrlhf", "verl", *MODULES))], set()),
        (["integrations.labelled", "..server"], OF_TRAINERS),
    ],
    ids=["rewards and adapters, with their frameworks", "labelled rewards and the server"],
)
def test_nothing_imports_a_trainer_an_engine_or_what_writes_checklists(modules, absent):
    names = [f"checklist_rewards.rewards.{name}".replace("rewards...", "") for name in modules]
    hosts = "from tests.rewards.hosts import host_modules; sys.modules.update(host_modules())"
    code = f"import sys; {hosts}; import {', '.join(names)}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    found = set(run.stdout.split())
    assert set(names) <= found and not found & (TRAINERS | WRITERS | absent)
