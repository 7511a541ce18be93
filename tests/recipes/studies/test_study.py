"""What the studies share: finished runs are kept, spreads and shares are as worked out by hand."""

import pytest
from pocket.grpo_run import overhead, without_variance
from studies.common import once, shown, spread


def test_a_finished_run_is_not_repeated_and_other_settings_are_another_run(tmp_path):
    made = []

    def run():
        made.append(len(made))
        return {"gold": 0.5, "curve": {10: 0.6}}

    first = once(tmp_path / "soft-0", {"steps": 60, "seed": 0}, run)
    assert first == {"settings": {"steps": 60, "seed": 0}, "gold": 0.5, "curve": {"10": 0.6}}
    assert once(tmp_path / "soft-0", {"steps": 60, "seed": 0}, run) == first and made == [0]
    assert once(tmp_path / "soft-0", {"steps": 30, "seed": 0}, run)["settings"]["steps"] == 30 and made == [0, 1]


def test_an_interrupted_run_leaves_no_summary(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        once(tmp_path, {}, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert list(tmp_path.iterdir()) == []


def test_a_spread_is_the_mean_the_range_and_the_sample_deviation():
    found = spread([0.6, 0.7, 0.8])
    assert found == {
        "mean": pytest.approx(0.7),
        "min": 0.6,
        "max": 0.8,
        "std": pytest.approx(0.1),
        "per_seed": [0.6, 0.7, 0.8],
    }
    assert shown(found) == "0.700 (0.600-0.800)"
    assert spread([0.6])["std"] is None  # one seed has no spread, not one of 0


def test_groups_without_variance():
    rewards = [0.5, 0.5, 0.5, 0.5, 0.505, 0.5, 0.0, 1.0, 0.0]
    assert without_variance(rewards, 3) == pytest.approx(1 / 3)
    assert without_variance(rewards, 3, 0.01) == pytest.approx(2 / 3)


def test_an_unscored_completion_is_compared_with_nothing():
    assert without_variance([None, 0.5, 0.5, None, 0.0, 1.0], 3) == 0.5
    assert without_variance([None, None, 0.5], 3) == 1.0


def test_the_overhead_is_what_the_reward_takes_outside_the_engine():
    log = [
        {"step_seconds": 2.0, "reward_seconds": 0.6, "engine_seconds": 0.5},
        {"step_seconds": 3.0, "reward_seconds": 0.7, "engine_seconds": 0.6},
    ]
    assert overhead(log) == pytest.approx(
        {"step_seconds": 2.5, "reward_seconds": 0.65, "engine_seconds": 0.55, "overhead": 0.2 / 5}
    )
