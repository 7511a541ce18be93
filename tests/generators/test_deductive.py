import json

import pytest

from checklist_rewards import __version__
from checklist_rewards.backends import Reply
from checklist_rewards.errors import SampleError
from checklist_rewards.generators import DeductiveGenerator, Dimension, Dimensions, StageError
from checklist_rewards.generators.deductive import COUNTS
from tests.generators.fakes import Replies

SOURCE = Dimensions(
    dimensions=[
        Dimension(name="fluency", definition="It reads well.", sub_dimensions=["grammar", "rhythm"]),
        Dimension(name="relevance", definition="It says what matters.", seed_questions=["Is the main point there?"]),
    ],
    task="Summarize an article.",
)
STAGES = {
    "that together tell": "seed",
    "that go into detail": "elaborate",
    "other sides of the same": "diversify",
    "Decide two things": "filter",
}


def stage_of(text):
    return next((stage for mark, stage in STAGES.items() if mark in text), None)


def questions(*texts):
    return json.dumps({"questions": [{"question": text} for text in texts]})


def verdict(better=True, belongs=True):
    return json.dumps({"reasoning": "because", "yes_is_better": better, "belongs": belongs})


def usual(text, sampling):
    dimension = "fluency" if "\nfluency\n" in text else "relevance"
    if stage_of(text) == "filter":
        return verdict(better="Bad" not in text, belongs="Alien" not in text)
    return questions(*(f"Is {dimension} right in {stage_of(text)} {i}?" for i in (1, 2)))


def same_when_equal_but_for_case(texts):
    """An embedding that knows two texts as alike only if one is the other in another case."""
    known = sorted({text.casefold() for text in texts})
    return [[float(text.casefold() == other) for other in known] for text in texts]


def writes(rule=usual, breaks_at=(), **settings):
    backend = Replies(rule, breaks_at)
    settings = {"store": False, "embedder": same_when_equal_but_for_case} | settings
    return DeductiveGenerator("fake", backend=backend, **settings), backend


def asked(checklist, category):
    return [item.question for item in checklist.items if item.category == category]


def seeded(*names, seeds=()):
    return {"dimensions": [{"name": name, "definition": "x", "seed_questions": list(seeds)} for name in names]}


def done(generator):
    return [(stage.name, stage.asked, stage.kept) for stage in generator.stages]


def test_seeds_are_elaborated_and_diversified_and_the_dimension_is_the_category():
    generator, backend = writes()
    checklist = generator.generate(SOURCE)
    assert asked(checklist, "fluency") == [f"Is fluency right in {s} {i}?" for s in COUNTS for i in (1, 2)]
    written = [f"Is relevance right in {stage} {i}?" for stage in ("elaborate", "diversify") for i in (1, 2)]
    assert asked(checklist, "relevance") == ["Is the main point there?", *written]
    assert (checklist.source, checklist.model) == (f"checkeval/{__version__}", "fake")
    assert done(generator) == [("seed", 1, 3), ("elaborate", 2, 7), ("diversify", 2, 11)]
    assert len(backend.sampled) == 3  # all dimensions of a stage in one call


def test_a_prompt_says_what_the_source_says():
    generator, backend = writes()
    generator.generate(SOURCE)
    [seed], (detail, _), (other, _) = (texts for texts, _ in backend.sampled)
    for text in ("Summarize an article.", "fluency", "It reads well.", "- grammar\n- rhythm", "Write 4 questions"):
        assert text in seed
    assert "about 10 new" in detail and "about 8 new" in other
    # Both work from the seeds, not from each other.
    assert "Is fluency right in seed 1?" in other and "elaborate" not in other.split("## Task")[0]


@pytest.mark.parametrize(
    ("augmentation", "stages"),
    [("elaboration", ["seed", "elaborate"]), ("diversification", ["seed", "diversify"]), ("none", ["seed"])],
)
def test_augmentation_is_what_was_asked_for(augmentation, stages):
    generator, backend = writes(augmentation=augmentation)
    generator.generate(SOURCE)
    assert [stage.name for stage in generator.stages] == stages and len(backend.sampled) == len(stages)


def test_given_seeds_cost_nothing_and_no_question_is_there_twice():
    generator, backend = writes(augmentation="none")
    assert asked(generator.generate(seeded("a", seeds=["One?", "Two?", "one?"])), "a") == ["One?", "Two?"]
    assert backend.sampled == []
    generator, _ = writes(lambda text, s: questions("is it GOOD?", "Is it new?"), augmentation="elaboration")
    assert asked(generator.generate(seeded("a", seeds=["Is it good?"])), "a") == ["Is it good?", "Is it new?"]


