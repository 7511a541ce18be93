"""An evolving reward inside TRL's GRPOTrainer, with the pocket model as policy and judge."""

import json

import pytest
from pocket.world import FAMILIES, Constraint

from checklist_rewards.rewards.trl import ChecklistReward
from tests.evolving.fakes import Script
from tests.jsonl import read_jsonl
from tests.monitor.test_monitor_trainers import train

pytestmark = pytest.mark.slow

QUESTIONS = [Constraint(name).question() for name in FAMILIES if name in ("digits", "lowercase", "bullets")]


def reward_of(scorer, folder, **options):
    evolving = {"proposer": Script(lambda group: QUESTIONS), "refiners": [], "every": 1, "min_deviation": 0.0}
    return ChecklistReward(scorer, log=folder / "rewards.jsonl", evolving=evolving, **options)


def test_a_run_evolves_its_checklists_and_a_resumed_one_goes_on(scorer, tmp_path):
    whole = reward_of(scorer, tmp_path)
    trainer = train(whole, tmp_path / "out", save_strategy="steps", save_steps=2)
    assert trainer.state.global_step == 4 and not whole.evolving.failures
    records = read_jsonl(tmp_path / "out" / "checklists.jsonl")
    assert records[0]["calls"] == 4 and records[1:] == whole.evolving.state["prompts"]
    assert any(record["active"] for record in records[1:])
    rows = read_jsonl(tmp_path / "rewards.jsonl")
    hashes = {record["checklist_hash"] for record in records[1:]}
    assert len(rows) == 32 and {row["checklist_hash"] for row in rows[-8:]} & hashes
    logged = [entry for entry in trainer.state.log_history if "checklist_reward/evolving/active" in entry]
    assert len(logged) == 4 and logged[0]["checklist_reward/evolving/admitted"] > 0

    again = reward_of(scorer, tmp_path / "again")
    train(again, tmp_path / "out", resume=str(tmp_path / "out" / "checkpoint-2"))
    assert again.evolving.buffer.calls == 4
    before = json.loads((tmp_path / "out" / "checkpoint-2" / "trainer_state.json").read_text())
    saved = before["stateful_callbacks"]["EvolvingChecklistReward/checklist_reward"]
    assert saved["calls"] == 2
    known = {record["key"] for record in saved["prompts"]}
    assert known <= {record["key"] for record in again.evolving.state["prompts"]}


def test_a_monitored_run_evolves(scorer, tmp_path):
    reward = reward_of(scorer, tmp_path, monitor={"max_canary": None})
    trainer = train(reward, tmp_path / "out")
    assert trainer.state.global_step == 4 and not reward.evolving.failures and reward.evolving.state["prompts"]
    lines = read_jsonl(tmp_path / "out" / "monitor.jsonl")
    assert len([line for line in lines if line["kind"] == "step"]) == 4
    assert not [line for line in lines if line["kind"] == "failure"]
