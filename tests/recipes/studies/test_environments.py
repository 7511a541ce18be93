"""GRPO in TRL's environments, on a very small scale."""

import json
import random

import pytest
from pocket.world import TRAIN_WORDS
from studies import environments

pytestmark = [pytest.mark.slow, pytest.mark.study, pytest.mark.xdist_group("trainers")]


def test_transcripts_render_and_parse_as_trl_does():
    from trl.chat_template_utils import is_chat_template_prefix_preserving, parse_response, supports_tool_calling

    tokenizer = environments.tokenizer_of()
    assert supports_tool_calling(tokenizer) and is_chat_template_prefix_preserving(tokenizer)
    for row in environments.rows_of(4, TRAIN_WORDS, seed=1):
        messages = environments.transcript(row, random.Random(0))
        _, own = environments.example(messages, tokenizer)
        written = [token for token in own if token != -100]
        first = written[: written.index(tokenizer.eos_token_id) + 1]
        prefix = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, return_dict=False)
        assert parse_response(tokenizer, first, prefix=prefix)["tool_calls"] == messages[1]["tool_calls"]


def test_two_environments_are_trained_and_measured(tmp_path):
    small = {
        "seeds": 0,
        "steps": 1,
        "groups": 2,
        "test-prompts": 2,
        "fails": 2,
        "warm-up-steps": 2,
        "warm-up-batch": 2,
    }
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    gold = environments.main(["--output", str(tmp_path), *options])
    assert set(gold) == {"lookup", "rule"}
    assert all(0 <= value <= 1 for when in gold.values() for values in when.values() for value in values)
    summary = json.loads((tmp_path / "0" / "summary.json").read_text())
    assert summary["completions"] == 16 and 0 < summary["unscored"] < 16
