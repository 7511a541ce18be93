"""One of two ranks of a GRPO run whose judge works on rank 0 only. Run by `test_trl_trainers.py` under torchrun."""

import json
import os
import sys
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from checklist_rewards.backends import pocket_dir
from tests.fakes import FakeBackend
from tests.rewards.fakes import reward_by

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
backend = FakeBackend(lambda prefix, tail: len(prefix) % 10 / 10, fails=lambda prefix, tail: rank == 1)
trainer = GRPOTrainer(
    model=str(pocket_dir()),
    reward_funcs=reward_by(backend, scorer={"no_answer": "judge"}),
    args=GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
        bf16=False,  # slow on a CPU
        save_strategy="no",  # no checkpoint is read
        logging_steps=1,  # every step is compared
        per_device_train_batch_size=2,
        num_generations=4,
        max_completion_length=8,
        max_steps=2,
        log_completions=True,
        num_completions_to_print=0,
    ),
    train_dataset=Dataset.from_list([{"prompt": f"Write {n}.", "checklist": ["Is it short?"]} for n in range(4)]),
)
trainer.train()
log = {"global_step": trainer.state.global_step, "history": trainer.state.log_history}
(folder / f"{rank}.json").write_text(json.dumps(log))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()  # else the rank that is first to leave may take the other one down
