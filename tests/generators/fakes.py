"""An engine that replies by a rule and remembers what it was asked."""

from collections.abc import Callable, Sequence

from checklist_rewards.backends import Arrived, Messages, Reply, Sampling
from checklist_rewards.errors import BackendError
from tests.fakes import FakeBackend


class Replies(FakeBackend):
    """Replies `rule(text of the last message, sampling)`; with a rule that gives a [`Reply`], exactly that.

    Args:
        rule: what is replied.
        breaks_at: numbers of the calls (from 1) at which the engine breaks.
    """

    def __init__(self, rule: Callable[[str, Sampling], str | Reply], breaks_at: Sequence[int] = (), identity="fake"):
        super().__init__(identity=identity)
        self.reply, self.breaks_at = rule, breaks_at
        self.sampled: list[tuple[list[str], Sampling]] = []

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        texts = [messages[-1]["content"] for messages in prompts]
        self.sampled.append((texts, sampling))
        if len(self.sampled) in self.breaks_at:
            raise BackendError("the engine broke")
        replies = []
        for place, text in enumerate(texts):
            found = self.reply(text, sampling)
            replies.append([found if isinstance(found, Reply) else Reply(found, "stop")] * sampling.n)
            if arrived is not None:
                arrived(place, replies[-1])
        return replies
