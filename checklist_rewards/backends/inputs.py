"""Inputs of a forward pass over rows of prompts: tokens, positions and masks; and the check that they are exact.

Attention masks keep the reads of one row independent: with the *tree mask*, each token attends to the tokens before it
in its own prompt, and positions are those in its prompt. Each answer is therefore the same as with a separate prompt.
Layers with a sliding window or with chunks get their own mask, because the window is measured in positions and not in
columns of the row. (A 4-D mask replaces the model's own mask, so a single mask for all layers would disable the
windows.)

Whether this is exact for a model is tried when it is loaded, in the precision in which it computes: that of its
weights, of autocast, of quantized layers, or of the products of matrices on its device ([`Precision`]). Flash
attention, flex attention and kernels from the Hub take no masks of ours, so a model that uses them reads with sdpa or
eager ([`attending`]) if these give its results.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from checklist_rewards.backends.trees import Branch, TreeRow, tree_rows

logger = logging.getLogger(__name__)

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_WIDTHS = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
_MASKED = ("sdpa", "eager")
"""Attention implementations that accept masks of any shape."""
_FINEST = 1e-4
"""Rounding steps below this one count as this: in single precision, errors add up to more than a step."""
_NARROW = 8
_CHECKED_TOKENS = 32
_CPU_OUT_OF_MEMORY = re.compile(r"not enough memory|can't allocate memory|out of memory", re.I)


class Past:
    """Keys and values of a kept prefix, of all layers: a cache in which a forward pass has put the tokens of one
    prompt. Raises `TypeError` if a layer of the cache does not keep all tokens."""

    def __init__(self, cache: Any, shift: int = 0):
        self.shift = shift
        """What is added to the positions of the tokens that follow. Not 0 if an image takes fewer positions than
        tokens (mrope)."""
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self.length = int(self._layers[0][0].shape[-2])
        """The number of tokens."""
        if any(tensor.shape[0] != 1 or tensor.shape[-2] != self.length for pair in self._layers for tensor in pair):
            raise TypeError(f"{type(cache).__name__} does not keep all tokens of a prompt")

    @staticmethod
    def empty() -> Any:
        """A cache for the first prefix. All layers keep all tokens, also those with a sliding window."""
        return DynamicCache()

    def longer(self) -> Any:
        """A cache to which the tokens of one row are added."""
        return self._cache(DynamicLayer)

    def shown(self) -> Any:
        """A cache that all rows of a pass see, and to which nothing is added."""
        return self._cache(_Shown)

    def _cache(self, kind: type[Any]) -> Any:
        layers = []
        for keys, values in self._layers:
            layer = kind()
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device = keys.dtype, keys.device
            layers.append(layer)
        return Cache(layers=layers)


class _Shown(DynamicLayer):
    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        rows = key_states.shape[0]
        return (
            torch.cat([self.keys.expand(rows, -1, -1, -1), key_states], dim=-2),
            torch.cat([self.values.expand(rows, -1, -1, -1), value_states], dim=-2),
        )


def cache_argument(model: Any) -> str:
    """The name of a model's argument for a cache: `cache` in newer versions of transformers, which deprecate
    `past_key_values`."""
    inner = base_of(model)
    return "cache" if "cache" in inspect.signature(inner.forward).parameters else "past_key_values"


class Inputs(NamedTuple):
    """A batch of rows as the arguments of a forward pass."""

    ids: torch.Tensor
    """Token ids, shape (rows, width)."""
    positions: torch.Tensor | None
    """Position of each token, shape (rows, width); None for the model's own."""
    mask: torch.Tensor | dict[str, torch.Tensor] | None
    """Additive masks of shape (rows, 1, width, kept + width), one for all layers or one per kind of layer; None for
    the model's own."""
    answers: torch.Tensor
    """Row and column of the last token before each read's label, shape (reads, 2)."""
    past: Any = None
    """A cache with the tokens that are kept above the rows, or to which those of the row are added."""
    images: Mapping[str, Any] | None = None
    """Further arguments: the pixels of the images in the rows, and the kinds of their tokens."""


