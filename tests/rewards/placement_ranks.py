"""One of two ranks of a run with TRL's defaults that is judged by its base (`test_placement_settings.py`).

    torchrun --nproc-per-node 2 tests/rewards/placement_ranks.py FOLDER [ddp | fsdp1 | fsdp2 | zero3 ...]

With DDP, TRL's trainer runs as it is. Elsewhere a bare loop takes its place: accelerate uses FSDP only with several
GPUs, and TRL's sampling fails under ZeRO-3 on CPUs, where the embedding is not gathered.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tests.rewards.placement_settings import LORA, Measured, Setting, by_code, prompts_of, rows, trained

folder, kinds, rank = Path(sys.argv[1]), sys.argv[2:], int(os.environ["RANK"])


class Loop:
    """What a reward sees of a trainer whose policy is spread over the ranks in bf16."""

    ref_model = args = None

    def __init__(self, accelerator, kind: str):
        from peft import get_peft_model
        from transformers import AutoModelForCausalLM

        from checklist_rewards.backends import pocket_dir

        self.accelerator = accelerator
        base = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
        self.model = self.model_wrapped = get_peft_model(base, LORA).train()
        if kind == "fsdp2":
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
            for layer in base.model.layers:
                fully_shard(layer, mp_policy=policy)
            fully_shard(self.model, mp_policy=policy)
        elif kind == "zero3":
            import deepspeed

            config = {
                "zero_optimization": {"stage": 3},
                "train_micro_batch_size_per_gpu": 1,
                "bf16": {"enabled": True},
            }
            self.model_wrapped, *_ = deepspeed.initialize(model=self.model, config=config, dist_init_required=False)
        else:
            from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

            self.model_wrapped = FullyShardedDataParallel(
                self.model,
                use_orig_params=True,
                device_id=torch.device("cpu"),
                mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
            )

    def log(self, name: str, value: float) -> None:
        """The hook `log_metric` of a trainer, by which it is found."""


def in_a_loop(kind: str) -> Measured:
    from accelerate import Accelerator

    loop = Loop(Accelerator(cpu=True), kind)
    reward = Measured(model="reference", store=False, name="reads")
    some = rows(2)
    texts = [f"The {number} ronto holds this zatte{'?' * (number % 2)}" for number in range(4)]
    reward(
        prompts=[row["prompt"] for row in some for _ in range(2)],
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        checklist=[row["checklist"] for row in some for _ in range(2)],
        log_metric=loop.log,
    )
    return reward


def in_a_trainer(kind: str) -> Measured:
    reward = Measured(model="reference", store=False, name="reads")
    trained([by_code, reward], Setting(kind), folder, 1)
    return reward


def found(kind: str) -> dict:
    """What a kind has read."""
    reward = in_a_trainer(kind) if kind == "ddp" else in_a_loop(kind)
    receipt = reward.scorer.receipt
    prompts, given = prompts_of(reward.bound, reward.calls[-1].reads)
    return {
        "receipt": receipt.computed_tokens / receipt.floor_tokens,
        "prompts": prompts,
        "given": given,
        "sharded": reward.bound.sharded,
    }


(folder / f"{rank}.json").write_text(json.dumps({kind: found(kind) for kind in kinds}))
dist.barrier()
dist.destroy_process_group()
