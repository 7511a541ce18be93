"""A monitor inside TRL's GRPOTrainer, with the pocket model as policy and judge."""

import pytest
from datasets import Dataset
from pocket.world import tasks

from checklist_rewards.backends import pocket_dir
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


def test_an_alarm_stops_the_trainer(tmp_path):
    reward = reward_by(OptionsBackend(lambda prefix, tail: 0.9), monitor={"action": "stop"})  # says yes to everything
    trainer = train(reward, tmp_path)
    assert trainer.state.global_step == 1 and reward.monitor.should_stop
    [alarm] = records(tmp_path / "monitor.jsonl", "alarm")
    assert (alarm["signal"], alarm["step"], alarm["action"]) == ("canary", 0, "stop")
