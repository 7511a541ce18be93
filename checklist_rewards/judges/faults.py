"""Questions that yes or no cannot answer, found by their wording in English.

[`question_fault`] is used where questions are written (`generators/shapes.py`), linted, counted and repaired. It is
cautious: a question that it does not understand has no fault.
"""

from __future__ import annotations

import re

from checklist_rewards.backends.embedding import QUOTED

_MARKS = "?？؟"
"""Question marks: of Latin, Chinese and Japanese, and Arabic scripts."""
_IS_QUESTION = re.compile(rf"(?=.*\w).*[{_MARKS}](?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|\s*（[^（）]*）)?$", re.DOTALL)

AUXILIARY = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)(?:n't)?"
_SUBJECT = r"(?:it|its|the|this|that|these|those|there|they|their|he|she|all|any|each|every|both|an?|you|we)"
_OPEN = re.compile(
    r"(?:(?:and|but|so|then|also|in|on|at|to|for|from|with|by|of|about)\s+)?"
    r"(what|which|who|whom|whose|why|how|where|when)\b(?!\s+(?:possible|applicable|appropriate|necessary|relevant))",
    re.IGNORECASE,
)
_ASKS_YES_NO = re.compile(rf"[,;:]\s*(?:(?:and|then|or)\s+)?{AUXILIARY}\b", re.IGNORECASE)
_SECOND = re.compile(rf"\w\s*,?\s(?:and|or|but|and/or)\s+{AUXILIARY}\s+(?:not\s+)?{_SUBJECT}\b", re.IGNORECASE)
_ANSWER_NO = re.compile(rf"[{_MARKS}]\s*\(\s*no\s*\)$", re.IGNORECASE)
_QUOTED = re.compile(rf"{QUOTED.pattern}|\([^()]*\)|（[^（）]*）")
_WHOLE = (
    r"(?:the |this |that |your |its )?(?:(?:generated|final|whole|entire|given|model's) )*"
    r"(?:response|text|output|answer|reply|it)"
)
_A = r"(?:(?:an?|any|some|actual|the|(?:plain|simple)(?! (?:words?|sentences?)\b)) )*"
_SEVERAL = r"(?:(list|series|set|sequence|string|collection|group|number|piece|body|block) of )?"
_FORM = re.compile(
    rf"(?:(?:does|did|do) {_WHOLE} (?:contain|include|have|consist of|comprise|use) (?:only |just )?{_A}{_SEVERAL}"
    r"(texts?|words?|sentences?|content)(?: only| alone)?"
    rf"|(?:is|are) {_WHOLE} (?:(?:composed of|made (?:up )?of|written|given|presented|provided) )?(?:(?:in|as) )?"
    rf"(?:(?:the )?form(?:at)? of )?{_A}{_SEVERAL}(texts?|words?|sentences?|responses?|answers?|reply|content)"
    r"(?: form| format)?)\s*\?",
    re.IGNORECASE,
)
"""A question that asks only for a text, words or a sentence, or for several of them. Its groups are what it names."""
_ALWAYS = frozenset("text texts content response responses answer answers reply string piece body block".split())
"""What every response is or has."""
NO_MARK = "must end with a question mark"
"""The fault of a statement."""


def is_question(text: str) -> bool:
    """Whether a text ends with a question mark, or with a question mark and a remark in brackets."""
    return _IS_QUESTION.fullmatch(text.strip()) is not None


def question_fault(text: str) -> str | None:
    """Why a text is not one yes/no question, as the end of a sentence that starts with "it". None for a question.

    English only, and cautious: of the 2,250 questions that people wrote for InFoBench it names 5, and all of them are
    two questions or have no question mark.

    >>> question_fault("What do you think about rain?")
    'cannot be answered with yes or no'
    """
    text = " ".join(text.split())
    if not is_question(text):
        return NO_MARK
    if is_open(text):
        return "cannot be answered with yes or no"
    if _ANSWER_NO.search(text):
        return "has the answer no; ask so that yes is the good answer"
    bare = _QUOTED.sub("", text)
    if sum(map(bare.count, _MARKS)) > 1 or _SECOND.search(bare):
        return "asks two questions; write one item for each"
    return None


EMPTY = "is met by every response; ask for something that a response may lack"
"""The fault of an empty question, as those of [`question_fault`]."""


def is_empty(text: str, input: str | None = None) -> bool:
    """Whether a question asks only for a text, words or sentences, or a list of them. English only. With the input,
    only if the input does not name these; without it, only what every response has, so no sentence and no list.

    >>> is_empty("Does the response contain a text only?"), is_empty("Is the generated text a sentence?")
    (True, False)
    >>> is_empty("Is the response a list of words?", "Describe the sea."), is_empty("Is it a list of words?")
    (True, False)
    """
    found = _FORM.fullmatch(" ".join(text.split()))
    if found is None:
        return False
    named = [word.casefold() for word in found.groups() if word is not None]
    if input is not None:
        return not any(word[:4] in input.casefold() for word in named)
    return _ALWAYS.issuperset(named)


def is_open(text: str) -> bool:
    """Whether a text is a question that asks what, who, why or how, in English."""
    return is_question(text) and _OPEN.match(text) is not None and not _ASKS_YES_NO.search(text)
