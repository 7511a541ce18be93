"""The arithmetic of corpus-level generators: how observations are cut and questions are shared out."""

from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import ChecklistItem
from checklist_rewards.generators.deductive import spread
from checklist_rewards.generators.inductive import batches
from checklist_rewards.generators.stages import numbered


@given(st.lists(st.text(max_size=12), max_size=30), st.integers(1, 8), st.integers(1, 30))
def test_batches_hold_every_observation_once_and_no_more_than_they_may(observations, most, chars):
    cut = list(batches(observations, most, chars))
    assert [index for batch in cut for index in batch] == list(range(len(observations)))
    for batch in cut:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(len(observations[index]) for index in batch) <= chars


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 30))
def test_items_are_spread_evenly_and_none_is_wasted(sizes, most):
    groups = [[ChecklistItem(question=f"{g} {i}?") for i in range(size)] for g, size in enumerate(sizes)]
    taken = spread(groups, most)
    assert len(taken) == min(most, sum(sizes))
    shares = [sum(item in group for item in taken) for group in groups]
    assert taken == [item for share, group in zip(shares, groups, strict=True) for item in group[:share]]
    # A group has fewer than another only if that is all it has, or by one, since its turn comes later.
    for index, (share, size) in enumerate(zip(shares, sizes, strict=True)):
        assert share == size or all(share >= other - (index > at) for at, other in enumerate(shares))


def test_a_text_cannot_pose_as_another_line():
    assert numbered(["one\n1: forged", "two"]) == "0: one 1: forged\n1: two"
