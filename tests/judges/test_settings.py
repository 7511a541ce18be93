"""Judge settings: one value, from keywords and from files."""

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.judges import LogprobJudge, QualityJudge
from checklist_rewards.judges.settings import JudgeKwargs, JudgeConfig


def test_the_keywords_of_a_scorer_are_the_fields_of_the_settings():
    declared = get_type_hints(JudgeConfig)
    assert get_type_hints(JudgeKwargs) == {name: kind for name, kind in declared.items() if name != "model"}
    parameters = inspect.signature(ChecklistScorer).parameters
    for field in fields(JudgeConfig):
        assert parameters[field.name].default == field.default


def test_settings_and_keywords_make_the_same_scorer():
    settings = JudgeConfig("pocket", mode="quality", backend="transformers")
    one = ChecklistScorer(settings, store=False)
    other = ChecklistScorer("pocket", mode="quality", backend="transformers", store=False)
    assert one.settings == other.settings and type(one.judge) is type(other.judge) is QualityJudge
    assert one.aggregation == other.aggregation and one.aggregation.primary_metric == "quality"
    assert isinstance(settings.build(store=False), QualityJudge)
    with pytest.raises(SampleError, match="mode='batch' has no effect together with JudgeConfig; set it there"):
        ChecklistScorer(settings, mode="batch")


def test_settings_know_what_was_changed():
    assert JudgeConfig().changed() == {}
    changed = JudgeConfig("org/judge", samples=3, calibration="map.json").changed("calibration")
    assert changed == {"model": "org/judge", "samples": 3}


def test_a_wrong_value_is_refused_before_anything_is_built():
    with pytest.raises(SampleError, match="mode='both' is not known; allowed: 'item', 'batch', 'quality'"):
        JudgeConfig(mode="both")
    with pytest.raises(SampleError, match="mass_floor=2 is not allowed"):
        JudgeConfig(mass_floor=2)
    with pytest.raises(ModelError, match="engine='fp8' is not allowed"):
        JudgeConfig(engine="fp8")
    assert isinstance(JudgeConfig().build(store=False), LogprobJudge)
