"""Preferences: label distances, wins, effect sizes, by hand."""

import math

import numpy as np
import pytest

from checklist_rewards.evaluation.measures import Preferences, pairs_within


def test_pairwise_label_distances_by_hand():
    # Truth win, win, tie, tie, loss; the judge says win, loss, tie, win, tie: distances 0, 2, 0, 1, 1.
    found = Preferences([0.2, -0.1, 0.0, 0.3, 0.0], [1, 1, 0, 0, -1]).figures()
    assert [found[f"pld_{distance}"] for distance in (0, 1, 2)] == [0.4, 0.4, 0.2]
    assert found["wpld"] == pytest.approx((2 + 1 + 1) / 5)


def test_wpld_is_the_weighted_sum_of_the_shares():
    # TICK's table 4: 0.522, 0.443 and 0.035 of the pairs, WPLD 0.514 (0.513 of the rounded shares).
    distances = [0] * 522 + [1] * 443 + [2] * 35
    judged = {0: 1.0, 1: 0.0, 2: -1.0}
    found = Preferences([judged[distance] for distance in distances], [1] * 1000).figures()
    assert found["wpld"] == pytest.approx(0.513)


def test_wins_effect_size_and_t_test_by_hand():
    # The better target is the second one of the third pair. Chosen minus rejected: .3, .1, .2, and one tie of the
    # truth, which has no chosen one. Mean .2, standard deviation .1.
    found = Preferences([0.3, 0.1, -0.2, 0.5], [1, 2, -1, 0]).figures()
    assert (found["wins"], found["losses"], found["ties"]) == (1.0, 0.0, 0.0)
    assert found["difference"] == pytest.approx(0.2) and found["cohens_d"] == pytest.approx(2.0)
    # t = d x sqrt(3) with 2 degrees of freedom, for which the distribution has a closed form.
    t = 2 * math.sqrt(3)
    assert found["t_test_p"] == pytest.approx(1 - t / math.sqrt(2 + t * t))


def test_the_t_test_of_dependent_pairs_is_that_of_their_groups():
    judged = [0.3, 0.1, 0.2, 0.4, -0.1]
    alone = Preferences(judged, [1] * 5).figures()["t_test_p"]
    twice = Preferences(judged * 2, [1] * 10, groups=[*range(5), *range(5)]).figures()["t_test_p"]
    assert twice == pytest.approx(alone)
    assert Preferences(judged, [1] * 5, groups=["one"] * 5).figures()["t_test_p"] is None


def test_scores_that_are_equal_on_paper_tie():
    found = Preferences([0.1 + 0.2 - 0.3, 0.02], [1, 1], tie=0.02).figures()
    assert found["ties"] == 1.0 and found["pld_1"] == 1.0


def test_what_is_not_defined_is_none():
    all_tied = Preferences([0.5, -0.5], [0, 0]).figures()
    assert all_tied["wpld"] == 1.0 and all_tied["wins"] is None and all_tied["t_test_p"] is None
    same = Preferences([0.25, 0.25], [1, 1]).figures()
    assert same["difference"] == 0.25 and same["cohens_d"] is None and same["t_test_p"] is None
    for few in (2, 20):  # every input has the same sum of differences, which is also the mean of equal differences
        equal = Preferences([0.25, 0.75] * few, [1] * 2 * few, groups=np.repeat(np.arange(few), 2).tolist()).figures()
        assert equal["cohens_d"] is not None and equal["t_test_p"] is None
    rounded = Preferences([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], [1] * 6, groups=[0, 0, 0, 1, 1, 1]).figures()
    assert rounded["t_test_p"] is None
    assert set(Preferences([], []).figures().values()) == {None}


def test_a_draw_of_the_bootstrap_is_the_figure_of_the_repeated_pairs():
    rng = np.random.default_rng(4)
    judged, truth = rng.normal(0, 1, 20).round(1), rng.integers(-1, 2, 20)
    weights = rng.integers(0, 3, 20)
    repeated = np.repeat(np.arange(20), weights)
    drawn = Preferences(judged, truth).replicate(weights)
    whole = Preferences(judged[repeated], truth[repeated]).figures()
    del drawn["t_test_p"], whole["t_test_p"]
    assert drawn == pytest.approx(whole)


def test_pairs_are_made_within_an_input():
    assert pairs_within(["a", "b", "a", "a", "c"]) == [(0, 2), (0, 3), (2, 3)]
