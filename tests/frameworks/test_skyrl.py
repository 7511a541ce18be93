"""skyrl-gym: register, make, init, step."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import skyrl_gym
from conftest import BROKEN, CHECKLIST, INPUT, LABEL, TEXTS
from skyrl_gym.envs import deregister, register

from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.integrations.labelled import Unscored


@pytest.fixture(autouse=True)
def registered():
    register(id="checklist", entry_point="checklist_rewards.rewards.integrations.skyrl:ChecklistEnv")
    yield
    deregister("checklist")


def episode(text: str, label=CHECKLIST):
    extras = {"reward_spec": {"method": "rule", "ground_truth": label}}
    env = skyrl_gym.make("checklist", env_config={}, extras=extras)
    prompt, _ = env.init([{"role": "user", "content": INPUT}])
    assert prompt == [{"role": "user", "content": INPUT}]
    out = env.step(text)
    assert out["done"] and out["observations"] == [] and out["metadata"]["checklist/scored"] == 1
    env.close()
    return out["reward"]


@pytest.mark.parametrize("label", [CHECKLIST, LABEL], ids=["list", "json"])
def test_environments_in_threads_reward_their_answers(judge, configure, expected, label):
    configure(judge)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda text: episode(text, label), TEXTS)) == pytest.approx(expected, abs=1e-4)


def test_failures_raise(server, silent_judge, configure):
    configure({"backend": "remote", "base_url": server})
    with pytest.raises(ChecklistError, match="empty"):
        episode(TEXTS[0], BROKEN)
    with pytest.raises(SampleError, match="requires a checklist in reward_spec.ground_truth"):
        skyrl_gym.make("checklist", env_config={}, extras={})
    configure(silent_judge)
    with pytest.raises(Unscored):
        episode(TEXTS[0])
