"""An item's possible answers: how a judge is told them, and which of them its words name.

A judge that writes is told the labels themselves. One whose answer is read as the next token needs labels of one token
each: labels of a single ASCII character are read as they are, every other list is lettered A, B, C ... in the question
and the letter is read. Few vocabularies have a token for each emoji or ideograph, and all have letters.

Judges favour a place: the first of a list, or the letter A. So the labels of an item stand in an order drawn from the
hash of the question, the target and the judge: the same in every run, another for the next target, so that over
targets no label gains by its place. It is shown in the question, at the end of the prompt, and what is read is mapped
back. Grades keep theirs where they are what is answered, and not a letter before them: labels of one character, and in
words numbers.

Words are matched without guessing: case, quotes, full stops and underscores do not matter, "true" is yes, "N/A" is the
one option of an item that abstains, and anything else is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from checklist_rewards.chat import strip_thinking
from checklist_rewards.checklists import NO, YES, ChecklistItem, content_hash
from checklist_rewards.errors import ChecklistError
from checklist_rewards.scores.scales import ONE_TOKEN_STEPS

_AROUND = " \t\r\n*_\"'`“”‘’.,:;!()[]"
_YES_NO = {YES: YES, NO: NO}
_SYNONYMS = {"true": YES, "false": NO}
_ABSTAINING = ("n/a", "na", "not applicable", "cannot assess", "can't assess")
_ANNOUNCED = re.compile(r"\A[\s*_]*(?:the |my |final )*answer(?: is)?[\s*_]*[:,]?[\s*_]*(?=\S)", re.IGNORECASE)
_ENDS = r"(?:[.,;:!](?!\d)|[\n—–]|\Z)"


def in_order(item: ChecklistItem, target: str, judge: str, *, lettered: bool = False) -> tuple[str, ...]:
    """The labels of an item as they are shown to a judge about a target; the module says in what order.

    Args:
        item ([`ChecklistItem`]): what is asked.
        target (`str`): about what.
        judge (`str`): the judge's name.
        lettered (`bool`, *optional*, defaults to `False`): the judge answers by the letter before a label.
    """
    labels = tuple(item.values)
    grades = all(label.isdecimal() for label, value in item.values.items() if value is not None)
    if item.options is None or _single(labels) or (grades and not lettered):
        return labels
    drawn = content_hash(item.question, target, judge)
    return tuple(sorted(labels, key=lambda label: content_hash(drawn, label)))


def question_for_words(item: ChecklistItem, labels: Sequence[str] | None = None) -> str:
    """The question as a judge that writes is asked it, with the answers it may give, in the order of `labels`."""
    if item.options is None:
        return item.question
    labels = tuple(item.values) if labels is None else labels
    # A label that has a comma in it would read as two.
    answers = "".join(f"\n- {label}" for label in labels) if "," in "".join(labels) else f" {', '.join(labels)}"
    return f"{item.question}\n\nPossible answers:{answers}{_when_to_abstain(item)}"


def question_for_reads(item: ChecklistItem, target: str, judge: str) -> tuple[str, dict[str, str]]:
    """The question as a one-token judge is asked it about a target, and the label that each token means."""
    if item.options is None:
        return item.question, _YES_NO
    labels = in_order(item, target, judge, lettered=True)
    if _single(labels):
        return question_for_words(item, labels), {label: label for label in labels}
    lettered = dict(zip(ascii_uppercase, labels, strict=False))
    lines = "\n".join(f"{letter}. {label}" for letter, label in lettered.items())
    return f"{item.question}\n\nPossible answers:\n{lines}{_when_to_abstain(item)}", lettered


def check_readable(item: ChecklistItem, where: str) -> None:
    """Refuse an item that cannot be read in one token. Raises [`ChecklistError`] that begins with `where`."""
    check_askable(item, where)
    if item.options is not None and len(item.options) > ONE_TOKEN_STEPS:
        raise ChecklistError(
            f"{where}, item {item.id} ({item.question!r}): it has {len(item.options)} options; at most "
            f"{ONE_TOKEN_STEPS} are read in one token (use_logprobs=False takes any number)."
        )


def check_askable(item: ChecklistItem, where: str) -> None:
    """Refuse an item that no model is asked. Raises [`ChecklistError`] that begins with `where`."""
    if item.check is not None:
        raise ChecklistError(
            f"{where}, item {item.id} ({item.question!r}): it has a code check; this judge puts questions to a model."
        )


def named(answer: Any, item: ChecklistItem) -> str | None:
    """The label that an answer names, such as the value of "answer" in a JSON reply; None if it names none."""
    labels = list(item.values)
    if isinstance(answer, bool):
        answer = str(answer)
    elif isinstance(answer, int | float):
        answer = f"{answer:g}"
    if not isinstance(answer, str):
        return None
    if answer in labels:
        return answer
    word = _plain(answer)
    known = [label for label in labels if _plain(label) == word]
    if len(known) == 1:
        return known[0]
    if item.options is None:
        return _SYNONYMS.get(word)
    abstaining = [option.label for option in item.options if option.na]
    return abstaining[0] if len(abstaining) == 1 and word in _ABSTAINING and not known else None


def said(reply: str, item: ChecklistItem) -> str | None:
    """The label that a free reply begins with, thinking left out; None if it begins with none.

    The label must stand for itself: "No. It never says yes." says no, "Yes and no" says nothing.
    """
    text = _ANNOUNCED.sub("", strip_thinking(reply)).strip()
    label = named(text, item)
    if label is not None:
        return label
    # The longest first: of "not" and "not at all" the reply may begin with both.
    for label in sorted(item.values, key=len, reverse=True):
        if re.match(rf"[\s*_\"'`(]*{re.escape(label)}[\s*_\"'`)]*{_ENDS}", text, re.IGNORECASE):
            return label
    return None


def _single(labels: Sequence[str]) -> bool:
    """Whether all labels are single characters that every tokenizer has and takes for no other."""
    return all(len(label) == 1 and label.isascii() for label in labels) and len(
        {label.casefold() for label in labels}
    ) == len(labels)


def _when_to_abstain(item: ChecklistItem) -> str:
    abstaining = [label for label, value in item.values.items() if value is None]
    if not abstaining:
        return ""
    return f"\n({' or '.join(abstaining)}: only where the question cannot be answered about this response.)"


def _plain(text: str) -> str:
    return text.strip(_AROUND).replace("_", " ").casefold()
