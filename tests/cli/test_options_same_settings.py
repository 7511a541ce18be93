"""The same settings give the same scorer from Python, YAML files, the environment and the command line."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from typer.main import get_command

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.cli import app
from checklist_rewards.cli import options as o
from checklist_rewards.cli.work import Work
from checklist_rewards.config import Config, allowed
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.judges.panel import CascadeConfig, CascadeJudge, PanelConfig, PanelJudge
from checklist_rewards.judges.settings import ENGINE_SETTINGS, JudgeConfig, ScorerConfig
from checklist_rewards.pipelines import PipelineConfig, pipeline
from checklist_rewards.rewards import configured
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from checklist_rewards.writer import Writer, WriterSampling

FILES = ("judge", "prompt", "examples", "calibration", "weights", "shots", "example_reasons")
APART = ("store", "budget", *ENGINE_SETTINGS, *FILES)
PLAIN = [name for name in ScorerConfig.model_fields if name not in APART]
URL = "http://127.0.0.1:9/v1"


def drawn(chance: random.Random) -> dict[str, Any]:
    """A few random settings, which may contradict each other."""
    settings: dict[str, Any] = {"model": "org/judge", "base_url": URL}
    if chance.random() < 0.5:
        settings |= {"backend": "openai", "engine_args": {"concurrency": chance.randint(1, 9)}}
    return settings | drawn_of(ScorerConfig, chance, chance.sample(PLAIN, chance.randint(0, 4)))


def drawn_of(config: type[Config], chance: random.Random, names: Sequence[str]) -> dict[str, Any]:
    """Random values of fields of a configuration."""
    settings: dict[str, Any] = {}
    for name in names:
        what = allowed(config, name)
        if what.choices:
            settings[name] = chance.choice(what.choices)
        elif what.kind is int:
            settings[name] = chance.randint(max(2, what.at_least or 0), 9)
        else:
            settings[name] = round(chance.random(), 3)
    return settings


def written(settings: dict[str, Any]) -> list[str]:
    """The settings as options of `score`, with their systematic names."""
    options = []
    for name, value in settings.items():
        prefix = "judge." if name in JudgeConfig.model_fields else ""
        option = name.replace("_", "-")
        if name == "allow_code":
            options += ["--allow-unsafe-code"] if value == "unsafe" else ["--allow-code"] * value
        elif isinstance(value, bool):
            options.append(f"--{prefix}{option}" if value else f"--{prefix}no-{option}")
        elif isinstance(value, dict):
            options += [f"--{prefix}{option}", json.dumps(value)]
        else:
            options += [f"--{prefix}{option}", str(value)]
    return options


def from_the_command_line(settings: dict[str, Any]) -> ChecklistScorer:
    arguments = ["rows.jsonl", "-o", "out.jsonl", "--no-store", *written(settings)]
    values = get_command(app).commands["score"].make_context("score", arguments).params
    values = {name: None if value == () else value for name, value in values.items()}  # as typer does
    work = Work.of(o.Preset(), o.StoreOptions(no_store=True), judge=o.JudgeOptions.of(values))
    return work.pipeline.scorer


def from_a_pipeline_file(settings: dict[str, Any], path: Any) -> ChecklistScorer:
    own = {name: value for name, value in settings.items() if name not in ENGINE_SETTINGS}
    path.write_text(yaml.safe_dump({"name": "drawn", "scorer": own}))
    engine = {f"{o.OF_JUDGE}{name}": value for name, value in settings.items() if name in ENGINE_SETTINGS}
    engine |= {"judge.engine_args": [json.dumps(engine["judge.engine_args"])]} if "judge.engine_args" in engine else {}
    judge = o.JudgeOptions(given=engine)
    work = Work.of(o.Preset(config=path), o.StoreOptions(no_store=True), judge=judge)
    return work.pipeline.scorer


def facts(scorer: ChecklistScorer) -> dict[str, Any]:
    """What a scorer does. The engine is one object, from however many settings."""
    config = scorer.config
    values = {name: getattr(config, name) for name in PLAIN}
    return {**values, "engine": config.asked, "how": scorer.aggregation, "identity": scorer.identity}


@pytest.mark.parametrize("seed", range(40))
def test_settings_are_the_same_from_everywhere(tmp_path, monkeypatch, seed):
    settings = drawn(random.Random(seed))
    file = tmp_path / "reward.yaml"
    file.write_text(yaml.safe_dump(settings | {"store": False}))
    monkeypatch.setenv(configured.CONFIG_VARIABLE, str(file))
    monkeypatch.setattr(configured.ChecklistReward, "validate", lambda reward: None)  # asks the server
    configured.configured_reward.cache_clear()

    def from_python() -> ChecklistScorer:
        return ChecklistScorer(**settings, store=False)

    def from_the_environment() -> ChecklistScorer:
        return configured.reward_from_environment().scorer

    ways = (
        from_python,
        lambda: ChecklistScorer(ScorerConfig(**yaml.safe_load(file.read_text()))),
        from_the_environment,
        lambda: from_a_pipeline_file(settings, tmp_path / "drawn.yaml"),
        lambda: from_the_command_line(settings),
    )
    try:
        expected = facts(from_python())
    except ChecklistRewardsError as error:
        for way in ways[1:]:
            with pytest.raises(ChecklistRewardsError) as refused:
                way()
            assert str(error) in str(refused.value), "the same sentence"
        return
    for way in ways[1:]:
        assert facts(way()) == expected


@pytest.mark.parametrize("seed", range(8))
def test_several_judges_are_the_same_from_everywhere(tmp_path, monkeypatch, seed):
    chance = random.Random(seed)
    kind, config, group_of = (("panel", PanelConfig, PanelJudge), ("cascade", CascadeConfig, CascadeJudge))[seed % 2]
    settings = drawn_of(config, chance, [name for name in config.model_fields if name != "weights"])
    members = [drawn_of(JudgeConfig, chance, ["mass_floor"]), {"capture_reasoning": True, "temperature": 1}]
    judges = [{"model": "pocket", "backend": "transformers", **member} for member in members]
    file = tmp_path / "judges" / "several.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({kind: settings, "judges": judges}))
    for name, content in {
        "reward": {"judge": str(file), "store": False},
        "drawn": {"scorer": {"judge": str(file)}},
    }.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setenv(configured.CONFIG_VARIABLE, str(tmp_path / "reward.yaml"))
    configured.configured_reward.cache_clear()
    from_a_pipeline = Work.of(
        o.Preset(config=tmp_path / "drawn.yaml"), o.StoreOptions(no_store=True), judge=o.JudgeOptions()
    )
    judging = Judging(Project.at(tmp_path), PipelineConfig(), {}, Engine("pocket"), Engine("pocket"))
    found = [
        ChecklistScorer(judge=str(file), store=False),
        configured.reward_from_environment().scorer,
        from_a_pipeline.pipeline.scorer,
        from_the_command_line({"judge": str(file)}),
        judging.pipeline({"judge": "judges/several.yaml"}).scorer,
    ]
    group = group_of([JudgeConfig(**judge).build(store=False) for judge in judges], **settings)
    assert {scorer.identity for scorer in found} == {ChecklistScorer(judge=group, store=False).identity}


@pytest.mark.parametrize("seed", range(8))
def test_a_writer_is_the_same_from_everywhere(tmp_path, seed):
    chance = random.Random(seed)
    sampling = drawn_of(WriterSampling, chance, chance.sample([*WriterSampling.model_fields], 2))
    settings = sampling | {"max_items": chance.randint(2, 9)}
    (tmp_path / "pipelines").mkdir()
    file = tmp_path / "pipelines" / "drawn.yaml"
    file.write_text(yaml.safe_dump({"name": "drawn", "generator": settings}))
    options = [word for name, value in settings.items() for word in (f"--writer.{name.replace('_', '-')}", str(value))]
    context = (
        get_command(app).commands["generate"].make_context("generate", ["rows.jsonl", "-o", "out.jsonl", *options])
    )
    values = {name: None if value == () else value for name, value in context.params.items()}
    writer = Engine("pocket")
    written = Work.of(o.Preset(), o.StoreOptions(no_store=True), writing=o.Writer.of(values), writer=writer)
    judging = Judging(Project.at(tmp_path), PipelineConfig(), {}, writer, writer)
    found = [
        DirectGenerator(Writer(model="pocket", store=False, **sampling), max_items=settings["max_items"]),
        pipeline(PipelineConfig(), model="pocket", store=False, generator=settings).generator,
        pipeline(file, model="pocket", store=False).generator,
        written.pipeline.generator,
        judging.pipeline({"pipeline": "pipelines/drawn.yaml"}, writes=True).generator,
    ]
    expected = DirectGenerator("pocket", store=False, **settings)
    for generator in found:
        assert generator.writer.sampling == expected.writer.sampling and generator.engine == expected.engine
        assert (generator.writer.attempts, generator.max_items) == (expected.writer.attempts, expected.max_items)


def test_most_of_the_drawn_settings_can_be_used():
    usable = 0
    for seed in range(40):
        try:
            ChecklistScorer(**drawn(random.Random(seed)), store=False)
            usable += 1
        except ChecklistRewardsError:
            pass
    assert 15 <= usable < 40
