"""One of two ranks whose trainer shards models; each loads a judge. Run by `test_engine_loading.py` under torchrun."""

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist
from transformers.integrations import deepspeed

from checklist_rewards.backends import ReadGroup, Sampling
from checklist_rewards.backends.transformers import TransformersBackend


class Zero3:
    """What transformers asks of a DeepSpeed configuration; DeepSpeed itself does not have to be installed."""

    config = {"zero_optimization": {"stage": 3}}

    def is_zero3(self) -> bool:
        return True


def p_yes(judge) -> float:
    group = ReadGroup(None, "The bakto is old?", ("Does it end with a question mark?",))
    return judge.read([group], ("yes", "no"))[0][0].logprobs[0]


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {}

    zero3 = Zero3()  # transformers holds a weak reference
    deepspeed.set_hf_deepspeed_config(zero3)
    judge = TransformersBackend("pocket")
    found["zero3"] = p_yes(judge)
    found["policies are still sharded"] = deepspeed.is_deepspeed_zero3_enabled()
    if rank == 1:  # alone: it must not wait for the other rank
        judge.generate([[{"role": "user", "content": "Say hello."}]], Sampling(max_tokens=4))
    dist.barrier()
    deepspeed.unset_hf_deepspeed_config()

    os.environ |= {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
    found["fsdp"] = p_yes(TransformersBackend("pocket"))
    found["environment"] = os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"]

    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
