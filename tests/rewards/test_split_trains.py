"""A split reward inside GRPOTrainer: the advantages are those of the parts, and a part without items moves none."""

import math
from statistics import fmean

import pytest

from tests.jsonl import read_jsonl
from tests.rewards.fakes import asked, by_hash, reward_by
from tests.rewards.test_reward_advantages import advantages, in_groups, normalized_sums, trained
from tests.rewards.test_trl_trainers import rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("aggregation", ["normalize_then_sum", "sum_then_normalize"])
def test_advantages_are_made_of_the_parts(tmp_path, aggregation):
    reward = reward_by(by_hash, log=tmp_path / "rewards.jsonl")
    parts = reward.split(dataset=rows(conversational=True))
    weights = [part.weight for part in parts]
    options = {"multi_objective_aggregation": aggregation, "reward_weights": weights}
    trainer, samples = trained(parts, tmp_path, **options)
    assert len(asked(reward)) <= sum(len(sample.checklist) for sample in samples), "judged once, not once per part"

    columns: list[list[float | None]] = []
    scores = reward.scorer.score_batch(samples)
    for part in parts:
        found = [[line.probabilities["yes"] for line in s.items if line.category == part.part] for s in scores]
        columns.append([fmean(known) if known else None for known in found])
        logged = [math.nan if value is None else value for value in columns[-1]]
        assert list(trainer._logs["rewards"][part.__name__]) == pytest.approx(logged, abs=1e-5, nan_ok=True)
    assert any(None in column for column in columns)
    if aggregation == "normalize_then_sum":
        expected = normalized_sums([in_groups(column) for column in columns], weights)
    else:
        sums = [sum(w * (v or 0.0) for w, v in zip(weights, row, strict=True)) for row in zip(*columns, strict=True)]
        expected = [value for group in in_groups(sums) for value in advantages(group)]
    assert list(trainer._logs["advantages"]) == pytest.approx(expected, abs=5e-3)
    entry = next(entry for entry in trainer.state.log_history if "checklist_reward/score" in entry)
    assert all(f"{part.__name__}/score" in entry for part in parts)
    assert len(read_jsonl(tmp_path / "rewards.jsonl")) == len(samples)
