"""GRPO with checklists as the reward: a dataset with `prompt` and `checklist` in, a trained policy out.

    python recipes/grpo.py --config recipes/pocket/grpo/config_cpu.yaml --dataset_name checklists.jsonl
    accelerate launch --config_file recipes/accelerate_configs/zero3.yaml recipes/grpo.py \
        --config recipes/Qwen2.5-7B-Instruct/grpo/config_vllm_judge.yaml --dataset_name checklists.parquet

A config holds the arguments of `trl.GRPOConfig` and `trl.ModelConfig`, where the data is, and under `reward` those of
`ChecklistReward` with its scorer (the same keys as in the file that CHECKLIST_REWARDS_CONFIG names). Every one of them
can be given on the command line too, `reward` as JSON. The judge and the data are checked before the policy is loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
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
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.trl import ChecklistReward

READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}


@dataclass
class ScriptArguments:
    """What is trained on, and what for."""

    dataset_name: str = field(metadata={"help": "A Hub id, a folder or a file (.jsonl, .json, .parquet)."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a Hub dataset."})
    dataset_train_split: str = field(default="train", metadata={"help": "A single file is this split."})
    dataset_test_split: str = field(default="test", metadata={"help": "Read if `eval_strategy` is not no."})
    reward: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Arguments of ChecklistReward and ChecklistScorer, as a mapping or as JSON."}
    )

    def __post_init__(self):
        self.reward = json.loads(self.reward) if isinstance(self.reward, str) else self.reward or {}


def load_splits(script: ScriptArguments) -> DatasetDict:
    """The dataset's splits; a single file, or a folder of one dataset, is its train split."""
    path = Path(script.dataset_name)
    if path.is_file():
        if path.suffix not in READERS:
            raise SampleError(f"{path}: unknown kind of file; allowed: {', '.join(READERS)}.")
        return load_dataset(READERS[path.suffix], data_files={script.dataset_train_split: str(path)})
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        saved = load_from_disk(str(path))
        return DatasetDict({script.dataset_train_split: saved}) if isinstance(saved, Dataset) else saved
    return load_dataset(script.dataset_name, name=script.dataset_config)


def check_checklists(dataset: Dataset, column: str, where: str) -> None:
    """Refuse a dataset whose checklists would stop the run halfway."""
    if column not in dataset.column_names:
        raise SampleError(f"{where} has no column {column!r}; it has {', '.join(dataset.column_names)}.")
    for number, value in enumerate(dataset[column], start=1):
        if value is not None:
            Checklist.parse(value, f"{where}, row {number}")


def main(script: ScriptArguments, training: GRPOConfig, model: ModelConfig) -> GRPOTrainer:
    reward = ChecklistReward(**script.reward)
    reward.scorer.check()
    splits = load_splits(script)
    train = splits[script.dataset_train_split]
    test = splits[script.dataset_test_split] if training.eval_strategy != "no" else None
    for name, dataset in ((script.dataset_train_split, train), (script.dataset_test_split, test)):
        if dataset is not None:
            check_checklists(dataset, reward.column, f"{script.dataset_name} ({name})")

    training.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }
    trainer = GRPOTrainer(
        model=resolve_model(model.model_name_or_path),
        reward_funcs=[reward],
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
