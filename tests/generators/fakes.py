"""An engine that replies by a rule and remembers what it was asked."""

from collections.abc import Callable, Sequence

from checklist_rewards.backends import Arrived, Messages, Reply, Sampling
from checklist_rewards.errors import BackendError
from tests.judges.fakes import Script


class Replies(Script):
    """A [`Script`] by a rule over the text of the last message and the sampling.

    Args:
        rule: what is replied.
        breaks_at: numbers of the calls (from 1) at which the engine breaks.
    """

    def __init__(self, rule: Callable[[str, Sampling], str | Reply], breaks_at: Sequence[int] = (), identity="fake"):
        super().__init__(rule, identity)
        self.reply, self.breaks_at = rule, breaks_at
        self.sampled: list[tuple[list[str], Sampling]] = []

    def said(self, messages: Messages, sampling: Sampling) -> str | Reply:
        said = self.reply(messages[-1]["content"], sampling)
        return said if isinstance(said, Reply) else Reply(said, "stop")

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        self.sampled.append(([messages[-1]["content"] for messages in prompts], sampling))
        if len(self.sampled) in self.breaks_at:
            raise BackendError("the engine broke")
        return super().generate(prompts, sampling, arrived)
