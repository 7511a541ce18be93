"""How a question is put to a judge, with examples, and how its answer is matched to the item's labels.

A judge that writes text sees the labels themselves. A one-token judge requires labels of one token each: single ASCII
characters are read as they are; all other labels are lettered A, B, C ... in the question and the letter is read,
because few vocabularies have a token for every emoji or ideograph.

Options are shuffled deterministically per (item, target, judge) to cancel position bias. The order is part of the
question, at the end of the prompt, and the answer is mapped back to its label. Grades that are answered directly keep
their order: single-character labels, and numbers in text replies.

Replies are matched strictly. Case, quotes, full stops and underscores are ignored, "true" means yes, and "N/A" means
the abstaining option if the item has exactly one. Any other reply does not count as an answer.

Few-shot examples are labelled answers to a question, shown to a judge before it answers the same question. A
[`Labelled`] is a response with a human label. [`FewShot`] holds many examples and selects a few per item:

- Only examples of the same question (equal text or item id) are used.
- Labels are balanced, so that no answer looks more likely than the others.
- The order is shuffled, so that the last example does not always have the same label.
- The selection is fixed per item: it is drawn from hashes and does not depend on the other items.

**A judge never sees the answer it is asked for.** Examples with the text under judgement, or from the same `group`,
are skipped and the next ones take their place. This affects only targets that are examples themselves; for all others
the set is the same. The examples are part of the question, after the target, so the shared prefix does not change.
Texts are compared ignoring case and white space.

Examples are data: each is fenced by a tag derived from its own hash, like the target. Items without examples are asked
without this section.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from string import ascii_uppercase

from checklist_rewards.chat import strip_thinking
from checklist_rewards.checklists import NO, YES, ChecklistItem, content_hash
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.judges.labels import STOPS, Labelled, label_of, named, read_labelled
from checklist_rewards.keys import worded
from checklist_rewards.prompts import fence
from checklist_rewards.validation import whole_number

logger = logging.getLogger(__name__)
_YES_NO = {YES: YES, NO: NO}
_ANNOUNCED = re.compile(
    r"\A[\s*_]*(?:(?:the |my |final )*answer(?: is)?|答案是?|回答|答え|답변?|ответ|antwort|réponse|respuesta|"
    r"الإجابة|الجواب)[\s*_]*[:,：，]?[\s*_]*(?=\S)",
    re.IGNORECASE,
)
_ENDS = rf"(?:[{STOPS}](?!\d)|[\n—–]|\Z)"


def in_order(item: ChecklistItem, target: str, judge: str, *, lettered: bool = False) -> tuple[str, ...]:
    """All labels of an item in the order shown to a judge with this name; see the module docstring. `lettered`: the
    judge answers with the letter in front of a label."""
    labels = tuple(item.values)
    grades = all(label.isdecimal() for label, value in item.values.items() if value is not None)
    if item.options is None or _single(labels) or (grades and not lettered):
        return labels
    seed = content_hash(item.question, target, judge)
    return tuple(sorted(labels, key=lambda label: content_hash(seed, label)))


def question_for_words(item: ChecklistItem, labels: Sequence[str]) -> str:
    """The question for a judge that writes text, with the possible answers in the order of `labels`."""
    if item.options is None:
        return item.question
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


def leading_label(reply: str, item: ChecklistItem) -> str | None:
    """The label at the start of a free-text reply, ignoring thinking; None if the reply starts with no label.

    Punctuation must follow the label: "No. It never says yes." gives no, "Yes and no" gives None.
    """
    written = strip_thinking(reply).strip()
    for text in (written, _ANNOUNCED.sub("", written)):  # a label may itself begin like an announcement
        if (label := named(text, item)) is not None:
            return label
        # Longest label first, because "not at all" also starts with "not".
        for label in sorted(item.values, key=len, reverse=True):
            if re.match(rf"[\s*_\"'`(（「“]*{re.escape(label)}[\s*_\"'`)）」”]*{_ENDS}", text, re.IGNORECASE):
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


DEFAULT_SHOTS = 4
_INTRODUCED = "How the question further down was answered about other responses shows how strictly it is meant."
_ASKED = "Now the question about the response above, which is none of the examples:"


_LabelPool = list[tuple[str, Labelled]]
"""Examples of one label, each with the label."""


class FewShot:
    """Selects few-shot examples for checklist items.

    Args:
        examples (sequence of [`Labelled`]):
            All examples.
        shots (`int`, *optional*, defaults to `4`):
            Maximum number of examples per item.
        reasons (`bool`, *optional*, defaults to `False`):
            Whether to show the reasons of examples that have one.

    Raises:
        SampleError: If there are no examples, or one has neither a question nor an item id.
    """

    def __init__(self, examples: Sequence[Labelled], shots: int = DEFAULT_SHOTS, reasons: bool = False):
        whole_number("shots", shots)
        if not examples:
            raise SampleError("no examples given; at least one is required.")
        self.examples, self.shots, self.reasons = tuple(examples), shots, reasons
        self._of_question: dict[str, list[Labelled]] = {}
        self._of_id: dict[str, list[Labelled]] = {}
        for example in self.examples:
            if example.question:
                self._of_question.setdefault(compared(example.question), []).append(example)
            elif example.item is not None:
                self._of_id.setdefault(example.item, []).append(example)
            else:
                raise SampleError(f"{example.where}: it has neither a question nor an item id.")
        self._groups: dict[str, set[str]] = {}
        """Text of an example to the groups it belongs to."""
        for example in self.examples:
            groups = self._groups.setdefault(compared(example.target), set())
            groups.update((example.group,) if example.group else ())
        self._drawn: dict[tuple[str, ...], list[_LabelPool]] = {}
        self._warned = False

    @classmethod
    def load(cls, path: str | Path, shots: int = DEFAULT_SHOTS, reasons: bool = False) -> FewShot:
        """Load examples from a JSONL, CSV or Parquet file; see [`read_labelled`].

        Raises:
            SampleError, ChecklistError: For an invalid row, with the file and row number.
        """
        return cls(read_labelled(path), shots, reasons)

    def check(self, item: ChecklistItem) -> None:
        """Raise [`ChecklistError`] if an example's label is not an answer to `item`, or two examples contradict. Warn
        of the first item without examples."""
        if not self._pools(item) and not self._warned:
            self._warned = True
            logger.warning("no example has the question %.60r; such questions are asked without any.", item.question)

    def chosen(self, item: ChecklistItem, target: str) -> list[tuple[str, Labelled]]:
        """The examples to show with `item` when judging `target`, each with its label; see the module docstring."""
        text = compared(target)
        groups = self._groups.get(text)  # None if the target is not an example itself

        def allowed(entry: tuple[str, Labelled]) -> bool:
            return groups is None or (entry[1].group not in groups and compared(entry[1].target) != text)

        pools = [filter(allowed, pool) for pool in self._pools(item)]
        in_turn = (entry for turn in zip_longest(*pools) for entry in turn if entry is not None)
        return sorted(islice(in_turn, self.shots), key=lambda entry: _drawn("place", item, entry))

    def question(
        self, item: ChecklistItem, target: str, question: str, *, words: Mapping[str, str] | None, reason_first: bool
    ) -> str:
        """The question with its possible answers, preceded by the examples of the item. `words` are the answers of
        the judge for the labels, if they differ; `reason_first`: the judge gives its reason before its answer."""
        examples = self.chosen(item, target)
        if not examples:
            return question
        rendered = [
            self._shown(number, label if words is None else words[label], example, reason_first)
            for number, (label, example) in enumerate(examples, start=1)
        ]
        return "\n\n".join([_INTRODUCED, *rendered, _ASKED, question])

    def _shown(self, number: int, label: str, example: Labelled, reason_first: bool) -> str:
        lines = [f"Example {number}:"]
        if example.input is not None:
            lines.append(fence("instruction", example.input))
        lines.append(fence("response", example.target))
        answer = [f"Answer: {label}"]
        if self.reasons and example.reason is not None:
            reason = f"Reason: {fence('reason', example.reason)}"
            # A one-token judge is read at its first token, so its examples must not start with a reason.
            answer = [reason, *answer] if reason_first else [*answer, reason]
        return "\n".join([*lines, *answer])

    def _pools(self, item: ChecklistItem) -> list[_LabelPool]:
        """The examples of an item by label, in selection order."""
        key = (item.id, item.question, *item.values)
        if key not in self._drawn:
            by_label: dict[str, _LabelPool] = {}
            answered: dict[tuple[str, str | None], str] = {}
            for example in (*self._of_question.get(compared(item.question), ()), *self._of_id.get(item.id, ())):
                label = label_of(item, example.label)
                if not isinstance(label, str):
                    raise ChecklistError(
                        f"{example.where}: {example.label!r:.60} is not an answer to {item.question!r:.80}; allowed: "
                        f"{', '.join(item.values)}."
                    )
                about = (compared(example.target), example.input)
                if about not in answered:
                    by_label.setdefault(label, []).append((label, example))
                if answered.setdefault(about, label) != label:
                    raise ChecklistError(
                        f"{example.where}: the answer to {item.question!r:.80} about this response is {label!r}, but "
                        f"{answered[about]!r} in another example; keep only one of them."
                    )
            labels = sorted(by_label, key=lambda label: content_hash("label", item.question, label))
            self._drawn[key] = [
                sorted(by_label[label], key=lambda entry: _drawn("draw", item, entry)) for label in labels
            ]
        return self._drawn[key]


def _drawn(what: str, item: ChecklistItem, entry: tuple[str, Labelled]) -> str:
    return content_hash(what, item.question, entry[1].target, entry[1].input)


def compared(text: str) -> str:
    """What examples are compared by: models and people change the case of a text, too."""
    return worded(text.casefold())
