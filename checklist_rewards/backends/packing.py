"""Which reads may share one row of a model of `transformers`, and the masks that keep them apart.

A packed row is a prefix and then every question tail:

    prefix  p p p p            positions 0 1 2 3
    tail 1  . . . . a a        positions         4 5
    tail 2  . . . .     b b b  positions         4 5 6

Under the *tree mask* a tail attends to the prefix and to itself, and positions restart after the prefix, so each
answer is the one that a separate prompt would give. Layers with a sliding window or with chunks get a mask of their
own: the window is measured in positions, not in places of the row. A 4-D mask replaces the model's own, so one mask
for all layers would switch every window off.

Models with recurrent layers (Mamba, linear attention) carry a state from token to token and cannot be packed. What
cannot be packed, or does not pass [`packs_exactly`], is read as separate prompts, padded on the right and without any
mask of ours: a causal model never looks at what comes later.
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
"""Attention implementations that take a mask of any shape."""
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02}
_COARSE = 0.1
"""Nats between two ways to compute one read, in bf16 and coarser."""
_NARROW = 8
_CHECKED_TOKENS = 32


class Row(NamedTuple):
    """Some tails of one group behind their prefix, with where each belongs in the result."""

    group: int
    prefix: list[int]
    tails: list[tuple[int, list[int]]]

    @property
    def length(self) -> int:
        """Tokens, padding excluded."""
        return len(self.prefix) + sum(len(tail) for _, tail in self.tails)


class Inputs(NamedTuple):
    """A batch of rows as the arguments of a forward pass."""

    ids: torch.Tensor
    """Token ids, shape (rows, width)."""
    positions: torch.Tensor | None
    """Position of each token, shape (rows, width); None for the model's own."""
    mask: torch.Tensor | dict[str, torch.Tensor] | None
    """Additive masks, shape (rows, 1, width, width), one for all layers or one per kind; None for the model's own."""
    answers: torch.Tensor
    """Row and column of the token after which each read's label comes, shape (reads, 2)."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The kinds of attention layers that a model has.

    Args:
        kinds (`tuple[str, ...]`): of "full_attention", "sliding_attention" and "chunked_attention".
        keyed (`bool`): the model takes a mapping of kinds to masks; otherwise all layers share one mask.
    """

    kinds: tuple[str, ...]
    keyed: bool

    @classmethod
    def of(cls, model: Any) -> Layers | None:
        """The layers of a causal language model; None if reads cannot be packed for it."""
        config = model.config.get_text_config()
        if getattr(model, "_is_stateful", False) or model.config._attn_implementation not in _MASKED:
            return None
        kinds = getattr(config, "layer_types", None)
        if kinds:
            found = tuple(sorted(set(kinds)))
            return cls(found, found != (FULL,)) if set(found) <= {FULL, SLIDING, CHUNKED} else None
        alone = next((kind for kind, width in _WIDTHS.items() if getattr(config, width, None) is not None), FULL)
        return cls((alone,), False)


def packed_inputs(rows: Sequence[Row], layers: Layers, model: Any, device: torch.device) -> Inputs:
    """A batch of packed rows.

    Args:
        rows (sequence of [`Row`]).
        layers ([`Layers`]): of the model.
        model: the causal language model, whose configuration has the widths of windows and chunks.
        device (`torch.device`): where the tensors go; masks are computed there.
    """
    config = model.config.get_text_config()
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
    visible = ((key == 0) | (key == query)).tril()  # padding sees itself, so that no softmax row is empty
    masks = {kind: _additive(visible & _within(kind, config, positions), model.dtype) for kind in layers.kinds}
    mask = masks if layers.keyed else masks[layers.kinds[0]]
    return Inputs(ids, positions, mask, torch.tensor(answers, device=device))


def plain_inputs(rows: Sequence[Row], device: torch.device) -> Inputs:
    """A batch of separate prompts, one tail per row, padded on the right."""
    prompts = [[*row.prefix, *tail] for row in rows for _, tail in row.tails]
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    for r, prompt in enumerate(prompts):
        ids[r, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
    answers = torch.tensor([(r, len(prompt) - 1) for r, prompt in enumerate(prompts)], device=device)
    return Inputs(ids.to(device), None, None, answers)


def packs_exactly(model: Any, layers: Layers, logits: Callable[[Inputs], torch.Tensor], device: torch.device) -> bool:
    """Whether packed reads give what the model alone gives for each prompt. Asked once, on a few arbitrary tokens.

    The reference has no mask of ours. Windows and chunks are narrowed for the time of the check, so that the prompts
    reach beyond them.

    Args:
        model: the causal language model.
        layers ([`Layers`]): of the model.
        logits (callable): [`Inputs`] to next-token logits in single precision, shape (reads, vocabulary).
        device (`torch.device`): of the model's inputs.
    """
    config = model.config.get_text_config()
    size = model.get_input_embeddings().num_embeddings
    tokens = [(17 * k + 11) % size for k in range(48)]
    tails = [(0, tokens[24:30]), (1, tokens[30:41]), (2, tokens[41:48])]
    with _narrowed(config):
        alone = [logits(plain_inputs([Row(0, tokens[:24], [tail])], device)) for tail in tails]
        plain = torch.cat(alone)
        try:
            packed = logits(packed_inputs([Row(0, tokens[:24], tails)], layers, model, device))
        except Exception as error:  # whatever an architecture raises on a mask that it does not take
            logger.info("%s does not take a mask of ours: %s", type(model).__name__, error)
            return False
    return agree(packed, plain, model.dtype)


def agree(logits: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether two ways to compute the same next tokens differ by rounding only, at the most likely tokens.

    Args:
        logits, reference (`torch.Tensor`): shape (prompts, vocabulary).
        dtype (`torch.dtype`): that they were computed in.
    """
    ours, theirs = logits.float().log_softmax(-1), reference.float().log_softmax(-1)
    likely = theirs.topk(min(_CHECKED_TOKENS, theirs.shape[-1]), dim=-1).indices
    return bool((ours.gather(-1, likely) - theirs.gather(-1, likely)).abs().max() < _TOLERANCE.get(dtype, _COARSE))


def rope_boundary(config: Any) -> int | None:
    """The length above which a model with LongRoPE turns to other frequencies, for all rows of a batch at once; None
    for all other models."""
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
