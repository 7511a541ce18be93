"""The same settings give the same scorer from Python, YAML files, the environment and the command line."""

import json
import random
from typing import Any

import pytest
import yaml
from typer.main import get_command

from checklist_rewards import ChecklistScorer
from checklist_rewards.cli import app
from checklist_rewards.cli import options as o
from checklist_rewards.cli.work import Work
from checklist_rewards.config import allowed
from checklist_rewards.errors import ChecklistRewardsError
from checklist_rewards.judges.settings import ENGINE_SETTINGS, JudgeConfig, ScorerConfig
from checklist_rewards.rewards import configured

FILES = ("judge", "prompt", "examples", "calibration", "weights", "shots", "example_reasons")
APART = ("store", "budget", *ENGINE_SETTINGS, *FILES)
PLAIN = [name for name in ScorerConfig.model_fields if name not in APART]
URL = "http://127.0.0.1:9/v1"


def drawn(chance: random.Random) -> dict[str, Any]:
    """A few random settings, which may contradict each other."""
    settings: dict[str, Any] = {"model": "org/judge", "base_url": URL}
    if chance.random() < 0.5:
        settings |= {"backend": "openai", "engine": {"concurrency": chance.randint(1, 9)}}
    for name in chance.sample(PLAIN, chance.randint(0, 4)):
        what = allowed(ScorerConfig, name)
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
    engine |= {"judge.engine": [json.dumps(engine["judge.engine"])]} if "judge.engine" in engine else {}
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


def test_most_of_the_drawn_settings_can_be_used():
    usable = 0
    for seed in range(40):
        try:
            ChecklistScorer(**drawn(random.Random(seed)), store=False)
            usable += 1
        except ChecklistRewardsError:
            pass
    assert 15 <= usable < 40
