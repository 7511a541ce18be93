"""Verdicts, scores, and the arithmetic between them.

`verdict.py` holds the outcome of one read, `score.py` every aggregate of one target, `tally.py` those of a batch,
`scales.py` ordinal options, and `table.py` scores as columns of a file. The first two are imported from here.
"""

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
    level,
    ratio,
    rescore,
    score_checklist,
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
    "level",
    "ratio",
    "rescore",
    "score_checklist",
    "vote_of",
]
