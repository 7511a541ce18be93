"""A generator that answers by a rule, and datasets built with it."""

from checklist_rewards.datasets import build_checklists
from checklist_rewards.generators import DirectGenerator
from tests.generators.fakes import Replies

GOOD = "1. Is it short?\n2. Does it name a city?"


def fake(rule=lambda text, sampling: "no list" if "BAD" in text else GOOD, **settings):
    backend = Replies(rule)
    return DirectGenerator("fake", backend=backend, **{"store": False} | settings), backend


def build(prompts, generator=None, **settings):
    return build_checklists(prompts, generator or fake()[0], progress=False, **settings)
