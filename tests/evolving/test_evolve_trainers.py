"""An evolving reward inside TRL's GRPOTrainer, with the pocket model as policy and judge."""

import json

import pytest
from pocket.world import FAMILIES, Constraint

from checklist_rewards.rewards.trl import ChecklistReward
from tests.evolving.fakes import Script
from tests.jsonl import read_jsonl
from tests.monitor.fakes import records
from tests.monitor.test_monitor_trainers import FOUR_STEPS
from tests.rewards.test_trl_trainers import train

pytestmark = pytest.mark.slow

QUESTIONS = [Constraint(name).question() for name in FAMILIES if name in ("digits", "lowercase", "bullets")]


def reward_of(scorer, folder):
    evolving = {"proposer": Script(lambda group: QUESTIONS), "refiners": [], "every": 1, "min_deviation": 0.0}
    monitor = {"held_out": 0.2, "shadow": {"model": "pocket", "backend": "transformers", "store": False}}
    return ChecklistReward(scorer, log=folder / "rewards.jsonl", evolving=evolving, monitor=monitor)


def test_a_monitored_run_evolves_its_checklists_and_a_resumed_one_goes_on(scorer, tmp_path):
    whole, out = reward_of(scorer, tmp_path), tmp_path / "out"
    trainer = train(whole, out, **FOUR_STEPS, save_strategy="steps", save_steps=2)
    assert trainer.state.global_step == 4 and not whole.evolving.failures
    known = read_jsonl(out / "checklists.jsonl")
    assert known[0]["calls"] == 4 and known[1:] == whole.evolving.state["prompts"]
    assert any(record["active"] for record in known[1:])
    rows = read_jsonl(tmp_path / "rewards.jsonl")
    hashes = {record["checklist_hash"] for record in known[1:]}
    assert len(rows) == 32 and {row["checklist_hash"] for row in rows[-8:]} & hashes
    logged = [entry for entry in trainer.state.log_history if "checklist_reward/evolving/active" in entry]
    assert len(logged) == 4 and logged[0]["checklist_reward/evolving/admitted"] > 0
    steps = records(out / "monitor.jsonl", "step")
    assert [(step["step"], step["completions"]) for step in steps] == [(0, 8), (1, 8), (2, 8), (3, 8)]
    assert not records(out / "monitor.jsonl", "failure")
    assert len(records(out / "monitor.jsonl", "canary")) == 10, "the judge reads no empty reply"
    for entry, step in zip(logged, steps, strict=True):
        assert entry["rewards/checklist_reward/mean"] == pytest.approx(step["statistics"]["reward_mean"], abs=1e-6)
        assert entry["checklist_reward/monitor/steering"] == 0.0

    again = reward_of(scorer, tmp_path / "again")
    train(again, out, **FOUR_STEPS, resume=str(out / "checkpoint-2"))
    assert again.evolving.buffer.calls == again.monitor.state["calls"] == 4
    first = [reward.monitor.state["watch"]["signals"]["repetition"]["start"] for reward in (whole, again)]
    assert first[0][:2] == first[1][:2], "the steps before the checkpoint"
    before = json.loads((out / "checkpoint-2" / "trainer_state.json").read_text())
    saved = before["stateful_callbacks"]["EvolvingChecklistReward/checklist_reward"]
    assert saved["calls"] == 2
    assert {record["key"] for record in saved["prompts"]} <= {r["key"] for r in again.evolving.state["prompts"]}
