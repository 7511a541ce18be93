"""The log of a reward says how each reward was made from its score."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Verdict, score_checklist
from tests.fakes import FakeBackend

BATCH = dict(
    prompts=["A", "A", "B", "B"],
    completions=["red", "red and much longer", "blue", "red"],
    checklist=[["Is it red?"]] * 3 + [None],
)
SHAPING = [{"name": "length_penalty", "free": 1, "cap": 5, "at_cap": 0.4, "exponent": 1.0}, "centred", "clipped"]


def lines_of(tmp_path, **options) -> tuple[list, list[dict]]:
    backend = FakeBackend(lambda prefix, tail: 0.9 if "red" in prefix.rpartition("<response")[2] else 0.2)
    scorer = ChecklistScorer(backend=backend, store=False)
    reward = ChecklistReward(scorer, log=tmp_path / "rewards.jsonl", **options)
    rewards = reward(**BATCH)
    return rewards, [json.loads(line) for line in (tmp_path / "rewards.jsonl").read_text().splitlines()]


def test_the_stages_lead_from_the_score_to_the_reward(tmp_path):
    rewards, lines = lines_of(tmp_path, shaping=SHAPING)
    assert [name for name, _ in lines[1]["shaping"]] == ["expected", "length_penalty", "centred", "clipped"]
    values = [value for _, value in lines[1]["shaping"]]
    assert values == [lines[1]["score"]["primary_score"], pytest.approx(0.6), pytest.approx(-0.15), 0.0]
    assert [line["shaping"][-1][1] for line in lines[:3]] == rewards[:3]
    assert lines[0]["group"] == lines[1]["group"] != lines[2]["group"]
    assert "shaping" not in lines[3]  # no checklist, no score


def test_the_log_changes_no_reward(tmp_path):
    rewards, _ = lines_of(tmp_path, shaping=SHAPING)
    scorer = ChecklistScorer(
        backend=FakeBackend(lambda prefix, tail: 0.9 if "red" in prefix.rpartition("<response")[2] else 0.2),
        store=False,
    )
    assert ChecklistReward(scorer, shaping=SHAPING)(**BATCH) == rewards


def test_a_reward_that_is_its_score_has_no_more_columns(tmp_path):
    _, lines = lines_of(tmp_path)
    assert set(lines[0]) == {"step", "started", "prompt", "completion", "state", "reward", "checklist_hash", "score"}


def test_a_group_that_failed_is_named(tmp_path):
    backend = FakeBackend(lambda prefix, tail: None if "longer" in prefix else 0.9)
    scorer = ChecklistScorer(backend=backend, store=False)
    reward = ChecklistReward(scorer, log=tmp_path / "rewards.jsonl", on_failure="group")
    assert reward(**BATCH)[:3] == [None, None, pytest.approx(0.9)]
    lines = [json.loads(line) for line in (tmp_path / "rewards.jsonl").read_text().splitlines()]
    assert lines[0]["shaping"] == [["expected", pytest.approx(0.9)], ["failed group", None]]


def test_the_report_reads_the_stages_and_groups_by_them(tmp_path):
    _, lines = lines_of(tmp_path, shaping=SHAPING)
    records = list(ScoredFile(tmp_path / "rewards.jsonl"))
    assert [list(map(list, record.shaping)) for record in records] == [line.get("shaping", []) for line in lines]
    assert records[0].group == records[1].group != records[2].group


def test_a_calibrated_score_begins_with_the_score_before_calibration():
    checklist = Checklist.parse(["Is it red?"])
    verdict = Verdict({"yes": 0.7, "no": 0.3}, uncalibrated={"yes": 0.9, "no": 0.1}, method="logprobs")
    score = score_checklist(checklist, [verdict])
    batch = Call(["A"], ["red"], samples=[Sample(checklist, "red")], scores=[score])
    assert batch.log_columns(0) == {"shaping": [["before calibration", 0.9], ["expected", 0.7]]}
