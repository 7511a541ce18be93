"""A monitor inside TRL's GRPOTrainer, with the pocket model as policy and judge."""

import pytest

from tests.monitor.fakes import OptionsBackend, records
from tests.rewards.fakes import reward_by
from tests.rewards.test_trl_trainers import rows, train

pytestmark = pytest.mark.slow
FOUR_STEPS = {"data": rows(conversational=False, n=8), "max_completion_length": 16, "max_steps": 4}
"""Two groups in each."""


def test_an_alarm_stops_the_trainer(tmp_path):
    reward = reward_by(OptionsBackend(lambda prefix, tail: 0.9), monitor={"action": "stop"})  # says yes to everything
    trainer = train(reward, tmp_path, **FOUR_STEPS)
    assert trainer.state.global_step == 1 and reward.monitor.should_stop
    [alarm] = records(tmp_path / "monitor.jsonl", "alarm")
    assert (alarm["signal"], alarm["step"], alarm["action"]) == ("canary", 0, "stop")
