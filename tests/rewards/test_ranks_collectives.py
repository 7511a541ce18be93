"""What the ranks of a training run exchange, on two processes with gloo."""

import pytest

from tests.ranks import on_two_ranks

pytestmark = pytest.mark.slow


def test_what_the_ranks_of_a_run_exchange(tmp_path):
    ranks = on_two_ranks("rewards/collective_ranks.py", tmp_path)
    for rank, found in enumerate(ranks):
        assert found["gathered"] == [{"rank": 0}, {"rank": 1}], "in the order of the ranks"
        assert found["others"] == [f"{1 - rank} a", f"{1 - rank} b"]
        assert found["failed"] == ["both", "only on 1"]
        assert found["summed"] == [None, 0.5], "rewards that are summed abstain together on all ranks"
        assert found["logged"] == [["score", 1.5], ["unscored", 0.5]], "an older TRL logs the same metrics on all"
        assert found["late"] == [None, 0.5], "rank 1 has no time for its second read"
        assert found["ties"] == [0.5, 0.5], "all pairs of rank 1, none of rank 0"

        groups, sign = found["groups"], -1 if rank == 0 else 1  # groups are spread over the ranks
        moved = pytest.approx(sign * 0.3)
        assert groups["rewards"] == groups["images"] == [None, 0.5]
        assert all(words.startswith("groups on 2 ranks (on_failure='group'") for words in groups["async"])
        assert groups["centred"] == [moved, 0.0]
        assert groups["in order"] == [[moved, moved], [None, None]], "four prompts, and one group of the trainer"
        assert groups["contrast"] == [pytest.approx(0.5 + sign * 0.3)] * 2
        assert groups["parts"] == [groups["whitened"], [None, None]] == [[pytest.approx(sign), 0.0], [None, None]]

    # The judge of an evaluation worked on rank 0, for two timeouts of the group.
    assert [found["outlived"] for found in ranks] == [2, 0]
    assert "held_out/score" in ranks[0]["evaluated"] and ranks[1]["evaluated"] == []