Logits = Callable[[Inputs], torch.Tensor]
"""Computes next-token logits in single precision, shape (reads, vocabulary)."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The kinds of attention layers in a model."""

    kinds: tuple[str, ...]
    """Any of "full_attention", "sliding_attention" and "chunked_attention"."""
    keyed: bool
    """Whether the model accepts a mapping from kinds to masks. Otherwise all layers share one mask."""
    dtype: torch.dtype
    """The precision in which they compute, and of their masks."""

    @classmethod
    def of(cls, model: Any, attention: str | None = None, dtype: torch.dtype | None = None) -> Layers | None:
        """The layers of a causal language model that reads with this attention implementation and precision (its own
        by default), or None if its reads cannot be packed."""
        config = model.config.get_text_config()
        if getattr(model, "_is_stateful", False) or (attention or attention_of(model)) not in _MASKED:
            return None
        kinds, dtype = getattr(config, "layer_types", None), dtype or model.dtype
        if kinds:
            distinct = tuple(sorted(set(kinds)))
            return cls(distinct, distinct != (FULL,), dtype) if set(distinct) <= {FULL, SLIDING, CHUNKED} else None
        only = next((kind for kind, width in _WIDTHS.items() if getattr(config, width, None) is not None), FULL)
        return cls((only,), False, dtype)


def attention_of(model: Any) -> str:
    """The attention implementation of a model's text layers."""
    return model.config.get_text_config()._attn_implementation


def base_of(model: Any) -> Any:
    """The model under its adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def attention_choices(model: Any) -> tuple[str, ...]:
    """The attention implementations with which a model might read rows with masks, the best first."""
    own = attention_of(model)
    if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
        return ("eager",)  # sdpa leaves it out
    if own in _MASKED:
        return (own,)
    return _MASKED if getattr(base_of(model), "_supports_sdpa", True) else ("eager",)


def attention_configs(model: Any) -> list[Any]:
    """The configurations in which the layers of a model look for their attention implementation."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    return [config for config in configs.values() if hasattr(config, _ATTENTION)]


@contextmanager
def attending(configs: Sequence[Any], attention: str) -> Iterator[None]:
    """Context manager in which all layers with these configurations compute attention with this implementation."""
    own = [getattr(config, _ATTENTION) for config in configs]
    try:
        for config in configs:
            setattr(config, _ATTENTION, attention)
        yield
    finally:
        for config, before in zip(configs, own, strict=True):
            setattr(config, _ATTENTION, before)


_ATTENTION = "_attn_implementation_internal"
"""Where a configuration of transformers keeps it, without its parts."""


def tree_inputs(
    rows: Sequence[TreeRow[Any]], layers: Layers, model: Any, device: torch.device, past: Past | None = None
) -> Inputs:
    """Create the inputs for a batch of rows of several prompts. The configuration of the model defines the widths of
    windows and chunks. `past` are the tokens with which all prompts start, if they are kept."""
    kept = 0 if past is None else past.length
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
        positions[r, :width] = torch.from_numpy(row.positions() + kept)
        segments[r, :width] = torch.from_numpy(row.segments())
        ancestors[r, :count, :count] = torch.from_numpy(row.ancestors())
        answers += [(r, column) for column in row.answers]
    ids, positions, segments, ancestors = (part.to(device) for part in (ids, positions, segments, ancestors))
    of_row = torch.arange(len(rows), device=device)[:, None, None]
    visible = ancestors[of_row, segments[:, :, None], segments[:, None, :]].tril()
    keys = positions
    if past is not None:
        visible = torch.nn.functional.pad(visible, (kept, 0), value=True)
        keys = torch.cat([torch.arange(kept, device=device).expand(len(rows), -1), positions], dim=1)
    mask = attention_masks(visible, positions, layers, model, keys)
    at = torch.tensor(answers, device=device)
    if past is None:
        return Inputs(ids, positions, mask, at)
    return Inputs(ids, positions + past.shift, mask, at, past.shown())


def prefix_inputs(
    ids: Sequence[int], layers: Layers, model: Any, device: torch.device, past: Past | None = None
) -> Inputs:
    """Create the inputs for tokens that are added to those that are kept, or are the first."""
    [row] = tree_rows([(ids, [((), None)])], 0)
    if past is None:
        return plain_inputs([row], device)._replace(past=Past.empty())
    return tree_inputs([row], layers, model, device, past)._replace(past=past.longer())


