"""Chat messages in cells of text: what is a conversation, and what stays text."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.files.cells import csv_text, from_csv, messages_in
from checklist_rewards.files.rows import read_rows

CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "assistant", "content": None, "tool_calls": [{"name": "look"}]}],
    [{"role": "assistant", "tool_calls": [{"name": "look"}]}],
    [{"role": "assistant", "reasoning_content": "Two words?"}],
    [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}],
]
TEXTS = [
    "Hello.",
    "[role] content",
    "[]",
    '[{"a": 1}]',
    '["role", "content"]',
    '{"role": "user", "content": "Hi"}',
    '[{"role": "admin"}]',
    '[{"role": "admin", "name": "Ann"}, {"role": "guest", "name": "Bo"}]',
    '[{"role": 1, "content": "Hi"}]',
    '[{"role": "user", "content": "Hi"}, "and more"]',
    '[{"role": "user", "content": "Hi"}',
    '[{"from": "Rome", "to": "Oslo"}]',
    '"Hello."',
    '"[role]"',
]


@pytest.mark.parametrize("chat", CHATS, ids=str)
def test_a_conversation_in_json_or_python_is_decoded(chat):
    for text in (json.dumps(chat), f"  {json.dumps(chat, indent=1)}\n", repr(chat)):
        assert messages_in(text) == from_csv(text) == chat


@pytest.mark.parametrize("content", ["Hello.", "It's\n} {'role': 1}", "a" * 200])
def test_a_conversation_that_pandas_wrote_is_decoded(tmp_path, content):
    chat = [{"content": "Hi", "role": "user"}, {"content": content, "role": "assistant"}]
    pd.DataFrame({"target": [chat], "n": [1]}).to_parquet(tmp_path / "a.parquet")
    pd.read_parquet(tmp_path / "a.parquet").to_csv(tmp_path / "a.csv", index=False)
    assert [row.data for row in read_rows(tmp_path / "a.csv")] == [{"target": chat, "n": "1"}]


@pytest.mark.parametrize("text", TEXTS)
def test_any_other_text_stays_text_even_if_it_is_json(text):
    assert messages_in(text) is from_csv(text) is csv_text(text) is text


@pytest.mark.parametrize("chat", CHATS, ids=str)
def test_a_text_that_looks_like_a_conversation_is_quoted_in_csv_and_stays_text(chat):
    text = json.dumps(chat)
    for _ in range(3):
        assert from_csv(csv_text(text)) == text != csv_text(text)
        text = csv_text(text)


@given(st.recursive(st.sampled_from([*TEXTS, *map(json.dumps, CHATS)]) | st.text(), lambda s: s.map(json.dumps)))
def test_every_text_survives_a_csv_cell(text):
    assert from_csv(csv_text(text)) == text
