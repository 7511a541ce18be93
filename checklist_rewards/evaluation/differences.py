"""What changes between two scorings of the same texts: reads, scores, and the order within groups.

Rows are paired by [`Matching`] and arrive by group: the texts of one prompt (and training step). Per group, the scores
give three things that training uses: the order of the texts (Kendall's tau-b), the sign of each advantage (score minus
mean of the group), and the pair of best and worst text. A pair *changes* if the best or the worst texts of the two
scorings have none in common; it is *reversed* if the other scoring puts the worst above the best.

Intervals resample prompts, or texts without a prompt. Sums are kept for up to 20,000 of them; further ones share these
sums. The sums of items are kept in the database of the pairs, so memory does not grow with the number of rows, prompts
or items.

The rows of two files are paired by key. They are kept in a temporary database on disk, each small, so files may be of
any size and in any order. The n-th row with a key in one file is paired with the n-th row with this key in the other.
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
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Totals, over
from checklist_rewards.evaluation.intervals import CORRELATION, SHARE, Rule
from checklist_rewards.evaluation.labels import equal_answers
from checklist_rewards.evaluation.measures import kappa_of, tau
from checklist_rewards.evaluation.scored import ScoredText, soft_value
from checklist_rewards.scores import Score, item_keys
from checklist_rewards.validation import np


class StoredRead(NamedTuple):
    """One answer of a stored score."""

    question: str
    answer: str | None
    """None if unanswered, or if the judge was not asked because the text has no answer."""
    p: float | None
    """P(yes), or the expected value of an item with options; None without probabilities."""
    value: float | None
    by_code: bool = False
    """Whether a code check answered: the figures of all reads leave it out."""


def packed(text: ScoredText) -> str:
    """A text as JSON, small enough for [`Matching`]: what is compared, and what names the row."""
    score = text.score
    dumped = None if score is None else score.model_dump(mode="json", exclude={"items": {"__all__": _NOT_COMPARED}})
    return json.dumps([text.name, text.step, text.prompt, text.text, dumped, text.prompt_key])


def unpacked(body: str) -> ScoredText:
    """The text that [`packed`] wrote."""
    name, step, prompt, text, dumped, key = json.loads(body)
    score = None if dumped is None else Score.model_validate(dumped)
    data = {"prompt": prompt, "completion": text, "prompt_key": key}
    return ScoredText(name, name, score, step=step, data=data, kind="rewards")


_NOT_COMPARED = {"votes", "reasoning", "uncalibrated"}


def stored_reads(score: Score | None) -> dict[str, StoredRead]:
    """The answers of a score, by item."""
    reads = {}
    lines = () if score is None else score.items
    for key, line in zip(item_keys(lines), lines, strict=True):
        answered = line.unanswered is None
        p = None
        if answered and line.probabilities is not None:
            p = line.probabilities.get(YES) if line.probabilities.keys() == {YES, NO} else line.soft
        value = soft_value(line) if answered else None
        reads[_encodable(key)] = StoredRead(
            _encodable(line.question), line.answer if answered else None, p, value, line.by_code
        )
    return reads


def _encodable(text: str) -> str:
    """The text with half surrogate pairs as escapes: the database of a comparison stores UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


Shared = Mapping[str, tuple[StoredRead, StoredRead]]
"""The answers that two scores of a text have, by item."""


def record_of(
    one: ScoredText, other: ScoredText, shared: Shared, advantages: tuple[float, float] | None
) -> dict[str, Any]:
    """A row of the output of `diff`: both scores, advantages and answers of a text."""
    before, after = _number(one), _number(other)
    answers = [(first.answer, second.answer) for first, second in shared.values()]
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
        "flips": sum(None not in pair and pair[0] != pair[1] for pair in answers),
        "items": [
            {
                "id": key,
                "question": first.question,
                "one": first.answer,
                "other": second.answer,
                "p_one": first.p,
                "p_other": second.p,
            }
            for key, (first, second) in shared.items()
        ],
    }


def _number(text: ScoredText) -> float | None:
    return None if text.score is None else text.score.primary_score


