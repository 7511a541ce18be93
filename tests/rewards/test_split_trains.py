"""A split reward inside GRPOTrainer: the advantages are those of the parts, and a part without items moves none."""

import math
from statistics import fmean, stdev

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.test_trl_trainers import by_hash, rows, text_of, train

SIZE = 4
pytestmark = pytest.mark.slow


def normalized(group: list[float | None]) -> list[float]:
    known = [value for value in group if value is not None]
    if len(known) < 2:
        return [0.0] * len(group)
    return [0.0 if value is None else (value - fmean(known)) / (stdev(known) + 1e-4) for value in group]


@pytest.mark.parametrize("aggregation", ["normalize_then_sum", "sum_then_normalize"])
def test_advantages_are_made_of_the_parts(tmp_path, aggregation):
    data = rows(conversational=True)
    backend = FakeBackend(by_hash)
    reward = ChecklistReward(ChecklistScorer(backend=backend, store=False), log=tmp_path / "rewards.jsonl")
    parts = reward.split(dataset=data)
    names = [part.part for part in parts]
    weights = [part.weight for part in parts]
    trainer = train(
        parts,
        tmp_path,
        data=data,
        per_device_train_batch_size=4 * SIZE,
        num_generations=SIZE,
        max_completion_length=8,
        max_steps=1,
        multi_objective_aggregation=aggregation,
        reward_weights=weights,
    )
    logs = trainer._logs
    prompts, texts = ([text_of(text) for text in logs[key]] for key in ("prompt", "completion"))
    checklists = {row["prompt"][0]["content"]: row["checklist"] for row in data}
    assert len(backend.asked) <= sum(len(checklists[prompt]) for prompt in prompts)  # judged once, not once per part

    by_part: dict[str, list[float | None]] = {name: [] for name in names}
    for prompt, text in zip(prompts, texts, strict=True):
        [score] = reward.scorer.score_batch([Sample(checklists[prompt], text, prompt)])
        for name in names:
            known = [line.probabilities["yes"] for line in score.items if line.category == name]
            by_part[name].append(fmean(known) if known else None)
    assert any(None in values for values in by_part.values())
    for part in parts:
        logged = logs["rewards"][part.__name__]
        expected = [math.nan if value is None else value for value in by_part[part.part]]
        assert list(logged) == pytest.approx(expected, abs=1e-5, nan_ok=True)

    found: list[float] = []
    for start in range(0, len(prompts), SIZE):
        columns = [by_part[name][start : start + SIZE] for name in names]
        if aggregation == "normalize_then_sum":
            columns = [normalized(column) for column in columns]
        sums = [
            math.fsum(w * (value or 0.0) for w, value in zip(weights, row, strict=True))
            for row in zip(*columns, strict=True)
        ]
        found += sums if aggregation == "normalize_then_sum" else normalized(sums)
    if aggregation == "normalize_then_sum":
        found = [value / (stdev(found) + 1e-4) for value in found]
    assert list(logs["advantages"]) == pytest.approx(found, abs=5e-3)
    entry = next(entry for entry in trainer.state.log_history if "checklist_reward/score" in entry)
    assert all(f"checklist_reward/{name}/score" in entry for name in names)
    assert len((tmp_path / "rewards.jsonl").read_text().splitlines()) == 4 * SIZE
