"""The transformers engine: batched generation, and label reads of whole prompt trees.

Reads are packed into rows that contain shared tokens once (`trees.py`): the rules and the input of several targets,
and each target of its questions. Rows are padded to a batch. The output head runs only at the answer positions. If
such rows would not be exact for a model, every prompt is read separately; `ReadResult.separate` counts these reads.

A longer row shares more, but attention is computed over all pairs of its tokens, also where the mask hides them.
Targets therefore continue a row only while the tokens that this saves cost more than the pairs that it adds.

Batches are limited by `max_batch_tokens` (including padding), so memory does not grow with the number of reads. A
batch that does not fit into memory is halved, and so is a row. A single prompt that does not fit is unanswered.

Sampling has a separate random generator for each row. `generate` of transformers samples a whole batch with one global
generator, so a reply depends on the other prompts in the batch. [`RowSampler`] adds noise from a generator per row
instead (the Gumbel-max trick: the argmax of logits / temperature + Gumbel noise is a sample from the softmax), and
`generate` takes the argmax. Up to floating-point noise, a reply therefore depends only on its prompt and its seed.

Attention masks keep the reads of one row independent: with the *tree mask*, each token attends to the tokens before it
in its own prompt, and positions are those in its prompt. Each answer is therefore the same as with a separate prompt.
Layers with a sliding window or with chunks get their own mask, because the window is measured in positions and not in
columns of the row. (A 4-D mask replaces the model's own mask, so a single mask for all layers would disable the
windows.)

Models with recurrent layers (Mamba, linear attention) pass a state from token to token and cannot be packed. For these
models, and for those that fail [`packs_exactly`], each prompt is read separately. Separate prompts are padded on the
right and need no custom mask, because a causal model never attends to later tokens.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

from checklist_rewards.backends.base import (
    MISSED,
    Arrived,
    LabelRead,
    Messages,
    ReadGroup,
    ReadResult,
    Reply,
    Sampling,
    is_over,
    reply_seed,
)
from checklist_rewards.backends.models import adapter_dir, load_whole, model_identity, pinned, resolve_model
from checklist_rewards.backends.tokens import ChatTokenizer, TokenGroup, load_chat_tokenizer
from checklist_rewards.backends.trees import Branch, TreeRow, floor_tokens, in_order, tree_rows
from checklist_rewards.errors import BackendError, ModelError
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import unknown


class RowSampler(LogitsProcessor):
    """Converts greedy decoding to sampling. Pass it in `logits_processor` with `do_sample=False`.

    Args:
        seeds (sequence of `int`): One seed per row, in [0, 2**63).
        sampling ([`Sampling`]): The temperature (greater than 0) and top_p.
        device (`torch.device`): The device of the model.
    """

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

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_WIDTHS = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
_MASKED = ("sdpa", "eager")
"""Attention implementations that accept masks of any shape."""
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02}
_COARSE = 0.1
"""Tolerance in nats between two ways to compute a read, in bf16 and lower precisions."""
_NARROW = 8
_CHECKED_TOKENS = 32


class Inputs(NamedTuple):
    """A batch of rows as the arguments of a forward pass."""

    ids: torch.Tensor
    """Token ids, shape (rows, width)."""
    positions: torch.Tensor | None
    """Position of each token, shape (rows, width); None for the model's own."""
    mask: torch.Tensor | dict[str, torch.Tensor] | None
    """Additive masks of shape (rows, 1, width, width), one for all layers or one per kind of layer; None for the
    model's own."""
    answers: torch.Tensor
    """Row and column of the last token before each read's label, shape (reads, 2)."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The kinds of attention layers in a model.

    Args:
        kinds (`tuple[str, ...]`): Any of "full_attention", "sliding_attention" and "chunked_attention".
        keyed (`bool`): Whether the model accepts a mapping from kinds to masks. Otherwise all layers share one mask.
    """

    kinds: tuple[str, ...]
    keyed: bool

    @classmethod
    def of(cls, model: Any) -> Layers | None:
        """The layers of a causal language model, or None if its reads cannot be packed."""
        config = model.config.get_text_config()
        if getattr(model, "_is_stateful", False) or model.config._attn_implementation not in _MASKED:
            return None
        kinds = getattr(config, "layer_types", None)
        if kinds:
            distinct = tuple(sorted(set(kinds)))
            return cls(distinct, distinct != (FULL,)) if set(distinct) <= {FULL, SLIDING, CHUNKED} else None
        only = next((kind for kind, width in _WIDTHS.items() if getattr(config, width, None) is not None), FULL)
        return cls((only,), False)


