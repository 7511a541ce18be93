"""Admission of code checks, by the pocket judge in the pocket world."""

import json
import random

import pytest
from pocket.world import FAMILIES, Constraint, sample_task, tasks, words_of, write_response

from checklist_rewards import Checklist, Sample, __version__
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.checks import parse_check
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.generators import Request
from checklist_rewards.pipelines import pipeline
from checklist_rewards.refiners import CheckAdmission
from tests.fakes import FakeBackend

DIGITS = "0123456789"


def spec_of(constraint: Constraint) -> dict:
    """The check of a constraint of the pocket world."""
    word = str(constraint.value)
    return {
        "mention": {"type": "keywords", "words": [word]},
        "avoid": {"type": "forbidden", "words": [word]},
        "first": {"type": "regex", "pattern": rf"(?i)\A[^a-z0-9]*{word}\b", "at_least": 1},
        "sentences": {"type": "sentences", "exactly": constraint.value},
        "question": {"type": "ends", "phrase": "?"},
        "exclaim": {"type": "ends", "phrase": "!"},
        "lowercase": {"type": "casing", "casing": "lower"},
        "digits": {"type": "letters", "letters": DIGITS, "at_least": 1},
        "no_digits": {"type": "letters", "letters": DIGITS, "exactly": 0},
        "bullets": {"type": "bullets", "at_least": 1},
    }[constraint.family]


def texts(constraint: Constraint, count: int = 12, seed: int = 0) -> list[str]:
    """Texts about half of which meet the constraint."""
    rng = random.Random(f"{constraint}-{seed}")
    task = sample_task(rng, split="test")
    task = type(task)(task.instruction, (constraint,))
    return [write_response(rng, task, violate=0.5, split="test") for _ in range(count)]


def every_family() -> list[Constraint]:
    word = words_of("test")[3]
    return [
        Constraint(name, 2 if family.values else word if name in ("mention", "avoid", "first") else None)
        for name, family in FAMILIES.items()
    ]


@pytest.mark.parametrize("constraint", every_family(), ids=lambda constraint: constraint.family)
def test_checks_say_what_the_worlds_own_code_says(constraint):
    check = parse_check(json.dumps(spec_of(constraint)), "here")
    found = [check.holds(text) for text in texts(constraint, 200)]
    assert found == [constraint.holds(text) for text in texts(constraint, 200)]
    assert {True, False} == set(found)


def test_right_checks_are_admitted_and_wrong_ones_demoted(scorer):
    """Every family once with its check, and once with the check of something else."""
    wrong = {
        "mention": {"type": "words", "at_least": 8},
        "sentences": {"type": "sentences", "exactly": 3},
        "question": {"type": "regex", "pattern": r"\?", "exactly": 0},
        "digits": {"type": "letters", "letters": DIGITS, "exactly": 0},
    }
    families = every_family()
    right_items = [ChecklistItem(question=c.question(), check=json.dumps(spec_of(c))) for c in families]
    pairs = [(c.question(), wrong[c.family]) for c in families if c.family in wrong]
    wrong_items = [ChecklistItem(question=question, weight=2, check=json.dumps(spec)) for question, spec in pairs]
    samples = [Sample(None, text) for c in families for text in texts(c, 3)]
    refiner = CheckAdmission("pocket", scorer=scorer)
    refined = refiner.refine(Checklist(items=(*right_items, *wrong_items)), samples)
    assert [item.question for item in refined.items] == [item.question for item in (*right_items, *wrong_items)]
    admitted, demoted = refined.items[: len(right_items)], refined.items[len(right_items) :]
    assert admitted == tuple(right_items)
    assert [item.check for item in demoted] == [None] * len(wrong)
    assert all(item.weight == 2 and item.id not in {w.id for w in wrong_items} for item in demoted)
    assert [note.item for note in refiner.report.dropped] == wrong_items and not refiner.report.unclear
    assert all("of 30 texts (required: 90%)" in note.reason for note in refiner.report.dropped)
    assert refined.source == f"check_admission/{__version__}" and refined.model == "pocket"


ITEM = {"id": "a1", "question": "Is there an A?", "check": '{"type": "keywords", "words": ["A"]}'}


def by_letter(prefix, tail):
    target = prefix.split("<target-")[1].split("\n")[1]
    return None if "?" in target else 0.9 if "A" in target else 0.1


def admission(rule=by_letter, **options):
    return CheckAdmission("fake", backend=FakeBackend(rule), store=False, **options)


def on(*targets):
    return [Sample(None, target) for target in targets]


@pytest.mark.parametrize(("threshold", "admitted"), [(0.7, True), (0.75, True), (0.8, False)])
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
        CheckAdmission("./gone", store=False).validate()
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


def test_gold_checks_of_real_tasks_are_worth_the_judge(scorer):
    """Over tasks with held-out words: where the check and the judge differ, the check is right."""
    differ = right = total = 0
    rng = random.Random(0)
    for task in tasks(12, seed=5, split="test"):
        items = [ChecklistItem(question=c.question(), check=json.dumps(spec_of(c))) for c in task.constraints]
        text = write_response(rng, task, violate=0.5, split="test")
        judged = scorer.score([item.question for item in items], text, task.instruction).items
        checked = scorer.score(Checklist(items=tuple(items)), text, task.instruction).items
        for constraint, line, code in zip(task.constraints, judged, checked, strict=True):
            total += 1
            differ += line.answer != code.answer
            right += (code.answer == "yes") is constraint.holds(text)
    assert right == total > 30 and differ <= 0.1 * total
