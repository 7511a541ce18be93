"""The studies of weights, rates and the forecast of gradients, on a small scale."""

import json
import random

import numpy as np
import pytest
from pocket.world import tasks, write_response
from studies import gradient, rates, weights


def completions(path, prompts):
    """Texts that miss each constraint of their prompt with probability 0.3."""
    rng = random.Random(0)
    items = tasks(prompts, seed=11, split="test")
    path.write_text(json.dumps([[write_response(rng, item, 0.3, "test") for _ in range(8)] for item in items]))


def test_the_forecast_is_compared_with_other_prompts(tmp_path):
    completions(tmp_path / "completions.json", 40)
    found = gradient.main([f"--output={tmp_path}", "--prompts=40", "--sample=20"])
    assert found["prompts"] == found["others"] == 20 and len(found["sets"]) == 10
    vague, everything = (found["sets"][name]["8"] for name in ("two of three prompts vague", "all constraints"))
    assert vague["predicted"]["value"] + 0.3 < everything["predicted"]["value"]
    assert vague["measured"] + 0.3 < everything["measured"]
    assert "Rank correlation" in (tmp_path / "table.md").read_text()


def test_intervals_of_a_draw():
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.5).astype(float)
    values = np.clip(0.3 + 0.4 * labels + 0.2 * rng.standard_normal(400), 0, 1)
    groups = [np.arange(start, start + 4) for start in range(0, 400, 4)]
    drawn = rates.draw(values, labels, groups, (60, 20, 4), 0, False)
    assert not drawn["refused"] and drawn["corrected"][0] < drawn["corrected"][1]
    assert rates.draw(values, labels, groups, (60, 20, 4), 0, True)["refused"]


@pytest.mark.slow
@pytest.mark.study
def test_fitted_weights_are_compared_on_held_out_prompts(tmp_path):
    completions(tmp_path / "completions.json", 40)
    arguments = ["--tasks", "pocket", "--budgets", "50", "--draws", "1", "--prompts", "40"]
    found = weights.main([f"--output={tmp_path}", *arguments])
    cell = found["pocket"]["budgets"]["50"]
    assert set(weights.ARMS) <= set(cell) and 0 <= cell["fitted"]["best of 8"]["mean"] <= 1
