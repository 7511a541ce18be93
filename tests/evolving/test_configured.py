import importlib

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.evolving import EvolvingChecklistReward
from checklist_rewards.evolving.configured import configured_evolving
from checklist_rewards.monitor.configured import configured_monitor

JUDGE = "model: pocket\nbackend: transformers\nstore: false\n"


def written(tmp_path, text):
    (tmp_path / "judge.yaml").write_text(JUDGE + text)
    return str(tmp_path / "judge.yaml")


def test_the_model_of_the_judge_proposes_unless_another_is_named(tmp_path):
    reward = configured_evolving(written(tmp_path, "evolving: {every: 5, max_active: 3}\n"))
    assert (reward.every, reward.buffer.max_active) == (5, 3)
    assert reward.proposer.engine.model == "pocket"
    assert [refiner.name for refiner in reward.refiners] == ["deduplicator", "unit_tester"]


def test_a_file_without_the_key_uses_the_defaults(tmp_path):
    assert configured_evolving(written(tmp_path, "")).every == 10


def test_the_monitor_watches_an_evolving_reward(tmp_path):
    path = written(tmp_path, "evolving: {proposer: {model: pocket, max_items: 2}}\nmonitor: {held_out: 0.5}\n")
    monitor = configured_monitor(path)
    assert isinstance(monitor.reward, EvolvingChecklistReward) and monitor.reward.proposer.max_items == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evolving: 5\n", "evolving: expected a mapping of settings, got int 5"),
        ("evolving: {step: 5}\n", r"unknown key 'step'; allowed: every, max_active"),
        ("evolving: {refiners: []}\n", "unknown key 'refiners'"),
        (
            "evolving: {proposer: {modell: x}}\n",
            r"proposer: unknown key 'modell' \(did you mean 'model'\?\); allowed: model",
        ),
        ("evolving: {every: 0}\n", "every=0"),
    ],
)
def test_errors_name_the_file_and_the_key(tmp_path, text, message):
    with pytest.raises(SampleError, match=rf"judge\.yaml, evolving: .*{message.removeprefix('evolving: ')}"):
        configured_evolving(written(tmp_path, text))


def test_the_package_has_the_attribute_that_trl_looks_up(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", written(tmp_path, "evolving: {every: 4}\n"))
    package = importlib.import_module("checklist_rewards.evolving")
    assert isinstance(package.reward, EvolvingChecklistReward) and package.reward.every == 4
