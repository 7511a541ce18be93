"""Settings classes: what their annotations allow, and the docstrings that become help."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le

from checklist_rewards.errors import SampleError
from checklist_rewards.fields import check_fields, field_docs, settings_of
from checklist_rewards.judges.checked import CheckSettings
from checklist_rewards.judges.settings import JudgeSettings
from checklist_rewards.pipelines import GeneratorConfig, ScorerConfig
from checklist_rewards.scores import Aggregation


@dataclass(frozen=True)
class Oven:
    program: Literal["bake", "grill"] = "bake"
    """What it does.
    Defaults to baking."""
    # Not a docstring.
    racks: Annotated[int, Ge(1)] | None = None
    fill: Annotated[float, Ge(0), Le(1)] = 0.5
    """How full it is."""
    heat: Annotated[float, Ge(0)] | None = None
    light: bool = False
    recipe: str | Path | None = None

    def __post_init__(self) -> None:
        check_fields(self)


def test_a_class_states_types_choices_and_limits():
    settings = settings_of(Oven)
    assert [(name, s.kind, s.choices, s.optional) for name, s in settings.items()] == [
        ("program", str, ("bake", "grill"), False),
        ("racks", int, (), True),
        ("fill", float, (), False),
        ("heat", float, (), True),
        ("light", bool, (False, True), False),
        ("recipe", str, (), True),
    ]
    assert (settings["fill"].at_least, settings["fill"].at_most, settings["racks"].at_least) == (0, 1, 1)
    assert settings["recipe"].objects and not settings["program"].objects


def test_the_docstring_under_a_field_is_its_documentation():
    assert field_docs(Oven) == {"program": "What it does.\nDefaults to baking.", "fill": "How full it is."}


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
    ],
)
def test_what_an_annotation_forbids_is_refused_in_one_sentence(wrong, words):
    with pytest.raises(SampleError, match=words):
        Oven(**wrong)


def test_what_an_annotation_allows_is_accepted():
    Oven(program="grill", racks=2, fill=1, heat=0, light=True, recipe=Path("cake"))
    Oven(recipe="cake")


@pytest.mark.parametrize("owner", [JudgeSettings, Aggregation, CheckSettings])
def test_every_setting_is_documented(owner):
    assert list(field_docs(owner)) == [field.name for field in fields(owner)]


def test_a_config_has_every_setting_but_those_of_the_engine():
    settings = {**settings_of(JudgeSettings), **settings_of(Aggregation), **settings_of(CheckSettings)}
    ours = {"kind", "options", "judge", "scale", "weights", "metric"}
    assert set(ScorerConfig.model_fields) - ours == set(settings) - {
        "backend",
        "base_url",
        "engine",
        "primary_metric",
    }
    assert set(GeneratorConfig.model_fields) - set(field_docs(GeneratorConfig)) == {"kind", "options"}
