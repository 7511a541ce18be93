"""One of two ranks of a GRPO run that is judged by its base and by a copy of it (`test_placement_reference.py`)."""

import json
import os
import sys
from pathlib import Path

from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from checklist_rewards.backends import pocket_dir
from checklist_rewards.rewards.trl import ChecklistReward

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])


class Recorded(ChecklistReward):
    def __call__(self, *arguments, **columns):
        rewards = super().__call__(*arguments, **columns)
        self.given = [*getattr(self, "given", []), rewards]
        return rewards


own = Recorded(model="reference", store=False, name="own")
copy = Recorded(model="pocket", backend="transformers", store=False, name="copy")
questions = ["Does the response contain a digit?", "Does the response end with a question mark?"]
trainer = GRPOTrainer(
    model=str(pocket_dir()),
    reward_funcs=[own, copy],
    args=GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
        bf16=False,  # compared with a copy of the model that reads in float32
        save_strategy="no",  # no checkpoint is read
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8 + 4 * rank,
        max_steps=2,
    ),
    train_dataset=Dataset.from_list(
        [{"prompt": f"Write {n}.", "checklist": questions[: 1 + n % 2]} for n in range(4)]
    ),
    peft_config=LoraConfig(r=4, target_modules="all-linear"),
)
trainer.train()
log = {
    "own": own.given,
    "copy": copy.given,
    "steps": trainer.state.global_step,
    "asked": own.scorer.receipt.asked,
}
(folder / f"{rank}.json").write_text(json.dumps(log))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()
