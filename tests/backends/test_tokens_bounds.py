"""Bounds: a prompt is never longer than its bound, with the tokenizer and without."""

import pytest

from checklist_rewards.backends import ReadGroup, Sampling
from checklist_rewards.backends.tokens import Bounds, Tokens, local_tokenizer

GROUPS = [
    ReadGroup("Be fair.", "A text: ", ("Is it short?", "Is it long?")),
    ReadGroup(None, "日本語 🙂 <|end|> \ud83d ", ("?",)),
]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "[INST] \x00 " * 30}]


def test_with_the_tokenizer_reads_are_counted_as_they_are(pocket):
    [one, two, three] = Bounds("pocket", pocket.tokens).reads(GROUPS)
    assert one.prompt + two.prompt + three.prompt == pocket.read(GROUPS, ("yes", "no"))[1].prompt_tokens
    assert (one.completion, two.completion) == (1, 1)
    assert Bounds("pocket", pocket.tokens).reply(CHAT, Sampling(7, n=3)) == Tokens(len(pocket.tokens.prompt(CHAT)), 21)


def test_without_it_a_prompt_takes_at_most_a_token_per_byte_and_the_template(pocket):
    exact, bounded = Bounds("pocket", pocket.tokens), Bounds("pocket")
    assert all(near.prompt <= far.prompt for near, far in zip(exact.reads(GROUPS), bounded.reads(GROUPS), strict=True))
    assert exact.reply(CHAT, Sampling(7)).prompt <= bounded.reply(CHAT, Sampling(7)).prompt


def test_a_second_request_and_thinking_are_in_the_bound():
    [once], [twice], [thought] = (
        Bounds(model, requests=requests).reads([ReadGroup(None, "a", ("b",))])
        for model, requests in (("m", 1), ("m", 2), ("o3-mini", 2))
    )
    assert (once, twice) == (Tokens(130, 1), Tokens(260, 17)) and thought == Tokens(260, 17 + 2 * 4096)
    assert Bounds("gpt-5").reply(CHAT, Sampling(100)).completion == 4196


@pytest.mark.parametrize("model", ["org/model-that-is-not-here", "/no/such/place"])
def test_a_tokenizer_that_is_not_here_is_not_fetched(model):
    assert local_tokenizer(model) is None and local_tokenizer("pocket") is not None
