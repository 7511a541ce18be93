"""verl: its loader, its reward managers and its reward loop, with a DataProto."""

import asyncio

import numpy as np
import pytest
import ray
import torch
from conftest import BROKEN, INPUT, LABEL, LOGGED, TEXTS
from hydra import compose, initialize_config_module
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.ppo.reward import load_reward_manager
from verl.workers.reward_manager.batch import BatchRewardManager

from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import ChecklistError
from checklist_rewards.rewards.integrations.labelled import Unscored
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore


@pytest.fixture
def config(tmp_path):
    """`config(judge, function, manager)`: verl's own configuration with our file as its reward function."""

    def write(judge, function, manager="naive", *overrides):
        path = tmp_path / "reward.py"
        path.write_text(
            "from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore\n"
            f"compute_score = ChecklistComputeScore(**{judge!r}).{function}\n"
        )
        with initialize_config_module("verl.trainer.config", version_base=None):
            return compose(
                "ppo_trainer",
                overrides=[
                    f"reward.custom_reward_function.path={path}",
                    f"reward.reward_manager.name={manager}",
                    "reward.num_workers=1",
                    f"actor_rollout_ref.model.path={pocket_dir()}",
                    *overrides,
                ],
            )

    return write


@pytest.fixture
def data(tokenizer) -> DataProto:
    return data_proto(tokenizer, [LABEL] * len(TEXTS))


def data_proto(tokenizer, labels) -> DataProto:
    """`TEXTS` as the responses of a rollout."""
    tokenizer.padding_side = "right"
    prompts = tokenizer([INPUT] * len(TEXTS), return_tensors="pt")
    responses = tokenizer(TEXTS, return_tensors="pt", padding=True)
    tensors = {
        "prompts": prompts["input_ids"],
        "responses": responses["input_ids"],
        "attention_mask": torch.cat([prompts["attention_mask"], responses["attention_mask"]], dim=1),
    }
    columns = {
        "data_source": ["checklists"] * len(TEXTS),
        "reward_model": [{"style": "rule", "ground_truth": label} for label in labels],
        "extra_info": [{} for _ in TEXTS],
    }
    return DataProto.from_dict(tensors, {name: np.array(column, dtype=object) for name, column in columns.items()})


def rewards_of(manager, data) -> list[dict]:
    async def all_of_them():
        return await asyncio.gather(*[manager.run_single(data[n : n + 1]) for n in range(len(data))])

    return manager.loop.run_until_complete(all_of_them())


@pytest.mark.parametrize("function", ["compute_score", "compute_score_async"])
@pytest.mark.parametrize("manager", ["naive", "dapo", "gdpo", "rate_limited"])
def test_managers_reward_with_both_functions(judge, config, tokenizer, data, expected, manager, function):
    loaded = load_reward_manager(config(judge, function, manager), tokenizer)
    found = rewards_of(loaded, data)
    assert [each["reward_score"] for each in found] == pytest.approx(expected, abs=1e-4)
    assert all(set(each["reward_extra_info"]) == {"score"} | LOGGED for each in found)


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_the_remote_manager_takes_the_plain_function_only(judge, config, tokenizer, data, expected, cluster):
    loaded = load_reward_manager(config(judge, "compute_score", "remote"), tokenizer)
    assert [each["reward_score"] for each in rewards_of(loaded, data)] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(AssertionError, match="Async reward score is not supported"):
        load_reward_manager(config(judge, "compute_score_async", "remote"), tokenizer)


def test_the_reward_loop_assembles_a_batch(server, config, data, expected, cluster):
    judge = {"backend": "remote", "base_url": server}
    result = RewardLoopManager(config(judge, "compute_score_async")).compute_rm_score(data)
    assert result.batch["rm_scores"].sum(dim=1).tolist() == pytest.approx(expected, abs=1e-4)
    assert set(result.meta_info["reward_extra_keys"]) == {"score"} | LOGGED


def test_the_batch_manager_of_older_trainers(judge, tokenizer, data, expected):
    function = ChecklistComputeScore(**judge).compute_score_batch
    found = BatchRewardManager(tokenizer, num_examine=0, compute_score=function)(data, return_dict=True)
    assert found["reward_tensor"].sum(dim=1).tolist() == pytest.approx(expected, abs=1e-4)
    assert set(found["reward_extra_info"]) == {"score"} | LOGGED


def test_invalid_labels_and_unscored_samples_stop_the_step(server, silent_judge, config, tokenizer, data):
    judge = {"backend": "remote", "base_url": server}
    broken = data_proto(tokenizer, [LABEL, BROKEN, LABEL, LABEL])
    with pytest.raises(ChecklistError, match="empty"):
        rewards_of(load_reward_manager(config(judge, "compute_score_async"), tokenizer), broken)
    with pytest.raises(Unscored):
        rewards_of(load_reward_manager(config(silent_judge, "compute_score_async"), tokenizer), data)


def test_rate_limited_turns_an_unscored_sample_into_zero(silent_judge, config, tokenizer, data):
    loaded = load_reward_manager(config(silent_judge, "compute_score", "rate_limited"), tokenizer)
    [found] = rewards_of(loaded, data[:1])
    assert found["reward_score"] == 0.0 and "answered 0 of 2" in found["reward_extra_info"]["error"]