def attention_masks(
    visible: torch.Tensor, positions: torch.Tensor, layers: Layers, model: Any, keys: torch.Tensor | None = None
) -> torch.Tensor | dict[str, torch.Tensor]:
    """The additive masks of [`Inputs`] for rows in which each token sees the tokens `visible` to it: booleans of shape
    (rows, width, keys). `positions` are those of each token, shape (rows, width), and `keys` those of each token that
    may be seen, shape (rows, keys); by default the same."""
    config = model.config.get_text_config()
    keys = positions if keys is None else keys
    masks: dict[str, torch.Tensor] = {}
    for kind in layers.kinds:
        seen = visible & _within(kind, config, positions, keys)
        mask = torch.zeros(seen.shape, dtype=layers.dtype, device=seen.device)
        masks[kind] = mask.masked_fill_(~seen, torch.finfo(layers.dtype).min)[:, None]
    return masks if layers.keyed else masks[layers.kinds[0]]


def plain_inputs(rows: Sequence[TreeRow[Any]], device: torch.device) -> Inputs:
    """Create the inputs for rows of one prompt, padded on the right."""
    ids = torch.zeros(len(rows), max(len(row.ids) for row in rows), dtype=torch.long)
    for r, row in enumerate(rows):
        ids[r, : len(row.ids)] = torch.tensor(row.ids, dtype=torch.long)
    answers = torch.tensor([(r, len(row.ids) - 1) for r, row in enumerate(rows)], device=device)
    return Inputs(ids.to(device), None, None, answers)


def packs_exactly(model: Any, layers: Layers, logits: Logits, device: torch.device) -> bool:
    """Check on a few arbitrary tokens whether trees of prompts give the same result as separate prompts, for which the
    model makes its own masks. Windows and chunks are narrowed during the check, so that the prompts are longer than
    them."""

    def packed() -> torch.Tensor:
        return logits(tree_inputs(list(tree_rows(_branches(model), 2**31)), layers, model, device))

    with _narrowed(model):
        return alike(model, device, packed, lambda: arbitrary_logits(model, logits, device))


def padding_is_exact(model: Any, logits: Logits, device: torch.device) -> bool:
    """Whether prompts of different lengths, padded on the right, give the same results together as alone. Arguments as
    in [`packs_exactly`]."""
    rules, one, other, _ = _arbitrary(model)
    rows = list(tree_rows([(ids, [((), None)]) for ids in (rules + other, one)], 0))
    with _narrowed(model):
        return alike(model, device, lambda: logits(plain_inputs(rows, device)), lambda: _alone(rows, logits, device))


def keeps_exactly(model: Any, layers: Layers, logits: Logits, device: torch.device) -> bool:
    """As [`packs_exactly`], for rows below prefixes that are kept: one row below a prefix that continues another, and
    two rows of different lengths below one."""
    rules, one, other, tails = _arbitrary(model)

    def kept(ids: list[int], past: Past | None) -> Past:
        inputs = prefix_inputs(ids, layers, model, device, past)
        logits(inputs)
        return Past(inputs.past)

    def below() -> torch.Tensor:
        first = kept(rules, None)
        second = kept(one, first)
        rows = [next(tree_rows([branch], 2**31)) for branch in ((one, tails[:1]), (other, tails[1:]))]
        some = logits(tree_inputs(list(tree_rows([([], tails)], 2**31)), layers, model, device, second))
        twice = logits(tree_inputs(rows, layers, model, device, first))
        return torch.cat([some, twice[1:]])

    with _narrowed(model):
        return alike(model, device, below, lambda: arbitrary_logits(model, logits, device))


def arbitrary_logits(model: Any, logits: Logits, device: torch.device) -> torch.Tensor:
    """Logits of prompts of arbitrary tokens, each computed alone and with the model's own masks."""
    return _alone(tree_rows(_branches(model), 0), logits, device)


def alike(
    model: Any, device: torch.device, ours: Callable[[], torch.Tensor], reference: Callable[[], torch.Tensor]
) -> bool:
    """Whether two ways to compute the logits of the same prompts [`agree`], in the precision in which the model
    computes. False if the model does not support the first."""
    with Precision.of(model) as precision:
        expected = reference()
        try:
            found = ours()
        except Exception as error:  # architectures and kernels raise different errors for what they do not support
            if is_out_of_memory(error):
                raise
            logger.info("%s does not support masks, caches or kernels: %s", type(base_of(model)).__name__, error)
            return False
        return agree(found, expected, precision.rounding(device))


