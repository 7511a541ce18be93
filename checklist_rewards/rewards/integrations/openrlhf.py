"""Checklists as OpenRLHF's `reward_func`; over HTTP its `--reward.remote_url` is the server's `POST /reward`.

A file that `--reward.remote_url` (before: `--remote_rm_url`) names:

    from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
    reward_func = ChecklistRewardFunc(model="org/judge")

The label (see `samplewise`) is the row's label. The prompt is the text of a chat template, so a label's `input` is
better for the judge.

Read in OpenRLHF/OpenRLHF: `openrlhf/utils/agent.py` (04655bc), `SingleTurnAgentExecutor._fetch_rewards_via_func`,
calls `reward_func(queries, prompts, labels)` with lists of one, each in a thread of its own; a query is the prompt and
the completion decoded with special tokens. `examples/python/reward_func.py` (2cedb6a): the answer is a dict of tensors
`rewards` (for the advantage), `scores` (for dynamic filtering) and `extra_logs`. An exception is logged and leaves the
reward out (`execute`), so what the judge leaves unscored raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, answer_after


class ChecklistRewardFunc(SamplewiseReward):
    """A `reward_func`; arguments as in [`SamplewiseReward`]. Calls from many threads share batches."""

    __name__ = "reward_func"

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Reward completions.

        Returns:
            dict of `rewards` and `scores`, tensors of shape (n,), and `extra_logs`, a dict of such tensors.

        Raises:
            SampleError, ChecklistError: naming the row. Unscored: where the judge answered too little.
        """
        import torch  # the host has it; whoever only serves rewards does not need it here

        rows = enumerate(zip(prompts, queries, strict=True), start=1)
        answers = [answer_after(prompt, query, f"row {row}") for row, (prompt, query) in rows]
        scores = self.scores(labels, answers, prompts)
        rewards = torch.tensor([self.reward(score) for score in scores], dtype=torch.float32)
        details = [self.details(score) for score in scores]
        logs = {name: torch.tensor([numbers[name] for numbers in details]) for name in details[0]} if details else {}
        return {"rewards": rewards, "scores": rewards, "extra_logs": logs}
