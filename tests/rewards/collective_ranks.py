"""One of two ranks that run whatever the rewards exchange. Run by `test_ranks_collectives.py` under torchrun.

Groups that fail or are centred are in `group_ranks.py`, which this calls. A monitor is in
`tests/monitor/two_ranks.py`, and GRPO runs are in `two_ranks.py` and `eval_ranks.py`.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import trl
from torch import distributed
from torch.distributed.distributed_c10d import _set_pg_timeout

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import base
from checklist_rewards.chat import Target
from checklist_rewards.rewards.batch import log_to_trainer
from checklist_rewards.rewards.callback import ChecklistEvalCallback
from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer
from checklist_rewards.rewards.ranks import failed_on_any_rank, from_other_ranks, gathered
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.rewards.group_ranks import in_groups
from tests.rewards.test_callback import HELD_OUT, gold_is_best
from tests.rewards.test_reward_failures import failing, online_dpo

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])

# A trainer whose group has completions without a score on one rank.
trainer = online_dpo(folder, failing(float(rank)), ChecklistOnlineDPOTrainer)
found = {"ties": [entry["objective/ties"] for entry in trainer.state.log_history if "objective/ties" in entry]}

found["groups"] = in_groups(rank)

# The exchange itself.
found["gathered"] = gathered({"rank": rank})
found["others"] = from_other_ranks([f"{rank} a", f"{rank} b"])
found["failed"] = sorted(failed_on_any_rank({"both", f"only on {rank}"} if rank else set()))

# A trainer that sums several rewards: a failure on rank 1 takes the group on rank 0 along.
batch = dict(prompts=["A", "B"], completions=["cursed", "fine"], checklist=[["Is it red?"]] * 2)
backend = FakeBackend(fails=lambda prefix, tail: rank == 1 and "cursed" in prefix, chunk_reads=1)


class Summing(SimpleNamespace):
    reward_funcs = (1, 2)
    multi_objective_aggregation = "sum_then_normalize"

    def log_metric(self, name, value):
        """Ignore it."""


found["summed"] = ChecklistReward(ChecklistScorer(backend=backend, store=False))(
    **batch, log_metric=Summing().log_metric
)

# What TRL before 1.14 is given to log: the same names on all ranks, although rank 1 has nothing to log for "unscored".
newer, trl.__version__ = trl.__version__, "1.13.0"
logged = []
only_here = [("unscored", 0.5)] if rank == 0 else []
log_to_trainer(lambda *metric: logged.append(metric), [("score", 1.0 + rank), *only_here])
found["logged"] = logged
trl.__version__ = newer

# Time runs out on rank 1 after its first read.
clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)


def slow(prefix, tail):
    clock.now += 100 if rank == 1 else 0
    return 0.5


base.time = clock
late = ChecklistReward(
    ChecklistScorer(backend=FakeBackend(slow, chunk_reads=1), store=False), deadline=60, on_failure="group"
)
found["late"] = late(**batch)

# The judge of rank 0 takes longer than the process group allows: it works until a collective of its own has timed out.
distributed.barrier()
short = timedelta(seconds=3)
_set_pg_timeout(short)
alone = distributed.new_group(backend="gloo", timeout=short)
outlived = []


def outlives_the_timeout(prefix, tail):
    while len(outlived) < 2:
        try:
            distributed.barrier(group=alone)
        except RuntimeError as error:
            outlived.append(str(error))
    return gold_is_best(prefix, tail)


scorer = ChecklistScorer(backend=FakeBackend(outlives_the_timeout), store=False)
callback = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=1, name="held_out")
callback._generate = lambda prompts: [Target("an answer")] * len(prompts)
numbers = callback.evaluate()
found["evaluated"], found["outlived"] = sorted(numbers or ()), len(outlived)
trainer.accelerator.wait_for_everyone()  # with the timeout of the group
(folder / f"{rank}.json").write_text(json.dumps(found))
_set_pg_timeout(timedelta(seconds=60))
trainer.accelerator.wait_for_everyone()
trainer.accelerator.end_training()  # else the rank that is first to leave may take the other one down
