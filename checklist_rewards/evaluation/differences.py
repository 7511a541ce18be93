"""What changes between two scorings of the same texts: reads, scores, and the order within groups.

The rows of two files are paired by id, or by step, prompt and text: the n-th row with a key in one file with the n-th
row with this key in the other. They are kept in a temporary database on disk, so files may be of any size and in any
order. Pairs arrive by group: the texts of one prompt (and training step). Per group, the scores give three things that
training uses: the order of the texts (Kendall's tau-b), the sign of each advantage (score minus mean of the group),
and the pair of best and worst text. A pair *changes* if the best or the worst texts of the two scorings have none in
common; it is *reversed* if the other scoring puts the worst above the best.

Intervals resample prompts, or texts without a prompt. Sums are kept for up to 20,000 of them; further ones share these
sums. The sums of items are kept in the database, so memory does not grow with the number of rows, prompts or items.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any

from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Result, Totals, over
from checklist_rewards.evaluation.intervals import CORRELATION, SHARE, Rule
from checklist_rewards.evaluation.labels import equal_answers, known_text, warn_of_no_text
from checklist_rewards.evaluation.measures import kappa_of, tau
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.scores import ItemScore, Score
from checklist_rewards.validation import np

_NOT_COMPARED = {"votes", "reasoning", "uncalibrated"}


def _packed(text: ScoredText) -> str:
    """A text as JSON: what is compared, and what names the row."""
    score = text.score
    dumped = None if score is None else score.model_dump(mode="json", exclude={"items": {"__all__": _NOT_COMPARED}})
    return json.dumps([text.name, text.step, text.prompt, text.text, dumped, text.prompt_key])


def _unpacked(body: str) -> ScoredText:
    name, step, prompt, text, dumped, key = json.loads(body)
    score = None if dumped is None else Score.model_validate(dumped)
    data = {"prompt": prompt, "completion": text, "prompt_key": key}
    return ScoredText(name, name, score, step=step, data=data, kind="rewards")


def _number(text: ScoredText) -> float | None:
    return None if text.score is None else text.score.primary_score


def _answer(line: ItemScore) -> str | None:
    """None if unanswered, or if the judge was not asked because the text has no answer."""
    return line.answer if line.unanswered is None else None


def _p(line: ItemScore) -> float | None:
    """P(yes), or the expected value of an item with options; None without probabilities."""
    if line.unanswered is not None or line.probabilities is None:
        return None
    return line.probabilities.get(YES) if line.probabilities.keys() == {YES, NO} else line.soft


def _encodable(text: str) -> str:
    """The text with half surrogate pairs as escapes: the database of a comparison stores UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


Shared = Mapping[str, tuple[ItemScore, ItemScore]]
"""The answers that two scores of a text have, by item."""

