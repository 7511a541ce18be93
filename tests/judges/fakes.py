"""Engines that answer from a script, standing at the `Backend` seam."""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from checklist_rewards import ChecklistItem, Option
from checklist_rewards.backends import Answer, Arrived, Messages, ReadGroup, Reply, Sampling, Usage
from checklist_rewards.errors import BackendError
from checklist_rewards.judges import Ask, Judge
from checklist_rewards.scores import Verdict
from tests.fakes import FakeBackend, half

Said = str | Reply | Sequence[str | Reply]


def options(**values: float | None) -> tuple[Option, ...]:
    """Options with these values; None is an abstention."""
    return tuple(Option(label=label, value=value, na=value is None) for label, value in values.items())


SHORT, POLITE = ChecklistItem(question="Is it short?"), ChecklistItem(question="Is it polite?")
TONE = ChecklistItem(question="Tone?", options=options(rude=0, kind=1, cannot_assess=None))


def answers(judge: Judge, *items: ChecklistItem, target: str = "Hi.") -> list[Verdict]:
    """The verdicts of a judge on items about one target."""
    return judge.answer([Ask(item, target) for item in items])[0]


class Labels(FakeBackend):
    """Gives every read the same probabilities, by label; a label that it does not know has 1e-9."""

    def __init__(self, probabilities: Mapping[str, float]):
        super().__init__()
        self.probabilities = probabilities
        self.read_calls: list[tuple[tuple[str, ...], list[ReadGroup]]] = []

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        self.read_calls.append((tuple(labels), list(groups)))
        read = Answer(tuple(math.log(self.probabilities.get(label, 1e-9)) for label in labels))
        return [read for group in groups for _ in group.tails], Usage()


class Lettered(FakeBackend):
    """Reads the letters of a question with options, by a rule: (letters and what they stand for) -> probabilities by
    letter. Yes and no are read as [`FakeBackend`] does. `asked` has prefix and tail of every read."""

    def __init__(
        self,
        letters: Callable[[dict[str, str]], Mapping[str, float]],
        rule: Callable[[str, str], float | None] = half,
    ):
        super().__init__(rule)
        self.letters = letters

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        if tuple(labels) == ("yes", "no"):
            return super().read(groups, labels)
        self.asked += [(group.prefix, tail) for group in groups for tail in group.tails]
        return [self._of(tail, labels) for group in groups for tail in group.tails], Usage()

    def _of(self, tail: str, labels: Sequence[str]) -> Answer:
        shown = dict(re.findall(r"^([A-Z])\. (.+)$", tail, re.MULTILINE))
        assert sorted(shown) == list(labels), (shown, labels)
        shares = self.letters(shown)
        return Answer(tuple(math.log(shares.get(label, 0) or 1e-12) for label in labels))


class Script(FakeBackend):
    """Replies from a script, one entry per prompt that reaches it, or by a rule over the conversation.

    Args:
        script: per prompt a text, a [`Reply`], or several of them for several samples; or (messages) -> one of these.
            Where an entry is an exception, the call that holds the prompt breaks with it.
    """

    def __init__(self, script: Sequence[Said | BackendError] | Callable[..., Said], identity: str = "fake"):
        super().__init__(identity=identity)
        self.script = script if callable(script) else list(script)
        self.prompts: list[Messages] = []
        self.samplings: list[Sampling] = []

    def said(self, messages: Messages, sampling: Sampling) -> Said | BackendError:
        """What is replied to a prompt."""
        return self.script(messages) if callable(self.script) else self.script.pop(0)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        self.prompts += prompts
        self.samplings.append(sampling)
        said = (self.said(messages, sampling) for messages in prompts)
        replies = []
        for place, entry in enumerate(said if callable(self.script) else list(said)):
            if isinstance(entry, BackendError):
                raise entry
            replies.append(self._replies(entry, sampling.n))
            if arrived is not None:
                arrived(place, replies[-1])
        return replies

    @staticmethod
    def _replies(said: Said, n: int) -> list[Reply]:
        entries = [said] * n if isinstance(said, str | Reply) else list(said)
        assert len(entries) == n, (entries, n)
        return [
            e if isinstance(e, Reply) else Reply(e, "stop", None, 100 if k == 0 else 0, 10)
            for k, e in enumerate(entries)
        ]
