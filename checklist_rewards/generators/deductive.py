"""The deductive generator: questions from quality dimensions with definitions, as in CheckEval (arXiv:2403.18771).

    seeds ──▶ elaborate, diversify ──▶ filter ──▶ deduplicate ──▶ one checklist, category = dimension

Each dimension starts with seed questions, given by the user or written by the model. *Elaboration* adds more detailed
questions and *diversification* adds questions about other aspects, both based on the seeds. The optional *filter*
keeps a question if yes means better and the question belongs to its dimension. Each stage processes all dimensions in
one call. A dimension without a usable reply, or without a question after the filter, raises a [`StageError`] that
names it, so every dimension of the source is in the checklist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ConfigDict

from checklist_rewards.backends import Backend, Engine, Messages
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators.base import check_numbers
from checklist_rewards.generators.parsing import is_question, tidy
from checklist_rewards.generators.shapes import Questions, Shape
from checklist_rewards.generators.sources import Dimension, Dimensions
from checklist_rewards.generators.stages import (
    CorpusWriter,
    Prompt,
    Run,
    StagePrompt,
    Watcher,
    holds_questions,
    questions_of,
)
from checklist_rewards.refiners import Deduplicator
from checklist_rewards.validation import one_of

Augmentation = Literal["both", "elaboration", "diversification", "none"]
_MODES = {"elaboration": "elaborate", "diversification": "diversify"}
_ABOUT = ("dimension", "definition")

Pools = dict[str, list[str]]
"""Name of a dimension to its questions."""


class FilterReply(Shape):
    """What the filter says about one question."""

    # The schema is part of the store key, so it keeps the title that stored replies were requested with.
    model_config = ConfigDict(title="Verdict")

    reasoning: str
    yes_is_better: bool
    belongs: bool


class DeductiveGenerator(CorpusWriter):
    """Writes one checklist for a corpus from quality dimensions.

    Args:
        model, backend, base_url, prompts, temperature, max_tokens, max_attempts, seed, store: see
            [`InductiveGenerator`]. The stages with a prompt are `seed`, `elaborate`, `diversify` and `filter`.
        augmentation (`str`, *optional*, defaults to `"both"`): questions to add to the seeds: `"elaboration"`,
            `"diversification"`, `"both"` or `"none"`.
        filtering (`bool`, *optional*, defaults to `False`): whether to filter the questions and then deduplicate them
            within each dimension.
        seeds, elaborations, diversifications (`int`, *optional*, default to `2`, `5` and `4`): number of questions to
            request per sub-dimension (per dimension if it has none).
        max_items (`int`, *optional*): maximum number of items of the checklist, spread evenly over the dimensions.
        threshold (`float`, *optional*, defaults to `0.85`): least cosine at which questions count as the same.
        embedder (*optional*): embedder of the deduplication; see [`Deduplicator`].

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "checkeval"
    stage_prompts = {
        "seed": StagePrompt("generators/checkeval_seed", (*_ABOUT, "count"), ("task", "sub_dimensions")),
        "elaborate": StagePrompt(
            "generators/checkeval_elaborate", (*_ABOUT, "questions", "count"), ("task", "sub_dimensions")
        ),
        "diversify": StagePrompt(
            "generators/checkeval_diversify", (*_ABOUT, "questions", "count"), ("task", "sub_dimensions")
        ),
        "filter": StagePrompt("generators/checkeval_filter", (*_ABOUT, "candidate"), ("task",)),
    }

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompts: Mapping[str, Prompt] | None = None,
        augmentation: Augmentation | None = "both",
        filtering: bool = False,
        seeds: int = 2,
        elaborations: int = 5,
        diversifications: int = 4,
        max_items: int | None = None,
        threshold: float = 0.85,
        embedder: Any = None,
        temperature: float = 0.7,
        max_tokens: int = 2048,
        max_attempts: int = 3,
        seed: int = 0,
        store: bool | str | Path | Store = True,
    ):
        super().__init__(model, backend, base_url, prompts, temperature, max_tokens, max_attempts, seed, store)
        augmentation = "none" if augmentation is None else augmentation
        one_of("augmentation", augmentation, get_args(Augmentation))
        check_numbers(temperature, seeds=seeds, elaborations=elaborations, diversifications=diversifications)
        check_numbers(temperature, max_items=1 if max_items is None else max_items)
        self.modes = [mode for mode in _MODES if augmentation in (mode, "both")]
        self.filtering, self.max_items = filtering, max_items
        self.counts = {"seed": seeds, "elaborate": elaborations, "diversify": diversifications}
        self.deduplicator = (
            Deduplicator(
                model,
                backend=backend,
                base_url=base_url,
                threshold=threshold,
                embedder=embedder,
                store=False if self.store is None else self.store,
            )
            if filtering
            else None
        )

    def check(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        super().check()
        if self.deduplicator is not None:
            self.deduplicator.check()

    def generate(self, source: Dimensions | Mapping[str, Any], *, progress: Watcher | None = None) -> Checklist:
        """Write the checklist of all dimensions.

        Args:
            source ([`Dimensions`] or mapping): the dimensions to cover.
            progress (callable, *optional*): called with every completed [`Stage`].

        Raises:
            SampleError: If the source is not valid. Nothing has been sent to the model at that point.
            StageError: If a stage fails. The message names the stage and its dimensions.
        """
        source = Dimensions.of(source)
        dimensions = source.dimensions
        if self.max_items is not None and self.max_items < len(dimensions):
            raise SampleError(
                f"max_items={self.max_items} is not allowed for {len(dimensions)} dimensions; each needs an item."
            )
        given = {dimension.name: _seed_questions(dimension) for dimension in dimensions}
        run = self._run(progress)
        pools = self._seeded(run, source, given)
        seeds = {name: list(questions) for name, questions in pools.items()}
        for mode in self.modes:
            self._augment(run, _MODES[mode], source, seeds, pools)
        if self.filtering:
            pools = self._filtered(run, source, pools)
            items = self._deduplicated(run, dimensions, pools)
        else:
            items = {d.name: [_item(question, d) for question in pools[d.name]] for d in dimensions}
        return self._checklist(spread(list(items.values()), self.max_items))

    def _seeded(self, run: Run, source: Dimensions, given: Pools) -> Pools:
        missing = [dimension for dimension in source.dimensions if not given[dimension.name]]
        with run.stage("seed") as step:
            prompts = [self._messages("seed", source, dimension) for dimension in missing]
            values = step.ask(prompts, [d.name for d in missing], Questions, holds_questions)
            written = {d.name: questions_of(value) for d, value in zip(missing, values, strict=True)}
            pools = {name: questions or written[name] for name, questions in given.items()}
            step.kept = sum(map(len, pools.values()))
        return pools

    def _augment(self, run: Run, stage: str, source: Dimensions, seeds: Pools, pools: Pools) -> None:
        with run.stage(stage) as step:
            prompts = [self._messages(stage, source, d, questions=_listed(seeds[d.name])) for d in source.dimensions]
            values = step.ask(prompts, list(pools), Questions, holds_questions)
            for pool, value in zip(pools.values(), values, strict=True):
                known = {question.casefold() for question in pool}
                pool += [question for question in questions_of(value) if question.casefold() not in known]
            step.kept = sum(map(len, pools.values()))

    def _filtered(self, run: Run, source: Dimensions, pools: Pools) -> Pools:
        with run.stage("filter") as step:
            pairs = [(d, question) for d in source.dimensions for question in pools[d.name]]
            prompts = [
                self.prompts["filter"].messages(
                    task=source.task, dimension=d.name, definition=d.definition, candidate=question
                )
                for d, question in pairs
            ]
            replies = step.ask(
                prompts, [f"{d.name}, {question!r}" for d, question in pairs], FilterReply, temperature=0.0
            )
            kept: Pools = {d.name: [] for d in source.dimensions}
            for (dimension, question), reply in zip(pairs, replies, strict=True):
                if reply.yes_is_better and reply.belongs:
                    kept[dimension.name].append(question)
            empty = [name for name, questions in kept.items() if not questions]
            if empty:
                why = "None of its questions passed; widen its definition or set filtering=False."
                raise step.error(f"{empty[0]}: {why}", empty, len(kept))
            step.kept = sum(map(len, kept.values()))
        return kept

    def _deduplicated(self, run: Run, dimensions: Sequence[Dimension], pools: Pools) -> dict[str, list[ChecklistItem]]:
        assert self.deduplicator is not None
        with run.stage("deduplicate") as step:
            items: dict[str, list[ChecklistItem]] = {}
            for dimension in dimensions:
                # One dimension at a time, because a question may belong to two dimensions and then counts in both.
                written = [_item(question, dimension) for question in pools[dimension.name]]
                items[dimension.name] = list(self.deduplicator.refine(self._checklist(written)).items)
                step.asked += len(written)
            step.kept = sum(map(len, items.values()))
        return items

    def _messages(self, stage: str, source: Dimensions, dimension: Dimension, **fields: str) -> Messages:
        parts = dimension.sub_dimensions
        return self.prompts[stage].messages(
            task=source.task,
            dimension=dimension.name,
            definition=dimension.definition,
            sub_dimensions=_listed(parts) if parts else None,
            count=self.counts[stage] * max(1, len(parts)),
            **fields,
        )


def spread(groups: Sequence[Sequence[ChecklistItem]], most: int | None) -> list[ChecklistItem]:
    """At most `most` items, taken from the groups in turn (round-robin) and returned in group order.

    >>> one, two = [[ChecklistItem(question=q) for q in text.split()] for text in ("a? b? c?", "d?")]
    >>> [item.question for item in spread([one, two], 3)]
    ['a?', 'b?', 'd?']
    """
    left = sum(map(len, groups)) if most is None else most
    counts = [0] * len(groups)
    while left > 0 and any(count < len(group) for count, group in zip(counts, groups, strict=True)):
        for index, group in enumerate(groups):
            if left > 0 and counts[index] < len(group):
                counts[index] += 1
                left -= 1
    return [item for count, group in zip(counts, groups, strict=True) for item in group[:count]]


def _seed_questions(dimension: Dimension) -> list[str]:
    questions = [tidy(question) for question in dimension.seed_questions]
    for question in questions:
        if not is_question(question):
            raise SampleError(
                f"dimension {dimension.name!r}: the seed {question!r:.80} is not a question; "
                "it must end with a question mark."
            )
    first: dict[str, str] = {}
    for question in questions:
        first.setdefault(question.casefold(), question)
    return list(first.values())


def _item(question: str, dimension: Dimension) -> ChecklistItem:
    return ChecklistItem(question=question, category=dimension.name)


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(text.split())}" for text in texts)
