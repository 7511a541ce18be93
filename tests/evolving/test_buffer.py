import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evolving.buffer import (
    MOST_INACTIVE,
    ChecklistBuffer,
    PromptItems,
    deviation,
    read_buffer,
    write_buffer,
)
from tests.jsonl import read_jsonl

BASE = Checklist.parse(["Is it red?", {"question": "Is it rude?", "weight": -1, "required": True}])
ITEMS = [ChecklistItem(question=f"Is it number {n}?", weight=1.0 if n % 2 else -1.0) for n in range(12)]
IDS = [item.id for item in ITEMS]
spreads = st.one_of(st.none(), st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.5]))
updates = st.tuples(
    st.sampled_from(["one", "two"]),
    st.dictionaries(st.sampled_from(IDS), spreads),
    st.lists(st.sampled_from(ITEMS), max_size=4),
)


def run(buffer, steps):
    for key, deviations, candidates in steps:
        buffer.update(key, BASE, deviations, candidates, proposed=bool(candidates))
        buffer.calls += 1
    return buffer


@given(st.lists(updates, max_size=12), st.integers(1, 4))
def test_the_rules_hold_after_every_update(steps, most):
    buffer = ChecklistBuffer(max_active=most)
    for key, deviations, candidates in steps:
        before, after = buffer.update(key, BASE, deviations, candidates)
        assert after.persistent == BASE.items, "persistent items never change"
        assert len(after.active) <= most
        kept = {one.item.id: one for one in after.active}
        assert not set(kept) & {item.id for item in after.inactive}
        assert all(one.deviation > 0.01 for one in after.active)
        for one in before.active:
            measured = deviations.get(one.item.id)
            assert measured is None or measured > 0.01 or one.item.id not in kept, "without deviation, it retires"
            assert one.item.id in {item.id for item in after.known}, "a retired item is remembered"
        assert all(deviations.get(id) is not None for id in set(kept) - {one.item.id for one in before.active})
        checklist = buffer.checklist(key, BASE)
        assert checklist.items == after.items and checklist.items[:2] == BASE.items


@given(st.lists(updates, max_size=10), st.integers(0, 10), st.integers(1, 4))
def test_a_resumed_buffer_goes_on_as_one_that_was_never_stopped(steps, stop, most):
    whole = run(ChecklistBuffer(max_active=most), steps)
    first = run(ChecklistBuffer(max_active=most), steps[:stop])
    second = ChecklistBuffer(max_active=most)
    second.restore(json.loads(json.dumps(first.state)))
    assert run(second, steps[stop:]).state == whole.state


def test_the_largest_deviations_stay_and_the_older_of_equal_ones():
    items = PromptItems(BASE.items).updated(
        dict(zip(IDS, (0.2, 0.4, 0.2, 0.3), strict=False)), ITEMS[:4], max_active=3, min_deviation=0.0
    )
    assert [one.item for one in items.active] == [ITEMS[0], ITEMS[1], ITEMS[3]]
    assert items.inactive == (), "an item that never counted is not remembered"


def test_a_retired_item_is_not_admitted_again():
    buffer = ChecklistBuffer()
    buffer.update("one", BASE, {IDS[0]: 0.3}, ITEMS[:1])
    buffer.update("one", BASE, {IDS[0]: 0.0})
    _, after = buffer.update("one", BASE, {IDS[0]: 0.5}, ITEMS[:1])
    assert after.active == () and after.inactive == (ITEMS[0],)


def test_an_item_that_was_not_read_keeps_its_deviation():
    buffer = ChecklistBuffer()
    buffer.update("one", BASE, {IDS[0]: 0.3}, ITEMS[:1])
    _, after = buffer.update("one", BASE, {IDS[0]: None})
    assert [one.deviation for one in after.active] == [0.3]


def test_the_memory_of_a_prompt_is_bounded():
    buffer, active = ChecklistBuffer(max_active=1), []
    for n in range(3 * MOST_INACTIVE):
        item = ChecklistItem(question=f"Is it {n}?")
        buffer.update("one", BASE, {item.id: 0.5} | dict.fromkeys(active, 0.0), [item])
        active = [item.id]
    assert len(buffer.get("one", BASE).known) == len(BASE) + 1 + MOST_INACTIVE


def test_a_prompt_without_proposals_takes_no_memory():
    buffer = ChecklistBuffer()
    buffer.update("one", BASE, {IDS[0]: 0.5})
    assert buffer.state["prompts"] == [] and buffer.checklist("one", BASE) is BASE


def test_the_deviation_needs_two_answers():
    assert deviation([1.0, None]) is None and deviation([1.0, 0.0, None]) == 0.5 and deviation([0.5, 0.5]) == 0


def test_a_file_has_the_state(tmp_path):
    buffer = run(ChecklistBuffer(), [("one", {IDS[0]: 0.3, IDS[1]: 0.0}, ITEMS[:2])])
    write_buffer(tmp_path / "b.jsonl", buffer.state)
    assert read_buffer(tmp_path / "b.jsonl") == buffer.state
    header, line = read_jsonl(tmp_path / "b.jsonl")
    assert header == {"format": "checklist-rewards-buffer-1", "calls": 1}
    assert line["checklist_hash"] == buffer.checklist("one", BASE).id


@pytest.mark.parametrize("text", ["", '{"format": "checklist-rewards-buffer-9", "calls": 1}'])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "b.jsonl").write_text(text)
    with pytest.raises(SampleError, match=r"b\.jsonl: not the file of a checklist buffer"):
        read_buffer(tmp_path / "b.jsonl")
