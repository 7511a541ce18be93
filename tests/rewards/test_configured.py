"""The module attribute that `trl grpo --reward_funcs` takes, and the YAML file that it is built from."""

import pytest
from typer.testing import CliRunner

from checklist_rewards.cli import app
from checklist_rewards.errors import ConfigError, PromptError, SampleError
from checklist_rewards.monitor import MonitorConfig
from checklist_rewards.rewards import configured
from checklist_rewards.rewards import trl as module

POCKET = "model: pocket\nbackend: transformers\nstore: false\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    path = tmp_path / "reward.yaml"
    monkeypatch.setenv(configured.CONFIG_VARIABLE, str(path))
    configured.configured_reward.cache_clear()
    return path


def test_the_module_attribute_is_built_from_the_yaml_file_that_the_environment_names(config, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    steps = "[{name: earned, answers: hard}, gate, {name: length_penalty, free: 20, cap: 40}, clipped]"
    config.write_text(
        f"model: {tmp_path}/model\nstore: false\nname: tone\nmetric: pass\nthreshold: 0.7\ncategories: [style, fact]\n"
        f"retries: 2\nshaping: {steps}\n"
    )
    reward = module.reward
    assert (reward.__name__, reward.metric, reward.categories) == ("tone", "pass", ("style", "fact"))
    assert reward.scorer.aggregation.threshold == 0.7
    assert [step.name for step in reward.shaping.steps] == ["earned", "gate", "length_penalty", "clipped"]
    assert (reward.shaping.steps[0].answers, reward.shaping.steps[2].cap, reward.retries) == ("hard", 40, 2)
    assert module.reward is reward


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "modle: pocket\n",
            r"reward.yaml:1: unknown key 'modle'; the nearest are mode, .*settings.RewardConfig\) for all",
        ),
        ("judge: x\n", "reward.yaml: the file of judges x: cannot be read"),
        ("shaping: [{name: gate, how: add}]\n", "reward.yaml: shaping, step 1 .gate.: how: .* got 'add'"),
        (
            "model: pocket\nthinking_tags: [<r>]\n",
            r"reward.yaml:2: thinking_tags=\['<r>'\] is not allowed; it must be two",
        ),
        ("model: pocket\nthinking_tags: ab\n", "reward.yaml:2: thinking_tags='ab' is not allowed; it must be two"),
        ("model: pocket\ntokenizer: 5\n", "reward.yaml:2: tokenizer=5 is not allowed; it must be a tokenizer"),
        ("thinking_opened: true\nthinking_tags: []\n", "thinking_opened=True requires thoughts, but thinking_tags="),
        ("log: [a.jsonl]\n", r"reward.yaml: log=\['a.jsonl'\] is not allowed; it must be the path of a JSONL file"),
        ("model: ./nowhere\nstore: false\n", "reward.yaml: model not found: './nowhere'"),
        ("prompt: judges/none\n", "reward.yaml: prompt not found: 'judges/none'"),
    ],
)
def test_a_bad_yaml_file_is_refused_by_name(config, text, words):
    config.write_text(text)
    with pytest.raises((SampleError, PromptError, ValueError), match=words):
        _ = module.reward


def test_files_that_it_names_lie_beside_it(config, tmp_path):
    (tmp_path / "judges.yaml").write_text("panel: {rule: mean}\njudges: [pocket, pocket]\n")
    config.write_text("judge: judges.yaml\nstore: false\n")
    assert module.reward.scorer.judge.name == "mean of pocket, pocket"


def test_a_missing_variable_or_file_is_said(config, monkeypatch):
    with pytest.raises(ConfigError, match="reward.yaml: cannot be read"):
        _ = module.reward
    monkeypatch.delenv(configured.CONFIG_VARIABLE)
    with pytest.raises(SampleError, match="requires the environment variable CHECKLIST_REWARDS_CONFIG, the path"):
        _ = module.reward
    with pytest.raises(AttributeError, match="no attribute 'rewards'"):
        _ = module.rewards


def test_the_yaml_file_may_monitor_the_reward_and_let_its_checklists_evolve(config):
    config.write_text(
        f"{POCKET}name: tone\nmonitor:\n  held_out: 0.3\n  action: stop\n  log: seen.jsonl\n  max_flips: null\n"
        "  shadow: {model: pocket, capture_reasoning: true, store: false}\nevolving: {every: 5, max_active: 3}\n"
    )
    reward = module.reward
    monitor, evolving = reward.monitor, reward.evolving
    assert (monitor.settings.held_out, monitor.settings.action, monitor.settings.max_flips) == (0.3, "stop", None)
    assert monitor.shadow.config.capture_reasoning and str(monitor.log.path) == "seen.jsonl"
    assert (evolving.every, evolving.buffer.max_active) == (5, 3)
    assert evolving.proposer.engine.model == "pocket", "the judge's model, unless another one is named"
    assert [refiner.name for refiner in evolving.refiners] == ["deduplicator", "unit_tester"]
    done = CliRunner().invoke(app, ["lint", str(config)])
    assert done.exit_code == 0 and "a monitored reward" in done.output, done.output


def test_an_empty_mapping_is_the_default_and_another_model_may_propose(config):
    config.write_text(f"{POCKET}monitor: {{}}\nevolving: {{proposer: {{model: pocket, max_items: 2}}}}\n")
    assert module.reward.monitor.settings == MonitorConfig() and module.reward.evolving.every == 10
    assert module.reward.evolving.proposer.max_items == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("monitor: {held: 1}", r"monitor: unknown key 'held'; the nearest are held_out, .*MonitorConfig\) for all"),
        ("monitor: {shadow: pocket}", "monitor: shadow='pocket' is not allowed; it must be a mapping of settings"),
        ("monitor: {shadow: {modle: x}}", "monitor.shadow: unknown key 'modle'"),
        ("evolving: {refiners: [unit_tester]}", "evolving: refiners=.* is not allowed; it must be a list of refiners"),
        ("evolving: {every: 0}", "evolving: every=0"),
    ],
)
def test_a_bad_setting_of_a_stage_is_refused_by_name(config, text, words):
    config.write_text(f"{POCKET}{text}\n")
    with pytest.raises((ConfigError, SampleError), match=f"reward.yaml:(4:)? {words}"):
        _ = module.reward
    assert CliRunner().invoke(app, ["lint", str(config)]).exit_code == 2
