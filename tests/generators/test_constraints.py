"""The constraints generator: alone, and before a writer with a model."""

import pytest
from PIL import Image

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError
from checklist_rewards.generators import ConstraintsGenerator, ContrastiveGenerator, DirectGenerator
from checklist_rewards.generators.constraints import constraint_items, find_requirements, with_constraints
from checklist_rewards.images import image_of, shown
from checklist_rewards.pipelines import PipelineConfig, pipeline
from tests.generators.fakes import Replies

INPUT = "Write a poem about snow in at most 40 words. Do not use commas."
POEM = "1. Is the poem about snow?\n2. Does the response do without commas?\n3. Does it rhyme?"


def test_items_are_code_checks_with_the_text_that_led_to_them():
    checklist = ConstraintsGenerator().generate(INPUT)
    assert [(item.question, item.evidence.text) for item in checklist.items] == [
        ("Does the response have at most 40 words?", "at most 40 words"),
        ("Does the response do without commas?", "Do not use commas"),
    ]
    for item in checklist.items:
        assert INPUT[item.evidence.start : item.evidence.end] == item.evidence.text
    assert checklist.model is None and checklist.source.startswith("constraints/")


def test_an_input_without_such_requirements_is_an_error_that_names_the_others():
    told = []
    plain, approximate = ConstraintsGenerator().generate_batch(["Who was Ada?", "Write about 50 words."], told.append)
    assert isinstance(plain, GenerationError) and "can be checked by code" in str(plain)
    assert "'about 50 words': the number is approximate" in str(approximate)
    assert told == [2]
    with pytest.raises(GenerationError):
        ConstraintsGenerator().generate("Who was Ada?")


RED = image_of(Image.new("RGB", (2, 2), "red"))


@pytest.mark.parametrize(
    "prompt",
    [RED.mark + INPUT, f"{RED.mark * 2}\n{INPUT}", f"{INPUT}\n{RED.mark}", INPUT.replace("poem", f"poem {RED.mark}")],
)
def test_rules_read_the_words_of_a_prompt_with_images(prompt):
    items = ConstraintsGenerator().generate(prompt).items
    plain = ConstraintsGenerator().generate(INPUT).items
    assert [(item.check, item.evidence.text) for item in items] == [(item.check, item.evidence.text) for item in plain]
    for item in items:  # places are those of the prompt as people see it
        assert shown(prompt)[item.evidence.start : item.evidence.end] == item.evidence.text
    assert len(find_requirements(prompt)) == len(items)


def test_a_writer_after_the_rules_sees_the_image():
    writer = Replies(lambda text, sampling: POEM)
    writer.sees = True
    generator = DirectGenerator("writer", backend=writer, store=False, constraints=True)
    checklist = generator.generate(RED.mark + INPUT, images=[RED])
    assert [item.check is None for item in checklist.items] == [False, False, True, True]
    assert RED.mark in writer.sampled[0][0][0]


def test_a_question_about_nothing_but_a_rule_is_left_out():
    items = constraint_items(INPUT)
    asked = ["Is the poem at most 40 words long?", "Does it avoid commas?", "Does it use at most 40 words about snow?"]
    joined = with_constraints(Checklist.parse(asked, "a reply"), items)
    assert [item.question for item in joined.items] == [*(item.question for item in items), asked[2]]


def test_items_of_rules_weigh_as_much_as_the_heaviest_of_the_writer():
    questions = [{"question": "Does it rhyme?", "weight": 40}, {"question": "Is it rude?", "weight": -90}]
    joined = with_constraints(Checklist.parse(questions, "a reply"), constraint_items(INPUT))
    assert [item.weight for item in joined.items] == [90, 90, 40, -90]


def test_evidence_changes_no_id_and_survives_every_form():
    [item, _] = ConstraintsGenerator().generate(INPUT).items
    bare = ChecklistItem(question=item.question, check=item.check)
    assert item.id == bare.id
    assert Checklist(items=(item,)).id == Checklist(items=(bare,)).id
    assert Checklist.parse([item.model_dump(mode="json")]).items[0] == item
    none = {"question": "Is it?", "evidence": {"start": None, "end": None, "text": None}}  # as some readers give null
    assert Checklist.parse([none]).items[0].evidence is None
    with pytest.raises(ChecklistError, match="the text has 3 characters, but end - start is 9"):
        Checklist.parse([{"question": "Is it?", "evidence": {"start": 0, "end": 9, "text": "abc"}}], "row 1")


@pytest.mark.parametrize("kind", [DirectGenerator, ContrastiveGenerator])
def test_a_model_writes_what_the_rules_do_not_cover(kind):
    writer = Replies(lambda text, sampling: POEM)
    options = {"shape": None, "candidate_models": ()} if kind is ContrastiveGenerator else {}
    generator = kind("writer", backend=writer, store=False, constraints=True, **options)
    given = {"candidates": ["Snow.", "Sun."]} if kind is ContrastiveGenerator else {}
    checklist = generator.generate(INPUT, **given)
    assert [item.question for item in checklist.items] == [
        "Does the response have at most 40 words?",
        "Does the response do without commas?",
        "Is the poem about snow?",
        "Does it rhyme?",
    ]
    [([prompt], _)] = writer.sampled
    assert prompt.endswith("asks for:\n\n- at most 40 words\n- Do not use commas")


def test_without_requirements_the_model_is_asked_as_ever():
    plain, ruled = Replies(lambda text, sampling: POEM), Replies(lambda text, sampling: POEM)
    before = DirectGenerator("writer", backend=plain, store=False).generate("Who was Ada?")
    after = DirectGenerator("writer", backend=ruled, store=False, constraints=True).generate("Who was Ada?")
    assert before == after and plain.sampled == ruled.sampled


def test_a_model_that_fails_fails_the_checklist():
    generator = DirectGenerator(
        "writer", backend=Replies(lambda text, sampling: "no list"), store=False, constraints=True, max_attempts=1
    )
    with pytest.raises(GenerationError):
        generator.generate(INPUT)


def test_a_config_selects_it():
    rules = pipeline(PipelineConfig.parse({"name": "rules", "generator": {"kind": "constraints"}}), store=False)
    assert isinstance(rules.generator, ConstraintsGenerator) and rules.finds_constraints
    tick = pipeline("tick", generator={"constraints": True}, store=False)
    assert tick.finds_constraints
