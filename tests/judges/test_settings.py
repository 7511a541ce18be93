"""Judge settings: one value, from keywords and from files."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import ChecklistRewardsError, ConfigError, SampleError
from checklist_rewards.files.documents import load
from checklist_rewards.judges import CascadeJudge, LogprobJudge, PanelJudge, QualityJudge, ReasonedJudge
from checklist_rewards.judges.settings import JudgeConfig, ScorerConfig, ScorerKwargs, load_jury
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.rewards.settings import EvolvingConfig, MonitorConfig, RewardConfig, RewardKwargs
from checklist_rewards.writer import Writer
from tests.jsonl import read_jsonl, write_jsonl


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


def test_a_whole_number_stays_one_so_that_stored_answers_are_found():
    config = JudgeConfig(temperature=1, mass_floor=0)
    assert type(config.temperature) is type(config.mass_floor) is int
    assert type(Writer(temperature=1).temperature) is int
    part = PipelineConfig.parse({"scorer": {"threshold": 1}, "generator": {"temperature": 1}})  # there, always a float
    assert type(part.scorer.threshold) is type(part.generator.temperature) is float


def test_files_of_earlier_versions_are_read_under_the_names_of_today(tmp_path):
    old = "{model: pocket, engine: {dtype: float32}, capture_reasoning: true, samples: 3}"
    (tmp_path / "judge.yaml").write_text(old)
    judge = load_jury(tmp_path / "judge.yaml", store=False)
    assert judge.engine.settings == {"dtype": "float32"} and judge.sampling.n == 3
    part = PipelineConfig.parse({"scorer": {"primary_metric": "pass", "samples": 3}}).scorer
    assert (part.metric, part.votes) == ("pass", 3)
    older = {"engine": {"concurrency": 2}, "reference": "gold", "target": "transcript"}
    older["monitor"] = {"shadow": {"samples": 3}}
    reward = load(older, RewardConfig, "reward.yaml")
    assert (reward.engine_args, reward.reference_column, reward.judged) == ({"concurrency": 2}, "gold", "transcript")
    assert reward.monitor.shadow.votes == 3
    with pytest.raises(ConfigError, match="reward.yaml: unknown key 'engine'"):
        load({"engine": {}, "engine_args": {}}, RewardConfig, "reward.yaml")
    with pytest.raises(SampleError, match=r"unknown argument 'engine' \(did you mean 'engine_args'"):
        JudgeConfig(engine={})


# --- several judges from a file --------------------------------------------------------------------------------------


ONE = "{model: pocket, backend: transformers}"
BOTH = f"panel:\njudges: [{ONE}, {ONE}]"
PANEL = """
panel: {rule: majority, weights: [2, 1], quorum: 0.6}
judges: [pocket, {model: pocket, backend: transformers, capture_reasoning: true}]
"""
CASCADE = """
cascade: {margin: 0.3}
judges: [{model: pocket, mass_floor: 0.2}, {panel: , judges: [pocket, {model: pocket, votes: 3}]}]
"""
QUESTION, TARGET = "Does the response mention the word river?", "The river is long."


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "judges.yaml").write_text(text, encoding="utf-8")
        return tmp_path / "judges.yaml"

    return write


def test_panels_cascades_and_single_judges(file):
    panel = load_jury(file(PANEL), store=False)
    assert isinstance(panel, PanelJudge)
    assert (panel.rule, panel.weights, panel.quorum) == ("majority", [2, 1], 0.6)
    assert [type(judge) for judge in panel.judges] == [LogprobJudge, ReasonedJudge]
    cascade = load_jury(file(CASCADE), store=False)
    assert isinstance(cascade, CascadeJudge) and cascade.margin == 0.3
    first, last = cascade.judges
    assert first.mass_floor == 0.2 and isinstance(last, PanelJudge) and last.rule == "mean"
    assert isinstance(load_jury(file("{model: pocket, capture_reasoning: true}"), store=False), ReasonedJudge)


def test_the_scorer_takes_the_file_and_a_judge_answers_twice_as_itself(file, scorer):
    alone = scorer.score([QUESTION], TARGET)
    assert ChecklistScorer(judge=file(ONE), store=False).score([QUESTION], TARGET) == alone
    [line] = ChecklistScorer(judge=file(BOTH), store=False).score([QUESTION], TARGET).items
    assert line.confidence == pytest.approx(alone.items[0].confidence)
    assert line.agreement == 1 and len(line.votes) == 2
    with pytest.raises(ChecklistRewardsError, match=r"model='org/m' has no effect with judge="):
        ChecklistScorer("org/m", judge=file(PANEL))


MODLE = r"unknown key 'modle' \(did you mean 'mode' or 'model'\?\); allowed: model"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("panel: [", r"judges.yaml:1: not valid YAML"),
        ("judges: [pocket, pocket]", "expected either 'panel' or 'cascade'"),
        ("model: pocket\nthreshold: 0.5", "judges.yaml: 'threshold' is a setting of the scorer.*: --threshold on the"),
        ("panel:\njudges: [pocket, {min_answered: 1}]", "'min_answered' is a setting .*: --min-answered on"),
        ("panel:\ncascade:\njudges: [pocket]", "expected either 'panel' or 'cascade'"),
        ("panel:\njudges: pocket", "expected either 'panel' or 'cascade'"),
        ("panel: {rule: best}\njudges: [pocket, pocket]", "judges.yaml, panel: rule='best' is not known"),
        ("panel: {margin: 1}\njudges: [pocket, pocket]", "judges.yaml, panel: unknown key 'margin'; allowed: rule"),
        ("panel:\njudges: [pocket]", "judges.yaml, panel: a panel requires two or more"),
        ("panel:\njudges: [pocket, {modle: x}]", f"judges.yaml, judge 2: {MODLE}"),
        ("{model: pocket, modle: x}", f"judges.yaml: {MODLE}"),
        ("panel:\njudges: [pocket, {calibration: 3}]", "judges.yaml, judge 2: calibration=3 is not allowed"),
        ("panel:\njudges: [pocket, 3]", "judges.yaml, judge 2: expected a mapping, got 3"),
        ("cascade: {margin: [1]}\njudges: [pocket, pocket]", "judges.yaml, cascade: margin=.* is not allowed"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(file, text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load_jury(file(text), store=False)


def test_the_command_line_takes_it(file, run):
    write_jsonl("rows.jsonl", {"prompt": "p", "target": TARGET, "checklist": [QUESTION]})
    file(BOTH)
    command = "score rows.jsonl -o out.jsonl --judge judges.yaml --no-store"
    run(command)
    [row] = read_jsonl("out.jsonl")
    assert row["checklist_score"]["items"][0]["agreement"] == 1
    run(f"{command} --concurrency 3", refused="has no effect on the judges in")
    assert "is counted with every read" in run(f"{command} --dry-run").stdout