_CACHE_KIB = 64 * 1024
_TABLES = """
CREATE TABLE rows (id INTEGER PRIMARY KEY, side INTEGER, key BLOB, grp BLOB, body TEXT);
"""
_PAIRS = """
CREATE TABLE places AS
    SELECT side, key, grp, id, row_number() OVER (PARTITION BY side, key ORDER BY id) AS copy FROM rows;
CREATE INDEX by_key ON places (key, copy, side);
CREATE TABLE pairs AS
    SELECT a.grp AS grp, a.id AS one, b.id AS other FROM places a JOIN places b
    ON a.key = b.key AND a.copy = b.copy AND a.side = 0 AND b.side = 1
    ORDER BY a.grp, a.key, a.copy;
"""
_UNMATCHED = """
FROM places a WHERE a.side = ? AND NOT EXISTS (
    SELECT 1 FROM places b WHERE b.key = a.key AND b.copy = a.copy AND b.side = 1 - a.side)
"""


class Matching:
    """Pairs of rows of two files. Use as a context manager; the temporary database is deleted at the end.

    Memory is bounded by the cache of the database, 64 MiB; the disk holds the bodies of all rows.
    """

    def __init__(self) -> None:
        self.database = sqlite3.connect("", isolation_level=None)  # "" is a temporary file
        self.database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_CACHE_KIB}; {_TABLES} BEGIN;")
        self._paired = False

    def __enter__(self) -> Matching:
        return self

    def __exit__(self, *error: object) -> None:
        self.database.close()

    def add(self, side: int, key: bytes, group: bytes, body: str) -> None:
        """Add a row.

        Args:
            side (`int`): 0 for the first file, 1 for the second.
            key (`bytes`): identity of the row.
            group (`bytes`): rows of the same group are returned together. The group in the first file counts.
            body (`str`): anything to get back.
        """
        self.database.execute("INSERT INTO rows (side, key, grp, body) VALUES (?, ?, ?, ?)", (side, key, group, body))

    def groups(self) -> Iterator[tuple[bytes, list[tuple[str, str]]]]:
        """The bodies of the paired rows, by group. The order depends on keys and groups only."""
        self._pair()
        query = """
            SELECT p.grp, a.body, b.body FROM pairs p JOIN rows a ON a.id = p.one JOIN rows b ON b.id = p.other
            ORDER BY p.rowid
        """
        for group, rows in groupby(self.database.execute(query), key=lambda row: row[0]):
            yield group, [(one, other) for _, one, other in rows]

    def unmatched(self, side: int, most: int) -> tuple[int, list[str]]:
        """The number of rows of a file without a partner, and the bodies of the first `most` of them."""
        self._pair()
        [(count,)] = self.database.execute(f"SELECT count(*) {_UNMATCHED}", (side,))
        first = f"SELECT r.body FROM (SELECT a.id AS id {_UNMATCHED} ORDER BY a.id LIMIT ?) u JOIN rows r USING (id)"
        return count, [body for (body,) in self.database.execute(first, (side, most))]

    def _pair(self) -> None:
        if not self._paired:
            self.database.executescript(f"{_PAIRS} BEGIN;")
            self._paired = True


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
_READS = "CREATE TABLE reads (item TEXT, question TEXT, cluster INTEGER, one TEXT, other TEXT, shift REAL)"
_MOST_FLIPPED = """
SELECT item, min(question), sum(one IS NOT NULL AND other IS NOT NULL), total(one <> other),
    sum(one IS NOT NULL AND other IS NULL), sum(one IS NULL AND other IS NOT NULL) FROM reads GROUP BY item
ORDER BY total(one <> other) DESC, abs(total(shift)) DESC, item LIMIT ?
"""
_OF_ITEM = """
SELECT cluster, one, other, count(*), count(shift), total(shift) FROM reads WHERE item = ?
GROUP BY cluster, one, other ORDER BY cluster, one, other
"""


class ReadDifference(BaseModel):
    """One read that both scorings have."""

    model_config = ConfigDict(frozen=True)

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


class ItemDifference(BaseModel):
    """One item over all texts."""

    model_config = ConfigDict(frozen=True)

    id: str
    question: str
    reads: int
    """Answered in both."""
    flips: int
    only_one: int
    """Answered in the first only."""
    only_other: int
    figures: dict[str, Figure]
    """`flips` (share of the reads), `kappa`, `shift` (mean change of P(yes) or the value)."""


class Unmatched(BaseModel):
    """Rows of one file that the other does not have."""

    model_config = ConfigDict(frozen=True)

    rows: int
    first: tuple[str, ...]


