"""How an answer of a student is put to a judge: questions, points of the expected answer, graded examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from english.tasks import WORDINGS, Example
from rich.console import Console

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import DirectGenerator, Request
from checklist_rewards.judges import Ask, FewShot, Labelled
from checklist_rewards.judges.logprob import DEFAULT_PROMPT
from checklist_rewards.progress import progress_on

TASK = "semeval"
PROMPTS = Path(__file__).resolve().parent / "prompts"
QUOTING = WORDINGS[TASK][:3]
"""Questions of a judge that is not shown the reference."""
SHOWN = (
    "Does the student's answer say what the teacher expects?",
    "Would the teacher mark the student's answer as right?",
    "Does the student's answer mean the same as the expected answer?",
)
POINT = "Does the student's answer make this point: '{}'?"
SUBJECT, SAME = "of the subject", "of the same exam question"
"""Which examples are shown: four in all, or four of each exam question."""
SHOTS = 4
MOST_POINTS = 4
_LEAST_WORDS = 3
_MOST_CHARACTERS = 150
"""Of the exam question and the expected answer of an example of the subject: every read pays for its tokens."""
_CLAUSE = re.compile(r"(?<=[.;!?])\s+|[,;]\s+(?=(?:and|but|so|because|then|while|which)\b)")


Expected = tuple[str, str]
"""An exam question and the answer that the teacher expects."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How an answer is judged."""

    prompt: str = DEFAULT_PROMPT
    reference: bool = False
    """Show the expected answer as the reference of the read; otherwise the question quotes it."""
    examples: str | None = None
    """[`SUBJECT`], [`SAME`] or none."""
    points: bool = False
    """Ask about each point of the expected answer, too."""
    wordings: int = 1

    def reads(self, example: Example, points: Sequence[str]) -> list[Ask]:
        """The reads of one answer. The items about the whole answer have the id of its examples."""
        questions = [
            question.replace("{}", example.statement)
            for question in (SHOWN if self.reference else QUOTING)[: self.wordings]
        ]
        items = [ChecklistItem(id=self.example_id(example), question=question) for question in questions]
        items += [ChecklistItem(question=question) for question in points if self.points]
        reference = example.statement if self.reference else None
        return [Ask(item, example.target, example.input, reference) for item in items]

    def example_id(self, example: Example) -> str:
        """The item id that an answer shares with its examples."""
        return example.group if self.examples == SAME else SUBJECT


def expected(example: Example) -> Expected:
    """The exam question and the expected answer of an example."""
    return example.input or "", example.statement


def clauses(text: str) -> list[str]:
    """The points of an expected answer: its sentences and clauses, if there are several. A clause of fewer than three
    words belongs to the one before it."""
    points: list[str] = []
    for part in _CLAUSE.split(text.strip()):
        part = part.strip(" .;,")
        if points and len(part.split()) < _LEAST_WORDS:
            points[-1] += f", {part}"
        elif part:
            points.append(part)
    if len(points) > MOST_POINTS:
        points = [*points[: MOST_POINTS - 1], "; ".join(points[MOST_POINTS - 1 :])]
    return points if len(points) > 1 else []


def point_questions(
    examples: Sequence[Example], writer: DirectGenerator | None = None
) -> tuple[dict[Expected, list[str]], int]:
    """Questions about the points of each expected answer, and how many of them the writer could not split. These, and
    all without a writer, are split at their clauses."""
    keys = list(dict.fromkeys(map(expected, examples)))
    questions = {key: [POINT.replace("{}", point) for point in clauses(key[1])] for key in keys}
    if writer is None:
        return questions, 0
    with progress_on(Console()) as bar:
        written = writer.generate_batch(
            [Request(question, reference) for question, reference in keys], bar("points", len(keys))
        )
    failed = 0
    for key, checklist in zip(keys, written, strict=True):
        if isinstance(checklist, GenerationError):
            failed += 1
        else:
            questions[key] = [item.question for item in checklist.items]
    return questions, failed


def shots(examples: Sequence[Example], which: str) -> FewShot:
    """Graded answers as few-shot examples.

    Args:
        examples (sequence of [`Example`]): training examples that are not read. Answers with two labels are left out.
        which (`str`): [`SAME`]: examples of each exam question. [`SUBJECT`]: the first four with short texts, two of
            each label, of different exam questions, each with its exam question and expected answer.
    """
    labels: dict[tuple[str, str], set[float]] = {}
    for example in examples:
        labels.setdefault(answer_key(example), set()).add(example.label)
    clear = [example for example in examples if len(labels[answer_key(example)]) == 1]
    if which == SAME:
        return FewShot([Labelled(e.target, "", e.label > 0.5, item=e.group) for e in clear], SHOTS)
    chosen: list[Example] = []
    for example in clear:
        short = len(_context(example)) <= _MOST_CHARACTERS
        alike = sum(other.label == example.label for other in chosen)
        if short and alike < SHOTS // 2 and all(other.group != example.group for other in chosen):
            chosen.append(example)
    return FewShot([Labelled(e.target, "", e.label > 0.5, item=SUBJECT, input=_context(e)) for e in chosen], SHOTS)


def _context(example: Example) -> str:
    return f"{example.input}\n\nThe teacher expects: {example.statement}"


def answer_key(example: Example) -> tuple[str, str]:
    """What makes two answers the same: their exam question and their words."""
    return example.group, " ".join(example.target.split()).casefold()
