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


def test_the_forecast_is_compared_with_later_steps_of_a_run(tmp_path):
    """Texts of a policy that learns: it misses constraints less and less often."""
    rng, lines = random.Random(0), []
    for step in range(12):
        for item in tasks(6, seed=step, split="test"):
            prompt = [{"role": "user", "content": item.instruction}]
            score = {"items": [{"question": constraint.question()} for constraint in item.constraints]}
            for _ in range(8):
                text = write_response(rng, item, 0.5 if step < 2 else 0.02, "test")
                lines.append({"step": step, "prompt": prompt, "completion": text, "score": score})
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = gradient.main([f"--output={tmp_path}", f"--log={tmp_path / 'log.jsonl'}", "--first=2"])
    assert found["parts"] == ["steps 2 to 9", "steps 10 to 10", "steps 11 to 11"] and len(found["sets"]) == 10
    predicted, *measured = found["sets"]["all constraints"]
    assert predicted["value"] == 1 and max(measured) < 0.6


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
    assert set(weights.ARMS) <= set(cell) and 0 <= cell["fitted"][weights.BEST]["mean"] <= 1
    runs = weights.main(
        [f"--output={tmp_path}", "--prompts=40", "--train=2", "--seeds=1", "--groups=2", "--pairs=100"]
    )
    assert set(runs) == set(weights.TRAINED_ON)
    assert all(len(run["gold"]) == 2 and 0 < run["gold"][0] <= 1 for [run] in runs.values())
    assert runs["fitted"][0]["weights"] != runs["equal weights"][0]["weights"]


@pytest.mark.slow
@pytest.mark.study
def test_the_forecast_is_compared_with_the_log_of_a_run_on_each_set(tmp_path, monkeypatch):
    completions(tmp_path / "completions.json", 40)
    sets = gradient.sets
    two = ("all constraints", "two of three prompts vague")
    monkeypatch.setattr(gradient, "sets", lambda *given: {name: sets(*given)[name] for name in two})
    found = gradient.main([f"--output={tmp_path}", "--prompts=40", "--sample=20", "--train=2", "--groups=12"])
    everything, vague = (found[name]["gradient"] for name in two)
    assert len(vague) == 2 and max(vague) < 0.75 < min(everything)
