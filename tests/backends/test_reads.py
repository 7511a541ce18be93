"""Reads as whole prompts: prefixes together, labels summed over their forms, a failure kept to its own read."""

import math

import pytest

from checklist_rewards.backends import Answer, ReadGroup
from checklist_rewards.backends.reads import read_prompts
from checklist_rewards.errors import ModelError
from tests.backends.words import word_tokenizer

SPACES = [" " * n for n in range(12)]
CHAT = word_tokenizer("yes Yes no is it short long text", template=None)
GROUPS = [ReadGroup(None, "text text ", ("is it short", "is it long")), ReadGroup(None, "text ", ("is it long",))]


def read(ask, groups=GROUPS, **arguments):
    return read_prompts(CHAT, groups, ["yes", "no"], ask, **{"limit": 100} | arguments)


def prompts_of(branches):
    return [[*prefix, *tail] for prefix, tails in branches for tail, _ in tails]


def all_equal(branches, ids):
    return [dict.fromkeys(ids, math.log(0.2)) for _ in prompts_of(branches)], 7


def test_prompts_that_share_a_prefix_stand_together():
    asked = []
    read(lambda branches, ids: (asked.extend(prompts_of(branches)), all_equal(branches, ids))[1])
    assert [CHAT.tokenizer.decode(prompt) for prompt in asked] == [
        "[bos] text is it long",
        "[bos] text text is it short",
        "[bos] text text is it long",
    ]


def test_a_label_is_the_sum_of_its_surface_forms():
    answers, usage = read(all_equal)
    assert answers[0].logprobs == (pytest.approx(math.log(0.4)), pytest.approx(math.log(0.2)))
    assert (usage.prompt_tokens, usage.computed_tokens, usage.floor_tokens) == (6 + 6 + 5, 7, 3 + 3 + 1 + 3)


def test_a_label_without_any_probability_is_minus_infinity():
    answers, _ = read(lambda branches, ids: ([dict.fromkeys(ids, -math.inf) for _ in prompts_of(branches)], 0))
    assert answers[2] == Answer((-math.inf, -math.inf))


def test_one_failed_prompt_costs_one_read():
    def ask(branches, ids):
        answers, computed = all_equal(branches, ids)
        return [answers[0], answers[1], "backend_error: gone"], computed

    answers, usage = read(ask)
    assert [answer.unanswered for answer in answers] == [None, "backend_error: gone", None]
    assert (usage.prompt_tokens, usage.floor_tokens) == (6 + 5, 6 + 3)  # what nothing answered costs nothing


def test_what_is_over_the_limit_is_not_asked_and_says_so():
    [*long, short], _ = read(all_equal, limit=6)
    assert long == [Answer(None, "too_long")] * 2
    assert short.logprobs is not None
    [nothing, *_], _ = read(
        lambda branches, ids: pytest.fail("asked"),
        limit=2,
        over_limit=Answer(None, "too_long: small engine", keep=False),
    )
    assert nothing.unanswered == "too_long: small engine" and not nothing.keep


def test_more_surface_forms_than_an_engine_names_are_refused():
    many = [f"{left}yes{right}" for left in SPACES for right in SPACES]
    chat = word_tokenizer("no")
    chat.tokenizer.add_tokens(many)
    with pytest.raises(
        ModelError, match=r"\['yes', 'no'\]: they have 145 surface forms in its vocabulary, and at most 128"
    ):
        read_prompts(chat, GROUPS, ["yes", "no"], all_equal, limit=100)
