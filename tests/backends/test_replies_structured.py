import json
import pickle
from typing import Literal

import pytest
from pydantic import BaseModel

from checklist_rewards.backends import Engine, Reply, Sampling
from checklist_rewards.backends.replies import (
    NoReply,
    ask,
    extract_json,
    json_values,
    sample_values,
)
from checklist_rewards.errors import GenerationError
from tests.backends.answers import user
from tests.generators.fakes import Replies


class Answer(BaseModel):
    answer: Literal["yes", "no"]


class Names(BaseModel):
    names: list[str]


def prompts(*texts):
    return [user(text) for text in texts]


def asked(rule, *texts, shape=Answer, sampling=None, **settings):
    """What `ask` gives for these prompts, and what the engine was asked."""
    backend = Replies(rule if callable(rule) else lambda text, sampling: rule)
    found = ask(Engine("m", backend), prompts(*texts or ("x",)), shape, sampling or Sampling(), **settings)
    return found, backend.sampled


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Sure! Here it is:\n```json\n{"a": [1, 2]}\n```\nAnything else?', {"a": [1, 2]}),
        ('<think>{"a": 0}? No.</think>{"a": 1}', {"a": 1}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ('The set {x} has [1] element: {"a": "}"}', {"a": "}"}),
        ('For example {"a": "a long example that is not meant"}.\nThe answer: {"a": 1}', {"a": 1}),
        ('{"a": 1}, as said in [2].', {"a": 1}),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": "yes", "b": 1, "a": "no"}', {"a": ["yes", "no"], "b": 1}),
        ('{"a": "yes", "a": "yes"}', {"a": "yes"}),
    ],
)
def test_json_is_found_in_what_models_write_around_it(text, value):
    assert extract_json(text) == value


@pytest.mark.parametrize("text", ["", "I would rather not.", "{", '<think>{"a": 1}'])
def test_no_json_is_an_error(text):
    with pytest.raises(ValueError, match="no JSON"):
        extract_json(text)


def test_the_search_for_json_is_linear(monkeypatch):
    """The work is counted, not timed: a pathological reply ends in an error, not in a wait."""
    calls, decode = [], json.JSONDecoder.raw_decode
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", lambda self, s, at: calls.append(at) or decode(self, s, at))
    with pytest.raises(ValueError, match="no JSON"):
        extract_json("[" * 20_000)
    assert len(calls) < 600


def test_the_last_value_that_fits_is_taken_and_a_bare_list_is_the_only_field():
    reply = 'Not {"answer": "yes"} but {"answer": "no"}, see {"note": 1}.'
    assert asked(reply)[0] == [Answer(answer="no")]
    assert asked('["a", "b"]', shape=Names)[0] == [Names(names=["a", "b"])]


def test_a_reply_that_does_not_fit_is_asked_again_with_what_is_wrong():
    def rule(text, sampling):
        return '{"answer": "yes"}' if "cannot be used" in text or text == "easy" else '{"answer": "perhaps"}'

    found, (first, second) = asked(rule, "easy", "hard", sampling=Sampling(temperature=0.5))
    assert found == [Answer(answer="yes"), Answer(answer="yes")] and first[0] == ["easy", "hard"]
    (again,), sampling = second
    assert "answer: Input should be 'yes' or 'no'" in again and sampling.seed == 1


def test_one_that_never_fits_costs_itself_alone():
    (good, bad), calls = asked(lambda text, _: '{"answer": "no"}' if text == "easy" else "Well ...", "easy", "hard")
    assert good == Answer(answer="no") and len(calls) == 3
    assert isinstance(bad, GenerationError) and "no JSON" in str(bad) and bad.raw == "Well ..."


def test_a_caller_may_refuse_a_value_too():
    (found,), _ = asked('{"names": ["a"]}', shape=Names, check=lambda index, value: "two are wanted.")
    assert isinstance(found, GenerationError) and "two are wanted" in str(found)


def test_an_engine_without_a_reply_is_not_asked_again_and_after_a_bad_one_both_errors_are_left():
    none = Reply(None, unanswered="too_long")
    (found,), calls = asked(lambda text, _: none)
    assert isinstance(found, GenerationError) and "too_long" in str(found) and len(calls) == 1
    (error,), _ = asked(lambda text, s: none if s.seed else "Well ...", sampling=Sampling(temperature=1))
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(each, NoReply) and each.unanswered == "too_long" and "no JSON" in str(each.first)


def test_a_prompt_without_a_retry_is_repeated_as_it_is_with_another_seed():
    def parse(index, reply):
        if reply.text != "2":
            raise GenerationError(f"prompt {index}: not 2", reply.text)
        return 2

    backend = Replies(lambda text, sampling: str(sampling.seed))
    found = sample_values(Engine("m", backend), prompts("x", "y"), parse, Sampling(temperature=1), attempts=3)
    assert found == [[2], [2]]
    assert [texts for texts, _ in backend.sampled] == [["x", "y"]] * 3
    [(error,)] = sample_values(Engine("m", backend), prompts("x"), parse, Sampling(temperature=1), attempts=2)
    assert str(error) == "prompt 0: not 2" and error.raw == "1" and error.__traceback__ is None


def test_several_samples_are_parsed_alone_and_none_is_repeated():
    def parse(index, reply):
        if reply.text != "yes":
            raise GenerationError("not yes", reply.text)
        return True

    backend = Replies(lambda text, sampling: "yes" if text == "x" else "no")
    found = sample_values(Engine("m", backend), prompts("x", "y"), parse, Sampling(temperature=1, n=2))
    assert found[0] == [True, True] and [str(each) for each in found[1]] == ["not yes"] * 2
    assert len(backend.sampled) == 1


def test_brackets_that_cannot_begin_a_value_are_not_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", lambda self, s, at: tried.append(at) or ({}, at + 1))
    text = "{" * 100_000 + "int main() { return f(x); }\n" * 4_000
    assert json_values(text) == [] and not tried
    assert len(json_values(text + '{"a": 1}')) == 1 and len(tried) == 1


@pytest.mark.parametrize(("reason", "cut"), [("length", "; it was cut off at max_tokens=20."), ("stop", ".")])
def test_an_unreadable_reply_is_called_cut_off_only_if_it_was(reason, cut):
    reply = Reply("no value", reason)
    (error,), _ = asked(lambda *_: reply, shape=Names, sampling=Sampling(max_tokens=20))
    assert str(error) == f"the reply cannot be read: there is no JSON object in it{cut}"
