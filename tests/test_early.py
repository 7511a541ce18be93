"""Reading stops when the decision is fixed, and the decision is that of reading everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.checklists import Checklist
from checklist_rewards.early import may_be_best, may_be_either, not_fixed, rounds
from checklist_rewards.errors import SampleError
from checklist_rewards.rerank import Pool, rerank_batch
from checklist_rewards.scores import PRIMARY_METRICS, Reason
from tests.fakes import FakeBackend

N = "Does the response contain a digit?", "Is it short?", "Is it polite?", "Is it about tea?", "Does it rhyme?"


def scorer(rule=None, **settings):
    return ChecklistScorer("fake", backend=FakeBackend(rule or (lambda prefix, tail: 0.9)), store=False, **settings)


@st.composite
def pools(draw):
    """Checklists of yes/no items with weights, penalties and gates; P(yes) of each item about each candidate, or None
    for a read that fails."""
    items = [
        {
            "question": question,
            "weight": draw(st.sampled_from([1, 2, 0.5, -1])),
            "required": draw(st.sampled_from([False, False, True])),
        }
        for question in N[: draw(st.integers(1, 5))]
    ]
    if all(item["weight"] < 0 for item in items):
        items[0]["weight"] = 1
    answers = draw(
        st.lists(
            st.lists(st.sampled_from([0.02, 0.3, 0.7, 0.98, 0.98, None]), min_size=5, max_size=5),
            min_size=1,
            max_size=5,
        )
    )
    return items, answers


def rule_of(answers):
    """The answers of candidate n, whose text is `candidate n`."""

    def rule(prefix, tail):
        number = int(prefix.split("candidate ")[1].split()[0].rstrip(".<"))
        [place] = [place for place, question in enumerate(N) if question in tail]
        return answers[number][place]

    return rule


metrics = st.sampled_from([metric for metric in PRIMARY_METRICS if metric not in ("net", "quality")])


@settings(max_examples=150, deadline=None)
@given(pools(), metrics)
def test_the_best_candidates_and_their_scores_are_those_of_reading_everything(pool, metric):
    items, answers = pool
    given_pools = [Pool({"items": items}, [f"candidate {n} ." for n in range(len(answers))])]
    [everything] = rerank_batch(scorer(rule_of(answers), metric=metric), given_pools)
    [early] = rerank_batch(scorer(rule_of(answers), metric=metric, decide_early=True), given_pools)

    assert early.picked == everything.picked
    for place in early.picked:
        assert early.scores[place] == everything.scores[place]
    for now, full in zip(early.scores, everything.scores, strict=True):
        if full.primary_score is not None:  # bounds hold
            assert now.lower - 1e-9 <= full.primary_score <= now.upper + 1e-9


@settings(max_examples=150, deadline=None)
@given(pools(), metrics)
def test_a_score_that_is_fixed_is_the_score_of_reading_everything(pool, metric):
    items, answers = pool
    answers = [[0.5 if p is None else p for p in line] for line in answers]
    samples = [Sample({"items": items}, f"candidate {n} .") for n in range(len(answers))]
    everything = scorer(rule_of(answers), metric=metric).score_batch(samples)
    early = scorer(rule_of(answers), metric=metric, decide_early=True).score_batch(samples)
    assert [score.primary_score for score in early] == [score.primary_score for score in everything]


@settings(max_examples=100, deadline=None)
@given(pools(), metrics)
def test_the_best_and_the_worst_candidate_are_read_to_the_end(pool, metric):
    items, answers = pool
    answers = [[0.5 if p is None else p for p in line] for line in answers]
    group = [Sample({"items": items}, f"candidate {n} .") for n in range(len(answers))]
    everything = [s.primary_score for s in scorer(rule_of(answers), metric=metric).score_batch(group)]
    [early] = scorer(rule_of(answers), metric=metric).score_early([group], may_be_either)
    for score, full in zip(early, everything, strict=True):
        if full in (max(everything), min(everything)):
            assert score.primary_score == full


def test_a_failed_required_item_saves_all_other_reads():
    judge = scorer(lambda prefix, tail: 0.01 if N[3] in tail else 0.9, decide_early=True)
    checklist = [*N[:3], {"question": N[3], "required": True}]
    score = judge.score(checklist, "Coffee.")

    assert (score.primary_score, score.lower, score.upper) == (0, 0, 0)
    assert judge.receipt.asked == 1
    assert score.not_needed == 3
    assert not score.unanswered, "an item that is not needed is no failure"
    assert {line.unanswered for line in score.items if line.not_needed} == {Reason.NOT_NEEDED}


def test_a_candidate_that_cannot_be_the_best_is_not_read_on():
    judge = scorer(lambda prefix, tail: 0.99 if "good" in prefix else 0.01, decide_early=True)
    reported = []
    pool = Pool(list(N), ["a bad one", "a good one", "another bad one"])
    [ranking] = rerank_batch(judge, [pool], progress=reported.append)

    assert ranking.best == ("a good one",)
    assert ranking.ranks == (None, 1, None)
    assert judge.receipt.asked < 3 * len(N)
    assert sum(reported) == 3 * len(N), "the progress bar ends"


def test_targets_without_an_answer_are_not_read():
    judge = scorer(decide_early=True)
    [empty, text] = judge.score_batch([Sample(list(N), ""), Sample(list(N), "Tea.")])
    assert empty.primary_score == 0
    assert empty.no_answer
    assert text.primary_score == pytest.approx(0.9)


def test_free_and_required_items_come_first_and_heavy_ones_before_light_ones():
    checklist = Checklist.parse(
        [
            {"question": N[0], "weight": 1},
            {"question": N[1], "weight": 4},
            {"question": N[2], "required": True},
            {"question": N[3], "check": {"type": "words", "at_most": 9}},
            {"question": N[4], "weight": -3},
        ]
    )
    planned = list(rounds(checklist.items, lambda item: item.check is not None))
    assert planned[0] == [2, 3]
    assert [place for part in planned[1:] for place in part] == [1, 4, 0]


@pytest.mark.parametrize("open_scores", [not_fixed, may_be_best, may_be_either])
def test_what_is_not_read_at_all_is_open(open_scores):
    [[score]] = scorer().score_early([[Sample(list(N), "Tea.")]], open_scores)
    assert score.not_needed == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"metric": "net"}, "decide_early requires bounds, which the metric 'net' does not have for all checklists."),
        ({"mode": "batch"}, "decide_early requires a judge that answers one item at a time, and no reward server."),
    ],
)
def test_what_cannot_be_decided_early_is_refused(arguments, sentence):
    with pytest.raises(SampleError, match=sentence):
        scorer(**arguments, decide_early=True)
