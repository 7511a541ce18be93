"""New weights for the items of checklists, by item, question or category.

A file of weights is a JSON or YAML mapping of names to numbers, or what `checklist-rewards fit` writes, which has such
a mapping under `weights`. Scorers, rewards, pipelines and `replay` apply it to every checklist before it is scored.
Weights change no answer, so nothing is read again.

    >>> weights = Weights({"Is it short?": 3, "style": 0.5})
    >>> [item.weight for item in weights.of(Checklist.parse(["Is it short?", "Is it true?"])).items]
    [3.0, 1.0]
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.documents import read_text, read_value

logger = logging.getLogger(__name__)


class Weights:
    """New weights of items.

    The name of a category sets the mean absolute weight of its items in a checklist: their signs and their ratios
    stay. Weights can therefore be applied twice without a change.

    Args:
        weights (mapping of `str` to `float`):
            By item id, question or category. An id has precedence over a question, and a question over a category.
            The weight of an item replaces its weight and its sign; that of a category must not be negative.

    Raises:
        SampleError: If a weight is not a number.
    """

    def __init__(self, weights: Mapping[str, float]):
        for name, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise SampleError(f"the weight of {name!r:.60} is {weight!r:.60}; it must be a number.")
        self.weights = weights
        self.unused = set(weights)
        """Names that no item has had so far."""

    @classmethod
    def load(cls, given: str | Path | Mapping[str, float] | Weights) -> Weights:
        """Weights from a file, a mapping, or as they are. Raises [`SampleError`] or [`ConfigError`]."""
        if isinstance(given, Weights):
            return given
        where, value = (
            ("weights", given) if isinstance(given, Mapping) else (given, read_value(read_text(given), given))
        )
        if isinstance(value, Mapping) and isinstance(value.get("weights"), Mapping):
            value = value["weights"]
        if not isinstance(value, Mapping) or not value:
            raise SampleError(f"{where} must map item ids, questions or categories to weights, got {value!r:.60}.")
        try:
            return cls({str(name): weight for name, weight in value.items()})
        except SampleError as error:
            raise SampleError(f"{where}: {error}") from None

    def of(self, checklist: Checklist, where: str = "checklist") -> Checklist:
        """The checklist with the new weights. Raises [`ChecklistError`] if no item has a weight other than 0."""
        named = [self._name(item) for item in checklist.items]
        means = {
            name: fmean(abs(item.weight) for item, its in zip(checklist.items, named, strict=True) if its == name)
            for name in named
            if name is not None
        }
        items = [
            item.model_dump()
            if name is None
            else item.model_dump() | {"weight": self._weight(item, name, means[name])}
            for item, name in zip(checklist.items, named, strict=True)
        ]
        return Checklist.parse({"items": items, "source": checklist.source, "model": checklist.model}, where)

    def check_used(self, where: object) -> None:
        """Warn of names that no item of `where` has, whose checklists have been seen.

        Raises:
            SampleError: If no name is that of an item, so that the weights change nothing.
        """
        if not self.unused:
            return
        more = f" and {len(self.unused) - 1} more" if len(self.unused) > 1 else ""
        said = f"--weights: no item of {where} has the id, question or category {min(self.unused)!r:.60}{more}"
        if len(self.unused) == len(self.weights):
            raise SampleError(f"{said}; correct the names.")
        logger.warning("%s.", said)

    def _name(self, item: ChecklistItem) -> str | None:
        name = next((name for name in (item.id, item.question, item.category) if name in self.weights), None)
        self.unused.discard(name or "")
        return name

    def _weight(self, item: ChecklistItem, name: str, mean: float) -> float:
        weight = self.weights[name]
        if name in (item.id, item.question):
            return weight
        if weight < 0:
            raise SampleError(f"the weight of the category {name!r:.60} is {weight:g}; it must be 0 or above.")
        return item.weight * (weight / mean) if mean else weight
