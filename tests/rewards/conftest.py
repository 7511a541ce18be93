"""Adapters in the frameworks that call them."""

import importlib
import sys

import pytest

from tests.rewards.hosts import host_modules

MODULES = ("open_instruct", "skyrl", "nemo_rl", "verifiers", "swift", "harbor")


@pytest.fixture
def adapter(monkeypatch, tmp_path):
    """`adapter(name)` imports that adapter beside its host; it is configured with the pocket judge."""
    for name, host in host_modules().items():
        monkeypatch.setitem(sys.modules, name, host)
    settings = tmp_path / "reward.yaml"
    settings.write_text("model: pocket\nbackend: transformers\nstore: false\n")
    monkeypatch.setenv("CHECKLIST_REWARDS_CONFIG", str(settings))
    yield lambda name: importlib.import_module(f"checklist_rewards.rewards.integrations.{name}")
    for name in MODULES:
        sys.modules.pop(f"checklist_rewards.rewards.integrations.{name}", None)
