"""Argument checks, pydantic errors as one sentence, and the message for a missing optional library."""

import sys

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.evaluation.items import similarity
from checklist_rewards.evaluation.measures import Numbers
from checklist_rewards.judges.remote import RewardServer
from checklist_rewards.pipelines import register_custom_pipeline
from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.validation import finite, fraction, nearest, one_of, one_sentence, string, whole_number

UNKNOWN = "unknown key (did you mean 'size'?); allowed: name, size, few."
QUESTIONS = [Checklist.parse(["Is it short?"])]


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("scipy.stats", lambda: Numbers([0.1, 0.3], [0.2, 0.1]).figures()),
        ("sacrebleu", lambda: similarity(QUESTIONS, QUESTIONS)),
    ],
)
def test_a_missing_library_names_the_extra(monkeypatch, library, use):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SampleError, match=rf"this needs {library}: pip install 'checklist-rewards\[evaluation\]'"):
        use()


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: one_of("ties", "last", ("first", "all")), "ties='last' is not known; allowed: 'first', 'all'."),
        (lambda: whole_number("seed", -1, at_least=0), "seed=-1 is not allowed; it must be a whole number from 0 up."),
        (lambda: whole_number("count", True), "count=True is not allowed; it must be a whole number from 1 up."),
        (lambda: fraction("alpha", "1"), "alpha='1' is not allowed; it must be a number from 0 to 1."),
        (lambda: fraction("alpha", float("nan")), "alpha=nan is not allowed; it must be a number from 0 to 1."),
        (lambda: finite("weight", 10**400), f"weight=1{76 * '0'}... is not allowed; it must be a finite number."),
        (lambda: finite("t", -1, at_least=0), "t=-1 is not allowed; it must be a finite number from 0 up."),
        (lambda: finite("cost", 0.0, above=0), "cost=0.0 is not allowed; it must be a finite number above 0."),
        (lambda: string("row 3: target", 3), "row 3: target must be a string, got int 3."),
    ],
)
def test_a_refused_value_is_named_with_what_is_allowed(check, message):
    with pytest.raises(SampleError) as refused:
        check()
    assert str(refused.value) == message


def test_allowed_values_pass():
    one_of("ties", "first", ("first", "all"))
    whole_number("count", 10**400)
    fraction("near", 1)
    finite("weight", int(sys.float_info.max), above=0)
    finite("temperature", 0, at_least=0)
    string("target", "")


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = "a"
    size: int = 1
    few: int = Field(1, gt=0)

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError("the name is too long.")
        return name


class Outer(BaseModel):
    inner: Inner
    others: list[Inner] = []
    by_name: dict[str, Inner] = {}
    maybe: tuple[Inner, ...] | None = None


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, "inner is missing."),
        ({"inner": 3}, "inner: expected a mapping, got 3."),
        ({"inner": {}, "maybe": "x"}, "maybe: expected a list, got 'x'."),
        ({"inner": {"size": "x"}}, "inner.size: Input should be a valid integer"),
        ({"inner": {"name": "long"}}, "inner.name: the name is too long, got 'long'."),
        ({"inner": {"few": 0}}, "inner.few: Input should be greater than 0, got 0."),
        ({"inner": {"sise": 1}}, "inner.sise: " + UNKNOWN),
        ({"inner": {}, "others": [{"sise": 1}]}, "others.0.sise: " + UNKNOWN),
        ({"inner": {"name": 3, "sise": 1}}, "inner.sise: " + UNKNOWN),  # before other errors
        ({"inner": {}, "by_name": {"a b": {"sise": 1}}}, "by_name.'a b'.sise: " + UNKNOWN),
        ({"inner": {}, "maybe": [{"sise": 1}]}, "maybe.0.sise: " + UNKNOWN),
    ],
)
def test_a_pydantic_error_is_one_sentence(value, sentence):
    with pytest.raises(ValidationError) as refused:
        Outer.model_validate(value)
    assert one_sentence(refused.value, Outer).startswith(sentence)
    assert one_sentence(refused.value, Outer).endswith(".")
    if sentence.endswith(UNKNOWN):  # without the model, no list of allowed keys
        assert one_sentence(refused.value) == sentence.removesuffix(UNKNOWN) + "unknown key."


MISSPELLED = {
    "the scorer": (lambda reward: ChecklistScorer("pocket", treshold=0.5), "'treshold'; the nearest are threshold, "),
    "the reward": (lambda reward: ChecklistReward(shapping=[]), "'shapping'; the nearest are shaping, "),
    "a scorer's": (lambda reward: ChecklistReward(treshold=0.5), "'treshold'; the nearest are threshold, "),
    "beside a scorer": (
        lambda reward: ChecklistReward(reward.scorer, treshold=0.5), "'treshold'; the nearest are threshold, "
    ),
    "the monitor": (lambda reward: ChecklistReward(monitor={"windw": 5}), "'windw'; the nearest are window, "),
    "verl": (lambda reward: ChecklistComputeScore(treshold=0.5), "'treshold'; the nearest are threshold, "),
    "a server": (lambda reward: RewardServer("http://localhost", timout=5), "'timout' (did you mean 'timeout'?)"),
    "a pipeline": (
        lambda reward: register_custom_pipeline("mine", "generators/tick", generater={}),
        "unknown key 'generater' (did you mean 'generator'?)",
    ),
}  # fmt: skip
"""What takes **settings."""


@pytest.mark.parametrize(("call", "says"), MISSPELLED.values(), ids=MISSPELLED)
def test_a_misspelled_argument_is_one_sentence_with_the_nearest_name(call, says):
    with pytest.raises(ChecklistRewardsError) as refused:
        call(ChecklistReward(store=False))
    said = str(refused.value)
    assert says in said and ("allowed: " in said or "; see help(" in said) and "primary_metric" not in said


def test_at_most_two_names_are_suggested():
    assert nearest("timout", ["timeout", "timeouts", "timer", "size"]) == " (did you mean 'timeout' or 'timeouts'?)"
    assert nearest("timout", ["size"]) == ""