def tree_inputs(rows: Sequence[TreeRow[Any]], layers: Layers, model: Any, device: torch.device) -> Inputs:
    """Create the inputs for a batch of rows of several prompts.

    Args:
        rows (sequence of [`TreeRow`]): The rows.
        layers ([`Layers`]): The layers of the model.
        model: The causal language model. Its configuration defines the widths of windows and chunks.
        device (`torch.device`): The device of the tensors; masks are computed there.
    """
    shape = len(rows), max(len(row.ids) for row in rows)
    padding = max(len(row.starts) for row in rows)  # one more segment, so that no softmax row is empty
    ids, positions = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    segments = torch.full(shape, padding, dtype=torch.long)
    ancestors = torch.zeros(len(rows), padding + 1, padding + 1, dtype=torch.bool)
    ancestors[:, padding, padding] = True
    answers: list[tuple[int, int]] = []
    for r, row in enumerate(rows):
        width, count = len(row.ids), len(row.starts)
        ids[r, :width] = torch.tensor(row.ids, dtype=torch.long)
        positions[r, :width] = torch.from_numpy(row.positions())
        segments[r, :width] = torch.from_numpy(row.segments())
        ancestors[r, :count, :count] = torch.from_numpy(row.ancestors())
        answers += [(r, column) for column in row.answers]
    ids, positions, segments, ancestors = (part.to(device) for part in (ids, positions, segments, ancestors))
    of_row = torch.arange(len(rows), device=device)[:, None, None]
    visible = ancestors[of_row, segments[:, :, None], segments[:, None, :]].tril()
    mask = attention_masks(visible, positions, layers, model)
    return Inputs(ids, positions, mask, torch.tensor(answers, device=device))


def attention_masks(
    visible: torch.Tensor, positions: torch.Tensor, layers: Layers, model: Any
) -> torch.Tensor | dict[str, torch.Tensor]:
    """The additive masks of [`Inputs`] for rows in which each token sees the tokens `visible` to it.

    Args:
        visible (`torch.Tensor`): Booleans of shape (rows, width, width).
        positions (`torch.Tensor`): Position of each token, shape (rows, width).
        layers ([`Layers`]): The layers of the model.
        model: The causal language model.
    """
    config = model.config.get_text_config()
    masks = {kind: _additive(visible & _within(kind, config, positions), model.dtype) for kind in layers.kinds}
    return masks if layers.keyed else masks[layers.kinds[0]]


def plain_inputs(rows: Sequence[TreeRow[Any]], device: torch.device) -> Inputs:
    """Create the inputs for rows of one prompt, padded on the right."""
    ids = torch.zeros(len(rows), max(len(row.ids) for row in rows), dtype=torch.long)
    for r, row in enumerate(rows):
        ids[r, : len(row.ids)] = torch.tensor(row.ids, dtype=torch.long)
    answers = torch.tensor([(r, len(row.ids) - 1) for r, row in enumerate(rows)], device=device)
    return Inputs(ids.to(device), None, None, answers)


def packs_exactly(model: Any, layers: Layers, logits: Callable[[Inputs], torch.Tensor], device: torch.device) -> bool:
    """Check on a few arbitrary tokens whether trees of prompts give the same result as separate prompts.

    The reference uses the model's own masks. Windows and chunks are narrowed during the check, so that the prompts are
    longer than them.

    Args:
        model: The causal language model.
        layers ([`Layers`]): The layers of the model.
        logits (callable): Computes next-token logits from [`Inputs`], in single precision, shape (reads, vocabulary).
        device (`torch.device`): The device of the model's inputs.
    """
    config = model.config.get_text_config()
    size = model.get_input_embeddings().num_embeddings
    ids = [(17 * k + 11) % size for k in range(64)]
    rules, one, other = ids[:14], ids[14:24], ids[24:36]
    tails = [(ids[36:42], 0), (ids[42:53], 1), (ids[53:60], 2)]
    with _narrowed(config):
        branches = [(rules + one, tails), (rules + other, tails[1:])]
        separate = [row for prefix, some in branches for tail in some for row in tree_rows([(prefix, [tail])], 0)]
        plain = torch.cat([logits(plain_inputs([row], device)) for row in separate])
        try:
            packed = logits(tree_inputs(list(tree_rows(branches, 2**31)), layers, model, device))
        except Exception as error:  # architectures raise different errors for masks that they do not support
            logger.info("%s does not support custom attention masks: %s", type(model).__name__, error)
            return False
    return agree(packed, plain, model.dtype)