def is_out_of_memory(error: Exception) -> bool:
    """Whether a pass has failed for lack of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or _CPU_OUT_OF_MEMORY.search(str(error)) is not None


def _arbitrary(model: Any) -> tuple[list[int], list[int], list[int], list[tuple[list[int], int]]]:
    """Rules, two targets, and questions, of arbitrary tokens."""
    size = model.get_input_embeddings().num_embeddings
    ids = [(17 * k + 11) % size for k in range(64)]
    return ids[:14], ids[14:24], ids[24:36], [(ids[36:42], 0), (ids[42:53], 1), (ids[53:60], 2)]


def _branches(model: Any) -> list[Branch[int]]:
    """The arbitrary tokens as prompts: all questions about one target, and two about the other."""
    rules, one, other, tails = _arbitrary(model)
    return [(rules + one, tails), (rules + other, tails[1:])]


def _alone(rows: Iterable[TreeRow[Any]], logits: Logits, device: torch.device) -> torch.Tensor:
    return torch.cat([logits(plain_inputs([row], device)) for row in rows])


class Precision:
    """The precision in which a model computes: the coarsest of what its modules return while it is observed."""

    def __init__(self) -> None:
        self.dtypes: set[torch.dtype] = set()

    @classmethod
    @contextmanager
    def of(cls, model: Any) -> Iterator[Precision]:
        """Context manager that observes the passes of a model in it."""
        seen = cls()

        def note(_: Any, __: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point() and output.element_size() > 1:
                seen.dtypes.add(output.dtype)

        hooks = [module.register_forward_hook(note) for module in model.modules()]
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def dtype(self) -> torch.dtype:
        """The coarsest type of number."""
        return max(self.dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)

    def rounding(self, device: torch.device) -> float:
        """The step between neighbouring numbers, as a share of them. On some devices, products of matrices in single
        precision are rounded to TF32 or bf16."""
        if self.dtype == torch.float32:
            for step in (torch.finfo(torch.bfloat16).eps, torch.finfo(torch.float16).eps):
                matrix = torch.full((64, 64), 1 + step / 4, device=device)
                if (matrix @ matrix).min() < 64 * (1 + step / 4):  # the quarter of a step was rounded off
                    return step
        return torch.finfo(self.dtype).eps


def agree(logits: torch.Tensor, reference: torch.Tensor, rounding: float) -> bool:
    """Whether two computations of the same logits differ only by rounding: for the most likely tokens of a prompt, the
    root mean square of the differences is at most one rounding step of the largest logit.

    27 tiny models and two whole ones are within 0.8 steps in bf16 and fp16, except for one pass in which a token got
    other experts; with masks, windows or positions that are wrong they differ by 1.1 to 390. In low precision, one
    prompt in four may differ by more, because rounding may choose other experts. Both have the shape (prompts,
    vocabulary); `rounding` is the step of the precision in which they were computed.
    """
    ours, theirs = logits.float().log_softmax(-1), reference.float().log_softmax(-1)
    largest, likely = reference.float().topk(min(_CHECKED_TOKENS, reference.shape[-1]), dim=-1)
    distances = (ours.gather(-1, likely) - theirs.gather(-1, likely)).pow(2).mean(-1).sqrt().sort().values
    may_differ = len(distances) // 4 if rounding > _FINEST else 0
    return bool(distances[len(distances) - 1 - may_differ] <= max(rounding, _FINEST) * largest.abs().max())


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


def _within(kind: str, config: Any, positions: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    query, key = positions.int()[:, :, None], keys.int()[:, None, :]  # half of the memory, which is that of a mask
    if kind == SLIDING:
        return query - key < config.sliding_window
    if kind == CHUNKED:
        return query // config.attention_chunk_size == key // config.attention_chunk_size
    return torch.ones((), dtype=torch.bool, device=positions.device)


@contextmanager
def _narrowed(model: Any) -> Iterator[None]:
    """Narrow all windows and chunks of a model: those that the masks here are made from, and those that only the
    model accepts, such as the number of tokens that a layer keeps."""
    config = model.config.get_text_config()
    narrowed = [(config, name) for name in _WIDTHS.values()]
    narrowed += [(module, "keep_window_size") for module in model.modules()]
    widths = [(owner, name, width) for owner, name in narrowed if (width := getattr(owner, name, None)) is not None]
    for owner, name, width in widths:
        setattr(owner, name, min(width, _NARROW))
    try:
        yield
    finally:
        for owner, name, width in widths:
            setattr(owner, name, width)
