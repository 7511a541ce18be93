"""A single-turn NeMo-RL environment that rewards the answer by the row's checklist.

NeMo-RL runs environments as Ray actors, so pass it `ray.remote(ChecklistEnvironment)`. The config holds the keyword
arguments of [`SamplewiseReward`]. The label (see `labelled.py`) is the key "checklist" of a row's `extra_env_info`.

Not run inside NeMo-RL: the tests use a minimal host. Based on NVIDIA-NeMo/RL:
`nemo_rl/environments/interfaces.py` (0b8a793), `EnvironmentInterface.step(message_log_batch, metadata)` returns an
`EnvironmentReturn` of lists and tensors over the batch. Its content for a single-turn environment follows
`reward_model_environment.py` (01be4c6), `RewardModelEnvironment.step`. The processors of `nemo_rl/data/processors.py`
(006a7da) store a user message as its chat template renders it, with the turn that it opens for the policy.

NeMo-RL passes whole batches, so `max_wait` is 0 by default. Unscored samples raise [`Unscored`] unless `unscored` is
set, because rewards are a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from checklist_rewards.chat import rendered_turns
from checklist_rewards.errors import SampleError
from checklist_rewards.messages import speaker
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward


class ChecklistEnvironment(EnvironmentInterface):
    """Rewards the last assistant message of each log.

    Args:
        config (mapping, *optional*):
            Keyword arguments of [`SamplewiseReward`].
    """

    def __init__(self, config: Mapping[str, Any] | None = None):
        self.reward = SamplewiseReward(**{"max_wait": 0.0, **(config or {})})

    def step(self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[Any]) -> Any:
        """Reward a batch and end its episodes. Raises SampleError or ChecklistError for an invalid row."""
        import torch  # imported here, since only this framework requires tensors

        labels, prompts, rendered, answers = [], [], [], []
        for row, (log, info) in enumerate(zip(message_log_batch, metadata, strict=True), start=1):
            if not isinstance(info, Mapping) or "checklist" not in info:
                raise SampleError(f"row {row}: extra_env_info requires the key 'checklist', got {info!r:.60}.")
            replies = [position for position, message in enumerate(log) if speaker(message) == "assistant"]
            if not replies:
                raise SampleError(f"row {row}: the message log has no assistant message.")
            labels.append(info["checklist"])
            before = list(log[: replies[-1]])
            texts = [message["content"] for message in before]
            turns: list[Any] = [rendered_turns(text) if isinstance(text, str) else None for text in texts]
            prompts.append([turn for message, own in zip(before, turns, strict=True) for turn in own or [message]])
            rendered.append(texts[-1] if turns and turns[-1] else before)  # its end shows an open thought
            answers.append([log[replies[-1]]])
        scores = self.reward.scores(labels, answers, prompts, rendered=rendered)
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
        """Return the batch unchanged, without metrics."""
        return batch, {}
