"""The meta-checklist: a checklist about checklists, answered by the same judges as any other.

    >>> reviews = review([(checklist, "Write a haiku about rain.")], scorer)
    >>> reviews[0].items[2].primary_score, reviews[0].whole.primary_score  # doctest: +SKIP

Every question of a checklist is put under judgement by itself (`ITEM_QUESTIONS`), with the instruction as the input,
and all questions together once (`WHOLE_QUESTIONS`). What the judge does not answer is unanswered, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import Checklist
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score

ITEM_QUESTIONS = Checklist.parse(
    [
        {
            "question": "The response is a question for checking another text. Does it ask about exactly one thing?",
            "category": "atomic",
        },
        {
            "question": "The response is a question for checking another text. Can it be answered with a plain yes or "
            "no?",
            "category": "answerable",
        },
        {
            "question": "The response is a question for checking another text. Can it be answered by reading that "
            "text, without guessing at intentions or knowing things from elsewhere?",
            "category": "observable",
        },
        {
            "question": "The response is a question for checking another text. Does its wording push the reader "
            "towards one of the answers?",
            "category": "not_leading",
            "weight": -1,
        },
    ]
)
"""About one question of a checklist. The categories are what the figures are reported by."""
WHOLE_QUESTIONS = Checklist.parse(
    [
        {
            "question": "The response is a list of questions for checking answers to the instruction. Is everything "
            "that the instruction asks for checked by at least one of them?",
            "category": "covers_input",
        },
        {
            "question": "The response is a list of questions for checking answers to the instruction. Do two of them "
            "ask for the same thing?",
            "category": "not_repetitive",
            "weight": -1,
        },
    ]
)
"""About the questions of a checklist taken together."""


@dataclass(frozen=True, slots=True)
class Review:
    """What a judge says about one checklist."""

    items: tuple[Score, ...]
    """One score per item, by `ITEM_QUESTIONS`."""
    whole: Score
    """By `WHOLE_QUESTIONS`."""

    @property
    def pass_rates(self) -> dict[str, float | None]:
        """Passed / answered of each category of the meta-checklist; None where nothing was answered."""
        passed: dict[str, list[bool]] = {}
        for score in (*self.items, self.whole):
            for line in score.items:
                if line.category is not None:
                    passed.setdefault(line.category, []).extend([] if line.passed is None else [line.passed])
        return {name: sum(known) / len(known) if known else None for name, known in passed.items()}


def review(
    checklists: Sequence[tuple[Checklist, str | None]], scorer: ChecklistScorer, progress: Progress | None = None
) -> list[Review]:
    """Put checklists under judgement, all reads planned together.

    Args:
        checklists (sequence of ([`Checklist`], `str` or None)): each with the instruction that it is for.
        scorer ([`ChecklistScorer`]): who judges.
        progress (callable, *optional*): told how many reads were answered since its last call.
    """
    samples: list[Sample] = []
    for checklist, input in checklists:
        samples += [Sample(ITEM_QUESTIONS, item.question, input) for item in checklist.items]
        samples.append(Sample(WHOLE_QUESTIONS, "\n".join(f"- {item.question}" for item in checklist.items), input))
    scores = iter(scorer.score_batch(samples, progress))
    return [Review(tuple(next(scores) for _ in checklist.items), next(scores)) for checklist, _ in checklists]


def reads_of(checklist: Checklist) -> int:
    """How many reads a review of `checklist` asks for."""
    return len(checklist) * len(ITEM_QUESTIONS) + len(WHOLE_QUESTIONS)
