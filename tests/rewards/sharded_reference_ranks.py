"""One of two ranks with parts of a LoRA policy (FSDP2) that its base judges. Run by `test_placement_reference.py`.

accelerate uses FSDP only with several GPUs, so a bare loop takes the trainer's place here.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import ModelError
from checklist_rewards.rewards.placement import references_of
from checklist_rewards.rewards.trl import ChecklistReward

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
QUESTIONS = ["Does the response contain a digit?", "Does the response end with a question mark?"]


class Loop:
    """What a reward sees of a trainer."""

    def __init__(self, accelerator: Accelerator):
        torch.manual_seed(0)
        base = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
        self.model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)).train()
        for layer in self.model.base_model.model.model.layers:
            fully_shard(layer)
        fully_shard(self.model)
        self.accelerator, self.ref_model, self.args = accelerator, None, None
        self.optimizer = torch.optim.AdamW([w for w in self.model.parameters() if w.requires_grad], lr=1e-2)

    def log(self, name: str, value: float) -> None:
        """The hook `log_metric` of a trainer, by which it is found."""

    def step(self) -> float:
        ids = torch.arange(40).reshape(2, 20) + rank
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def batch(step: int) -> dict:
    """Completions of which one rank has more than the other, and none in the second step."""
    count = [[3, 1], [2, 0], [1, 4]][step][rank]
    texts = [f"The {n} ronto holds this zatte{'?' * (n % 2)}" for n in range(count)]
    return {
        "prompts": ["Write."] * 4,
        "completions": (texts + ["x"] * 4)[:4],
        "checklist": ([QUESTIONS[: 1 + n % 2] for n in range(count)] + [None] * 4)[:4],
    }


accelerator = Accelerator(cpu=True)
loop, plain = Loop(accelerator), Loop(accelerator)
own = ChecklistReward(model="reference", store=False, name="own")
watched = ChecklistReward(model="reference", store=False, monitor={"extra_reads": 1.0, "held_out": 0.0})
copy = ChecklistReward(model="pocket", backend="transformers", store=False, name="copy")
found: dict = {"own": [], "watched": [], "copy": [], "losses": [], "plain": []}
for step in range(3):
    torch.manual_seed(step)
    for name, reward in (("own", own), ("watched", watched), ("copy", copy)):
        found[name].append(reward(**batch(step), log_metric=loop.log))
    found["losses"].append(loop.step())
    torch.manual_seed(step)
    found["plain"].append(plain.step())
bound = references_of(own.scorer.judge)[0].bound
found |= {"sharded": bound.sharded, "identity": bound.identity}
try:  # a rank that fails ends all
    with bound.together():
        if rank:
            raise KeyError("the data of rank 1")
        own.scorer.judge.answer([])
        bound.read([], ())
except (KeyError, ModelError) as error:
    found["error"] = f"{type(error).__name__}: {error}"
(folder / f"{rank}.json").write_text(json.dumps(found))
dist.barrier()
dist.destroy_process_group()
