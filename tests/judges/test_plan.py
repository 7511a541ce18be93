"""The planner: equal reads once, one group per prefix, no group cut."""

from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.judges.plan import RenderedRead, chunks, distinct, group_by_prefix
from checklist_rewards.store import key_of


def read(prefix: str, tail: str, system: str | None = None) -> RenderedRead:
    return RenderedRead(key_of(system or "", prefix, tail), system, prefix, tail)


def test_equal_reads_are_made_once_and_reads_are_grouped_by_prefix():
    reads = [read("A", "1"), read("B", "1"), read("A", "2"), read("A", "1")]
    groups = group_by_prefix(list(distinct(reads).values()))
    assert [(g.group.prefix, g.group.tails) for g in groups] == [("A", ("1", "2")), ("B", ("1",))]


def test_completions_of_one_input_stand_together_however_a_trainer_mixed_them():
    tiled = [read(f"{prompt}: {completion}", "?") for completion in "xyz" for prompt in "AB"]
    assert [g.group.prefix[0] for g in group_by_prefix(tiled)] == ["A", "A", "A", "B", "B", "B"]


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from("123456"))), st.integers(1, 9))
def test_a_chunk_never_cuts_a_group_and_every_read_is_in_one_chunk(pairs, size):
    reads = list(distinct([read(*pair) for pair in pairs]).values())
    planned = group_by_prefix(reads)
    cut = list(chunks(planned, size))
    assert [group for chunk in cut for group in chunk] == planned
    for chunk in cut:
        assert len(chunk) == 1 or sum(len(group.keys) for group in chunk) <= size
    assert sorted(key for group in planned for key in group.keys) == sorted(r.key for r in reads)
