"""Best-of-N: rank the candidates of an input by checklist score.

Candidates are given, or sampled from a policy with [`sample_candidates`]. All candidates of all inputs are scored in
one `score_batch`, so they share prefixes and duplicates are free.

A candidate is the full text of a policy, with its thought. Only its answer is judged, as in training. What a ranking
returns and what commands write is the full text, because a policy that is trained on it must learn its own format.

Candidates with equal scores have the same rank, and all candidates of rank 1 are picked. Pass `ties="first"` if you
need exactly one. A candidate without a score has no rank: a judge failure makes a text neither the worst nor the best.
A candidate without an answer (cut in its thought, empty, ending with a tool call) gets the lowest score and ranks
after the candidates with an answer that have the same score. With the scorer's `no_answer="unscored"` it has no rank.

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
from checklist_rewards.backends.replies import sample_replies, target_of
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Progress
from checklist_rewards.rows import Candidate, Pool
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import EQUAL, Score
from checklist_rewards.validation import is_finite, one_of, string

Ties = Literal["keep", "first", "shortest"]
TIES: tuple[str, ...] = get_args(Ties)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking of one pool, in the order of its candidates."""

    candidates: tuple[str, ...]
    """The full texts, including their thoughts."""
    scores: tuple[Score, ...]
    """The scores of their answers."""
    ranks: tuple[int | None, ...]
    """Ranks from 1 (best). Equal scores have equal ranks (1, 1, 3). None for a candidate without a score."""

    @property
    def picked(self) -> tuple[int, ...]:
        """Positions (from 0) of the candidates of rank 1: several if they tie, none if no candidate has a score."""
        return tuple(position for position, rank in enumerate(self.ranks) if rank == 1)

    @property
    def best(self) -> tuple[str, ...]:
        """The full texts of the picked candidates."""
        return tuple(self.candidates[position] for position in self.picked)


@dataclass(frozen=True, slots=True)
class Selection:
    """Quality of the picks by gold scores. Means are over the pools with a pick; None without picks."""

    pools: int
    unpicked: int
    """Number of pools without any scored candidate; they are excluded from the means."""
    precision: float | None
    """Fraction of the picked candidates with the best gold score of their pool; see [`selection`]."""
    gold_picked: float | None
    """Mean gold score of the picked candidates, ties averaged within their pool."""
    gold_first: float | None
    """Mean gold score of the first candidate: no selection."""
    gold_mean: float | None
    """Mean gold score of all candidates: random selection."""
    gold_best: float | None
    """Mean gold score of the best candidate: the upper bound."""


def rank(
    values: Sequence[float | None],
    ties: Ties = "keep",
    texts: Sequence[str] | None = None,
    no_answer: Sequence[bool] | None = None,
) -> list[int | None]:
    """Rank values from highest to lowest.

    Args:
        values (sequence of `float` or None): the scores. None gets no rank.
        ties (`str`, *optional*, defaults to `"keep"`): `"keep"`: equal values share a rank and the following ranks are
            skipped (1, 1, 3). `"first"`: the earlier value ranks higher. `"shortest"`: the shorter text ranks higher,
            then the earlier one.
        texts (sequence of `str`, *optional*): the texts of the values; required for `"shortest"`.
        no_answer (sequence of `bool`, *optional*): which values belong to a text without an answer. They rank after
            equal values of texts with one.

    Returns:
        `list[int | None]`: Ranks from 1, in the order of `values`.
    """
    one_of("ties", ties, TIES)
    if ties == "shortest" and texts is None:
        raise SampleError("ties='shortest' requires texts.")

    def breaker(position: int) -> tuple[int, int]:
        if ties == "keep":
            return 0, 0
        return (len(texts[position]) if ties == "shortest" and texts is not None else 0), position

    last = [False] * len(values) if no_answer is None else no_answer
    level = _levels(values)
    keys = [None if v is None else (level[v], last[position], *breaker(position)) for position, v in enumerate(values)]
    places: dict[tuple[int, bool, int, int], int] = {}
    for place, key in enumerate(sorted(key for key in keys if key is not None), start=1):
        places.setdefault(key, place)
    return [None if key is None else places[key] for key in keys]


