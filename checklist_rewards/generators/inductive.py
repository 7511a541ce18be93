"""The inductive generator: from observations to questions, as in "From Feedback to Checklists" (arXiv:2507.17717).

    questions (with the observations behind each) ──▶ deduplicate ──▶ tag ──▶ unit_test ──▶ select

Observations go to the model in batches, all batches in one call, numbered through from 0; a batch that turns out too
long for the model's context is halved. Every question names the observations it comes from, and keeps them in
[`ChecklistItem.sources`], which is what selection measures coverage by. Unit tests need samples (responses to
rewrite) and are left out without them. A batch without a usable reply ends the run in a [`StageError`] that names it;
none is left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.backends.base import TOO_LONG
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators.base import check_numbers
from checklist_rewards.generators.shapes import SourcedQuestions, items_of
from checklist_rewards.generators.sources import Feedback
from checklist_rewards.generators.stages import CorpusWriter, Prompt, Run, StagePrompt, Step, Watcher, numbered
from checklist_rewards.refiners import Deduplicator, Refiner, Selector, Tagger, UnitTester
from checklist_rewards.scorer import ChecklistScorer, Sample


class InductiveGenerator(CorpusWriter):
    """Writes one checklist for a corpus from what was observed in it.

    Args:
        model (`str`, *optional*, defaults to `"pocket"`): the model that writes, merges, tags and tests.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): auto, transformers, vllm, openai, or an
            engine.
        base_url (`str`, *optional*): an OpenAI-compatible server, such as "http://localhost:8000/v1".
        prompts (mapping, *optional*): stage to a Markdown file or the name of a packaged prompt, for stages that shall
            not use their own; here there is one, questions.
        max_items (`int`, *optional*, defaults to `20`): questions at most; where there are more, they are selected.
        refine (`bool`, *optional*, defaults to `True`): whether questions are deduplicated, tagged and, where samples
            are given, unit-tested.
        batch_size, batch_chars (`int`, *optional*, default to `100` and `20000`): observations per prompt at most, and
            their characters.
        embedder (*optional*): of deduplication and selection; see [`Deduplicator`].
        scorer ([`ChecklistScorer`], *optional*): who judges in the unit tests; defaults to one with the same model.
        temperature (`float`, *optional*, defaults to `0.7`): of the sampling.
        max_tokens (`int`, *optional*, defaults to `4096`): of one reply. A model that thinks first needs more.
        max_attempts (`int`, *optional*, defaults to `3`): replies per prompt.
        seed (`int`, *optional*, defaults to `0`): of the first attempt.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where replies are kept; False for nowhere.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used.
    """

    name = "feedback"
    stage_prompts = {"questions": StagePrompt("generators/feedback_questions", ("observations",), ("domain",))}

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompts: Mapping[str, Prompt] | None = None,
        max_items: int = 20,
        refine: bool = True,
        batch_size: int = 100,
        batch_chars: int = 20_000,
        embedder: Any = None,
        scorer: ChecklistScorer | None = None,
        temperature: float = 0.7,
        max_tokens: int = 4096,
        max_attempts: int = 3,
        seed: int = 0,
        store: bool | str | Path | Store = True,
    ):
        super().__init__(model, backend, base_url, prompts, temperature, max_tokens, max_attempts, seed, store)
        check_numbers(temperature, max_items=max_items, batch_size=batch_size, batch_chars=batch_chars)
        self.max_items, self.batch_size, self.batch_chars = max_items, batch_size, batch_chars
        where: dict[str, Any] = {
            "backend": backend,
            "base_url": base_url,
            "store": False if self.store is None else self.store,
        }
        self.refiners: dict[str, Refiner] = {}
        if refine:
            self.refiners["deduplicate"] = Deduplicator(model, embedder=embedder, **where)
            self.refiners["tag"] = Tagger(model, **where)
            self.refiners["unit_test"] = UnitTester(model, scorer=scorer, **where)
        self.refiners["select"] = Selector(max_items, embedder=embedder)

    def check(self) -> None:
        """Refuse models that are not there; the judge of the unit tests only where there are samples for them. Raises
        [`ModelError`]."""
        super().check()
        for stage, refiner in self.refiners.items():
            if stage != "unit_test":
                refiner.check()

    def generate(
        self,
        source: Feedback | Mapping[str, Any],
        samples: Sequence[Sample] = (),
        *,
        progress: Watcher | None = None,
    ) -> Checklist:
        """The checklist of all observations.

        Args:
            source ([`Feedback`] or mapping): the observations.
            samples (sequence of [`Sample`], *optional*): responses for the unit tests.
            progress (callable, *optional*): told of every [`Stage`] that is done.

        Raises:
            SampleError: if the source cannot be used, before anything is asked.
            StageError: naming the stage that broke.
        """
        feedback = Feedback.of(source)
        for number, sample in enumerate(samples, start=1):
            if not isinstance(sample, Sample):
                raise SampleError(f"sample {number} must be a Sample, got {type(sample).__name__} {sample!r:.60}.")
        if samples and "unit_test" in self.refiners:
            self.refiners["unit_test"].check()
        run = self._run(progress)
        checklist = self._questions(run, feedback)
        for stage, refiner in self.refiners.items():
            if (stage == "unit_test" and not samples) or (stage == "select" and len(checklist) <= self.max_items):
                continue
            with run.stage(stage) as step:
                step.asked = len(checklist)
                checklist = refiner.refine(checklist, samples)
                step.kept = len(checklist)
        return checklist

    def _questions(self, run: Run, feedback: Feedback) -> Checklist:
        with run.stage("questions") as step:
            found = self._ask_in_batches(step, feedback)
            merged: dict[str, ChecklistItem] = {}
            for item in found:
                first = merged.setdefault(item.question.casefold(), item)
                sources = tuple(sorted({*first.sources, *item.sources}))
                merged[item.question.casefold()] = first.model_copy(update={"sources": sources})
            if not merged:
                raise step.error("The model found nothing to ask about in any observation.", [], 1)
            step.kept = len(merged)
            return self._checklist(list(merged.values()))

    def _ask_in_batches(self, step: Step, feedback: Feedback) -> list[ChecklistItem]:
        pending = list(batches(feedback.observations, self.batch_size, self.batch_chars))
        found: dict[int, list[ChecklistItem]] = {}
        while pending:
            asked = pending
            values = step.try_ask(
                [self._messages(feedback, batch) for batch in asked],
                SourcedQuestions,
                lambda index, value, asked=asked: _complaint(value, asked[index]),  # type: ignore[misc]
            )
            pending = [
                half
                for batch, value in zip(asked, values, strict=True)
                if _does_not_fit(value) and len(batch) > 1
                for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :])
            ]
            final = [(b, v) for b, v in zip(asked, values, strict=True) if not (_does_not_fit(v) and len(b) > 1)]
            step.refuse([v for _, v in final], [f"observations {b.start}-{b.stop - 1}" for b, _ in final])
            found.update((b.start, items_of(v)) for b, v in final if not isinstance(v, GenerationError))
        return [item for start in sorted(found) for item in found[start]]

    def _messages(self, feedback: Feedback, batch: range) -> list[dict[str, str]]:
        texts = feedback.observations[batch.start : batch.stop]
        return self.prompts["questions"].messages(domain=feedback.domain, observations=numbered(texts, batch.start))


def batches(observations: Sequence[str], most: int, chars: int) -> Iterable[range]:
    """Cut observations into runs of at most `most`, each of at most `chars` characters where one alone does not have
    more.

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
    return isinstance(value, GenerationError) and not value.raw and TOO_LONG in str(value)


def _complaint(value: SourcedQuestions, batch: range) -> str | None:
    """A batch may give no question; one that it gives must say where it is from."""
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
