"""Prompts in lists: a prefix is serialized once, and every prompt arrives whole and has an answer."""

import json

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.openai import wire
from tests.backends.answers import LABELS, ONE
from tests.backends.answerserver import connect


def test_prompts_arrive_whole_whether_they_share_a_prefix_or_have_none():
    prompts = wire.listed([([1, 2], [([3], 0), ([4, 5], 2), ([], 3)]), ([], [([6], 1)])])
    body = json.loads(wire.list_body("org/\ud800", prompts, [7, 8]))
    assert body["prompt"] == [[1, 2, 3], [1, 2, 4, 5], [1, 2], [6]]
    assert [tokens for _, tokens in prompts] == [3, 4, 2, 1]
    assert (body["model"], body["max_tokens"], body["logprob_token_ids"]) == ("org/\ud800", 1, [7, 8])


def test_a_prefix_without_questions_is_one_read(broken_server):
    reads, _ = connect(broken_server).read([ReadGroup(None, "Hello there."), *ONE], LABELS)
    assert [read.unanswered for read in reads] == [None, None]
    assert len(broken_server.asked[-1]["prompt"]) == 2
