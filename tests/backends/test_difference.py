"""Weights that are stored as their difference to other weights."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from checklist_rewards.backends.difference import apply_difference, save_difference
from checklist_rewards.errors import ModelError

WIDTH = 64


@pytest.fixture
def base(tmp_path):
    """A file of weights."""
    torch.manual_seed(0)
    weights = {"matrix": torch.randn(WIDTH, WIDTH), "words": torch.randn(1000, WIDTH), "bias": torch.randn(WIDTH)}
    save_file(weights, tmp_path / "base.safetensors")
    return tmp_path / "base.safetensors"


def tuned(base):
    """The weights after training: a little different but for a row, one as before, one new."""
    weights = {f"model.{name}": tensor for name, tensor in load_file(base).items()}
    change = 0.02 * torch.randn(WIDTH, WIDTH)
    change[3] = 0
    weights["model.matrix"] += change
    weights["model.bias"] += 0.02 * torch.randn(WIDTH)
    return weights | {"head": torch.randn(1, WIDTH)}


def test_the_weights_come_back_within_a_fraction_of_the_change(base, tmp_path):
    weights, path = tuned(base), tmp_path / "difference.safetensors"
    save_difference(weights, base, "model.", path)
    back = apply_difference(path, base, "model.")
    assert back.keys() == weights.keys() and torch.equal(back["model.words"], weights["model.words"])
    step = (weights["model.matrix"] - load_file(base)["matrix"]).abs().amax(1, keepdim=True) / 7
    assert ((back["model.matrix"] - weights["model.matrix"]).abs() <= 0.51 * step).all()
    assert torch.equal(back["model.matrix"][3], weights["model.matrix"][3])
    for name in ("model.bias", "head"):
        torch.testing.assert_close(back[name], weights[name], atol=2e-3, rtol=1e-3)
    assert path.stat().st_size < WIDTH * WIDTH  # of 18 KB of changed weights


def test_other_base_weights_are_refused(base, tmp_path):
    path = tmp_path / "difference.safetensors"
    save_difference(tuned(base), base, "model.", path)
    save_file({name: 2 * tensor for name, tensor in load_file(base).items()}, base)
    with pytest.raises(ModelError, match="has other weights than those that .*difference.safetensors was made from"):
        apply_difference(path, base, "model.")
