"""Reads of prompts with images, on every architecture, are those of the model itself.

The reference has nothing of ours: the ids and pixels that the model's processor gives for the whole conversation, and
a plain forward pass of the model per prompt. The table in `docs/compatibility.md` is this suite's; write it again with
`CHECKLIST_REWARDS_WRITE_DOCS=1 pytest tests/backends/test_vision_architectures.py`.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForImageTextToText, ProcessorMixin

from checklist_rewards.backends import Answer, ReadGroup, Sampling
from checklist_rewards.backends.base import Usage
from checklist_rewards.backends.live import LiveBackend
from checklist_rewards.backends.tokens import load_chat_tokenizer
from checklist_rewards.backends.vision import Eyes, Views, load_processor
from checklist_rewards.images import image_of, parts
from tests.backends.answers import LABELS
from tests.backends.architectures import check_table, farthest, label_logprobs, made_once
from tests.backends.vision_architectures import VISION, build, drawing

RED, BLUE, TALL = (image_of(drawing("red")), image_of(drawing("blue")), image_of(drawing("green", (56, 140))))
TAILS = ("Is it short?", "Is it long? Really?", "Does it tell a story with many words in it? " * 2)
INPUT = f"Look at this {RED.mark} and say what it is. "
GROUPS = [
    ReadGroup("You judge.", INPUT + "A short target. ", TAILS),
    ReadGroup("You judge.", INPUT + "Some words are here. " * 9, TAILS),
    ReadGroup("You judge.", f"Look at this {BLUE.mark} and say what it is. A short target. ", TAILS),
    ReadGroup(
        None, f"{TALL.mark} Compare it with {RED.mark} Other words stand there. " + "So many words. " * 5, TAILS
    ),
]


PROMPTS = [
    [{"role": "user", "content": f"What is {image.mark}this? " + "Say it . " * count}]
    for image, count in ((RED, 1), (BLUE, 4), (TALL, 2))
]
# One for each kind of positions, of layers and of cutting an image into tiles.
ONE_OF_A_KIND = ("Qwen2-VL", "Qwen3.5", "Idefics3", "LLaVA-OneVision", "Gemma 3")

folder_of, engine_of = made_once(build)


@functools.cache
def read_by(name: str) -> tuple[list[Answer], Usage]:
    """The answers of the engine, and what it has computed for them."""
    return engine_of(name).read(GROUPS, LABELS)


def whole(processor, group: ReadGroup, tail: str):
    """The processor's own call for a conversation."""
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": part.pillow}
        for part in parts(group.prefix + tail)
    ]
    blocks = "is string" not in processor.chat_template
    rules = [{"type": "text", "text": group.system}] if blocks else group.system
    system = [{"role": "system", "content": rules}] if group.system else []
    return ProcessorMixin.apply_chat_template(  # SmolVLM's own asks the part for videos, which needs torchvision
        processor,
        [*system, {"role": "user", "content": content}],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )


@functools.cache
def alone(name: str, adapter: str | None) -> list[torch.Tensor]:
    """ln P(label) of every read by the model itself, one prompt at a time."""
    processor = load_processor(folder_of(name))
    model = AutoModelForImageTextToText.from_pretrained(folder_of(name), dtype=torch.float32).eval()
    if adapter is not None:
        model.load_adapter(adapter)
    forms = engine_of(name).tokens.label_groups(LABELS)
    prompts = [whole(processor, group, tail) for group in GROUPS for tail in group.tails]
    with torch.inference_mode():
        return [label_logprobs(model(**prompt).logits, forms) for prompt in prompts]


def distance(name: str, answers: Sequence[Answer], adapter: str | None = None) -> float:
    """The largest difference of a read's log-probabilities from those of the model itself."""
    return farthest(answers, alone(name, adapter))


@pytest.mark.parametrize("name", VISION)
def test_reads_with_images_are_those_of_a_plain_forward_pass(name):
    answers, usage = read_by(name)
    assert distance(name, answers) < 1e-4
    if VISION[name].shares:
        assert usage.separate == 0
        assert usage.floor_tokens <= usage.computed_tokens < 0.6 * usage.prompt_tokens
    else:
        assert usage.separate == len(answers) and usage.computed_tokens == usage.prompt_tokens


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_separate_prompts_in_padded_batches_are_read_exactly(name, monkeypatch):
    engine = engine_of(name)
    monkeypatch.setattr(engine, "_shares_images", False)
    answers, usage = engine.read(GROUPS, LABELS)
    assert distance(name, answers) < 1e-4
    assert usage.separate == len(answers) and usage.computed_tokens == usage.prompt_tokens


@pytest.mark.parametrize("name", VISION)
def test_a_model_in_memory_has_the_identity_of_its_files(name):
    """Also where transformers renames the weights of the files."""
    model = AutoModelForImageTextToText.from_pretrained(folder_of(name), dtype=torch.float32)
    assert LiveBackend(model, load_processor(folder_of(name))).identity == engine_of(name).identity


@pytest.mark.parametrize("name", VISION)
def test_a_prompt_has_the_same_tokens_alone_and_among_others(name):
    chat, processor = load_chat_tokenizer(folder_of(name)), load_processor(folder_of(name))

    def tokens(*groups):
        eyes = Eyes(chat, processor, engine_of(name).model.config)
        views = Views(eyes)
        return [views.named(group.prefix + tail) for group in eyes.groups(groups, views) for tail in group.tails]

    groups = [*GROUPS, ReadGroup(None, f"{RED.mark}", TAILS)]
    alone = [prompt for group in groups for tail in TAILS for prompt in tokens(replace(group, tails=(tail,)))]
    assert tokens(*groups) == alone


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_replies_to_a_batch_with_images_are_those_to_single_prompts(name):
    engine, sampling = engine_of(name), Sampling(max_tokens=8)
    replies = engine.generate(PROMPTS, sampling)
    assert replies == [engine.generate([prompt], sampling)[0] for prompt in PROMPTS]
    [message] = PROMPTS[0]
    inputs = whole(load_processor(folder_of(name)), ReadGroup(None, message["content"], ()), "")
    written = engine.model.generate(**inputs, do_sample=False, max_new_tokens=8)[0, inputs["input_ids"].shape[1] :]
    text = engine.tokens.decode(written.tolist()).removesuffix(engine.tokens.tokenizer.eos_token)
    assert replies[0][0].text == text


def test_the_table_in_the_documentation_is_this_suites():
    rows = []
    for name in VISION:
        answers, usage = read_by(name)
        difference = "1e-5" if distance(name, answers) < 1e-5 else "1e-4"
        shared = "separate prompts" if usage.separate else "shared"
        tokens = f"{usage.prompt_tokens:,} | {usage.computed_tokens:,} | {usage.floor_tokens:,}"
        rows.append(f"| {name} | {shared} | < {difference} | {tokens} |")
    head = "| architecture | prefix with images | difference | tokens of all prompts | computed | floor |"
    check_table("vision architectures", "\n".join([head, "|---|---|---|---|---|---|", *rows, ""]))
