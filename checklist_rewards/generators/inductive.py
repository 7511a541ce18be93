"""The inductive generator: questions from observations, as in "From Feedback to Checklists" (arXiv:2507.17717).

    questions (with the observations behind each) ──▶ deduplicate ──▶ tag ──▶ unit_test ──▶ select

Observations are sent to the model in batches, numbered from 0 across batches. A batch that exceeds the model's context
is split in half; one without a usable reply raises a [`StageError`]. Every question names the observations it is based
on, in [`ChecklistItem.sources`]; the selection measures coverage by them. Unit tests need samples (responses to
rewrite). The draft of the stage `questions` holds them as [`SourcedQuestions`]; the refiners follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

from checklist_rewards.backends import Engine
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.generators.base import Stage
from checklist_rewards.generators.shapes import SourcedQuestion, SourcedQuestions, items_of
from checklist_rewards.generators.stages import (
    CorpusWriter,
    Feedback,
    Prompt,
    StageMethod,
    Watcher,
    check_questions,
    numbered,
)
from checklist_rewards.refiners import Deduplicator, Refiner, Selector, Tagger, UnitTester
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores.reasons import Reason
from checklist_rewards.writer import Writer, WriterKwargs

BATCH_SIZE, BATCH_CHARS = 100, 20_000
"""Maximum number of observations per prompt, and of their characters."""


class InductiveGenerator(CorpusWriter):
    """Writes one checklist for a corpus from observations about its texts.

    Args:
        model (`str`, [`Engine`] or [`Writer`], *optional*): the model that writes, merges, tags and tests.
        prompts (mapping, *optional*): prompts to replace, as stage name to a Markdown file or the name of a packaged
            prompt. This generator has one stage with a prompt, `questions`.
        max_items (`int`, *optional*, defaults to `20`): maximum number of questions. If there are more, a subset is
            selected.
        embedder (*optional*): embedder of deduplication and selection; see [`Deduplicator`].
        scorer ([`ChecklistScorer`], *optional*): judge of the unit tests. Defaults to a scorer with the same model.
        **settings: the other fields of [`Writer`]; `writing` has the defaults.
    """

    name = "feedback"
    writing: ClassVar[WriterKwargs] = {"temperature": 0.7, "max_tokens": 4096, "max_attempts": 3}
    source_shape, draft_shape = Feedback, SourcedQuestions
    stage_prompts = {"questions": (("observations",), ("domain",))}

    def __init__(
        self,
        model: str | Engine | Writer = UNNAMED,
        *,
        prompts: Mapping[str, Prompt] | None = None,
        max_items: int = 20,
        embedder: Any = None,
        scorer: ChecklistScorer | None = None,
        **settings: Unpack[WriterKwargs],
    ):
        super().__init__(model, prompts, **settings)
        self.max_items = max_items
        writer = self.writer.with_defaults_of_parts
        self.refiners: dict[str, Refiner] = {
            "deduplicate": Deduplicator(writer, embedder=embedder),
            "tag": Tagger(writer),
            "unit_test": UnitTester(writer, scorer=scorer),
            "select": Selector(max_items, embedder=embedder),
        }

    def validate(self) -> None:
        """Check that all models exist, without loading them. Raises [`ModelError`].

        The judge of the unit tests is checked by `generate`, and only if there are samples.
        """
        super().validate()
        for stage, refiner in self.refiners.items():
            if stage != "unit_test":
                refiner.validate()

    def generate(
        self,
        source: Feedback | Mapping[str, Any],
        samples: Sequence[Sample] = (),
        *,
        progress: Watcher | None = None,
    ) -> Checklist:
        """Write the checklist of all observations.

        Args:
            source ([`Feedback`] or mapping): the observations.
            samples (sequence of [`Sample`], *optional*): responses for the unit tests.
            progress (callable, *optional*): called with every completed [`Stage`].

        Raises:
            SampleError: If the source is not valid. Nothing has been sent to the model at that point.
            StageError: If a stage fails. The message names the stage.
        """
        for number, sample in enumerate(samples, start=1):
            if not isinstance(sample, Sample):
                raise SampleError(f"sample {number} must be a Sample, got {type(sample).__name__} {sample!r:.60}.")
        if samples:
            self.refiners["unit_test"].validate()
        checklist = super().generate(source, progress=progress)
        for stage, refiner in self.refiners.items():
            if (stage == "unit_test" and not samples) or (stage == "select" and len(checklist) <= self.max_items):
                continue
            with self._stage(stage, progress) as running:
                running.asked = len(checklist)
                checklist = refiner.refine(checklist, samples)
                running.kept = len(checklist)
        return checklist

    def _order(self) -> Mapping[str, StageMethod]:
        return {"questions": self._questions}

    def _draft(self, source: Feedback, draft: Any) -> SourcedQuestions:
        questions: SourcedQuestions = super()._draft(source, draft)
        check_questions([entry.question for entry in questions.questions], "the draft:")
        last = len(source.observations) - 1
        for entry in questions.questions:
            unknown = [number for number in entry.sources if not 0 <= number <= last]
            if unknown:
                raise SampleError(
                    f"{entry.question!r:.60} names observation {unknown[0]}; the numbers are 0 to {last}."
                )
        return questions

    def _finished(self, source: Feedback, draft: SourcedQuestions) -> Checklist:
        if not draft.questions:
            raise SampleError("the draft has no questions; a checklist needs at least one.")
        return self._checklist(
            [ChecklistItem(question=entry.question, sources=tuple(entry.sources)) for entry in draft.questions]
        )

    def _questions(self, stage: Stage, feedback: Feedback, draft: None) -> SourcedQuestions:
        written = [entry for value in self._ask_in_batches(stage, feedback) for entry in value.questions]
        items = items_of(SourcedQuestions(questions=written))  # equal questions are one
        if not items:
            raise self._error(stage, "The model wrote no question for any observation.", [], 1)
        stage.kept = len(items)
        return SourcedQuestions(
            questions=[SourcedQuestion(question=i.question, sources=sorted(set(i.sources))) for i in items]
        )

    def _ask_in_batches(self, stage: Stage, feedback: Feedback) -> list[SourcedQuestions]:
        pending = list(batches(feedback.observations, BATCH_SIZE, BATCH_CHARS))
        by_start: dict[int, SourcedQuestions] = {}
        while pending:
            batches_sent = pending
            values = self._try_ask(
                stage,
                [self._messages(feedback, batch) for batch in batches_sent],
                SourcedQuestions,
                lambda index, value, sent=batches_sent: _complaint(value, sent[index]),  # type: ignore[misc]
            )
            pending, final = [], {}
            for batch, value in zip(batches_sent, values, strict=True):
                if _does_not_fit(value) and len(batch) > 1:
                    pending += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                else:
                    final[batch] = value
            self._refuse(stage, list(final.values()), [f"observations {b.start}-{b.stop - 1}" for b in final])
            by_start.update((b.start, v) for b, v in final.items() if not isinstance(v, GenerationError))
        return [by_start[start] for start in sorted(by_start)]

    def _messages(self, feedback: Feedback, batch: range) -> list[dict[str, str]]:
        texts = feedback.observations[batch.start : batch.stop]
        return self.prompts["questions"].messages(domain=feedback.domain, observations=numbered(texts, batch.start))


def batches(observations: Sequence[str], most: int, chars: int) -> Iterable[range]:
    """Split observations into consecutive batches of at most `most` observations and `chars` characters.

    A single observation with more characters gets its own batch.

    >>> list(batches(["aa", "bb", "cccc", "d"], most=3, chars=5))
    [range(0, 2), range(2, 4)]
    """
    start = used = 0
    for index, text in enumerate(observations):
        if index > start and (index - start == most or used + len(text) > chars):
            yield range(start, index)
            start, used = index, 0
        used += len(text)
    if start < len(observations):
        yield range(start, len(observations))


def _does_not_fit(value: object) -> bool:
    return isinstance(value, GenerationError) and not value.raw and Reason.TOO_LONG in str(value)


def _complaint(value: SourcedQuestions, batch: range) -> str | None:
    """The error of a reply, or None. A batch may give no question; each question must name its observations."""
    allowed = f"the numbers are {batch.start} to {batch.stop - 1}"
    for entry in value.questions:
        if not entry.sources:
            return f"{entry.question!r:.60} names no observation in 'sources'; {allowed}."
        for number in entry.sources:
            if number not in batch:
                return f"{entry.question!r:.60} names observation {number}; {allowed}."
    try:
        items_of(value)
    except ValueError as error:
        return f"the reply cannot be used: {error}."
    return None
