"""Verdicts, scores, and the arithmetic between them.

`verdict.py` holds the outcome of one read, `score.py` the score of one target, `aggregate.py` makes one of the other,
`tally.py` aggregates batches, `scales.py` has ordinal options, and `table.py` writes scores as columns of a file. The
names of the first three are imported from here.
"""

from checklist_rewards.scores.aggregate import level, rescore, score_checklist
from checklist_rewards.scores.score import (
    ABSTENTIONS,
    BEST_QUALITY,
    DEFAULT_MIN_ANSWERED,
    LEAST_QUALITY,
    PARTIAL_CREDIT,
    PASS_CREDIT,
    PRIMARY_METRICS,
    Abstention,
    Aggregation,
    ItemScore,
    PrimaryMetric,
    Score,
    credit_of,
    ratio,
)
from checklist_rewards.scores.verdict import DEFAULT_THRESHOLD, Method, Verdict, Vote, answer_of, vote_of

__all__ = [
    "ABSTENTIONS",
    "BEST_QUALITY",
    "DEFAULT_MIN_ANSWERED",
    "DEFAULT_THRESHOLD",
    "LEAST_QUALITY",
    "PARTIAL_CREDIT",
    "PASS_CREDIT",
    "PRIMARY_METRICS",
    "Abstention",
    "Aggregation",
    "ItemScore",
    "Method",
    "PrimaryMetric",
    "Score",
    "Verdict",
    "Vote",
    "answer_of",
    "credit_of",
    "level",
    "ratio",
    "rescore",
    "score_checklist",
    "vote_of",
]
