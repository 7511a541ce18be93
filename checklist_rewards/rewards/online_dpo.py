"""TRL's `OnlineDPOTrainer` without training on tied pairs.

    >>> trainer = ChecklistOnlineDPOTrainer(model=..., reward_funcs=ChecklistReward(scorer), ...)  # doctest: +SKIP

`OnlineDPOTrainer` samples two completions per prompt and uses the one with the higher reward as chosen. It counts a
missing reward as 0, and of two equal rewards it uses the first completion as chosen. A pair that the judge could not
score is therefore trained on as if its first completion had won. [`ChecklistOnlineDPOTrainer`] masks the
log-probabilities of tied pairs, so that their loss is a constant without gradient. The other pairs are not affected.

A pair is tied if its total rewards are equal, after summing all rewards and subtracting `missing_eos_penalty`. A
reward function that returns None for only one completion of a pair still counts as 0 there; [`ChecklistReward`]
returns None for both completions or for none.
"""

from __future__ import annotations

from typing import Any

from trl.experimental.online_dpo import OnlineDPOTrainer

from checklist_rewards.rewards.reward import ChecklistReward


class ChecklistOnlineDPOTrainer(OnlineDPOTrainer):
    """`OnlineDPOTrainer` that skips tied pairs. Takes the same arguments.

    It logs one additional metric, `objective/ties`: the fraction of skipped pairs.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._mask: Any = None
        for reward in self.reward_funcs or ():
            if isinstance(reward, ChecklistReward):
                reward.ties_are_left_out = True

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        generated = super()._generate(*args, **kwargs)
        self._mask = generated[3]
        return generated

    def _generate_vllm(self, *args: Any, **kwargs: Any) -> Any:
        generated = super()._generate_vllm(*args, **kwargs)
        self._mask = generated[3]
        return generated

    def _calculate_rewards_from_functions(
        self, prompts: Any, completions: Any, completion_ids_list: Any, **columns: Any
    ) -> Any:
        rewards = super()._calculate_rewards_from_functions(prompts, completions, completion_ids_list, **columns)
        totals = rewards
        penalty = vars(self.args)["missing_eos_penalty"]
        if penalty is not None:  # the trainer subtracts it after this method
            ends = set(vars(self)["eos_token_ids"])
            totals = rewards - rewards.new_tensor([penalty * ends.isdisjoint(ids) for ids in completion_ids_list])
        first, second = totals.split(len(prompts) // 2)
        ties = first == second
        self._mask[ties.repeat(2)] = 0  # in place: the trainer sums the log-probabilities under this mask
        tied = self.accelerator.gather_for_metrics(ties.float().mean()).mean().item()
        self.stats.setdefault("objective/ties", []).append(tied)
        return rewards
