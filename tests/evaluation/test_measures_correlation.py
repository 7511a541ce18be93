"""Correlations, and what is undefined."""

import math

import numpy as np
import pytest
from scipy import stats

from checklist_rewards.evaluation.measures import correlation, standardized, tau


def test_they_are_those_of_scipy():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 4, 60).astype(float)  # with ties
    other = one + rng.standard_normal(60)
    assert correlation(one, other) == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-9)
    assert tau(one, other) == pytest.approx(stats.kendalltau(one, other).statistic, abs=1e-9)
    assert correlation(standardized(one), standardized(other)) == pytest.approx(correlation(one, other), abs=1e-9)


def test_constant_columns_and_few_pairs_have_none():
    same, varied = np.full(5, 0.3), np.arange(5.0)
    assert correlation(same, varied) is correlation(varied, same) is None
    assert correlation(varied[:1], varied[:1]) is correlation(varied[:4], varied[:4], least=5) is None
    assert correlation(varied, varied) == pytest.approx(1) and correlation(varied, -varied) == pytest.approx(-1)
    assert math.isnan(tau(same, varied)) and tau(varied[:2], varied[:2]) == 1.0
    assert standardized(same).tolist() == [0.0] * 5
