"""DPO on preference pairs written by `checklist-rewards pairs`.

    checklist-rewards pairs ranked.jsonl -o pairs.jsonl --select rlcf
    python recipes/dpo.py --config recipes/pocket/dpo/config_cpu.yaml --dataset_name pairs.jsonl

A config has the arguments of `trl.DPOConfig` and `trl.ModelConfig` and the location of the data. All arguments can
also be given on the command line. The pairs are validated before the policy is loaded. Training needs no judge.
"""

from __future__ import annotations

from datasets import Dataset
from trl import (
    DPOConfig,
    DPOTrainer,
    ModelConfig,
    TrlParser,
    get_peft_config,
    get_quantization_config,
)

from checklist_rewards.backends import resolve_model
from checklist_rewards.datasets.splits import DataArguments, load_splits
from checklist_rewards.errors import SampleError
from checklist_rewards.preferences import PROMPT_PARTS

COLUMNS = ("prompt", "chosen", "rejected")


def preferences(dataset: Dataset, where: str) -> Dataset:
    """The columns that DPO needs. Raises [`SampleError`] if one is missing or chosen equals rejected."""
    missing = [name for name in COLUMNS if name not in dataset.column_names]
    if missing:
        raise SampleError(
            f"{where}: column not found: {', '.join(map(repr, missing))}; the columns are "
            f"{', '.join(dataset.column_names)} (create pairs with `checklist-rewards pairs`)."
        )
    # Checklists and answers are dropped, because nested columns slow down tokenization.
    dataset = dataset.select_columns([*COLUMNS, *(name for name in PROMPT_PARTS if name in dataset.column_names)])
    for number, row in enumerate(dataset, start=1):
        empty = [name for name in COLUMNS if row[name] is None]
        if empty:
            raise SampleError(f"{where}, row {number}: {empty[0]!r} is null; a pair needs {', '.join(COLUMNS)}.")
        if row["chosen"] == row["rejected"]:
            raise SampleError(f"{where}, row {number}: chosen and rejected are the same, {row['chosen']!r:.60}.")
    return dataset


def main(script: DataArguments, training: DPOConfig, model: ModelConfig) -> DPOTrainer:
    train, test = load_splits(script, evaluates=training.eval_strategy != "no")
    train = preferences(train, f"{script.dataset_name} ({script.dataset_train_split})")
    if test is not None:
        test = preferences(test, f"{script.dataset_name} ({script.dataset_test_split})")

    training.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }
    trainer = DPOTrainer(
        model=resolve_model(model.model_name_or_path),
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


def parse(arguments: list[str] | None = None) -> tuple[DataArguments, DPOConfig, ModelConfig]:
    return TrlParser((DataArguments, DPOConfig, ModelConfig)).parse_args_and_config(arguments)


if __name__ == "__main__":
    main(*parse())
