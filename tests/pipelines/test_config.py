"""Configs: lossless on disk in both formats, and nothing that is misspelt gets through."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checklist_rewards.checklists import MAX_WEIGHT
from checklist_rewards.pipelines import ConfigError, PipelineConfig, get_pipeline, list_pipelines

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TAGGER = {"kind": "tagger", "options": {"qualities": {"clear": "it is clear"}}}


def some(*values):
    return st.sampled_from([None, *values])


GENERATOR = {
    "kind": st.sampled_from(["direct", "contrastive"]),
    "shape": st.sampled_from(["questions", "weighted", "categorized"]),
    "prompt": some("generators/rlcf_candidate", "generators/openrubrics_pairwise"),
    "min_items": st.none() | st.integers(1, 5),
    "max_items": st.none() | st.integers(5, 9),
    "temperature": st.none() | st.floats(0.01, 3),
    "seed": st.none() | st.integers(0, 2**40),
}
SCORER = {
    "mode": some("item", "batch"),
    "metric": some("pass", "weighted", "expected"),
    "threshold": st.none() | st.floats(0, 1),
    "min_answered": st.none() | st.floats(0, 1),
    "scale": st.none() | st.integers(2, 10),
}
ITEM = {
    "question": TEXT.map("Is it {}?".format),
    "weight": st.floats(-MAX_WEIGHT, MAX_WEIGHT),
    "category": st.none() | TEXT,
    "required": st.booleans(),
}
CONFIG = {
    "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,10}", fullmatch=True),
    "description": TEXT,
    "paper": st.none() | TEXT,
    "generator": st.fixed_dictionaries(GENERATOR),
    "refiners": st.lists(st.sampled_from(["selector", {"kind": "selector", "options": {"max_items": 3}}, TAGGER])),
    "scorer": st.fixed_dictionaries(SCORER),
    "universal": st.lists(st.fixed_dictionaries(ITEM), max_size=2),
}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=st.sampled_from(["config.json", "config.yaml"]), data=st.fixed_dictionaries(CONFIG))
def test_what_is_saved_is_what_is_loaded(tmp_path, name, data):
    if data["generator"]["prompt"] and data["generator"]["kind"] == "direct":
        data["generator"]["prompt"] = "generators/rlcf_direct"
    config = PipelineConfig.parse(data)
    config.save(tmp_path / name)
    assert PipelineConfig.load(tmp_path / name) == config
    assert PipelineConfig.parse(config.model_dump(mode="json")) == config


def test_every_built_in_pipeline_survives_a_round_trip(tmp_path):
    for name in list_pipelines():
        get_pipeline(name).save(tmp_path / "a.yml")
        assert PipelineConfig.load(tmp_path / "a.yml") == get_pipeline(name)


def test_prompts_are_found_beside_their_config_which_moves_together_with_them(tmp_path, monkeypatch):
    (tmp_path / "one" / "prompts").mkdir(parents=True)
    (tmp_path / "one" / "prompts" / "writer.md").write_text("Write questions about: {input}")
    (tmp_path / "one" / "prompts" / "judge.md").write_text("{target}\n\n{question}")
    data = {"generator": {"prompt": "prompts/writer.md"}, "scorer": {"prompt": "prompts/judge.md"}}
    PipelineConfig.parse(data, folder=tmp_path / "one").save(tmp_path / "one" / "saved.yaml")
    assert str(tmp_path) not in (tmp_path / "one" / "saved.yaml").read_text()
    (tmp_path / "one").rename(tmp_path / "two")
    monkeypatch.chdir(tmp_path)
    config = PipelineConfig.load("two/saved.yaml")
    assert config.generator.prompt == str(tmp_path / "two" / "prompts" / "writer.md")
    assert config.scorer.prompt == str(tmp_path / "two" / "prompts" / "judge.md")
    config.save("elsewhere.json")
    assert PipelineConfig.load("elsewhere.json") == config


WRONG = {
    "a key": ({"genrator": {}}, ["unknown key 'genrator'", "name, description", "generator, refiners, scorer"]),
    "a key inside": ({"scorer": {"mod": "item"}}, ["scorer: unknown key 'mod'; the nearest are mode, "]),
    "a generator": ({"generator": {"kind": "dierct"}}, ["generator:", "'dierct'", "'direct'", "contrastive"]),
    "a refiner": ({"refiners": ["selector", "tager"]}, ["refiners.1:", "'tager'", "did you mean 'tagger'"]),
    "one refiner without a list": ({"refiners": "selector"}, ["refiners: expected a list, got 'selector'."]),
    "a scorer": ({"scorer": {"kind": "x"}}, ["unknown scorer 'x'", "checklist"]),
    "a literal prompt": ({"generator": {"prompt": "Ask me: {input}"}}, ["not found: 'Ask me: {input}'", "Markdown"]),
    "a prompt of another kind": ({"generator": {"prompt": "judges/item"}}, ["item.md:", "{target}", "generator"]),
    "a shape": ({"generator": {"shape": "weights"}}, ["generator.shape", "weighted"]),
    "a temperature": ({"generator": {"temperature": -1}}, ["generator:", "temperature=-1"]),
    "an option": ({"generator": {"kind": "deductive", "options": {"filterin": True}}}, ["'filterin'", "filtering"]),
    "an engine": ({"generator": {"options": {"model": "x"}}}, ["'model'", "outside `options`"]),
    "an engine of a refiner": (
        {"refiners": [{"kind": "tagger", "options": {"model": "x"}}]},
        ["'model' is not an option of a refiner; pass it to the command"],
    ),
    "a stage prompt": (
        {"generator": {"kind": "deductive", "prompts": {"seed": "generators/checkeval_sed"}}},
        ["generator.prompts", "checkeval_sed", "checkeval_seed"],
    ),
    "a name": ({"name": "a b"}, ["name:", "'a b'"]),
    "no mapping": ([], ["expected a mapping, got []"]),
}


@pytest.mark.parametrize(("data", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_an_error_that_says_what_is_allowed(data, words):
    with pytest.raises(ConfigError) as caught:
        PipelineConfig.parse(data, "here")
    said = str(caught.value)
    assert said.startswith("here: ") and all(word in said for word in words), said


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("a.yaml", "refiners:\n  - selector\n  - kind: selector\n    options: {max_itms: 2}\n", 3),
        ("a.json", '{\n "name": "x",\n "scorer": {\n  "mode": "itme"\n }\n}\n', 4),
    ],
)
def test_a_file_is_named_with_the_line(tmp_path, file, text, line):
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        PipelineConfig.load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_a_file_of_another_format_is_refused():
    with pytest.raises(ConfigError, match="config.toml"):
        PipelineConfig.load("config.toml")
    with pytest.raises(ConfigError, match=".json, .yaml, .yml"):
        PipelineConfig().save(Path("config.toml"))


def test_the_grade_of_mode_quality_is_the_score_unless_a_metric_is_given():
    tick, graded = get_pipeline("tick"), PipelineConfig.parse({"scorer": {"mode": "quality", "metric": "quality"}})
    for config, change, metric in (
        (tick, {"mode": "quality"}, "quality"),
        (tick, {"mode": "quality", "metric": "pass"}, "pass"),
        (tick, {"mode": "item"}, "pass"),
        (graded, {"mode": "item"}, "expected"),
        (graded.replace({"scorer": {"metric": "pass"}}), {"mode": "item"}, "pass"),
    ):
        assert config.replace({"scorer": change}).scorer.aggregation.primary_metric == metric


def test_replacing_changes_only_what_is_named():
    tick = get_pipeline("tick")
    changed = tick.replace({"generator": {"max_items": 20}, "refiners": ["selector"]})
    assert changed.generator.max_items == 20 and changed.generator.prompt == tick.generator.prompt
    assert changed.scorer == tick.scorer and [refiner.kind for refiner in changed.refiners] == ["selector"]
    assert tick.generator.max_items == 8
