"""Packs several reads into one row for models of `transformers`, with attention masks that keep them independent.

A packed row consists of a prefix and all question tails:

    prefix  p p p p            positions 0 1 2 3
    tail 1  . . . . a a        positions         4 5
    tail 2  . . . .     b b b  positions         4 5 6

With the *tree mask*, each tail attends to the prefix and to itself, and positions restart after the prefix. Each
answer is therefore the same as with a separate prompt. Layers with a sliding window or with chunks get their own mask,
because the window is measured in positions and not in columns of the row. (A 4-D mask replaces the model's own mask,
so a single mask for all layers would disable the windows.)

Models with recurrent layers (Mamba, linear attention) pass a state from token to token and cannot be packed. For these
models, and for those that fail [`packs_exactly`], each prompt is read separately. Separate prompts are padded on the
right and need no custom mask, because a causal model never attends to later tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

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


class PackedRow(NamedTuple):
    """A prefix and some tails of one group, with the index of each tail in the group."""

    group: int
    prefix: list[int]
    tails: list[tuple[int, list[int]]]

    @property
    def length(self) -> int:
        """Number of tokens without padding."""
        return len(self.prefix) + sum(len(tail) for _, tail in self.tails)


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


def packed_inputs(rows: Sequence[PackedRow], layers: Layers, model: Any, device: torch.device) -> Inputs:
    """Create the inputs for a batch of packed rows.

    Args:
        rows (sequence of [`PackedRow`]): The rows.
        layers ([`Layers`]): The layers of the model.
        model: The causal language model. Its configuration defines the widths of windows and chunks.
        device (`torch.device`): The device of the tensors; masks are computed there.
    """
    shape = len(rows), max(row.length for row in rows)
    ids, positions = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    branch = torch.full(shape, -1, dtype=torch.long)  # 0 is the prefix, k is tail k, -1 is padding
    answers: list[tuple[int, int]] = []
    for r, row in enumerate(rows):
        start = len(row.prefix)
        ids[r, :start] = torch.tensor(row.prefix, dtype=torch.long)
        positions[r, :start] = torch.arange(start)
        branch[r, :start] = 0
        for k, (_, tail) in enumerate(row.tails, start=1):
            end = start + len(tail)
            ids[r, start:end] = torch.tensor(tail, dtype=torch.long)
            positions[r, start:end] = torch.arange(len(row.prefix), len(row.prefix) + len(tail))
            branch[r, start:end] = k
            answers.append((r, end - 1))
            start = end
    ids, positions, branch = ids.to(device), positions.to(device), branch.to(device)
    query, key = branch[:, :, None], branch[:, None, :]
    visible = ((key == 0) | (key == query)).tril()  # padding attends to itself, so that no softmax row is empty
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


def plain_inputs(rows: Sequence[PackedRow], device: torch.device) -> Inputs:
    """Create the inputs for separate prompts, one tail per row, padded on the right."""
    prompts = [[*row.prefix, *tail] for row in rows for _, tail in row.tails]
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    for r, prompt in enumerate(prompts):
        ids[r, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
    answers = torch.tensor([(r, len(prompt) - 1) for r, prompt in enumerate(prompts)], device=device)
    return Inputs(ids.to(device), None, None, answers)


def packs_exactly(model: Any, layers: Layers, logits: Callable[[Inputs], torch.Tensor], device: torch.device) -> bool:
    """Check on a few arbitrary tokens whether packed reads give the same result as separate prompts.

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
    tokens = [(17 * k + 11) % size for k in range(48)]
    tails = [(0, tokens[24:30]), (1, tokens[30:41]), (2, tokens[41:48])]
    with _narrowed(config):
        separate = [logits(plain_inputs([PackedRow(0, tokens[:24], [tail])], device)) for tail in tails]
        plain = torch.cat(separate)
        try:
            packed = logits(packed_inputs([PackedRow(0, tokens[:24], tails)], layers, model, device))
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
