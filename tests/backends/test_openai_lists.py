"""Prompts in lists as JSON: a prefix is serialized once, and every prompt arrives whole."""

import json

from checklist_rewards.backends.openai import wire


def test_prompts_arrive_whole_whether_they_share_a_prefix_or_have_none():
    prompts = wire.listed([([1, 2], [([3], 0), ([4, 5], 2)]), ([], [([6], 1)])])
    body = json.loads(wire.list_body("org/\ud800", prompts, [7, 8]))
    assert body["prompt"] == [[1, 2, 3], [1, 2, 4, 5], [6]]
    assert [tokens for _, tokens in prompts] == [3, 4, 1]
    assert (body["model"], body["max_tokens"], body["logprob_token_ids"]) == ("org/\ud800", 1, [7, 8])
