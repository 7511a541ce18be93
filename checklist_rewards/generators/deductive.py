"""The deductive generator: questions from quality dimensions with definitions, as in CheckEval (arXiv:2403.18771).

    seeds ──▶ elaborate, diversify ──▶ filter ──▶ deduplicate ──▶ one checklist, category = dimension

Each dimension starts with seed questions, given by the user or written by the model. *Elaboration* adds more detailed
questions and *diversification* adds questions about other aspects, both based on the seeds. The optional *filter*
keeps a question if yes means better and the question belongs to its dimension. A dimension without a usable reply, or
without a question after the filter, raises a [`StageError`]. The draft of a stage is its [`Pools`].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Unpack, get_args

from pydantic import BaseModel, ConfigDict, Field

from checklist_rewards.backends import Engine, Messages
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.generators.base import Stage
from checklist_rewards.generators.shapes import Questions, Shape, distinct, tidy
from checklist_rewards.generators.stages import (
    CorpusWriter,
    Dimension,
    Dimensions,
    Prompt,
    StageMethod,
    check_questions,
    holds_questions,
    questions_of,
)
from checklist_rewards.refiners import Deduplicator
from checklist_rewards.validation import one_of, whole_number
from checklist_rewards.writer import Writer, WriterKwargs

Augmentation = Literal["both", "elaboration", "diversification", "none"]
_MODES = {"elaboration": "elaborate", "diversification": "diversify"}
COUNTS = {"seed": 2, "elaborate": 5, "diversify": 4}
"""Number of questions that a stage requests per sub-dimension (per dimension if it has none)."""
_ABOUT, _OPTIONAL = ("dimension", "definition"), ("task", "sub_dimensions")
_FIXED = Field(json_schema_extra={"readOnly": True})
"""A field that follows from the source, so a form does not offer to change it."""


class Pool(BaseModel):
    """The questions of one dimension."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dimension: Annotated[str, _FIXED]
    seeds: list[str] = []
    """Questions that elaboration and diversification are based on."""
    added: list[str] = []
    """Further questions; after deduplication, all questions."""

    @property
    def questions(self) -> list[str]:
        """All questions, the seeds first. Of questions that differ only in case, the first."""
        return distinct([*self.seeds, *self.added])

    @property
    def items(self) -> list[ChecklistItem]:
        """The questions as items of the dimension."""
        return [ChecklistItem(question=question, category=self.dimension) for question in self.questions]


