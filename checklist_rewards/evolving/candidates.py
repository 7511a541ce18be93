"""From proposals to candidates: items that are new, and that the refiners keep.

A candidate is not admitted yet: it counts if the judge's answers to it differ within the group (`buffer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.evolving.buffer import EVOLVING_CATEGORY
from checklist_rewards.evolving.proposer import Group, Proposal, Proposer
from checklist_rewards.refiners.base import Refiner, refine_all
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.refiners.embedding import near_duplicates, similarities
from checklist_rewards.scorer import Sample

MOST_CANDIDATES = 8
"""Most candidates of a group; each is read about every completion of it."""


def candidates_for(
    groups: Mapping[str, Group],
    known: Mapping[str, Sequence[ChecklistItem]],
    proposer: Proposer,
    refiners: Sequence[Refiner],
) -> tuple[dict[str, list[ChecklistItem]], list[str]]:
    """Ask the proposer about groups, and refine its proposals.

    Args:
        groups (mapping from `str` to [`Group`]):
            The groups, by the key of their prompt.
        known (mapping from `str` to sequence of [`ChecklistItem`]):
            The items that each prompt has or had.
        proposer (callable):
            Called once, with all groups.
        refiners (sequence of [`Refiner`]):
            Applied in order. They see the new items of a group and, as samples, its responses.

    Returns:
        The candidates by key, and one sentence per proposal that failed.

    Raises:
        Exception: Whatever the proposer or a refiner raises for all groups.
    """
    proposals = proposer(list(groups.values()))
    if len(proposals) != len(groups):
        raise SampleError(f"the proposer returned {len(proposals)} proposals for {len(groups)} groups.")
    lists: dict[str, Checklist] = {}
    failures: list[str] = []
    for (key, group), proposal in zip(groups.items(), proposals, strict=True):
        try:
            items = _new(proposal, known[key])
            items = _not_near(items, known[key], refiners)[:MOST_CANDIDATES]
        except (ChecklistError, GenerationError) as error:
            failures.append(f"prompt {group.input!r:.80}: {error}")
            continue
        if items:
            lists[key] = Checklist(items=tuple(items))
    for refiner in refiners:
        samples = [_samples(groups[key], checklist) for key, checklist in lists.items()]
        refined = refine_all(refiner, list(lists.values()), samples) if lists else []
        lists = {key: one for key, one in zip(lists, refined, strict=True) if isinstance(one, Checklist)}
    return {key: list(checklist.items) for key, checklist in lists.items()}, failures


def _new(proposal: Proposal, known: Sequence[ChecklistItem]) -> list[ChecklistItem]:
    """The items of a proposal that are not known, not required, and have a weight."""
    if isinstance(proposal, GenerationError):
        raise proposal
    if proposal is None or (not isinstance(proposal, Checklist) and not len(proposal)):
        return []
    ids = {item.id for item in known}
    asked = {item.question.casefold() for item in known}
    items = []
    for item in Checklist.parse(proposal, "the proposal").items:
        question = item.question.casefold()
        if item.weight and item.id not in ids and question not in asked:
            asked.add(question)
            items.append(item.model_copy(update={"required": False, "category": EVOLVING_CATEGORY}))
    return items


def _not_near(
    items: list[ChecklistItem], known: Sequence[ChecklistItem], refiners: Sequence[Refiner]
) -> list[ChecklistItem]:
    """The items that ask nothing that a known item asks, by the measure of the deduplicator, if there is one.

    The deduplicator itself sees only new items: it might merge a new item with a persistent one.
    """
    deduplicator = next((refiner for refiner in refiners if isinstance(refiner, Deduplicator)), None)
    if deduplicator is None or not items or not known:
        return items
    both = [*known, *items]
    near = near_duplicates(both, similarities(deduplicator.embedder, both), deduplicator.threshold)
    return [item for place, item in enumerate(items, start=len(known)) if not near[place, : len(known)].any()]


def _samples(group: Group, checklist: Checklist) -> list[Sample]:
    return [Sample(checklist, text, group.input, group.reference, group.history) for text in group.responses]
