"""GRPO with checklists as the reward, on a dataset with the columns `prompt` and `checklist`.

    python recipes/grpo.py --config recipes/pocket/grpo/config_cpu.yaml --dataset_name checklists.jsonl
    accelerate launch --config_file recipes/accelerate_configs/zero3.yaml recipes/grpo.py \
        --config recipes/Qwen2.5-7B-Instruct/grpo/config_vllm_judge.yaml --dataset_name checklists.parquet

A config has the arguments of `trl.GRPOConfig` and `trl.ModelConfig`, the location of the data, and under `reward` the
arguments of `ChecklistReward` and its scorer (the same keys as in a CHECKLIST_REWARDS_CONFIG file). `monitor` and
`evolving` are arguments of it too: with the first, the run is watched for reward hacking; with the second, the
checklists evolve. With `split: category` (or `sign`, or a mapping from parts to
categories), each part of the checklists is a reward of its own, by default with the weight of its items; combine it
with `multi_objective_aggregation: normalize_then_sum`. All arguments can also be given on the command line, the
mappings as JSON. The judge and the data are validated before the policy is loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from datasets import Dataset
from trl import (
    GRPOConfig,
    GRPOTrainer,
    ModelConfig,
    TrlParser,
    get_peft_config,
    get_quantization_config,
)

from checklist_rewards import Checklist
from checklist_rewards.backends import resolve_model
from checklist_rewards.datasets.splits import DataArguments, load_splits
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.trl import ChecklistReward


@dataclass
class ScriptArguments(DataArguments):
    """Data and reward."""

    reward: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Arguments of ChecklistReward and ChecklistScorer, as a mapping or as JSON."}
    )

    monitor: dict[str, Any] | str | None = field(
        default=None,
        metadata={"help": "Settings of the monitor, as a mapping or as JSON; {} for the defaults. Off if not given."},
    )

    split: dict[str, Any] | str | None = field(
        default=None,
        metadata={"help": "Parts of the checklists: category, sign, or a mapping (or JSON) from parts to categories."},
    )
    evolving: dict[str, Any] | str | None = field(
        default=None,
        metadata={"help": "Settings of evolving checklists, as a mapping or as JSON; {} for the defaults."},
    )

    def __post_init__(self):
        if isinstance(self.split, str) and self.split.lstrip().startswith("{"):
            self.split = json.loads(self.split)
        self.reward = json.loads(self.reward) if isinstance(self.reward, str) else self.reward or {}
        self.monitor = json.loads(self.monitor) if isinstance(self.monitor, str) else self.monitor
        self.evolving = json.loads(self.evolving) if isinstance(self.evolving, str) else self.evolving
        if self.split is not None and self.evolving is not None:
            raise ValueError("--split cannot be combined with --evolving: parts are known before training.")


def check_checklists(dataset: Dataset, column: str, where: str) -> None:
    """Validate all checklists before training, so that none stops the run halfway."""
    if column not in dataset.column_names:
        raise SampleError(f"{where}: column {column!r} not found; the columns are {', '.join(dataset.column_names)}.")
    for number, value in enumerate(dataset[column], start=1):
        if value is not None:
            Checklist.parse(value, f"{where}, row {number}")


def main(script: ScriptArguments, training: GRPOConfig, model: ModelConfig) -> GRPOTrainer:
    stages = {"monitor": script.monitor, "evolving": script.evolving}
    reward = ChecklistReward(**{**stages, **script.reward})
    reward.scorer.validate()
    train, test = load_splits(script, evaluates=training.eval_strategy != "no")
    for name, dataset in ((script.dataset_train_split, train), (script.dataset_test_split, test)):
        if dataset is not None:
            check_checklists(dataset, reward.column, f"{script.dataset_name} ({name})")

    prompts = training.generation_batch_size // training.num_generations
    if len(train) < prompts:  # the trainer would stop before its first step and save the untrained policy
        raise SampleError(
            f"{script.dataset_name} ({script.dataset_train_split}) has {len(train)} rows, but a batch needs {prompts} "
            f"(generation_batch_size={training.generation_batch_size} / num_generations={training.num_generations}); "
            "lower per_device_train_batch_size."
        )

    training.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }
    reward_funcs = [reward] if script.split is None else reward.split(script.split, dataset=chain(train, test or ()))
    if script.split is not None and training.reward_weights is None:
        training.reward_weights = [part.weight for part in reward_funcs]
    trainer = GRPOTrainer(
        model=resolve_model(model.model_name_or_path),
        reward_funcs=reward_funcs,
        args=training,
        train_dataset=train,
        eval_dataset=test,
        quantization_config=get_quantization_config(model),
        peft_config=get_peft_config(model),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model(training.output_dir)
    if training.push_to_hub:
        trainer.push_to_hub(dataset_name=script.dataset_name)
    return trainer


def parse(arguments: list[str] | None = None) -> tuple[ScriptArguments, GRPOConfig, ModelConfig]:
    return TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config(arguments)


if __name__ == "__main__":
    main(*parse())
