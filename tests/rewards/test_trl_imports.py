"""What importing the reward, an integration or the reward server brings along."""

import subprocess
import sys

import pytest

from tests.conftest import REPO

TRAINERS = {"trl", "accelerate", "torch", "transformers", "datasets"}
WRITERS = {f"checklist_rewards.{room}" for room in ("generators", "refiners", "pipelines", "datasets", "cli")}


def imported_with(module: str) -> set[str]:
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "checklist_rewards.rewards.trl",
        "checklist_rewards.rewards.integrations.areal",
        "checklist_rewards.rewards.configured",
        "checklist_rewards.rewards.integrations.openrlhf",
        "checklist_rewards.rewards.integrations.verl",
    ],
)
def test_rewards_import_no_trainer_no_engine_and_nothing_that_writes_checklists(module):
    names = imported_with(module)
    assert module in names and not names & (TRAINERS | WRITERS)


@pytest.mark.parametrize("module", ["checklist_rewards.rewards.integrations.labelled", "checklist_rewards.server"])
def test_labelled_rewards_and_the_server_do_without_the_reward_of_trainers(module):
    names = imported_with(module)
    assert not names & (TRAINERS | WRITERS)
    assert not names & {f"checklist_rewards.rewards.{name}" for name in ("trl", "reward", "configured")}


@pytest.mark.parametrize("name", ["nemo_rl", "open_instruct", "skyrl", "swift", "verifiers"])
def test_adapters_import_their_host_and_no_other_trainer(name):
    module = f"checklist_rewards.rewards.integrations.{name}"
    hosts = "import sys; from tests.rewards.hosts import host_modules; sys.modules.update(host_modules())"
    code = f"{hosts}; import {module}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    names = set(run.stdout.split())
    assert module in names and not names & (TRAINERS | WRITERS)
