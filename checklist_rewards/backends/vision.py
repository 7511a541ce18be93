"""Images in the prompts of an engine: their tokens, and their pixels as the model takes them.

A text contains the marks of its images (`images.py`). [`Eyes`] splits it there. The text between images is data and is
tokenized as all data ([`TextEncoder`]). The tokens of an image come from the model's processor: the chat template
writes a placeholder for it, and the processor replaces it by as many tokens as the image has features.

Images of a prompt are processed together, because some processors cut an image into tiles only if it is the only one.
Equal sets of images are processed once per call ([`Views`]).

In token ids, each token that stands for a part of an image is a negative number, which belongs to this image of this
set. So prompts with different images differ in their tokens, and everything that compares prompts by their tokens
(trees, the floor, batches) holds for images. [`Views.inputs`] puts the model's own token back and adds the pixels.

Each kind of prompt (roles, order of texts and images, how the tokens of an image begin and end) is tried once, with
fixed words: it is compared with what the processor gives for the whole conversation. If the ids differ, or if the
pixels or their numbers depend on the text around an image, the model is refused. A prompt without images is tokenized
as if there were no processor. So a prompt has the same tokens alone and among others.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from checklist_rewards.backends.base import Message, Messages, ReadGroup
from checklist_rewards.backends.inputs import Inputs
from checklist_rewards.backends.models import from_hub
from checklist_rewards.backends.templates import Frame
from checklist_rewards.backends.tokens import (
    ChatTokenizer,
    Ids,
    MistralChatTokenizer,
    TokenGroup,
    chat_tokenizer,
)
from checklist_rewards.backends.trees import MAX_BATCH_TOKENS
from checklist_rewards.errors import ModelError, first_line
from checklist_rewards.images import Image, has_images, images_in, parts
from checklist_rewards.prompts import prompt_messages
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import missing

_BETWEEN = "CHECKLIST0IMAGE0END"
_WORDS = "Look at this."
_EDGE = 8
_OF_TEXT = ("input_ids", "attention_mask")

Pixels = dict[str, torch.Tensor]
"""Arguments of the forward pass, such as `pixel_values`."""


class ImageError(ModelError):
    """The processor refuses an image."""


class Sight(NamedTuple):
    """The images of one prompt as a processor gives them, without their pixels."""

    images: tuple[Image, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    """The shape of each argument of the forward pass, without the first axis."""
    texts: tuple[str, ...]
    """What replaces the placeholder of each image."""
    kinds: dict[str, dict[int, int]]
    """Arguments with a number per token, such as `token_type_ids`: the number of each token that has not 0."""
    counts: tuple[int, ...]
    """The number of tokens that stand for parts of each image."""
    first: int
    """The number of the first image among those of the call."""


class Views:
    """The images of one call, each set processed once while its pixels are kept. Pixels are kept for at most `room`
    tokens of images, and for the last set; others are made again when a pass needs them."""

    def __init__(self, eyes: Eyes, room: int = MAX_BATCH_TOKENS):
        self._eyes, self._room = eyes, room
        self._sights: dict[tuple[str, ...], Sight] = {}
        self._pixels: dict[int, tuple[int, Pixels]] = {}
        """The tokens and the pixels of each set by the number of its first image, the last used at the end."""
        self._of_image: list[tuple[Sight, Image]] = []
        self.frames: dict[tuple[str | None, str, bool, bool], Frame] = {}
        """The text around what follows the last image of a prompt."""
        self.sent: dict[tuple[int, ...], tuple[Ids, list[Image]]] = {}
        """What an engine that processes images itself is sent for a prompt: ids with one placeholder per image, and
        the images. Filled by [`Eyes.send`] and [`Eyes.send_prompt`]."""

    def of(self, images: Sequence[Image]) -> Sight:
        """The images of one prompt, in order."""
        keys = tuple(image.key for image in images)
        if keys not in self._sights:
            sight, pixels = self._eyes.processed(images, len(self._of_image))
            self._sights[keys] = sight
            self._of_image += [(sight, image) for image in images]
            self._keep(sight, pixels)
        return self._sights[keys]

    def pixels(self, sight: Sight) -> Pixels:
        """The pixels of some images."""
        _, pixels = self._pixels.pop(sight.first, (0, None))
        if pixels is None:
            _, pixels = self._eyes.processed(sight.images, sight.first)
        self._keep(sight, pixels)
        return pixels

    def _keep(self, sight: Sight, pixels: Pixels) -> None:
        self._pixels[sight.first] = sum(sight.counts), pixels
        while len(self._pixels) > 1 and sum(tokens for tokens, _ in self._pixels.values()) > self._room:
            del self._pixels[next(iter(self._pixels))]

    def inputs(self, prompts: Sequence[Sequence[int]], device: torch.device, dtype: torch.dtype) -> Inputs:
        """The arguments of a forward pass over prompts that [`alike`] allows together, padded on the right."""
        ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(self.own(prompt))
        answers = torch.tensor([(row, len(prompt) - 1) for row, prompt in enumerate(prompts)], device=device)
        return Inputs(ids.to(device), None, None, answers, images=self.arguments(prompts, ids, device, dtype))

    def own(self, prompt: Sequence[int]) -> Ids:
        """Token ids as the model takes them."""
        return [self._eyes.image_id if token < 0 else token for token in prompt]

    def named(self, prompt: Sequence[int]) -> Ids:
        """Token ids in which an image has the number of its pixels, whatever else the call has."""
        return [int(self._of_image[-token - 1][1].key, 16) if token < 0 else token for token in prompt]

    def arguments(
        self, prompts: Sequence[Sequence[int]], ids: torch.Tensor, device: torch.device, dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """The pixels of the images in some prompts, and the numbers of their tokens."""
        sights = [sight for prompt in prompts if (sight := self.sight(prompt)) is not None]
        given: dict[str, torch.Tensor] = {}
        if not sights:
            return given
        pixels = [self.pixels(sight) for sight in sights]
        for name in pixels[0]:
            value = torch.cat([of_images[name] for of_images in pixels]).to(device)
            given[name] = value.to(dtype) if value.is_floating_point() else value
        for name in sights[0].kinds:
            kinds = torch.zeros_like(ids)
            for token, number in {pair for sight in sights for pair in sight.kinds[name].items()}:
                kinds[ids == token] = number
            given[name] = kinds.to(device)
        return given

    def alike(self, prompt: Sequence[int]) -> tuple[Any, ...]:
        """What prompts of one forward pass have in common: the shapes of their images."""
        sight = self.sight(prompt)
        return () if sight is None else sight.shapes

    def sight(self, prompt: Sequence[int]) -> Sight | None:
        """The images of a prompt. None if it has none."""
        return next((self._of_image[-token - 1][0] for token in prompt if token < 0), None)


class Eyes:
    """Tokenizes prompts with images, with the model's processor and configuration. Raises [`ModelError`] if the
    processor has no token for images, or if the tokenizer is that of mistral-common."""

    def __init__(self, tokens: ChatTokenizer, processor: Any, config: Any):
        if isinstance(tokens, MistralChatTokenizer):
            raise ModelError(
                "images cannot be read here with a tokenizer of mistral-common (tekken.json); use a folder with "
                "tokenizer.json, or a server."
            )
        self._without_images = tokens
        template = getattr(processor, "chat_template", None)
        if template and template != tokens.tokenizer.chat_template:  # older models keep it with the processor only
            tokens = chat_tokenizer(tokens.tokenizer)
            tokens.tokenizer.chat_template = template
            tokens = chat_tokenizer(tokens.tokenizer)
        self.tokens, self.processor = tokens, processor
        placeholder, number = getattr(processor, "image_token", None), image_token_id(config)
        if placeholder is None or number is None:
            raise ModelError(
                f"the images of {type(processor).__name__} cannot be read here: it has no placeholder for images; use "
                "a vision-language model such as Qwen2.5-VL or Gemma 3, or a server."
            )
        self.image_id: int = number
        """The token that stands for a part of an image."""
        self.placeholder = str(placeholder)
        """What the chat template writes for an image."""
        tokens.template.image_token = self.placeholder
        self._checked: set[tuple[Any, ...]] = set()

    def groups(self, groups: Sequence[ReadGroup], views: Views, *, compact: bool = False) -> list[TokenGroup]:
        """Tokenize groups of reads, with images in the prefix or without. A group with an image that the processor
        refuses is refused. `compact` keeps the placeholder of each image instead of its tokens, for an engine that
        processes images itself."""
        plain = {number: group for number, group in enumerate(groups) if not group.sees}
        found = dict(zip(plain, self._without_images.groups(list(plain.values())), strict=True))
        framed: list[tuple[int, ReadGroup, Frame, Sight]] = []
        for number, group in enumerate(groups):
            if number in plain:
                continue
            _refuse_in_system(group.system)
            if any(map(has_images, group.tails)):
                raise ModelError("an image stands in a question; put it into the input or the target.")
            try:
                sight = views.of(images_in(group.prefix))
            except ImageError as error:
                why = Unanswered(Reason.BACKEND_ERROR, str(error))
                found[number] = TokenGroup([], [[] for _ in group.tails], why)
                continue
            self._check(prompt_messages(group.system, group.prefix), bool(group.written), views)
            before, rest = _after_images(group.prefix)
            frame = self._frame(group.system, before, bool(group.written), compact, views)
            text = ReadGroup(group.system, rest, group.tails, written=group.written)
            framed.append((number, text, frame, sight))
        made = self.tokens.framed_groups([text for _, text, _, _ in framed], [frame for _, _, frame, _ in framed])
        for (number, _, _, sight), tokens in zip(framed, made, strict=True):
            found[number] = tokens if compact else tokens._replace(prefix=self._numbered(tokens.prefix, sight))
        return [found[number] for number in range(len(groups))]

    def prompt(self, messages: Messages, views: Views, *, compact: bool = False) -> Ids:
        """Token ids of a whole conversation with images, up to where the model's reply starts."""
        _refuse_in_system(*(message["content"] for message in messages if message["role"] == "system"))
        images = images_in(*(message["content"] for message in messages))
        if not images:
            return self._without_images.prompt(messages)
        sight = views.of(images)
        self._check(messages, True, views)
        text, spans = self.tokens.template.conversation(messages, pictured=self._pictured(sight, compact))
        ids = self.tokens.encoder.data([text], [spans])[0]
        return ids if compact else self._numbered(ids, sight)

    def send(self, groups: Sequence[ReadGroup], views: Views) -> list[TokenGroup]:
        """As [`groups`]; `views` gets what is sent for each prompt with images."""
        found = self.groups(groups, views)
        pictured = [(group, tokens) for group, tokens in zip(groups, found, strict=True) if group.sees]
        compact = self.groups([group for group, _ in pictured], views, compact=True)
        for (group, full), short in zip(pictured, compact, strict=True):
            images = images_in(group.prefix)
            for tail, own in zip(full.tails, short.tails, strict=True):
                views.sent[tuple(full.prefix + tail)] = short.prefix + own, images
        return found

    def send_prompt(self, messages: Messages, views: Views) -> Ids:
        """As [`prompt`]; `views` gets what is sent for it if it has images."""
        prompt = self.prompt(messages, views)
        if images := images_in(*(message["content"] for message in messages)):
            views.sent[tuple(prompt)] = self.prompt(messages, views, compact=True), images
        return prompt

    def processed(self, images: Sequence[Image], first: int) -> tuple[Sight, Pixels]:
        """Images as the processor gives them. Raises [`ImageError`] if it fails."""
        pictures = [image.pillow for image in images]
        try:
            out = self.processor(
                text=[_BETWEEN.join([self.placeholder] * len(images))],
                images=[pictures],
                return_tensors="pt",
                add_special_tokens=False,
            )
        except Exception as error:  # processors raise any error
            raise ImageError(
                f"the processor {type(self.processor).__name__} cannot process an image: {first_line(error)}"
            ) from error
        ids = out.pop("input_ids")
        out.pop("attention_mask", None)
        kinds = {}
        for name in [name for name, value in out.items() if getattr(value, "shape", None) == ids.shape]:
            numbers = out.pop(name)
            kinds[name] = {int(t): int(n) for t, n in zip(ids[0], numbers[0], strict=True) if int(n)}
        text = self.tokens.tokenizer.decode(
            ids[0].tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        texts = tuple(text.split(_BETWEEN))
        if len(texts) != len(images):
            raise ModelError(f"the processor {type(self.processor).__name__} does not keep the places of images.")
        counts = tuple(tokens.count(self.image_id) for tokens in self.tokens.encoder.whole(texts))
        pixels = {name: torch.as_tensor(value) for name, value in out.items()}
        shapes = tuple((name, tuple(value.shape[1:])) for name, value in pixels.items())
        return Sight(tuple(images), shapes, texts, kinds, counts, first), pixels

    def _frame(self, system: str | None, before: str, think: bool, compact: bool, views: Views) -> Frame:
        key = system, before, think, compact
        if key not in views.frames:
            pictured = self._pictured(views.of(images_in(before)), compact)
            views.frames[key] = self.tokens.template.pictured_frame(system, before, think, pictured)
        return views.frames[key]

    def _pictured(self, sight: Sight, compact: bool) -> Callable[[str], str]:
        """Replaces the placeholders in the texts of a template, in order."""
        if compact:
            return lambda text: text
        left: Iterator[str] = iter(sight.texts)

        def pictured(text: str) -> str:
            first, *others = text.split(self.placeholder)
            return first + "".join(next(left) + other for other in others)

        return pictured

    def _numbered(self, ids: Ids, sight: Sight) -> Ids:
        """Token ids in which those of each image are a number of its own."""
        numbers = [-(1 + sight.first + place) for place, count in enumerate(sight.counts) for _ in range(count)]
        if ids.count(self.image_id) != len(numbers):
            raise ModelError(f"the chat template of {type(self.processor).__name__} drops or repeats an image.")
        left = iter(numbers)
        return [next(left) if token == self.image_id else token for token in ids]

    def _check(self, messages: Messages, think: bool, views: Views) -> None:
        """Raise [`ModelError`] if the processor gives other ids for a prompt with images of this kind, or other
        pixels."""
        sight = views.of(images_in(*(message["content"] for message in messages)))
        edges = ((text[:_EDGE], text[-_EDGE:]) for text in sight.texts)
        shown = [[isinstance(part, Image) for part in parts(message["content"])] for message in messages]
        roles = tuple(message["role"] for message in messages)
        orders = tuple(tuple(next(edges) if image else None for image in order) for order in shown)
        if (kind := (think, roles, orders)) not in self._checked:
            marks = iter([image.mark for image in sight.images])
            contents = ["".join(next(marks) if image else _WORDS for image in order) or _WORDS for order in shown]
            contents[-1] += _WORDS
            alike: list[Message] = [
                {"role": role, "content": text} for role, text in zip(roles, contents, strict=True)
            ]
            text, spans = self.tokens.template.conversation(alike, think=think, pictured=self._pictured(sight, False))
            end = spans[-1][1] - 1  # the last character may be one token with what follows
            ours = self.tokens.encoder.data([text[:end]], [[]])[0]
            theirs = self._processed_whole(alike, think)
            self._refuse_other_pixels(theirs, sight, views.pixels(sight))
            if ours != theirs["input_ids"][0].tolist()[: len(ours)]:
                raise ModelError(
                    f"the prompts of {type(self.processor).__name__} with images cannot be read here: it gives them "
                    "other tokens than the tokenizer; use another vision-language model, or a server."
                )
            self._checked.add(kind)

    def _refuse_other_pixels(self, whole: Mapping[str, Any], sight: Sight, pixels: Pixels) -> None:
        """Raise [`ModelError`] if the processor gives something else for images in a conversation than for images
        alone."""
        ids = whole["input_ids"]
        given = {name: torch.as_tensor(value) for name, value in whole.items() if name not in _OF_TEXT}
        ours = dict(pixels)
        for name, numbers in sight.kinds.items():
            ours[name] = torch.tensor([[numbers.get(token, 0) for token in ids[0].tolist()]])
        nothing = torch.empty(0)
        other = [
            name
            for name in sorted(given.keys() | ours.keys())
            if not torch.equal(given.get(name, nothing), ours.get(name, nothing))
        ]
        if other:
            raise ModelError(
                f"the images of {type(self.processor).__name__} cannot be read here: its {other[0]!r} depends on the "
                "text around an image; use another vision-language model, or a server."
            )

    def _processed_whole(self, messages: Messages, think: bool) -> Mapping[str, Any]:
        """What the processor gives for a conversation."""
        text, _ = self.tokens.template.conversation(messages, think=think, pictured=lambda rendered: rendered)
        bos = self.tokens.tokenizer.bos_token
        settings = {"add_special_tokens": False} if bos and text.startswith(bos) else {}
        images = images_in(*(message["content"] for message in messages))
        pictures = [[image.pillow for image in images]]
        return self.processor(text=[text], images=pictures, return_tensors="pt", **settings)


def image_token_id(config: Any) -> int | None:
    """The token that stands for a part of an image, by a model's configuration."""
    names = ("image_token_id", "image_token_index")
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)


