"""What a model says about the wording of questions.

Paraphrases measure whether a judge's answers depend on the wording. A model writes the paraphrases
(`prompts/refiners/paraphrase.md`). If a reply cannot be parsed or has too few paraphrases, the original question fills
the remaining places; `Paraphraser.unchanged` counts such items.

The meta-checklist is a checklist about checklists, answered by the same judges as any other:

    >>> reviews = review([(checklist, "Write a haiku about rain.")], scorer)
    >>> reviews[0].items[2].primary_score, reviews[0].whole.primary_score  # doctest: +SKIP

Each question of a checklist is scored on its own with `ITEM_QUESTIONS`, with the instruction as the input, and all
questions are scored together with `WHOLE_QUESTIONS`. Failed reads are unanswered, as in any other score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack

from pydantic import BaseModel, Field

from checklist_rewards.backends import Engine, Progress
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.prompts import load_prompt
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.validation import whole_number
from checklist_rewards.writer import Writer, WriterKwargs, writer_of


class _Wordings(BaseModel):
    wordings: list[str] = Field(min_length=1)


class Paraphraser:
    """Writes paraphrases of items.

    Args:
        model (`str`, [`Engine`] or [`Writer`]): the model that writes the paraphrases.
        count (`int`, *optional*, defaults to `2`): paraphrases per item.
        **settings: the other fields of [`Writer`]. By default `temperature` is 0, `max_tokens` 512 and `max_attempts`
            3.
    """

    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 512, "max_attempts": 3}

    def __init__(self, model: str | Engine | Writer, *, count: int = 2, **settings: Unpack[WriterKwargs]):
        whole_number("count", count)
        self.count = count
        self.writer = writer_of(self, model, settings)
        self.prompt = load_prompt("refiners/paraphrase", "stage")
        self.unchanged = 0
        """Number of items in the last call that got fewer than `count` paraphrases."""
        self.failures: list[GenerationError] = []
        """Why items in the last call got no usable reply."""

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.writer.validate()

    def reword(self, items: Sequence[ChecklistItem]) -> list[list[ChecklistItem]]:
        """For every item, `count` copies that differ in the question only."""
        prompts = [self.prompt.messages(item=item.question, count=str(self.count)) for item in items]
        replies = self.writer.ask(prompts, _Wordings)
        self.unchanged = 0
        self.failures = [reply for reply in replies if isinstance(reply, GenerationError)]
        out: list[list[ChecklistItem]] = []
        for item, reply in zip(items, replies, strict=True):
            texts = [] if isinstance(reply, GenerationError) else [text.strip() for text in reply.wordings]
            texts = [text for text in dict.fromkeys(texts) if text and text != item.question][: self.count]
            self.unchanged += len(texts) < self.count
            texts += [item.question] * (self.count - len(texts))
            kept = item.model_dump(exclude={"id", "question"})
            out.append([ChecklistItem(**kept, question=text) for text in texts])
        return out


def reworded(checklist: Checklist, wordings: Sequence[Sequence[ChecklistItem]], number: int) -> Checklist:
    """`checklist` with the paraphrase `number` (from 0) of each item."""
    return Checklist(items=tuple(of_item[number] for of_item in wordings))


_ITEM = "The response is a question for checking another text."
ITEM_QUESTIONS = Checklist.parse(
    [
        {"question": f"{_ITEM} Does it ask about exactly one thing?", "category": "atomic"},
        {"question": f"{_ITEM} Can it be answered with a plain yes or no?", "category": "answerable"},
        {
            "question": f"{_ITEM} Can it be answered by reading that text, without guessing at intentions or knowing "
            "things from elsewhere?",
            "category": "observable",
        },
        {
            "question": f"{_ITEM} Does its wording push the reader towards one of the answers?",
            "category": "not_leading",
            "weight": -1,
        },
    ]
)
"""Asked about each question of a checklist. Figures are reported by category."""
_LIST = "The response is a list of questions for checking answers to the instruction."
WHOLE_QUESTIONS = Checklist.parse(
    [
        {
            "question": f"{_LIST} Is everything that the instruction asks for checked by at least one of them?",
            "category": "covers_input",
        },
        {"question": f"{_LIST} Do two of them ask for the same thing?", "category": "not_repetitive", "weight": -1},
    ]
)
"""Asked about the whole list of questions."""


@dataclass(frozen=True, slots=True)
class Review:
    """The judge's scores of one checklist."""

    items: tuple[Score, ...]
    """One score per item, on `ITEM_QUESTIONS`."""
    whole: Score
    """Score of the whole list, on `WHOLE_QUESTIONS`."""

    @property
    def pass_rates(self) -> dict[str, float | None]:
        """Pass rate per category of the meta-checklist; None if nothing was answered."""
        passed: dict[str, list[bool]] = {}
        for score in (*self.items, self.whole):
            for line in score.items:
                if line.category is not None:
                    passed.setdefault(line.category, []).extend([] if line.passed is None else [line.passed])
        return {name: sum(known) / len(known) if known else None for name, known in passed.items()}


def review(
    checklists: Sequence[tuple[Checklist, str | None]], scorer: ChecklistScorer, progress: Progress | None = None
) -> list[Review]:
    """Score checklists with the meta-checklist, with all reads in one plan.

    Args:
        checklists (sequence of ([`Checklist`], `str` or None)): each checklist with its instruction.
        scorer ([`ChecklistScorer`]): the judge.
        progress (callable, *optional*): called with the number of reads answered since its last call.
    """
    samples: list[Sample] = []
    for checklist, input in checklists:
        samples += [Sample(ITEM_QUESTIONS, item.question, input) for item in checklist.items]
        samples.append(Sample(WHOLE_QUESTIONS, "\n".join(f"- {item.question}" for item in checklist.items), input))
    scores = iter(scorer.score_batch(samples, progress))
    return [Review(tuple(next(scores) for _ in checklist.items), next(scores)) for checklist, _ in checklists]


def reads_of(checklist: Checklist) -> int:
    """Number of reads that a review of `checklist` takes."""
    return len(checklist) * len(ITEM_QUESTIONS) + len(WHOLE_QUESTIONS)
