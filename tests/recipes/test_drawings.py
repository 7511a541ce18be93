"""The drawn world: questions and gold by code, the prompts that its judge learns from."""

import random

import pytest
import torch
from drawings import run, train, world
from drawings.train import Batch, build, from_pixels, from_words, ids, logits, processor
from drawings.world import ASKED, KINDS, NAMED

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.backends.transformers import TransformersBackend
from checklist_rewards.images import image_of
from checklist_rewards.prompts import load_prompt
from checklist_rewards.rows import Sample

RED, BLUE = ("red", "circle"), ("blue", "square")
QUESTIONS = [NAMED, "Is there a red circle?", "Are there exactly 2 circles?", "Is there a cross?"]
DRAWING = (RED, None, None, None, None, BLUE, None, RED, None)


def test_gold_is_the_fraction_of_named_shapes_that_are_drawn():
    assert world.gold(DRAWING, "a blue square") == 1
    assert world.gold(DRAWING, "a red circle and a red square") == 0.5
    assert world.gold(DRAWING, "a blue circle") == 0
    assert world.gold(DRAWING, "circle red a and") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_questions_have_both_answers(kind):
    rng, asked = random.Random(0), []
    for number in range(400):
        drawing = world.draw(rng)
        text = world.describe(world.some(drawing, rng, rng.random() < 0.5))
        asked.append((drawing, KINDS[kind](drawing, text, rng, number % 2 == 0)))
    known = [(drawing, *one) for drawing, one in asked if one]
    assert {answer for _, _, answer in known} == {True, False} and len(known) > 150
    if kind == "red circle":
        for drawing, question, answer in known:
            assert (tuple(question.removesuffix("?").split()[-2:]) in drawing) == answer


def test_held_out_drawings_are_not_trained_on():
    rng = random.Random(0)
    trained, tested = ([world.draw(rng, test) for _ in range(200)] for test in (False, True))
    assert not any(map(world.held_out, trained)) and all(map(world.held_out, tested))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("drawings")
    model, reader = build(), processor()
    model.save_pretrained(folder)
    reader.save_pretrained(folder)
    return folder, model, reader


def read_by_engine(folder, image, questions, text):
    prompt = load_prompt(run.PROMPT, "judge")
    sample = Sample(questions, text, ASKED, images=[image])
    group = ReadGroup(None, prompt.prefix(input=sample.input, target=text), tuple(map(prompt.tail, questions)))
    engine = TransformersBackend(str(folder))
    return engine.read([group], ["yes", "no"])


def test_the_judge_is_trained_on_the_prompt_that_it_reads(saved):
    """Questions that share their prefix in training have the log-probabilities that the engine reads."""
    folder, model, reader = saved
    text, asked = "a red circle", [(question, True) for question in QUESTIONS]
    batch = Batch([train.judged(DRAWING, text, asked)])
    with torch.inference_mode():
        seen = from_pixels(model.eval(), reader, [DRAWING], random.Random(1))
        found = logits(model, batch, seen).log_softmax(-1)
    answers, usage = read_by_engine(folder, image_of(world.picture(DRAWING, random.Random(1))), QUESTIONS, text)
    for answer, ours in zip(answers, found, strict=True):
        assert answer.logprobs == pytest.approx([ours[ids(word)[0]].item() for word in ("yes", "no")], abs=1e-4)
    assert usage.computed_tokens == usage.floor_tokens < usage.prompt_tokens / 2


def test_training_tokenizes_as_the_processor():
    text = "<input-123456>\nWhat is drawn?\n</input-123456>\n<target-6>\nA red circle\n</target-6>\nIs it 2?"
    own = ids(": what is drawn ? / : a red circle / is it 2 ?")
    assert processor().tokenizer.encode(text, add_special_tokens=False) == own


def test_a_cell_is_the_sum_of_its_words():
    model = build()
    red, empty, *_ = from_words(model, torch.tensor([train.cells(DRAWING)]))[0]
    table = model.get_input_embeddings().weight
    assert torch.allclose(red, table[ids("red circle left")].sum(0))
    assert torch.allclose(empty, table[ids("empty")[0]])


@pytest.mark.slow
def test_the_recipe_trains_measures_and_rewards(tmp_path, monkeypatch):
    """With a few steps of everything; `docs/images.md` has the figures of a whole run."""
    monkeypatch.setattr(train, "FROM", (0, 0, 0, 1, 1))
    for name, steps in (("WORDS_STEPS", 2), ("LOOKS", 2), ("PIXEL_STEPS", 1)):
        monkeypatch.setattr(train, name, steps)
    monkeypatch.setattr(run, "STEPS", 2)
    figures = run.main(tmp_path)
    assert set(figures["AUC"]) == set(KINDS) and 0 <= figures["after"] <= 1
    assert 0 < figures["eight"]["reads"] <= 4 * run.GROUPS * run.N * len(run.EIGHT)  # empty replies are not read
    assert figures["eight"]["computed_tokens"] < 1.1 * figures["eight"]["floor_tokens"]
    assert (tmp_path / "rewards.jsonl").exists() and (tmp_path / "figures.json").exists()
