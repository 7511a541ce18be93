"""What `model="reference"` reads and costs in a setting of TRL's trainer: a row in docs/studies/reference.md."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
from checklist_rewards.backends.trees import branches_of
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
PAGE = Path(__file__).parents[2] / "docs" / "studies" / "reference.md"
BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->\n"
TIMED = bool(os.environ.get("CHECKLIST_REWARDS_WRITE_DOCS"))
"""Whether to measure times and to write the table. Times are those of the processor: run with OMP_NUM_THREADS=1."""
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
    losses: list[tuple[float, float]]
    """Losses and norms of gradients."""
    times: tuple[float, float] | None
    """Seconds of the reads divided by those of plain forward passes over the tokens of the floor, and the share
    of a step that the reward takes outside of the model's forward passes."""


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
        self.started = time.process_time()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.process_time() - self.started)


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
                backend.model.register_forward_pre_hook(lambda *_: passes.append(-time.process_time())),
                backend.model.register_forward_hook(lambda *_: passes.append(time.process_time())),
            ]
            started = time.process_time()
            try:
                result = read(backend, groups, labels)
            finally:
                for hook in hooks:
                    hook.remove()
            seconds.append(time.process_time() - started)
            reads.append((groups, labels, result))
            return result

        started = time.process_time()
        with patch.object(LiveBackend, "read", kept):
            rewards = super().__call__(*arguments, **columns)
        self.calls.append(Call(time.process_time() - started, sum(seconds), sum(passes), reads))
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


def measured(setting: Setting, folder, model: str | None = None) -> Figures:
    """Train in a setting, and measure the reads of its reference. Times are those of the third call of the reward and
    its step, if they are wanted ([`TIMED`]); else one step is trained."""
    reward = Measured(model="reference", store=False, name="reads")
    every = setting.options.get("num_iterations", 1) * setting.options.get("steps_per_generation", 1)
    trainer, seconds = trained([by_code, reward], setting, folder, 2 * every + 1 if TIMED else 1, model)
    bound, receipt = reward.bound, reward.scorer.receipt
    prompts, given = prompts_of(bound, reward.calls[-1].reads)
    same = probabilities(bound.model, bound.adapter, prompts)
    exact = probabilities(*in_single_precision(setting, bound, model), prompts)
    return Figures(
        receipt.computed_tokens / receipt.floor_tokens,
        difference(given, same),
        difference(given, exact),
        losses(trainer),
        times(bound, reward.calls[-1], seconds[-1]) if TIMED else None,
    )


def difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The largest difference of two series of probabilities."""
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))


def prompts_of(bound: LiveBackend, reads: list) -> tuple[list[tuple[list[int], list]], list[float]]:
    """Some of the prompts that were read, with the forms of the labels, and P(yes) of each."""
    prompts, given = [], []
    for groups, labels, (answers, _) in reads:
        forms = bound.tokens.label_groups(labels)
        for prefix, tails in branches_of(bound.tokens.groups(groups), bound.limit):
            for tail, place in tails:
                prompts.append(([*prefix, *tail], forms))
                given.append(torch.tensor(answers[place].logprobs).softmax(-1)[0].item())
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


def times(bound: LiveBackend, call: Call, step: float) -> tuple[float, float]:
    """The seconds of a call's reads per second of a plain prefill of their floor, and the reward's own part of a
    step."""
    floor = sum(usage.floor_tokens for _, _, (_, usage) in call.reads)
    return call.reading / prefill(bound, call.reads, floor), (call.seconds - call.passing) / step


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
            started = time.process_time()
            for some in batches:
                bound.model(input_ids=some, use_cache=False, logits_to_keep=1)
            found.append(time.process_time() - started)
    return min(found)


def line(name: str, receipt: float, separate: float, float32: float, times: tuple[float, float] | None) -> str:
    """A line of the table."""
    shown = ["< 0.0001" if value < 1e-4 else f"{value:.4f}" for value in (separate, float32)]
    shown += ["-", "-"] if times is None else [f"{times[0]:.2f}", f"{100 * times[1]:.1f} %"]
    return f"| {name} | {receipt:.2f} | {' | '.join(shown)} |"


def documented(name: str, new: str) -> str | None:
    """The line of the page about a setting; None if there is none. With [`TIMED`], `new` replaces it first."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    lines, after = rest.partition(END)[0].splitlines(), rest.partition(END)[2]
    place = next((number for number, each in enumerate(lines) if each.startswith(f"| {name} |")), None)
    if TIMED:
        if place is None:
            lines.append(new)
        else:
            lines[place] = new
        PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")
        return new
    return None if place is None else lines[place]
