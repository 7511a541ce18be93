"""One of two ranks that run whatever the rewards exchange. Run by `test_ranks_collectives.py` under torchrun.

A monitor is in `tests/monitor/two_ranks.py`, and GRPO runs are in `two_ranks.py` and `eval_ranks.py`.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from types import MethodType, SimpleNamespace

import trl
from PIL import Image
from torch import distributed
from torch.distributed.distributed_c10d import _set_pg_timeout

from checklist_rewards.backends import base
from checklist_rewards.chat import Target
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import log_to_trainer
from checklist_rewards.rewards.callback import ChecklistEvalCallback
from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer
from checklist_rewards.rewards.ranks import failed_on_any_rank, from_other_ranks, gathered
from tests.fakes import FakeBackend
from tests.rewards.fakes import call, reward_by, scorer_by
from tests.rewards.test_callback import HELD_OUT, gold_is_best
from tests.rewards.test_reward_failures import failing, online_dpo

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
BATCH = call(["cursed", "fine"], ["A", "B"])
APART = BATCH | {"prompts": ["A", f"only on {rank}"]}
"""The first prompt is also on the other rank."""


def broken() -> FakeBackend:
    """A judge that works on rank 0 only."""
    return FakeBackend(fails=lambda prefix, tail: rank == 1 and "cursed" in prefix, chunk_reads=1)


def differs(prefix, tail):
    return 0.2 if rank == 0 else 0.8


def hook(**trainer):
    """The hook of a trainer with these attributes."""
    return {"log_metric": MethodType(lambda self, name, value: None, SimpleNamespace(**trainer))}


def refused(reward) -> str:
    """What the asynchronous form says."""
    try:
        reward.as_async()(**BATCH).send(None)
    except SampleError as error:
        return str(error)
    return ""


# A trainer whose group has completions without a score on one rank.
trainer = online_dpo(folder, failing(float(rank)), ChecklistOnlineDPOTrainer)
found: dict = {"ties": trainer.ties}

# Groups that fail or are shaped.
red, blue = ([{"role": "user", "content": [{"image": Image.new("RGB", (8, 8), c)}]}] for c in ("red", "blue"))
by_group = reward_by(broken(), on_failure="group", images="ignore")
centred = reward_by(differs, shaping=["centred"])
parts = reward_by(differs, shaping=["item_zscore"]).split("sign")
in_order = BATCH | {"prompts": [f"A {rank} {n}" for n in range(2)], "environments": [None] * 2}
in_order |= hook(num_generations=4)
found["groups"] = {
    "rewards": by_group(**BATCH),
    "images": by_group(**BATCH | {"prompts": [red, blue]}),
    "async": [refused(one).partition(": ")[2] for one in (by_group, centred, parts[0])],
    "centred": centred(**APART),
    "in order": [centred(**in_order), by_group(**in_order)],
    **{step: reward_by(differs, shaping=[step])(**APART) for step in ("contrast", "whitened")},
    "parts": [part(**APART) for part in parts],
}

# The exchange itself.
found["gathered"] = gathered({"rank": rank})
found["others"] = from_other_ranks([f"{rank} a", f"{rank} b"])
found["failed"] = sorted(failed_on_any_rank({"both", f"only on {rank}"} if rank else set()))

# A trainer that sums several rewards: a failure on rank 1 takes the group on rank 0 along.
summing = hook(reward_funcs=(1, 2), multi_objective_aggregation="sum_then_normalize")
found["summed"] = reward_by(broken())(**BATCH, **summing)

# What TRL before 1.14 is given to log: the same names on all ranks, although rank 1 has nothing to log for "unscored".
newer, trl.__version__ = trl.__version__, "1.13.0"
logged: list = []
log_to_trainer(lambda *metric: logged.append(metric), [("score", 1.0 + rank), ("unscored", 0.5)][: 2 - rank])
found["logged"] = logged
trl.__version__ = newer

# Time runs out on rank 1 after its first read.
clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)


def slow(prefix, tail):
    clock.now += 100 if rank == 1 else 0
    return 0.5


base.time = clock
found["late"] = reward_by(FakeBackend(slow, chunk_reads=1), deadline=60, on_failure="group")(**BATCH)

# The judge of rank 0 takes longer than the process group allows: it works until a collective of its own has timed out.
distributed.barrier()
short = timedelta(seconds=3)
_set_pg_timeout(short)
alone = distributed.new_group(backend="gloo", timeout=short)
outlived: list[str] = []


def outlives_the_timeout(prefix, tail):
    while len(outlived) < 2:
        try:
            distributed.barrier(group=alone)
        except RuntimeError as error:
            outlived.append(str(error))
    return gold_is_best(prefix, tail)


callback = ChecklistEvalCallback(trainer, scorer_by(outlives_the_timeout), HELD_OUT, every=1, name="held_out")
callback._generate = lambda prompts: [Target("an answer")] * len(prompts)
numbers = callback.evaluate()
found["evaluated"], found["outlived"] = sorted(numbers or ()), len(outlived)
trainer.accelerator.wait_for_everyone()  # with the timeout of the group
(folder / f"{rank}.json").write_text(json.dumps(found))
_set_pg_timeout(timedelta(seconds=60))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()  # else the rank that is first to leave may take the other one down