def load_processor(path: str, **settings: Any) -> Any:
    """Load the processor of a vision-language model from a folder or a Hub id, with settings of
    `AutoProcessor.from_pretrained`. One that requires torchvision only for videos is loaded without it. Raises
    [`ModelError`] if it cannot be loaded."""
    from transformers import AutoProcessor

    with from_hub(path):
        try:
            try:
                return _with_images(AutoProcessor.from_pretrained(path, **settings))
            except Exception:  # processors raise any error
                if not missing("torchvision"):
                    raise
                return _with_images(_without_videos(path, settings))
        except Exception as error:
            advice = "; some processors require torchvision: pip install torchvision" if missing("torchvision") else ""
            raise ModelError(f"the processor of {path!r} cannot be loaded: {first_line(error)}{advice}") from error


def _without_videos(path: str, settings: dict[str, Any]) -> Any:
    """A processor without its part for videos, which requires torchvision."""
    from transformers import AutoConfig, AutoTokenizer, ProcessorMixin
    from transformers.models.auto.image_processing_auto import AutoImageProcessor  # at the top it needs torchvision
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    arguments, _ = ProcessorMixin.get_processor_dict(path, **settings)
    named: Any = arguments.get("processor_class")
    own: Any = named or PROCESSOR_MAPPING_NAMES[AutoConfig.from_pretrained(path, **settings).model_type]
    kind = _processor_class(own)

    def part(name: str) -> Any:
        if name == "tokenizer":
            return AutoTokenizer.from_pretrained(path, **settings)
        if name != "image_processor":
            return None
        try:
            return AutoImageProcessor.from_pretrained(path, **settings)
        except (ImportError, ValueError):  # one that only says that it needs torchvision
            folder = kind.__module__.split(".")[2]
            module = importlib.import_module(f"transformers.models.{folder}.image_processing_pil_{folder}")
            return getattr(module, f"{kind.__name__.removesuffix('Processor')}ImageProcessorPil").from_pretrained(
                path, **settings
            )

    inner = [part(name) for name in kind.get_attributes()]
    unchecked: Any = type(kind.__name__, (kind,), {"check_argument_for_proper_class": lambda *_: None})
    return unchecked.from_args_and_dict(inner, arguments)


