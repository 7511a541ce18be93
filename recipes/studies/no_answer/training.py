"""What both studies of thoughts that are cut share: a policy is taught to think first, then trained by GRPO.

[`teach`] fine-tunes a policy on replies that begin with `<think>...</think>`. [`grpo`] trains it with TRL's
`GRPOTrainer` and a [`LoggedReward`] as the only reward, and [`read_log`] returns what the reward has logged.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from pocket.grpo_run import N, console
from torch.nn import functional
from transformers import PrinterCallback, ProgressCallback
from trl import GRPOConfig, GRPOTrainer

from checklist_rewards.chat import CompletionReader
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.trl import ChecklistReward

if TYPE_CHECKING:
    from peft import PeftConfig

Draw = Callable[[random.Random], tuple[str, str]]
"""Draws an instruction and the reply that is taught."""


class LoggedReward(ChecklistReward):
    """The checklist reward. Its log has the whole completion, with its thought, as `whole`."""

    def record(self, call: Call) -> None:
        more = call.log_fields or [{}] * len(call.completions)
        wholes = [{"whole": one[-1]["content"], **rest} for one, rest in zip(call.completions, more, strict=True)]
        super().record(replace(call, log_fields=wholes))


@dataclass(frozen=True)
class Completion:
    """A completion of the policy, as the reward has logged it.

    Args:
        state (`str`): The state of its target; see [`Target`].
        answer (`str`): The text that may be judged; "" if there is none.
        thought (`str`, *optional*): The thought before it.
        whole (`str`): All that the policy wrote.
        read (tuple of `str`): The texts that the judge has read for it, one per read, if the reward records them.
    """

    step: int
    prompt: str
    state: str
    answer: str
    thought: str | None
    reward: float | None
    whole: str
    read: tuple[str, ...] = ()


def read_log(path: Path) -> list[Completion]:
    """The completions of a log that a [`LoggedReward`] has written."""
    reader = CompletionReader()
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [
        Completion(
            # The trainer counts finished steps.
            line["step"] + 1,
            line["prompt"][-1]["content"] if isinstance(line["prompt"], list) else line["prompt"],
            line["state"],
            line["completion"],
            reader.read(line["whole"]).thought,
            line["reward"],
            line["whole"],
            tuple(line.get("read", ())),
        )
        for line in lines
    ]


def by_step(completions: Sequence[Completion]) -> Iterator[tuple[int, list[Completion]]]:
    """The completions of each step, in order."""
    for step in sorted({one.step for one in completions}):
        yield step, [one for one in completions if one.step == step]


def shares(states: Sequence[str]) -> dict[str, float]:
    """The share of each state of a completion that is not answered in full."""
    return {name: fmean(state == name for state in states) for name in ("cut_in_thought", "empty", "cut")}


def mean_words(texts: Sequence[str | None]) -> float:
    """Mean number of words of texts; None has none."""
    return fmean(len((text or "").split()) for text in texts)


def teach(
    model: Any, tokenizer: Any, draw: Draw, *, steps: int, batch: int, learning_rate: float, seed: int = 0
) -> float:
    """Fine-tune a policy on instructions and replies; returns the loss of the last step. The prompt is not trained."""
    rng = random.Random(seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
    model.train()
    loss = torch.tensor(0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / 10) * (1 - step / steps)
        tokens, labels = _batch(tokenizer, [draw(rng) for _ in range(batch)])
        # Padded on the right, so the causal mask is enough.
        logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 20 == 0:
            console.print(f"taught to think, step {step + 1} of {steps}, loss {loss.item():.2f}")
    model.eval()
    return loss.item()


def _batch(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded token ids and labels; a label is -100 where nothing is trained."""
    rows = []
    for instruction, reply in pairs:
        messages = [{"role": "user", "content": instruction}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        answer = tokenizer(reply + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        rows.append(([*prompt, *answer], [-100] * len(prompt) + answer))
    longest = max(len(tokens) for tokens, _ in rows)

    def padded(values: list[int], value: int) -> list[int]:
        return values + [value] * (longest - len(values))

    tokens = torch.tensor([padded(tokens, tokenizer.pad_token_id) for tokens, _ in rows])
    return tokens, torch.tensor([padded(labels, -100) for _, labels in rows])


def grpo(
    model: Any,
    tokenizer: Any,
    dataset: Dataset,
    reward: ChecklistReward,
    output: Path,
    *,
    steps: int,
    groups: int,
    tokens: int,
    learning_rate: float,
    seed: int,
    masked: bool = False,
    adapter: PeftConfig | None = None,
) -> list[dict[str, float]]:
    """Train a policy by GRPO on one reward; returns the trainer's log, one entry per step.

    Args:
        model, tokenizer: the policy. The model is changed.
        groups, tokens (`int`): prompts per step, with `N` completions each; most tokens of a completion.
        masked (`bool`, *optional*, defaults to `False`): TRL's `mask_truncated_completions`.
        adapter (*optional*): train an adapter with this configuration instead of all parameters.
    """
    config = GRPOConfig(
        output_dir=str(output / "trainer"),
        # On a CPU, where bf16 is slow, and as the published figures were measured: without checkpoints.
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=groups * N,
        num_generations=N,
        max_completion_length=tokens,
        mask_truncated_completions=masked,
        temperature=1.0,
        beta=0.0,
        learning_rate=learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=min(5, steps - 1),
        max_steps=steps,
        logging_steps=1,
        save_strategy="no",
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        train_dataset=dataset,
        processing_class=tokenizer,
        reward_funcs=reward,
        peft_config=adapter,
    )
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]
