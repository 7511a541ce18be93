"""Train the judge and the policy of the drawn world from scratch, on a CPU.

A token of an image is one cell of the drawing. The language model is trained first on *words*: a cell is the sum of
the embeddings of its colour, its shape and its column, so that the words of a question match it from the start. Then
the vision tower and the projector learn to make these sums from pixels. The last steps train all parts on pixels.
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, LlavaConfig, LlavaProcessor
from transformers import LlavaForConditionalGeneration as Model
from transformers import PreTrainedTokenizerFast as Words
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawings import world
from drawings.world import ASKED, CELL, COLOURS, COLUMNS, KINDS, NAMED, PIXELS, SHAPES, SIDE, Drawing

SPECIAL = ("<pad>", "<unk>", "<user>", "<assistant>", "<end>", "<image>")
PAD, UNKNOWN, USER, ASSISTANT, END, IMAGE = range(len(SPECIAL))
_OTHERS = (
    "empty yes no : / ? , 1 2 3 4 a and of the on shape shapes what is drawn are there exactly number every named"
)
WORDS = (*COLOURS, *SHAPES, *SHAPES.values(), *COLUMNS, *_OTHERS.split())
IDS = {token: number for number, token in enumerate(dict.fromkeys((*SPECIAL, *WORDS)))}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
    "{% if m.role == 'assistant' %}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def processor() -> LlavaProcessor:
    """The processor: a token per word in lower case, and a token per cell. The numbered tags around data are `:` and
    `/`, so the tags have no numbers that a tiny model would have to ignore."""
    core = Tokenizer(models.WordLevel(IDS, unk_token="<unk>"))
    core.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(f"<{slash}[a-z]+-[0-9]+>"), f" {mark} ") for slash, mark in (("/", "/"), ("", ":"))]
        + [normalizers.Lowercase()]
    )
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    names: dict[str, Any] = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>", "padding_side": "left"}
    names |= {"extra_special_tokens": {"image_token": "<image>"}, "chat_template": TEMPLATE}
    tokens = Words(tokenizer_object=core, model_max_length=256, **names)
    size = {"height": PIXELS, "width": PIXELS}
    pixels = CLIPImageProcessorPil(size={"shortest_edge": PIXELS}, crop_size=size)
    settings: dict[str, Any] = {"patch_size": CELL, "num_additional_image_tokens": 1, "chat_template": TEMPLATE}
    return LlavaProcessor(pixels, tokens, vision_feature_select_strategy="default", **settings)


def build(hidden: int = 128, layers: int = 3) -> Model:
    """The model with random weights."""
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
    text = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers, **tokens}
    text |= {"num_attention_heads": hidden // 32, "num_key_value_heads": hidden // 32, "head_dim": 32}
    vision = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"initializer_range": 0.1, "image_size": PIXELS, "patch_size": CELL}
    config = LlavaConfig(
        text_config={"model_type": "llama", **text, "vocab_size": len(IDS)}
        | {"max_position_embeddings": 256, "tie_word_embeddings": True, "initializer_range": 0.05},
        vision_config={"model_type": "clip_vision_model", **vision},
        image_token_index=IMAGE,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    model = Model(config)
    model.set_attn_implementation("eager")  # on a CPU, twice as fast with the mask of a batch
    model.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=PAD)
    return model


@functools.lru_cache(200_000)
def ids(text: str) -> list[int]:
    """The ids of a text; the tokenizer's, but faster."""
    return [IDS.get(word, UNKNOWN) for word in re.findall(r"<[a-z]+>|\w+|[^\w\s]", text.lower())]


def cells(drawing: Drawing) -> list[list[int]]:
    """The words of each cell: colour, shape and column; of an empty cell, `empty`."""
    return [
        ids(f"{' '.join(pair)} {COLUMNS[place % SIDE]}") if pair else [*ids("empty"), PAD, PAD]
        for place, pair in enumerate(drawing)
    ]


