"""Steps, checks and refiners of another package, found by their names."""

import sys
from importlib.metadata import EntryPoint

import pytest

from checklist_rewards import plugins
from checklist_rewards.checks import CHECKS, parse_check
from checklist_rewards.errors import ConfigError, SampleError
from checklist_rewards.pipelines.registry import REFINERS
from checklist_rewards.rewards.shaping import ShapingStep
from checklist_rewards.rewards.steps import STEPS, Shaping, register_step

MODULE = """
from typing import Literal

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.pipelines import register_refiner
from checklist_rewards.rewards.shaping import ShapingStep
from checklist_rewards.rewards.steps import register_step


@register_step
class Halved(ShapingStep):
    name: Literal["halved"] = "halved"
    by: float = 2.0

    def value(self, value, sample, score):
        return value / self.by


@register_check
class Shouts(Check):
    type: Literal["shouts"] = "shouts"
    summary = "The text ends with an exclamation mark."

    def holds(self, text, input=None):
        return text.endswith("!")


@register_refiner("nothing")
def nothing():
    '''Changes nothing.'''
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a module under an entry point, until the end of the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for names in (STEPS, CHECKS, REFINERS._entries):
        for name in ("halved", "shouts", "nothing"):
            monkeypatch.delitem(names, name, raising=False)

    def install(text):
        (tmp_path / "my_steps.py").write_text(text)
        found = [EntryPoint("mine", "my_steps", plugins.GROUP)]
        monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == plugins.GROUP else [])
        plugins.load_plugins.cache_clear()

    yield install
    plugins.load_plugins.cache_clear()
    sys.modules.pop("my_steps", None)
    for names, name in ((STEPS, "halved"), (CHECKS, "shouts"), (REFINERS._entries, "nothing")):
        names.pop(name, None)


def test_names_of_another_package_are_found(installed):
    installed(MODULE)
    assert "halved" not in STEPS
    [step] = Shaping([{"name": "halved", "by": 4.0}]).steps
    assert step.value(1.0, None, None) == 0.25
    assert parse_check('{"type": "shouts"}', "item 1").holds("Stop!")
    assert REFINERS.get("nothing").summary == "Changes nothing."


def test_a_package_that_cannot_be_imported_and_a_name_that_is_there_are_refused(installed):
    class Clipped(ShapingStep):
        name: str = "clipped"

    with pytest.raises(SampleError, match="the step 'clipped' already exists"):
        register_step(Clipped)
    plugins.load_plugins.cache_clear()
    with pytest.raises(SampleError, match="unknown step 'halved'; allowed: earned, gate"):
        Shaping(["halved"])
    installed("import not_there")
    with pytest.raises(ConfigError, match="the entry point 'mine' = 'my_steps' .* cannot be imported .*not_there"):
        Shaping(["halved"])
