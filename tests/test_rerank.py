"""Best-of-N: ties stay ties, what has no score has no rank, and everything is scored in one batch."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine, Sampling
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.rerank import Pool, Ranking, rank, rerank, rerank_batch, sample_candidates, selection
from tests.fakes import FakeBackend


def likes(prefix: str, tail: str) -> float | None:
    """Yes as often as the text is red; nothing at all about a text that is lost."""
    return None if "lost" in prefix else min(1.0, 0.2 + 0.2 * prefix.count("red"))


def scorer_on(backend=None) -> ChecklistScorer:
    return ChecklistScorer(backend=backend or FakeBackend(likes), store=False)


@pytest.mark.parametrize(
    ("values", "ties", "ranks"),
    [
        ([0.5, 1.0, 0.0], "keep", [2, 1, 3]),
        ([0.5, 1.0, 1.0, 0.0], "keep", [3, 1, 1, 4]),
        ([0.5, 1.0, 1.0, 0.0], "first", [3, 1, 2, 4]),
        ([0.5, 1.0, 1.0, 0.0], "shortest", [3, 2, 1, 4]),
        ([None, 0.0, None], "keep", [None, 1, None]),
        ([None, None], "first", [None, None]),
        ([], "keep", []),
    ],
)
def test_equal_values_share_a_rank_until_told_otherwise(values, ties, ranks):
    assert rank(values, ties, texts=["aa", "bbb", "b", ""][: len(values)]) == ranks


def test_an_unscored_candidate_ranks_nowhere_not_last():
    ranking = rerank(scorer_on(), ["Is it red?"], ["lost", "plain", "red"])
    assert ranking.ranks == (None, 2, 1) and ranking.best == ("red",)
    nothing = rerank(scorer_on(), ["Is it red?"], ["lost", "also lost"])
    assert nothing.ranks == (None, None) and nothing.picked == () and nothing.best == ()


def test_all_candidates_of_all_pools_are_scored_in_one_plan():
    backend = FakeBackend(likes)
    pools = [Pool(["Is it red?"], ["red", "red red", "red"], "a"), Pool(["Is it red?"], ["plain"], "b")]
    first, second = rerank_batch(scorer_on(backend), pools)
    assert len(backend.calls) == 1 and len(backend.asked) == 3  # the two equal candidates were asked about once
    assert first.ranks == (2, 1, 2) and first.picked == (1,) and second.picked == (0,)


def test_ranks_come_from_the_scores_that_score_batch_gives(pocket):
    scorer = ChecklistScorer("pocket", backend="transformers", store=False)
    checklist = ["Does the response end with a question mark?", "Does the response contain a digit?"]
    texts = ["the 3 lamo is old?", "the old lamo is red.", "My 4 keno is red."]
    ranking = rerank(scorer, checklist, texts, "Write a note.")
    scores = scorer.score_batch([Sample(checklist, text, "Write a note.") for text in texts])
    assert [score.primary_score for score in ranking.scores] == [score.primary_score for score in scores]
    assert list(ranking.ranks) == rank([score.primary_score for score in scores])


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ("text", ["pool 1", "list of strings"]),
        ([], ["pool 1", "list of candidates is empty"]),
        (["a", 7], ["candidate 2", "int 7"]),
    ],
)
def test_candidates_that_are_no_texts_are_refused_before_anything_is_asked(candidates, words):
    backend = FakeBackend(likes)
    with pytest.raises(SampleError) as refused:
        rerank(scorer_on(backend), ["Is it red?"], candidates)
    assert all(word in str(refused.value) for word in words), refused.value
    with pytest.raises(SampleError, match="allowed: 'keep', 'first', 'shortest'"):
        rerank(scorer_on(backend), ["Is it red?"], ["a"], ties="random")
    assert not backend.asked


def picked(*positions: int, of: int = 4) -> Ranking:
    ranks = tuple(1 if position in positions else 2 for position in range(of))
    return Ranking(("text",) * of, (), ranks if positions else (None,) * of)


@pytest.mark.parametrize(
    ("ranking", "gold", "precision"),
    [
        (picked(1), [0, 1, 0, 0], 1.0),
        (picked(0), [0, 1, 0, 0], 0.0),
        (picked(0, 1), [0, 1, 0, 0], 0.5),  # an additional pick that is not best costs
        (picked(0), [1, 1, 0, 0], 1.0),  # leaving out one of two best does not
        (picked(0, 1, 2, 3), [1, 1, 0, 0], 0.5),
    ],
)
def test_selection_precision_as_the_stick_study_defines_it(ranking, gold, precision):
    assert selection([ranking], [gold]).precision == precision


def test_selection_compares_the_pick_with_the_first_the_mean_and_the_ceiling():
    measured = selection(
        [picked(1, 2), picked(0), picked()], [[0.0, 1.0, 0.5, 0.5], [0.5, 0.5, 1.0, 0.0], [1, 1, 1, 1]]
    )
    assert (measured.pools, measured.unpicked) == (3, 1)
    assert measured.precision == 0.25
    assert measured.gold_picked == pytest.approx((0.75 + 0.5) / 2)
    assert measured.gold_first == pytest.approx(0.25)
    assert measured.gold_mean == pytest.approx(0.5)
    assert measured.gold_best == 1.0
    assert selection([picked()], [[1, 0, 0, 0]]).precision is None


@pytest.mark.parametrize("gold", [[1, 2], [1, 2, 3, float("nan")], [1, 2, 3, "4"], "1234", None])
def test_gold_must_be_one_finite_number_per_candidate(gold):
    with pytest.raises(SampleError, match="pool 1: .*gold"):
        selection([picked(0)], [gold])


def test_sampled_candidates_are_kept_in_the_store(tmp_path):
    backend = FakeBackend(replies=["one reply", "never asked again"])
    store = Store(tmp_path / "store")
    for _ in range(2):
        texts = sample_candidates(["Say a."], Engine("m", backend), Sampling(n=3, temperature=1.0), store)
        assert texts == [["one reply"] * 3]


@pytest.mark.slow
def test_sampled_candidates_of_the_pocket_policy_differ_and_are_ranked(pocket):
    prompts = ['Write a note. Mention the word "lamo". End with a question mark.']
    [texts] = sample_candidates(prompts, Engine("pocket", pocket), Sampling(48, temperature=1.0, n=4))
    assert len(texts) == 4 and len(set(texts)) > 1
    ranking = rerank(scorer_on(pocket), ["Does the response end with a question mark?"], texts, prompts[0])
    assert sorted(r for r in ranking.ranks if r is not None)[0] == 1