class DifferenceReport(BaseModel):
    """What changes from the first file to the second."""

    model_config = ConfigDict(frozen=True)

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
    """Compares the paired rows of a [`Matching`].

    Args:
        matching ([`Matching`]): all rows of both files, with [`packed`] texts as their bodies.
    """

    def __init__(self, matching: Matching):
        self.matching = matching
        matching.database.execute(_READS)
        self._clusters: dict[int, int] = {}
        self._sums: list[np.ndarray] = []
        self._counts: Counter[str] = Counter()
        self._top: list[tuple[float, str, ReadDifference]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        """Compare all rows. Yields a record per pair of rows; all must be consumed before [`report`]."""
        for _, bodies in self.matching.groups():
            pairs = [(unpacked(one), unpacked(other)) for one, other in bodies]
            cluster = self._cluster(pairs[0][0])
            sums = self._sums[cluster]
            order = self._group(pairs, sums)
            for (one, other), advantages in zip(pairs, order, strict=True):
                if one.text is not None and other.text is not None and not equal_answers(one.text, other.text):
                    raise SampleError(
                        f"row {one.name!r:.60} of the first file is about another text than row {other.name!r:.60} of "
                        f"the second: {one.text!r:.60} and {other.text!r:.60}; both must be of the same texts."
                    )
                reads, others = stored_reads(one.score), stored_reads(other.score)
                shared = {key: (read, others[key]) for key, read in reads.items() if key in others}
                self._counts["unmatched_items"] += len(reads) + len(others) - 2 * len(shared)
                self._reads(one, cluster, shared, sums)
                yield record_of(one, other, shared, advantages)

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
        [(all_items,)] = self.matching.database.execute("SELECT count(DISTINCT item) FROM reads")
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
        key = _hash(row.data["prompt_key"], row.text if row.prompt is None else None)
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

    def _reads(self, one: ScoredText, cluster: int, shared: Shared, sums: np.ndarray) -> None:
        rows = []
        for key, (first, second) in shared.items():
            shift = None if first.p is None or second.p is None else second.p - first.p
            rows.append((key, first.question, cluster, first.answer, second.answer, shift))
            if first.answer is None or second.answer is None:
                continue
            flipped = first.answer != second.answer
            answers = f"{first.answer}_{second.answer}"
            if first.by_code or second.by_code:
                self._counts["checks"] += 1
                self._counts["checks_flipped"] += flipped
            else:
                _add(sums, reads=1, flips=flipped, **({answers: 1} if answers in _AT else {}))
                if shift is not None:
                    _add(sums, shifted=1, shift=shift, distance=abs(shift))
            if shift is None and first.value is not None and second.value is not None:
                shift = second.value - first.value
            size = float(flipped) if shift is None else abs(shift)
            if size > _NOISE:
                self._keep(size, one, key, first, second, shift)
        self.matching.database.executemany("INSERT INTO reads VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _keep(
        self, size: float, row: ScoredText, key: str, one: StoredRead, other: StoredRead, shift: float | None
    ) -> None:
        tie = json.dumps([row.step, row.prompt, row.text, key, row.name])
        if len(self._top) == MOST_READS and (size, tie) <= self._top[0][:2]:
            return
        assert one.answer is not None and other.answer is not None
        read = ReadDifference(
            row=row.name,
            step=row.step,
            prompt=row.prompt,
            completion=row.text,
            item=key,
            question=one.question,
            one=one.answer,
            other=other.answer,
            p_one=one.p,
            p_other=other.p,
            difference=math.copysign(size, 1.0 if shift is None else shift),
        )
        push = heapq.heappush if len(self._top) < MOST_READS else heapq.heappushpop
        push(self._top, (size, tie, read))

    def _items(self, bootstrap: Bootstrap) -> Iterator[ItemDifference]:
        self.matching.database.execute("CREATE INDEX by_item ON reads (item)")
        without = Bootstrap(0, bootstrap.seed)
        for place, (id, question, reads, flips, lost, won) in enumerate(
            self.matching.database.execute(_MOST_FLIPPED, (MOST_ITEMS,)).fetchall()
        ):
            rows = self.matching.database.execute(_OF_ITEM, (id,)).fetchall()
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
            yield ItemDifference(
                id=id, question=question, reads=reads, flips=int(flips), only_one=lost, only_other=won, figures=figures
            )

    def _unmatched(self, side: int) -> Unmatched:
        count, bodies = self.matching.unmatched(side, _NAMED)
        return Unmatched(rows=count, first=tuple(unpacked(body).name for body in bodies))


def _hash(*texts: str | None) -> int:
    return int.from_bytes(blake2b(json.dumps(texts).encode(), digest_size=8).digest(), "big")


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