class Pools(BaseModel):
    """The questions of all dimensions, in the order of the source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pools: Annotated[list[Pool], _FIXED]

    @property
    def total(self) -> int:
        """Number of questions."""
        return sum(len(pool.questions) for pool in self.pools)


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
        model, prompts: see [`InductiveGenerator`]. The stages with a prompt are `seed`, `elaborate`, `diversify` and
            `filter`.
        augmentation (`str`, *optional*, defaults to `"both"`): questions to add to the seeds: `"elaboration"`,
            `"diversification"`, `"both"` or `"none"`.
        filtering (`bool`, *optional*, defaults to `False`): whether to filter the questions and then deduplicate them
            within each dimension.
        max_items (`int`, *optional*): maximum number of items of the checklist, spread evenly over the dimensions.
        embedder (*optional*): embedder of the deduplication; see [`Deduplicator`].
        **settings: the other fields of [`Writer`]; `writing` has the defaults.
    """

    name = "checkeval"
    source_shape, draft_shape = Dimensions, Pools
    stage_prompts = {
        "seed": ((*_ABOUT, "count"), _OPTIONAL),
        "elaborate": ((*_ABOUT, "questions", "count"), _OPTIONAL),
        "diversify": ((*_ABOUT, "questions", "count"), _OPTIONAL),
        "filter": ((*_ABOUT, "candidate"), ("task",)),
    }

    def __init__(
        self,
        model: str | Engine | Writer = UNNAMED,
        *,
        prompts: Mapping[str, Prompt] | None = None,
        augmentation: Augmentation = "both",
        filtering: bool = False,
        max_items: int | None = None,
        embedder: Any = None,
        **settings: Unpack[WriterKwargs],
    ):
        super().__init__(model, prompts, **settings)
        one_of("augmentation", augmentation, get_args(Augmentation))
        if max_items is not None:
            whole_number("max_items", max_items)
        self.modes = [stage for mode, stage in _MODES.items() if augmentation in (mode, "both")]
        self.filtering, self.max_items = filtering, max_items
        self.deduplicator = Deduplicator(self.writer.with_defaults_of_parts, embedder=embedder) if filtering else None

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        super().validate()
        if self.deduplicator is not None:
            self.deduplicator.validate()

    def _order(self) -> Mapping[str, StageMethod]:
        order: dict[str, StageMethod] = {"seed": self._seed}
        order |= dict.fromkeys(self.modes, self._augment)
        return order | ({"filter": self._filter, "deduplicate": self._deduplicate} if self.filtering else {})

    def _source(self, source: Any) -> Dimensions:
        source = Dimensions.of(source)
        count = len(source.dimensions)
        if self.max_items is not None and self.max_items < count:
            raise SampleError(f"max_items={self.max_items} is not allowed for {count} dimensions; each needs an item.")
        for dimension in source.dimensions:
            _seed_questions(dimension)
        return source

    def _draft(self, source: Dimensions, draft: Any) -> Pools:
        pools: Pools = super()._draft(source, draft)
        wanted, got = [d.name for d in source.dimensions], [pool.dimension for pool in pools.pools]
        if wanted != got:
            raise SampleError(f"the draft is about {', '.join(got)}, but the dimensions are {', '.join(wanted)}.")
        for pool in pools.pools:
            check_questions(pool.questions, f"dimension {pool.dimension!r}:")
            if not pool.questions:
                raise SampleError(f"dimension {pool.dimension!r} has no question left; each dimension needs one.")
        return pools

    def _finished(self, source: Dimensions, draft: Pools) -> Checklist:
        return self._checklist(spread([pool.items for pool in draft.pools], self.max_items))

    def _seed(self, stage: Stage, source: Dimensions, draft: None) -> Pools:
        given = {dimension.name: _seed_questions(dimension) for dimension in source.dimensions}
        missing = [dimension for dimension in source.dimensions if not given[dimension.name]]
        prompts = [self._messages("seed", source, dimension) for dimension in missing]
        values = self._ask(stage, prompts, [d.name for d in missing], Questions, holds_questions)
        written = {d.name: questions_of(value) for d, value in zip(missing, values, strict=True)}
        pools = [Pool(dimension=name, seeds=questions or written[name]) for name, questions in given.items()]
        return _kept(stage, pools)

    def _augment(self, stage: Stage, source: Dimensions, draft: Pools) -> Pools:
        prompts = [
            self._messages(stage.name, source, dimension, questions=_listed(pool.seeds))
            for dimension, pool in zip(source.dimensions, draft.pools, strict=True)
        ]
        values = self._ask(stage, prompts, [pool.dimension for pool in draft.pools], Questions, holds_questions)
        pools = []
        for pool, value in zip(draft.pools, values, strict=True):
            known = {question.casefold() for question in pool.questions}
            new = [question for question in questions_of(value) if question.casefold() not in known]
            pools.append(pool.model_copy(update={"added": [*pool.added, *new]}))
        return _kept(stage, pools)

    def _filter(self, stage: Stage, source: Dimensions, draft: Pools) -> Pools:
        dimensions = zip(source.dimensions, draft.pools, strict=True)
        pairs = [(d, question) for d, pool in dimensions for question in pool.questions]
        prompts = [
            self.prompts["filter"].messages(
                task=source.task, dimension=d.name, definition=d.definition, candidate=question
            )
            for d, question in pairs
        ]
        replies = self._ask(
            stage, prompts, [f"{d.name}, {question!r}" for d, question in pairs], FilterReply, temperature=0.0
        )
        passed = {
            (dimension.name, question)
            for (dimension, question), reply in zip(pairs, replies, strict=True)
            if reply.yes_is_better and reply.belongs
        }
        pools = [
            pool.model_copy(
                update={
                    name: [question for question in getattr(pool, name) if (pool.dimension, question) in passed]
                    for name in ("seeds", "added")
                }
            )
            for pool in draft.pools
        ]
        empty = [pool.dimension for pool in pools if not pool.questions]
        if empty:
            why = "None of its questions passed; widen its definition or set filtering=False."
            raise self._error(stage, f"{empty[0]}: {why}", empty, len(pools))
        return _kept(stage, pools)

    def _deduplicate(self, stage: Stage, source: Dimensions, draft: Pools) -> Pools:
        assert self.deduplicator is not None
        pools = []
        for pool in draft.pools:
            # One dimension at a time, because a question may belong to two dimensions and then counts in both.
            refined = self.deduplicator.refine(self._checklist(pool.items))
            pools.append(Pool(dimension=pool.dimension, added=[item.question for item in refined.items]))
        stage.asked = draft.total
        return _kept(stage, pools)

    def _messages(self, stage: str, source: Dimensions, dimension: Dimension, **fields: str) -> Messages:
        parts = dimension.sub_dimensions
        return self.prompts[stage].messages(
            task=source.task,
            dimension=dimension.name,
            definition=dimension.definition,
            sub_dimensions=_listed(parts) if parts else None,
            count=COUNTS[stage] * max(1, len(parts)),
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
    check_questions(questions, f"dimension {dimension.name!r}: the seed")
    return distinct(questions)


def _kept(stage: Stage, pools: list[Pool]) -> Pools:
    found = Pools(pools=pools)
    stage.kept = found.total
    return found


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(text.split())}" for text in texts)
