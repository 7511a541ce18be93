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
FLOW = {"component": "flow", "attributes": [0, 2]}
REFERENCE = {"component": "Reference", "attributes": [1]}
KEYS = [
    {"component": "Reference", "question": "Is it clear who is meant?"},
    {"component": "Flow", "question": "Is the order natural?"},
]


def questions(*texts):
    return {"questions": [{"question": text} for text in texts]}


SUBS = {
    "Flow": questions("Are events in order?", "Does each sentence follow?"),
    "Reference": questions("Has each pronoun a noun?", "Is each name introduced?"),
}
FINAL = questions("Is the order natural?", "Is it clear who is meant?")
USUAL = {
    "components": COMPONENTS,
    "assign": {"assignments": [FLOW, REFERENCE]},
    "key_questions": {"questions": KEYS},
    "sub_questions": SUBS,
    "validate": FINAL,
}


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
        reply = USUAL[stage]
        return json.dumps(SUBS["Flow" if "\nFlow: Order." in text else "Reference"] if reply is SUBS else reply)

    return rule


def writes(rule=None, breaks_at=(), **settings):
    backend = Replies(rule or script(), breaks_at)
    return InteractiveGenerator("fake", backend=backend, **{"store": False} | settings), backend


def test_five_stages_make_one_checklist():
    generator, backend = writes()
    watched = []
    checklist = generator.generate(SOURCE.model_dump(), progress=watched.append)
    assert [item.question for item in checklist.items] == ["Is the order natural?", "Is it clear who is meant?"]
    assert {item.category for item in checklist.items} == {"coherence"}
    assert (checklist.source, checklist.model) == (f"interacteval/{__version__}", "fake")
    assert [(s.name, s.asked, s.kept) for s in generator.stages] == [
        (stage, 2 if stage == "sub_questions" else 1, 4 if stage == "sub_questions" else 2) for stage in USUAL
    ]
    assert watched == generator.stages
    [given], _, _, (flow, reference), [validated] = (texts for texts, _ in backend.sampled)  # a call per stage
    # Attributes of people and models are numbered and shown once, and each theme is asked about with its own.
    assert "0: Each sentence follows" in given and "1: Pronouns" in given and "2: Events" in given
    assert "3:" not in given
    assert "Events are told" in flow and "Pronouns" not in flow
    assert "Pronouns" in reference and "Events are told" not in reference
    # Key questions are passed on to the sub-questions and to the validation.
    assert "Is the order natural?" in flow and "Is it clear who is meant?" in reference
    assert "Is the order natural?\n- Are events in order?\n- Does each sentence follow?" in validated


def assigned(**changed):
    return {"assignments": [FLOW | changed, REFERENCE]}


def components(*names):
    return {"components": [{"name": name, "meaning": ""} for name in names]}


@pytest.mark.parametrize(
    ("stage", "reply", "reason"),
    [
        ("components", components(*"abcdef"), "6 components; 1 to 5"),
        ("components", components("A", "a "), "of its own"),
        ("assign", "{}", "assignments: Field required"),
        ("assign", assigned(attributes=[0, 2, 7]), r"there are no attributes \[7\]"),
        ("assign", assigned(component="Style"), "wanted once, by its name: 'Flow', 'Refer"),
        ("key_questions", {"questions": KEYS[:1]}, "each component is wanted once"),
        ("key_questions", {"questions": [KEYS[1] | {"question": "Order."}]}, "'Order.' is not a yes/no question"),
        ("key_questions", {"questions": [KEYS[1] | {"question": "What follows?"}]}, "be answered with yes or no"),
        ("sub_questions", Reply(None, unanswered="too_long"), "too_long"),
        ("validate", questions(*(f"Is it {i}?" for i in range(16))), "16 questions; 2 to 15"),
    ],
)
def test_a_stage_that_breaks_is_named_and_the_stages_before_it_are_reported(stage, reply, reason):
    generator, backend = writes(script(**{stage: reply}))
    with pytest.raises(StageError, match=reason) as broke:
        generator.generate(SOURCE)
    assert broke.value.stage == stage and f"the stage '{stage}' failed" in str(broke.value)
    stages = list(USUAL)
    assert [done.name for done in generator.stages] == stages[: stages.index(stage)]
    raw = "" if isinstance(reply, Reply) else reply
    assert broke.value.raw == (raw if isinstance(raw, str) else json.dumps(raw))


def test_a_complaint_is_shown_and_the_mended_reply_used():
    def rule(text, sampling):
        if "Every remark belongs" in text:
            return json.dumps(assigned(attributes=[0]))
        return json.dumps(assigned()) if "[2] are assigned to no component" in text else script()(text, sampling)

    generator, backend = writes(rule)
    assert len(generator.generate(SOURCE)) == 2
    assert len(backend.sampled) == 6


def test_a_theme_to_which_nothing_belongs_is_left_out():
    all_to_flow = {"assignments": [FLOW | {"attributes": [0, 1, 2]}, REFERENCE | {"attributes": []}]}
    generator, backend = writes(script(assign=all_to_flow, key_questions={"questions": KEYS[1:]}))
    generator.generate(SOURCE)
    assert generator.stages[1].kept == 1 and len(backend.sampled[3][0]) == 1


def test_a_prompt_of_ones_own_for_one_stage(tmp_path):
    mine = tmp_path / "mine.md"
    mine.write_text("# User\n\nGive at most {count} themes of {dimension} ({definition}): {attributes}")
    generator, backend = writes(prompts={"components": mine})
    generator.generate(SOURCE)
    assert backend.sampled[0][0][0].startswith("Give at most 5 themes of <dimension-")
    mine.write_text("# User\n\nGive at most {count} themes of {dimension}, {definition}.")
    with pytest.raises(PromptError, match="the placeholder {attributes} is missing"):
        writes(prompts={"components": mine})
    with pytest.raises(SampleError, match="the stage 'themes' is not known; allowed: components, assign"):
        writes(prompts={"themes": mine})


def test_a_stage_error_survives_pickling():
    error = pickle.loads(pickle.dumps(StageError("broke", "raw", "seed", ("fluency",))))
    assert (str(error), error.raw, error.stage, error.parts) == ("broke", "raw", "seed", ("fluency",))
