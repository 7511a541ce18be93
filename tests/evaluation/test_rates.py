"""Rates of a judge, corrected by labels."""

import numpy as np
import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.rates import corrected_rate


def world(seed, groups=60, labelled=30, bias=0.2, noise=0.2):
    """Four units per group. The judge's values follow the truth, and are too high."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((groups, 4)) < rng.beta(2, 2, (groups, 1))).astype(float)
    judged = np.clip(0.2 + bias + 0.5 * truth + noise * rng.standard_normal(truth.shape), 0, 1)
    labels = [float(y) if group < labelled else None for group, row in enumerate(truth) for y in row]
    return judged.ravel().tolist(), labels, np.repeat(np.arange(groups), 4).tolist()


def test_the_formula_by_hand():
    judged, labels, groups = world(0)
    rate = corrected_rate(judged, labels, groups)
    f, known = np.array(judged), np.array([label is not None for label in labels])
    y = np.array([label for label in labels if label is not None])
    weight = np.cov(y, f[known])[0, 1] / (f[known].var(ddof=1) * 2)
    assert rate.weight == pytest.approx(weight) and 0.4 < weight < 1
    assert rate.corrected.value == pytest.approx(weight * f[~known].mean() + (y - weight * f[known]).mean())
    assert rate.judged.value == pytest.approx(f.mean()) and rate.labelled.value == pytest.approx(y.mean())


def test_intervals_cover_the_truth_where_those_of_the_judge_do_not():
    covered, widths = {"judged": [], "labelled": [], "corrected": []}, {"labelled": [], "corrected": []}
    for seed in range(300):
        rate = corrected_rate(*world(seed, groups=200))
        for name, hits in covered.items():
            figure = getattr(rate, name)
            hits.append(figure.low is not None and figure.low <= 0.5 <= figure.high)
        for name, some in widths.items():
            some.append((getattr(rate, name).high or 1) - (getattr(rate, name).low or 0))
    assert np.mean(covered["judged"]) < 0.1
    assert np.mean(covered["labelled"]) > 0.91 and np.mean(covered["corrected"]) > 0.9
    assert np.mean(widths["corrected"]) < 0.85 * np.mean(widths["labelled"])


def test_a_useless_judge_costs_nothing():
    rng = np.random.default_rng(0)
    _, labels, groups = world(0)
    rate = corrected_rate(rng.random(240).tolist(), labels, groups)
    assert rate.weight < 0.2 and rate.corrected.value == pytest.approx(rate.labelled.value, abs=0.03)
    constant = corrected_rate([0.7] * 240, labels, groups)
    assert constant.weight == 0 and constant.corrected == constant.labelled


def test_labels_of_another_kind_and_too_few_are_refused():
    judged, labels, groups = world(1)
    order = np.argsort([-np.mean(judged[4 * g : 4 * g + 4]) for g in range(60)])
    judged = [judged[4 * g + k] for g in order for k in range(4)]  # labelled are those with the highest values
    rate = corrected_rate(judged, labels, groups)
    assert rate.corrected.value is None and rate.shift_p < 0.01 and "not a random sample" in rate.refused
    few = corrected_rate(judged, labels[:16] + [None] * 224, groups)
    assert few.corrected.value is None and few.refused == "16 labels in 4 groups; at least 20 in 10 are needed"
    with pytest.raises(SampleError, match="no judged unit"):
        corrected_rate([], [], [])
