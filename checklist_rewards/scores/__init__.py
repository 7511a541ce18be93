"""Verdicts and scores.

`verdict.py` defines the outcome of one read, `reasons.py` the reasons for missing answers, `score.py` the score of one
target, `aggregate.py` computes scores from verdicts, `tally.py` aggregates batches, `scales.py` defines ordinal
options, and `table.py` writes scored batches as tables and files. Import verdicts and scores from this package.
"""

from checklist_rewards.scores.aggregate import Answers, item_credits, level, rescore, score_checklist
from checklist_rewards.scores.reasons import Reason, Unanswered, is_transient
from checklist_rewards.scores.score import (
    ABSTENTIONS,
    BEST_QUALITY,
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
    "DEFAULT_THRESHOLD",
    "LEAST_QUALITY",
    "PARTIAL_CREDIT",
    "PASS_CREDIT",
    "PRIMARY_METRICS",
    "Abstention",
    "Aggregation",
    "Answers",
    "ItemScore",
    "Method",
    "PrimaryMetric",
    "Reason",
    "Score",
    "Unanswered",
    "Verdict",
    "Vote",
    "answer_of",
    "credit_of",
    "is_transient",
    "item_credits",
    "level",
    "ratio",
    "rescore",
    "score_checklist",
    "vote_of",
]
