"""Configurations: what their annotations allow, the docstrings that become help, and one sentence per mistake."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le

from checklist_rewards.config import Config, Object, Unchecked, allowed
from checklist_rewards.errors import ChecklistError, ConfigError, SampleError
from checklist_rewards.files.documents import load
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.preferences import Rule
from checklist_rewards.rewards.settings import EvolvingConfig, MonitorConfig, ProposerConfig, RewardConfig


class Oven(Config):
    program: Literal["bake", "grill"] = "bake"
    """What it does.
    Defaults to baking."""
    # Not a docstring.
    racks: Annotated[int, Ge(1)] | None = None
    fill: Annotated[float, Ge(0), Le(1)] = 0.5
    """How full it is."""
    heat: Annotated[float, Ge(0)] | None = None
    light: bool = False
    door: bool | Literal["open"] = False
    recipe: str | Path | Object[range] | None = None
    cook: Unchecked[object] = None


class Kitchen(Config):
    oven: Oven = Oven()
    ovens: dict[str, Oven] = {}


def test_a_class_states_types_choices_and_limits():
    found = {name: allowed(Oven, name) for name in Oven.model_fields if name != "cook"}
    assert [(name, one.kind, one.choices, one.optional) for name, one in found.items()] == [
        ("program", str, ("bake", "grill"), False),
        ("racks", int, (), True),
        ("fill", float, (), False),
        ("heat", float, (), True),
        ("light", bool, (False, True), False),
        ("door", bool, (False, True, "open"), False),
        ("recipe", str, (), True),
    ]
    assert (found["fill"].at_least, found["fill"].at_most, found["racks"].at_least) == (0, 1, 1)
    assert found["recipe"].others == (Path, range) and not found["program"].others


def test_the_docstring_under_a_field_is_its_documentation():
    described = {name: field.description for name, field in Oven.model_fields.items() if field.description}
    assert described == {"program": "What it does.\nDefaults to baking.", "fill": "How full it is."}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"program": "boil"}, "program='boil' is not known; allowed: 'bake', 'grill'"),
        ({"program": ["bake"]}, r"program=\['bake'\] is not known"),
        ({"program": None}, "program=None is not known"),
        ({"racks": 0}, "racks=0 is not allowed; it must be a whole number from 1 up"),
        ({"racks": True}, "racks=True is not allowed"),
        ({"fill": 1.5}, "fill=1.5 is not allowed; it must be a number from 0 to 1"),
        ({"heat": float("nan")}, "heat=nan is not allowed; it must be a finite number from 0 up"),
        ({"light": "on"}, "light='on' is not known; allowed: False, True"),
        ({"light": 1}, "light=1 is not allowed; it must be True or False"),
        ({"door": "shut"}, "door='shut' is not known; allowed: False, True, 'open'"),
        ({"recipe": 3}, "recipe=3 is not allowed; it must be a string or a path or range"),
        ({"lihgt": True}, r"unknown argument 'lihgt' \(did you mean 'light'\?\); allowed: program, racks"),
    ],
)
def test_what_an_annotation_forbids_is_refused_in_one_sentence(wrong, words):
    with pytest.raises(SampleError, match=words):
        Oven(**wrong)


def test_what_an_annotation_allows_is_accepted():
    oven = Oven(program="grill", racks=2, fill=1, heat=0, light=True, recipe=Path("cake"), cook=object())
    assert oven.replaced(racks=3).racks == 3 and oven.replaced(racks=3).recipe == oven.recipe
    Oven(recipe="cake"), Oven(recipe=range(3), door="open")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("oven:\n  fill: 2\n", ":2: oven: fill=2 is not allowed; it must be a number from 0 to 1."),
        ("oven:\n  light: 'on'\n", ":2: oven: light='on' is not known; allowed: False, True."),
        ("oven:\n  lihgt: true\n", ":2: oven: unknown key 'lihgt' (did you mean 'light'?); allowed: program, racks"),
        ("\ngrill: {}\n", ":2: unknown key 'grill'; allowed: oven, ovens."),
        ("ovens: {a: {recipe: 3}}\n", ":1: ovens.a.recipe"),
        ("oven: 3\n", ":1: oven=3 is not allowed; it must be a mapping of settings."),
        ("- 1\n", ":1: expected a mapping, got [1]."),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_the_line(tmp_path, text, sentence):
    file = tmp_path / "kitchen.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file, Kitchen)
    assert str(refused.value).startswith(f"{file}{sentence}")


def test_an_error_of_the_package_is_raised_unchanged_in_python_and_named_in_a_file():
    with pytest.raises(ChecklistError, match="^an ordinal scale needs at least 2 steps, got 1"):
        ScorerConfig(scale=1)
    with pytest.raises(ConfigError, match="^judge 2: scale: an ordinal scale needs at least 2 steps, got 1"):
        load({"scale": 1}, ScorerConfig, "judge 2")


@pytest.mark.parametrize("owner", [RewardConfig, Rule, MonitorConfig, EvolvingConfig, ProposerConfig])
def test_every_setting_is_documented(owner):
    assert [name for name, field in owner.model_fields.items() if not field.description] == []
