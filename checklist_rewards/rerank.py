"""Best-of-N: the candidates of one input, ordered by the checklist's score.

Candidates are given, or sampled from a policy ([`sample_candidates`]). All candidates of all inputs are scored in one
`score_batch`, so they share prefixes and duplicates cost nothing; the rest is arithmetic on the scores.

Ties stay ties: candidates with the same score have the same rank, and all that share rank 1 are picked. Whoever needs
    exactly
one says how to break them (`ties="first"`). A candidate that could not be scored has no rank: a judge's failure is
neither the worst text nor the best.

    >>> rank([0.5, None, 1.0, 0.5])
    [2, None, 1, 2]
    >>> rank([0.5, None, 1.0, 0.5], ties="first")
    [2, None, 1, 3]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, get_args

from checklist_rewards.backends import Engine, Messages, Sampling
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Progress
from checklist_rewards.replies import sample_replies
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score

Ties = Literal["keep", "first", "shortest"]
TIES: tuple[str, ...] = get_args(Ties)


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one input.

    Args:
        checklist: a [`Checklist`], or anything that [`Checklist.parse`] takes.
        candidates (sequence of `str`): at least one text.
        input, reference, history (`str`, *optional*): shown to the judge, as in [`Sample`].
    """

    checklist: Any
    candidates: Sequence[str]
    input: str | None = None
    reference: str | None = None
    history: str | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """One pool in order."""

    candidates: tuple[str, ...]
    scores: tuple[Score, ...]
    ranks: tuple[int | None, ...]
    """1 is best; equal scores have equal ranks (1, 1, 3); None for a candidate without a score."""

    @property
    def picked(self) -> tuple[int, ...]:
        """Positions (from 0) of the candidates of rank 1: several where they tie, none where nothing was scored."""
        return tuple(position for position, rank in enumerate(self.ranks) if rank == 1)

    @property
    def best(self) -> tuple[str, ...]:
        """The texts picked."""
        return tuple(self.candidates[position] for position in self.picked)


@dataclass(frozen=True, slots=True)
class Selection:
    """How good the picks were, by gold scores. Means are over the pools where something was picked; None if there are
    none."""

    pools: int
    unpicked: int
    """Pools in which no candidate had a score; they count nowhere else."""
    precision: float | None
    """See [`selection`]."""
    gold_picked: float | None
    """Mean gold score of the picked candidates, ties averaged within their pool."""
    gold_first: float | None
    """Mean gold score of the first candidate: no selection at all."""
    gold_mean: float | None
    """Mean gold score of all candidates: picking at random."""
    gold_best: float | None
    """Mean gold score of the best candidate: the ceiling."""


def rank(values: Sequence[float | None], ties: Ties = "keep", texts: Sequence[str] | None = None) -> list[int | None]:
    """Rank values from the highest.

    Args:
        values (sequence of `float` or None): a score each; None ranks nowhere.
        ties (`str`): keep: equal values share a rank, and the next one is as many further down (1, 1, 3). first: the
            earlier one is better. shortest: the shorter text is better, then the earlier.
        texts (sequence of `str`, *optional*): needed for shortest.

    Returns:
        list of ranks from 1, or None, in the order of `values`.
    """
    _check_ties(ties)
    if ties == "shortest" and texts is None:
        raise SampleError("ties='shortest' needs the texts.")

    def breaker(position: int) -> tuple[int, int]:
        if ties == "keep":
            return 0, 0
        return (len(texts[position]) if ties == "shortest" and texts is not None else 0), position

    known = [(-value, *breaker(position)) for position, value in enumerate(values) if value is not None]
    places: dict[tuple[float, int, int], int] = {}
    for place, key in enumerate(sorted(known), start=1):
        places.setdefault(key, place)
    return [None if v is None else places[(-v, *breaker(position))] for position, v in enumerate(values)]


def rerank(
    scorer: ChecklistScorer,
    checklist: Any,
    candidates: Sequence[str],
    input: str | None = None,
    *,
    ties: Ties = "keep",
) -> Ranking:
    """Rank the candidates of one input; see [`rerank_batch`]."""
    return rerank_batch(scorer, [Pool(checklist, candidates, input)], ties=ties)[0]


