"""The planner: equal reads once, one group per prefix, no group cut, chunks of a few seconds."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.backends import ReadGroup
from checklist_rewards.files.store import key_of
from checklist_rewards.judges.logprob import Pace, Read, chunks, group_by_prefix

YES_NO = {"yes": "yes", "no": "no"}


def read(prefix: str, tail: str, context: tuple[tuple[str, str], ...] = ()) -> Read:
    return Read(key_of(prefix, tail, repr(context)), YES_NO, ReadGroup(None, prefix, context=context), tail)


def test_reads_are_grouped_by_prefix():
    reads = [read("A", "1"), read("B", "1"), read("A", "2")]
    assert group_by_prefix(reads) == [[reads[0], reads[2]], [reads[1]]]


def test_a_target_with_another_reference_is_another_group():
    red, blue = (("reference", word) for word in ("red", "blue"))
    reads = [read("A", "1", (red,)), read("A", "1", (blue,)), read("A", "1")]
    assert group_by_prefix(reads) == [[reads[2]], [reads[1]], [reads[0]]]


def test_completions_of_one_input_stand_together_however_a_trainer_mixed_them():
    tiled = [read(f"{prompt}: {completion}", "?") for completion in "xyz" for prompt in "AB"]
    assert [group[0].about.prefix[0] for group in group_by_prefix(tiled)] == ["A", "A", "A", "B", "B", "B"]


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from("123456"))), st.integers(1, 9))
def test_a_chunk_never_cuts_a_group_and_every_read_is_in_one_chunk(pairs, size):
    reads = [read(*pair) for pair in dict.fromkeys(pairs)]
    planned = group_by_prefix(reads)
    cut = list(chunks(planned, size))
    assert [group for chunk in cut for group in chunk] == planned
    for chunk in cut:
        assert len(chunk) == 1 or sum(map(len, chunk)) <= size
    assert sorted(r.key for group in planned for r in group) == sorted(r.key for r in reads)


def started(start: int, completions: int, questions: int = 2) -> list[list[Read]]:
    reads = [read(f"{start}: {c}", str(q)) for c in range(completions) for q in range(questions)]
    return group_by_prefix([replace(one, about=replace(one.about, start=bytes([start]))) for one in reads])


def test_chunks_are_cut_between_prompts_where_these_fit():
    groups = [group for prompt in range(4) for group in started(prompt, 3)]
    assert [sum(map(len, chunk)) for chunk in chunks(groups, 14)] == [12, 12]
    assert [sum(map(len, chunk)) for chunk in chunks(groups, 8)] == [6, 6, 6, 6]
    assert [sum(map(len, chunk)) for chunk in chunks(groups, 4)] == [4, 4, 4, 4, 4, 4]  # no prompt fits


def test_the_first_chunk_is_one_group_also_if_its_prompt_has_more():
    pace, found = Pace(), []
    for chunk in chunks([group for prompt in range(3) for group in started(prompt, 4)], 512, pace):
        found.append(len(chunk))
        pace.took(2 * len(chunk), len(chunk))
    assert found == [1, 3, 4, 4]


def sizes(engine_seconds, chunk_reads=4096, groups=1000) -> list[int]:
    """Reads per chunk for an engine that takes `engine_seconds(reads)`, where each group has eight."""
    pace, found = Pace(), []
    planned = group_by_prefix([read(f"{group:05}", tail) for group in range(groups) for tail in "12345678"])
    for chunk in chunks(planned, chunk_reads, pace):
        found.append(sum(map(len, chunk)))
        pace.took(found[-1], engine_seconds(found[-1]))
    return found


def test_a_fast_engine_gets_whole_chunks_after_three_small_ones():
    assert sizes(lambda reads: reads / 10_000) == [8, 64, 512, 4096, 3320]


def test_a_slow_engine_gets_what_it_answers_in_five_seconds():
    assert sizes(lambda reads: reads / 40, groups=120)[:4] == [8, 64, 200, 200]
    assert sizes(lambda reads: reads * 2.0, groups=10)[:4] == [8, 16, 16, 16]  # one group takes 16 s


def test_an_engine_that_answers_many_at_once_but_late_is_kept_busy():
    assert sizes(lambda reads: 10.0 * -(-reads // 128), groups=500)[:5] == [8, 16, 128, 1024, 1024]


def test_an_engine_that_becomes_slow_keeps_its_chunks():
    pace = Pace()
    pace.took(8, 0.01)
    pace.took(64, 30.0)
    assert pace.reads == 64
