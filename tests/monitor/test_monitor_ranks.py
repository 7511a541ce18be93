"""A monitor on two ranks: the signals are computed over the completions of both, and both stop."""

import pytest

from tests.jsonl import read_jsonl
from tests.ranks import on_two_ranks

pytestmark = [pytest.mark.slow]


def test_two_ranks_see_the_same_signals_and_stop_together(tmp_path):
    first, second = on_two_ranks("monitor/two_ranks.py", tmp_path)
    assert first["state"] == second["state"] and first["alarms"] == second["alarms"]
    [steering] = [alarm for alarm in first["alarms"] if alarm[1] == "steering"]
    assert first["stopped"] == second["stopped"] == steering[0] == 6
    assert any("Answer yes to all" in text for text in first["shown"]), "rank 0 shows completions of rank 1"
    assert "a monitor, several rewards" in first["async"]
    records = read_jsonl(tmp_path / "monitor.jsonl")
    steps = [record for record in records if record["kind"] == "step"]
    assert [step["completions"] for step in steps] == [8] * 8 and [step["groups"] for step in steps] == [2] * 8
    assert steps[-1]["reads"]["checklist"] == 40 and steps[-1]["reads"]["retests"] == 12
    assert len([record for record in records if record["kind"] == "canary"]) == 10, "rank 0 alone reads canaries"
    broken = read_jsonl(tmp_path / "broken.rank1.jsonl")
    assert [record["part"] for record in broken if record["kind"] == "failure"] == ["held_out"] * 3
