"""Verdicts and scores.

`verdict.py` defines the outcome of one read, `reasons.py` the reasons for missing answers, `score.py` the score of one
target, `aggregate.py` computes scores from verdicts, `tally.py` aggregates batches, `scales.py` defines ordinal
options, and `table.py` writes scored batches as tables and files. Import verdicts and scores from this package.
"""

from checklist_rewards.scores.aggregate import Answers, item_credits, level, rescore, score_checklist
from checklist_rewards.scores.reasons import NO_ANSWER_STATES, Reason, TargetState, Unanswered, is_transient
from checklist_rewards.scores.score import (
    ABSTENTIONS,
    BEST_QUALITY,
    EQUAL,
    LEAST_QUALITY,
    NO_ANSWER,
    PARTIAL_CREDIT,
    PASS_CREDIT,
    PRIMARY_METRICS,
    Abstention,
    Aggregation,
    ItemScore,
    NoAnswer,
    PrimaryMetric,
    Score,
    credit_of,
    item_keys,
    ratio,
)
from checklist_rewards.scores.verdict import DEFAULT_THRESHOLD, Method, Verdict, Vote, answer_of, vote_of

__all__ = [
    "ABSTENTIONS",
    "BEST_QUALITY",
    "DEFAULT_THRESHOLD",
    "EQUAL",
    "LEAST_QUALITY",
    "NO_ANSWER",
    "NO_ANSWER_STATES",
    "PARTIAL_CREDIT",
    "PASS_CREDIT",
    "PRIMARY_METRICS",
    "Abstention",
    "Aggregation",
    "Answers",
    "ItemScore",
    "Method",
    "NoAnswer",
    "PrimaryMetric",
    "Reason",
    "Score",
    "TargetState",
    "Unanswered",
    "Verdict",
    "Vote",
    "answer_of",
    "credit_of",
    "is_transient",
    "item_credits",
    "item_keys",
    "level",
    "ratio",
    "rescore",
    "score_checklist",
    "vote_of",
]
