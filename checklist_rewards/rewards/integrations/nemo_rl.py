"""Checklists as an environment of NeMo-RL: one turn, rewarded by the row's checklist.

NeMo-RL runs environments as Ray actors, so hand it `ray.remote(ChecklistEnvironment)`; the config is the keyword
arguments of [`SamplewiseReward`]. The label (see `samplewise`) is the key "checklist" of a row's `extra_env_info`.

Read in NVIDIA-NeMo/RL: `nemo_rl/environments/interfaces.py` (0b8a793), `EnvironmentInterface.step(message_log_batch,
metadata)` gives an `EnvironmentReturn` of lists and tensors over the batch; what an environment of one turn puts there
follows `reward_model_environment.py` (01be4c6), `RewardModelEnvironment.step`.

NeMo-RL hands over whole batches, so nothing waits for company. What the judge leaves unscored raises [`Unscored`],
unless `unscored` gives a number: rewards are a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward


class ChecklistEnvironment(EnvironmentInterface):
    """Rewards the last assistant message of each log.

    Args:
        config (mapping, *optional*): keyword arguments of [`SamplewiseReward`].
    """

    def __init__(self, config: Mapping[str, Any] | None = None):
        self.reward = SamplewiseReward(**{"max_wait": 0.0, **(config or {})})

    def step(self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[Any]) -> Any:
        """Reward a batch and end its episodes. Raises SampleError, ChecklistError: naming the row."""
        import torch  # rewards are a tensor here

        labels, prompts, answers = [], [], []
        for row, (log, info) in enumerate(zip(message_log_batch, metadata, strict=True), start=1):
            if not isinstance(info, Mapping) or "checklist" not in info:
                raise SampleError(f"row {row}: extra_env_info needs the key 'checklist'; got {info!r:.60}.")
            said = [position for position, message in enumerate(log) if message.get("role") == "assistant"]
            if not said:
                raise SampleError(f"row {row}: the message log has no assistant message.")
            labels.append(info["checklist"])
            prompts.append(list(log[: said[-1]]))
            answers.append([log[said[-1]]])
        scores = self.reward.scores(labels, answers, prompts)
        n = len(scores)
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""} for _ in scores],
            metadata=[None] * n,
            next_stop_strings=[None] * n,
            rewards=torch.tensor([self.reward.reward(score) for score in scores], dtype=torch.float32),
            terminateds=torch.ones(n, dtype=torch.bool),
            answers=[answer[0]["content"] for answer in answers],
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Nothing to add once all rollouts are done."""
        return batch, {}
