"""Which items are held out, and the score without them."""

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.monitor.monitor import held_out_items
from checklist_rewards.rewards.batch import only
from tests.fakes import FakeBackend

ITEMS = st.lists(
    st.fixed_dictionaries({"weight": st.sampled_from([1.0, 2.0, -1.0, 0.0]), "required": st.booleans()}),
    min_size=1,
    max_size=8,
).filter(lambda items: any(item["weight"] for item in items))


def checklist(items):
    return Checklist.parse([{"question": f"Question {n}?", **item} for n, item in enumerate(items)])


@given(ITEMS, st.floats(0, 1), st.integers(0, 5), st.sampled_from(["fixed", "step"]))
def test_what_is_left_can_always_be_rewarded(items, share, step, draw):
    full = checklist(items)
    out = held_out_items(full, share, draw=draw, step=step)
    rest = [item for item in full.items if item.id not in out]
    assert all(not item.required for item in full.items if item.id in out)
    assert any(item.weight > 0 for item in rest) or full.only_penalties
    assert any(item.weight for item in rest) and len(out) <= share * len(items) + 1


def test_the_share_is_right_on_average_for_short_checklists():
    lists = [Checklist.parse([f"Question {n}.{i}?" for i in range(4)]) for n in range(500)]
    assert fmean(len(held_out_items(one, 0.2)) for one in lists) == pytest.approx(0.8, abs=0.06)


def test_the_choice_is_fixed_or_new_at_each_step():
    full = Checklist.parse([f"Question {n}?" for n in range(20)])
    fixed = [held_out_items(full, 0.2, step=step) for step in range(5)]
    assert all(one == fixed[0] for one in fixed) and len(fixed[0]) == 4
    drawn = [held_out_items(full, 0.2, draw="step", step=step) for step in range(5)]
    assert len({tuple(one) for one in drawn}) == 5
    assert held_out_items(full, 0.2, seed=1) != fixed[0] and held_out_items(full, 0.0) == []


def test_the_score_without_items_is_the_score_of_the_shorter_checklist():
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.9 if "red" in tail else 0.2), store=False)
    full = Checklist.parse(["Is it red?", {"question": "Is it blue?", "weight": 3}])
    score = scorer.score(full, "text")
    blue = full.items[1].id
    kept = [item.id for item in full.items if item.id != blue]
    sample, rest = only(Sample(full, "text"), score, kept, "expected")
    assert [item.question for item in sample.checklist.items] == ["Is it red?"]
    assert rest.primary_score == scorer.score(["Is it red?"], "text").primary_score == pytest.approx(0.9)
    assert score.primary_score == pytest.approx((0.9 + 3 * 0.2) / 4) and rest.total == 1
