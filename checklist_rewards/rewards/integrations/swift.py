"""An ms-swift reward (ORM) with the name "checklist".

Importing this module registers the reward. Pass a file that imports it as a plugin, and name the reward:

    # plugin.py
    import checklist_rewards.rewards.integrations.swift

    swift rlhf --rlhf_type grpo --external_plugins plugin.py --reward_funcs checklist ...

Rows need a column `checklist` in any form that [`Checklist.parse`] accepts; a JSON string is the safest. Settings are
read from the YAML file in the environment variable `CHECKLIST_REWARDS_CONFIG`, as for `rewards.trl.reward`.

Run inside ms-swift 4.6.0 (`make test-frameworks`): `--external_plugins` imports the file
(`BaseArguments._import_external_plugins`), `swift.rewards.orms` names the classes that trainers create with their
arguments, and `compute_rewards_per_func` (`swift/rl_core/grpo_algorithm.py`) calls them with the completions first,
the columns as keyword arguments, and no prompts. The column `messages` ends with the completion.

ms-swift turns a reward of None into NaN, and its sum over the rewards counts NaN as 0, even for a single reward. So
all completions of a prompt get None if one of them could not be judged: their advantages are then 0. With
`--scale_rewards gdpo` each reward is normalized without its NaNs, and only that completion gets None. Rollouts with
several turns of their own are not grouped by prompt, because their messages differ before the last reply; set
`on_failure: raise` there.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from swift.rewards import ORM, orms

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import reward_from_environment
from checklist_rewards.rewards.reward import ChecklistReward

NAME = "checklist"


class ChecklistORM(ORM):
    """The reward of ms-swift's GRPO trainers.

    Args:
        args (*optional*): The trainer's arguments; only `scale_rewards` is used.
        reward ([`ChecklistReward`], *optional*): Reward to use instead of the one configured for the process.
    """

    def __init__(self, args: Any = None, reward: ChecklistReward | None = None, **kwargs: Any):
        super().__init__(args, **kwargs)
        self.reward = copy.copy(reward or reward_from_environment())
        if self.reward.on_failure == "row" and getattr(args, "scale_rewards", None) != "gdpo":
            self.reward.on_failure = "group"

    def __call__(
        self, completions: Sequence[Any], messages: Sequence[Any] | None = None, **columns: Any
    ) -> list[float | None]:
        """Reward completions.

        Args:
            completions (sequence of `str`): The contents of the last messages.
            messages (sequence of lists of messages): Conversations that end with the completions.
            **columns: The other columns, among them `checklist`, and `response_token_ids` where ms-swift has them.

        Returns:
            `list[float | None]`: One reward per completion.

        Raises:
            SampleError, ChecklistError: For an invalid row, with its number.
            BackendError: If a completion has no score and `on_failure="raise"`.
        """
        if messages is None:
            raise SampleError(f"{NAME}: expected a column 'messages' that ends with the completions, got none.")
        prompts = [conversation[:-1] for conversation in messages]
        turns = columns.get("response_token_ids")
        if turns is not None and all(turns):  # one list per turn; the last one is the completion
            columns["completion_ids"] = [ids[-1] if isinstance(ids[-1], list) else ids for ids in turns]
        return self.reward(prompts=prompts, completions=completions, log_metric=_no_log, **columns)


def _no_log(name: str, value: float) -> None:
    """ms-swift has no hook for metrics. A trainer of TRL without one counts None as 0 (see `fails_by_group`)."""


orms[NAME] = ChecklistORM
