"""One of two ranks that evaluate held-out prompts while they train. Run by `test_callback.py` under torchrun."""

import json
import os
import sys
from pathlib import Path

from checklist_rewards.rewards.callback import ChecklistEvalCallback
from tests.rewards.test_callback import HELD_OUT, trainer_in

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "events")
trainer, scorer = trainer_in(folder, max_steps=2, report_to="tensorboard")
callback = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=2, reference_column="answer", name="held_out")
callback.generation.max_new_tokens = 8
share = []
generate = callback._generate


def counted(prompts):
    share.append(len(prompts))
    return generate(prompts)


callback._generate = counted
trainer.add_callback(callback)
trainer.train()
found = {"step": trainer.state.global_step, "history": trainer.state.log_history, "share": share}
(folder / f"{rank}.json").write_text(json.dumps(found | {"reads": len(scorer.judge.engine.backend.asked)}))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()  # else the rank that is first to leave may take the other one down