class Row(NamedTuple):
    """A drawing with texts that share a prefix. The tokens from `learned` on of each tail are learned."""

    drawing: Drawing
    prefix: str
    tails: list[str]
    learned: list[int]


def judged(drawing: Drawing, text: str, asked: Sequence[tuple[str, bool]]) -> Row:
    """Questions under the judge's prompt (`judge.md`)."""
    tails = [f"{question}<assistant>{'yes' if answer else 'no'}" for question, answer in asked]
    places = " <image>" * SIDE**2
    return Row(drawing, f"<user>:{places} {ASKED} / : {text} /", tails, [len(ids(tail)) - 1 for tail in tails])


RIGHT = 0.4
"""Fraction of the descriptions that the policy learns from and that are right: it has something left to learn."""


def described(rng: random.Random) -> Row:
    """Four descriptions of a drawing, as the policy writes them."""
    drawing, places = world.draw(rng), " <image>" * SIDE**2
    pairs = [world.some(drawing, rng, rng.random() < RIGHT) for _ in range(4)]
    tails = [f"{world.describe(pair)} <end>" for pair in pairs]
    return Row(drawing, f"<user>{places} {ASKED} <assistant>", tails, [0] * 4)


def questions(rng: random.Random, kinds: Sequence[str]) -> Row:
    """A drawing with six questions, half of them yes, and with one about a description if that is among the kinds."""
    drawing, right, about = world.draw(rng), rng.random() < 0.5, "named" in kinds
    text = world.describe(world.some(drawing, rng, right)) if about else ""
    of_image = [kind for kind in kinds if kind != "named"]
    asked = [KINDS[rng.choice(of_image)](drawing, text, rng, rng.random() < 0.5) for _ in range(6)]
    return judged(drawing, text, [one for one in asked if one] + ([(NAMED, right)] if about else []))


class Batch:
    """Rows as tensors, all texts of a row packed behind their prefix."""

    def __init__(self, rows: Sequence[Row]):
        packed = []
        self.targets: list[tuple[int, int, int]] = []
        for number, row in enumerate(rows):
            prefix = ids(row.prefix)
            tokens, positions, segments = list(prefix), list(range(len(prefix))), [0] * len(prefix)
            for place, (tail, learned) in enumerate(zip(row.tails, row.learned, strict=True), 1):
                own = ids(tail)
                start = len(tokens)
                for at in range(learned, len(own)):
                    before = start + at - 1 if at else len(prefix) - 1
                    self.targets.append((number, before, own[at]))
                tokens += own[:-1]
                positions += range(len(prefix), len(prefix) + len(own) - 1)
                segments += [place] * (len(own) - 1)
            packed.append((tokens, positions, segments))
        longest = max(len(tokens) for tokens, _, _ in packed)

        def padded(which: int, fill: int) -> torch.Tensor:
            return torch.tensor([one[which] + [fill] * (longest - len(one[which])) for one in packed])

        self.ids, self.positions, self.segments = padded(0, PAD), padded(1, 0), padded(2, -1)
        of, to = self.segments[:, None, :], self.segments[:, :, None]
        allowed = ((of == 0) | (of == to)) & torch.ones(longest, longest, dtype=torch.bool).tril()
        allowed |= torch.eye(longest, dtype=torch.bool)  # padding attends to itself
        self.mask = torch.zeros(allowed.shape).masked_fill(~allowed, -1e4)[:, None]
        self.cells = torch.tensor([cells(row.drawing) for row in rows])
        self.drawings = [row.drawing for row in rows]


def from_words(model: Model, cells: torch.Tensor) -> torch.Tensor:
    """The image tokens that the vision tower shall give: sums of embeddings."""
    table = model.get_input_embeddings()
    return (table(cells) * (cells != PAD)[..., None]).sum(-2)


