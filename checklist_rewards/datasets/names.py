"""The names that rubrics use for their parts, in lower case. The inference of a format and the reader of criteria
share this table. Where several keys of a list fit, the first counts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from checklist_rewards.checklists import NO, YES
from checklist_rewards.messages import PROMPT_COLUMNS


def _names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(","))


@lru_cache(maxsize=1024)
def spelled(key: Any) -> str:
    """A key as this table spells it: "Weight (%)" is "weight"."""
    name = str(key).strip().lower()
    return re.sub(r"\s*\([^()]*\)\Z", "", name) or name


# Keys of a row

LISTS = _names(
    "checklist, checklists, rubric, rubrics, criteria, criterion, criterions, requirements, questions, "
    "decomposed_questions, rubric_list, rubric_items, rubric_json, evaluation_criteria, grading_criteria, "
    "score_rubric, assert"
)
PROMPTS = PROMPT_COLUMNS
REFERENCES = _names(
    "reference, reference_answer, reference_solution, reference solution, ideal_answer, gold_answer, "
    "reference_response"
)
QUESTIONS = _names("target_question")
"""Keys of a single question."""
ANSWERED = _names("target, completion, response, answer, output, submission")
"""Keys of an answer to the prompt."""
WEIGHTS_BESIDE = _names("weights, weight, points, importances, rubric_weights, criteria_weights, item_weights")
"""Keys of a list with the weight of each criterion."""

# Keys of an item

TEXTS = _names(
    "question, criterion, criterion_text, criterion_description, criteria, description, requirement, requirements, "
    "point, rubric, text, statement, content, title, name"
)
WEIGHTS = _names("weight, points, score, importance, criterion_weight, point_value, max_points, max_score, marks")
CATEGORIES = _names("category, axis, section, dimension, criterion_type, type, kind, title, name")
EXPECTED = _names("pass_criteria, expected, expected_answer, correct_answer, desired, desired_answer, pass_if")
LEVELS = _names("levels, scale, anchors, grades, scoring, choices")
LEVEL = _names("score, level, grade, rating")
"""Keys of the number of one level."""

OF_A_CRITERION = _names("criterion, criterion_text, criterion_description, criteria, requirement, question")
"""Keys of the text of a table of criteria, one per row."""

# Keys around a list of items

INNER = _names("rubric, rubrics, sections, criteria, items")
"""Keys of the list."""
TITLES = _names("name, title, section, dimension, category")
"""Keys of the title of a section."""
AROUND = _names("guidelines, name, title, description, id, version, source, source_method, model")
"""Keys that belong to the list."""
OF_A_CHECKLIST = _names("id, source_method, generation_level, created_at, input, source, model")
"""Keys that are no part of the score."""

# Values

WORDS: tuple[dict[str, float], ...] = (
    {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": -0.9},
    {"critical": 4.0, "major": 3.0, "minor": 2.0, "additional": 1.0},
)
"""Weights in words: those of Rubrics as Rewards (arXiv:2507.17746) and of ProfBench (arXiv:2510.18941)."""
ANSWERS = {"yes": YES, "y": YES, "true": YES, "no": NO, "n": NO, "false": NO}
SCALES = _names("likert, ordinal, numeric, rating, scale, graded, 1 5, 1 10, 0 10, 0 5")
"""Kinds of items that are not answered with yes or no."""
RANKS = frozenset(
    _names(
        "high, medium, low, must, should, could, required, mandatory, optional, p0, p1, p2, p3, p4, blocker, minor, "
        "major, critical, essential, important, additional, trivial, crucial, bonus, nice to have, must have, "
        "should have, could have, wont have, good to have"
    )
)
"""Kinds that may stand for a weight."""
GRADES = frozenset(
    _names(
        "a, a+, a-, b, b+, b-, c, c+, c-, d, e, f, excellent, outstanding, exemplary, advanced, proficient, good, "
        "satisfactory, acceptable, adequate, average, basic, developing, beginning, emerging, fair, poor, bad, weak, "
        "inadequate, unsatisfactory, unacceptable, full, partial, none, pass, fail, correct, incorrect, high, medium, "
        "low, strong, moderate, perfect"
    )
)
"""Names of levels, which do not state their numbers."""
UNUSED = _names("deprecated, disabled, inactive, deleted, removed, retired, draft, archived, obsolete, skip, skipped")
"""States of criteria that are not in use."""
