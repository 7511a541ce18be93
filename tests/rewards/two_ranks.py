"""One of two ranks of a GRPO run whose judge works on rank 0 only. Run by `test_trl_trainers.py` under torchrun."""

import json
import os
import sys
from pathlib import Path

from tests.conftest import REPO  # noqa: F401 - finds the recipes
from tests.fakes import FakeBackend
from tests.rewards.fakes import reward_by
from tests.rewards.test_trl_trainers import train

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
backend = FakeBackend(lambda prefix, tail: len(prefix) % 10 / 10, fails=lambda prefix, tail: rank == 1)
data = [{"prompt": f"Write {n}.", "checklist": ["Is it short?"]} for n in range(4)]
sizes = {"per_device_train_batch_size": 2, "num_generations": 4, "max_completion_length": 8}
trainer = train(reward_by(backend, scorer={"no_answer": "judge"}), folder, data=data, **sizes)
log = {"global_step": trainer.state.global_step, "history": trainer.state.log_history}
(folder / f"{rank}.json").write_text(json.dumps(log))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()  # else the rank that is first to leave may take the other one down
