"""Verdicts and scores.

`score.py` has the outcome of one read and computes the score of one target, `reasons.py` has the reasons for missing
answers, `tally.py` aggregates batches, and `scales.py` defines ordinal options. Import verdicts and scores from this
package.
"""

from checklist_rewards.markers import NO_ANSWER_STATES, TargetState
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.score import (
    ABSTENTIONS,
    BEST_QUALITY,
    DEFAULT_THRESHOLD,
    EQUAL,
    LEAST_QUALITY,
    PASS_CREDIT,
    PRIMARY_METRICS,
    Abstention,
    Aggregation,
    Answers,
    ItemScore,
    Method,
    NoAnswer,
    PrimaryMetric,
    Score,
    Verdict,
    Vote,
    answer_of,
    expected,
    item_credits,
    item_keys,
    level,
    ratio,
    rescore,
    score_checklist,
)

__all__ = [
    "ABSTENTIONS",
    "BEST_QUALITY",
    "DEFAULT_THRESHOLD",
    "EQUAL",
    "LEAST_QUALITY",
    "NO_ANSWER_STATES",
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
    "expected",
    "item_credits",
    "item_keys",
    "level",
    "ratio",
    "rescore",
    "score_checklist",
]
