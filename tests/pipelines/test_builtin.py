"""The built-in pipelines: the defaults of the ten of papers, word for word, `english`, and pipelines of one's own."""

import pytest

from checklist_rewards.backends import Engine
from checklist_rewards.cli import options as o
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import PromptError
from checklist_rewards.pipelines import (
    ConfigError,
    PipelineConfig,
    builtin,
    get_pipeline,
    list_pipelines,
    pipeline,
    register_custom_pipeline,
    register_pipeline,
)
from checklist_rewards.version import __version__

URL = "http://localhost:9/v1"
BATCH = {"mode": "batch", "metric": "pass"}
RLCF = {"mode": "item", "metric": "expected", "prompt": "judges/rlcf", "scale": 10}
ROCKET = {"mode": "item", "metric": "normalized", "prompt": "judges/rocketeval", "use_logprobs": True}


def writer(kind, temperature, *limits, prompt=None, shape=None):
    """The settings of a generator that are not None."""
    settings = {"prompt": prompt and f"generators/{prompt}", "shape": shape}
    settings |= dict(zip(("min_items", "max_items"), limits, strict=False))
    return {name: value for name, value in settings.items() if value} | {"kind": kind, "temperature": temperature}


DEFAULTS = {
    "tick": (writer("direct", 0.7, 2, 8, prompt="tick"), BATCH),
    "rocketeval": (writer("direct", 0.7, 1, 10, prompt="rocketeval", shape="questions"), ROCKET),
    "rlcf_direct": (writer("direct", 0.0, 1, 7, prompt="rlcf_direct", shape="weighted"), RLCF),
    "rlcf_candidate": (writer("contrastive", 0.0, 1, 7, prompt="rlcf_candidate", shape="weighted"), RLCF),
    "rlcf_candidates_only": (writer("contrastive", 0.0, 1, 7, prompt="rlcf_candidates_only", shape="weighted"), RLCF),
    **{
        name: (writer("contrastive", 0.0, 1, most, prompt=name, shape="categorized"), BATCH)
        for name, most in (("openrubrics_pairwise", 15), ("openrubrics_listwise", 20))
    },
    "checkeval": (writer("deductive", 0.7), BATCH),
    "interacteval": (writer("interactive", 0.7), BATCH),
    "feedback": (writer("inductive", 0.7) | {"max_items": 20}, BATCH),
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr(builtin, "_registered", {})


def test_english_has_models_of_its_own():
    pipe = pipeline("english", store=False)
    assert pipe.generator.model == "english-writer" and pipe.generator.constraints and pipe.generator.drop_faults
    assert pipe.scorer.config.model == "english-encoder"
    named = pipeline("english", model="pocket", store=False)
    assert named.generator.model == named.scorer.config.model == "pocket" and not named.generator.drop_faults
    apart = pipeline("english", generator_base_url="http://localhost:9/v1", store=False)
    assert apart.generator.model != "english-writer" and apart.scorer.config.model == "english-encoder"


def test_checklists_name_the_pipeline_that_wrote_them(tmp_path):
    assert pipeline("english", model="pocket", store=False).generator.source == f"english/{__version__}"
    (tmp_path / "mine.md").write_text("Questions about {input}")
    mine = pipeline("english", model="pocket", generator={"prompt": str(tmp_path / "mine.md")}, store=False)
    assert mine.generator.source == f"mine/{__version__}"  # not the prompt of the pipeline


def test_models_of_a_file_are_used_unless_the_user_names_one(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("generator: {model: my-writer}\nscorer: {model: my-judge}\n")
    pipe = pipeline(path, store=False)
    assert (pipe.generator.model, pipe.scorer.config.model) == ("my-writer", "my-judge")
    assert pipeline(path, model="other", store=False).scorer.config.model == "other"
    assert PipelineConfig.load(path).generator.settings() == {}
    parts = {"generator": {"model": "b"}, "scorer": {"model": "a"}}
    for server in ({"base_url": URL}, {"base_url": URL, "generator_base_url": URL}):  # it has models of its own
        for given, named in (({}, ("", "")), (parts, ("b", "a"))):
            pipe = pipeline(path, store=False, **server, **given)
            assert (pipe.generator.model, pipe.scorer.config.model) == named


@pytest.mark.parametrize("given", [{}, {"engine_args": {"concurrency": 3}}, {"backend": "openai"}], ids=str)
def test_the_server_of_a_file_is_kept_where_the_user_names_none(tmp_path, given):
    path = tmp_path / "mine.yaml"
    path.write_text(f"scorer: {{model: my-judge, base_url: '{URL}', engine_args: {{timeout: 9}}}}\n")
    typed = {"engine_args": ["concurrency=3"]} if "engine_args" in given else given
    options = o.JudgeOptions(given={f"judge.{name}": value for name, value in typed.items()})
    work = Work.of(o.Preset(config=path), o.StoreOptions(no_store=True), judge=options)
    judge = Engine("my-judge", given.get("backend", "auto"), URL, {"timeout": 9, **given.get("engine_args", {})})
    assert pipeline(path, store=False, generator_model="pocket", **given).scorer.config.asked == work.judge == judge


def test_the_defaults_are_in_the_config_and_reach_the_parts():
    assert list_pipelines() == [*DEFAULTS, "english"]
    for name, (generator, scorer) in DEFAULTS.items():
        config = get_pipeline(name)
        assert config.generator.model_dump(exclude_none=True, exclude={"options"}) == generator, name
        assert config.scorer.model_dump(exclude_unset=True, exclude={"kind", "options"}) == scorer, name
        assert config.scorer.kind == "checklist" and config.refiners == () and config.paper and config.description
        assert [item.weight for item in config.universal] == ([100] if name.startswith("rlcf") else []), name
        pipe = pipeline(name, model="pocket", store=False)
        for key in {"min_items", "max_items"} & generator.keys():
            assert getattr(pipe.generator, key) == generator[key], name
        assert pipe.scorer.aggregation.primary_metric == scorer["metric"], name
        assert pipe.corpus_level == (name in ("checkeval", "interacteval", "feedback")), name


def test_a_pipeline_from_a_markdown_prompt_alone(tmp_path):
    (tmp_path / "plain.md").write_text("Write questions about: {input}")
    (tmp_path / "pairs.md").write_text("Why {chosen} and not {rejected}, for {input}?")
    config = register_custom_pipeline("plain", tmp_path / "plain.md", scorer={"metric": "pass"})
    assert (config.generator.kind, config.scorer.metric) == ("direct", "pass")
    assert config.generator.prompt == str(tmp_path / "plain.md")
    assert register_custom_pipeline("pairs", tmp_path / "pairs.md").generator.kind == "contrastive"
    assert list_pipelines()[-2:] == ["plain", "pairs"]
    assert pipeline("plain", store=False).generator.source.startswith("plain/")
    (tmp_path / "bad.md").write_text("Write about {inptu}")
    with pytest.raises(PromptError, match="bad.md:1: unknown placeholder {inptu}"):
        register_custom_pipeline("bad", tmp_path / "bad.md")
    assert "bad" not in list_pipelines()


def test_names_that_are_taken():
    mine = PipelineConfig(name="mine")
    assert register_pipeline(mine) == mine == get_pipeline("mine")
    with pytest.raises(ConfigError, match="'mine' is taken"):
        register_pipeline(mine)
    assert register_pipeline(PipelineConfig(name="mine", description="new"), replace=True) == get_pipeline("mine")
    with pytest.raises(ConfigError, match="'tick' is a built-in name"):
        register_pipeline(PipelineConfig(name="tick"), replace=True)
