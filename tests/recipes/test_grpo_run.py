"""The figures of a GRPO run on the pocket world."""

import pytest
from pocket.grpo_run import overhead, without_variance


def test_groups_without_variance():
    assert without_variance([0.5, 0.5, 0.5, 0.5, 0.505, 0.5, 0.0, 1.0, 0.0], 3) == pytest.approx(1 / 3)
    assert without_variance([None, 0.5, 0.5, None, 0.0, 1.0], 3) == 0.5  # None is compared with nothing
    assert without_variance([None, None, 0.5], 3) == 1.0


def test_the_overhead_is_what_the_reward_takes_outside_the_engine():
    log = [
        {"step_seconds": 2.0, "reward_seconds": 0.6, "engine_seconds": 0.5},
        {"step_seconds": 3.0, "reward_seconds": 0.7, "engine_seconds": 0.6},
    ]
    assert overhead(log) == pytest.approx(
        {"step_seconds": 2.5, "reward_seconds": 0.65, "engine_seconds": 0.55, "overhead": 0.2 / 5}
    )
