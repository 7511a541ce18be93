"""The buffer of a checklist that evolves: the persistent, active and inactive items of each prompt.

*Persistent* items come with the dataset and never change. *Active* items were proposed during training and count in
the reward. *Inactive* items were active before; they do not count, and are remembered so that they do not come back. A
proposed item that the buffer does not admit is not remembered: it may tell later completions apart.

[`PromptItems.updated`] computes the items of a prompt from the deviations of its items in a group of completions. The
rules are those of DR Tulu (arXiv:2511.19399): an item whose credits in the group have no deviation retires, and at
most `max_active` items stay, those with the largest deviation.

The file of a buffer is JSONL: a first line with the format, then one line per prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import pstdev
from typing import Any

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_text

FORMAT = "checklist-rewards-buffer-1"


def write_buffer(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a buffer. The file is replaced at once."""
    lines = [{"format": FORMAT, "calls": state["calls"]}, *state["prompts"]]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_buffer(path: Path) -> dict[str, Any]:
    """The state in the file of a buffer. Raises [`SampleError`] if it is not one."""
    try:
        first, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if first["format"] != FORMAT:
            raise ValueError(f"the format is {first['format']!r}; this version reads {FORMAT!r}")
        return {"calls": first["calls"], "prompts": lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SampleError(f"{path}: not the file of a checklist buffer ({error}).") from error


MOST_INACTIVE = 50
"""Inactive items that are remembered per prompt."""


def deviation(credits: Sequence[float | None]) -> float | None:
    """Population standard deviation of the credits of one item in a group; None with fewer than two answers."""
    known = [credit for credit in credits if credit is not None]
    return pstdev(known) if len(known) > 1 else None


@dataclass(frozen=True, slots=True)
class ActiveItem:
    """An item that counts, with its last known standard deviation in a group, in [0, 0.5]."""

    item: ChecklistItem
    deviation: float


@dataclass(frozen=True, slots=True)
class PromptItems:
    """The items of one prompt."""

    persistent: tuple[ChecklistItem, ...]
    active: tuple[ActiveItem, ...] = ()
    inactive: tuple[ChecklistItem, ...] = ()
    proposed: int | None = None
    """Number of the call, from 1, at which items were last proposed."""

    @property
    def items(self) -> tuple[ChecklistItem, ...]:
        """The items that count: persistent, then active ones in the order of their admission."""
        return (*self.persistent, *(one.item for one in self.active))

    @property
    def known(self) -> tuple[ChecklistItem, ...]:
        """All items, also inactive ones."""
        return (*self.items, *self.inactive)

    def checklist(self, base: Checklist) -> Checklist:
        """The checklist of the dataset with the active items."""
        return base.model_copy(update={"items": (*base.items, *(one.item for one in self.active))})

    def updated(
        self,
        deviations: Mapping[str, float | None],
        candidates: Iterable[ChecklistItem] = (),
        *,
        max_active: int,
        min_deviation: float,
        call: int | None = None,
    ) -> PromptItems:
        """The items after a group of completions was read.

        Args:
            deviations (mapping from `str` to `float` or `None`):
                Standard deviation of the credits of active items and candidates in the group, by item id. None: not
                measured. An active item then keeps its last deviation; a candidate is not admitted.
            candidates (iterable of [`ChecklistItem`], *optional*):
                Proposed items. Items that the buffer has are ignored.
            max_active (`int`), min_deviation (`float`):
                As in [`EvolvingConfig`]; of items with an equal deviation, the older stay.
            call (`int`, *optional*):
                Number of the call, if items were proposed.
        """
        had = {item.id for item in self.known}
        measured = [
            one if (spread := deviations.get(one.item.id)) is None else ActiveItem(one.item, spread)
            for one in self.active
        ]
        for item in candidates:
            spread = deviations.get(item.id)
            if item.id not in had and spread is not None:
                had.add(item.id)
                measured.append(ActiveItem(item, spread))
        good = [one for one in measured if one.deviation > min_deviation]
        best = sorted(range(len(good)), key=lambda place: -good[place].deviation)[:max_active]
        active = tuple(good[place] for place in sorted(best))
        stays = {one.item.id for one in active}
        retired = tuple(one.item for one in self.active if one.item.id not in stays)
        inactive = (*self.inactive, *retired)[-MOST_INACTIVE:]
        return PromptItems(self.persistent, active, inactive, self.proposed if call is None else call)

    def record(self, key: str) -> dict[str, Any]:
        """The items as JSON-compatible values."""
        return {
            "key": key,
            "checklist_hash": Checklist(items=self.items).id,
            "proposed": self.proposed,
            "persistent": [_fields(item) for item in self.persistent],
            "active": [{**_fields(one.item), "deviation": one.deviation} for one in self.active],
            "inactive": [_fields(item) for item in self.inactive],
        }


def items_from(record: Mapping[str, Any]) -> PromptItems:
    """The items of a record. Raises `KeyError`, `TypeError` or `ValueError` if it is not one."""
    active = [dict(fields) for fields in record["active"]]
    return PromptItems(
        tuple(ChecklistItem.model_validate(fields) for fields in record["persistent"]),
        tuple(ActiveItem(deviation=float(one.pop("deviation")), item=ChecklistItem(**one)) for one in active),
        tuple(ChecklistItem.model_validate(fields) for fields in record["inactive"]),
        None if record["proposed"] is None else int(record["proposed"]),
    )


class ChecklistBuffer:
    """The items of all prompts for which items were proposed; `max_active` and `min_deviation` as in
    [`EvolvingConfig`]."""

    def __init__(self, max_active: int = 5, min_deviation: float = 0.01):
        self.max_active, self.min_deviation = max_active, min_deviation
        self.calls = 0
        """Calls of the reward in training."""
        self._records: dict[str, dict[str, Any]] = {}

    def get(self, key: str, base: Checklist) -> PromptItems:
        """The items of a prompt, whose checklist in the dataset is `base`."""
        record = self._records.get(key)
        return PromptItems(base.items) if record is None else items_from(record)

    def checklist(self, key: str, base: Checklist) -> Checklist:
        """The checklist of a prompt: `base` with its active items."""
        return self.get(key, base).checklist(base) if key in self._records else base

    def update(
        self,
        key: str,
        base: Checklist,
        deviations: Mapping[str, float | None],
        candidates: Iterable[ChecklistItem] = (),
        proposed: bool = False,
    ) -> tuple[PromptItems, PromptItems]:
        """Update the items of a prompt by [`PromptItems.updated`]; returns the items before and after."""
        before = self.get(key, base)
        after = before.updated(
            deviations,
            candidates,
            max_active=self.max_active,
            min_deviation=self.min_deviation,
            call=self.calls if proposed else None,
        )
        if after != PromptItems(base.items):
            self._records[key] = after.record(key)
        return before, after

    @property
    def state(self) -> dict[str, Any]:
        """The state, as JSON-compatible values."""
        return {"calls": self.calls, "prompts": list(self._records.values())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Raises `KeyError`, `TypeError` or `ValueError` if it is not one."""
        records = {str(record["key"]): dict(record) for record in state["prompts"]}
        for record in records.values():
            items_from(record)
        self.calls, self._records = int(state["calls"]), records


def _fields(item: ChecklistItem) -> dict[str, Any]:
    return item.model_dump(mode="json", exclude_defaults=True)
