"""OpenRLHF: its single-turn executor, with the reward function in a file and with the reward server."""

import asyncio
import json
import logging
from types import SimpleNamespace

import pytest
import torch
from conftest import BROKEN, INPUT, LABEL, LOGGED, TEXTS, TURNS, Engine, score_of_turns
from openrlhf.utils.agent import MultiTurnAgentExecutor, SingleTurnAgentExecutor

from checklist_rewards.rewards.integrations.labelled import Unscored
from checklist_rewards.rewards.integrations.openrlhf_agent import ChecklistAgent

LABELS = [LABEL] * len(TEXTS)


@pytest.fixture
def function(tmp_path):
    """`function(judge)`: the file that `--reward.remote_url` names."""

    def write(judge) -> str:
        path = tmp_path / "reward_func.py"
        path.write_text(
            "from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc\n"
            f"reward_func = ChecklistRewardFunc(**{judge!r})\n"
        )
        return str(path)

    return write


def outputs_of(endpoint: str, tokenizer, labels=LABELS) -> list[dict]:
    executor = SingleTurnAgentExecutor(endpoint)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": INPUT}], tokenize=False, add_generation_prompt=True
    )
    engine, sampling = Engine(tokenizer), SimpleNamespace(max_tokens=64, logprobs=None)

    async def all_of_them():
        calls = [executor.execute(prompt, label, sampling, 512, tokenizer, engine) for label in labels]
        return await asyncio.gather(*calls)

    return asyncio.run(all_of_them())


def numbers(outputs: list[dict], key: str) -> list[float]:
    """The values as the sample generator makes tensors of them."""
    return [torch.tensor([output[key]]).flatten().item() for output in outputs]


def test_the_function_rewards(judge, function, tokenizer, expected):
    outputs = outputs_of(function(judge), tokenizer)
    assert numbers(outputs, "reward") == pytest.approx(expected, abs=1e-4)
    assert numbers(outputs, "scores") == pytest.approx(expected, abs=1e-4)
    assert all(set(output["extra_logs"]) == LOGGED for output in outputs)


def test_the_server_rewards_and_logs_the_same(server, tokenizer, expected):
    outputs = outputs_of(f"{server}/reward", tokenizer)
    assert numbers(outputs, "reward") == pytest.approx(expected, abs=1e-4)
    assert all(set(output["extra_logs"]) == LOGGED for output in outputs)


def test_an_invalid_label_is_an_error_in_the_log_and_no_reward(server, function, tokenizer, caplog):
    with caplog.at_level(logging.ERROR):
        [output] = outputs_of(function({"backend": "remote", "base_url": server}), tokenizer, [BROKEN])
    assert output["reward"] is None and output["scores"] is None
    assert "OpenRLHF gets no reward for an invalid row: row 1" in caplog.text
    [output] = outputs_of(f"{server}/reward", tokenizer, [BROKEN])  # five requests, one second apart
    assert output["reward"] is None


def test_an_unscored_sample_has_no_reward(function, silent_judge, tokenizer):
    [output] = outputs_of(function(silent_judge), tokenizer, [LABEL])
    assert output["reward"] is None


class Agent(ChecklistAgent):
    """Answers one call of a tool."""

    async def reply(self, action, label):
        return TURNS["result"] if "<tool_call>" in action else ""


def rollout_of(tokenizer):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": INPUT}], tokenize=False, add_generation_prompt=True
    )
    label = json.dumps({"checklist": TURNS["checklist"], "input": INPUT})
    engine, sampling = Engine(tokenizer, [TURNS["call"], TURNS["answer"]]), SimpleNamespace(logprobs=None)
    return asyncio.run(MultiTurnAgentExecutor(Agent).execute(prompt, label, sampling, 512, tokenizer, engine))


def test_an_agent_is_rewarded_for_all_its_turns(server, configure, tokenizer):
    configure({"backend": "remote", "base_url": server})
    output = rollout_of(tokenizer)
    assert output["reward"] == pytest.approx(score_of_turns(server), abs=1e-4)
    assert float(output["scores"]) == pytest.approx(output["reward"]) and set(output["extra_logs"]) == LOGGED
    assert len(output["action_ranges"]) == 2


def test_an_agent_that_cannot_be_judged_raises(silent_judge, configure, tokenizer):
    configure(silent_judge)
    with pytest.raises(Unscored):
        rollout_of(tokenizer)
