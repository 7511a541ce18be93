"""Checklists as the reward of TRL's trainers.

    >>> from checklist_rewards.rewards.trl import ChecklistReward
    >>> reward = ChecklistReward(model="pocket")
    >>> trainer = GRPOTrainer(model=..., reward_funcs=reward, train_dataset=dataset)  # doctest: +SKIP

The dataset needs a `checklist` column next to `prompt`. TRL passes both to the reward together with the completions.

TRL leaves a reward of None out of the group's mean and gives the completion an advantage of 0. If a trainer sums
several rewards, TRL counts None as 0, so in that case all completions of the prompt get None (`ranks.py`); GRPO's
`multi_objective_aggregation="normalize_then_sum"` does not need that.

`OnlineDPOTrainer` accepts this reward, but it also trains on pairs the judge could not score. Use
[`ChecklistOnlineDPOTrainer`] to skip those pairs. `AsyncGRPOTrainer` calls the reward in a process without a GPU, so
the judge must be a server there; combined with other rewards, set `on_failure="group"`, because the reward cannot
detect that `AsyncGRPOTrainer` sums rewards. These trainers do not pass `log_metric`; use `log=...` or `pop_stats()`.

`trl grpo --reward_funcs checklist_rewards.rewards.trl.reward` reads its settings from the YAML file named by the
environment variable `CHECKLIST_REWARDS_CONFIG` (`configured.py`).
"""

from __future__ import annotations

from checklist_rewards.rewards.reward import ChecklistReward

__all__ = ["ChecklistReward"]


def __getattr__(name: str) -> ChecklistReward:
    # `trl grpo --reward_funcs` takes an attribute of a module and has no way to pass arguments to it.
    if name == "reward":
        from checklist_rewards.rewards.configured import reward_from_environment

        return reward_from_environment()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
