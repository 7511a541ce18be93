"""ms-swift: `--external_plugins`, `orms`, and the rewards and advantages of its GRPO."""

import json

import pytest
import torch
from conftest import CHECKLIST, INPUT, TEXTS
from swift.arguments import BaseArguments
from swift.rewards import orms
from swift.rl_core.advantage import compute_advantages
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import compute_rewards_per_func
from swift.rlhf_trainers.utils import resolve_reward_funcs

from checklist_rewards import ChecklistScorer
from checklist_rewards.rewards.reward import ChecklistReward

CPU = torch.device("cpu")


@pytest.fixture
def plugin(tmp_path):
    """Imports a plugin file as `swift rlhf --external_plugins FILE` does."""
    path = tmp_path / "plugin.py"
    path.write_text("import checklist_rewards.rewards.integrations.swift\n")
    arguments = BaseArguments.__new__(BaseArguments)
    arguments.external_plugins, arguments.custom_register_path = [str(path)], []
    arguments._import_external_plugins()


def samples() -> list[GRPOSample]:
    return [
        GRPOSample(
            messages=[{"role": "user", "content": INPUT}, {"role": "assistant", "content": text}],
            extra={"checklist": json.dumps(CHECKLIST)},
            prompt_id="0",
            request_id=str(number),
        )
        for number, text in enumerate(TEXTS)
    ]


def rewards_of(functions, rows) -> torch.Tensor:
    return compute_rewards_per_func(rows, functions, [None] * len(functions), CPU, trainer_state=object())


def test_the_registered_reward_scores_completions(plugin, judge, configure, expected):
    configure(judge)
    functions, names = resolve_reward_funcs(["checklist"], args=None)
    assert names == ["ChecklistORM"]
    assert rewards_of(functions, samples())[:, 0].tolist() == pytest.approx(expected, abs=1e-4)


class Fails(ChecklistScorer):
    """A scorer whose judge answers nothing about the first sample."""

    def score_prepared(self, samples, **kwargs):
        first, *others = samples
        return [*self.silent.score_prepared([first], **kwargs), *super().score_prepared(others, **kwargs)]


@pytest.mark.parametrize("scale", ["group", "gdpo"])
def test_a_judge_failure_changes_no_advantage(plugin, server, silent_judge, scale):
    scorer = Fails(backend="remote", base_url=server)
    scorer.silent = ChecklistScorer(**silent_judge)

    class Arguments:
        scale_rewards = scale

    function = orms["checklist"](Arguments(), reward=ChecklistReward(scorer, retries=0))
    found = rewards_of([function], samples())
    lost = torch.isnan(found[:, 0]).tolist()
    assert lost == ([True] * 4 if scale == "group" else [True, False, False, False])
    advantages, _ = compute_advantages(found, torch.tensor([1.0]), 4, scale_rewards=scale)
    assert advantages[0].item() == pytest.approx(0, abs=1e-6)
    assert (advantages.abs() < 1e-6).all() or scale == "gdpo"
