"""Prefixes that are kept for the rows below them: what is planned, what it costs, and that answers stay the same."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.cache_utils import DynamicCache

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.budget import Receipt
from checklist_rewards.backends.inputs import Past, cache_argument
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.backends.trees import Costs, keep_prefixes
from tests.backends.answers import LABELS, before_each_pass, near

QUESTIONS = tuple(f"Does it mention the word number {number}?" for number in range(4))
FREE, DEAR = -1e9, 1e9
"""Costs of a pass with which every prefix is kept, and none."""
BRANCHES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1), max_size=6),
        st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=3),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def engine():
    """An engine that a test may change."""
    return TransformersBackend("pocket")


def groups_of(inputs: int, targets: int, words: int = 40) -> list[ReadGroup]:
    return [
        ReadGroup("Judge it. " * 10, f"Input {number}. " * words + f" Target {target} is long. " * 3, QUESTIONS)
        for number in range(inputs)
        for target in range(targets)
    ]


def read_with(engine, groups, cost):
    engine.device_costs, before = engine.device_costs._replace(one=cost), engine.device_costs
    try:
        return engine.read(groups, LABELS)
    finally:
        engine.device_costs = before


def below(kept):
    return [kept, *(one for child in kept.below for one in below(child))]


@given(BRANCHES, st.sampled_from([FREE, 0.0, DEAR]), st.sampled_from([8, 100]))
def test_every_prompt_is_in_one_row_below_what_it_starts_with(prompts, one, room):
    branches = [
        (prefix, [(tail, (place, prefix + tail)) for tail in tails]) for place, (prefix, tails) in enumerate(prompts)
    ]
    costs = Costs(8.0, one, room, room)
    plan = keep_prefixes(branches, costs)
    found = []
    for kept in below(plan):
        assert all(child.prefix[: child.depth] == kept.prefix and child.ids for child in kept.below)
        for row in kept.rows(costs):
            seen = row.visible()
            for answer, (place, prompt) in zip(row.answers, row.values, strict=True):
                assert kept.prefix + [row.ids[column] for column in seen[answer].nonzero()[0]] == prompt
                found.append((place, prompt))
    expected = [value for _, tails in branches for _, value in tails]
    assert sorted(found) == sorted(expected)
    assert sorted(value for _, tails in plan.prompts() for _, value in tails) == sorted(expected)
    assert all(list(prefix) + tail == prompt for prefix, tails in plan.prompts() for tail, (_, prompt) in tails)
    if one == DEAR:
        assert not plan.below


@given(BRANCHES)
def test_prefixes_that_are_kept_at_the_same_time_have_at_most_half_of_the_room(prompts):
    def check(kept, held):
        for child in kept.below:
            assert held + len(child.prefix) <= 4
            check(child, held + len(child.prefix))

    branches = [(prefix, [(tail, None) for tail in tails]) for prefix, tails in prompts]
    check(keep_prefixes(branches, Costs(8.0, FREE, 8, 8)), 0)


def test_a_prefix_is_kept_if_its_rows_cost_less():
    costs = Costs(864.0, 32.0, 2048)  # the pocket model's
    assert costs.keeps(600, 8 * 220, 8, 0)  # 8 targets below an input
    assert not costs.keeps(4, 2 * 220, 2, 0)  # two targets with the same first words
    assert not costs.keeps(200, 20, 1, 0)  # one question
    assert not costs._replace(even=math.inf).keeps(600, 8 * 220, 8, 0)  # without attention, one row is as good
    assert not costs._replace(one=2048.0).keeps(300, 400, 2, 0)  # a pass is dear


@pytest.mark.parametrize("inputs", [1, 3])
def test_answers_below_a_kept_prefix_are_those_of_other_ways(engine, inputs, monkeypatch):
    groups = groups_of(inputs, 3)
    rows, kept = read_with(engine, groups, DEAR), read_with(engine, groups, FREE)
    assert (rows[1].cached, kept[1].cached) == (0, 12 * inputs)
    assert kept[1].computed_tokens == kept[1].floor_tokens == rows[1].floor_tokens
    assert near(rows[0], kept[0])
    monkeypatch.setattr(engine, "packs", False)
    assert near(engine.read(groups, LABELS)[0], kept[0])


def test_the_engine_chooses_by_cost(engine):
    long, short = engine.read(groups_of(1, 8, 60), LABELS), engine.read(groups_of(1, 1, 1), LABELS)
    assert (long[1].cached, short[1].cached) == (32, 0)


def test_passes_and_masks_keep_to_the_token_budget(engine, monkeypatch):
    groups, passes = groups_of(2, 6), []
    whole = engine.read(groups, LABELS)

    def note(input_ids, attention_mask, **_):
        rows, width = input_ids.shape
        passes.append((rows, width, width if attention_mask is None else attention_mask.shape[-1]))

    monkeypatch.setattr(engine, "max_batch_tokens", 700)
    with before_each_pass(engine.model, note):
        assert near(whole[0], engine.read(groups, LABELS)[0])
    assert any(keys > width for _, width, keys in passes)
    assert all(rows * keys <= 700 for rows, _, keys in passes)


def test_a_prefix_that_does_not_fit_into_memory_is_not_kept(engine):
    groups, failed = groups_of(2, 3), []
    whole, name = engine.read(groups, LABELS), cache_argument(engine.model)

    def short_of_memory(input_ids, **given):
        if type(given.get(name)) is DynamicCache:  # that of a first prefix
            failed.append(input_ids.shape)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with before_each_pass(engine.model, short_of_memory):
        result = engine.read(groups, LABELS)
    assert failed and whole[1].cached == 24 and result[1].cached == 0 and near(whole[0], result[0])


def test_the_cache_is_given_under_the_name_that_the_model_has_for_it():
    engine, groups = TransformersBackend("pocket"), groups_of(2, 3)
    expected, model, forward = read_with(engine, groups, DEAR), engine.model, engine.model.forward

    def renamed(input_ids=None, cache=None, **given):
        return forward(input_ids, past_key_values=cache, **given)

    model.forward = renamed
    engine._use(model, engine.tokens, engine.max_batch_tokens)
    assert cache_argument(model) == "cache"
    result = read_with(engine, groups, FREE)
    assert result[1].cached == 24 and near(result[0], expected[0])


def test_a_cache_that_drops_tokens_is_refused(engine):
    cache = DynamicCache()
    keys = torch.zeros(1, 1, 5, 4)
    cache.update(keys, keys, 0)
    assert Past(cache).length == 5
    cache.update(keys[:, :, :3], keys[:, :, :3], 1)
    with pytest.raises(TypeError, match="DynamicCache does not keep all tokens"):
        Past(cache)


def test_a_receipt_shows_the_choice():
    receipt = Receipt(8, asked=8, computed_tokens=100, floor_tokens=100, cached=6)
    assert str(receipt).endswith("100 prompt tokens computed, 1.00 x the floor (6 reads below a kept prefix)")
    assert "kept" not in str(receipt - Receipt(cached=6))