_CACHE_KIB = 64 * 1024
_TABLES = """
CREATE TABLE rows (id INTEGER PRIMARY KEY, side INTEGER, key BLOB, grp BLOB, body TEXT);
CREATE TABLE reads (item TEXT, question TEXT, cluster INTEGER, one TEXT, other TEXT, shift REAL);
"""
_PAIR = """
CREATE TABLE places AS
    SELECT side, key, grp, id, row_number() OVER (PARTITION BY side, key ORDER BY id) AS copy FROM rows;
CREATE INDEX by_key ON places (key, copy, side);
CREATE TABLE pairs AS
    SELECT a.grp AS grp, a.id AS one, b.id AS other FROM places a JOIN places b
    ON a.key = b.key AND a.copy = b.copy AND a.side = 0 AND b.side = 1
    ORDER BY a.grp, a.key, a.copy;
"""
_PAIRS = """
SELECT p.grp, a.body, b.body FROM pairs p JOIN rows a ON a.id = p.one JOIN rows b ON b.id = p.other ORDER BY p.rowid
"""
_UNMATCHED = """
FROM places a WHERE a.side = ? AND NOT EXISTS (
    SELECT 1 FROM places b WHERE b.key = a.key AND b.copy = a.copy AND b.side = 1 - a.side)
"""
MOST_READS = 20
"""Reads of a report: those that differ most."""
MOST_ITEMS = 1000
"""Items of a report: those with the most flips."""
_WITH_INTERVALS = 50
_NAMED = 5
_CLUSTERS = 20_000
_NOISE = 1e-4
"""Smaller differences are floating-point noise: a read depends on the batch in which an engine computes it."""
_RULES = {
    **dict.fromkeys(("flips", "advantages_reversed", "other_pair", "reversed_pair"), SHARE),
    **dict.fromkeys(("kappa", "kendall"), CORRELATION),
    **dict.fromkeys(("distance", "size"), Rule(least=0.0)),
}
_SUMS = (
    *("reads", "flips", "yes_yes", "yes_no", "no_yes", "no_no", "shifted", "shift", "distance"),
    *("scored", "change", "size", "changed"),
    *("ranked", "tau", "advantages", "reversed", "pairs", "other_pair", "reversed_pair"),
)
_AT = {name: place for place, name in enumerate(_SUMS)}
_SHARES = {
    "flips": ("flips", "reads"),
    "kappa": (None, "reads"),
    **{name: (name, "shifted") for name in ("shift", "distance")},
    **{name: (name, "scored") for name in ("change", "size")},
    "kendall": ("tau", "ranked"),
    "advantages_reversed": ("reversed", "advantages"),
    **{name: (name, "pairs") for name in ("other_pair", "reversed_pair")},
}
"""By figure, the sum that it is computed from, and the number that it is a mean over."""
_COUNTS = (
    *("reads", "flips", "scored", "changed", "ranked"),
    *("advantages", "reversed", "pairs", "other_pair", "reversed_pair"),
)
_MOST_FLIPPED = """
SELECT item, min(question), sum(one IS NOT NULL AND other IS NOT NULL), total(one <> other) FROM reads GROUP BY item
ORDER BY total(one <> other) DESC, abs(total(shift)) DESC, item LIMIT ?
"""
_OF_ITEM = """
SELECT cluster, one, other, count(*), count(shift), total(shift) FROM reads WHERE item = ?
GROUP BY cluster, one, other ORDER BY cluster, one, other
"""


class ReadDifference(Result):
    """One read that both scorings have."""

    row: str
    step: int | None
    prompt: str | None
    completion: str | None
    item: str
    question: str
    one: str
    other: str
    p_one: float | None
    p_other: float | None
    difference: float
    """Of P(yes) or the value, the second minus the first."""


class ItemDifference(Result):
    """One item over all texts."""

    id: str
    question: str
    reads: int
    """Answered in both."""
    flips: int
    figures: dict[str, Figure]
    """`flips` (share of the reads), `kappa`, `shift` (mean change of P(yes) or the value)."""


class Unmatched(Result):
    """Rows of one file that the other does not have."""

    rows: int
    first: tuple[str, ...]


class DifferenceReport(Result):
    """What changes from the first file to the second."""

    one: str
    other: str
    rows: int
    """Rows in both files."""
    only_one: Unmatched
    only_other: Unmatched
    counts: dict[str, int]
    """reads, flips, checks and checks_flipped (answers of code checks, which are in none of the others), scored (texts
    with two scores), changed (scores), groups, ranked (groups with an order in both), flat_one and flat_other (groups
    without variance), advantages, reversed, pairs, other_pair, reversed_pair, unmatched_items."""
    figures: dict[str, Figure]
    """Shares and means with intervals: `flips`, `kappa` (yes/no items), `shift` and `distance` (mean and mean absolute
    change of P(yes)), `change` and `size` (mean and mean absolute change of the score), `kendall`,
    `advantages_reversed`, `other_pair`, `reversed_pair`."""
    items: tuple[ItemDifference, ...]
    all_items: int
    reads: tuple[ReadDifference, ...]


