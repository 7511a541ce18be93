"""A monitored reward from a YAML file, as `trl grpo --reward_funcs checklist_rewards.monitor.reward` takes it."""

import pytest
from typer.testing import CliRunner

from checklist_rewards import monitor
from checklist_rewards.cli import app
from checklist_rewards.errors import SampleError
from checklist_rewards.monitor import configured
from checklist_rewards.rewards import trl
from checklist_rewards.rewards.configured import CONFIG_VARIABLE, configured_reward


@pytest.fixture
def config(tmp_path, monkeypatch):
    path = tmp_path / "reward.yaml"
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    configured.configured_monitor.cache_clear()
    configured_reward.cache_clear()
    return path


def test_the_module_attribute_is_a_monitor_of_the_configured_reward(config):
    config.write_text(
        "model: pocket\nstore: false\nname: tone\nmonitor:\n  held_out: 0.3\n  action: stop\n"
        "  log: seen.jsonl\n  max_flips: null\n  shadow: {model: pocket, capture_reasoning: true, store: false}\n"
    )
    reward = monitor.reward
    assert reward.__name__ == "tone" and reward is monitor.reward
    assert (reward.settings.held_out, reward.settings.action, reward.settings.max_flips) == (0.3, "stop", None)
    assert reward.shadow.config.capture_reasoning and str(reward.log.path) == "seen.jsonl"
    done = CliRunner().invoke(app, ["lint", str(config)])
    assert done.exit_code == 0 and "a monitored reward" in done.output, done.output
    with pytest.raises(SampleError, match="unknown key 'monitor'"):
        _ = trl.reward


def test_without_the_key_the_defaults_apply(config):
    config.write_text("model: pocket\nstore: false\n")
    assert monitor.reward.settings == monitor.MonitorSettings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("monitor: 3", "reward.yaml, monitor: expected a mapping of settings, got int 3"),
        (
            "monitor: {held: 1}",
            r"reward.yaml, monitor: unknown key 'held' \(did you mean 'held_out'\?\); allowed: log, shadow, attacks",
        ),
        ("monitor: {held_out: 2}", "reward.yaml, monitor: held_out=2 is not allowed"),
        ("monitor: {shadow: pocket}", "shadow must be a mapping of judge settings"),
        ("monitor: {shadow: {modle: x}}", "monitor: shadow: .*modle"),
        ("modle: x", "unknown key 'modle'"),
    ],
)
def test_a_wrong_setting_names_the_file_and_the_key(config, text, words):
    config.write_text(f"store: false\n{text}\n")
    with pytest.raises(SampleError, match=words):
        _ = monitor.reward
    assert CliRunner().invoke(app, ["lint", str(config)]).exit_code == 2
