"""A `reward_func` for OpenRLHF. Over HTTP, set `--reward.remote_url` to `POST /reward` of the reward server instead.

Set `--reward.remote_url` (formerly `--remote_rm_url`) to a file with:

    from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
    reward_func = ChecklistRewardFunc(model="org/judge")

The label (see `labelled.py`) is the row's label. OpenRLHF passes the prompt as the text of a chat template; put the
plain input into the label's `input` for the judge.

Run inside OpenRLHF 0.11.2 (`make test-frameworks`): `SingleTurnAgentExecutor.execute` (`openrlhf/utils/agent.py`)
calls `reward_func(queries, prompts, labels)` with lists of length 1, each in its own thread, or posts the same lists
to the server. A query is the prompt and the completion decoded with special tokens. The result is a dict of `rewards`
(for the advantage), `scores` (for dynamic filtering) and `extra_logs`; the function and the server return the same
keys.

The executor turns every exception into a reward of None and a log line of level INFO, and it repeats a request five
times whatever its status. So this function and the server log an invalid label as an ERROR of their own. Check the
labels before training with [`labelled_sample`]. Unscored samples raise [`Unscored`], which the executor skips too.

For several turns, `openrlhf_agent.py` has [`ChecklistAgent`].
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, answer_after, score_details

logger = logging.getLogger(__name__)


class ChecklistRewardFunc(SamplewiseReward):
    """A `reward_func` with the arguments of [`SamplewiseReward`]. Calls from many threads are batched."""

    __name__ = "reward_func"

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Reward completions.

        Returns:
            `dict[str, Any]`: `rewards` and `scores`, tensors of shape (n,), and `extra_logs`, a dict of such tensors.

        Raises:
            SampleError, ChecklistError: For an invalid row, with its number.
            Unscored: If the judge answered too few items of a completion.
        """
        import torch  # imported here, since the reward server uses this module's package without torch

        rows = enumerate(zip(prompts, queries, strict=True), start=1)
        try:
            answers = [answer_after(prompt, query, f"row {row}") for row, (prompt, query) in rows]
            scores = self.scores(labels, answers, prompts, special=True)
        except (SampleError, ChecklistError) as error:
            logger.error("OpenRLHF gets no reward for an invalid row: %s", error)  # OpenRLHF hides the exception
            raise
        rewards = torch.tensor([self.reward(score) for score in scores], dtype=torch.float32)
        details = list(map(score_details, scores))
        logs = {name: torch.tensor([numbers[name] for numbers in details]) for name in details[0]} if details else {}
        return {"rewards": rewards, "scores": rewards, "extra_logs": logs}
