"""Costs of passes: the figures of a device, and what a model and the room add to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.backends.trees import CPU, GPU, MAX_BATCH_TOKENS, Costs

SIZES = st.integers(1, 16_384)
ROOMS = st.integers(1, 100_000)
TOKENS = st.integers(1, 10_000)


@given(SIZES, ROOMS)
def test_a_model_adds_its_hidden_size_and_the_room(size, room):
    assert CPU.of(size, room) == Costs(4.5 * size, 32, min(room, 2048), room)
    assert GPU.of(size, room) == Costs(4.5 * size, 2048, room, room)


@given(SIZES, TOKENS, TOKENS, st.integers(1, 16))
def test_a_prefix_that_is_kept_where_a_pass_is_dear_is_kept_where_it_is_cheap(size, shared, own, count):
    cheap, dear = (costs.of(size, MAX_BATCH_TOKENS) for costs in (CPU._replace(one=0), CPU._replace(one=4096)))
    assert cheap.keeps(shared, own, count, 0) or not dear.keeps(shared, own, count, 0)


@pytest.mark.parametrize("name", sorted({*Costs._fields} - {"room"}))
def test_each_figure_of_a_device_reaches_the_plan(name):
    other = CPU._replace(**{name: 7 if getattr(CPU, name) != 7 else 8})
    assert other.of(576, 8192) != CPU.of(576, 8192)
