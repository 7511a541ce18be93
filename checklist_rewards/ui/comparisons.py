"""Agreement for the page, computed as by `agree`: a file against labels, two files, or two reward logs.

Labels are also those that the app has exported, for the report of the annotated file. Two reward logs are compared row
by row. If at least half of the completions of the smaller log are in the other one too (two judges scored the same
completions), rows with the same prompt and completion are compared. Otherwise (two runs) the n-th completion of a
prompt in a step of one log is compared with the n-th of the same prompt and step of the other: their texts differ, so
differences of single rows are chance, and those of items and of groups are what counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from checklist_rewards.checklists import YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import (
    Unit,
    compare,
    compare_judges,
    units_against_labels,
    units_of_judges,
    verdict,
    yes_no_curve,
)
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.calibration import Probabilities, labelled_reads
from checklist_rewards.evaluation.labels import Labels, pairs_of, same_text
from checklist_rewards.evaluation.measures import Categories
from checklist_rewards.evaluation.rates import corrected_rates
from checklist_rewards.evaluation.scored import ScoredFile, ScoredText, own_id
from checklist_rewards.files.rows import read_rows
from checklist_rewards.judges.calibration import YES_NO, kind_of, reliability
from checklist_rewards.judges.labels import on_unit_scale
from checklist_rewards.scores import DEFAULT_THRESHOLD
from checklist_rewards.ui.annotations import LABELS, name_of
from checklist_rewards.ui.project import Project
from checklist_rewards.ui.sections import Section, of_calibration, of_comparison, of_flips, of_rates
from checklist_rewards.ui.table import Column


def exported(project: Project, path: Path) -> Path | None:
    """The file of the labels that were exported for a file of the project, or else for another file of the same texts,
    if any: labels are of texts, not of a judge."""
    labels = project.path(name_of(path.relative_to(project.folder).as_posix()))
    if labels.is_file():
        return labels
    for file in project.files():
        labels = project.path(file.name)
        if file.name.startswith(f"{LABELS}/") and labels != path:
            stamps = tuple((one.stat().st_mtime_ns, one.stat().st_size) for one in (path, labels))
            if _same_texts(path, labels, stamps):
                return labels
    return None


@lru_cache(256)
def _same_texts(path: Path, labels: Path, stamps: object) -> bool:
    """Whether a labelled text is among the first texts of a file, by id and content. `stamps` are for the cache."""
    try:
        labelled = {own_id(row.data) or str(n): row.data for n, row in enumerate(read_rows(labels), start=1)}
        rows = islice(enumerate(read_rows(path), start=1), _COMPARED)
        named = ((own_id(row.data) or str(n), row.data) for n, row in rows)
        return any(same_text(data, labelled[name]) for name, data in named if name in labelled)
    except SampleError:
        return False


Match = Literal["completion", "step"]
_MATCHES: tuple[Match, ...] = ("completion", "step")
_HOW: dict[Match, str] = {
    "completion": "Rows with the same prompt and the same completion are compared.",
    "step": "The completions differ: the n-th completion of a prompt in a step is compared with the n-th of the other "
    "run. What differs between single rows is chance, so look at items and groups.",
}
_FLIPS: dict[Match, str] = {
    "completion": "How often the two answer differently. Click an item to see these rows.",
    "step": "How often the two runs get different answers. Click an item to see its rows.",
}
_LEVEL = 0.05
_COMPARED = 2000
"""Rows of a file that are looked for among the labelled texts."""
_SHARED = 0.5
"""Share of the smaller log that both must have for a comparison of completions."""


Keys = dict[Match, str]
"""What a row of one log must have in common with a row of the other."""


def read_log(file: ScoredFile) -> list[tuple[ScoredText, Keys]]:
    """The scored rows of the training run in a reward log. Raises [`SampleError`] if it has none, or items of unknown
    options."""
    seen: Counter[str] = Counter()
    rows = []
    for text, counts in file.counted():
        if text.score is None or not counts:
            continue
        _ = text.items  # raises for unknown options
        keys: Keys = {
            "completion": _hash(f"{text.prompt_key}\n{text.text}"),
            "step": _hash(f"{text.step}\n{text.prompt_key}"),
        }
        for match, key in keys.items():
            seen[key] += 1
            keys[match] = f"{key}#{seen[key]}"
        rows.append((replace(text, group=_hash(text.group), data={}), keys))
    if not rows:
        raise SampleError(f"{file.path} has no scored rows of training.")
    return rows


def between_logs(
    names: tuple[str, str],
    one: Sequence[tuple[ScoredText, Keys]],
    other: Sequence[tuple[ScoredText, Keys]],
    intervals: Bootstrap,
) -> dict[str, Any]:
    """The figures of [`between`], how the rows were matched, and the numbers of the matched rows.

    Raises:
        SampleError: If the logs have no row in common.
    """
    shared = {match: _matched(one, other, match) for match in _MATCHES}
    enough = len(shared["completion"]) >= _SHARED * min(len(one), len(other))
    how: Match = "completion" if enough or not shared["step"] else "step"
    pairs = shared[how]
    if not pairs:
        raise SampleError(
            f"{names[0]} and {names[1]} are not compared row by row: they have no completion of the same prompt, and "
            "no step with the same prompt, in common."
        )
    first, second = ([replace(text, id=keys[how]) for text, keys in log] for log in (one, other))
    columns = Column("l"), Column("l")
    for pair in pairs:
        for column, text in zip(columns, pair, strict=True):
            column.add(int(text.id))
    return {**between(names, first, second, intervals, how), "match": how, "how": _HOW[how], "pairs": columns}


def _matched(
    one: Sequence[tuple[ScoredText, Keys]], other: Sequence[tuple[ScoredText, Keys]], match: Match
) -> list[tuple[ScoredText, ScoredText]]:
    partners = {keys[match]: text for text, keys in other}
    return [(text, partners[keys[match]]) for text, keys in one if keys[match] in partners]


def _hash(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def against_labels(
    name: str,
    labels: Labels,
    texts: Sequence[ScoredText],
    unmatched: int,
    intervals: Bootstrap,
) -> dict[str, Any]:
    """The figures of `agree` for one file with labels, and of `calibrate` before calibration."""
    units, targets = units_against_labels(texts)
    compared = compare(
        (name, labels.key),
        units,
        targets,
        intervals,
        against_labels=True,
        ranked=not on_unit_scale([text.labels for text in texts]),
        unmatched_rows=unmatched,
    )
    comparison = compared.model_dump()
    note = "Click an item to see where people give another answer."
    return {
        "verdict": verdict(compared),
        "comparison": comparison,
        "reliability": [asdict(bin) for bin in reliability(*yes_no_curve(units))],
        "sections": {
            "items": of_flips(_per_item(units, against=True), "Items against labels", note, against=True),
            "rates": of_rates([rate.model_dump() for rate in corrected_rates(texts)]),
            "comparison": of_comparison(comparison),
            "calibration": _calibration(texts, intervals),
        },
    }


def between(
    names: tuple[str, str],
    one: Sequence[ScoredText],
    other: Sequence[ScoredText],
    intervals: Bootstrap,
    match: Match = "completion",
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
    people = _closer_to_people(names, one, other, intervals)
    comparison = compared.model_dump()
    return {
        **({} if people is None else {"people": people}),
        "verdict": verdict(compared),
        "comparison": comparison,
        "sections": {
            "items": of_flips(_per_item(units, against=False), "Items", _FLIPS[match], against=False),
            "comparison": of_comparison(comparison),
        },
    }


def _closer_to_people(
    names: tuple[str, str], one: Sequence[ScoredText], other: Sequence[ScoredText], intervals: Bootstrap
) -> str | None:
    """Which of two files agrees with people more often, by the tests of `agree`, as sentences; None without labels of
    items that both answered."""
    own, theirs = (
        units_against_labels([text for text in texts if text.labels is not None])[0] for texts in (one, other)
    )
    test = compare_judges(names, own, theirs, intervals) if own and theirs else None
    if test is None or not test.units or test.accuracy_difference is None:
        return None
    first, second = names
    p, sentence = test.permutation_p, "Neither is shown to agree with people more often"
    shown = "all are in one group; a test needs two"
    if p is not None:
        shown = f"{'p < 0.001' if p < 0.001 else f'p = {p:.3f}'}, permutation of groups"
        if p < _LEVEL:
            sentence = f"{first if test.accuracy_difference > 0 else second} agrees with people more often"
    return (
        f"{sentence}: on {test.units:,} labelled items that both answered, only {first} is right on "
        f"{test.only_one_right:,}, only {second} on {test.only_other_right:,} ({shown})."
    )


def _per_item(units: Sequence[Unit], against: bool) -> list[dict[str, Any]]:
    members: dict[str, list[Unit]] = {}
    for unit in units:
        members.setdefault(unit.key[1], []).append(unit)
    lines = []
    for id, units_of in members.items():
        own = [unit for unit in units_of if not unit.by_code] or units_of
        answered = [(u.one.label, u.other.label) for u in own if u.one is not None and u.other is not None]
        values = own[0].item.values
        positive = YES if against and YES in values else None
        categories = Categories([one for one, _ in answered], [other for _, other in answered], values, positive)
        flips = Counter((one, other) for one, other in answered if one != other)
        lines.append(
            {
                "id": id,
                "question": own[0].item.question,
                "penalty": own[0].item.weight < 0,
                "by_code": all(unit.by_code for unit in own),
                "answered": len(answered),
                "flips": [{"one": one, "other": other, "count": n} for (one, other), n in flips.most_common()],
                "flipped": sum(flips.values()),
                **categories.figures(),
            }
        )
    return sorted(lines, key=lambda line: -line["flipped"])


def _calibration(texts: Sequence[ScoredText], intervals: Bootstrap) -> list[Section] | str:
    """The figures of `calibrate`, or why they are missing."""
    try:
        labelled = labelled_reads(texts)
    except SampleError as error:
        return str(error)
    kinds: dict[str, list[Any]] = {}
    for read in labelled.reads:
        kinds.setdefault(kind_of(read.item), []).append(read)
    calibration: dict[str, Any] = {}
    for kind, reads in kinds.items():
        thresholds = [DEFAULT_THRESHOLD] * len(reads) if kind == YES_NO else None
        known = Probabilities([read.probabilities for read in reads], [read.label for read in reads], thresholds)
        found = intervals.figures(known, [read.group for read in reads])
        figures = {name: figure.model_dump() for name, figure in found.items()}
        calibration[kind] = {"reads": len(reads), "figures": figures}
    return of_calibration(calibration)
