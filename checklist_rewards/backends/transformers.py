"""The transformers engine: batched generation, and label reads of whole prompt trees.

Reads are packed into rows that contain shared tokens once (`trees.py`): the rules and the input of several targets,
and each target of its questions. Rows are padded to a batch. The output head runs only at the answer positions. If
such rows would not be exact for a model, every prompt is read separately; `Usage.separate` counts these reads.

What several targets start with (rules and input) is computed once and kept as a cache of keys and values for the rows
below it, where the estimated cost is lower (`trees.py`); `Usage.cached` counts these reads. Otherwise, and for
models that fail [`keeps_exactly`], targets continue a row only while the tokens that this saves cost more than the
attention that it adds.

Batches are limited by `max_batch_tokens` (including padding and the kept tokens that each row sees), and the tokens
that are kept at the same time by half of it, so memory does not grow with the number of reads. A batch that does not
fit into memory is halved, and so is a row. The prompts of a prefix that does not fit are read in rows. A single prompt
that does not fit is unanswered.

`generate` of transformers samples a whole batch with one global generator, so a reply would depend on the other
prompts in the batch. [`RowSampler`] adds noise from a generator per row instead (the Gumbel-max trick: the argmax of
logits / temperature + Gumbel noise is a sample from the softmax), and `generate` takes the argmax.

A model that sees is loaded with its vision-language class, which also reads texts, if its processor can be loaded. In
groups with images (`vision.py`), the prompt up to its last image is computed once for all prompts that start with it,
in the model's own forward pass with its pixels, and kept for the rows of the rest. The first such prefix is compared
with plain passes over whole prompts. If they differ, or nothing can be kept, each prompt with images is computed by
itself. So is a prompt that shares its last image with no other prompt.

Models with recurrent layers (Mamba, linear attention) pass a state from token to token and cannot be packed. For these
models, and for those that fail [`packs_exactly`], each prompt is read separately. Separate prompts are padded on the
right and need no custom mask. Rows of a model that fails [`padding_is_exact`] have the same length in a batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any, TypeVar

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from checklist_rewards.backends.base import (
    MISSED,
    Answer,
    Arrived,
    Backend,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
    is_over,
    reply_seed,
)
from checklist_rewards.backends.inputs import (
    Inputs,
    Layers,
    Past,
    Precision,
    alike,
    arbitrary_logits,
    attending,
    attention_choices,
    attention_configs,
    attention_of,
    base_of,
    cache_argument,
    is_out_of_memory,
    keeps_exactly,
    packs_exactly,
    padding_is_exact,
    plain_inputs,
    prefix_inputs,
    rope_boundary,
    tree_inputs,
)
from checklist_rewards.backends.models import (
    check_settings,
    config_of,
    load_adapted,
    model_identity,
    pinned,
    resolve_model,
    text_class,
    vision_class,
)
from checklist_rewards.backends.tokens import ChatTokenizer, Forms, load_chat_tokenizer
from checklist_rewards.backends.trees import (
    CPU,
    GPU,
    MAX_BATCH_TOKENS,
    Branch,
    Costs,
    Kept,
    TreeRow,
    branches_of,
    floor_tokens,
    keep_prefixes,
    tree_rows,
)
from checklist_rewards.backends.vision import Eyes, ImageError, Views, load_processor
from checklist_rewards.errors import BackendError, ModelError, first_line
from checklist_rewards.images import has_images
from checklist_rewards.scores.reasons import Reason, Unanswered


class RowSampler(LogitsProcessor):
    """Converts greedy decoding to sampling, with one seed per row, in [0, 2**63), and the temperature (greater than 0)
    and top_p of [`Sampling`]. Pass it in `logits_processor` with `do_sample=False`."""

    def __init__(self, seeds: Sequence[int], sampling: Sampling, device: torch.device):
        self.temperature, self.top_p = sampling.temperature, sampling.top_p
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return noisy scores of shape (rows, vocabulary). Their argmax is the sampled token."""
        logits = scores.float() / self.temperature
        if self.top_p < 1:
            logits = nucleus(logits, self.top_p)
        noise = torch.empty_like(logits)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)  # its negative logarithm is Gumbel noise
        return logits - noise.log()


def nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Set all logits to -inf except those of the most probable tokens of each row that together reach `top_p`."""
    ordered, places = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    outside = probabilities.cumsum(-1) - probabilities >= top_p  # the more probable tokens already reach top_p
    return logits.masked_fill(outside.scatter(-1, places, outside), float("-inf"))


logger = logging.getLogger(__name__)

_SETTINGS = (
    *("attn_implementation", "cache_dir", "device_map", "dtype", "experts_implementation", "gguf_file"),
    *("local_files_only", "max_memory", "offload_folder", "quantization_config", "revision", "subfolder", "token"),
    *("trust_remote_code", "use_safetensors", "variant"),
)
_TOKENIZER_SETTINGS = ("cache_dir", "gguf_file", "local_files_only", "revision", "subfolder", "token") + (
    "trust_remote_code",
)

R = TypeVar("R")
T = TypeVar("T")
Found = dict[int, Answer]
"""Answers by the places of their reads."""
_TOO_LONG = Answer(None, Unanswered(Reason.TOO_LONG))


class TransformersBackend(Backend):
    """A language model of `transformers`, with or without vision, on the GPU if there is one.

    Args:
        model (`str`): "pocket", a folder or a Hub id.
        max_batch_tokens (`int`, *optional*, defaults to `8192`): Maximum number of tokens in one forward pass,
            including padding; limits memory. A single longer read is computed alone.
        adapter (`str`, *optional*): The folder of a LoRA adapter, which is applied to every prompt. Requires peft.
        **settings: Arguments of `AutoModelForCausalLM.from_pretrained`, such as `dtype`, `device_map`, `revision`,
            `attn_implementation`, `trust_remote_code` or `quantization_config`. `dtype` defaults to single precision
            on CPU and to the model's own precision otherwise.

    Raises:
        ModelError: If the model cannot be loaded, or if a setting is unknown.
    """

    chunk_reads = 512
    in_process = True
    continues = True
    _processor: Callable[[], Any]
    """Loads the model's processor at the first call."""
    _no_processor: ModelError | None = None
    """Why the class for text alone was loaded, if it was for want of a processor."""
    sharded = False
    """Whether a forward pass is collective, so that rows are self-contained: nothing is kept."""

    def __init__(
        self, model: str, *, max_batch_tokens: int = MAX_BATCH_TOKENS, adapter: str | None = None, **settings: Any
    ):
        check_settings("transformers", settings, ("max_batch_tokens", "adapter", *_SETTINGS))
        self.identity = model_identity(model, settings if adapter is None else {**settings, "adapter": adapter})
        path = resolve_model(model, settings.get("revision"))
        settings = pinned(path, settings)
        self._lock = threading.Lock()  # trainers may score from several threads
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        of_tokenizer = {name: settings[name] for name in _TOKENIZER_SETTINGS if name in settings}
        self._processor = cache(partial(load_processor, path, **of_tokenizer))
        try:
            tokens = load_chat_tokenizer(path, **of_tokenizer)
            dtype = torch.float32 if device.type == "cpu" else "auto"
            model_type = config_of(model, settings.get("revision")).get("model_type")
            vision, text = vision_class(model_type), text_class(model_type)
            self._model_type, self.sees = model_type, vision is not None
            kinds: list[Any] = [AutoModelForCausalLM]
            if self.sees and text is None:
                kinds = [AutoModelForImageTextToText]
            elif self.sees and text != vision and "gguf_file" not in settings:
                try:
                    self._processor()
                    kinds = [AutoModelForImageTextToText, AutoModelForCausalLM]  # the second for adapters of text only
                except ModelError as error:
                    self._no_processor = error
            loaded = load_adapted(kinds, path, adapter, {"dtype": dtype, **settings})
            if "device_map" not in settings and "quantization_config" not in settings:
                loaded.to(device)
            self._use(loaded.eval(), tokens, max_batch_tokens)
        except ModelError:
            raise
        except Exception as error:  # transformers raises many types of errors while loading
            raise ModelError(f"model {model!r} cannot be loaded with transformers: {first_line(error)}") from error

    def _use(self, model: Any, tokens: ChatTokenizer, max_batch_tokens: int, forward: Any = None) -> None:
        """Read with this model from now on; `forward` is called in its place if another module wraps it."""
        self._shares_images: bool | None = None
        config = model.config.get_text_config()
        self.model, self.tokens, self.max_batch_tokens = model, tokens, max_batch_tokens
        self._forward, self._cache = model if forward is None else forward, cache_argument(model)
        self.device = torch.device(model.get_input_embeddings().weight.device)
        self.limit: int = getattr(config, "max_position_embeddings", None) or 2**31
        self._boundary = rope_boundary(config)
        self.device_costs = CPU if self.device.type == "cpu" else GPU
        self._compiled = any("_orig_mod" in part._modules or part._compiled_call_impl for part in model.modules())
        self._configs, own = attention_configs(model), attention_of(model)
        with self.in_turn(), Precision.of(model) as precision:
            self.attention = next((name for name in attention_choices(model) if self._attends_alike(name, own)), own)
            self.pads = padding_is_exact(model, self._logits, self.device)
            self.precision = precision.dtype
            self.layers = Layers.of(model, self.attention, self.precision)
            self.packs = self.layers is not None and packs_exactly(model, self.layers, self._logits, self.device)
            self.keeps = (
                self.packs
                and not self.sharded
                and self.layers is not None
                and keeps_exactly(model, self.layers, self._logits, self.device)
            )
        if not self.packs:
            logger.warning(
                "%s (attn_implementation=%r) cannot read several questions about a target in one row exactly, so "
                "every prompt is read separately and the prefix is computed once per question.",
                type(base_of(model)).__name__,
                own,
            )

    def _attends_alike(self, attention: str, own: str) -> bool:
        """Whether the model may read with an attention implementation that is not its own."""
        if attention == own or own == "sdpa":  # with soft-capping, the model's sdpa is wrong
            return True

        def logits(name: str) -> torch.Tensor:
            self.attention = name
            return arbitrary_logits(self.model, self._logits, self.device)

        return alike(self.model, self.device, lambda: logits(attention), lambda: logits(own))

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Context manager for a pass: with the engine's attention, and without the graphs of `torch.compile`."""
        with ExitStack() as stack:
            stack.enter_context(attending(self._configs, self.attention))
            if self._compiled:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Context manager for forward passes: one thread at a time, without gradients."""
        with self._lock, torch.inference_mode():
            yield

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Compute the log-probabilities of the labels, in rows of several prompts if the model allows it."""
        forms = self.tokens.label_groups(labels)
        views = Views(self.eyes, self.max_batch_tokens) if any(group.sees for group in groups) else None
        tokenized = self.tokens.groups(groups) if views is None else self.eyes.groups(groups, views)
        texts: list[Branch[int]] = []
        pictured: list[Branch[int]] = []
        for branch in branches_of(tokenized, self.limit):
            (texts if views is None or views.sight(branch[0]) is None else pictured).append(branch)
        found, usage = self._read_texts(texts, forms)
        if views is not None:
            of_images, more = self._read_images(pictured, views, forms)
            found, usage = found | of_images, Usage.total([usage, more])
        unread = [answer for group in tokenized for answer in group.unread(_TOO_LONG)]
        return [found.get(place, answer) for place, answer in enumerate(unread)], usage

    @cached_property
    def eyes(self) -> Eyes:
        """Tokenizes prompts with images. Raises [`ModelError`] if the model does not see, or its processor cannot be
        loaded."""
        name = type(base_of(self.model)).__name__
        if not self.sees:
            raise ModelError(f"{name} takes no images.")
        if self._no_processor is not None:  # the class for text was loaded
            raise self._no_processor
        processor = self._processor()
        if name != vision_class(self._model_type):
            raise ModelError(
                f"{name} takes no images, and the adapter or GGUF file of this judge belongs to it; use one of "
                f"{vision_class(self._model_type)}."
            )
        return Eyes(self.tokens, processor, base_of(self.model).config)

    def _read_images(self, fitting: Sequence[Branch[int]], views: Views, forms: Forms) -> tuple[Found, Usage]:
        """Read prompts with images, below their beginning up to the last image, which is kept. Gives the answers by
        their places."""
        heads: dict[tuple[int, ...], list[Branch[int]]] = {}
        for prefix, tails in fitting:
            end = 1 + max(place for place, token in enumerate(prefix) if token < 0)
            heads.setdefault(tuple(prefix[:end]), []).append((prefix[end:], tails))
        computed = separate = 0
        found: Found = {}
        alone: list[Branch[int]] = []
        for head, branches in heads.items():
            whole: list[Branch[int]] = [([*head, *rest], tails) for rest, tails in branches]
            if sum(len(tails) for _, tails in branches) == 1:
                alone += whole
            elif self._shares(head, branches, views):
                plan = keep_prefixes(branches, self._costs, head)
                computed += self._read_below(plan, None, forms, found, alone, views)
            else:
                alone += whole
                if self._shares_images is False:
                    separate += sum(len(tails) for _, tails in branches)
        cached = len(found)
        rows = sorted(tree_rows(alone, 0), key=lambda row: (views.alike(row.ids), self._kind(row), -len(row.ids)))
        answered, more = self._answered(rows, forms, views=views)
        found |= answered
        computed += more
        prompt_tokens, floor = floor_tokens(fitting)
        return found, Usage(prompt_tokens, computed, floor, separate, cached)

    def _shares(self, head: Sequence[int], branches: Sequence[Branch[int]], views: Views) -> bool:
        """Whether prompts can be read below a beginning with images that is kept. Tried once, on the first prompts for
        which there is enough memory."""
        if self._shares_images is None:

            def tried(some: Sequence[Sequence[Branch[int]]]) -> list[bool | None]:
                return [self._agrees(head, some[0], views)]

            can = self.keeps and self._boundary is None
            [self._shares_images] = _in_memory([branches], tried, lambda _: None) if can else [False]
            if self._shares_images is False and self.packs:  # otherwise, the warning about rows has said it
                logger.warning(
                    "%s cannot read several questions about an image below its common beginning exactly, so every "
                    "prompt with images is read separately.",
                    type(base_of(self.model)).__name__,
                )
        return self._shares_images or False

    def _agrees(self, head: Sequence[int], branches: Sequence[Branch[int]], views: Views) -> bool:
        rest, tails = max(branches, key=lambda branch: len(branch[0]))

        def below() -> torch.Tensor:
            assert self.layers is not None
            rows = list(tree_rows([(rest, tails[:2])], 2**31))
            return self._logits(tree_inputs(rows, self.layers, self.model, self.device, self._head(head, views)))

        def alone() -> torch.Tensor:
            prompts = [[*head, *rest, *tail] for tail, _ in tails[:2]]
            return torch.cat(
                [self._logits(views.inputs([prompt], self.device, self.model.dtype)) for prompt in prompts]
            )

        with self.in_turn(), self._positions():
            return alike(self.model, self.device, below, alone)

    def _head(self, ids: Sequence[int], views: Views) -> Past:
        """The beginning of some prompts up to their last image, computed in a pass of its own."""
        inputs = views.inputs([ids], self.device, self.model.dtype)._replace(past=Past.empty())
        with self._positions() as places:
            self._logits(inputs)
            deltas = [module.rope_deltas for module in places if module.rope_deltas is not None]
        return Past(inputs.past, int(deltas[0].flatten()[0]) if deltas else 0)

    @contextmanager
    def _positions(self) -> Iterator[list[Any]]:
        """Context manager for passes with images, which gives the modules that remember the shift of the last prompt's
        positions (mrope). Afterwards they are as before."""
        places = [module for module in self.model.modules() if "rope_deltas" in vars(module)]
        before = [module.rope_deltas for module in places]
        try:
            yield places
        finally:
            for module, delta in zip(places, before, strict=True):
                module.rope_deltas = delta

    def _read_texts(self, fitting: Sequence[Branch[int]], forms: Forms) -> tuple[Found, Usage]:
        branches, costs = self._by_length(fitting), self._costs
        below: list[Kept[int]] = []
        if self.packs and self.keeps:
            plan = keep_prefixes(branches[False], costs)
            branches[False], below = plan.branches, plan.below
        found: Found = {}
        computed = sum(self._read_below(kept, None, forms, found, branches[False]) for kept in below)
        cached = len(found)
        room, worth = (self.max_batch_tokens, costs.saves) if self.packs else (0, None)
        rows = [row for some in branches.values() for row in tree_rows(some, room, worth)]
        rows.sort(key=lambda row: (self._kind(row), -len(row.ids)))  # longest first to minimize padding
        answered, more = self._answered(rows, forms)
        separate = 0 if self.packs else sum(len(row.values) for row in rows)
        prompt_tokens, floor = floor_tokens(fitting)
        return found | answered, Usage(prompt_tokens, computed + more, floor, separate, cached)

    def _read_below(
        self,
        kept: Kept[int],
        above: Past | None,
        forms: Forms,
        found: Found,
        lost: list[Branch[int]],
        views: Views | None = None,
    ) -> int:
        """Read the rows below a prefix into `found`, and return the number of computed tokens. Prompts that do not fit
        into memory with the prefix are added to `lost`."""

        def prefix(ids: Sequence[Sequence[int]]) -> list[Past | None]:
            assert self.layers is not None
            with self.in_turn():
                if views is not None:
                    return [self._head(ids[0], views)]
                inputs = prefix_inputs(ids[0], self.layers, self.model, self.device, above)
                self._logits(inputs)
            return [Past(inputs.past, above.shift if above is not None else 0)]

        [past] = _in_memory([kept.ids], prefix, lambda _: None)
        if past is None:
            lost += kept.prompts()
            return 0
        rows = kept.rows(self._costs)
        answered, computed = self._answered(rows, forms, past)
        failed = {place for place, answer in answered.items() if answer.unanswered is not None}
        for row in rows:
            if not failed.isdisjoint(row.values):
                lost += [(kept.prefix + ids, [((), place)]) for ids, place in row.prompts() if place in failed]
        found |= answered
        return len(kept.ids) + computed + sum(self._read_below(more, past, forms, found, lost) for more in kept.below)

    def _answered(
        self, rows: Sequence[TreeRow[int]], forms: Forms, past: Past | None = None, views: Views | None = None
    ) -> tuple[Found, int]:
        """The reads of rows by their places, and the number of tokens computed for them. With `views`, each row is a
        whole prompt with images."""
        computed, before = 0, 0 if past is None else past.length

        def answer(batch: Sequence[TreeRow[int]]) -> list[list[Answer]]:
            nonlocal computed
            with self.in_turn():
                logprobs = iter(self._label_logprobs(batch, forms, past, views).tolist())
            computed += sum(len(row.ids) for row in batch)
            return [[Answer(tuple(next(logprobs))) for _ in row.values] for row in batch]

        def lost(row: TreeRow[int]) -> list[Answer]:
            if len(row.values) > 1:
                return [read for half in row.halves() for read in _in_memory([half], answer, lost)[0]]
            return [Answer(None, _no_memory(f"a row of {before + len(row.ids)} tokens"))]

        def alike(row: TreeRow[int]) -> tuple[Any, ...]:
            return self._kind(row), () if views is None else views.alike(row.ids)

        batches = self._batches(rows, lambda row: before + len(row.ids), self._costs.batch, alike)
        return placed(rows, [reads for batch in batches for reads in _in_memory(batch, answer, lost)]), computed

    @property
    def _costs(self) -> Costs:
        return self.device_costs.of(self.model.get_input_embeddings().embedding_dim, self.max_batch_tokens)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample replies. Prompts are batched by length and padded on the left; those with images only with others
        whose pixels have the same shape for each image or tile. `sampling.schema` is not enforced."""
        seen = any(has_images(message["content"]) for messages in prompts for message in messages)
        views = Views(self.eyes, self.max_batch_tokens) if seen else None
        too_long = Reply(None, unanswered=Unanswered(Reason.TOO_LONG))
        replies: list[list[Reply]] = [[too_long] * sampling.n for _ in prompts]
        ids: dict[int, list[int]] = {}
        for index, messages in enumerate(prompts):
            try:
                ids[index] = self.tokens.prompt(messages) if views is None else self.eyes.prompt(messages, views)
            except ImageError as error:
                replies[index] = [Reply(None, unanswered=Unanswered(Reason.BACKEND_ERROR, str(error)))] * sampling.n
        fitting = [index for index, prompt in ids.items() if len(prompt) < self.limit]
        shapes = {index: () if views is None else views.alike(prompt) for index, prompt in ids.items()}
        fitting.sort(key=lambda index: (shapes[index], len(ids[index])))

        def room(index: int) -> int:
            return min(sampling.max_tokens, self.limit - len(ids[index]))

        def cost(index: int) -> int:
            return (len(ids[index]) + sampling.max_tokens) * sampling.n

        def alike(index: int) -> tuple[Any, ...]:
            length = len(ids[index])
            pads = self._pads_exactly and not self._long(length + sampling.max_tokens)
            return room(index), 0 if pads else length, shapes[index]

        def sample(batch: Sequence[int]) -> list[list[Reply]]:
            if is_over():
                return [[Reply(None, unanswered=MISSED)] * sampling.n] * len(batch)
            with self.in_turn():
                some = replace(sampling, max_tokens=room(batch[0]))
                return self._sample([ids[index] for index in batch], some, views)

        def lost(index: int) -> list[Reply]:
            return [Reply(None, unanswered=_no_memory(f"a prompt of {len(ids[index])} tokens"))] * sampling.n

        for batch in self._batches(fitting, cost, self.max_batch_tokens, alike):
            for index, texts in zip(batch, _in_memory(batch, sample, lost), strict=True):
                replies[index] = texts
                if arrived is not None:
                    arrived(index, texts)
        return replies

    def _by_length(self, branches: Sequence[Branch[int]]) -> dict[bool, list[Branch[int]]]:
        """The prompts by whether they are long, each in a branch of its own if the model cannot pack them."""
        found: dict[bool, list[Branch[int]]] = {False: [], True: []}
        for prefix, tails in branches:
            by_length: dict[bool, list[tuple[Sequence[int], int]]] = {}
            for tail in tails:
                by_length.setdefault(self._long(len(prefix) + len(tail[0])), []).append(tail)
            for long, some in by_length.items():
                found[long] += [(prefix, some)] if self.packs else [(prefix, [tail]) for tail in some]
        return found

    def _kind(self, row: TreeRow[int]) -> tuple[bool, bool, int]:
        """What rows of one forward pass have in common: whether they are long, and have several prompts; and their
        length, for a model that padding affects."""
        reach = 0
        if self._boundary is not None:
            reach = max(depth + length for depth, length in zip(row.depths, row.lengths, strict=True))
        return self._long(reach), len(row.values) > 1, 0 if self.pads else len(row.ids)

    def _long(self, length: int) -> bool:
        """Whether a prompt is computed apart from others: LongRoPE uses other frequencies for long prompts."""
        return self._boundary is not None and length > self._boundary

    @cached_property
    def _pads_exactly(self) -> bool:
        """Whether padding on the left does not affect the next token. Recurrent layers may treat padding as text."""
        size = self.model.get_input_embeddings().num_embeddings
        prompts = [[(17 * k + 11) % size for k in range(length)] for length in (9, 24)]

        def logits(some: Sequence[list[int]]) -> torch.Tensor:
            return self._generated(some, max_new_tokens=1, output_logits=True).logits[0]

        def alone() -> torch.Tensor:
            return torch.cat([logits([prompt]) for prompt in prompts])

        with self.in_turn():
            return alike(self.model, self.device, lambda: logits(prompts), alone)

    @staticmethod
    def _batches(
        rows: Sequence[T], cost: Callable[[T], int], budget: int, alike: Callable[[T], Any]
    ) -> Iterator[list[T]]:
        batch: list[T] = []
        widest = 0
        for row in rows:
            widest = max(widest, cost(row))
            if batch and (widest * (len(batch) + 1) > budget or alike(row) != alike(batch[0])):
                yield batch
                batch, widest = [], cost(row)
            batch.append(row)
        if batch:
            yield batch

    def _label_logprobs(
        self, rows: Sequence[TreeRow[Any]], forms: Forms, past: Past | None = None, views: Views | None = None
    ) -> torch.Tensor:
        """ln P(label) for every prompt of every row, in row order: shape (reads, labels)."""
        # A single prompt per row needs no mask, whose size grows with the square of the row. Only such rows may be
        # longer than `max_batch_tokens`.
        if past is not None or any(len(row.values) > 1 for row in rows):
            assert self.layers is not None
            inputs = tree_inputs(rows, self.layers, self.model, self.device, past)
        elif views is not None:
            inputs = views.inputs([row.ids for row in rows], self.device, self.model.dtype)
            with self._positions():
                return _labels_of(self._logits(inputs), forms)
        else:
            inputs = plain_inputs(rows, self.device)
        return _labels_of(self._logits(inputs), forms)

    def _logits(self, inputs: Inputs) -> torch.Tensor:
        """Next-token logits at the answer positions, in single precision: shape (reads, vocabulary). A hook before the
        output head selects these positions; what the model computes after its head (scaling, soft-capping) is kept."""
        gathered = False

        def gather(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            nonlocal gathered
            gathered, at = True, inputs.answers.to(args[0].device)
            return (args[0][at[:, 0], at[:, 1]].unsqueeze(0), *args[1:])

        given: dict[str, Any] = {} if inputs.positions is None else {"position_ids": inputs.positions}
        given |= {"use_cache": False} if inputs.past is None else {"use_cache": True, self._cache: inputs.past}
        given |= inputs.images or {}
        hook = self.model.get_output_embeddings().register_forward_pre_hook(gather)
        try:
            with self._computing():
                out = self._forward(input_ids=inputs.ids, attention_mask=inputs.mask, **given)
        finally:
            hook.remove()
        if gathered:
            return out.logits[0].float()
        at = inputs.answers.to(out.logits.device)  # another library replaced the forward pass
        return out.logits[at[:, 0], at[:, 1]].float()

    def _generated(self, prompts: Sequence[list[int]], views: Views | None = None, **settings: Any) -> Any:
        """Call `generate` of transformers with prompts padded on the left."""
        tokenizer = self.tokens.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt if views is None else views.own(prompt))
            mask[row, width - len(prompt) :] = 1
        if views is not None:
            settings |= views.arguments(prompts, ids, self.device, self.model.dtype)
        base = base_of(self.model)
        own = base.generation_config
        # `generate` takes all that is not passed from the model's generation_config.json: penalties, beams, lengths.
        # Of that only the tokens that end a reply may count, as in vLLM.
        base.generation_config = GenerationConfig(eos_token_id=own.eos_token_id, bos_token_id=own.bos_token_id)
        try:
            with self._computing(), self._positions():
                return self.model.generate(
                    input_ids=ids.to(self.device),
                    attention_mask=mask.to(self.device),
                    pad_token_id=pad,
                    do_sample=False,
                    return_dict_in_generate=True,
                    synced_gpus=False,  # with ZeRO-3, the default waits for others, which may have nothing to generate
                    **settings,
                )
        finally:
            base.generation_config = own

    def _sample(
        self, prompts: Sequence[list[int]], sampling: Sampling, views: Views | None = None
    ) -> list[list[Reply]]:
        """Sample replies to prompts that leave room for `sampling.max_tokens` tokens each."""
        rows, processors = list(prompts), LogitsProcessorList()
        if sampling.temperature > 0:
            rows = [prompt for prompt in prompts for _ in range(sampling.n)]
            named = prompts if views is None else [views.named(prompt) for prompt in prompts]
            seeds = [reply_seed(sampling.seed, prompt, index) for prompt in named for index in range(sampling.n)]
            processors.append(RowSampler(seeds, sampling, self.device))
        output = self._generated(rows, views, max_new_tokens=sampling.max_tokens, logits_processor=processors)
        sequences = output.sequences[:, max(map(len, prompts)) :].tolist()
        ends = self.model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        per_prompt = len(sequences) // len(prompts)
        replies = [
            self._reply(tokens, ends, 0 if place % per_prompt else len(prompts[place // per_prompt]))
            for place, tokens in enumerate(sequences)
        ]
        copies = sampling.n // per_prompt  # greedy replies are equal: generated once, returned n times
        return [replies[i * per_prompt : (i + 1) * per_prompt] * copies for i in range(len(prompts))]

    def _reply(self, tokens: list[int], ends: set[int], prompt_tokens: int) -> Reply:
        end = next((index for index, token in enumerate(tokens) if token in ends), None)
        text, used = self.tokens.decode(tokens[:end]), len(tokens) if end is None else end + 1
        return Reply(text, "length" if end is None else "stop", prompt_tokens=prompt_tokens, completion_tokens=used)


def _labels_of(logits: torch.Tensor, forms: Forms) -> torch.Tensor:
    """ln P(label) of each label, from logits over the vocabulary."""
    logprobs = logits - logits.logsumexp(-1, keepdim=True)
    return torch.stack([logprobs[:, list(group)].logsumexp(-1) for group in forms], dim=-1).cpu()


def _in_memory(batch: Sequence[T], compute: Callable[[Sequence[T]], list[R]], lost: Callable[[T], R]) -> list[R]:
    """Call `compute(batch)`. A batch that does not fit into memory is halved; for a single element that does not fit,
    `lost` is called. Raises [`BackendError`] for all other errors."""
    try:
        return compute(batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise BackendError(f"the model failed: {first_line(error)}") from error
        torch.cuda.empty_cache()
    if len(batch) == 1:
        return [lost(batch[0])]
    middle = len(batch) // 2
    return [*_in_memory(batch[:middle], compute, lost), *_in_memory(batch[middle:], compute, lost)]


def placed(rows: Sequence[TreeRow[int]], reads: Sequence[Sequence[Answer]]) -> Found:
    """The reads of each row by their places."""
    places = chain.from_iterable(row.values for row in rows)
    return dict(zip(places, chain.from_iterable(reads), strict=True))


def _no_memory(what: str) -> Unanswered:
    return Unanswered(Reason.BACKEND_ERROR, f"out of memory on {what}")
