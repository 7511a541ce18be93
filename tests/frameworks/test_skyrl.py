"""skyrl-gym: register, make, init, step."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import skyrl_gym
from conftest import BROKEN, CHECKLIST, INPUT, LABEL, TEXTS, TURNS, score_of_turns
from skyrl_gym.envs import deregister, register
from skyrl_gym.tools.core import ToolGroup, tool

from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.integrations.labelled import Unscored
from checklist_rewards.rewards.integrations.skyrl import ChecklistEnv


class Words(ToolGroup):
    """A tool as SkyRL has them."""

    def __init__(self):
        super().__init__(name="words")

    @tool
    def look(self, word: str) -> str:
        return "a light at night"


class WordEnv(ChecklistEnv):
    """Answers one call of a tool."""

    def __init__(self, env_config, extras=None):
        super().__init__(env_config, extras)
        self.init_tool_groups([Words()])

    def reply(self, action):
        if "<tool_call>" not in action:
            return []
        return [{"role": "tool", "content": self._execute_tool("words", "look", ("moon",))}]


@pytest.fixture(autouse=True)
def registered():
    register(id="checklist", entry_point="checklist_rewards.rewards.integrations.skyrl:ChecklistEnv")
    register(id="words", entry_point="test_skyrl:WordEnv")
    yield
    deregister("checklist")
    deregister("words")


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


def test_an_episode_of_several_turns_is_scored_at_its_end(server, configure):
    configure({"backend": "remote", "base_url": server})
    rows = {"reward_spec": {"ground_truth": TURNS["checklist"]}, "max_turns": 4}
    env = skyrl_gym.make("words", env_config={}, extras=rows)
    env.init([{"role": "user", "content": INPUT}])
    first = env.step(TURNS["call"])
    assert (first["done"], first["reward"]) == (False, 0.0)
    assert first["observations"] == [{"role": "tool", "content": TURNS["result"]}]
    last = env.step(TURNS["answer"])
    assert last["done"] and last["reward"] == pytest.approx(score_of_turns(server), abs=1e-4)
    env.init([{"role": "user", "content": INPUT}])  # the next episode
    assert env.step("Nothing.")["reward"] != last["reward"]
