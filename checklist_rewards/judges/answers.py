"""The labels of an item: how they are shown to a judge, and how its reply is matched to one of them.

A judge that writes text sees the labels themselves. A one-token judge requires labels of one token each: single ASCII
characters are read as they are; all other labels are lettered A, B, C ... in the question and the letter is read,
because few vocabularies have a token for every emoji or ideograph.

Options are shuffled deterministically per (item, target, judge) to cancel position bias. The order is part of the
question, at the end of the prompt, and the answer is mapped back to its label. Grades that are answered directly keep
their order: single-character labels, and numbers in text replies.

Replies are matched strictly. Case, quotes, full stops and underscores are ignored, "true" means yes, and "N/A" means
the abstaining option if the item has exactly one. Any other reply is no answer.
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
    """The labels of an item in the order shown to a judge; see the module docstring.

    Args:
        item ([`ChecklistItem`]):
            Item to answer.
        target (`str`):
            Text under judgement.
        judge (`str`):
            Name of the judge.
        lettered (`bool`, *optional*, defaults to `False`):
            Whether the judge answers with the letter in front of a label.

    Returns:
        `tuple[str, ...]`: All labels of the item.
    """
    labels = tuple(item.values)
    grades = all(label.isdecimal() for label, value in item.values.items() if value is not None)
    if item.options is None or _single(labels) or (grades and not lettered):
        return labels
    seed = content_hash(item.question, target, judge)
    return tuple(sorted(labels, key=lambda label: content_hash(seed, label)))


def question_for_words(item: ChecklistItem, labels: Sequence[str] | None = None) -> str:
    """The question for a judge that writes text, with the possible answers in the order of `labels`."""
    if item.options is None:
        return item.question
    labels = tuple(item.values) if labels is None else labels
    # A comma inside a label would make a comma-separated list ambiguous.
    answers = "".join(f"\n- {label}" for label in labels) if "," in "".join(labels) else f" {', '.join(labels)}"
    return f"{item.question}\n\nPossible answers:{answers}{when_to_abstain(item)}"


def question_for_reads(item: ChecklistItem, target: str, judge: str) -> tuple[str, dict[str, str]]:
    """The question for a one-token judge, and a mapping from answer tokens to labels."""
    if item.options is None:
        return item.question, _YES_NO
    labels = in_order(item, target, judge, lettered=True)
    if _single(labels):
        return question_for_words(item, labels), {label: label for label in labels}
    label_of_letter = dict(zip(ascii_uppercase, labels, strict=False))
    lines = "\n".join(f"{letter}. {label}" for letter, label in label_of_letter.items())
    return f"{item.question}\n\nPossible answers:\n{lines}{when_to_abstain(item)}", label_of_letter


def check_readable(item: ChecklistItem, where: str) -> None:
    """Raise [`ChecklistError`], starting with `where`, for an item that cannot be answered with one token."""
    check_askable(item, where)
    if item.options is not None and len(item.options) > ONE_TOKEN_STEPS:
        raise ChecklistError(
            f"{where}, item {item.id} ({item.question!r}): {len(item.options)} options are too many for a one-token "
            f"read, which allows {ONE_TOKEN_STEPS}; set use_logprobs=False for any number."
        )


def check_askable(item: ChecklistItem, where: str) -> None:
    """Raise [`ChecklistError`], starting with `where`, for an item with a code check, which no model answers."""
    if item.check is not None:
        raise ChecklistError(
            f"{where}, item {item.id} ({item.question!r}): it has a code check, but this judge only asks a model."
        )


def named(answer: Any, item: ChecklistItem) -> str | None:
    """The label that an answer names, such as the value of "answer" in a JSON reply; None if it is not a label."""
    labels = list(item.values)
    if isinstance(answer, bool):
        answer = str(answer)
    elif isinstance(answer, int):
        answer = str(answer)  # a number with hundreds of digits does not fit a float
    elif isinstance(answer, float):
        answer = f"{answer:g}"
    if not isinstance(answer, str):
        return None
    if answer in labels:
        return answer
    word = _plain(answer)
    matching = [label for label in labels if _plain(label) == word]
    if len(matching) == 1:
        return matching[0]
    if item.options is None:
        return _SYNONYMS.get(word)
    abstaining = [option.label for option in item.options if option.na]
    return abstaining[0] if len(abstaining) == 1 and word in _ABSTAINING and not matching else None


def leading_label(reply: str, item: ChecklistItem) -> str | None:
    """The label at the start of a free-text reply, ignoring thinking; None if the reply starts with no label.

    Punctuation must follow the label: "No. It never says yes." gives no, "Yes and no" gives None.
    """
    text = _ANNOUNCED.sub("", strip_thinking(reply)).strip()
    label = named(text, item)
    if label is not None:
        return label
    # Longest label first, because "not at all" also starts with "not".
    for label in sorted(item.values, key=len, reverse=True):
        if re.match(rf"[\s*_\"'`(]*{re.escape(label)}[\s*_\"'`)]*{_ENDS}", text, re.IGNORECASE):
            return label
    return None


def _single(labels: Sequence[str]) -> bool:
    """Whether all labels are single ASCII characters, which every tokenizer has, and differ in more than case."""
    return all(len(label) == 1 and label.isascii() for label in labels) and len(
        {label.casefold() for label in labels}
    ) == len(labels)


def when_to_abstain(item: ChecklistItem) -> str:
    """A line that says when to abstain, if the item allows it; otherwise empty."""
    abstaining = [label for label, value in item.values.items() if value is None]
    if not abstaining:
        return ""
    return f"\n({' or '.join(abstaining)}: only where the question cannot be answered about this response.)"


def _plain(text: str) -> str:
    return text.strip(_AROUND).replace("_", " ").casefold()
