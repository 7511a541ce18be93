"""What `model="reference"` reads and costs in a setting of TRL's trainer: a row of the table in docs/placement.md."""

import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from pocket.world import tasks
from transformers import AutoModelForCausalLM, TrainerCallback

from checklist_rewards.backends import pocket_dir
from checklist_rewards.backends.live import LiveBackend, frozen
from checklist_rewards.rewards.placement import references_of
from checklist_rewards.rewards.trl import ChecklistReward

LORA = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)
QUESTIONS = ["Does the response contain a digit?", "Is the response short?", "Does the response name a color?"]
CHANGED = dict(
    use_cpu=True,  # without a GPU, transformers refuses bf16 otherwise
    report_to="none",  # "all" writes the logs of every tool that is installed
    save_strategy="no",  # checkpoints of a few steps take longer than the steps
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
        name: As in the table.
        options: Those of `GRPOConfig` that differ from the defaults.
        policy: Makes the policy with its adapters. By default, TRL loads the pocket model and adds the adapter `LORA`.
        precision: The precision that computes.
        most: Most computed tokens per token of the floor.
        note: What else the row of the table says.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    policy: Callable[[], Any] | None = None
    precision: str = "bf16"
    most: float = 1.05
    note: str = ""


class Figures(NamedTuple):
    """What was measured in a setting."""

    receipt: float
    """Computed tokens per token of the floor."""
    separate: float
    """Largest difference of P(yes) from a separate forward pass of the same model in the same precision."""
    float32: float
    """The same from the same weights in single precision."""
    prefill: float
    """Seconds of the reads divided by those of plain forward passes over as many tokens as the floor has."""
    own: float
    """Share of a step that the reward takes outside of the model's forward passes."""
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


class Steps(TrainerCallback):
    """The seconds of each step."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_step_begin(self, *_, **__):
        self.started = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.started)


class Call(NamedTuple):
    """A call of a reward: its seconds, those of its reads, and those of the forward passes in the reads."""

    seconds: float
    reading: float
    passing: float
    reads: list
    """Groups, labels and result of each read."""


class Measured(ChecklistReward):
    """A reward that keeps what its reference has read and how long it took."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.calls: list[Call] = []

    @property
    def bound(self) -> LiveBackend:
        """The engine of the reference."""
        return references_of(self.scorer.judge)[0].bound

    def __call__(self, *arguments, **columns):
        reads, seconds, passes = [], [], []
        read = LiveBackend.read

        def kept(backend, groups, labels):
            hooks = [
                backend.model.register_forward_pre_hook(lambda *_: passes.append(-time.perf_counter())),
                backend.model.register_forward_hook(lambda *_: passes.append(time.perf_counter())),
            ]
            started = time.perf_counter()
            try:
                result = read(backend, groups, labels)
            finally:
                for hook in hooks:
                    hook.remove()
            seconds.append(time.perf_counter() - started)
            reads.append((groups, labels, result))
            return result

        started = time.perf_counter()
        with patch.object(LiveBackend, "read", kept):
            rewards = super().__call__(*arguments, **columns)
        self.calls.append(Call(time.perf_counter() - started, sum(seconds), sum(passes), reads))
        return rewards


def trained(rewards: list, setting: Setting, folder, steps: int, model: str | None = None) -> tuple[Any, list[float]]:
    """Train with TRL's defaults and the options of a setting: the trainer, and the seconds of the steps."""
    torch.manual_seed(0)
    clock = Steps()
    options = {**CHANGED, "max_steps": steps, "logging_steps": 1, **setting.options}
    options |= {"reward_weights": [1.0, 0.0][: len(rewards)]}  # the reads do not decide what is learned
    trainer = trl.GRPOTrainer(
        model=setting.policy() if setting.policy is not None else model or str(pocket_dir()),
        reward_funcs=rewards,
        args=trl.GRPOConfig(output_dir=str(folder), **options),
        train_dataset=Dataset.from_list(rows(4)),
        peft_config=LORA if setting.policy is None else None,
        callbacks=[clock],
    )
    trainer.train()
    return trainer, clock.seconds


def losses(trainer) -> list[tuple[float, float]]:
    """The losses and norms of gradients of a run."""
    return [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]


def measured(setting: Setting, folder, steps: int = 1, model: str | None = None) -> Figures:
    """Train in a setting, and measure the reads of its reference."""
    reward = Measured(model="reference", store=False, name="reads")
    trainer, seconds = trained([by_code, reward], setting, folder, steps, model)
    bound, receipt = reward.bound, reward.scorer.receipt
    prompts, given = prompts_of(bound, reward.calls[-1].reads)
    same = probabilities(bound.model, bound.adapter, prompts)
    exact = probabilities(*in_single_precision(setting, bound, model), prompts)
    return Figures(
        receipt.computed_tokens / receipt.floor_tokens,
        max(abs(ours - theirs) for ours, theirs in zip(given, same, strict=True)),
        max(abs(ours - theirs) for ours, theirs in zip(given, exact, strict=True)),
        *times(bound, reward.calls, seconds),
        losses(trainer),
    )


def prompts_of(bound: LiveBackend, reads: list) -> tuple[list[tuple[list[int], list]], list[float]]:
    """Some of the prompts that were read, with the forms of the labels, and P(yes) of each."""
    prompts, given = [], []
    for groups, labels, result in reads:
        forms = bound.tokens.label_groups(labels)
        for group, answers in zip(bound.tokens.groups(groups), result.reads, strict=True):
            for index, tail in group.fitting(bound.limit):
                prompts.append(([*group.prefix, *tail], forms))
                given.append(torch.tensor(answers[index].logprobs).softmax(-1)[0].item())
    every = max(1, len(prompts) // SEPARATE)
    return prompts[::every], given[::every]


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


def in_single_precision(setting: Setting, bound: LiveBackend, model: str | None) -> tuple[Any, str | None]:
    """The weights of the judge in single precision, and its adapter."""
    if setting.policy is not None and bound.adapter is not None:
        torch.manual_seed(0)
        return setting.policy().float(), "default"  # TRL copies the adapter that is trained further to "ref"
    kwargs = {
        name: value
        for name, value in (setting.options.get("model_init_kwargs") or {}).items()
        if name == "num_hidden_layers"
    }
    loaded = AutoModelForCausalLM.from_pretrained(model or pocket_dir(), dtype=torch.float32, **kwargs)
    return loaded.eval(), None


def times(bound: LiveBackend, calls: list[Call], steps: list[float]) -> tuple[float, float]:
    """The seconds of the last call's reads per second of a plain prefill of their floor, and the reward's own part of
    the last step."""
    last = calls[-1]
    floor = sum(result.floor_tokens for _, _, result in last.reads)
    own = (last.seconds - last.passing) / steps[-1]
    if not bound.sharded:
        return last.reading / prefill(bound, last.reads, floor), own
    return float("nan"), own


def prefill(bound: LiveBackend, reads: list, floor: int) -> float:
    """Seconds of plain forward passes over as many tokens as the floor has, in rows as long as the prompts are on
    average, without masks, with the output head at the last token only. The shorter of two runs."""
    prompts, _ = prompts_of(bound, reads)
    length = round(sum(len(ids) for ids, _ in prompts) / len(prompts))
    batch = max(1, min(bound.max_batch_tokens, 2048) // length)  # as the engine on a CPU
    count = -(-floor // length)
    device = bound.model.get_input_embeddings().weight.device
    ids = torch.arange(count * length, device=device).reshape(count, length) % 997 + 1
    ids = ids.flatten()[:floor]
    whole, rest = ids[: floor // length * length].reshape(-1, length), ids[floor // length * length :]
    batches = [*whole.split(batch), *([rest[None]] if len(rest) else [])]
    found = []
    with frozen(bound.model, bound.adapter):
        for _ in range(2):
            started = time.perf_counter()
            for some in batches:
                bound.model(input_ids=some, use_cache=False, logits_to_keep=1)
            found.append(time.perf_counter() - started)
    return min(found)


def writing() -> bool:
    """Whether the tables of the documentation are to be written."""
    return bool(os.environ.get("CHECKLIST_REWARDS_WRITE_DOCS"))
