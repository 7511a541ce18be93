"""Rows in columns, as the page reads them: one JSON document with every distinct text once.

A [`Table`] has the rows of one file. Its *cells* are the reads of all rows in order: row r has `counts[r]` cells. The
cells of a row without an answer have the reason "no_answer", and neither pass nor fail.
Numbers are stored in arrays, NaN where there is none (null in JSON). In JSON, a column whose values are all equal is
written as `{"all": value}`, so that a column that a file does not use costs nothing. Texts, and the names of items,
answers and judges, are written as an index into a list; -1 is none.

Details that few cells have (probabilities of options, votes, details of a failure) are in `more`, by number of the
cell. Of a scored file, a table also has the other columns, up to 20, as short texts.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checklist_rewards.checklists import NO, YES
from checklist_rewards.evaluation.scored import CHECKLIST, ID, ScoredText
from checklist_rewards.files.cells import decoded
from checklist_rewards.files.rows import SCORE_COLUMN
from checklist_rewards.monitor.text import words
from checklist_rewards.rewards.shaping import centred
from checklist_rewards.rows import image_column
from checklist_rewards.scores import Score, item_keys
from checklist_rewards.ui.annotations import Spans, marked, quoted
from checklist_rewards.ui.thumbnails import Thumbnails
from checklist_rewards.validation import is_finite

_CHUNK = 8192
_MOST_OTHERS, _LONGEST = 20, 300
"""Other columns that are kept, and letters of a value."""
METRICS = (
    *("pass_rate", "weighted_score", "expected_score", "normalized_score", "raw_score", "quality"),
    *("answered_weight", "lower", "upper"),
)
"""The aggregates of a score that the page shows together with its primary score."""


def number_or_none(value: Any) -> float | None:
    """A finite number; None for everything else."""
    return float(value) if is_finite(value) else None


class Names(dict[str, int]):
    """Distinct strings with their places, in order."""

    def place(self, name: str | None) -> int:
        """The place of a string, which is added if it is new; -1 for None."""
        return -1 if name is None else self.setdefault(name, len(self))


class Column(array):
    """A column of numbers: `Column("d")` of floats, `Column("l")` of integers."""

    def add(self, value: float | None) -> None:
        """Append a number; None is NaN."""
        self.append(math.nan if value is None else value)


def json_chunks(value: Any) -> Iterator[str]:
    """A value with [`Column`]s and [`Names`] in it as pieces of one JSON text. NaN and infinities become null."""
    if isinstance(value, Column):
        yield from _column(value)
    elif isinstance(value, Names):
        yield from _list(list(value))
    elif isinstance(value, Mapping):
        yield "{"
        for place, (name, entry) in enumerate(value.items()):
            yield f"{',' if place else ''}{json.dumps(str(name))}:"
            yield from json_chunks(entry)
        yield "}"
    elif isinstance(value, list | tuple):
        yield from _list(value)
    elif isinstance(value, float) and not math.isfinite(value):
        yield "null"
    else:
        yield json.dumps(value)


def _list(values: Sequence[Any]) -> Iterator[str]:
    yield "["
    for place, entry in enumerate(values):
        if place:
            yield ","
        yield from json_chunks(entry)
    yield "]"


def _column(values: Column) -> Iterator[str]:
    first = values[0] if len(values) else None
    if first is None or all(value == first or (value != value and first != first) for value in values):
        yield json.dumps({"all": None if first is None or first != first else first, "length": len(values)})
        return
    yield "["
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        yield ("," if start else "") + ",".join("null" if v - v != 0 else repr(v) for v in chunk)
    yield "]"


@dataclass
class Table:
    """The rows of one file in columns."""

    texts: Names
    """All texts of the report, shared by its files. A thumbnail is one of them, so equal images are written once."""
    thumbnails: Thumbnails = field(default_factory=Thumbnails)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By id: question, weight, category and answers of every item, in order of first appearance."""

    def __post_init__(self) -> None:
        self.answers, self.judges, self.methods, self.reasons, self.states = (Names() for _ in range(5))
        rows = ("id", "prompt", "target", "counts", "words", "step", "group", "state", "counts_in_run")
        self.rows = {name: Column("l") for name in rows}
        self.rows |= {name: Column("d") for name in ("score", "threshold", "reward", "advantage", *METRICS)}
        cells = ("item", "answer", "passed", "reason", "judge", "method", "reasoning", "label")
        self.cells = {name: Column("l") for name in cells}
        self.cells |= {name: Column("d") for name in ("p", "mass")}
        self.more: dict[int, dict[str, Any]] = {}
        self.pairs: dict[int, dict[str, Any]] = {}
        self.shaping: dict[int, list[tuple[str, float | None]]] = {}
        self.others: dict[str, Column] = {}
        self.images: dict[int, list[int]] = {}
        self._groups, self._items = Names(), Names()

    def __len__(self) -> int:
        return len(self.rows["id"])

    def add(
        self,
        record: ScoredText,
        labels: Sequence[str | None] = (),
        evidence: Spans | None = None,
        counts_in_run: bool = True,
    ) -> None:
        """Append a row, with one label per item if people have labelled it, the evidence that they marked, and whether
        it is part of the training run."""
        score = record.score
        values: dict[str, Any] = {
            "id": self.texts.place(record.id),
            "prompt": self.texts.place(record.prompt),
            "target": self.texts.place(record.text),
            "counts": 0 if score is None else len(score.items),
            "words": 0 if record.text is None else words(record.text),
            "step": -1 if record.step is None else record.step,
            "group": -1 if record.step is None else self._groups.place(record.group),
            "state": self.states.place(record.state),
            "counts_in_run": int(counts_in_run),
            "score": None if score is None else score.primary_score,
            "threshold": None if score is None else score.aggregation.threshold,
            "reward": record.reward,
            **{name: number_or_none(getattr(score, name, None)) for name in METRICS},
        }
        for name, value in values.items():
            self.rows[name].add(value)
        if record.kind == "scored":
            self._add_others(record)
        if pair := record.pair:
            self.pairs[len(self) - 1] = {**pair, "rejected": self.texts.place(pair["rejected"])}
        if record.images:
            self.images[len(self) - 1] = list(map(self.texts.place, self.thumbnails.of(record)))
        if shaping := record.shaping:
            self.shaping[len(self) - 1] = list(shaping)
        if score is not None:
            self._add_cells(score, labels, record, evidence or {})

    def _add_others(self, record: ScoredText) -> None:
        """Keep the columns of a row that are neither its texts nor its score. A column may appear in a later row."""
        named = record.columns
        own = {SCORE_COLUMN, CHECKLIST, ID, named.checklist, named.target, *named.inputs}
        pictured, images = image_column(record.data)
        if not all(isinstance(image, str) and not image.startswith("data:") for image in images):
            own.add(str(pictured))  # pixels; paths and addresses are kept
        found = {name: value for name, value in record.data.items() if name not in own and value is not None}
        for name in found:
            if name not in self.others and len(self.others) < _MOST_OTHERS:
                self.others[name] = Column("l", [-1] * (len(self) - 1))
        for name, column in self.others.items():
            shown = found.get(name)
            if not isinstance(shown, str | None):
                shown = json.dumps(shown, ensure_ascii=False, default=str)
            if shown and len(shown) > _LONGEST:
                shown = f"{shown[:_LONGEST]}… ({len(shown):,} characters)"
            column.add(self.texts.place(shown))

    def _add_cells(self, score: Score, labels: Sequence[str | None], record: ScoredText, evidence: Spans) -> None:
        others = () if (again := record.shadow) is None else again.items
        shadow, held_out = dict(zip(item_keys(others), others, strict=True)), record.held_out
        stated = _stated(record.cell)
        for place, (key, line) in enumerate(zip(item_keys(score.items), score.items, strict=True)):
            why, probabilities = line.unanswered, line.probabilities or {}
            names = ("question", "category", "weight", "required")
            first = self.items.setdefault(key, {"id": key, **{name: getattr(line, name) for name in names}})
            values: dict[str, Any] = {
                "item": self._items.place(key),
                "answer": self.answers.place(line.answer),
                "passed": -1 if line.passed is None or score.no_answer else int(line.passed),
                "reason": -1 if why is None else self.reasons.place(str(why.reason)),
                "judge": self.judges.place(line.judge),
                "method": self.methods.place(line.method),
                "reasoning": self.texts.place(line.reasoning),
                "label": self.answers.place(labels[place] if place < len(labels) else None),
                "p": number_or_none(probabilities.get(YES, line.confidence)),
                "mass": number_or_none(line.mass),
            }
            details: dict[str, Any] = {
                # Of rows that give one id to several questions, each keeps its own.
                **{name: value for name in names if (value := getattr(line, name)) != first[name]},
                "detail": None if why is None else why.detail or None,
                "probabilities": dict(probabilities) if set(probabilities) - {YES, NO} else None,
                "uncalibrated": dict(line.uncalibrated) if line.uncalibrated else None,
                "agreement": line.agreement,
                "votes": [self._vote(vote) for vote in line.votes or ()] or None,
                "stated": stated.get(line.id),
                "held_out": line.id in held_out or None,
                "shadow": (shadow[key].answer or "unanswered") if key in shadow else None,
            }
            reasoning = [line.reasoning, *(vote.reasoning for vote in line.votes or ())]
            spans = quoted(record.text, reasoning, {YES, NO, *probabilities}) if any(reasoning) else []
            details["spans"] = spans + marked(record.text, evidence.get((record.id, key, line.question), ())) or None
            if more := {name: value for name, value in details.items() if value is not None}:
                self.more[len(self.cells["item"])] = more
            for name, value in values.items():
                self.cells[name].add(value)

    def _vote(self, vote: Any) -> dict[str, Any]:
        probabilities = vote.probabilities or {}
        return {
            "judge": vote.judge,
            "answer": vote.answer,
            "p": probabilities.get(YES, probabilities.get(vote.answer)),
            "mass": vote.mass,
            "unanswered": None if vote.unanswered is None else str(vote.unanswered),
            "reasoning": self.texts.place(vote.reasoning),
        }

    def as_json(self) -> dict[str, Any]:
        """The table as a mapping for [`json_chunks`]."""
        rewards = [None if math.isnan(value) else value for value in self.rows["reward"]]
        self.rows["advantage"] = Column("d")
        for value in centred(rewards, self.rows["group"]):
            self.rows["advantage"].add(value)
        return {
            "items": list(self.items.values()),
            **{name: getattr(self, name) for name in ("answers", "judges", "methods", "reasons", "states")},
            **{name: getattr(self, name) for name in ("rows", "cells", "more", "pairs", "shaping", "others")},
            **({"images": self.images} if self.images else {}),
        }


def _stated(checklist: Any) -> dict[str, str]:
    """By id of the item: the part of the prompt that states it, for items that rules found in the prompt."""
    checklist = decoded(checklist)  # JSON text in CSV files
    items = checklist.get("items") if isinstance(checklist, Mapping) else checklist
    found = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list | tuple) else []
    evidence = ((item.get("id"), item.get("evidence")) for item in found)
    return {
        str(name): one["text"]
        for name, one in evidence
        if name and isinstance(one, Mapping) and isinstance(one.get("text"), str)
    }
