"""What importing the rewards, the integrations and the reward server brings along."""

import subprocess
import sys

from tests.conftest import REPO

TRAINERS = {"trl", "accelerate", "torch", "transformers", "datasets"}
WRITERS = {f"checklist_rewards.{room}" for room in ("generators", "refiners", "pipelines", "datasets", "cli")}


def imported_with(*modules: str, before: str = "pass") -> set[str]:
    """The modules of a new process that imports these. `before` runs first."""
    code = f"import sys; {before}; import {', '.join(modules)}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_rewards_import_no_trainer_no_engine_and_nothing_that_writes_checklists():
    integrations = [f"checklist_rewards.rewards.integrations.{name}" for name in ("areal", "openrlhf", "verl")]
    names = imported_with("checklist_rewards.rewards.trl", "checklist_rewards.rewards.configured", *integrations)
    assert not names & (TRAINERS | WRITERS)


def test_labelled_rewards_and_the_server_do_without_the_reward_of_trainers():
    names = imported_with("checklist_rewards.rewards.integrations.labelled", "checklist_rewards.server")
    assert not names & (TRAINERS | WRITERS)
    assert not names & {f"checklist_rewards.rewards.{name}" for name in ("trl", "reward", "configured")}


def test_adapters_import_their_host_and_no_trainer():
    adapters = ("nemo_rl", "open_instruct", "skyrl", "swift", "verifiers")
    hosts = "from tests.rewards.hosts import host_modules; sys.modules.update(host_modules())"
    names = imported_with(*(f"checklist_rewards.rewards.integrations.{name}" for name in adapters), before=hosts)
    assert not names & (TRAINERS | WRITERS)
