"""Agreement for the page: a file against labels, and two files against each other, computed as by `agree`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from checklist_rewards.checklists import YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import (
    Answer,
    Bootstrap,
    Categories,
    JudgedRow,
    Unit,
    compare,
    pairs_of,
    units_against_labels,
    units_of_judges,
)
from checklist_rewards.evaluation.calibration import Probabilities, labelled_reads
from checklist_rewards.judges.calibration import YES_NO, kind_of, reliability
from checklist_rewards.scores import DEFAULT_THRESHOLD
from checklist_rewards.ui.figures import dumped

Given = Sequence[list[Answer | None] | float | None]


class Labels(Protocol):
    """Where the labels of scored rows are: the options of `agree`."""

    @property
    def shown(self) -> str:
        """The name of the labels."""
        ...

    def read(self, path: Any) -> list[JudgedRow]:
        """The rows of a scored file."""
        ...

    def of(self, rows: Sequence[JudgedRow]) -> tuple[Any, int]:
        """The labels of every row, and the number of labelled rows that were not scored."""
        ...


def against_labels(
    name: str, shown: str, rows: Sequence[JudgedRow], given: Given, unmatched: int, intervals: Bootstrap
) -> dict[str, Any]:
    """The figures of `agree` for one file with labels, and of `calibrate` before calibration."""
    units, targets = units_against_labels(rows, given)
    # Labels of whole targets on another scale than [0, 1] need agree's --label-range.
    targets = [target for target in targets if not target.given or target.other is None or 0 <= target.other <= 1]
    compared = compare((name, shown), units, targets, intervals, against_labels=True, unmatched_rows=unmatched)
    read = [
        (unit.one.soft, float(unit.other.label == YES))
        for unit in units
        if unit.one is not None and unit.other is not None and unit.item.options is None and unit.one.probabilities
    ]
    known = [(p, truth) for p, truth in read if p is not None]
    return {
        "comparison": compared.model_dump(),
        "items": _per_item(units, against=True),
        "reliability": [asdict(bin) for bin in reliability([p for p, _ in known], [truth for _, truth in known])],
        "calibration": _calibration(rows, given, intervals),
    }


def between(
    names: tuple[str, str], one: Sequence[JudgedRow], other: Sequence[JudgedRow], intervals: Bootstrap
) -> dict[str, Any]:
    """The figures of `agree` for two files, and the flips of every item."""
    pairs, unmatched_rows = pairs_of(one, other, names)
    units, targets, unmatched_items = units_of_judges(pairs)
    compared = compare(
        names,
        units,
        targets,
        intervals,
        against_labels=False,
        unmatched_rows=unmatched_rows,
        unmatched_items=unmatched_items,
    )
    return {"comparison": compared.model_dump(), "items": _per_item(units, against=False)}


def _per_item(units: Sequence[Unit], against: bool) -> list[dict[str, Any]]:
    members: dict[str, list[Unit]] = {}
    for unit in units:
        members.setdefault(unit.key[1], []).append(unit)
    lines = []
    for id, own in members.items():
        answered = [(u.one.label, u.other.label) for u in own if u.one is not None and u.other is not None]
        values = own[0].item.values
        positive = YES if against and YES in values else None
        categories = Categories([one for one, _ in answered], [other for _, other in answered], values, positive)
        flips = Counter((one, other) for one, other in answered if one != other)
        lines.append(
            {
                "id": id,
                "question": own[0].item.question,
                "units": len(own),
                "answered": len(answered),
                "flips": [{"one": one, "other": other, "count": n} for (one, other), n in flips.most_common()],
                "flipped": sum(flips.values()),
                **categories.figures(),
            }
        )
    return sorted(lines, key=lambda line: -line["flipped"])


def _calibration(rows: Sequence[JudgedRow], given: Given, intervals: Bootstrap) -> dict[str, Any] | str:
    try:
        labelled = labelled_reads(rows, given)
    except SampleError as error:
        return str(error)
    kinds: dict[str, list[Any]] = {}
    for read in labelled.reads:
        kinds.setdefault(kind_of(read.item), []).append(read)
    return {
        kind: {
            "reads": len(reads),
            "figures": dumped(
                intervals.figures(
                    Probabilities(
                        [read.probabilities for read in reads],
                        [read.label for read in reads],
                        [DEFAULT_THRESHOLD] * len(reads) if kind == YES_NO else None,
                    ),
                    [read.group for read in reads],
                )
            ),
        }
        for kind, reads in kinds.items()
    }
