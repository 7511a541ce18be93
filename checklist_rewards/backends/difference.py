"""Weights stored as their difference to other weights, in 4 bits: fine-tuned weights in 6 % of their size.

Fine-tuning changes weights little, so a coarse number for the change is a fine number for the weight. A matrix is
stored as integers from -7 to 7, two in a byte, and one scale per row; a vector in float16. Weights that did not change
are not stored. As in BitDelta (Liu et al. 2024, arXiv:2402.10193), which stores one bit and a scale per matrix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from checklist_rewards.errors import ModelError

_TOP = 7
_SCALE = ".scale"
_BASE = "base"


def save_difference(weights: Mapping[str, torch.Tensor], base: Path, prefix: str, path: Path) -> None:
    """Write the difference of `weights` to those in the file `base`, whose names lack `prefix`, to `path`.

    A matrix (rows, columns) becomes bytes (rows, columns / 2), so the number of columns must be even. A tensor that is
    not in `base` is stored as its difference to 0.
    """
    known = _prefixed(base, prefix)
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        change = tensor - known[name] if name in known else tensor
        if not change.any():
            continue
        if change.ndim == 1 or name not in known:
            stored[name] = change.half()
            continue
        scale = (change.abs().amax(1, keepdim=True) / _TOP).half()
        whole = (change / scale.float().clamp_min(torch.finfo(torch.float16).tiny)).round().clamp(-_TOP, _TOP)
        low, high = (whole + _TOP).to(torch.uint8).chunk(2, 1)
        stored[name], stored[name + _SCALE] = low | high << 4, scale
    save_file(stored, path, metadata={_BASE: _digest(base)})


def apply_difference(path: Path, base: Path, prefix: str) -> dict[str, torch.Tensor]:
    """The weights that were saved with [`save_difference`], in the precision of `base`. Raises [`ModelError`] if the
    file `base` has other weights than those they differ from."""
    with safe_open(path, "pt") as file:
        if file.metadata()[_BASE] != _digest(base):
            raise ModelError(
                f"{base} has other weights than those that {path} was made from; install another version."
            )
    stored, weights = load_file(path), _prefixed(base, prefix)
    for name, change in stored.items():
        if name.endswith(_SCALE):
            continue
        if change.dtype == torch.uint8:
            whole = torch.cat([change & 15, change >> 4], 1).float() - _TOP
            change = whole * stored[name + _SCALE].float()
        weights[name] = weights[name] + change.float() if name in weights else change.float()
    return weights


def _prefixed(path: Path, prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in load_file(path).items()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
