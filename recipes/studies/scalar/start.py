"""The language model from which every reward of the study is trained. It was not trained to judge.

The packaged pocket model is already a judge. Here its upper half has new random weights, and the whole model is then
trained on parts of its curriculum without judging: copying, writing checklists and following instructions. It knows
the words and the instructions of the world. The lower half saw questions when the pocket model was trained, so a rest
of that skill may remain: the study measures what the answers are worth before any label.

With new weights in all layers, no rest remains, but then the model knows too little: 1,000 labels taught it nothing.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from pocket import data
from pocket.grpo_run import console
from pocket.train import collate, new_model
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards.backends import pocket_dir

STEPS, FRESH = 200, 2
"""Training steps; number of upper layers, of four, that have new weights."""
_RATE, _WARMUP = 1e-3, 20
KINDS = ("copies", "short checklists", "checklists", "responses")


def make_start(folder: Path, *, steps: int = STEPS, seed: int = 0) -> Path:
    """Train the model and save it in `folder`, unless it is there already."""
    if (folder / "model.safetensors").is_file():
        return folder
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    encoder, rng = data.Encoder(tokenizer), random.Random(seed)
    model = with_new_upper_half(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (step + 1) / _WARMUP) * (1 - step / steps)
        losses = []
        for rows in language_rows(encoder, rng):
            batch = collate(rows)  # padded on the right, so the causal mask is enough
            trained = batch["answers"] != -100
            logits = model(input_ids=batch["tokens"], use_cache=False).logits[trained]
            losses.append(functional.cross_entropy(logits, batch["answers"][trained]))
            losses[-1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 20 == 0:
            shown = "  ".join(f"{kind} {loss.item():.2f}" for kind, loss in zip(KINDS, losses, strict=True))
            console.print(f"start, step {step + 1} of {steps}, loss: {shown}")
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)  # last: its file shows that the folder is complete
    return folder


def language_rows(encoder: data.Encoder, rng: random.Random) -> list[list[data.Row]]:
    """The rows of one step, by kind (`KINDS`). None has a question about a text."""
    return [
        [data.copy_row(encoder, rng, 6) for _ in range(8)],
        [data.short_checklist_row(encoder, rng) for _ in range(4)],
        [data.checklist_row(encoder, rng) for _ in range(4)],
        [data.follow_row(encoder, rng, data.VIOLATE) for _ in range(12)],
    ]


def with_new_upper_half(seed: int) -> Any:
    """The pocket model, with new weights in its last `FRESH` layers."""
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    torch.manual_seed(seed)
    layers, new = model.model.layers, new_model(model.config.vocab_size).model.layers
    for number in range(len(layers) - FRESH, len(layers)):
        layers[number].load_state_dict(new[number].state_dict())
    return model
