"""One of two ranks of runs that are judged by their base. Run by `test_placement_{settings,reference}.py`.

    torchrun --nproc-per-node 2 tests/rewards/placement_ranks.py FOLDER [ddp fsdp1 fsdp2 together]

With DDP, TRL's trainer runs as it is. With FSDP, which accelerate uses only with several GPUs, a bare loop takes its
place.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from peft import get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import ModelError
from checklist_rewards.rewards.placement import references_of
from tests.conftest import REPO  # noqa: F401 - finds the recipes
from tests.rewards.fakes import Recorded
from tests.rewards.placement_settings import LORA, Measured, Setting, by_code, rows, trained

folder, kinds, rank = Path(sys.argv[1]), sys.argv[2:], int(os.environ["RANK"])


class Loop:
    """What a reward sees of a trainer whose policy is spread over the ranks."""

    ref_model = args = None

    def __init__(self, kind: str, dtype: torch.dtype | None = torch.bfloat16):
        torch.manual_seed(0)
        self.accelerator = Accelerator(cpu=True)
        base = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
        self.model = self.model_wrapped = get_peft_model(base, LORA).train()
        if kind == "fsdp2":
            policy = MixedPrecisionPolicy(param_dtype=dtype)
            for layer in base.model.layers:
                fully_shard(layer, mp_policy=policy)
            fully_shard(self.model, mp_policy=policy)
        else:
            self.model_wrapped = FullyShardedDataParallel(
                self.model,
                use_orig_params=True,
                device_id=torch.device("cpu"),
                mixed_precision=MixedPrecision(param_dtype=dtype),
            )

    def log(self, name: str, value: float) -> None:
        """The hook `log_metric` of a trainer, by which it is found."""

    def step(self) -> float:
        """Train on a batch."""
        if not hasattr(self, "optimizer"):
            self.optimizer = torch.optim.AdamW([w for w in self.model.parameters() if w.requires_grad], lr=1e-2)
        ids = torch.arange(40).reshape(2, 20) + rank
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def texts(count: int) -> list[str]:
    return [f"The {number} ronto holds this zatte{'?' * (number % 2)}" for number in range(count)]


def reads(kind: str) -> dict:
    """What a reference of this kind has read of four completions, and at which cost."""
    reward = Measured(model="reference", store=False, name="reads")
    if kind == "ddp":
        trained([by_code, reward], Setting(), folder, 1)
    else:
        some = [row for row in rows(2) for _ in range(2)]
        reward(
            prompts=[row["prompt"] for row in some],
            completions=[[{"role": "assistant", "content": text}] for text in texts(4)],
            checklist=[row["checklist"] for row in some],
            log_metric=Loop(kind).log,
        )
    prompts, given = reward.prompts()
    return {"receipt": reward.computed, "prompts": prompts, "given": given, "sharded": reward.bound.sharded}


def batch(step: int) -> dict:
    """Completions of which one rank has more than the other, and none in the second step."""
    questions = ["Does the response contain a digit?", "Does the response end with a question mark?"]
    count = [[3, 1], [2, 0], [1, 4]][step][rank]
    return {
        "prompts": ["Write."] * 4,
        "completions": (texts(count) + ["x"] * 4)[:4],
        "checklist": ([questions[: 1 + n % 2] for n in range(count)] + [None] * 4)[:4],
    }


def together() -> dict:
    """A loop with parts of the weights, next to one whose policy judges nothing."""
    loop, plain = Loop("fsdp2", dtype=None), Loop("fsdp2", dtype=None)
    own = Recorded(model="reference", store=False, name="own")
    copy = Recorded(model="pocket", backend="transformers", store=False, name="copy")
    watched = Recorded(model="reference", store=False, monitor={"extra_reads": 1.0, "held_out": 0.0})
    losses: dict = {"losses": [], "plain": []}
    for step in range(3):
        torch.manual_seed(step)
        for reward in (own, watched, copy):
            reward(**batch(step), log_metric=loop.log)
        losses["losses"].append(loop.step())
        torch.manual_seed(step)
        losses["plain"].append(plain.step())
    bound = references_of(own.scorer.judge)[0].bound
    try:  # a rank that fails ends all
        with bound.together():
            if rank:
                raise KeyError("the data of rank 1")
            own.scorer.judge.answer([])
            bound.read([], ())
    except (KeyError, ModelError) as error:
        losses["error"] = f"{type(error).__name__}: {error}"
    rewards = {"own": own.given, "watched": watched.given, "copy": copy.given}
    return {**losses, **rewards, "sharded": bound.sharded, "identity": bound.identity}


found = {kind: together() if kind == "together" else reads(kind) for kind in kinds}
(folder / f"{rank}.json").write_text(json.dumps(found))
dist.barrier()
dist.destroy_process_group()
