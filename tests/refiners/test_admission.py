"""Admission of code checks, by the pocket judge in the pocket world."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample, __version__
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.generators import Request
from checklist_rewards.pipelines import pipeline
from checklist_rewards.refiners import CheckAdmission
from tests.fakes import FakeBackend


def test_right_checks_are_admitted_and_wrong_ones_demoted(scorer):
    digit = json.dumps({"type": "letters", "letters": "0123456789", "at_least": 1})
    right = ChecklistItem(question="Does the response contain a digit?", check=digit)
    wrong = ChecklistItem(question="Does the response end with a question mark?", weight=2, check=digit)
    refiner = CheckAdmission(scorer)
    targets = ("My 3 keno like this red tisa.", "is it a bako?", "the old lamo sees 7 bako?", "a deko")
    refined = refiner.refine(Checklist(items=(right, wrong)), on(*targets))
    admitted, demoted = refined.items
    assert admitted == right and (demoted.question, demoted.weight, demoted.check) == (wrong.question, 2, None)
    assert demoted.id != wrong.id and not refiner.report.unclear
    [note] = refiner.report.dropped
    assert note.item == wrong and "of 4 texts (required: 90%)" in note.reason
    assert refined.source == f"check_admission/{__version__}" and refined.model == "pocket"


ITEM = {"id": "a1", "question": "Is there an A?", "check": '{"type": "keywords", "words": ["A"]}'}


def by_letter(prefix, tail):
    target = prefix.split("<target-")[1].split("\n")[1]
    return None if "?" in target else 0.9 if "A" in target else 0.1


def admission(rule=by_letter, **options):
    return CheckAdmission(ChecklistScorer("fake", backend=FakeBackend(rule), store=False), **options)


def on(*targets):
    return [Sample(None, target) for target in targets]


@pytest.mark.parametrize(("threshold", "admitted"), [(0.75, True), (0.8, False)])
def test_the_threshold_is_a_share_of_the_texts_that_both_answered(threshold, admitted):
    # By letter "XAX" has an A, by word it has not; "A?" is unread and counts neither way.
    refiner = admission(threshold=threshold)
    [item] = refiner.refine(Checklist.parse([ITEM]), on("A b", "b", "c", "XAX", "A?")).items
    assert (item.check is not None) is admitted
    if not admitted:
        [note] = refiner.report.dropped
        assert note.reason.startswith("its check and the judge agree on 3 of 4 texts (required: 80%)")


def test_what_cannot_be_compared_is_not_admitted_and_said_to_be_unclear():
    refiner = admission(lambda prefix, tail: None)
    [item] = refiner.refine(Checklist.parse([ITEM]), on("A", "b")).items
    [note] = refiner.report.unclear
    assert item.check is None and note.item == item
    assert note.reason == "no text was answered by both its check and the judge"


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ('{"type": "keyword"}', "unknown check type 'keyword'"),
        ('{"type": "code"}', "its check runs code"),
    ],
)
def test_a_check_that_cannot_be_used_is_demoted_without_asking(check, reason):
    refiner = admission(lambda prefix, tail: pytest.fail("asked"))
    refined = refiner.refine(Checklist.parse([ITEM | {"check": check}, "Is it kind?"]), on("A"))
    assert [item.check for item in refined.items] == [None, None]
    [note] = refiner.report.dropped
    assert note.reason.startswith(f"check_admission, item a1 ('Is there an A?'): {reason}")


def test_code_that_is_allowed_is_compared_too():
    program = json.dumps({"type": "program", "source": "def holds(text): return 'A' in text"})
    [item] = admission(allow_code=True).refine(Checklist.parse([ITEM | {"check": program}]), on("A", "b", "XAX")).items
    assert item.check == program


@pytest.mark.parametrize(
    ("samples", "settings", "message"),
    [
        ([], {}, "check_admission needs samples"),
        (["A"], {}, "check_admission: sample 1 must be a Sample"),
        ([], {"threshold": 2}, "threshold=2 is not allowed"),
    ],
)
def test_what_cannot_be_tried(samples, settings, message):
    with pytest.raises(SampleError, match=message):
        admission(**settings).refine(Checklist.parse([ITEM]), samples)
    with pytest.raises(ModelError, match="model not found: './gone'"):
        CheckAdmission(ChecklistScorer("./gone", store=False)).validate()
    with pytest.raises(SampleError, match="scorer='pocket' is not allowed; it must be a ChecklistScorer"):
        CheckAdmission("pocket")
    assert admission().refine(Checklist.parse(["Is it kind?"])).items[0].question == "Is it kind?"  # nothing to try


def test_in_a_pipeline_the_candidates_are_the_texts():
    reply = {"questions": [{"question": "Is there an A?", "check": {"type": "keywords", "words": ["A"]}}]}
    backend = FakeBackend(by_letter, replies=[json.dumps(reply)])
    config = {"generator": {"shape": "checked", "min_items": 1}, "refiners": ["check_admission"], "store": False}
    pipe = pipeline("tick", model="m", backend=backend, scorer={"mode": "item", "prompt": None}, **config)
    [good] = pipe.generate_batch([Request("Write letters.", candidates=("A b", "c"))])
    [bad] = pipe.generate_batch([Request("Write letters.", candidates=("XAX", "c"))])
    assert (good.items[0].check, bad.items[0].check) == ('{"type": "keywords", "words": ["A"]}', None)
    with pytest.raises(SampleError, match="check_admission tests the questions on responses"):
        pipe.generate_batch([Request("Write letters.")])