def rerank_batch(
    scorer: ChecklistScorer, pools: Sequence[Pool], *, ties: Ties = "keep", progress: Progress | None = None
) -> list[Ranking]:
    """Rank the candidates of every pool by `primary_score`, scoring all of them in one call.

    Args:
        scorer ([`ChecklistScorer`]).
        pools (sequence of [`Pool`]).
        ties (`str`, *optional*, defaults to `"keep"`): keep, first or shortest; see [`rank`].
        progress (callable, *optional*): told how many reads were answered since its last call.

    Raises:
        SampleError, ChecklistError: naming the pool (from 1), before anything is asked.
    """
    _check_ties(ties)
    for number, pool in enumerate(pools, start=1):
        check_candidates(pool.candidates, f"pool {number}")
    samples = [
        Sample(pool.checklist, text, pool.input, pool.reference, pool.history)
        for pool in pools
        for text in pool.candidates
    ]
    scores = iter(scorer.score_batch(samples, progress))
    rankings = []
    for pool in pools:
        of_pool = tuple(next(scores) for _ in pool.candidates)
        ranks = rank([score.primary_score for score in of_pool], ties, pool.candidates)
        rankings.append(Ranking(tuple(pool.candidates), of_pool, tuple(ranks)))
    return rankings


def _check_ties(ties: str) -> None:
    if ties not in TIES:
        raise SampleError(f"ties={ties!r} is not known; allowed: {', '.join(map(repr, TIES))}.")


def check_candidates(value: Any, where: str) -> list[str]:
    """`value` as a list of texts, at least one. Raises [`SampleError`] that begins with `where`."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SampleError(f"{where}: candidates must be a list of strings, got {type(value).__name__} {value!r:.60}.")
    if not value:
        raise SampleError(f"{where}: there are no candidates; give at least one.")
    for number, text in enumerate(value, start=1):
        if not isinstance(text, str):
            raise SampleError(f"{where}: candidate {number} must be a string, got {type(text).__name__} {text!r:.60}.")
    return list(value)


def check_gold(value: Any, candidates: Sequence[str], where: str) -> list[float]:
    """`value` as one finite number per candidate. Raises [`SampleError`] that begins with `where`."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(candidates):
        raise SampleError(
            f"{where}: gold must be a list of {len(candidates)} numbers, one per candidate, got {value!r:.60}."
        )
    for number, gold in enumerate(value, start=1):
        if not isinstance(gold, int | float) or not math.isfinite(gold):
            raise SampleError(
                f"{where}: the gold score of candidate {number} must be a finite number, got {gold!r:.60}."
            )
    return [float(gold) for gold in value]


def selection(rankings: Sequence[Ranking], golds: Sequence[Sequence[float]]) -> Selection:
    """Measure the picks against gold scores, one per candidate.

    Precision follows the best-of-N study of TICK/STICK (section 4.2): the share of the picked candidates that have the
    best gold score of their pool, or tie for it. With no ties on either side it is the accuracy of the choice; picking
    more candidates than are best lowers it, and leaving out one of several best does not. Here: per pool, then the
    mean over pools.

    Raises:
        SampleError: if `golds` does not fit the rankings, naming the pool (from 1).
    """
    if len(golds) != len(rankings):
        raise SampleError(f"got gold scores for {len(golds)} pools, expected {len(rankings)}.")
    rows: list[tuple[float, float, float, float, float]] = []
    for number, (ranking, values) in enumerate(zip(rankings, golds, strict=True), start=1):
        gold = check_gold(values, ranking.candidates, f"pool {number}")
        if not ranking.picked:
            continue
        chosen, top = [gold[position] for position in ranking.picked], max(gold)
        rows.append((fmean(value == top for value in chosen), fmean(chosen), gold[0], fmean(gold), top))
    means = [fmean(column) for column in zip(*rows, strict=True)] if rows else [None] * 5
    return Selection(len(rankings), len(rankings) - len(rows), *means)


def sample_candidates(
    prompts: Sequence[str | Messages],
    policy: Engine,
    sampling: Sampling,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[list[str]]:
    """Sample candidates from a policy, through the store.

    Args:
        prompts (sequence of `str` or chat messages): a string is one user message.
        policy ([`Engine`]): the model that writes.
        sampling ([`Sampling`]): how, and how many (`n`).
        store ([`Store`], *optional*): where replies are kept.
        progress (callable, *optional*): told how many prompts were answered since its last call.

    Returns:
        A list of texts per prompt; shorter than `n`, even empty, where the policy gave no reply (the prompt does not
        fit its context, or the engine failed).
    """
    messages = [[{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt for prompt in prompts]
    replies = sample_replies(policy, messages, sampling, store, progress)
    return [[reply.text for reply in of_prompt if reply.text is not None] for of_prompt in replies]