def agree(logits: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether two computations of the same logits differ only by rounding, for the most likely tokens.

    Args:
        logits (`torch.Tensor`): Logits of shape (prompts, vocabulary).
        reference (`torch.Tensor`): The logits to compare with, of the same shape.
        dtype (`torch.dtype`): The precision in which both were computed.
    """
    ours, theirs = logits.float().log_softmax(-1), reference.float().log_softmax(-1)
    likely = theirs.topk(min(_CHECKED_TOKENS, theirs.shape[-1]), dim=-1).indices
    return bool((ours.gather(-1, likely) - theirs.gather(-1, likely)).abs().max() < _TOLERANCE.get(dtype, _COARSE))


def rope_boundary(config: Any) -> int | None:
    """The length above which a model with LongRoPE uses other frequencies for all rows of a batch. None for all other
    models."""
    parameters = getattr(config, "rope_parameters", None) or {}
    kinds = [kind for kind in parameters.values() if isinstance(kind, dict)] or [parameters]
    bounds = [
        kind.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
        for kind in kinds
        if kind.get("rope_type") == "longrope"
    ]
    return min((bound for bound in bounds if bound is not None), default=None)


def _within(kind: str, config: Any, positions: torch.Tensor) -> torch.Tensor:
    positions = positions.int()  # half of the memory, which grows with the square of the row
    query, key = positions[:, :, None], positions[:, None, :]
    if kind == SLIDING:
        return query - key < config.sliding_window
    if kind == CHUNKED:
        return query // config.attention_chunk_size == key // config.attention_chunk_size
    return torch.ones((), dtype=torch.bool, device=positions.device)


def _additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


@contextmanager
def _narrowed(config: Any) -> Iterator[None]:
    widths = {name: getattr(config, name, None) for name in _WIDTHS.values()}
    for name, width in widths.items():
        if width is not None:
            setattr(config, name, min(width, _NARROW))
    try:
        yield
    finally:
        for name, width in widths.items():
            if width is not None:
                setattr(config, name, width)


_SETTINGS = (
    *("attn_implementation", "cache_dir", "device_map", "dtype", "experts_implementation", "gguf_file"),
    *("local_files_only", "max_memory", "offload_folder", "quantization_config", "revision", "subfolder", "token"),
    *("trust_remote_code", "use_safetensors", "variant"),
)
_TOKENIZER_SETTINGS = ("cache_dir", "gguf_file", "local_files_only", "revision", "subfolder", "token") + (
    "trust_remote_code",
)
_CPU_READ_TOKENS = 2048  # per forward pass; larger batches do not fit into a CPU's caches and are slower

_WIDEST = 4096
"""Most tokens in a row of several targets: the mask of a row grows with the square of its width."""
_EVEN = 4.5
"""Attention over a row of this many tokens, times the hidden size, takes as long as all matrices. A layer has about
12 x size^2 weights, so 24 x size^2 operations per token, and 4 x size per pair of tokens: 6 by this count, and 4.4 as
measured with SmolLM2 on a CPU, where masked attention makes fewer operations per second."""

_CPU_OUT_OF_MEMORY = re.compile(r"not enough memory|can't allocate memory|out of memory", re.I)

R = TypeVar("R")
T = TypeVar("T")
_Place = tuple[int, int]
"""The numbers of a group and of its tail."""


class TransformersBackend:
    """A causal language model of `transformers`, on the GPU if there is one.

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

    def __init__(self, model: str, *, max_batch_tokens: int = 8192, adapter: str | None = None, **settings: Any):
        for name in settings:
            if name not in _SETTINGS:
                allowed = ("max_batch_tokens", "adapter", *_SETTINGS)
                raise ModelError(unknown("engine setting of transformers", name, allowed))
        self.identity = model_identity(model, settings if adapter is None else {**settings, "adapter": adapter})
        path = resolve_model(model, settings.get("revision"))
        settings = pinned(path, settings)
        self._lock = threading.Lock()  # trainers may score from several threads
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            tokens = load_chat_tokenizer(
                path, **{name: settings[name] for name in _TOKENIZER_SETTINGS if name in settings}
            )
            dtype = torch.float32 if device.type == "cpu" else "auto"
            loaded: Any = load_whole(AutoModelForCausalLM, path, **{"dtype": dtype, **settings})
            if adapter is not None:
                loaded.load_adapter(adapter_dir(adapter))
            if "device_map" not in settings and "quantization_config" not in settings:
                loaded.to(device)
            loaded.eval()
        except Exception as error:  # transformers raises many types of errors while loading
            raise ModelError(f"model {model!r} cannot be loaded with transformers: {first_line(error)}") from error
        if getattr(loaded.config.get_text_config(), "attn_logit_softcapping", None):
            if loaded.config._attn_implementation == "sdpa":
                loaded.set_attn_implementation("eager")  # sdpa does not apply soft-capping
        self._use(loaded, tokens, max_batch_tokens)

    def _use(self, model: Any, tokens: ChatTokenizer, max_batch_tokens: int, forward: Any = None) -> None:
        """Read with this model from now on; `forward` is called in its place if another module wraps it."""
        config = model.config.get_text_config()
        self.model, self.tokens, self.max_batch_tokens = model, tokens, max_batch_tokens
        self._forward = model if forward is None else forward
        self.device = torch.device(model.get_input_embeddings().weight.device)
        self.max_length: int = getattr(config, "max_position_embeddings", None) or 2**31
        self._boundary = rope_boundary(config)
        self._even = _EVEN * model.get_input_embeddings().embedding_dim
        self.layers = Layers.of(model)
        with self.in_turn():
            self.packs = self.layers is not None and packs_exactly(model, self.layers, self._logits, self.device)
        if not self.packs:
            logger.warning(
                "%s cannot read several questions about a target in one row exactly, so every prompt is read "
                "separately and the prefix is computed once per question.",
                type(model).__name__,
            )

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Context manager for forward passes: one thread at a time, without gradients."""
        with self._lock, torch.inference_mode():
            yield

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Compute the log-probabilities of the labels, in rows of several prompts if the model allows it."""
        forms = self.tokens.label_groups(labels)
        tokenized = self.tokens.groups(groups)
        too_long = LabelRead(None, Unanswered(Reason.TOO_LONG))
        reads: list[list[LabelRead]] = [[too_long] * len(group.tails) for group in tokenized]
        separate = 0
        rows = self._rows(tokenized)
        answered, computed = self._answered(rows, forms)
        for row, answers in zip(rows, answered, strict=True):
            for (number, index), read in zip(row.values, answers, strict=True):
                reads[number][index] = read
            separate += 0 if self.packs else len(row.values)
        prompt_tokens, floor = floor_tokens(tokenized, self.max_length)
        return ReadResult([tuple(group) for group in reads], prompt_tokens, computed, floor, separate)

    def _answered(
        self, rows: Sequence[TreeRow[_Place]], forms: Sequence[tuple[int, ...]]
    ) -> tuple[list[list[LabelRead]], int]:
        """The reads of each row, and the number of tokens computed for them."""
        computed = 0

        def answer(batch: Sequence[TreeRow[_Place]]) -> list[list[LabelRead]]:
            nonlocal computed
            with self.in_turn():
                logprobs = iter(self._label_logprobs(batch, forms).tolist())
            computed += sum(len(row.ids) for row in batch)
            return [[LabelRead(tuple(next(logprobs))) for _ in row.values] for row in batch]

        def lost(row: TreeRow[_Place]) -> list[LabelRead]:
            if len(row.values) > 1:
                return [read for half in row.halves() for read in _in_memory([half], answer, lost)[0]]
            return [LabelRead(None, _no_memory(f"a row of {len(row.ids)} tokens"))]

        batches = self._batches(rows, lambda row: len(row.ids), self._read_tokens, self._kind)
        return [reads for batch in batches for reads in _in_memory(batch, answer, lost)], computed

    @property
    def _read_tokens(self) -> int:
        """Most tokens of a forward pass of label reads, with padding."""
        return min(self.max_batch_tokens, _CPU_READ_TOKENS) if self.device.type == "cpu" else self.max_batch_tokens

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample replies. Prompts are batched by length and padded on the left. `sampling.schema` is not enforced."""
        ids = [self.tokens.prompt(messages) for messages in prompts]
        too_long = Reply(None, unanswered=Unanswered(Reason.TOO_LONG))
        replies: list[list[Reply]] = [[too_long] * sampling.n for _ in prompts]
        fitting = [index for index, prompt in enumerate(ids) if len(prompt) < self.max_length]
        fitting.sort(key=lambda index: len(ids[index]))

        def room(index: int) -> int:
            return min(sampling.max_tokens, self.max_length - len(ids[index]))

        def cost(index: int) -> int:
            return (len(ids[index]) + sampling.max_tokens) * sampling.n

        def alike(index: int) -> tuple[int, int]:
            length = len(ids[index])
            return room(index), 0 if self._may_pad(length + sampling.max_tokens) else length

        def sample(batch: Sequence[int]) -> list[list[Reply]]:
            if is_over():
                return [[Reply(None, unanswered=MISSED)] * sampling.n] * len(batch)
            with self.in_turn():
                return self._sample([ids[index] for index in batch], replace(sampling, max_tokens=room(batch[0])))

        def lost(index: int) -> list[Reply]:
            return [Reply(None, unanswered=_no_memory(f"a prompt of {len(ids[index])} tokens"))] * sampling.n

        for batch in self._batches(fitting, cost, self.max_batch_tokens, alike):
            for index, texts in zip(batch, _in_memory(batch, sample, lost), strict=True):
                replies[index] = texts
                if arrived is not None:
                    arrived(index, texts)
        return replies

    def _rows(self, groups: Sequence[TokenGroup]) -> list[TreeRow[_Place]]:
        """The prompts in rows, longest first to minimize padding."""
        branches: dict[bool, list[Branch[_Place]]] = {False: [], True: []}
        for number in in_order(groups):
            group, by_length = groups[number], dict[bool, list[tuple[list[int], _Place]]]()
            for index, tail in group.fitting(self.max_length):
                by_length.setdefault(self._long(len(group.prefix) + len(tail)), []).append((tail, (number, index)))
            for long, tails in by_length.items():
                branches[long] += [(group.prefix, tails)] if self.packs else [(group.prefix, [tail]) for tail in tails]
        room, worth = (self.max_batch_tokens, self._saves) if self.packs else (0, None)
        rows = [row for some in branches.values() for row in tree_rows(some, room, worth)]
        rows.sort(key=lambda row: (self._kind(row), -len(row.ids)))
        return rows

    def _saves(self, width: int, new: int, alone: int) -> bool:
        """Whether `new` tokens more in a row of `width` cost less than `alone` tokens in a row of their own."""

        def cost(tokens: int) -> float:
            return tokens * (1 + tokens / self._even)

        return width + new <= _WIDEST and cost(width + new) - cost(width) <= cost(alone)

    def _kind(self, row: TreeRow[_Place]) -> tuple[bool, bool]:
        """What rows of one forward pass have in common: whether they are long, and have several prompts."""
        reach = max(depth + length for depth, length in zip(row.depths, row.lengths, strict=True))
        return self._long(reach), len(row.values) > 1

    def _long(self, length: int) -> bool:
        """Whether a prompt is computed apart from others: LongRoPE uses other frequencies for long prompts."""
        return self._boundary is not None and length > self._boundary

    def _may_pad(self, reach: int) -> bool:
        """Whether prompts of different lengths can be sampled together, if the longest reaches this length."""
        return self._pads_exactly and (self._boundary is None or reach <= self._boundary)

    @cached_property
    def _pads_exactly(self) -> bool:
        """Whether padding on the left does not affect the next token. Recurrent layers may treat padding as text."""
        with self.in_turn():
            return self._padding_agrees()

    def _padding_agrees(self) -> bool:
        size = self.model.get_input_embeddings().num_embeddings
        prompts = [[(17 * k + 11) % size for k in range(length)] for length in (9, 24)]
        together = self._generated(prompts, max_new_tokens=1, output_logits=True).logits[0]
        separate = torch.cat(
            [self._generated([prompt], max_new_tokens=1, output_logits=True).logits[0] for prompt in prompts]
        )
        return agree(together, separate, self.model.dtype)

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

    def _label_logprobs(self, rows: Sequence[TreeRow[Any]], forms: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """ln P(label) for every prompt of every row, in row order: shape (reads, labels)."""
        # A single prompt per row needs no mask, whose size grows with the square of the row. Only such rows may be
        # longer than `max_batch_tokens`.
        if any(len(row.values) > 1 for row in rows):
            assert self.layers is not None
            inputs = tree_inputs(rows, self.layers, self.model, self.device)
        else:
            inputs = plain_inputs(rows, self.device)
        logits = self._logits(inputs)
        logprobs = logits - logits.logsumexp(-1, keepdim=True)
        return torch.stack([logprobs[:, list(group)].logsumexp(-1) for group in forms], dim=-1).cpu()

    def _logits(self, inputs: Inputs) -> torch.Tensor:
        """Next-token logits at the answer positions, in single precision: shape (reads, vocabulary).

        A hook selects the hidden states before the output head, so the head runs only at the answer positions, and
        everything that the model computes after its head (scaling, soft-capping) is still applied.
        """

        gathered = False

        def gather(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            nonlocal gathered
            gathered, at = True, inputs.answers.to(args[0].device)
            return (args[0][at[:, 0], at[:, 1]].unsqueeze(0), *args[1:])

        positions = {} if inputs.positions is None else {"position_ids": inputs.positions}
        hook = self.model.get_output_embeddings().register_forward_pre_hook(gather)
        try:
            out = self._forward(input_ids=inputs.ids, attention_mask=inputs.mask, use_cache=False, **positions)
        finally:
            hook.remove()
        if gathered:
            return out.logits[0].float()
        at = inputs.answers.to(out.logits.device)  # another library replaced the forward pass
        return out.logits[at[:, 0], at[:, 1]].float()

    def _generated(self, prompts: Sequence[list[int]], **settings: Any) -> Any:
        """Call `generate` of transformers with prompts padded on the left."""
        tokenizer = self.tokens.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        return self.model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            pad_token_id=pad,
            do_sample=False,
            return_dict_in_generate=True,
            synced_gpus=False,  # with ZeRO-3, the default waits for other ranks, which may have nothing to generate
            **settings,
        )

    def _sample(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[list[Reply]]:
        """Sample replies to prompts that leave room for `sampling.max_tokens` tokens each."""
        rows, processors = list(prompts), LogitsProcessorList()
        if sampling.temperature > 0:
            rows = [prompt for prompt in prompts for _ in range(sampling.n)]
            seeds = [reply_seed(sampling.seed, prompt, index) for prompt in prompts for index in range(sampling.n)]
            processors.append(RowSampler(seeds, sampling, self.device))
        output = self._generated(rows, max_new_tokens=sampling.max_tokens, logits_processor=processors)
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


def _in_memory(batch: Sequence[T], compute: Callable[[Sequence[T]], list[R]], lost: Callable[[T], R]) -> list[R]:
    """Call `compute(batch)`. A batch that does not fit into memory is halved; for a single element that does not fit,
    `lost` is called.

    Raises [`BackendError`] for all other errors.
    """
    try:
        return compute(batch)
    except (torch.OutOfMemoryError, MemoryError):
        torch.cuda.empty_cache()
    except RuntimeError as error:
        if not _CPU_OUT_OF_MEMORY.search(str(error)):
            raise BackendError(f"the model failed: {first_line(error)}") from error
    if len(batch) == 1:
        return [lost(batch[0])]
    middle = len(batch) // 2
    return [*_in_memory(batch[:middle], compute, lost), *_in_memory(batch[middle:], compute, lost)]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _no_memory(what: str) -> Unanswered:
    return Unanswered(Reason.BACKEND_ERROR, f"out of memory on {what}")
