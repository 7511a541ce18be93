"""An evolving reward on two ranks: rank 0 proposes, and both have the same checklists."""

import pytest

from tests.jsonl import read_jsonl
from tests.ranks import on_two_ranks

pytestmark = [pytest.mark.slow]


def test_two_ranks_have_the_same_buffer_and_a_failed_proposal_blocks_none(tmp_path):
    first, second = on_two_ranks("evolving/two_ranks.py", tmp_path)
    assert first["state"] == second["state"]
    assert first["groups"] and not second["groups"], "rank 0 alone proposes"
    assert ["red", "red blue"] in first["groups"], "and sees the responses of both ranks"
    for step in (0, 1):
        assert first["rewards"][step] == pytest.approx([0.5, 0.9]) == second["rewards"][step][::-1]
    assert first["broken"] == second["broken"] == pytest.approx([0.9, 0.9])
    assert first["failures"] == {"proposer": 1} and second["failures"] == {}
    assert first["half_state"] == second["half_state"], "a rank that cannot read changes the same buffer"
    records = read_jsonl(tmp_path / "checklists.jsonl")
    assert sorted(one["active"][0]["question"] for one in records[1:]) == ["Is it blue?", "Is it green?"]
