"""What the tests of evolving checklists share: a judge that looks for a word, and scripted proposers."""

import re
from inspect import isfunction
from types import SimpleNamespace

from checklist_rewards import ChecklistScorer
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend

BASE = ["Is it red?"]


def finds(prefix, tail):
    """P(yes) of "Is it <word>?": high if the word is in the response."""
    word = re.search(r"Is it (\w+)\?", tail)[1]
    return 0.9 if word in prefix.rpartition("<response")[2] else 0.1


class Script:
    """A proposer that proposes what `rule(group)` returns, and remembers the groups."""

    def __init__(self, rule):
        self.rule, self.groups = rule, []

    def __call__(self, groups):
        self.groups += groups
        return [self.rule(group) for group in groups]


def evolving(rule, *, judge=finds, backend=None, reward=None, **options):
    """A reward with evolving checklists whose proposer follows `rule`, without refiners and with a proposal at every
    call."""
    scorer = ChecklistScorer(backend=backend or FakeBackend(judge), store=False)
    proposer = Script(rule) if isfunction(rule) else rule
    options = {"every": 1, "refiners": [], "proposer": proposer} | options
    return ChecklistReward(scorer, **(reward or {}), evolving=options)


def state(step, callbacks=None):
    """What a trainer passes as its state."""
    return SimpleNamespace(global_step=step, stateful_callbacks={} if callbacks is None else callbacks)


def call(reward, texts, step=0, *, prompts=None, checklist=BASE, **more):
    """One call of a reward; all completions are of one prompt unless `prompts` says otherwise."""
    return reward(
        prompts=prompts or ["Say a color."] * len(texts),
        completions=texts,
        checklist=[checklist] * len(texts),
        trainer_state=more.pop("trainer_state", state(step)),
        **more,
    )


def active(reward):
    """The questions of the active items of all prompts."""
    return [item["question"] for record in reward.evolving.state["prompts"] for item in record["active"]]
