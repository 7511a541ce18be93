"""Best-of-N: ties stay ties, what has no score has no rank, and everything is scored in one batch."""

import pickle

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine, Reply, Sampling
from checklist_rewards.chat import Target
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.rerank import (
    Candidate,
    Pool,
    Ranking,
    rank,
    ranks_of,
    rerank,
    rerank_batch,
    sample_candidates,
    selection,
)
from tests.fakes import FakeBackend
from tests.generators.fakes import Replies


def likes(prefix: str, tail: str) -> float | None:
    """Yes as often as the text is red; nothing at all about a text that is lost."""
    return None if "lost" in prefix else min(1.0, 0.2 + 0.2 * prefix.count("red"))


def scorer_on(backend=None) -> ChecklistScorer:
    return ChecklistScorer(backend=backend or FakeBackend(likes), store=False)


@pytest.mark.parametrize(
    ("values", "ties", "ranks"),
    [
        ([0.5, 1.0, 1.0, 0.0], "keep", [3, 1, 1, 4]),
        ([0.5, 1.0, 1.0, 0.0], "first", [3, 1, 2, 4]),
        ([0.5, 1.0, 1.0, 0.0], "shortest", [3, 2, 1, 4]),
        ([0.5000000000000001, 0.5, 0.4], "keep", [1, 1, 3]),  # a rounding error picks no candidate
        ([0.5, 0.5 - 1e-6], "keep", [1, 2]),
        ([None, 0.0, None], "keep", [None, 1, None]),
    ],
)
def test_equal_values_share_a_rank_until_told_otherwise(values, ties, ranks):
    assert rank(values, ties, texts=["aa", "bbb", "b", ""][: len(values)]) == ranks


def test_an_unscored_candidate_ranks_nowhere_not_last():
    ranking = rerank(scorer_on(), ["Is it red?"], ["lost", "plain", "red"])
    assert ranking.ranks == (None, 2, 1) and ranking.best == ("red",)
    nothing = rerank(scorer_on(), ["Is it red?"], ["lost", "also lost"])
    assert nothing.ranks == (None, None) and nothing.best == ()


def test_all_candidates_of_all_pools_are_scored_in_one_plan_as_score_batch_does():
    backend, checklist = FakeBackend(likes), ["Is it red?"]
    pools = [Pool(checklist, ["red", "red red", "red"], "a"), Pool(checklist, ["plain"], "b")]
    first, second = rerank_batch(scorer_on(backend), pools)
    assert len(backend.calls) == 1 and len(backend.asked) == 3  # the two equal candidates were asked about once
    assert first.ranks == (2, 1, 2) and first.picked == (1,) and second.picked == (0,)
    samples = [Sample(checklist, text, "a") for text in ("red", "red red", "red")]
    assert list(first.scores) == scorer_on().score_batch(samples)


# --- which text is judged


def test_the_shortest_answer_wins_with_its_thought_and_without_an_answer_no_one():
    candidates = ["red, it is", "<think>What shall I write?</think>red"]  # the second answer is the shortest
    assert rerank(scorer_on(), ["Is it red?"], candidates, ties="shortest").ranks == (2, 1)
    assert rerank(scorer_on(), ["Is it red?"], ["", "<think>red"]).ranks == (1, 1)  # both have no answer


@pytest.mark.parametrize("text", ["", "<think>red red"])
def test_a_candidate_without_an_answer_is_not_judged_and_never_wins(text):
    """It has the score of the worst answer, and ranks after it. "Is it free of red?" would be true of no text."""
    for rule, without_rank in (("lowest", 2), ("unscored", None)):
        backend = FakeBackend(lambda prefix, tail: 0.0)
        scorer = ChecklistScorer(backend=backend, store=False, no_answer=rule)
        ranking = rerank(scorer, ["Is it free of red?"], [text, "a red answer"])
        assert ranking.ranks == (without_rank, 1) and ranking.best == ("a red answer",)
        assert len(backend.asked) == 1 and ranks_of(ranking.scores) == list(ranking.ranks)
    judged = ChecklistScorer(backend=FakeBackend(likes), store=False, no_answer="judge")
    assert rerank(judged, ["Is it red?"], [text, "plain"]).ranks == (1, 1)


def test_a_candidate_keeps_what_is_known_of_its_answer():
    cut = Candidate("a red", Target("a red", "cut"))
    assert Candidate(cut).target == cut.target and str(cut) == "a red"
    assert pickle.loads(pickle.dumps([cut]))[0].target == Target("a red", "cut")
    assert rerank(scorer_on(), ["Is it red?"], [cut]).scores[0].state == "cut"


@pytest.mark.parametrize(
    ("reply", "target"),
    [
        (Reply("red", "stop"), Target("red")),
        (Reply("red", "length"), Target("red", "cut")),
        (Reply("<think>red", "length"), Target("", "cut_in_thought", "red")),
        (Reply("<think>red</think>", "length"), Target("", "cut_in_thought", "red")),
        (Reply("", "length", thought="red"), Target("", "cut_in_thought", "red")),  # a server has parsed the thought
        (Reply("a <think> tag", "stop", thought="red"), Target("a <think> tag", "answered", "red")),
    ],
)
def test_a_sampled_candidate_that_the_token_limit_cut_is_known_as_such(reply, target):
    engine = Engine("m", Replies(lambda text, sampling: reply))
    [[candidate]] = sample_candidates(["Say a."], engine, Sampling(n=1))
    assert (candidate, candidate.target) == (reply.text, target)
    assert rerank(scorer_on(), ["Is it red?"], [candidate]).scores[0].state == target.state


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
        (picked(0, 1), [0, 1, 0, 0], 0.5),  # an additional pick that is not best costs
        (picked(0), [1, 1, 0, 0], 1.0),  # leaving out one of two best does not
        (picked(), [1, 0, 0, 0], None),
    ],
)
def test_selection_precision_as_the_stick_study_defines_it(ranking, gold, precision):
    measured = selection([ranking], [gold])
    assert (measured.precision, measured.unpicked) == (precision, int(precision is None))


@pytest.mark.parametrize("gold", [[1, 2], [1, 2, 3, float("nan")], "1234"])
def test_gold_must_be_one_finite_number_per_candidate(gold):
    with pytest.raises(SampleError, match="pool 1: .*gold"):
        selection([picked(0)], [gold])


def test_selection_compares_the_pick_with_the_first_the_mean_and_the_ceiling():
    gold = [[0.0, 1.0, 0.5, 0.5], [0.5, 0.5, 1.0, 0.0], [1, 1, 1, 1]]
    measured = selection([picked(1, 2), picked(0), picked()], gold)
    assert (measured.pools, measured.unpicked, measured.precision) == (3, 1, 0.25)
    assert measured.gold_picked == pytest.approx((0.75 + 0.5) / 2)
    assert (measured.gold_first, measured.gold_mean, measured.gold_best) == pytest.approx((0.25, 0.5, 1.0))


def test_sampled_candidates_are_kept_in_the_store(tmp_path):
    backend = FakeBackend(replies=["one reply", "never asked again"])
    store = Store(tmp_path / "store")
    for _ in range(2):
        texts = sample_candidates(["Say a."], Engine("m", backend), Sampling(n=3, temperature=1.0), store)
        assert texts == [["one reply"] * 3]
