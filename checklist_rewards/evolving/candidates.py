"""From proposals to candidates: items that are new, and that the refiners keep.

A candidate is not admitted yet: it counts if the judge's answers to it differ within the group (`buffer.py`).

The completions of a call are grouped by prompt, read again, and scored anew while the buffer is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from checklist_rewards.backends.embedding import near_duplicates, similarities
from checklist_rewards.checklists import EVOLVING_CATEGORY, Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.evolving.buffer import PromptItems
from checklist_rewards.evolving.proposer import Group, Proposer, new_items
from checklist_rewards.images import shown
from checklist_rewards.keys import content_key
from checklist_rewards.refiners.base import Refiner, refine_all
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.rewards.batch import Call
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import ItemScore, Score, rescore

Lines = dict[str, ItemScore]
"""Answers by item id."""
Credits = dict[str, float | None]
"""Credits in [0, 1] by item id; None if unanswered."""
Changes = dict[str, tuple[PromptItems, PromptItems]]
"""The items of each prompt before and after an update."""
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """The prompt of a completion."""

    key: str
    """Equal for the completions of one prompt and checklist, on all ranks."""
    base: Checklist
    """The checklist of the dataset: the persistent items."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What other ranks get of a completion."""

    row: Row
    sample: Sample
    score: float | None
    group: str
    """The group of the trainer; the same for all completions of a prompt if it is not known."""


def rows_of(call: Call, name: str) -> list[Row | None] | None:
    """The rows of a call, None for one without a checklist; None if the column of checklists cannot be used."""
    column = call.columns.get(name)
    if isinstance(column, str | Mapping) or not isinstance(column, Sequence) or len(column) != len(call.prompts):
        return None
    try:
        checklists = [None if value is None else Checklist.parse(value) for value in column]
    except ChecklistError:
        return None
    return [
        None if base is None else Row(content_key([prompt, base.id])[:_DIGITS], base)
        for prompt, base in zip(call.identities, checklists, strict=True)
    ]


def shown_to_ranks(call: Call, rows: Sequence[Row | None]) -> list[Shown]:
    """The completions of this rank that have a checklist."""
    return [
        Shown(row, replace(sample, checklist=None), None if score is None else score.primary_score, group)
        for row, sample, score, group in zip(rows, call.samples, call.scores, groups_by(call, rows), strict=True)
        if row is not None and sample is not None
    ]


def groups_by(call: Call, rows: Sequence[Row | None]) -> Sequence[str]:
    """The groups of the trainer; by prompt if they are not known."""
    return call.groups or ["" if row is None else row.key for row in rows]


def check_groups(everyone: Sequence[Shown], name: str) -> None:
    """Refuse groups whose completions have different prompts or checklists: items are kept by prompt."""
    key_of: dict[str, str] = {}
    for one in everyone:
        if key_of.setdefault(one.group, one.row.key) != one.row.key:
            raise SampleError(
                f"{name}: checklists cannot evolve where completions of one group have different prompts or "
                "checklists, as environments may give them in reset(); let reset() return the same text for all "
                "completions of a row, or omit the evolving checklists."
            )


def group_of(some: Sequence[Shown], had: PromptItems) -> Group:
    """The completions of one prompt, for a proposer."""
    sample = some[0].sample
    return Group(
        sample.input,
        sample.history,
        sample.reference,
        tuple(shown(one.sample.target) for one in some),
        tuple(one.score for one in some),
        had.persistent,
        tuple(one.item for one in had.active),
    )


def read_candidates(
    scorer: ChecklistScorer,
    retries: int,
    call: Call,
    rows: Sequence[Row | None],
    proposed: Mapping[str, Sequence[ChecklistItem]],
) -> dict[int, Lines]:
    """The judge's answers to the candidates, by the place of the completion in the call."""
    chosen = {
        place: replace(sample, checklist=Checklist(items=tuple(proposed[row.key])))
        for place, (row, sample) in enumerate(zip(rows, call.samples, strict=True))
        if row is not None and sample is not None and proposed.get(row.key)
    }
    scores = scorer.score_batch(list(chosen.values()), retries=retries) if chosen else []
    return {place: {line.id: line for line in score.items} for place, score in zip(chosen, scores, strict=True)}


