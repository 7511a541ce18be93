import json
import pickle

import pytest

from checklist_rewards import __version__
from checklist_rewards.backends import Reply
from checklist_rewards.errors import PromptError, SampleError
from checklist_rewards.generators import InteractiveGenerator, StageError, ThinkAloud
from tests.generators.fakes import Replies

SOURCE = ThinkAloud(
    dimension="coherence",
    definition="The sentences form one text.",
    human=["Each sentence follows from the one before.", "Pronouns must be clear."],
    model=["Events are told in order.", "Pronouns must be clear."],
)
COMPONENTS = {"components": [{"name": "Flow", "meaning": "Order."}, {"name": "Reference", "meaning": "Who is who."}]}
ASSIGNED = {
    "assignments": [{"component": "flow", "attributes": [0, 2]}, {"component": "Reference", "attributes": [1]}]
}
KEYS = {
    "questions": [
        {"component": "Reference", "question": "Is it clear who is meant?"},
        {"component": "Flow", "question": "Is the order natural?"},
    ]
}
SUBS = {
    "Flow": {"questions": [{"question": "Are events in order?"}, {"question": "Does each sentence follow?"}]},
    "Reference": {"questions": [{"question": "Has each pronoun a noun?"}, {"question": "Is each name introduced?"}]},
}
FINAL = {"questions": [{"question": "Is the order natural?"}, {"question": "Is it clear who is meant?"}]}
STAGES = ["components", "assign", "key_questions", "sub_questions", "validate"]


def stage_of(text):
    """Which stage a prompt belongs to, by what only its prompt says."""
    marks = {
        "Give at most": "components",
        "Every remark belongs": "assign",
        "one key question for each": "key_questions",
        "two or three questions": "sub_questions",
        "final checklist": "validate",
    }
    return next((stage for mark, stage in marks.items() if mark in text), None)


def script(**changes):
    """A rule that replies what each stage wants, or a change of it (the same to every complaint)."""
    stage = None

    def rule(text, sampling):
        nonlocal stage
        stage = stage_of(text) or stage
        if stage in changes:
            reply = changes[stage]
            return reply if isinstance(reply, str | Reply) else json.dumps(reply)
        if stage == "sub_questions":
            return json.dumps(SUBS["Flow" if "\nFlow: Order." in text else "Reference"])
        return json.dumps(
            {"components": COMPONENTS, "assign": ASSIGNED, "key_questions": KEYS, "validate": FINAL}[stage]
        )

    return rule


def writes(rule=None, breaks_at=(), **settings):
    backend = Replies(rule or script(), breaks_at)
    return InteractiveGenerator("fake", backend=backend, **{"store": False} | settings), backend


def test_five_stages_make_one_checklist():
    generator, backend = writes()
    watched = []
    checklist = generator.generate(SOURCE, progress=watched.append)
    assert [(i.question, i.category) for i in checklist.items] == [
        ("Is the order natural?", "coherence"),
        ("Is it clear who is meant?", "coherence"),
    ]
    assert (checklist.source, checklist.model) == (f"interacteval/{__version__}", "fake")
    assert [(s.name, s.asked, s.kept) for s in generator.stages] == [
        ("components", 1, 2),
        ("assign", 1, 2),
        ("key_questions", 1, 2),
        ("sub_questions", 2, 4),
        ("validate", 1, 2),
    ]
    assert watched == generator.stages
    assert len(backend.sampled) == 5  # one engine call per stage


def test_key_questions_are_passed_on_to_the_sub_questions_and_to_the_validation():
    generator, backend = writes()
    generator.generate(SOURCE)
    sub, validated = backend.sampled[3][0], backend.sampled[4][0][0]
    assert "Is the order natural?" in sub[0] and "Is it clear who is meant?" in sub[1]
    assert "Is the order natural?\n- Are events in order?\n- Does each sentence follow?" in validated


def test_attributes_of_people_and_models_are_numbered_and_shown_once():
    generator, backend = writes()
    generator.generate(SOURCE.model_dump())
    text = backend.sampled[0][0][0]
    assert "0: Each sentence follows" in text and "1: Pronouns" in text and "2: Events" in text and "3:" not in text


def test_each_theme_is_asked_about_with_its_own_attributes():
    generator, backend = writes()
    generator.generate(SOURCE)
    flow, reference = backend.sampled[3][0]
    assert "Events are told" in flow and "Pronouns" not in flow
    assert "Pronouns" in reference and "Events are told" not in reference


def without(assignments, **changed):
    return {"assignments": [dict(entry, **changed) if i == 0 else entry for i, entry in enumerate(assignments)]}


