"""Train the pocket model from scratch on a CPU: `python recipes/pocket/train.py --output checklist_rewards/pocket`.

The schedule is a curriculum (`STAGES` in stages.py). Each stage is a number of steps on a mixture of rows (data.py).
One process trains under bfloat16 autocast, another one generates the rows. From the stage `own-samples`, the policy's
own samples are among the judge's targets, as in reinforcement learning. The last three stages teach the model to
revise a response from feedback (repair.py) and to judge texts that people type (byhand.py). `--resume` continues from
a saved model at `--from-stage`. In the last stage, the learning rate decays to zero.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutputWithPast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pocket import byhand, data, repair
from pocket.save import save_pocket
from pocket.stages import STAGES, Stage
from pocket.tokenizer import END, PAD, build_tokenizer
from pocket.world import Task, sample_task

from checklist_rewards.prompts import prompts_dir, split_front_matter

PROMPTS = ("judges/item", "generators/tick")


def prompt_text(name: str) -> str:
    """The text of a prompt file without its front matter."""
    return split_front_matter((prompts_dir() / f"{name}.md").read_text(encoding="utf-8"))[1]


def prompt_hashes() -> dict[str, str]:
    """SHA-256 of the prompts that the model is trained on."""
    names = (*PROMPTS, *repair.PROMPTS)
    return {name: hashlib.sha256(prompt_text(name).encode()).hexdigest() for name in names}


def new_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer for the current prompt files."""
    later = [*map(prompt_text, repair.PROMPTS), *repair.PHRASES]
    return build_tokenizer([prompt_text(name) for name in PROMPTS], later)