def credits_of(score: Score | None, read: Lines) -> Credits:
    """The credits of all items about one completion. Soft, unless the metric counts passed items."""
    if score is None:
        return {}
    soft = score.primary_metric != "pass"
    return {line.id: line.credit(soft) for line in (*score.items, *read.values())}


def rescored(
    call: Call,
    rows: Sequence[Row | None],
    read: Mapping[int, Lines],
    changes: Changes,
    prepared: Callable[[Checklist], Checklist],
) -> Call:
    """The call under the new checklists. Nothing is read again."""
    samples, scores = list(call.samples), list(call.scores)
    for place, (row, sample, score) in enumerate(zip(rows, call.samples, call.scores, strict=True)):
        if row is None or sample is None or score is None or row.key not in changes:
            continue
        before, after = changes[row.key]
        if before.items == after.items or score.aggregation is None:
            continue
        checklist = prepared(after.checklist(row.base))
        lines = [*score.items, *read.get(place, {}).values()]
        known = Score.of(lines, score.aggregation, score.quality)
        samples[place] = replace(sample, checklist=checklist)
        scores[place] = rescore(checklist, known)
    return replace(call, samples=samples, scores=scores)


MOST_CANDIDATES = 8
"""Most candidates of a group; each is read about every completion of it."""


def candidates_for(
    groups: Mapping[str, Group],
    known: Mapping[str, Sequence[ChecklistItem]],
    proposer: Proposer,
    refiners: Sequence[Refiner],
) -> tuple[dict[str, list[ChecklistItem]], list[str]]:
    """Ask the proposer about groups, by the key of their prompt, and refine its proposals.

    `known` has the items that each prompt has or had. The refiners see the new items of a group and, as samples, its
    responses. An error that the proposer or a refiner raises for all groups is not caught.

    Returns:
        The candidates by key, and one sentence per proposal that failed.
    """
    proposals = proposer(list(groups.values()))
    if len(proposals) != len(groups):
        raise SampleError(f"the proposer returned {len(proposals)} proposals for {len(groups)} groups.")
    lists: dict[str, Checklist] = {}
    failures: list[str] = []
    for (key, group), proposal in zip(groups.items(), proposals, strict=True):
        try:
            items = [
                item.model_copy(update={"required": False, "category": EVOLVING_CATEGORY})
                for item in new_items(proposal, known[key])
            ]
            items = _not_near(items, known[key], refiners)[:MOST_CANDIDATES]
        except (ChecklistError, GenerationError) as error:
            failures.append(f"prompt {group.input and shown(group.input)!r:.80}: {error}")
            continue
        if items:
            lists[key] = Checklist(items=tuple(items))
    for refiner in refiners:
        samples = [
            [Sample(checklist, text, group.input, group.reference, group.history) for text in group.responses]
            for group, checklist in ((groups[key], checklist) for key, checklist in lists.items())
        ]
        refined = refine_all(refiner, list(lists.values()), samples) if lists else []
        lists = {key: one for key, one in zip(lists, refined, strict=True) if isinstance(one, Checklist)}
    return {key: list(checklist.items) for key, checklist in lists.items()}, failures


def _not_near(
    items: list[ChecklistItem], known: Sequence[ChecklistItem], refiners: Sequence[Refiner]
) -> list[ChecklistItem]:
    """The items that ask nothing that a known item asks, by the measure of the deduplicator, if there is one. It sees
    only new items itself, because it might merge one with a persistent item."""
    deduplicator = next((refiner for refiner in refiners if isinstance(refiner, Deduplicator)), None)
    if deduplicator is None or not items or not known:
        return items
    both = [*known, *items]
    near = near_duplicates(both, similarities(deduplicator.embedder, both), deduplicator.threshold)
    return [item for place, item in enumerate(items, start=len(known)) if not near[place, : len(known)].any()]
