"""Judge settings: one value, from keywords and from files."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import ConfigError, ModelError, SampleError
from checklist_rewards.files.documents import load
from checklist_rewards.judges import LogprobJudge, QualityJudge
from checklist_rewards.judges.settings import JudgeConfig, ScorerConfig, ScorerKwargs, load_jury
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rewards.settings import EvolvingConfig, MonitorConfig, RewardConfig, RewardKwargs
from checklist_rewards.writer import Writer


@pytest.mark.parametrize(("config", "keywords"), [(ScorerConfig, ScorerKwargs), (RewardConfig, RewardKwargs)])
def test_the_keywords_for_type_checkers_are_the_fields_of_the_config(config, keywords):
    declared = get_type_hints(config)
    assert config.model_fields.keys() - {"model"} == (hints := get_type_hints(keywords)).keys()
    for name, hint in hints.items():
        nested = declared[name] in (MonitorConfig | None, EvolvingConfig | None)  # a mapping in Python
        assert hint == (declared[name] | Mapping[str, Any] if nested else declared[name]), name


def test_a_config_and_keywords_make_the_same_scorer():
    settings = {"model": "pocket", "mode": "quality", "backend": "transformers", "store": False}
    config = ScorerConfig(**settings)
    one, other = ChecklistScorer(config), ChecklistScorer(**settings)
    assert one.config == other.config == config and type(one.judge) is type(other.judge) is QualityJudge
    assert one.aggregation == other.aggregation and one.aggregation.primary_metric == "quality"
    with pytest.raises(SampleError, match="mode='batch' has no effect together with a ScorerConfig; set it there"):
        ChecklistScorer(config, mode="batch")


def test_settings_know_what_was_changed():
    assert ScorerConfig(metric="pass").changed() == {}
    changed = JudgeConfig(model="org/judge", votes=3, calibration="map.json").changed("calibration")
    assert changed == {"model": "org/judge", "votes": 3}


def test_a_whole_number_stays_one_so_that_stored_answers_are_found():
    config = JudgeConfig(temperature=1, mass_floor=0)
    assert type(config.temperature) is type(config.mass_floor) is int
    assert type(Writer(temperature=1).temperature) is int
    part = PipelineConfig.parse({"scorer": {"threshold": 1}, "generator": {"temperature": 1}})  # there, always a float
    assert type(part.scorer.threshold) is type(part.generator.temperature) is float


def test_files_of_earlier_versions_are_read_under_the_names_of_today(tmp_path):
    (tmp_path / "judge.yaml").write_text(
        "{model: pocket, engine: {dtype: float32}, capture_reasoning: true, samples: 3}"
    )
    judge = load_jury(tmp_path / "judge.yaml", store=False)
    assert judge.engine.settings == {"dtype": "float32"} and judge.sampling.n == 3
    part = PipelineConfig.parse({"scorer": {"primary_metric": "pass", "samples": 3}}).scorer
    assert (part.metric, part.votes) == ("pass", 3)
    older = {
        "engine": {"concurrency": 2},
        "reference": "gold",
        "target": "transcript",
        "monitor": {"shadow": {"samples": 3}},
    }
    reward = load(older, RewardConfig, "reward.yaml")
    assert (reward.engine_args, reward.reference_column, reward.judged) == ({"concurrency": 2}, "gold", "transcript")
    assert reward.monitor.shadow.votes == 3
    with pytest.raises(ConfigError, match="reward.yaml: unknown key 'engine'"):
        load({"engine": {}, "engine_args": {}}, RewardConfig, "reward.yaml")
    with pytest.raises(SampleError, match=r"unknown argument 'engine' \(did you mean 'engine_args'"):
        JudgeConfig(engine={})


def test_a_wrong_value_is_refused_before_anything_is_built():
    with pytest.raises(SampleError, match="mode='both' is not known; allowed: 'item', 'batch', 'quality'"):
        JudgeConfig(mode="both")
    with pytest.raises(SampleError, match="mass_floor=2 is not allowed"):
        JudgeConfig(mass_floor=2)
    with pytest.raises(ModelError, match="engine_args='fp8' is not allowed"):
        JudgeConfig(engine_args="fp8")
    assert isinstance(JudgeConfig().build(store=False), LogprobJudge)
