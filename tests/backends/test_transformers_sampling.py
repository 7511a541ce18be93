"""Sampling by rows: the right distribution, top_p, and no row that depends on another."""

import pytest
import torch

from checklist_rewards.backends import Sampling
from checklist_rewards.backends.base import reply_seed
from checklist_rewards.backends.transformers import RowSampler, nucleus
from tests.backends.answers import user

CPU = torch.device("cpu")
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -20.0])


def drawn(sampling: Sampling, rows: int = 4000) -> torch.Tensor:
    """Shares of the tokens that so many rows draw in their first step."""
    sampler = RowSampler(range(rows), sampling, CPU)
    tokens = sampler(torch.zeros(rows, 1), LOGITS.repeat(rows, 1)).argmax(-1)
    return torch.bincount(tokens, minlength=len(LOGITS)) / rows


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_tokens_are_drawn_in_proportion_to_their_probabilities(temperature):
    expected = (LOGITS / temperature).softmax(-1)
    assert drawn(Sampling(temperature=temperature)) == pytest.approx(expected, abs=0.025)


def test_top_p_draws_from_the_fewest_tokens_that_reach_it():
    shares = drawn(Sampling(temperature=1.0, top_p=0.8))  # the two most probable ones have 0.88 together
    assert shares[2:].sum() == 0 and shares[:2].min() > 0.2
    assert nucleus(LOGITS[None], 0.01).isfinite().sum() == 1  # never none


def test_a_row_draws_the_same_whatever_stands_beside_it():
    def tokens(seeds):
        sampler = RowSampler(seeds, Sampling(temperature=1.0), CPU)
        steps = [sampler(torch.zeros(len(seeds), 1), torch.zeros(len(seeds), 50)).argmax(-1) for _ in range(8)]
        return torch.stack(steps, dim=-1).tolist()

    alone, together = tokens([7]), tokens([3, 7, 9])
    assert together[1] == alone[0] and len(set(map(tuple, together))) == 3


def test_a_seed_depends_on_the_run_the_prompt_and_the_place_and_on_nothing_else():
    prompt = user("Say \ud83d.")
    seed = reply_seed(0, prompt)
    assert seed == reply_seed(0, tuple(prompt)) and 0 <= seed < 2**31
    assert (
        len({seed, reply_seed(1, prompt), reply_seed(0, prompt, 1), reply_seed(0, [1, 2]), reply_seed(0, [12])}) == 5
    )
