"""TRL's `OnlineDPOTrainer`, without training on pairs that nothing tells apart.

    >>> trainer = ChecklistOnlineDPOTrainer(model=..., reward_funcs=ChecklistReward(scorer), ...)  # doctest: +SKIP

`OnlineDPOTrainer` samples two completions and trains on the one with the higher reward as the chosen one. It takes a
missing reward for 0, and of equal rewards the first for the winner: a pair that no judge could score is trained on as
if its first completion had won. Here such a tie has no chosen one: its log-probabilities are masked, so its loss is
a constant without a gradient, and the other pairs of the batch get what they would have got.

That holds for every tie, also between two scores. Where several rewards are summed, or a penalty is set for a missing
end, these decide, and only what is a tie after them is left out. Other functions that return None for one completion
of a pair still have it counted as 0; a [`ChecklistReward`] gives None to both or to none.
"""

from __future__ import annotations

from typing import Any

from trl.experimental.online_dpo import OnlineDPOTrainer

from checklist_rewards.rewards.trl import ChecklistReward


class ChecklistOnlineDPOTrainer(OnlineDPOTrainer):
    """`OnlineDPOTrainer` whose loss leaves ties out; takes the same arguments.

    It logs one more number, `objective/ties`: the share of the pairs that were left out.
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
        decided = rewards
        penalty = vars(self.args)["missing_eos_penalty"]
        if penalty is not None:  # the trainer takes it off after this
            ends = set(vars(self)["eos_token_ids"])
            decided = rewards - rewards.new_tensor([penalty * ends.isdisjoint(ids) for ids in completion_ids_list])
        first, second = decided.split(len(prompts) // 2)
        ties = first == second
        self._mask[ties.repeat(2)] = 0  # in place: the trainer sums the log-probabilities under this mask
        share = self.accelerator.gather_for_metrics(ties.float().mean()).mean().item()
        self.stats.setdefault("objective/ties", []).append(share)
        return rewards
