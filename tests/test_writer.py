"""The writer: one value, from keywords and from a `Writer`, and the parameters of parts."""

from typing import get_type_hints

import pytest

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.evaluation.wording import Paraphraser
from checklist_rewards.evolving.proposer import GroupProposer
from checklist_rewards.evolving.rewriting import Rewriter
from checklist_rewards.generators import (
    ContrastiveGenerator,
    DeductiveGenerator,
    DirectGenerator,
    InductiveGenerator,
    InteractiveGenerator,
)
from checklist_rewards.refiners import Deduplicator, Tagger, UnitTester
from checklist_rewards.writer import Writer, WriterKwargs, parameters_of
from tests.generators.fakes import Replies

GOOD = "1. Is it short?\n2. Is it about rain?"


def test_the_keywords_for_type_checkers_are_the_fields_of_the_writer():
    declared = get_type_hints(Writer)
    assert Writer.model_fields.keys() - {"model"} == (hints := get_type_hints(WriterKwargs)).keys()
    for name, hint in hints.items():
        assert declared[name] in (hint, hint | None), name
    assert [name for name, field in Writer.model_fields.items() if not field.description] == []


def test_a_writer_and_keywords_make_the_same_generator():
    settings = {"backend": Replies(lambda text, sampling: GOOD), "temperature": 0.3, "seed": 5, "store": False}
    one, other = DirectGenerator(Writer(model="m", **settings)), DirectGenerator("m", **settings)
    assert one.writer == other.writer and one.writer.sampling == other.writer.sampling
    assert one.generate("Rain.") == other.generate("Rain.")
    with pytest.raises(SampleError, match="seed=1 has no effect together with a Writer; set it there"):
        DirectGenerator(Writer(model="m"), seed=1)


def test_what_a_writer_does_not_set_is_the_default_of_the_part():
    writer = Writer(model="pocket", seed=3, max_tokens=64)
    direct, contrastive = DirectGenerator(writer).writer, ContrastiveGenerator(writer).writer
    assert (direct.temperature, contrastive.temperature) == (0.7, 0.0)
    assert direct.sampling.max_tokens == contrastive.sampling.max_tokens == 64
    assert (direct.seed, ContrastiveGenerator(writer).candidate_sampling.seed) == (3, 3)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": -1}, "temperature=-1 is not allowed; it must be a finite number from 0 up."),
        (
            {"backend": "encoder"},
            "backend='encoder' neither writes nor reads prompts: it answers the items of checklists.",
        ),
        ({"max_item": 2}, "unknown argument 'max_item' (did you mean 'max_items' or 'min_items'?); allowed: model"),
    ],
)
def test_a_mistake_is_one_sentence(settings, sentence):
    with pytest.raises(ChecklistRewardsError) as refused:
        DirectGenerator("pocket", **settings)
    assert str(refused.value).startswith(sentence)


def test_the_parameters_of_a_part_are_those_of_its_writer_too():
    known = parameters_of(ContrastiveGenerator)
    assert WriterKwargs.__annotations__.keys() < known.keys() and "drop_faults" not in known
    assert (known["temperature"].default, known["temperature"].hint, known["seed"].default) == (0.0, float, 0)
    assert parameters_of(lambda **anything: None) is None


@pytest.mark.parametrize(
    "part",
    [
        *(DirectGenerator, ContrastiveGenerator, InductiveGenerator, DeductiveGenerator, InteractiveGenerator),
        *(Deduplicator, Tagger, UnitTester, Paraphraser, GroupProposer, Rewriter),
    ],
)
def test_every_part_that_writes_takes_a_writer_and_completes_it(part):
    made = part(Writer(model="pocket", max_tokens=64, store=False)).writer
    assert (made.engine.model, made.max_tokens, made.replies) == ("pocket", 64, None)
    assert made.max_attempts == part.writing["max_attempts"] and made.temperature == part.writing["temperature"]
    assert part("pocket", seed=2, max_tokens=64, store=False).writer == made.replaced(seed=2)
    assert part.writing.keys() == {"temperature", "max_tokens", "max_attempts"}
