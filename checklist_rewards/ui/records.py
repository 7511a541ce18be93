"""Rows of the files that a report shows: scored files, reward logs of a training run, and preference pairs.

The first row of a file determines its kind. All kinds are read as [`Record`]s, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from checklist_rewards.chat import completion_text, prompt_text, transcript_text
from checklist_rewards.errors import SampleError
from checklist_rewards.files.ranks import other_ranks
from checklist_rewards.files.rows import Row, input_format, read_rows
from checklist_rewards.rows import INPUTS, TARGETS
from checklist_rewards.scores import Score
from checklist_rewards.scores.table import SCORE_COLUMN, score_from
from checklist_rewards.validation import finite_or_none

Kind = Literal["scored", "rewards", "pairs"]
ID, CHECKLIST = "id", "checklist"
_REWARDS = ("step", "completion", "reward", "score")
_PAIRS = ("chosen", "rejected")
_KINDS = (
    f"a scored file (column {SCORE_COLUMN!r}), a reward log ({', '.join(map(repr, _REWARDS))}), or pairs "
    f"({', '.join(map(repr, _PAIRS))})"
)


@dataclass(frozen=True, slots=True)
class Record:
    """One row: a text with its score, or a pair of texts."""

    id: str
    """The `id` column if the row has one, else the number of the row."""
    where: str
    prompt: str | None
    target: str | None
    score: Score | None
    step: int | None = None
    reward: float | None = None
    group: str | None = None
    """Of a reward log: the completions of a step with the same group belong together. Defaults to the prompt."""
    shaping: tuple[tuple[str, float | None], ...] = ()
    """Of a reward log: the values from the score to the reward, by name; empty if the reward is the score."""
    held_out: frozenset[str] = frozenset()
    """Of a monitored reward: ids of the items that were read but not rewarded."""
    shadow: Score | None = None
    """Of a monitored reward: the score of the shadow judge, where it read this completion."""
    checklist_hash: str | None = None
    """Of a reward log: the hash of the checklist under which the reward was computed."""
    checklist: Any = None
    """The checklist column, unparsed."""
    pair: Mapping[str, Any] = field(default_factory=dict)
    """Of a preference pair: the rejected text, both scores, and the items that differ."""
    has_id: bool = False
    """Of a scored file: whether `id` is a value of the row, not its number."""

    @property
    def key(self) -> str:
        """What is sampled as one: the completions of a prompt in one training step, or a row."""
        return self.id if self.step is None else f"{self.step}\n{self.group or self.prompt}"


@dataclass(frozen=True)
class RecordFile:
    """A file of rows.

    Args:
        path (`Path`): A .jsonl, .csv or .parquet file. A reward log includes the files of the other ranks.
        inputs (sequence of `str`, *optional*): Columns of the prompt. Defaults to `prompt`, else `input`.
        target (`str`, *optional*): Column of the judged text. Defaults to `target`, else `completion`.
        id_key (`str`, *optional*): Column of row ids. Defaults to `id`, else rows are numbered.
    """

    path: Path
    inputs: Sequence[str] | None = None
    target: str | None = None
    id_key: str | None = None

    def kind(self) -> Kind:
        """The kind of the file. Raises [`SampleError`] for a file without rows and for rows of another kind."""
        first = next(iter(read_rows(self.path)), None)
        if first is None:
            raise SampleError(f"{self.path} has no rows.")
        if kind := kind_of_row(first.data):
            return kind
        columns = ", ".join(map(repr, first.data)) or "no columns"
        raise SampleError(f"{first.where}: the row has {columns}; expected {_KINDS}.")

    @property
    def paths(self) -> list[Path]:
        """The file, and for a reward log the files of the other ranks."""
        others = other_ranks(self.path)
        try:
            return [self.path, *others] if others and self.kind() == "rewards" else [self.path]
        except SampleError:  # reading the file reports the error
            return [self.path]

    def count(self) -> int:
        """Number of rows."""
        return sum(map(_count, self.paths))

    def __iter__(self) -> Iterator[Record]:
        kind = self.kind()
        rows = chain.from_iterable(map(read_rows, self.paths))
        for number, row in enumerate(rows, start=1):
            if kind == "scored":
                yield self._scored(row, number)
            else:
                yield reward_record(row, number) if kind == "rewards" else _pair(row, number)

    def _scored(self, row: Row, number: int) -> Record:
        data = row.data
        if SCORE_COLUMN not in data:
            raise SampleError(f"{row.where}: column {SCORE_COLUMN!r} not found.")
        names = self.inputs or [name for name in INPUTS if name in data][:1]
        target = self.target or next((name for name in TARGETS if name in data), None)
        for name in [*(self.inputs or ()), *filter(None, [self.target, self.id_key])]:
            if name not in data:
                columns = ", ".join(map(repr, data))
                raise SampleError(f"{row.where}: column {name!r} not found; the row has {columns}.")
        prompts = [text for name in names if (text := shown_prompt(data[name]))]
        return Record(
            _id(data, number, self.id_key),
            row.where,
            "\n\n".join(prompts) or None,
            None if target is None else shown_completion(data[target]),
            score_from(data[SCORE_COLUMN], row.where),
            checklist=data.get(CHECKLIST),
            has_id=data.get(self.id_key or ID) is not None,
        )


def kind_of_row(data: Mapping[str, Any]) -> Kind | None:
    """The kind of a file whose first row this is; None for rows that a report cannot show."""
    if SCORE_COLUMN in data:
        return "scored"
    if all(name in data for name in _REWARDS):
        return "rewards"
    return "pairs" if all(name in data for name in _PAIRS) else None


def shown_prompt(value: Any) -> str | None:
    """A prompt as text: chat messages as "role: text" paragraphs, one user message alone as its text."""
    if value is None or isinstance(value, str):
        return value
    try:
        input, history = prompt_text(value, images="ignore")
    except SampleError:
        return str(value)
    return input if history is None else "\n\n".join(filter(None, (history, input and f"user: {input}")))


def shown_completion(value: Any) -> str | None:
    """A completion as text, with its thinking. Of messages without an answer, all are shown."""
    if value is None or isinstance(value, str):
        return value
    try:
        shown: dict[str, Any] = {"keep_thinking": True, "images": "ignore"}
        return completion_text(value, **shown) or transcript_text(value, **shown)
    except SampleError:
        return str(value)


def kept(file: RecordFile, count: int, most: int, seed: int) -> int | None:
    """The sampling threshold of a file with `count` rows: rows whose [`draw`] is at most this number are kept.

    Rows with the same key are kept or dropped together, and two files with the same ids keep the same rows.

    Returns:
        `int` or `None`: None if the file has at most `most` rows.
    """
    if count <= most:
        return None
    sizes: dict[int, int] = {}
    for record in file:
        number = draw(record.key, seed)
        sizes[number] = sizes.get(number, 0) + 1
    total, threshold = 0, min(sizes)
    for number in sorted(sizes):
        total += sizes[number]
        if total > most:
            break
        threshold = number
    return threshold


def draw(key: str, seed: int) -> int:
    """A pseudo-random 64-bit number of a row."""
    return int.from_bytes(blake2b(f"{seed}:{key}".encode(errors="replace"), digest_size=8).digest(), "big")


def _count(path: Path) -> int:
    if input_format(path) != ".jsonl":
        return sum(1 for _ in read_rows(path))
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def reward_record(row: Row, number: int) -> Record:
    """The record of a row of a reward log."""
    data = row.data
    score = data.get("score")
    step = data.get("step")
    return Record(
        str(number),
        row.where,
        shown_prompt(data.get("prompt")),
        shown_completion(data.get("completion") or data.get("written") or data.get("completion")),
        score_from(score, row.where),
        step=step if isinstance(step, int) else 0,
        reward=finite_or_none(f"{row.where}: reward", data.get("reward")),
        group=group if isinstance(group := data.get("group"), str) else None,
        shaping=_stages(data.get("shaping"), row.where),
        held_out=frozenset(map(str, data.get("held_out") or ())),
        shadow=score_from(data.get("shadow"), row.where),
        checklist_hash=name if isinstance(name := data.get("checklist_hash"), str) else None,
    )


def _stages(value: Any, where: str) -> tuple[tuple[str, float | None], ...]:
    if value is None:
        return ()
    pairs = value if isinstance(value, list) else [value]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise SampleError(f"{where}: shaping must be a list of [name, value], got {value!r:.80}.")
    return tuple((name, finite_or_none(f"{where}: shaping, {name}", number)) for name, number in pairs)


def _pair(row: Row, number: int) -> Record:
    data = row.data
    return Record(
        _id(data, number),
        row.where,
        shown_prompt(data.get("prompt")),
        shown_completion(data["chosen"]),
        None,
        checklist=data.get(CHECKLIST),
        pair={
            "rejected": shown_completion(data["rejected"]) or "",
            "score_chosen": finite_or_none(f"{row.where}: score_chosen", data.get("score_chosen")),
            "score_rejected": finite_or_none(f"{row.where}: score_rejected", data.get("score_rejected")),
            "flipped": data.get("flipped") or [],
        },
    )


def number_or_none(value: Any) -> float | None:
    """A finite number; None for everything else."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None


def _id(data: Mapping[str, Any], number: int, key: str | None = None) -> str:
    return str(number) if data.get(key or ID) is None else str(data[key or ID])
