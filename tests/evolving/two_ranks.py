"""One of two ranks that share a buffer. Run by `test_evolve_ranks.py` under torchrun."""

import json
import sys
from pathlib import Path

from accelerate import Accelerator

from tests.evolving.fakes import call, evolving, state

accelerator = Accelerator(cpu=True)
rank, folder = accelerator.process_index, Path(sys.argv[1])
# Each rank has one completion of each prompt, so no rank sees a deviation alone.
own = ["red", "red green"] if rank == 0 else ["red blue", "red"]


def rule(group):
    return ["Is it blue?"] if group.input == "One." else ["Is it green?"]


reward = evolving(rule, buffer=folder / "checklists.jsonl")
found = {"rewards": [call(reward, own, step, prompts=["One.", "Two."]) for step in range(2)]}
found |= {"state": reward.evolving.state, "groups": [group.responses for group in reward.evolving.proposer.groups]}

broken = evolving(lambda group: 1 / 0)  # rank 0 cannot propose: rank 1 must not wait for ever
found["broken"] = call(broken, own, prompts=["One.", "Two."])
found["failures"] = dict(broken.evolving.failures)

half = evolving(rule)
if rank == 1:
    read = half.scorer.score_batch
    half.scorer.score_batch = lambda samples, **more: (
        1 / 0
        if len(samples[0].checklist) == 1 and any("blue" in item.question for item in samples[0].checklist.items)
        else read(samples, **more)
    )
found["half"] = call(half, own, prompts=["One.", "Two."], trainer_state=state(0))
found["half_state"] = half.evolving.state
(folder / f"{rank}.json").write_text(json.dumps(found))
accelerator.wait_for_everyone()
accelerator.end_training()  # else the rank that is first to leave may take the other one down