@pytest.mark.parametrize(
    ("stage", "reply", "reason"),
    [
        ("components", "no idea", "there is no JSON object"),
        ("components", {"components": []}, "0 components; 1 to 5"),
        ("components", {"components": [{"name": f"n{i}", "meaning": ""} for i in range(6)]}, "6 components; 1 to 5"),
        ("components", {"components": [{"name": "A", "meaning": ""}, {"name": "a ", "meaning": ""}]}, "of its own"),
        ("assign", "{}", "assignments: Field required"),
        ("assign", without(ASSIGNED["assignments"], attributes=[0]), r"the attributes \[2\] are assigned to no"),
        ("assign", without(ASSIGNED["assignments"], attributes=[0, 2, 7]), r"there are no attributes \[7\]"),
        ("assign", without(ASSIGNED["assignments"], component="Style"), "wanted once, by its name: 'Flow', 'Refer"),
        ("key_questions", {"questions": KEYS["questions"][:1]}, "each component is wanted once"),
        ("key_questions", {"questions": [KEYS["questions"][0]] * 2}, "each component is wanted once"),
        (
            "key_questions",
            {"questions": [{"component": "Flow", "question": "Order."}]},
            "'Order.' is not a yes/no question",
        ),
        ("sub_questions", {"questions": [{"question": "One?"}]}, "1 questions; 2 to 3"),
        ("sub_questions", Reply(None, unanswered="too_long"), "too_long"),
        ("validate", {"questions": [{"question": "One?"}]}, "1 questions; 2 to 15"),
        ("validate", {"questions": [{"question": f"Is it {i}?"} for i in range(16)]}, "16 questions; 2 to 15"),
        ("validate", '{"questions": [{"question": "cut o', "there is no JSON object"),
    ],
)
def test_a_stage_that_breaks_is_named_and_the_stages_before_it_are_reported(stage, reply, reason):
    generator, backend = writes(script(**{stage: reply}))
    with pytest.raises(StageError, match=reason) as broke:
        generator.generate(SOURCE)
    assert broke.value.stage == stage and f"the stage '{stage}' failed" in str(broke.value)
    assert [done.name for done in generator.stages] == STAGES[: STAGES.index(stage)]
    assert broke.value.raw == (
        "" if isinstance(reply, Reply) else reply if isinstance(reply, str) else json.dumps(reply)
    )


def test_a_complaint_is_shown_and_the_mended_reply_used():
    bad = json.dumps(without(ASSIGNED["assignments"], attributes=[0]))

    def rule(text, sampling):
        if "Every remark belongs" in text:
            return bad
        return json.dumps(ASSIGNED) if "[2] are assigned to no component" in text else script()(text, sampling)

    generator, backend = writes(rule)
    assert len(generator.generate(SOURCE)) == 2
    assert len(backend.sampled) == 6


def test_a_theme_to_which_nothing_belongs_is_left_out():
    assigned = {
        "assignments": [{"component": "Flow", "attributes": [0, 1, 2]}, {"component": "Reference", "attributes": []}]
    }
    keys = {"questions": [{"component": "Flow", "question": "Is the order natural?"}]}
    generator, backend = writes(script(assign=assigned, key_questions=keys))
    generator.generate(SOURCE)
    assert generator.stages[1].kept == 1 and len(backend.sampled[3][0]) == 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"dimension": "x", "definition": "y"}, "at least one attribute is required"),
        ({"dimension": " ", "definition": "y", "human": ["a"]}, "dimension: the text is blank"),
        ({"dimension": "x", "definition": "y", "humans": ["a"]}, "humans"),
        ({"dimension": "x", "definition": "y", "human": "a"}, "human: .*list, got 'a'"),
        ("coherence", "expected a ThinkAloud or a mapping, got str 'coherence'"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_before_anything_is_asked(source, reason):
    generator, backend = writes()
    with pytest.raises(SampleError, match=reason):
        generator.generate(source)
    assert backend.sampled == []


def test_a_prompt_of_ones_own_for_one_stage(tmp_path):
    mine = tmp_path / "mine.md"
    mine.write_text("# User\n\nGive at most {count} themes of {dimension} ({definition}): {attributes}")
    generator, backend = writes(prompts={"components": mine})
    generator.generate(SOURCE)
    assert backend.sampled[0][0][0].startswith("Give at most 5 themes of <dimension-")
    mine.write_text("# User\n\nGive at most {count} themes: {attribute}")
    with pytest.raises(PromptError, match="unknown placeholder {attribute}; allowed: {dimension}, {defi"):
        writes(prompts={"components": mine})
    mine.write_text("# User\n\nGive at most {count} themes of {dimension}, {definition}.")
    with pytest.raises(PromptError, match="the placeholder {attributes} is missing"):
        writes(prompts={"components": mine})
    with pytest.raises(SampleError, match="the stage 'themes' is not known; allowed: components, assign"):
        writes(prompts={"themes": mine})


def test_a_stage_error_survives_pickling():
    error = pickle.loads(pickle.dumps(StageError("broke", "raw", "seed", ("fluency",))))
    assert (str(error), error.raw, error.stage, error.parts) == ("broke", "raw", "seed", ("fluency",))


def test_the_example_can_be_read_back():
    assert ThinkAloud.of(json.loads(ThinkAloud.example().model_dump_json())) == ThinkAloud.example()
    assert "human" in ThinkAloud.model_json_schema()["properties"]
