"""Many checklists at once: one engine call per stage, the outcome of each as if it were alone."""

import json

import numpy as np
import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.refiners import CheckAdmission, Deduplicator, Selector, Tagger, UnitTester
from checklist_rewards.refiners.base import refine_all
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies
from tests.refiners.vectors import questions

COUNT = 4


class Counted:
    """Vectors by the first letter of a text; says how often it was called."""

    calls = 0

    def __call__(self, texts):
        self.calls += 1
        angles = np.radians([10.0 * (ord(text[0]) - ord("A")) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def asked(backend):
    """The number of prompts of each call."""
    return [len(texts) for texts, _ in backend.sampled]


NAMES = ["KP", "KQ", "LP", "LQ"]


def lists():
    """Two questions that are alike, one that is not, other ones in every list."""
    return [Checklist.parse([f"A of {name}?", f"B of {name}?", f"Z of {name}?"]) for name in NAMES]


def test_questions_are_embedded_once_and_all_groups_merged_in_one_call():
    def merge(text, sampling):
        return json.dumps({"same": True, "question": f"Is it {text.split('- A of ')[1][:2]}?"})

    backend, embedder = Replies(merge), Counted()
    refiner = Deduplicator("fake", backend=backend, embedder=embedder, store=False)
    refined = refiner.refine_batch(lists())
    assert embedder.calls == 1 and asked(backend) == [COUNT]
    assert [questions(one) for one in refined] == [[f"Is it {name}?", f"Z of {name}?"] for name in NAMES]
    assert refined == [refiner.refine(one) for one in lists()]
    assert [len(report.dropped) for report in refiner.reports] == [2]
    selector = Selector(1, embedder=Counted())
    assert [len(one) for one in selector.refine_batch(lists())] == [1] * COUNT and selector.embedder.calls == 1


def test_the_tagger_asks_about_all_items_in_one_call_and_an_empty_list_costs_itself_alone():
    def rule(text, sampling):
        return json.dumps({"reason": "", "general": "of KP" not in text, "specific": True})

    backend = Replies(rule)
    refined = Tagger("fake", backend=backend, store=False).refine_batch(lists())
    assert asked(backend) == [3 * COUNT]
    assert isinstance(refined[0], ChecklistError) and "no item is left of 3" in str(refined[0])
    assert [len(one) for one in refined[1:]] == [3] * (COUNT - 1)


def test_the_unit_tester_scores_rewrites_and_judges_in_one_call_each():
    backend = Replies(lambda text, sampling: '{"response": "broken"}')
    backend.rule = lambda prefix, tail: 0.1 if "broken" in prefix else 0.9
    backend.chunk_reads = 10_000
    refiner = UnitTester("fake", backend=backend, store=False)
    samples = [[Sample(None, f"text {n}")] for n in range(COUNT)]
    refined = refiner.refine_batch(lists(), samples)
    assert [one.items for one in refined] == [one.items for one in lists()]
    assert len(backend.calls) == 2 and asked(backend) == [3 * COUNT]
    with pytest.raises(SampleError, match="unit_tester needs samples"):
        refiner.refine_batch(lists(), [*samples[1:], []])


def test_code_checks_are_compared_in_one_call():
    backend = FakeBackend(lambda prefix, tail: 0.9, chunk_reads=10_000)
    refiner = CheckAdmission(ChecklistScorer("judge", backend=backend, store=False))
    item = {"question": "Is it short?", "check": '{"type": "words", "at_most": 3}'}
    plain = Checklist.parse(["Is it kind?"])
    checked = [Checklist.parse([item]), plain, Checklist.parse([item])]
    samples = [[Sample(None, "a b")], [], [Sample(None, "a b c d e")]]
    refined = refiner.refine_batch(checked, samples)
    assert [one.items[0].check is None for one in refined] == [False, True, True]
    judge = refiner.scorer.judge.name
    assert [one.model for one in refined] == [judge, None, judge]
    assert len(backend.calls) == 1


def test_a_refiner_of_ones_own_needs_no_batch_form():
    class First:
        def validate(self):
            pass

        def refine(self, checklist, samples=()):
            if "KP" in checklist.items[0].question:
                raise ChecklistError("nothing is left.")
            return Checklist(items=checklist.items[:1])

    found = refine_all(First(), lists()[:2], [(), ()])
    assert isinstance(found[0], ChecklistError) and len(found[1]) == 1