def new_model(vocab_size: int) -> LlamaForCausalLM:
    """A model of the pocket architecture with random weights."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    for name, weight in model.named_parameters():  # larger weights than usual: matching starts earlier
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.1 if "embed" in name else 0.05)
    return model


class Rows(IterableDataset):
    """An endless stream of steps. A step is a list of groups of rows of similar length."""

    def __init__(self, stage: Stage, seed: int, own: list[tuple[Task, str]]) -> None:
        self.stage, self.seed, self.own = stage, seed, own

    def __iter__(self) -> Iterator[list[tuple[str, dict[str, torch.Tensor]]]]:
        torch.set_num_threads(1)
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(f"{self.seed}-{self.stage.name}-{worker.id if worker else 0}")
        encoder, stage = data.Encoder(new_tokenizer()), self.stage
        writer = repair.RepairWriter(encoder)
        own, rows = self.own, stage.rows
        judged = {"max_sentences": stage.max_sentences, "questions": stage.questions, "with_input": stage.with_input}
        kinds: dict[str, list[Callable[[], data.Row]]] = {
            "bare": [lambda: data.bare_row(encoder, rng, stage.longest, stage.near)],
            "copy": [lambda: data.copy_row(encoder, rng, stage.longest)],
            "bridge": [lambda: data.bridge_row(encoder, rng)],
            "judge": [lambda: data.judge_row(encoder, rng, own=own, **judged)],
            "hand": [lambda: byhand.plain_row(encoder, rng, stage.questions)],
            "shown": [lambda: byhand.shown_row(encoder, rng, 3)],
            "unknown": [lambda: byhand.unknown_row(encoder, rng, 4)],
            "short": [lambda: data.short_checklist_row(encoder, rng)],
            "checklist": [lambda: data.checklist_row(encoder, rng)],
            "follow": [lambda: data.follow_row(encoder, rng, stage.violate)],
            "echo": [lambda: repair.echo_row(encoder, rng)],
            "brief": [lambda: repair.brief_row(encoder, rng)],
            "revise": [lambda: writer.from_checklist(rng, own), lambda: writer.from_critique(rng, own)],
            "critique": [lambda: writer.critique(rng, own)],
        }
        while True:
            groups = {
                kind: [row() for row in kinds[kind] for _ in range(rows[kind])] for kind in kinds if kind in rows
            }
            yield [(kind, collate(some)) for kind, some in groups.items()]


def collate(rows: list[data.Row]) -> dict[str, torch.Tensor]:
    """Right-padded tensors. Padding has segment -1."""
    longest = max(len(row.tokens) for row in rows)

    def pad(values: list[int], with_: int) -> list[int]:
        return values + [with_] * (longest - len(values))

    return {
        "tokens": torch.tensor([pad(r.tokens, PAD) for r in rows]),
        "segments": torch.tensor([pad(r.segments, -1) for r in rows]),
        "positions": torch.tensor([pad(r.positions, 0) for r in rows]),
        "answers": torch.tensor([pad(r.answers, -100) for r in rows]),
    }


def tree_mask(segments: torch.Tensor) -> torch.Tensor:
    """Attention mask of shape (batch, 1, length, length): a token attends to the prefix and to its own tail."""
    n = segments.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    same = (segments[:, None, :] == 0) | (segments[:, None, :] == segments[:, :, None])
    return (causal & same).unsqueeze(1)


@lru_cache(maxsize=1)
def _compiled(model: LlamaForCausalLM) -> Callable[..., BaseModelOutputWithPast]:
    return torch.compile(model.model.forward, dynamic=True)  # 25% faster; generation uses the module without it


def answer_loss(model: LlamaForCausalLM, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
    """Mean cross-entropy at the answer positions, and the accuracy."""
    trained = batch["answers"] != -100
    hidden = _compiled(model)(
        input_ids=batch["tokens"],
        position_ids=batch["positions"],
        attention_mask=tree_mask(batch["segments"]),
        use_cache=False,
    ).last_hidden_state
    logits = model.lm_head(hidden[trained]).float()
    answers = batch["answers"][trained]
    return F.cross_entropy(logits, answers), (logits.argmax(-1) == answers).float().mean().item()


def policy_samples(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, n: int, seed: int
) -> list[tuple[Task, str]]:
    """`n` tasks of the training split with sampled responses of the model."""
    rng = random.Random(seed)
    tasks = [sample_task(rng, split="train") for _ in range(n)]
    return list(zip(tasks, generate(model, tokenizer, [(None, t.instruction) for t in tasks]), strict=True))


@torch.no_grad()
def generate(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    chats: list[tuple[str | None, str]],
    *,
    sample: bool = True,
    max_new_tokens: int = 128,
    batch: int = 128,
) -> list[str]:
    """Replies to (system, user) chats."""
    replies: list[str] = []
    for start in range(0, len(chats), batch):
        texts = [
            (f"<|system|>{system}" if system else "") + f"<|user|>{user}<|assistant|>"
            for system, user in chats[start : start + batch]
        ]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {"do_sample": False}
        with torch.autocast("cpu", torch.bfloat16):
            out = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=max_new_tokens,
                pad_token_id=PAD,
                eos_token_id=END,
                **options,
            )
        replies += tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return replies


def train(
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    stage: Stage,
    *,
    seed: int,
    workers: int,
    own: list[tuple[Task, str]],
    last: bool,
    save: Callable[[], None],
) -> None:
    """Run one stage. The learning rate warms up, and decays to zero if it is the last stage. Saves every 100 steps."""
    loader = DataLoader(Rows(stage, seed, own), batch_size=None, num_workers=workers, prefetch_factor=8)
    started, seen, sums = time.time(), 0, {}
    model.train()
    for step, groups in enumerate(loader):
        if step == stage.steps:
            break
        decay = 0.5 * (1 + math.cos(math.pi * step / stage.steps)) if last else 1.0
        for group in optimizer.param_groups:
            group["lr"] = stage.lr * min(1.0, (step + 1) / 50) * decay
        for name, batch in groups:
            with torch.autocast("cpu", torch.bfloat16):
                loss, right = answer_loss(model, batch)
            loss.backward()
            total = sums.setdefault(name, [0.0, 0.0])
            total[0], total[1] = total[0] + loss.item(), total[1] + right
            seen += batch["tokens"].numel()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            numbers = "  ".join(f"{name} {a / 50:.3f}/{b / 50:.3f}" for name, (a, b) in sums.items())
            seconds = time.time() - started
            print(
                f"{stage.name} {step + 1}/{stage.steps}  {numbers}  {seconds:.0f}s {seen / seconds:.0f} tok/s",
                flush=True,
            )
            sums = {}
        if (step + 1) % 100 == 0:
            save()


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [s.name for s in STAGES]
    parser.add_argument("--output", type=Path, required=True, help="folder to save the model in")
    parser.add_argument("--resume", type=Path, help="folder of a saved model to continue from")
    parser.add_argument("--from-stage", choices=names, default=names[0], help="first stage (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and rows (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=3, help="CPU threads of the training (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes that generate rows (default: %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = new_tokenizer()
    model = (
        LlamaForCausalLM.from_pretrained(args.resume, dtype=torch.float32)
        if args.resume
        else new_model(len(tokenizer))
    )
    if len(tokenizer) > model.config.vocab_size:  # the model was saved before the words of a later skill were added
        model.resize_token_embeddings(len(tokenizer))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(tokenizer)} tokens", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    for stage in STAGES[names.index(args.from_stage) :]:
        own = policy_samples(model.eval(), tokenizer, stage.own, args.seed) if stage.own else []
        save = partial(save_pocket, model, tokenizer, args.output, {"prompts": prompt_hashes(), "stage": stage.name})
        train(
            model, optimizer, stage, seed=args.seed, workers=args.workers, own=own, last=stage is STAGES[-1], save=save
        )
        save()
    print(json.dumps(prompt_hashes()), flush=True)


if __name__ == "__main__":
    main()
