"""What `model="reference"` reads in a setting of TRL's trainer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from pocket.world import tasks
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import pocket_dir
from checklist_rewards.backends.live import LiveBackend, frozen
from checklist_rewards.backends.trees import branches_of
from checklist_rewards.rewards.placement import references_of
from checklist_rewards.rewards.trl import ChecklistReward

LORA = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)
QUESTIONS = ["Does the response contain a digit?", "Is the response short?", "Does the response name a color?"]
CHANGED = dict(
    use_cpu=True,  # without a GPU, transformers refuses bf16 otherwise
    report_to="none",  # "all" writes the logs of every tool that is installed
    save_strategy="no",  # checkpoints of a few steps take longer than the steps
    logging_steps=1,  # every step is compared
    per_device_train_batch_size=2,  # here and below: a CPU computes bf16 slowly
    num_generations=2,
    max_completion_length=8,
)
"""What differs from TRL's defaults in every setting."""
SEPARATE = 4
"""Most reads of a setting that are compared with separate prompts."""


@dataclass(frozen=True)
class Setting:
    """A setting of GRPO that users have.

    Args:
        options: Those of `GRPOConfig` that differ from the defaults.
        policy: Makes the policy with its adapters. By default, TRL loads the pocket model and adds the adapter `LORA`.
        precision: The precision that computes.
    """

    options: dict[str, Any] = field(default_factory=dict)
    policy: Callable[[], Any] | None = None
    precision: str = "bf16"


class Figures(NamedTuple):
    """What was measured in a setting."""

    receipt: float
    """Computed tokens per token of the floor."""
    separate: float
    """Largest difference of P(yes) from a separate forward pass of the same model in the same precision."""
    float32: float
    """The same from the same weights in single precision."""
    losses: list[tuple[float, float]]
    """Losses and norms of gradients."""


def rows(count: int) -> list[dict]:
    """Prompts of the pocket world with three questions each."""
    return [
        {
            "prompt": [{"role": "user", "content": task.instruction}],
            "checklist": [*(constraint.question() for constraint in task.constraints), *QUESTIONS][:3],
        }
        for task in tasks(count, seed=1, split="train")
    ]


def by_code(completions, **_) -> list[float]:
    """A reward without a model."""
    return [-len(completion[-1]["content"]) / 100 for completion in completions]


class Measured(ChecklistReward):
    """A reward that keeps what its reference read in the last call: groups, labels and result of each read."""

    @property
    def bound(self) -> LiveBackend:
        """The engine of the reference."""
        return references_of(self.scorer.judge)[0].bound

    def __call__(self, *arguments, **columns):
        self.reads: list = []
        read = LiveBackend.read

        def kept(backend, groups, labels):
            result = read(backend, groups, labels)
            self.reads.append((groups, labels, result))
            return result

        with patch.object(LiveBackend, "read", kept):
            return super().__call__(*arguments, **columns)

    def prompts(self) -> tuple[list[tuple[list[int], list]], list[float]]:
        """Some of the prompts that were read, with the forms of the labels, and P(yes) of each."""
        prompts, given = [], []
        for groups, labels, (answers, _) in self.reads:
            forms = self.bound.tokens.label_groups(labels)
            for prefix, tails in branches_of(self.bound.tokens.groups(groups), self.bound.limit):
                for tail, place in tails:
                    prompts.append(([*prefix, *tail], forms))
                    given.append(torch.tensor(answers[place].logprobs).softmax(-1)[0].item())
        every = max(1, len(prompts) // SEPARATE)
        return prompts[::every], given[::every]

    @property
    def computed(self) -> float:
        """Computed tokens per token of the floor."""
        return self.scorer.receipt.computed_tokens / self.scorer.receipt.floor_tokens


def trained(rewards: list, setting: Setting, folder, steps: int) -> Any:
    """A trainer after steps with TRL's defaults and the options of a setting."""
    torch.manual_seed(0)
    options = {**CHANGED, "max_steps": steps, **setting.options}
    options |= {"reward_weights": [1.0, 0.0][: len(rewards)]}  # the reads do not decide what is learned
    trainer = trl.GRPOTrainer(
        model=setting.policy() if setting.policy is not None else str(pocket_dir()),
        reward_funcs=rewards,
        args=trl.GRPOConfig(output_dir=str(folder), **options),
        train_dataset=Dataset.from_list(rows(4)),
        peft_config=LORA if setting.policy is None else None,
    )
    trainer.train()
    return trainer


def losses(trainer) -> list[tuple[float, float]]:
    """The losses and norms of gradients of a run."""
    return [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]


def measured(setting: Setting, folder) -> Figures:
    """Train a step in a setting, and measure the reads of its reference."""
    reward = Measured(model="reference", store=False, name="reads")
    trainer = trained([by_code, reward], setting, folder, 1)
    prompts, given = reward.prompts()
    same = probabilities(reward.bound.model, reward.bound.adapter, prompts)
    loaded = setting.options.get("model_init_kwargs", {})
    layers = {name: value for name, value in loaded.items() if name == "num_hidden_layers"}
    single = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32, **layers).eval()
    exact = probabilities(single, None, prompts)
    return Figures(reward.computed, difference(given, same), difference(given, exact), losses(trainer))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The largest difference of two series of probabilities."""
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))


def probabilities(model: Any, adapter: str | None, prompts: list) -> list[float]:
    """P(yes) of prompts, each by a forward pass of the model of its own, as the trainer calls the model."""
    found = []
    with frozen(model, adapter):
        for ids, forms in prompts:
            device = model.get_input_embeddings().weight.device
            logprobs = model(input_ids=torch.tensor([ids], device=device)).logits[0, -1].float().log_softmax(-1)
            labels = torch.stack([logprobs[list(form)].logsumexp(-1) for form in forms])
            found.append(labels.softmax(-1)[0].item())
    return found
