import json

import pytest
from pydantic import BaseModel, ValidationError

from checklist_rewards import __version__
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.generators import DirectGenerator, Questions, WeightedQuestions
from checklist_rewards.generators.shapes import (
    CheckedQuestions,
    SourcedQuestions,
    items_of,
    shape_in_words,
)
from tests.generators.fakes import Replies

WEIGHTED = '{"questions": [{"question": "Is it short?", "weight": 90}, {"question": "Is it kind?", "weight": 25}]}'


class Idea(BaseModel):
    why: str
    question: str
    required: bool = False


class Ideas(BaseModel):
    thoughts: str
    ideas: list[Idea]


class Lines(BaseModel):
    lines: list[str]


def writes(rule, shape, **settings):
    backend = Replies(rule if callable(rule) else lambda text, sampling: rule)
    settings = {"store": False, "prompt": "generators/rlcf_direct", "shape": shape} | settings
    return DirectGenerator("fake", backend=backend, **settings), backend


def asked(checklist, *fields):
    return [tuple(getattr(item, field) for field in fields) for item in checklist.items]


def test_weights_become_the_weights_of_the_items():
    generator, backend = writes(WEIGHTED, WeightedQuestions)
    checklist = generator.generate("Say hello.", reference="Hello!")
    assert asked(checklist, "question", "weight") == [("Is it short?", 90.0), ("Is it kind?", 25.0)]
    assert (checklist.source, checklist.model) == (f"rlcf_direct/{__version__}", "fake")
    [((text,), sampling)] = backend.sampled
    assert json.loads(sampling.schema)["title"] == "WeightedQuestions"
    assert text.endswith('{"questions": [{"question": <question>, "weight": <whole number from 0 to 100>}, ...]}')


def test_a_shape_of_ones_own_needs_only_a_list():
    ideas = [{"why": "x", "question": "Is it short?", "required": True}, {"why": "y", "question": "Is it kind?"}]
    generator, backend = writes(json.dumps({"thoughts": "hm", "ideas": ideas}), Ideas)
    assert asked(generator.generate("a"), "question", "required") == [("Is it short?", True), ("Is it kind?", False)]
    idea = '{"why": <why>, "question": <question>, "required": true or false}'
    assert backend.sampled[0][0][0].endswith(f'{{"thoughts": <thoughts>, "ideas": [{idea}, ...]}}')
    with pytest.raises(GenerationError, match="at least 3"):
        writes('{"lines": ["Is it short?", "Is it kind?"]}', Lines, min_items=3)[0].generate("a")


def test_a_reply_is_read_tolerantly():
    reply = f"<think>{{}} or so</think>Here it is:\n{WEIGHTED}\nDone."
    generator, backend = writes(reply.replace("90", "90.0").replace("25", '"25"'), WeightedQuestions)
    assert [item.weight for item in generator.generate("a").items] == [90.0, 25.0]
    assert len(backend.sampled) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot do that.", "there is no JSON object"),
        (WEIGHTED[:60], "does not fit"),
        (WEIGHTED.replace("90", "101"), "less than or equal to 100"),
        (WEIGHTED.replace("90", "true"), "a whole number from 0 to 100"),
        (WEIGHTED.replace("90", "0").replace("25", "0"), "every weight is 0"),
        (WEIGHTED.replace("Is it short?", "It is short."), "'It is short.' is not a yes/no question"),
        ('{"questions": []}', "0 different questions; at least 2"),
    ],
)
def test_a_reply_that_is_not_what_was_asked_for_is_refused(reply, reason):
    generator, backend = writes(reply, WeightedQuestions)
    with pytest.raises(GenerationError, match=reason) as failed:
        generator.generate("a")
    assert failed.value.raw == reply
    assert len(backend.sampled) == 3


def test_a_shape_is_asked_for_again_with_the_reason_even_without_warmth():
    def numbered(count):
        return json.dumps({"questions": [{"question": f"Is it number {i}?"} for i in range(count)]})

    generator, backend = writes(
        lambda text, s: numbered(8 if "9 different questions; at most 8" in text else 9), Questions, temperature=0
    )
    assert len(generator.generate("a")) == 8  # more than max_items are not cut
    assert len(backend.sampled) == 2


def test_equal_questions_are_one_with_the_sources_of_all():
    questions = [{"question": "Is it short?", "sources": [3, 1]}, {"question": "is it short?", "sources": [2]}]
    [item] = items_of(SourcedQuestions(questions=questions))
    assert (item.question, item.sources) == ("Is it short?", (1, 2, 3))


class TwoLists(BaseModel):
    one: list[str]
    two: list[str]


class NoList(BaseModel):
    question: str


class Numbers(BaseModel):
    numbers: list[int]


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (TwoLists, r"TwoLists must have exactly one list field, but has 2 \(one, two\)"),
        (NoList, "NoList must have exactly one list field, but has none"),
        (Numbers, "Numbers.numbers must be a list of strings or of models with a field 'question'"),
        ("weighted", "shape='weighted' is not allowed"),
    ],
)
def test_a_shape_that_cannot_be_used_is_refused(shape, reason):
    with pytest.raises(SampleError, match=reason):
        DirectGenerator(shape=shape, store=False)


def test_checks_are_shown_to_choose_from_and_kept_as_text():
    form = shape_in_words(CheckedQuestions)
    assert '{"questions": [{"question": <question>, "check": <the check, or null>}, ...]}' in form
    assert '- words: The text has the required number of words. Example: {"type": "words"' in form
    assert "- code:" not in form
    check = {"type": "words", "at_most": 9}
    questions = [{"question": "Is it short?", "check": check}, {"question": "Is it kind?", "check": None}]
    questions.append({"question": "Is it clear?"})
    items = items_of(CheckedQuestions.model_validate_json(json.dumps({"questions": questions})))
    assert [item.check for item in items] == ['{"type": "words", "at_most": 9}', None, None]
    check["at_most"] = "nine"
    with pytest.raises(ValidationError, match="check 'words': at_most: Input should be a valid integer, got 'nine'"):
        CheckedQuestions.model_validate_json(json.dumps({"questions": questions}))
