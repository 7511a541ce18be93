"""Inputs of a forward pass over rows of prompts: tokens, positions and masks; and the check that they are exact.

Attention masks keep the reads of one row independent: with the *tree mask*, each token attends to the tokens before it
in its own prompt, and positions are those in its prompt. Each answer is therefore the same as with a separate prompt.
Layers with a sliding window or with chunks get their own mask, because the window is measured in positions and not in
columns of the row. (A 4-D mask replaces the model's own mask, so a single mask for all layers would disable the
windows.)

A prefix that is kept for the rows below it ([`Past`]) is their cache of keys and values.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from checklist_rewards.backends.trees import TreeRow, tree_rows

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


class Past:
    """Keys and values of a kept prefix, of all layers.

    Args:
        cache (`Cache`): A cache in which a forward pass has put the tokens of one prompt.

    Raises:
        TypeError: If a layer of the cache does not keep all tokens.
    """

    def __init__(self, cache: Any):
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
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
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


def tree_inputs(
    rows: Sequence[TreeRow[Any]], layers: Layers, model: Any, device: torch.device, past: Past | None = None
) -> Inputs:
    """Create the inputs for a batch of rows of several prompts.

    Args:
        rows (sequence of [`TreeRow`]): The rows.
        layers ([`Layers`]): The layers of the model.
        model: The causal language model. Its configuration defines the widths of windows and chunks.
        device (`torch.device`): The device of the tensors; masks are computed there.
        past ([`Past`], *optional*): The tokens with which all prompts start, if they are kept.
    """
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
    return Inputs(ids, positions, mask, torch.tensor(answers, device=device), None if past is None else past.shown())


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
    """The additive masks of [`Inputs`] for rows in which each token sees the tokens `visible` to it.

    Args:
        visible (`torch.Tensor`): Booleans of shape (rows, width, keys).
        positions (`torch.Tensor`): Position of each token, shape (rows, width).
        layers ([`Layers`]): The layers of the model.
        model: The causal language model.
        keys (`torch.Tensor`, *optional*): Position of each token that may be seen, shape (rows, keys). Defaults to
            `positions`.
    """
    config = model.config.get_text_config()
    keys = positions if keys is None else keys
    masks: dict[str, torch.Tensor] = {}
    for kind in layers.kinds:
        seen = visible & _within(kind, config, positions, keys)
        mask = torch.zeros(seen.shape, dtype=model.dtype, device=seen.device)
        masks[kind] = mask.masked_fill_(~seen, torch.finfo(model.dtype).min)[:, None]
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
    rules, one, other, tails = _arbitrary(model)

    def packed() -> torch.Tensor:
        branches = [(rules + one, tails), (rules + other, tails[1:])]
        return logits(tree_inputs(list(tree_rows(branches, 2**31)), layers, model, device))

    return _is_exact(model, packed, logits, device)


def padding_is_exact(model: Any, logits: Callable[[Inputs], torch.Tensor], device: torch.device) -> bool:
    """Whether prompts of different lengths, padded on the right, give the same results together as alone. Arguments as
    in [`packs_exactly`]."""
    rules, one, other, _ = _arbitrary(model)
    rows = [next(tree_rows([(ids, [([], None)])], 0)) for ids in (rules + other, one)]
    with _narrowed(model):
        alone = torch.cat([logits(plain_inputs([row], device)) for row in rows])
        return agree(logits(plain_inputs(rows, device)), alone, model.dtype)


def keeps_exactly(model: Any, layers: Layers, logits: Callable[[Inputs], torch.Tensor], device: torch.device) -> bool:
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

    return _is_exact(model, below, logits, device)


_Tails = list[tuple[list[int], int]]


def _arbitrary(model: Any) -> tuple[list[int], list[int], list[int], _Tails]:
    """Rules, two targets, and questions, of arbitrary tokens."""
    size = model.get_input_embeddings().num_embeddings
    ids = [(17 * k + 11) % size for k in range(64)]
    return ids[:14], ids[14:24], ids[24:36], [(ids[36:42], 0), (ids[42:53], 1), (ids[53:60], 2)]


def _is_exact(
    model: Any, shared: Callable[[], torch.Tensor], logits: Callable[[Inputs], torch.Tensor], device: torch.device
) -> bool:
    rules, one, other, tails = _arbitrary(model)
    with _narrowed(model):
        prompts = [(rules + target, [tail]) for target, some in ((one, tails), (other, tails[1:])) for tail in some]
        plain = torch.cat([logits(plain_inputs(list(tree_rows([prompt], 0)), device)) for prompt in prompts])
        try:
            ours = shared()
        except Exception as error:  # architectures raise different errors for masks and caches they do not support
            logger.info("%s does not support custom masks or caches: %s", type(model).__name__, error)
            return False
    return agree(ours, plain, model.dtype)


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
    model knows, such as the number of tokens that a layer keeps."""
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