class Differences:
    """Compares the rows of two files. Use as a context manager; the temporary database is deleted at the end.

    Memory is bounded by the cache of the database, 64 MiB; the disk holds what is compared of all rows.

    Args:
        by_id (`bool`): Whether rows that have an id are paired by it, the others by step, prompt and text. False pairs
            all rows by these.
    """

    def __init__(self, by_id: bool):
        self.by_id = by_id
        self.database = sqlite3.connect("", isolation_level=None)  # "" is a temporary file
        self.database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_CACHE_KIB}; {_TABLES} BEGIN;")
        self._clusters: dict[int, int] = {}
        self._sums: list[np.ndarray] = []
        self._counts: Counter[str] = Counter()
        self._top: list[tuple[float, str, ReadDifference]] = []

    def __enter__(self) -> Differences:
        return self

    def __exit__(self, *error: object) -> None:
        self.database.close()

    def add(self, side: int, text: ScoredText) -> None:
        """Add a row of the first file (`side` 0) or of the second (1)."""
        # The draws of the intervals depend on the names of the groups.
        group = text.group if text.step is not None else json.dumps([text.step, text.prompt_key])
        if text.prompt is None:  # such a row is a group of its own
            group = f"{group} {text.text}"
        # A row without an id among rows with ids is paired by its texts: its number may be the id of another row.
        texts = json.dumps([text.step, text.prompt_key, text.text])
        key = texts if not self.by_id else f"id {text.id}" if text.has_id else f"texts {texts}"
        if known_text(text.data, text.columns) is None:
            warn_of_no_text(text, "id" if self.by_id and text.has_id else "prompt")
        insert = "INSERT INTO rows (side, key, grp, body) VALUES (?, ?, ?, ?)"
        self.database.execute(insert, (side, _digest(key), _digest(group), _packed(text)))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Compare all rows that were added. Yields a record per pair of rows, in an order that depends on keys and
        groups only; all must be consumed before [`report`]."""
        self.database.executescript(f"{_PAIR} BEGIN;")
        for _, same in groupby(self.database.execute(_PAIRS), key=lambda row: row[0]):
            pairs = [(_unpacked(one), _unpacked(other)) for _, one, other in same]
            cluster = self._cluster(pairs[0][0])
            sums = self._sums[cluster]
            order = self._group(pairs, sums)
            for (one, other), advantages in zip(pairs, order, strict=True):
                if one.text is not None and other.text is not None and not equal_answers(one.text, other.text):
                    raise SampleError(
                        f"row {one.name!r:.60} of the first file is about another text than row {other.name!r:.60} of "
                        f"the second: {one.text!r:.60} and {other.text!r:.60}; both must be of the same texts."
                    )
                lines, others = ({_encodable(key): line for key, line in text.lines.items()} for text in (one, other))
                shared = {key: (line, others[key]) for key, line in lines.items() if key in others}
                self._counts["unmatched_items"] += len(lines) + len(others) - 2 * len(shared)
                self._reads(one, cluster, shared, sums)
                yield _record(one, other, shared, advantages)

    def report(self, names: tuple[str, str], bootstrap: Bootstrap) -> DifferenceReport:
        """The figures of all rows.

        Args:
            names (pair of `str`): of the two files.
            bootstrap ([`Bootstrap`]): settings of the intervals.
        """
        vectors = np.array(self._sums) if self._sums else np.zeros((0, len(_SUMS)))
        totals = vectors.sum(0)
        masses = {name: vectors[:, _AT[counted]] for name, (_, counted) in _SHARES.items()}
        counts = {name: int(totals[_AT[name]]) for name in _COUNTS}
        names_of = ("groups", "flat_one", "flat_other", "unmatched_items", "checks", "checks_flipped")
        counts |= {name: self._counts[name] for name in names_of}
        [(all_items,)] = self.database.execute("SELECT count(DISTINCT item) FROM reads")
        unmatched = [self._unmatched(side) for side in (0, 1)]
        return DifferenceReport(
            one=names[0],
            other=names[1],
            rows=self._counts["rows"],
            only_one=unmatched[0],
            only_other=unmatched[1],
            counts=counts,
            figures=bootstrap.figures(Totals(vectors, _figures, _RULES, masses), range(len(vectors))),
            items=tuple(self._items(bootstrap)),
            all_items=all_items,
            reads=tuple(read for _, _, read in sorted(self._top, reverse=True)),
        )

    def _cluster(self, row: ScoredText) -> int:
        texts = [row.data["prompt_key"], row.text if row.prompt is None else None]
        key = int.from_bytes(_digest(json.dumps(texts), 8), "big")
        if key in self._clusters:
            return self._clusters[key]
        if len(self._clusters) == _CLUSTERS:
            return key % _CLUSTERS
        self._clusters[key] = len(self._sums)
        self._sums.append(np.zeros(len(_SUMS)))
        return self._clusters[key]

    def _group(self, pairs: Sequence[tuple[ScoredText, ScoredText]], sums: np.ndarray) -> list[Any]:
        """Add what the scores of a group say. Returns the advantages of every pair of rows."""
        self._counts["rows"] += len(pairs)
        known = [
            (place, before, after)
            for place, (one, other) in enumerate(pairs)
            if (before := _number(one)) is not None and (after := _number(other)) is not None
        ]
        advantages: list[tuple[float, float] | None] = [None] * len(pairs)
        first, second = np.array([one for _, one, _ in known]), np.array([other for _, _, other in known])
        change = second - first
        _add(sums, scored=len(known), change=change.sum(), size=np.abs(change).sum())
        _add(sums, changed=(np.abs(change) > _NOISE).sum())
        if len(known) < 2:
            return advantages
        self._counts["groups"] += 1
        flat = [bool(np.ptp(side) <= _NOISE) for side in (first, second)]
        self._counts["flat_one"] += flat[0]
        self._counts["flat_other"] += flat[1]
        centred = first - first.mean(), second - second.mean()
        for (place, _, _), one, other in zip(known, *centred, strict=True):
            advantages[place] = float(one), float(other)
        signs = [np.where(np.abs(side) <= _NOISE, 0, np.sign(side)) for side in centred]
        _add(sums, advantages=len(known), reversed=(signs[0] * signs[1] < 0).sum())
        if not any(flat):
            _add(sums, ranked=1, tau=tau(np.round(first, 9), np.round(second, 9)))
        if not flat[0]:
            best, worst = _best_and_worst(first)
            other_best, other_worst = _best_and_worst(second)
            apart = flat[1] or not (best & other_best and worst & other_worst)
            lower = max(second[place] for place in best) < min(second[place] for place in worst) - _NOISE
            _add(sums, pairs=1, other_pair=apart, reversed_pair=lower)
        return advantages

    def _reads(self, row: ScoredText, cluster: int, shared: Shared, sums: np.ndarray) -> None:
        rows = []
        for key, (first, second) in shared.items():
            one, other = _answer(first), _answer(second)
            p, q = _p(first), _p(second)
            shift = None if p is None or q is None else q - p
            rows.append((key, _encodable(first.question), cluster, one, other, shift))
            if one is None or other is None:
                continue
            flipped = one != other
            if first.by_code or second.by_code:
                self._counts["checks"] += 1
                self._counts["checks_flipped"] += flipped
            else:
                answers = f"{one}_{other}"
                _add(sums, reads=1, flips=flipped, **({answers: 1} if answers in _AT else {}))
                if shift is not None:
                    _add(sums, shifted=1, shift=shift, distance=abs(shift))
            before, after = first.soft, second.soft
            if shift is None and before is not None and after is not None:
                shift = after - before
            size = float(flipped) if shift is None else abs(shift)
            if size > _NOISE:
                self._keep(size, row, key, first, second, shift)
        self.database.executemany("INSERT INTO reads VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _keep(
        self, size: float, row: ScoredText, key: str, one: ItemScore, other: ItemScore, shift: float | None
    ) -> None:
        tie = json.dumps([row.step, row.prompt, row.text, key, row.name])
        if len(self._top) == MOST_READS and (size, tie) <= self._top[0][:2]:
            return
        read = ReadDifference(
            row=row.name,
            step=row.step,
            prompt=row.prompt,
            completion=row.text,
            item=key,
            question=_encodable(one.question),
            one=str(one.answer),
            other=str(other.answer),
            p_one=_p(one),
            p_other=_p(other),
            difference=math.copysign(size, 1.0 if shift is None else shift),
        )
        push = heapq.heappush if len(self._top) < MOST_READS else heapq.heappushpop
        push(self._top, (size, tie, read))

    def _items(self, bootstrap: Bootstrap) -> Iterator[ItemDifference]:
        self.database.execute("CREATE INDEX by_item ON reads (item)")
        without = Bootstrap(0, bootstrap.seed)
        for place, (id, question, reads, flips) in enumerate(
            self.database.execute(_MOST_FLIPPED, (MOST_ITEMS,)).fetchall()
        ):
            rows = self.database.execute(_OF_ITEM, (id,)).fetchall()
            labels = sorted({label for _, *pair, _, _, _ in rows if None not in pair for label in pair})
            clusters = {cluster: number for number, cluster in enumerate(dict.fromkeys(row[0] for row in rows))}
            vectors = np.zeros((len(clusters), len(labels) ** 2 + 2))
            for cluster, one, other, count, shifted, shift in rows:
                if one is not None and other is not None:
                    vectors[clusters[cluster], len(labels) * labels.index(one) + labels.index(other)] += count
                    vectors[clusters[cluster], -2:] += shifted, shift
            answered = vectors[:, :-2].sum(1)
            masses = {"flips": answered, "kappa": answered, "shift": vectors[:, -2]}
            figures = (bootstrap if place < _WITH_INTERVALS else without).figures(
                Totals(vectors, _item_figures(len(labels)), _RULES, masses), range(len(vectors))
            )
            yield ItemDifference(id=id, question=question, reads=reads, flips=int(flips), figures=figures)

    def _unmatched(self, side: int) -> Unmatched:
        [(count,)] = self.database.execute(f"SELECT count(*) {_UNMATCHED}", (side,))
        first = f"SELECT r.body FROM (SELECT a.id AS id {_UNMATCHED} ORDER BY a.id LIMIT ?) u JOIN rows r USING (id)"
        bodies = self.database.execute(first, (side, _NAMED))
        return Unmatched(rows=count, first=tuple(_unpacked(body).name for (body,) in bodies))


def _record(
    one: ScoredText, other: ScoredText, shared: Shared, advantages: tuple[float, float] | None
) -> dict[str, Any]:
    """A row of the output of `diff`: both scores, advantages and answers of a text."""
    before, after = _number(one), _number(other)
    items = [
        {
            "id": key,
            "question": _encodable(first.question),
            "one": _answer(first),
            "other": _answer(second),
            "p_one": _p(first),
            "p_other": _p(second),
        }
        for key, (first, second) in shared.items()
    ]
    return {
        "row": one.name,
        "step": one.step,
        "prompt": one.prompt,
        "completion": one.text,
        "score_one": before,
        "score_other": after,
        "change": None if before is None or after is None else after - before,
        "advantage_one": None if advantages is None else advantages[0],
        "advantage_other": None if advantages is None else advantages[1],
        "flips": sum(None not in (line["one"], line["other"]) and line["one"] != line["other"] for line in items),
        "items": items,
    }


def _digest(text: str, size: int = 16) -> bytes:
    return blake2b(text.encode(errors="replace"), digest_size=size).digest()


def _add(sums: np.ndarray, **values: float) -> None:
    for name, value in values.items():
        sums[_AT[name]] += value


def _best_and_worst(scores: np.ndarray) -> tuple[set[int], set[int]]:
    best, worst = scores >= scores.max() - _NOISE, scores <= scores.min() + _NOISE
    return set(np.flatnonzero(best).tolist()), set(np.flatnonzero(worst).tolist())


def _figures(sums: np.ndarray) -> Mapping[str, float]:
    of = dict(zip(_SUMS, sums, strict=True))
    table = np.array([[of["yes_yes"], of["yes_no"]], [of["no_yes"], of["no_no"]]])
    return {
        name: kappa_of(table) if total is None else over(of[total], of[counted])
        for name, (total, counted) in _SHARES.items()
    }


def _item_figures(labels: int) -> Any:
    def compute(sums: np.ndarray) -> Mapping[str, float]:
        table = sums[:-2].reshape(labels, labels)
        return {
            "flips": over(table.sum() - np.trace(table), table.sum()),
            "kappa": kappa_of(table),
            "shift": over(sums[-1], sums[-2]),
        }

    return compute
