"""The selector: the few items that say most, by beam search and without a call.

A selection S of k items is worth

    alpha * coverage(S) + (1 - alpha) * diversity(S) * k / room - size_penalty * k

- `diversity` is 1 - the mean cosine of all pairs of questions in S; a negative cosine counts as 0. It counts by the
  share of the `room` (`max_items`, or all items if they are fewer) that S fills: a bare mean is highest for the two
  questions farthest apart and would speak against every third one.
- `coverage` is the share of the observations behind the checklist (`ChecklistItem.sources`) that stand behind S. An
  item speaks for the observations of its near-duplicates, too, and one without sources counts as an observation of its
  own.

An item whose near-duplicate is in S is no candidate. The search begins with every item (with all required ones, where
there are any: a gate is never left out) and grows the `beam_width` best selections of each size by one item. The best
of *all* sizes wins, so the penalty decides how many items there are: a selection of k + 1 wins over one of k only if
it is worth more by `size_penalty`. Ties go to fewer, then to earlier items; nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.refiners.base import Note, Outcome, ReportingRefiner, share, whole_number
from checklist_rewards.refiners.embedding import (
    Embedder,
    check_embedder,
    choose_embedder,
    near_duplicates,
    similarities_of,
)
from checklist_rewards.scorer import Sample

DEFAULT_SIZE_PENALTY = 0.002


@dataclass(frozen=True, slots=True)
class _Selection:
    indices: tuple[int, ...]
    """Ascending."""
    covered: int
    """Bit set of observations."""
    blocked: int
    """Bit set of items that are in, or have a near-duplicate in."""
    cosines: float
    """Sum over pairs."""
    worth: float
    """Without the size penalty, which is the same for all selections of a size."""

    @property
    def rank(self) -> tuple[float, tuple[int, ...]]:
        return -self.worth, self.indices


class Selector(ReportingRefiner):
    """Chooses at most `max_items` items.

    Args:
        max_items (`int`, *optional*, defaults to `20`): most items (more only if more are required).
        beam_width (`int`, *optional*, defaults to `5`): selections of each size that are grown.
        size_penalty (`float`, *optional*, defaults to `0.002`): what a further item must add at least; without it,
            a selection is worth 1 at most.
        alpha (`float`, *optional*, defaults to `0.5`): weight of coverage against diversity, from 0 to 1.
        embedder (`str` or [`Embedder`], *optional*): a sentence-transformers model, or a callable from texts to
            vectors. Defaults to the packaged MiniLM.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used.
    """

    name = "selector"

    def __init__(
        self,
        max_items: int = 20,
        *,
        beam_width: int = 5,
        size_penalty: float = DEFAULT_SIZE_PENALTY,
        alpha: float = 0.5,
        embedder: str | Embedder | None = None,
    ):
        whole_number("max_items", max_items)
        whole_number("beam_width", beam_width)
        share("alpha", alpha)
        number = isinstance(size_penalty, int | float) and not isinstance(size_penalty, bool)
        if not number or not 0 <= size_penalty < float("inf"):
            raise SampleError(f"size_penalty={size_penalty!r} is not allowed; it is a number from 0 up.")
        self.max_items, self.beam_width = max_items, beam_width
        self.size_penalty, self.alpha = size_penalty, alpha
        self.embedder = choose_embedder(embedder)

    def check(self) -> None:
        """Refuse an embedder that is not there. Raises [`ModelError`]."""
        check_embedder(self.embedder)

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Outcome]:
        cosines = similarities_of(self.embedder, [checklist.items for checklist in checklists])
        return [self._outcome(c.items, of_items) for c, of_items in zip(checklists, cosines, strict=True)]

    def _outcome(self, items: Sequence[ChecklistItem], cosines: np.ndarray) -> Outcome:
        near = near_duplicates(items, cosines)
        chosen = self._search(items, cosines, near)
        kept = [items[index] for index in chosen]
        dropped = [
            Note(item, _reason(index, chosen, near, items)) for index, item in enumerate(items) if index not in chosen
        ]
        return Outcome(kept, dropped)

    def _search(self, items: Sequence[ChecklistItem], cosines: np.ndarray, near: np.ndarray) -> tuple[int, ...]:
        blocks = [_bits(row) for row in near]
        covers, observations = _covers(items, near)
        room = min(self.max_items, len(items))
        cosines = np.maximum(cosines, 0.0)

        def grown(selection: _Selection, index: int, added: float) -> _Selection:
            indices = tuple(sorted((*selection.indices, index)))
            covered = selection.covered | covers[index]
            pairs = len(indices) * (len(indices) - 1) // 2
            total = selection.cosines + added
            diversity = (1.0 - total / pairs if pairs else 1.0) * len(indices) / room
            coverage = covered.bit_count() / observations
            # Rounded, because the sum of the same cosines depends on the order in which they came.
            worth = round(self.alpha * coverage + (1 - self.alpha) * diversity, 9)
            return _Selection(indices, covered, selection.blocked | blocks[index], total, worth)

        nothing = _Selection((), 0, 0, 0.0, 0.0)
        start = nothing
        for index, item in enumerate(items):
            if item.required:
                start = grown(start, index, float(cosines[index, list(start.indices)].sum()))
        beam = [start] if start.indices else [grown(nothing, index, 0.0) for index in range(len(items))]
        best = min(beam, key=lambda selection: selection.rank)
        for size in range(len(beam[0].indices) + 1, self.max_items + 1):
            found: dict[tuple[int, ...], _Selection] = {}
            for selection in beam:
                added = cosines[:, list(selection.indices)].sum(axis=1)
                for index in range(len(items)):
                    if not selection.blocked >> index & 1:
                        longer = grown(selection, index, float(added[index]))
                        found.setdefault(longer.indices, longer)
            if not found:
                break
            beam = sorted(found.values(), key=lambda selection: selection.rank)[: self.beam_width]
            if beam[0].worth - self.size_penalty * size > best.worth - self.size_penalty * len(best.indices):
                best = beam[0]
        return best.indices


def _covers(items: Sequence[ChecklistItem], near: np.ndarray) -> tuple[list[int], int]:
    """Per item the observations that it speaks for, as a bit set (its own and those of its near-duplicates), and how
    many observations there are."""
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


def _reason(index: int, chosen: Sequence[int], near: np.ndarray, items: Sequence[ChecklistItem]) -> str:
    twin = next((other for other in chosen if near[index, other]), None)
    if twin is not None:
        return f"it repeats {items[twin].question!r}"
    return f"it adds too little to the {len(chosen)} that were selected"
