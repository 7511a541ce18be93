from typing import Literal

import pytest
from pydantic import BaseModel

from checklist_rewards.backends import Engine, Reply, Sampling
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.store import Store
from checklist_rewards.replies import ask, extract_json
from tests.generators.fakes import Replies


class Answer(BaseModel):
    answer: Literal["yes", "no"]


class Names(BaseModel):
    names: list[str]


def prompts(*texts):
    return [[{"role": "user", "content": text}] for text in texts]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure! Here it is:\n```json\n{"a": [1, 2]}\n```\nAnything else?', {"a": [1, 2]}),
        ('<think>{"a": 0}? No.</think>{"a": 1}', {"a": 1}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ('The set {x} has [1] element: {"a": "}"}', {"a": "}"}),
    ],
)
def test_json_is_found_in_what_models_write_around_it(text, value):
    assert extract_json(text) == value


@pytest.mark.parametrize("text", ["", "I would rather not.", "{", '<think>{"a": 1}'])
def test_no_json_is_an_error(text):
    with pytest.raises(ValueError, match="no JSON"):
        extract_json(text)


def test_a_reply_that_does_not_fit_is_asked_again_with_what_is_wrong():
    def rule(text, sampling):
        return '{"answer": "yes"}' if "cannot be used" in text or text == "easy" else '{"answer": "perhaps"}'

    backend = Replies(rule)
    found = ask(Engine("m", backend), prompts("easy", "hard"), Answer, Sampling(temperature=0.5))
    assert found == [Answer(answer="yes"), Answer(answer="yes")]
    assert [texts for texts, _ in backend.sampled][0] == ["easy", "hard"]
    (again,), sampling = backend.sampled[1]
    assert "answer: Input should be 'yes' or 'no'" in again and sampling.seed == 1


def test_one_that_never_fits_costs_itself_alone():
    backend = Replies(lambda text, sampling: '{"answer": "no"}' if text == "easy" else "Well ...")
    good, bad = ask(Engine("m", backend), prompts("easy", "hard"), Answer)
    assert good == Answer(answer="no")
    assert isinstance(bad, GenerationError) and "no JSON" in str(bad) and bad.raw == "Well ..."
    assert len(backend.sampled) == 3


def test_a_caller_may_refuse_a_value_too():
    backend = Replies(lambda text, sampling: '{"names": ["a"]}')
    (found,) = ask(Engine("m", backend), prompts("x"), Names, check=lambda index, value: "two are wanted.")
    assert isinstance(found, GenerationError) and "two are wanted" in str(found)


def test_a_bare_list_is_taken_for_the_only_field():
    backend = Replies(lambda text, sampling: '["a", "b"]')
    assert ask(Engine("m", backend), prompts("x"), Names) == [Names(names=["a", "b"])]


def test_an_engine_without_a_reply_is_not_asked_again():
    backend = Replies(lambda text, sampling: Reply(None, unanswered="too_long"))
    (found,) = ask(Engine("m", backend), prompts("x"), Answer)
    assert isinstance(found, GenerationError) and "too_long" in str(found) and len(backend.sampled) == 1


def test_a_rerun_asks_nothing(tmp_path):
    backend = Replies(lambda text, sampling: "no" if "cannot" not in text else '{"answer": "no"}')
    for _ in range(2):
        engine = Engine("m", backend)
        assert ask(engine, prompts("x"), Answer, Sampling(), store=Store(tmp_path / "s")) == [Answer(answer="no")]
    assert len(backend.sampled) == 2
