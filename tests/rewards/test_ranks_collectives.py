"""What the ranks of a training run exchange, on two processes with gloo."""

import pytest

from tests.ranks import on_two_ranks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found."""
    return on_two_ranks("rewards/collective_ranks.py", tmp_path_factory.mktemp("collectives"))


def test_values_arrive_in_the_order_of_the_ranks(ranks):
    for rank, found in enumerate(ranks):
        assert found["gathered"] == [{"rank": 0}, {"rank": 1}]
        assert found["others"] == [f"{1 - rank} a", f"{1 - rank} b"]
        assert found["failed"] == ["both", "only on 1"]


def test_rewards_that_are_summed_abstain_together_on_all_ranks(ranks):
    assert [found["summed"] for found in ranks] == [[None, 0.5]] * 2


def test_ranks_of_an_older_trl_log_the_same_metrics(ranks):
    assert [found["logged"] for found in ranks] == [[["score", 1.5], ["unscored", 0.5]]] * 2


def test_a_deadline_that_one_rank_misses_takes_its_group_along_on_the_other(ranks):
    assert [found["late"] for found in ranks] == [[None, 0.5]] * 2, "rank 1 has no time for its second read"


def test_ties_of_online_dpo_are_averaged_over_the_ranks(ranks):
    assert [found["ties"] for found in ranks] == [[0.5, 0.5]] * 2, "all pairs of rank 1, none of rank 0"


def test_ranks_wait_for_an_evaluation_that_takes_longer_than_the_timeout_of_their_group(ranks):
    first, second = ranks
    assert (first["outlived"], second["outlived"]) == (2, 0), "the judge worked on rank 0, for two timeouts"
    assert "held_out/score" in first["evaluated"] and second["evaluated"] == []


def test_a_group_that_is_spread_over_ranks_abstains_and_is_centred_as_one(ranks):
    for rank, found in enumerate(whole["groups"] for whole in ranks):
        assert found["rewards"] == [None, 0.5]
        assert "groups on 2 ranks (on_failure='group'" in found["async"]
        moved = [pytest.approx(-0.3 if rank == 0 else 0.3)] * 2
        assert found["in order"] == [moved, [None, None]], "four prompts, and one group of the trainer"
        assert found["centred"] == [pytest.approx(-0.3 if rank == 0 else 0.3), 0.0]
        assert found["async centred"] == found["async"]
        assert found["images"] == [None, 0.5]
        sign = -1 if rank == 0 else 1
        assert found["item_zscore"] == found["whitened"] == [pytest.approx(sign), 0.0]
        assert found["contrast"] == [pytest.approx(0.5 + sign * 0.3)] * 2
        assert found["parts"] == [[pytest.approx(sign), 0.0], [None, None]]
        assert found["async parts"].partition(": ")[2] == found["async"].partition(": ")[2]