def from_pixels(model: Model, reader: LlavaProcessor, drawings: Sequence[Drawing], rng: random.Random) -> torch.Tensor:
    """The image tokens of the vision tower."""
    images = [world.picture(drawing, rng) for drawing in drawings]
    pixels = torch.as_tensor(reader.image_processor(images, return_tensors="pt")["pixel_values"])
    return model.model.multi_modal_projector(model.model.vision_tower(pixels).last_hidden_state[:, 1:])


def logits(model: Model, batch: Batch, images: torch.Tensor) -> torch.Tensor:
    """The logits of each target."""
    embedded = model.get_input_embeddings()(batch.ids)
    embedded = embedded.masked_scatter((batch.ids == IMAGE)[..., None], images.to(embedded.dtype))
    out = model.model.language_model(
        inputs_embeds=embedded, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
    ).last_hidden_state
    rows, places, _ = zip(*batch.targets, strict=True)
    return model.lm_head(out[list(rows), list(places)])


def rows(rng: random.Random, step: int | None = None) -> list[Row]:
    """Rows of questions of the kinds that are asked from a step on; with all kinds, of descriptions too."""
    kinds = [*KINDS][: sum(step is None or step >= start for start in FROM)]
    made = [questions(rng, kinds) for _ in range(64)]
    made += [described(rng) for _ in range(16)] if len(kinds) == len(KINDS) else []
    return [row for row in made if row.tails]


FROM = (0, 100, 100, 400, 400)
"""The step from which on each of `KINDS` is asked: one is learned in a few hundred steps if it is not among many."""
WORDS_STEPS, LOOKS, PIXEL_STEPS = 1600, 500, 150
"""Steps on words, of the vision tower, and of all parts on pixels."""


def learn(model: Model, reader: LlavaProcessor | None, steps: int, rate: float, rng: random.Random) -> None:
    """Train on questions and descriptions: the language model on words or, with a processor, all parts on pixels."""
    weights = list((model if reader else model.model.language_model).parameters())
    optimizer = torch.optim.AdamW(weights, rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 50, (steps - step) / (0.3 * steps))
    )
    for step in range(steps):
        batch = Batch(rows(rng, None if reader else step))
        with torch.autocast("cpu", torch.bfloat16):
            seen = from_pixels(model, reader, batch.drawings, rng) if reader else from_words(model, batch.cells)
            found = logits(model, batch, seen)
        loss = cross_entropy(found.float(), torch.tensor([token for _, _, token in batch.targets]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        report("pixels" if reader else "words", step, loss)


def report(stage: str, step: int, loss: torch.Tensor) -> None:
    """Print the loss of every fiftieth step."""
    if step % 50 == 49:
        print(f"{time.process_time():.0f} s of a core, {stage} {step + 1}: {loss.item():.4f}", flush=True)


def look(model: Model, reader: LlavaProcessor, steps: int, rng: random.Random) -> None:
    """Train the vision tower and the projector to give the sums of words, on drawings that are almost full."""
    weights = [*model.model.vision_tower.parameters(), *model.model.multi_modal_projector.parameters()]
    optimizer = torch.optim.AdamW(weights, 4e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for step in range(steps):
        drawings = [tuple(rng.choice([None, *world.PAIRS, *world.PAIRS]) for _ in range(SIDE**2)) for _ in range(48)]
        with torch.no_grad():
            wanted = from_words(model, torch.tensor([cells(drawing) for drawing in drawings]))
        error = (from_pixels(model, reader, drawings, rng) - wanted).square().mean() / wanted.var()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        schedule.step()
        report("vision", step, error)


def train(output: Path, seed: int = 0) -> None:
    """Train the model and save it, with its processor, in a folder."""
    torch.manual_seed(seed)
    rng, model, reader = random.Random(seed), build(), processor()
    learn(model, None, WORDS_STEPS, 2e-3, rng)
    look(model, reader, LOOKS, rng)
    learn(model, reader, PIXEL_STEPS, 4e-4, rng)
    model.save_pretrained(output)
    reader.save_pretrained(output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/drawings/model"))
    train(parser.parse_args().output)