def _processor_class(name: str) -> Any:
    """A processor's class from its module; without torchvision, transformers shows only a stand-in for some."""
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    for model_type, names in PROCESSOR_MAPPING_NAMES.items():
        if name in names:
            with suppress(ImportError, AttributeError), _pillow_only(folder := model_type.replace("-", "_")):
                module = importlib.import_module(f"transformers.models.{folder}.processing_{folder}")
                return getattr(module, name)
    raise ModelError(f"the processor {name} cannot be imported")


@contextmanager
def _pillow_only(folder: str) -> Iterator[None]:
    """Context manager for importing a processor whose module takes a function from the image processor of torchvision:
    that of Pillow, which has it too, is imported in its place."""
    name = f"transformers.models.{folder}.image_processing_{folder}"
    unused = name not in sys.modules
    with suppress(ImportError):
        sys.modules.setdefault(name, importlib.import_module(name.replace("processing_", "processing_pil_")))
    try:
        yield
    finally:
        if unused:
            sys.modules.pop(name, None)


def _with_images(processor: Any) -> Any:
    if not hasattr(processor, "image_processor"):
        raise ModelError(f"{type(processor).__name__} takes no images.")
    return processor


def _after_images(text: str) -> tuple[str, str]:
    """A text up to the end of its last image, and the rest."""
    mark = images_in(text)[-1].mark
    at = text.rindex(mark) + len(mark)
    return text[:at], text[at:]


def _refuse_in_system(*texts: str | None) -> None:
    if any(map(has_images, texts)):
        raise ModelError("an image stands in a system message, which models do not take; put it into a user message.")
