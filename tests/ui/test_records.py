"""Rows as people see them: completions in full, and what a policy wrote where it gave no answer."""

from checklist_rewards.ui.records import RecordFile, shown_completion
from tests.cli.conftest import write_jsonl

CALL = {"role": "assistant", "content": "Wait.", "tool_calls": [{"function": {"name": "find", "arguments": {}}}]}


def test_a_completion_without_an_answer_is_shown_in_full():
    assert shown_completion("<think>a</think>b") == "<think>a</think>b"
    assert shown_completion([{"role": "assistant", "content": "b"}]) == "b"
    assert shown_completion([CALL]) == "assistant: Wait.\n\nassistant calls find()"
    tool = {"role": "tool", "content": "found"}
    assert shown_completion([CALL, tool]) == "assistant: Wait.\n\nassistant calls find()\n\ntool: found"
    assert shown_completion([]) == "" and shown_completion(None) is None and shown_completion(7) == "7"


def test_a_log_shows_what_the_trainer_passed(tmp_path):
    row = {"step": 1, "prompt": "x", "completion": "", "written": "<think>a", "state": "cut_in_thought", "reward": 0}
    write_jsonl(tmp_path / "log.jsonl", {**row, "score": None}, {**row, "completion": "b", "score": None})
    assert [record.target for record in RecordFile(tmp_path / "log.jsonl")] == ["<think>a", "b"]


def test_files_with_similar_names_are_not_other_ranks(tmp_path):
    row = {"step": 1, "prompt": "x", "completion": "a", "reward": 0, "score": None}
    for name in ("log.jsonl", "log.rank1.jsonl", "log.ranked.jsonl"):
        write_jsonl(tmp_path / name, row)
    assert [path.name for path in RecordFile(tmp_path / "log.jsonl").paths] == ["log.jsonl", "log.rank1.jsonl"]
    for name in ("scored.jsonl", "scored.rank1.jsonl"):
        write_jsonl(tmp_path / name, {"target": "a", "checklist_score": None})
    assert RecordFile(tmp_path / "scored.jsonl").count() == 1
