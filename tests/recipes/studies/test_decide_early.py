"""The study of reads that a fixed decision saves, on a few prompts."""

import numpy as np
import pytest
from studies.decide_early import change_of_advantages, main


def test_the_bound_on_advantages_holds_for_rewards_within_their_bounds():
    rng = np.random.default_rng(0)
    for _ in range(200):
        lower = rng.uniform(0, 0.8, 8)
        upper = lower + rng.uniform(0, 0.05, 8)
        middle = (lower + upper) / 2
        bound = change_of_advantages(lower, upper)
        for _ in range(20):
            rewards = rng.uniform(lower, upper)
            moved = (rewards - rewards.mean()) / rewards.std() - (middle - middle.mean()) / middle.std()
            assert np.abs(moved).max() <= bound + 1e-9


@pytest.mark.slow
@pytest.mark.study
def test_decisions_are_those_of_reading_everything(tmp_path):
    summary = main([f"--output={tmp_path}", "--prompts=4"])
    assert [line["equal"] for line in summary["decisions"].values()] == [1, 1, 1]
    assert summary["decisions"]["the score, first item required"]["saved"] > 0
