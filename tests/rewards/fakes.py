"""What the tests of rewards share: rewards whose judge answers by a rule, and what a trainer keeps of a call."""

import hashlib
import math
from collections import defaultdict

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Backend
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend, half


def knows(prefix: str, tail: str) -> float:
    """Yes if the word of the question ("Is it red?" or "Is red?") stands in the prompt before it."""
    question = tail.split("before it. ")[-1]  # about a single message, others are mentioned first
    words = question.split()
    return 0.9 if words[1 + (words[1] == "it")].rstrip("?") in prefix else 0.1


def by_hash(prefix: str, tail: str) -> float:
    """A number that looks random and is the same whenever it is asked for."""
    return int(hashlib.sha256((prefix + tail).encode()).hexdigest()[:6], 16) / 16**6


def scorer_by(judge=half, **settings) -> ChecklistScorer:
    """A scorer without a store. `judge` is an engine, or a rule: (prefix, tail) -> P(yes)."""
    backend = judge if isinstance(judge, Backend) else FakeBackend(judge)
    return ChecklistScorer(backend=backend, **{"store": False} | settings)


def reward_by(judge=half, *, scorer=None, **options) -> ChecklistReward:
    """A reward on such a scorer; `scorer` has the settings of the scorer."""
    return ChecklistReward(scorer_by(judge, **scorer or {}), **options)


def asked(reward: ChecklistReward) -> list[tuple[str, str]]:
    """What the engine of a reward was asked: prompts and questions."""
    return reward.scorer.judge.engine.load().asked


def call(completions, prompts="A", checklists=None, *, items=("Is it red?",), **columns) -> dict:
    """The arguments of a call. `items` is the checklist of all completions unless each has its own; one prompt that
    is a text is the prompt of all."""
    return {
        "prompts": [prompts] * len(completions) if isinstance(prompts, str) else prompts,
        "completions": completions,
        "checklist": [list(items)] * len(completions) if checklists is None else checklists,
        **columns,
    }


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def text_of(messages_or_text) -> str:
    return messages_or_text if isinstance(messages_or_text, str) else messages_or_text[-1]["content"]


class Log:
    """What a trainer keeps of `log_metric` and `log_extra`."""

    def __init__(self):
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.extra: dict[str, list[str]] = defaultdict(list)

    def metric(self, name: str, value: float) -> None:
        assert math.isfinite(value), (name, value)
        self.metrics[name].append(value)

    def column(self, name: str, values: list[str]) -> None:
        self.extra[name].extend(values)


class Recorded(ChecklistReward):
    """Keeps its calls: prompts, completions, checklists and rewards."""

    def __call__(self, prompts, completions, checklist=None, **columns):
        rewards = super().__call__(prompts, completions, checklist, **columns)
        self.calls = [*getattr(self, "calls", []), (prompts, completions, checklist, rewards)]
        return rewards

    @property
    def given(self) -> list[list[float | None]]:
        """The rewards of each call."""
        return [rewards for *_, rewards in getattr(self, "calls", [])]
