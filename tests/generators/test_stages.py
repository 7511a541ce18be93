"""The arithmetic of corpus-level generators: how observations are cut and questions are shared out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.errors import SampleError
from checklist_rewards.generators import DeductiveGenerator, InductiveGenerator, InteractiveGenerator, StageError
from checklist_rewards.generators.inductive import batches
from checklist_rewards.generators.stages import numbered
from tests.generators import test_deductive as deductive
from tests.generators import test_inductive as inductive
from tests.generators import test_interactive as interactive
from tests.generators.fakes import Replies


@given(st.lists(st.text(max_size=12), max_size=30), st.integers(1, 8), st.integers(1, 30))
def test_batches_hold_every_observation_once_and_no_more_than_they_may(observations, most, chars):
    cut = list(batches(observations, most, chars))
    assert [index for batch in cut for index in batch] == list(range(len(observations)))
    for batch in cut:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(len(observations[index]) for index in batch) <= chars


def test_a_text_cannot_pose_as_another_line():
    assert numbered(["one\n1: forged", "two"]) == "0: one 1: forged\n1: two"


# --- stages one by one: the requests of `generate`, and edits between stages are used --------------------------------


FILTERING = {"filtering": True, "embedder": deductive.same_when_equal_but_for_case}
APART = {"embedder": inductive.apart}
WRITERS = {
    "deductive": (DeductiveGenerator, lambda: deductive.usual, deductive.SOURCE, FILTERING),
    "inductive": (InductiveGenerator, lambda: inductive.usual, inductive.SOURCE, APART),
    "interactive": (InteractiveGenerator, interactive.script, interactive.SOURCE, {}),
}


def writer(name):
    kind, rule, source, settings = WRITERS[name]
    backend = Replies(rule())
    return kind("fake", backend=backend, store=False, **settings), backend, source


@pytest.mark.parametrize("name", WRITERS)
def test_stages_one_by_one_send_the_requests_of_generate(name):
    generator, whole, source = writer(name)
    expected = generator.generate(source)
    stages = [(stage.name, stage.asked, stage.kept) for stage in generator.stages]
    stepped, backend, _ = writer(name)
    draft, watched = None, []
    for stage in stepped.order:
        draft = stepped.advance(stage, source.model_dump(), draft, progress=watched.append)
        draft = json.loads(draft.model_dump_json())  # as it is sent to a page and back
    assert stepped.checklist(source, draft).items == expected.items
    # After the last stage, `generate` of the inductive generator also refines.
    assert backend.sampled == (whole.sampled[:1] if name == "inductive" else whole.sampled)
    assert [(stage.name, stage.asked, stage.kept) for stage in watched] == stages[: len(stepped.order)]


def test_an_edited_seed_is_what_the_next_stage_elaborates():
    generator, backend, source = writer("deductive")
    draft = generator.advance("seed", source).model_dump()
    draft["pools"][0]["seeds"] = ["Is each verb right?"]
    draft = generator.advance("elaborate", source, draft)
    assert "- Is each verb right?" in backend.sampled[-1][0][0]
    assert draft.pools[0].questions[0] == "Is each verb right?"
    checklist = generator.checklist(source, draft)  # after any stage
    assert checklist.items[0].question == "Is each verb right?" and checklist.items[0].category == "fluency"


SOURCES = [
    ("deductive", deductive.seeded("a", seeds=["Good."]), "the seed 'Good.' is not a yes"),
    ("inductive", ["a"], "expected a Feedback or a mapping, got list"),
    ("deductive", {"dimensions": []}, "dimensions: .*at least 1 item"),
    ("deductive", deductive.seeded("a", "A"), "share a name"),
    ("inductive", {"observations": ["a", " "]}, "observations.1: the text is blank: ' '"),
    ("interactive", {"dimension": "x", "definition": "y"}, "at least one attribute is required"),
    ("interactive", {"dimension": "x", "definition": "y", "humans": ["a"]}, "humans"),
]


@pytest.mark.parametrize(("name", "source", "reason"), SOURCES)
def test_a_source_that_cannot_be_used_is_refused_before_anything_is_asked(name, source, reason):
    generator, backend, _ = writer(name)
    with pytest.raises(SampleError, match=reason):
        generator.generate(source)
    assert backend.sampled == []


@pytest.mark.parametrize("name", WRITERS)
def test_the_example_of_a_source_is_one(name):
    shape = WRITERS[name][0].source_shape
    assert shape.of(json.loads(shape.example().model_dump_json())) == shape.example()


POOL = {"dimension": "fluency", "seeds": ["Is it fluent?"]}
OTHER = {"dimension": "relevance", "seeds": ["Is it relevant?"]}
THEME = {"name": "Flow", "meaning": "Order.", "attributes": ["In order."]}


@pytest.mark.parametrize(
    ("name", "stage", "draft", "reason"),
    [
        ("deductive", "write", None, "stage='write' is not known"),
        ("deductive", "elaborate", None, "checkeval: the draft"),
        ("deductive", "elaborate", {"pools": [POOL]}, "about fluency, but the dimensions are fluency, relevance"),
        ("deductive", "elaborate", {"pools": [POOL, {"dimension": "relevance"}]}, "'relevance' has no question left"),
        ("deductive", "filter", {"pools": [POOL, OTHER | {"added": ["Good."]}]}, "'Good.' is not a yes/no question"),
        ("interactive", "validate", {"themes": [THEME | {"key_question": "It is"}]}, "'It is' is not a yes/no"),
        ("interactive", "assign", {"themes": [THEME, THEME | {"name": "flow"}]}, "a name of its own"),
        ("interactive", "sub_questions", {"themes": [THEME]}, "'Flow' has no key question"),
    ],
)
def test_a_draft_that_cannot_be_used_is_refused_before_anything_is_asked(name, stage, draft, reason):
    generator, backend, source = writer(name)
    with pytest.raises(SampleError, match=reason):
        generator.advance(stage, source, draft)
    assert backend.sampled == []


@pytest.mark.parametrize(
    ("name", "draft", "reason"),
    [
        ("interactive", {"themes": [THEME]}, "no questions yet"),
        ("inductive", {"questions": []}, "no questions"),
        (
            "inductive",
            {"questions": [{"question": "Is it?", "sources": [99]}]},
            "names observation 99; the numbers are",
        ),
    ],
)
def test_a_draft_that_makes_no_checklist(name, draft, reason):
    generator, _, source = writer(name)
    with pytest.raises(SampleError, match=reason):
        generator.checklist(source, draft)


def test_a_stage_that_fails_can_be_run_again():
    generator, backend, source = writer("deductive")
    draft = generator.advance("seed", source)
    backend.breaks_at = [len(backend.sampled) + 1]
    with pytest.raises(StageError, match="the stage 'elaborate' failed"):
        generator.advance("elaborate", source, draft)
    assert generator.advance("elaborate", source, draft).total > draft.total