def test_the_filter_keeps_what_is_aligned_and_belongs_and_then_deduplicates():
    def rule(text, sampling):
        if stage_of(text) == "filter":
            assert sampling.temperature == 0
            return usual(text, sampling)
        return questions("Is it good?", "Is it Bad?", "Is it Alien?", "Is it clear?")

    generator, backend = writes(rule, filtering=True, augmentation="none")
    checklist = generator.generate(SOURCE)
    assert asked(checklist, "fluency") == ["Is it good?", "Is it clear?"]
    assert asked(checklist, "relevance") == ["Is the main point there?"]
    assert done(generator) == [("seed", 1, 5), ("filter", 5, 3), ("deduplicate", 3, 3)]
    assert len(backend.sampled) == 2  # the questions of all dimensions are filtered in one call


def test_a_dimension_of_which_the_filter_leaves_nothing_is_named():
    def rule(text, sampling):
        return usual(text, sampling) if stage_of(text) == "filter" else questions("Is it Bad?")

    generator, _ = writes(rule, filtering=True, augmentation="none")
    message = r"the stage 'filter' failed for 1 of 2 \(fluency\). fluency: None of"
    with pytest.raises(StageError, match=message) as broke:
        generator.generate(SOURCE)
    assert (broke.value.stage, broke.value.parts) == ("filter", ("fluency",))
    assert [stage.name for stage in generator.stages] == ["seed"]


def test_max_items_are_spread_evenly_over_the_dimensions():
    checklist = writes(max_items=5)[0].generate(SOURCE)
    assert (len(asked(checklist, "fluency")), len(asked(checklist, "relevance"))) == (3, 2)
    few = {"dimensions": [SOURCE.dimensions[0], {"name": "b", "definition": "c", "seed_questions": ["Only one?"]}]}
    checklist = writes(max_items=5, augmentation="none")[0].generate(few)
    assert (len(asked(checklist, "fluency")), len(asked(checklist, "b"))) == (2, 1)
    with pytest.raises(SampleError, match="max_items=1 is not allowed for 2 dimensions; each needs an item"):
        writes(max_items=1)[0].generate(SOURCE)


@pytest.mark.parametrize(
    ("stage", "reply", "reason"),
    [
        ("seed", "Sorry, no.", "there is no JSON object"),
        ("elaborate", questions("It is good."), "'It is good.' is not a yes/no question"),
        ("diversify", Reply(None, unanswered="too_long"), "too_long"),
        ("filter", '{"reasoning": "x", "yes_is_better": "maybe", "belongs": true}', "yes_is_better"),
    ],
)
def test_a_stage_that_breaks_for_one_dimension_names_both(stage, reply, reason):
    last = None

    def rule(text, sampling):
        nonlocal last
        last = (stage_of(text), "\nfluency\n" in text) if stage_of(text) else last
        return reply if last == (stage, True) else usual(text, sampling)

    source = Dimensions(dimensions=[SOURCE.dimensions[1], SOURCE.dimensions[0]])
    generator, backend = writes(rule, filtering=True)
    with pytest.raises(StageError, match=reason) as broke:
        generator.generate(source)
    assert broke.value.stage == stage and all("fluency" in part for part in broke.value.parts)
    assert broke.value.raw == ("" if isinstance(reply, Reply) else reply)
    stages = ["seed", "elaborate", "diversify", "filter"]
    assert [done.name for done in generator.stages] == stages[: stages.index(stage)]


@pytest.mark.parametrize("number", [1, 3])
def test_after_a_broken_engine_a_rerun_pays_only_for_what_is_missing(tmp_path, number):
    settings = {"store": tmp_path / "store.sqlite", "filtering": True}
    broken, first = writes(breaks_at=[number], **settings)
    with pytest.raises(StageError, match="backend_error"):
        broken.generate(SOURCE)
    generator, second = writes(**settings)
    checklist = generator.generate(SOURCE)
    assert len(first.sampled) == number and len(second.sampled) == 4 - number + 1
    again, third = writes(**settings)
    assert again.generate(SOURCE) == checklist and third.sampled == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"augmentation": "more"}, "augmentation='more' is not known; allowed: 'both', 'elaboration'"),
        ({"max_items": 0}, "max_items=0"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(settings, reason):
    with pytest.raises(SampleError, match=reason):
        writes(**settings)
