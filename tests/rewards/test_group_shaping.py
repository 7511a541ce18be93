"""Shaping from the items of a group: examples worked out by hand, and what must not change a value."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.rewards.group_shaping import MIN_STD, Contrast, ItemZscore, Whitened, spreads

item_zscore, contrast, whitened = FORMULAS = (ItemZscore().shaped, Contrast().shaped, Whitened().shaped)
contrast_weights, whitened_weights = Contrast().weights, Whitened().weights
TINY = 1e-9


def without_variance(credits, min_std=MIN_STD):
    """Whether each item is without variance."""
    return [spread.std == 0 for spread in spreads(credits, min_std)]


@st.composite
def groups(draw, missing=True, most=6):
    """Credits of a group on a grid of 0.1, so that an item varies clearly or not at all; and weights."""
    completions, items = draw(st.integers(1, most)), draw(st.integers(1, 5))
    credit = st.integers(0, 10).map(lambda tenths: tenths / 10)
    entry = st.one_of(st.none(), credit) if missing else credit
    credits = draw(
        st.lists(st.lists(entry, min_size=items, max_size=items), min_size=completions, max_size=completions)
    )
    weights = draw(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=items, max_size=items))
    return credits, weights


@given(groups(), st.randoms(use_true_random=False), st.sampled_from(FORMULAS))
def test_the_order_of_completions_and_of_items_does_not_matter(group, random, formula):
    credits, weights = group
    values = formula(credits, weights)
    rows = random.sample(range(len(credits)), len(credits))
    columns = random.sample(range(len(weights)), len(weights))
    moved = formula([[credits[r][c] for c in columns] for r in rows], [weights[c] for c in columns])
    assert moved == pytest.approx([values[r] for r in rows], abs=1e-6)


@given(groups(), st.sampled_from(FORMULAS))
def test_values_are_finite_and_bounded(group, formula):
    credits, weights = group
    values = formula(credits, weights)
    assert len(values) == len(credits) and all(map(math.isfinite, values))
    if formula is contrast:
        assert all(-TINY <= value <= 1 + TINY for value in values)


@given(groups(), st.sampled_from(FORMULAS))
def test_a_group_of_one_or_of_equal_answers_gives_no_advantage(group, formula):
    credits, weights = group
    assert len(set(formula([credits[0]] * len(credits), weights))) == 1


@given(groups(), st.sampled_from([ItemZscore, Whitened]), st.floats(0.2, 5), st.floats(-1, 1))
def test_standardized_items_do_not_depend_on_level_and_scale(group, step, scale, shift):
    credits, weights = group
    changed = [[None if c is None else scale * c + shift for c in row] for row in credits]
    scaled = step(min_std=scale * MIN_STD).shaped(changed, weights)
    assert scaled == pytest.approx(step().shaped(credits, weights), abs=1e-6)


@given(groups(), st.sampled_from(FORMULAS), st.integers(0, 5), st.integers(0, 4))
def test_an_answer_that_is_lost_moves_no_other_completion_on_an_item_of_its_own(group, formula, row, column):
    """An item that only one completion answers has no variance, so whether the judge fails on it changes nothing."""
    credits, weights = group
    row, column = row % len(credits), column % len(weights)
    for other, line in enumerate(credits):
        line[column] = line[column] if other == row else None
    with_answer = formula(credits, weights)
    credits[row][column] = None
    without_answer = formula(credits, weights)
    differences = [a - b for a, b in zip(with_answer, without_answer, strict=True)]
    assert differences == pytest.approx([differences[0]] * len(differences), abs=1e-9)


@given(groups(missing=False))
def test_standardized_sums_are_centred_in_the_group(group):
    for formula in (item_zscore, whitened):
        assert math.fsum(formula(*group)) == pytest.approx(0, abs=1e-6)


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0, -1.0]), min_size=1, max_size=5), st.integers(2, 6))
def test_contrast_keeps_the_weights_when_all_variances_are_equal(weights, completions):
    credits = [[float(row % 2)] * len(weights) for row in range(completions)]
    categories = [str(place % 2) for place in range(len(weights))]
    assert contrast_weights(credits, weights) == pytest.approx([abs(w) for w in weights])
    assert contrast_weights(credits, weights, categories) == pytest.approx([abs(w) for w in weights])


@given(groups())
def test_contrast_keeps_the_weight_of_every_category_that_varies(group):
    credits, weights = group
    categories = ["ab"[place % 2] for place in range(len(weights))]
    found = contrast_weights(credits, weights, categories)
    flat = without_variance(credits)
    for category in set(categories):
        places = [place for place, name in enumerate(categories) if name == category]
        varies = any(weights[place] and not flat[place] for place in places)
        assert sum(found[p] for p in places) == pytest.approx(sum(abs(weights[p]) for p in places) if varies else 0)
    assert all(found[place] == 0 for place, is_flat in enumerate(flat) if is_flat)


@given(st.integers(1, 6), st.sampled_from([0.5, 1.0, 3.0]))
def test_copies_of_an_item_share_its_weight(copies, weight):
    """Plain, item_zscore and contrast count m copies m times, whitened sqrt(m) times."""
    credits = [[first] * copies + [second] for first, second in ((1, 1), (1, 0), (0, 1), (0, 0))]  # not correlated
    found = whitened_weights(credits, [weight] * copies + [1.0])
    assert found == pytest.approx([weight / math.sqrt(copies)] * copies + [1.0])


@given(groups(missing=False))
def test_copies_of_an_item_have_equal_weights_among_other_items(group):
    credits, weights = group
    found = whitened_weights([[*row, row[0]] for row in credits], [*weights, weights[0]])
    assert found[-1] == pytest.approx(found[0], abs=1e-6) and all(weight >= 0 for weight in found)


def test_items_that_are_not_correlated_are_only_standardized():
    credits = [[1, 1, 0.9], [1, 0, 0.9], [0, 1, 0.9], [0, 0, 0.9]]
    weights = [2.0, -1.0, 5.0]
    assert whitened(credits, weights) == pytest.approx(item_zscore(credits, weights))


def test_by_hand():
    credits = [[1.0, 0.8], [0.0, None], [0.0, 0.2], [None, None]]
    deviation = math.sqrt(2) / 3
    assert [spread.std for spread in spreads(credits)] == pytest.approx([deviation, 0.3])
    first, second = (2 / 3) / deviation, (1 / 3) / deviation
    expected = [(first + 2) / 3, -second / 3, (-second - 2) / 3, 0.0]
    assert item_zscore(credits, [1.0, 2.0]) == pytest.approx(expected)
    a, b = contrast_weights(credits, [1.0, 2.0])
    assert b / a == pytest.approx(2 * 0.09 / (2 / 9)) and a + b == pytest.approx(3)
    middle = (a / 3 + b * 0.5) / 3  # where a completion without answers stands
    assert contrast(credits, [1.0, 2.0]) == pytest.approx([(a + 0.8 * b) / 3, b * 0.5 / 3, b * 0.2 / 3, middle])


def test_the_noise_of_a_judge_on_a_saturated_item_is_no_variance():
    credits = [[0.999, 1], [0.997, 0], [0.998, 1], [0.999, 0]]
    assert without_variance(credits) == [True, False]
    assert item_zscore(credits, [1.0, 1.0]) == pytest.approx([0.5, -0.5, 0.5, -0.5])
    assert without_variance(credits, min_std=0) == [False, False]


def test_a_penalty_counts_by_its_size_and_the_scale_is_that_of_the_positive_items():
    credits = [[1, 1], [0, 0]]  # the second completion lacks the first item and has the penalty
    assert item_zscore(credits, [2.0, -1.0]) == pytest.approx([1.5, -1.5])
    assert item_zscore(credits, [-2.0, -1.0]) == pytest.approx([1.0, -1.0])
    assert contrast(credits, [2.0, -1.0]) == [1.0, 0.0]


def test_without_a_varying_item_the_value_is_the_groups_mean_credit():
    assert contrast([[1, 0.2, None], [1, None, None]], [1.0, 1.0, 4.0]) == pytest.approx([0.6, 0.6])
    assert contrast([[None], [None]], [1.0]) == [0.0, 0.0]
