"""Totals of a run: targets without an answer are counted by state, and are missing only without a score."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.datasets.tasks import Totals
from tests.fakes import FakeBackend


def totals_of(rule: str) -> Totals:
    scorer = ChecklistScorer(backend=FakeBackend(), store=False, no_answer=rule)
    samples = [
        Sample(["Is it?", "Is it so?"], "a text"),
        Sample(["Is it?", "Is it so?"], "a long text", state="cut"),
        Sample(["Is it?", "Is it so?"], "", state="cut_in_thought"),
        Sample(["Is it?", "Is it so?"], ""),
    ]
    totals = Totals()
    for number, score in enumerate(scorer.score_batch(samples), start=1):
        totals.add(number, score)
    return totals


@pytest.mark.parametrize(
    ("rule", "not_asked", "missing", "unscored"),
    [("lowest", 2, {}, 0), ("unscored", 2, {"no_answer": 4}, 2), ("judge", 0, {}, 0)],
)
def test_targets_without_an_answer_are_counted_by_state(rule, not_asked, missing, unscored):
    totals = totals_of(rule)
    assert totals.no_answer == {"cut_in_thought": 1, "empty": 1} and totals.states["cut"] == 1
    assert {reason: count.count for reason, count in totals.unanswered.items()} == missing
    assert (totals.not_asked, totals.tally.unscored, totals.transient) == (not_asked, unscored, 0)


def test_totals_of_an_earlier_version_are_read():
    dumped = totals_of("lowest").dump()
    assert Totals.load({k: v for k, v in dumped.items() if k not in ("states", "not_asked")}).no_answer == {}
