"""harbor-rewardkit: `rewardkit.run` over a folder of tests that uses the criterion."""

import json
import os

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or the reward kit asks the network when it is imported
import rewardkit
from conftest import CHECKLIST, INPUT, TEXTS, TURNS, score_of_turns

FILE = {"checklist": CHECKLIST, "input": INPUT}
STEPS = [
    {"step_id": 1, "source": "user", "message": INPUT},
    {
        "step_id": 2,
        "source": "agent",
        "message": "Let me look.",
        "tool_calls": [{"tool_call_id": "1", "function_name": "look", "arguments": {"word": "moon"}}],
        "observation": {"results": [{"source_call_id": "1", "content": TURNS["result"]}]},
    },
    {"step_id": 3, "source": "agent", "message": TURNS["answer"]},
]
"""A trajectory in Harbor's format ATIF."""


@pytest.fixture
def task(tmp_path):
    """The folders of a task: what the agent left, and its tests."""
    (tmp_path / "app").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "app" / "report.md").write_text(TEXTS[2])
    (tmp_path / "trajectory.json").write_text(json.dumps({"schema_version": "ATIF-v1.6", "steps": STEPS}))
    return tmp_path


def run(task, call: str) -> dict:
    lines = ["import rewardkit as rk", "import checklist_rewards.rewards.integrations.harbor", f"rk.{call}"]
    (task / "tests" / "checks.py").write_text("\n".join(lines))
    return rewardkit.run(task / "tests", workspace=task / "app", output=task / "reward.json")


def test_a_file_of_the_workspace(task, server, configure, expected):
    configure({"backend": "remote", "base_url": server})
    rewards = run(task, f"checklist({FILE!r}, file='report.md')")
    assert list(rewards.values()) == pytest.approx([expected[2]], abs=1e-3)
    [details] = json.loads((task / "reward-details.json").read_text()).values()
    assert details["criteria"][0]["reasoning"].splitlines()[0] == f"{CHECKLIST[0]} yes"


def test_the_trajectory_with_items_about_single_messages(task, server, configure):
    configure({"backend": "remote", "base_url": server})
    rewards = run(task, f"checklist({TURNS['checklist']!r}, trajectory={str(task / 'trajectory.json')!r})")
    assert list(rewards.values()) == pytest.approx([score_of_turns(server)], abs=1e-3)


def test_a_failure_leaves_no_reward(task, server, silent_judge, configure):
    configure(silent_judge)
    with pytest.raises(BaseException, match="TaskGroup") as raised:
        run(task, f"checklist({FILE!r}, file='report.md')")
    assert "the judge answered 0 of 2 items" in str(raised.value.exceptions[0])
    configure({"backend": "remote", "base_url": server})
    with pytest.raises(BaseException, match="TaskGroup") as raised:
        run(task, f"checklist({CHECKLIST!r}, trajectory='none.json')")
    assert "none.json: cannot be judged (FileNotFoundError" in str(raised.value.exceptions[0])
    assert not (task / "reward.json").exists()
