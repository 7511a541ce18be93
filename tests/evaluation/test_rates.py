"""Rates of a judge, corrected by labels."""

import numpy as np
import pytest

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.rates import LabelSample, corrected_rate, win_rate
from checklist_rewards.evaluation.scored import ScoredText
from tests.evaluation.files import score_of


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
    weight = np.cov(y, f[known])[0, 1] / f[known].var(ddof=1)
    assert rate.weight == pytest.approx(weight) and weight > 0.9
    assert rate.corrected.value == pytest.approx(rate.weight * f.mean() + (y - rate.weight * f[known]).mean())
    assert rate.judged.value == pytest.approx(f.mean()) and rate.labelled.value == pytest.approx(y.mean())


def test_intervals_cover_the_truth_where_those_of_the_judge_do_not():
    covered, widths = {"judged": [], "labelled": [], "corrected": []}, {"labelled": [], "corrected": []}
    for seed in range(150):
        rate = corrected_rate(*world(seed, groups=200))
        for name, hits in covered.items():
            figure = getattr(rate, name)
            hits.append(figure.low is not None and figure.low <= 0.5 <= figure.high)
        for name, some in widths.items():
            some.append((getattr(rate, name).high or 1) - (getattr(rate, name).low or 0))
    assert np.mean(covered["judged"]) < 0.1
    assert np.mean(covered["labelled"]) > 0.91 and np.mean(covered["corrected"]) > 0.9
    assert np.mean(widths["corrected"]) < 0.85 * np.mean(widths["labelled"])


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_corrected_rate_that_leaves_its_limits_ends_there(mirrored):
    # The judge is right but timid, and of the labelled texts one more is bad.
    judged = [0.5] + [0.6] * 24 + [0.602] * 225
    labels = [0.0] + [1.0] * 24 + [None] * 225
    if mirrored:
        judged, labels = [1 - p for p in judged], [None if label is None else 1 - label for label in labels]
    rate = corrected_rate(judged, labels, range(250))
    assert rate.weight == pytest.approx(10) and rate.corrected.value == (0.0 if mirrored else 1.0)
    assert 0 <= rate.corrected.low <= rate.corrected.value <= rate.corrected.high <= 1


@pytest.mark.parametrize("judged", ["useless", "right"])
def test_labels_that_are_all_equal_have_an_interval_that_covers(judged):
    """25 labels of a rate of 0.97 are often all yes. The interval was [1, 1] then, and covered in 54 % of draws."""
    hits, rng = {"labelled": [], "corrected": []}, np.random.default_rng(0)
    for _ in range(200):
        truth = (rng.random(250) < 0.97).astype(float)
        values = rng.random(250) if judged == "useless" else 0.1 + 0.8 * truth
        rate = corrected_rate(values.tolist(), [*truth[:25].tolist(), *[None] * 225], range(250))
        for name, some in hits.items():
            figure = getattr(rate, name)
            if figure.low is not None:  # one in a hundred corrections is refused
                assert figure.high - figure.low > 0.1
                some.append(figure.low <= 0.97 <= figure.high)
    assert len(hits["corrected"]) > 190 and min(map(np.mean, hits.values())) >= 0.93
    assert corrected_rate([1.0] * 25, [None] * 25, range(25)).judged.low < 0.9  # of the judge alone too


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
    assert few.corrected.value is None and few.refused == "16 labels in 4 groups; at least 20 in 15 are needed"
    with pytest.raises(SampleError, match="no judged unit"):
        corrected_rate([], [], [])


def sampled(seed, count=240, labelled=60, seen=True):
    """The judge is calibrated, sure of half of the texts, and knows nothing of the others; two questions each."""
    rng = np.random.default_rng(seed)
    said = np.where(rng.random((count, 1)) < 0.5, 0.96, 0.5) + 0.04 * rng.random((count, 2))
    truth = (rng.random((count, 2)) < said).astype(float)
    checklist = Checklist.parse(["Is it red?", "Is it big?"])
    scores = [score_of(checklist, *pair) for pair in said.tolist()]
    names = [str(place) for place in range(count)]
    sample = LabelSample.of(names, scores if seen else [None] * count, seed)
    chances = sample.probabilities(labelled)
    assert list(chances) == list(sample.order[:labelled])
    labels = [y if place in chances else None for place, pair in enumerate(truth.tolist()) for y in pair]
    of_units = [chances.get(place) for place in range(count) for _ in range(2)]
    return said.ravel().tolist(), labels, np.repeat(np.arange(count), 2).tolist(), of_units


def test_a_sample_of_uncertain_texts_covers_the_truth_with_shorter_intervals():
    hits, ignored, widths = [], [], {True: [], False: []}
    for seed in range(40):
        for seen, some in widths.items():
            judged, labels, groups, chances = sampled(seed, seen=seen)
            rate = corrected_rate(judged, labels, groups, probabilities=chances)
            if rate.corrected.low is not None:  # one in a hundred draws is refused
                some.append(rate.corrected.high - rate.corrected.low)
                hits += [rate.corrected.low <= 0.75 <= rate.corrected.high] if seen else []
            ignored += [corrected_rate(judged, labels, groups).labelled.value] if seen else []
    assert np.mean(hits) > 0.88
    assert np.mean(ignored) < 0.7  # without the probabilities, uncertain texts count too much
    assert np.mean(widths[True]) < 0.93 * np.mean(widths[False])


def test_the_probabilities_are_those_with_which_the_order_begins():
    checklist = Checklist.parse(["Is it red?"])
    scores = [score_of(checklist, p) for p in np.linspace(0.5, 0.99, 10)]
    names = [str(place) for place in range(10)]
    totals = np.zeros(10)
    for seed in range(2000):
        for place, chance in LabelSample.of(names, scores, seed).probabilities(4).items():
            totals[place] += 1 / chance
    assert totals / 2000 == pytest.approx(np.ones(10), abs=0.12)  # every text counts once
    assert set(LabelSample.of(names, scores, 0).probabilities(10).values()) == {1.0}
    assert LabelSample.of(names, [None] * 10, 1).order == LabelSample.of(names, [None] * 10, 1).order


def test_win_rates_are_corrected_by_the_labels_of_both_files():
    rng = np.random.default_rng(0)
    checklist = Checklist.parse(["Is it red?"])

    def rows(quality):
        true = rng.random(200) < quality
        judged = np.where(true, 0.8, 0.4) + 0.2 * rng.random(200) + (0.3 if quality > 0.5 else 0.0)
        scores = [score_of(checklist, p) for p in np.clip(judged / 1.5, 0, 1)]
        labels = [float(each) if n < 80 else None for n, each in enumerate(true)]
        both = enumerate(zip(scores, labels, strict=True))
        return [ScoredText(str(n), f"rows, row {n}", score, labels=label) for n, (score, label) in both], true

    (one, a), (other, b) = rows(0.6), rows(0.5)
    rate = win_rate(one, other, ("one", "other"))
    truth = np.mean((a > b) + 0.5 * (a == b))
    assert rate.name == "wins of one over other" and (rate.judged_units, rate.labelled_units) == (200, 80)
    assert rate.judged.value > 0.65 and rate.corrected.value == pytest.approx(truth, abs=0.08)
    assert rate.corrected.low <= truth <= rate.corrected.high
