"""Prompts in lists: a prefix is serialized once, and every prompt arrives whole and has an answer."""

import json
from contextlib import ExitStack
from itertools import chain
from zlib import crc32

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.openai import OpenAIBackend, wire
from checklist_rewards.backends.openai.replicas import prefix_key
from tests.backends.answers import LABELS, ONE
from tests.backends.answerserver import SERVED_NAME, BrokenServer, connect, listed, serving


def test_prompts_arrive_whole_whether_they_share_a_prefix_or_have_none():
    prompts = wire.listed([([1, 2], [([3], 0), ([4, 5], 2), ([], 3)]), ([], [([6], 1)])])
    body = json.loads(wire.list_body("org/\ud800", prompts, [7, 8]))
    assert body["prompt"] == [[1, 2, 3], [1, 2, 4, 5], [1, 2], [6]]
    assert [tokens for _, tokens in prompts] == [3, 4, 2, 1]
    assert (body["model"], body["max_tokens"], body["logprob_token_ids"]) == ("org/\ud800", 1, [7, 8])


def test_a_model_without_yes_and_no_is_tested_with_the_labels_of_the_first_read(broken_server):
    judge = connect(broken_server)
    judge.tokens._spellings = {"good": (5,), "bad": (6,)}
    assert [read.exact for read in judge.read(ONE, ["good", "bad"])[0]] == [True]
    assert broken_server.asked[0]["prompt"] == [[5]] and broken_server.asked[0]["logprob_token_ids"] == [5, 6]


def test_a_prefix_without_questions_is_one_read(broken_server):
    reads, _ = connect(broken_server).read([ReadGroup(None, "Hello there."), *ONE], LABELS)
    assert [read.unanswered for read in reads] == [None, None]
    assert len(broken_server.asked[-1]["prompt"]) == 2


def test_every_read_has_the_answer_to_its_own_prompt_from_the_replica_of_its_text():
    groups = [ReadGroup(None, f"Text {n}. ", ("Is it short?", f"Is it {n}?")) for n in range(20, 0, -1)]
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(BrokenServer())) for _ in range(3)]
        for server in servers:
            server.completions = by_prompt
        judge = OpenAIBackend(SERVED_NAME, [server.base_url for server in servers])
        reads, _ = judge.read(groups, LABELS)
        homes = [judge.connection.home(prefix_key(None, group.prefix)) for group in groups]
        received = [[prompt for asked in server.asked for prompt in asked["prompt"]] for server in servers]
        alone = [connect(servers[0]).read([group], LABELS)[0] for group in groups]
    assert reads == [*chain.from_iterable(alone)] and len({read.logprobs for read in reads}) == 40
    for home, group in zip(homes, judge.tokens.groups(groups), strict=True):
        assert all(group.prefix + tail in received[home] for tail in group.tails)


def by_prompt(asked):
    ids = asked["logprob_token_ids"]
    values = [-5 - crc32(str(prompt).encode()) / 2**32 for prompt in asked["prompt"]]
    return [listed([0], ids, [value])[0] | {"index": place} for place, value in enumerate(values)][::-1]


def test_a_server_that_numbers_its_answers_wrongly_is_read_by_chat(broken_server):
    broken_server.completions = lambda asked: [choice | {"index": 5} for choice in by_prompt(asked)]
    judge = connect(broken_server)
    assert [read.exact for read in judge.read(ONE, LABELS)[0]] == [False]
    assert ["prompt" in asked for asked in broken_server.asked] == [True, False]
