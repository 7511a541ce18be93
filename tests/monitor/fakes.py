"""What the tests of the monitor share: an engine that also answers options, and calls as a trainer makes them."""

import math
import re
from types import SimpleNamespace

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, Usage
from checklist_rewards.monitor.seen import Line, Observation, Seen
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend

CHECKLIST = [f"Is it {color}?" for color in ("red", "blue", "green", "grey", "black")]


class OptionsBackend(FakeBackend):
    """A fake engine that also answers a yes/no question whose labels are lettered."""

    def read(self, groups, labels):
        if list(labels) == ["yes", "no"]:
            return super().read(groups, labels)
        pairs = [(group.prefix, tail) for group in groups for tail in group.tails]
        self.asked += pairs
        return [self._lettered(*pair, labels) for pair in pairs], Usage()

    def _lettered(self, prefix, tail, labels):
        yes = re.search(r"^([A-Z])\. yes$", tail, re.M)[1]
        p = self.rule(prefix, tail)
        return Answer(tuple(math.log(max(p if label == yes else 1 - p, 1e-9)) for label in labels))


def monitored(rule, *, backend=None, reward=None, **options):
    """A monitored reward whose judge answers by `rule`; by default one item in five is held out."""
    backend = backend or OptionsBackend(rule)
    return ChecklistReward(
        ChecklistScorer(backend=backend, store=False), **(reward or {}), monitor={"held_out": 0.2, **options}
    )


def state(step):
    """What a trainer passes as its state."""
    return SimpleNamespace(global_step=step, stateful_callbacks={})


def call(reward, step, texts, *, prompts=None, checklist=CHECKLIST, trainer_state=None, **more):
    """One call of a reward: four completions per prompt unless `prompts` says otherwise."""
    prompts = prompts or [f"Prompt {place // 4} of step {step}" for place in range(len(texts))]
    return reward(
        prompts=prompts,
        completions=texts,
        checklist=[checklist] * len(texts),
        trainer_state=trainer_state or state(step),
        **more,
    )


def line(credit, *, id="i", held_out=False, passed=None, mass=1.0, weight=1.0, category=None):
    """An answered item."""
    passed = credit >= 0.5 if passed is None and credit is not None else passed
    return Line(id, category, weight, credit, passed, mass, credit is None, held_out)


def seen(reward=0.5, *, group="g", text="text", words=10, lines=(), **more):
    """A completion."""
    numbers = {"repetition": 0.0, "copied": 0.0, "prompt_copied": None, "steering": None, "score": reward} | more
    return Seen(group=group, prompt="prompt", text=text, reward=reward, words=words, lines=tuple(lines), **numbers)


def observed(*completions, step=0):
    """A step."""
    return Observation(step, completions)
