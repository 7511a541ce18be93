"""A monitor inside TRL's GRPOTrainer, with the pocket model as policy and judge."""

import pytest
from datasets import Dataset
from pocket.world import tasks

from checklist_rewards.backends import pocket_dir
from checklist_rewards.rewards.trl import ChecklistReward
from tests.jsonl import read_jsonl
from tests.monitor.fakes import OptionsBackend, records
from tests.rewards.fakes import reward_by
from tests.rewards.test_trl_trainers import ON_CPU

pytestmark = pytest.mark.slow
TASKS = tasks(8, seed=1, split="train")


def train(reward, folder, *, resume=None, **options):
    from trl import GRPOConfig, GRPOTrainer

    data = [
        {"prompt": task.instruction, "checklist": [{"question": c.question()} for c in task.constraints]}
        for task in TASKS
    ]
    arguments = ON_CPU | dict(
        # the least that has two groups, and steps to compare
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=16,
        max_steps=4,
    )
    trainer = GRPOTrainer(
        model=str(pocket_dir()),
        reward_funcs=reward,
        args=GRPOConfig(output_dir=str(folder), **arguments | options),
        train_dataset=Dataset.from_list(data),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_run_is_watched_and_its_metrics_reach_the_trainer(scorer, tmp_path):
    monitor = {"held_out": 0.2, "shadow": {"model": "pocket", "backend": "transformers", "store": False}}
    reward = ChecklistReward(scorer, log=tmp_path / "rewards.jsonl", monitor=monitor)
    trainer = train(reward, tmp_path / "out", eval_strategy="no")
    steps = records(tmp_path / "out" / "monitor.jsonl", "step")
    assert [step["step"] for step in steps] == [0, 1, 2, 3] and trainer.state.global_step == 4
    assert {step["completions"] for step in steps} == {8}
    assert not records(tmp_path / "out" / "monitor.jsonl", "failure")
    assert len(records(tmp_path / "out" / "monitor.jsonl", "canary")) == 10, "an empty reply is no reply for the judge"
    history = [entry for entry in trainer.state.log_history if "rewards/checklist_reward/mean" in entry]
    for entry, step in zip(history, steps, strict=True):
        assert entry["rewards/checklist_reward/mean"] == pytest.approx(step["statistics"]["reward_mean"], abs=1e-6)
        assert entry["checklist_reward/monitor/steering"] == 0.0
    rows = read_jsonl(tmp_path / "rewards.jsonl")
    assert len(rows) == 32 and any(row["held_out"] for row in rows)


def test_an_alarm_stops_the_trainer(tmp_path):
    reward = reward_by(OptionsBackend(lambda prefix, tail: 0.9), monitor={"action": "stop"})  # says yes to everything
    trainer = train(reward, tmp_path)
    assert trainer.state.global_step == 1 and reward.monitor.should_stop
    [alarm] = records(tmp_path / "monitor.jsonl", "alarm")
    assert (alarm["signal"], alarm["step"], alarm["action"]) == ("canary", 0, "stop")
