"""What the tests of evolving checklists share: a judge that looks for a word, and scripted proposers."""

from inspect import isfunction

from checklist_rewards.rewards.trl import ChecklistReward
from tests.monitor.fakes import state
from tests.rewards.fakes import call as batch_of
from tests.rewards.fakes import knows, reward_by

__all__ = ["BASE", "BLUE", "TEXTS", "Script", "active", "call", "evolving", "finds", "state"]
BASE = ["Is it red?"]
TEXTS = ["red", "red blue", "red", "red blue"]
BLUE = [0.5, 0.9, 0.5, 0.9]
"""The rewards of `TEXTS` where "Is it blue?" counts too."""


def finds(prefix, tail):
    """P(yes) of "Is it <word>?": high if the word is in the response."""
    return knows(prefix.rpartition("<response")[2], tail)


class Script:
    """A proposer that proposes what `rule(group)` returns, and remembers the groups."""

    def __init__(self, rule):
        self.rule, self.groups = rule, []

    def __call__(self, groups):
        self.groups += groups
        return [self.rule(group) for group in groups]


def evolving(rule=lambda group: ["Is it blue?"], *, judge=finds, reward=None, **options) -> ChecklistReward:
    """A reward with evolving checklists whose proposer follows `rule`, without refiners and with a proposal at every
    call."""
    proposer = Script(rule) if isfunction(rule) else rule
    options = {"every": 1, "refiners": [], "proposer": proposer} | options
    return reward_by(judge, **reward or {}, evolving=options)


def call(reward, texts=TEXTS, step=0, *, prompts="Say a color.", checklist=BASE, **more):
    """One call of a reward."""
    more = {"trainer_state": state(step)} | more
    return reward(**batch_of(texts, prompts, items=checklist), **more)


def active(reward):
    """The questions of the active items of all prompts."""
    return [item["question"] for record in reward.evolving.state["prompts"] for item in record["active"]]