def _levels(values: Sequence[float | None]) -> dict[float, int]:
    """The place of every value from the highest down, from 0. Values that differ by a rounding error share one."""
    levels: dict[float, int] = {}
    highest = math.inf
    for value in sorted({value for value in values if value is not None}, reverse=True):
        if highest - value > EQUAL:
            highest = value
            levels[value] = len(set(levels.values()))
        else:
            levels[value] = levels[highest]
    return levels


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
    """Rank the candidates of every pool by `primary_score`, scoring the answers of all of them in one call.

    Args:
        scorer ([`ChecklistScorer`]): scores the candidates.
        pools (sequence of [`Pool`]): the inputs with their candidates.
        ties (`str`, *optional*, defaults to `"keep"`): `"keep"`, `"first"` or `"shortest"`, which compares the lengths
            of the answers; see [`rank`].
        progress (callable, *optional*): called with the number of reads answered since its last call.

    Returns:
        `list[Ranking]`: One per pool, in order.

    Raises:
        SampleError, ChecklistError: If a pool is not valid. The message names its number, from 1; nothing has been
            sent to the judge at that point.
    """
    one_of("ties", ties, TIES)
    for number, pool in enumerate(pools, start=1):
        check_candidates(pool.candidates, f"pool {number}")
    samples = [pool.samples for pool in pools]
    scores = iter(scorer.score_batch([sample for of_pool in samples for sample in of_pool], progress))
    rankings = []
    for pool, of_pool in zip(pools, samples, strict=True):
        found = tuple(next(scores) for _ in of_pool)
        ranks = ranks_of(found, ties, [sample.target for sample in of_pool])
        rankings.append(Ranking(tuple(pool.candidates), found, tuple(ranks)))
    return rankings


def ranks_of(scores: Sequence[Score], ties: Ties = "keep", texts: Sequence[str] | None = None) -> list[int | None]:
    """Rank scores; see [`rank`]. Scores of texts without an answer rank after equal ones."""
    return rank([score.primary_score for score in scores], ties, texts, [score.no_answer for score in scores])


def check_candidates(value: Any, where: str) -> list[str]:
    """Check that `value` is a nonempty list of strings. Raises a [`SampleError`] that begins with `where`."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SampleError(f"{where}: candidates must be a list of strings, got {type(value).__name__} {value!r:.60}.")
    if not value:
        raise SampleError(f"{where}: the list of candidates is empty; give at least one.")
    for number, text in enumerate(value, start=1):
        string(f"{where}: candidate {number}", text)
    return list(value)


def check_gold(value: Any, candidates: Sequence[str], where: str) -> list[float]:
    """Check that `value` has one finite number per candidate. Raises a [`SampleError`] that begins with `where`."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(candidates):
        raise SampleError(
            f"{where}: gold must be a list of {len(candidates)} numbers, one per candidate, got {value!r:.60}."
        )
    for number, gold in enumerate(value, start=1):
        if not isinstance(gold, bool) and not is_finite(gold):
            raise SampleError(
                f"{where}: the gold score of candidate {number} must be a finite number, got {gold!r:.60}."
            )
    return [float(gold) for gold in value]


def selection(rankings: Sequence[Ranking], golds: Sequence[Sequence[float]]) -> Selection:
    """Evaluate the picks with gold scores.

    Precision follows the best-of-N study of TICK/STICK (section 4.2): the fraction of the picked candidates with the
    best gold score of their pool, computed per pool and averaged over pools. Without ties it is the accuracy of the
    choice. Picking more candidates than the best ones lowers it; missing one of several best ones does not.

    Args:
        rankings (sequence of [`Ranking`]): the rankings to evaluate.
        golds (sequence of sequences of `float`): per ranking, the gold score of each candidate.

    Raises:
        SampleError: If `golds` does not match the rankings. The message names the pool, from 1.
    """
    if len(golds) != len(rankings):
        raise SampleError(f"got gold scores for {len(golds)} pools, expected {len(rankings)}.")
    rows: list[tuple[float, float, float, float, float]] = []
    for number, (ranking, values) in enumerate(zip(rankings, golds, strict=True), start=1):
        gold = check_gold(values, ranking.candidates, f"pool {number}")
        if not ranking.picked:
            continue
        picked, top = [gold[position] for position in ranking.picked], max(gold)
        rows.append((fmean(value == top for value in picked), fmean(picked), gold[0], fmean(gold), top))
    means = [fmean(column) for column in zip(*rows, strict=True)] if rows else [None] * 5
    return Selection(len(rankings), len(rankings) - len(rows), *means)


def sample_candidates(
    prompts: Sequence[str | Messages],
    policy: Engine,
    sampling: Sampling,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[list[Candidate]]:
    """Sample candidates from a policy; replies are kept in the store.

    Args:
        prompts (sequence of `str` or chat messages): a string is one user message.
        policy ([`Engine`]): the model that writes.
        sampling ([`Sampling`]): sampling settings; `n` candidates per prompt.
        store ([`Store`], *optional*): where replies are stored.
        progress (callable, *optional*): called with the number of prompts answered since its last call.

    Returns:
        `list[list[Candidate]]`: The texts of each prompt, with their answers. An answer that reached the token limit
        has the state `cut`. A list is shorter than `n`, possibly empty, if the policy gave no reply because the prompt
        exceeds its context or the engine failed.
    """
    messages = [[{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt for prompt in prompts]
    replies = sample_replies(policy, messages, sampling, store, progress)
    return [
        [Candidate(reply.text, target_of(reply)) for reply in of_prompt if reply.text is not None]
        for of_prompt in replies
    ]
