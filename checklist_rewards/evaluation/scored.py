"""Scored texts: the one value of a text with its score, and the one reader of the files that have them.

A [`ScoredText`] is a row of a scored file (`score`, `run`, `replay`: the column `checklist_score`), of a reward log
(`step`, `completion`, `reward`, `score`), or of preference pairs (`chosen`, `rejected`). [`scored_text`] is the only
function that turns a row into one, so every command and the app have the same id, group, step, texts and score of it.
[`ScoredFile`] reads a file row by row, as a stream; [`read_scored`] returns its scored rows as a list. [`Labels`] of
`labels.py` adds what people say of them.

The id of a text is its value in the column `id`, or the number of its row. Items are identified by their id; the
second of two equal questions has the key `<id>#2`. Prompt, text, checklist and items are computed when they are used.
What cannot be read raises a [`SampleError`] that names the file and the row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import NO, YES, Checklist, ChecklistItem, Option
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.ranks import other_ranks, starts_in
from checklist_rewards.files.rows import SCORE_COLUMN, Row, input_format, read_rows, read_rows_for
from checklist_rewards.images import file_in, is_logged
from checklist_rewards.judges.calibration import YES_NO
from checklist_rewards.keys import prompt_identity, worded
from checklist_rewards.messages import with_places
from checklist_rewards.rows import PROMPT, Columns, image_column, require_scores, score_from
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import ItemScore, Score, TargetState, expected, item_keys
from checklist_rewards.scores.scales import on_scale, ordinal_scale
from checklist_rewards.validation import finite_or_none, one_sentence

Kind = Literal["scored", "rewards", "pairs"]
ID, CHECKLIST = "id", "checklist"
REWARDS = ("step", "completion", "reward", "score")
"""The columns of a reward log."""
COMPLETION_IMAGES = "completion_images"
"""Of a reward log: the images in the text that was judged, where it has some."""
PAIRS = ("chosen", "rejected")
_KINDS = (
    f"a scored file (column {SCORE_COLUMN!r}), a reward log ({', '.join(map(repr, REWARDS))}), or pairs "
    f"({', '.join(map(repr, PAIRS))})"
)
_SCORES: Mapping[Kind, str] = {"scored": SCORE_COLUMN, "rewards": "score"}
"""The column of the score."""


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """The answer of one side to an item."""

    label: str
    value: float | None
    """In [0, 1]; None for an abstention."""
    soft: float | None
    """Expected value under the probabilities; equal to `value` without probabilities."""
    probabilities: Mapping[str, float] | None = None
    """Probabilities of the judge."""


RowLabels = Sequence[ItemAnswer | None] | float | None
"""The labels of a text: one per item, or one number for the whole text, or None for an unlabelled one."""


@dataclass(frozen=True)
class ScoredText:
    """A text with its score."""

    id: str
    """The value of the id column, or the number of the row."""
    where: str
    """The row in error messages, such as "scored.jsonl, line 3"."""
    score: Score | None = None
    """None for a row that was not scored."""
    group: str = ""
    """Texts of one group are sampled, resampled and held out together: those with the same value in the group column,
    or, in a reward log, the completions of one prompt in one step. Defaults to the id."""
    step: int | None = None
    """Of a reward log; 0 if the log has no whole number there."""
    reward: float | None = None
    labels: RowLabels = None
    """What people say of the text; see [`Labels`]."""
    chance: float | None = 1.0
    """The probability with which the text was chosen for labelling; None for one that was not chosen."""
    sample: Sample | None = None
    """What a judge is asked, if the text is scored again; see [`asked`]. Its `state` is that of the score, if the
    score records one."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The row."""
    kind: Kind = "scored"
    columns: Columns = field(default=Columns.of({}), repr=False)
    """How the row is read."""
    number: int = 0
    """The line of the row, or its number in a Parquet file."""
    has_id: bool = False
    """Whether `id` is a value of the row, not its number."""

    def __post_init__(self) -> None:
        if not self.group:
            object.__setattr__(self, "group", self.id)
        if self.sample is not None and self.state is not None:
            object.__setattr__(self, "sample", replace(self.sample, state=self.state))

    @property
    def name(self) -> str:
        """The text in tables: its id, or its place in a log, where ids are numbers."""
        return self.id if self.step is None else self.where

    @property
    def state(self) -> TargetState | None:
        """What the policy made of its turn, as the score records it; None in files of earlier versions."""
        return None if self.score is None else self.score.recorded_state

    @property
    def judged(self) -> Score:
        """The score. Raises [`SampleError`] for a row that was not scored."""
        if self.score is None:
            raise SampleError(f"{self.where}: the row has no score.")
        return self.score

    @property
    def to_judge(self) -> Sample:
        """The sample. Raises [`SampleError`] for a text that is not asked about."""
        if self.sample is None:
            raise SampleError(f"{self.where}: the row has no sample.")
        return self.sample

    @cached_property
    def prompt(self) -> str | None:
        """What was asked, as people read it: chat messages as "role: text" paragraphs, "[image]" for an image."""
        if self.kind != "scored":
            return shown_prompt(self._prompts[0][0])
        return "\n\n".join(filter(None, (shown_prompt(value) for value, _ in self._prompts))) or None

    @cached_property
    def _prompts(self) -> list[tuple[Any, list[Any]]]:
        """The prompts of the row with "[image]" in place of each image, and the images of each. Those of the columns
        belong to the first prompt that is a conversation, or else to the first one."""
        names = [name for name in self.columns.inputs if name in self.data] if self.kind == "scored" else [PROMPT]
        values, (_, given) = [messages_in(self.data.get(name)) for name in names], image_column(self.data)
        owner = next((place for place, value in enumerate(values) if isinstance(value, list | tuple)), 0)
        return [with_places(value, given if place == owner else ()) for place, value in enumerate(values)]

    @cached_property
    def prompt_images(self) -> list[Any]:
        """The images of the prompt; see [`images`]."""
        return [image for _, images in self._prompts for image in images]

    @cached_property
    def prompt_key(self) -> str | None:
        """What the prompt is compared by, with the turns before it; see [`prompt_identity`]. Rows with equal values
        have the same prompt, also in files of two folders, where an image has two paths."""
        folder = self.columns.folder or Path()
        files = [(image, file_in(image, folder)) for image in self.prompt_images]
        images = [image if file is None else os.path.realpath(file) for image, file in files]
        before = self.data.get(self.columns.history or "") if self.kind == "scored" else None
        asked = "\n\n".join([before, self.prompt or ""]) if before and isinstance(before, str) else self.prompt
        identity: str | None = prompt_identity(asked, images)
        return identity

    @cached_property
    def text(self) -> str | None:
        """The text as people read it, with its thought; of a completion without an answer, what the policy wrote."""
        if self.kind == "rewards":
            completion = self.data.get("completion")
            return shown_completion(completion or self.data.get("written") or completion)
        return shown_completion(self.data.get("chosen" if self.kind == "pairs" else self.columns.target))

    @cached_property
    def images(self) -> list[Any]:
        """The images of prompt and text in the order of their places, as [`image_of`] accepts them; None for one that
        the row does not have. None of them is read. Of a pair, those of both texts, which may repeat the prompt: each
        once."""
        if self.kind != "pairs":
            return self.prompt_images + self._images_in(
                "completion" if self.kind == "rewards" else self.columns.target
            )
        found = list(self.prompt_images)
        for name in PAIRS:
            found += [image for image in self._images_in(name) if image not in found]
        return found

    def _images_in(self, column: str) -> list[Any]:
        text = messages_in(self.data.get(column))
        return [] if isinstance(text, str) else with_places(text)[1]

    @property
    def cell(self) -> Any:
        """The checklist of the row, unparsed; None if it has none."""
        value = self.columns.shared or self.data.get(self.columns.checklist)
        return None if value == "" else value

    @cached_property
    def checklist(self) -> Checklist | None:
        """The checklist of the sample or the row. Raises [`ChecklistError`] if the cell has none."""
        if self.sample is not None and isinstance(self.sample.checklist, Checklist):
            return self.sample.checklist
        return None if self.cell is None else Checklist.parse(self.cell, f"{self.where}, checklist")

    @property
    def keys(self) -> tuple[str, ...]:
        """One key per item of the score; see [`item_keys`]."""
        return () if self.score is None else item_keys(self.score.items)

    @property
    def lines(self) -> dict[str, ItemScore]:
        """The answers by item key."""
        return {} if self.score is None else dict(zip(self.keys, self.score.items, strict=True))

    @cached_property
    def items(self) -> tuple[ChecklistItem, ...]:
        """The items of `score.items`, in the same order. Raises [`SampleError`] if the values of options are
        unknown."""
        return () if self.score is None else _items(self.score, self.checklist, self.where)

    @property
    def known(self) -> bool:
        """Whether the checklist contains all items of the score, so that their weights are available."""
        listed = set() if self.checklist is None else {item.id for item in self.checklist.items}
        return self.score is not None and {line.id for line in self.score.items} <= listed

    @property
    def held_out(self) -> frozenset[str]:
        """Of a monitored reward: ids of the items that were read but not rewarded."""
        return frozenset(map(str, list_in(self, "held_out") if self.kind == "rewards" else ()))

    @property
    def shadow(self) -> Score | None:
        """Of a monitored reward: the score of the shadow judge, where it read this completion."""
        return score_from(self.data.get("shadow"), self.where) if self.kind == "rewards" else None

    @property
    def checklist_hash(self) -> str | None:
        """Of a reward log: the hash of the checklist under which the reward was computed."""
        return name if isinstance(name := self.data.get("checklist_hash"), str) else None

    @property
    def shaping(self) -> tuple[tuple[str, float | None], ...]:
        """Of a reward log: the values from the score to the reward, by name; empty if the reward is the score."""
        value = self.data.get("shaping") if self.kind == "rewards" else None
        pairs = [] if value is None else value if isinstance(value, list) else [value]
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise SampleError(f"{self.where}: shaping must be a list of [name, value], got {value!r:.80}.")
        return tuple((name, finite_or_none(f"{self.where}: shaping, {name}", number)) for name, number in pairs)

    @property
    def pair(self) -> dict[str, Any]:
        """Of a preference pair: the rejected text, both scores, and the items that differ."""
        if self.kind != "pairs":
            return {}
        numbers = {
            name: finite_or_none(f"{self.where}: {name}", self.data.get(name))
            for name in ("score_chosen", "score_rejected")
        }
        rejected = shown_completion(self.data["rejected"]) or ""
        return {"rejected": rejected, **numbers, "flipped": self.data.get("flipped") or []}

    def asked(self, checklist: Checklist) -> ScoredText:
        """The same text with its `sample`. Raises [`SampleError`] for columns that a judge cannot be asked about."""
        sample = self.columns.sample_of(self.data, self.where, checklist)
        if self.kind == "rewards":  # the text that was judged, with or without thinking, and what is known of it
            known = self.data.get("state") in get_args(TargetState)
            state: TargetState = self.data["state"] if known else "answered"
            sample = replace(sample, target=self.data["completion"], state=state)
        return replace(self, sample=sample)


def scored_text(
    row: Row,
    number: int,
    kind: Kind,
    columns: Columns | None = None,
    *,
    id_key: str | None = None,
    group_key: str | None = None,
) -> ScoredText:
    """The text of a row: the one place where a row becomes a [`ScoredText`].

    Args:
        row ([`Row`]): The row.
        number (`int`): The number of the row, its id if it has no other.
        kind (`str`): The kind of the file; see [`kind_of_row`].
        columns ([`Columns`], *optional*): The columns of the file. Defaults to those of the row.
        id_key (`str`, *optional*): Column of the id. Defaults to `id`. The rows of a reward log are numbered.
        group_key (`str`, *optional*): Column of the group. Defaults to step and prompt in a log, otherwise the id.

    Raises:
        SampleError: If a column is missing, or a cell has another value than a score or a number.
    """
    data, where = row.data, row.where
    columns = columns or Columns.of(data, images="ignore")
    step, reward = None, None
    if kind == "rewards":
        step = data["step"] if isinstance(data.get("step"), int) else 0
        reward = finite_or_none(f"{where}: reward", data.get("reward"))
        columns = _columns_of_log(columns, data, where)
    name = None if kind == "rewards" else own_id(data, id_key)
    text = ScoredText(
        str(number) if name is None else name,
        where,
        score_from(data.get(_SCORES[kind]), where) if kind in _SCORES else None,
        step=step,
        reward=reward,
        data=data,
        kind=kind,
        columns=columns,
        number=row.number,
        has_id=name is not None,
    )
    if group_key is not None:
        return replace(text, group=_named_value(data, group_key, "--group-key", where))
    if step is None:
        return text
    group = data.get("group")
    return replace(text, group=f"{step}\n{group if isinstance(group, str) and group else text.prompt_key}")


def _columns_of_log(columns: Columns, data: Mapping[str, Any], where: str) -> Columns:
    """How a line of a reward log is read. An image that the judge saw has its hash there. A reward that ignored images
    logged descriptions (`<bytes 6, sha256 …>`) or the names of files, so its line is read without them."""
    if columns.images == "ignore":
        return columns
    if data.get(COMPLETION_IMAGES):
        raise SampleError(
            f"{where}: the judge saw {len(data[COMPLETION_IMAGES])} images in the completion, which are not in the "
            "log; judge its text alone with --images ignore."
        )
    _, given = image_column(data)
    _, images = with_places(messages_in(data.get(PROMPT)), given)
    return columns if any(map(is_logged, (*given, *images))) else replace(columns, images="ignore")


def own_id(data: Mapping[str, Any], key: str | None = None) -> str | None:
    """The id in a row; None if it has none, so that its number is its id."""
    value = data.get(key or ID)
    return None if value in (None, "") else str(value)


def kind_of_row(data: Mapping[str, Any]) -> Kind | None:
    """The kind of a file whose first row this is; None if the row is not a scored text."""
    if SCORE_COLUMN in data:
        return "scored"
    if all(name in data for name in REWARDS):
        return "rewards"
    return "pairs" if all(name in data for name in PAIRS) else None


class ScoredFile:
    """A file of scored texts, which are read as a stream.

    Args:
        path (`Path`): A .jsonl, .csv or .parquet file. A reward log includes the files of the other ranks.
        id_key, group_key (`str`, *optional*): Columns of ids and groups; see [`scored_text`].
        output (`Path`, *optional*): The file to which the rows will be written; see [`read_rows_for`].
        unscored (`bool`, *optional*, defaults to `False`): Rows without the column of the score are read too, as texts
            without a score.
        named (*optional*): The other columns, as in [`Columns.of`]. Images are ignored by default.
    """

    def __init__(
        self,
        path: Path,
        *,
        id_key: str | None = None,
        group_key: str | None = None,
        output: Path | None = None,
        unscored: bool = False,
        **named: Any,
    ):
        self.path, self.id_key, self.group_key = path, id_key, group_key
        self.output, self.unscored = output, unscored
        self.named = {"images": "ignore", **named}

    @cached_property
    def first(self) -> Row:
        """The first row. Raises [`SampleError`] for a file without rows."""
        row = next(self._rows(self.path), None)
        if row is None:
            raise SampleError(f"{self.path} has no rows.")
        return row

    @cached_property
    def kind(self) -> Kind:
        """The kind of the file. Raises [`SampleError`] for rows of another kind."""
        if kind := kind_of_row(self.first.data) or ("scored" if self.unscored else None):
            return kind
        columns = ", ".join(map(repr, self.first.data)) or "no columns"
        raise SampleError(f"{self.first.where}: the row has {columns}; expected {_KINDS}.")

    @property
    def paths(self) -> list[Path]:
        """The file, and for a reward log the files of the other ranks."""
        others = other_ranks(self.path)
        try:
            return [self.path, *others] if others and self.kind == "rewards" else [self.path]
        except SampleError:  # reading the file reports the error
            return [self.path]

    @cached_property
    def columns(self) -> Columns:
        """The columns of the file, by its first row."""
        return Columns.of(self.first, **self.named)

    def count(self) -> int:
        """Number of rows."""
        return sum(map(_count, self.paths))

    def counted(self) -> Iterator[tuple[ScoredText, bool]]:
        """The texts, and whether each is part of the training run: False in a reward log for evaluations, and for
        steps that a later start of the run did again. Such rows are in groups of their own. To find these starts, the
        log is read twice."""
        starts = starts_in(*self.paths) if self.kind == "rewards" else None
        for text in self:
            if starts is None or starts.count(text.data):
                yield text, True
            else:
                apart = f"{starts.repeated(text.data)} {bool(text.data.get('evaluation'))}"
                yield replace(text, group=f"{text.group}\n{apart}"), False

    def __iter__(self) -> Iterator[ScoredText]:
        kind, columns, scored = self.kind, self.columns, self.kind == "scored" and not self.unscored
        named = [*(self.named.get("inputs") or ()), *filter(None, (self.named.get("target"), self.id_key))]
        for number, row in enumerate(chain.from_iterable(map(self._rows, self.paths)), start=1):
            for name in named if scored else ():
                if name not in row.data:
                    has = ", ".join(map(repr, row.data))
                    raise SampleError(f"{row.where}: column {name!r} not found; the row has {has}.")
            if scored:
                require_scores(row.data, row.where)
            yield scored_text(row, number, kind, columns, id_key=self.id_key, group_key=self.group_key)

    def _rows(self, path: Path) -> Iterator[Row]:
        return read_rows(path) if self.output is None else read_rows_for(path, self.output)


def _count(path: Path) -> int:
    if input_format(path) != ".jsonl":
        return sum(1 for _ in read_rows(path))
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def read_scored(path: str | Path, **options: Any) -> list[ScoredText]:
    """The rows of a scored file that have a score, with unique ids.

    Args:
        path (`str` or `Path`): .jsonl, .csv or .parquet with a `checklist_score` column.
        options (*optional*): Further arguments of [`ScoredFile`], such as `id_key`, `group_key`, `checklist` (only
            needed for options) and `shared`.

    Raises:
        SampleError: If the file has no scores, a column is missing, or ids are not unique.
    """
    file = ScoredFile(Path(path), **options)
    require_scores(file.first.data, file.first.where)
    texts: list[ScoredText] = []
    places: dict[str, str] = {}
    key = file.id_key or ID
    for text in file:
        if file.id_key is not None and not text.has_id:
            _named_value(text.data, file.id_key, "--id-key", text.where)
        if text.id in places:
            raise SampleError(
                f"{text.where}: {key!r} is {text.id!r}, as in {places[text.id]}; ids must be unique (--id-key)."
            )
        places[text.id] = text.where
        if text.score is not None:
            _ = text.items  # raises for an item whose options are unknown
            texts.append(text)
    if not texts:
        raise SampleError(f"{path} has no scored rows.")
    return texts


def list_in(text: ScoredText, name: str) -> list[Any]:
    """A list in a row, empty if the row has none. Raises [`SampleError`] for another value."""
    value = text.data.get(name)
    if value is not None and not isinstance(value, list):
        raise SampleError(f"{text.where}: {name} must be a list, got {type(value).__name__} {value!r:.40}.")
    return value or []


def shown_prompt(value: Any) -> str | None:
    """A prompt as text: chat messages as "role: text" paragraphs, one user message alone as its text."""
    value, _ = with_places(messages_in(value))
    if value is None or isinstance(value, str):
        return value
    try:
        input, history = prompt_text(value, images="ignore")
    except SampleError:
        return str(value)
    return input if history is None else "\n\n".join(filter(None, (history, input and f"user: {input}")))


def shown_completion(value: Any) -> str | None:
    """A completion as text, with its thinking. Of messages without an answer, all are shown."""
    value, _ = with_places(messages_in(value))
    if value is None or isinstance(value, str):
        return value
    try:
        shown: dict[str, Any] = {"keep_thinking": True, "images": "ignore"}
        return completion_text(value, **shown) or completion_text(value, part="transcript", **shown)
    except SampleError:
        return str(value)


def answer_given(item: ChecklistItem, line: ItemScore) -> ItemAnswer | None:
    """The judge's answer; None if unanswered."""
    if line.unanswered is not None or line.answer is None:
        return None
    value = item.values.get(line.answer)
    probabilities = line.probabilities
    return ItemAnswer(
        line.answer, value, value if probabilities is None else expected(item.values, probabilities), probabilities
    )


def stored_checklist(
    score: Score | None, column: Checklist | None, where: str, shared: bool = False
) -> Checklist | None:
    """The checklist of a stored row.

    Args:
        score ([`Score`], *optional*):
            The stored score.
        column ([`Checklist`], *optional*):
            The row's checklist column, which may have other weights or questions than the score. If the score was
            computed on a scale, the column is put on this scale. Defaults to the questions of the score.
        where (`str`):
            The row, for errors.
        shared (`bool`, *optional*, defaults to `False`):
            The column is a checklist that the user gave for all rows, which keeps its weights.

    Raises:
        SampleError: If the questions of the score have options whose values are unknown.
    """
    if score is None:
        return column
    if column is None:
        return Checklist(items=_items(score, None, where))
    known = {item.id for item in column.items}
    for line in score.items:
        if line.id not in known and line.probabilities is not None and "yes" not in line.probabilities:
            scaled = next(item for item in _items(score, column, where) if item.id == line.id)
            candidate = on_scale(column, scaled.options or ())
            column = candidate if line.id in {item.id for item in candidate.items} else column
            break
    return column if shared else as_scored(column, score)


def _items(score: Score, checklist: Checklist | None, where: str) -> tuple[ChecklistItem, ...]:
    """The items of a score, with the weights of the score, and the options, checks and scopes of `checklist`.

    Raises:
        SampleError: For an item with options whose values are unknown.
    """
    items = as_scored(checklist, score).items if checklist is not None else ()
    known = {item.id: item for item in items} | dict(zip(item_keys(items), items, strict=True))
    try:
        found = tuple(
            _item(key, line, known, where) for key, line in zip(item_keys(score.items), score.items, strict=True)
        )
    except ValidationError as error:
        raise SampleError(f"{where}: an item of the score has no valid question: {one_sentence(error)}") from None
    for item, line in zip(found, score.items, strict=True):
        _check_labels(item, line, where)
    return found


def _check_labels(item: ChecklistItem, line: ItemScore, where: str) -> None:
    """Check that the stored answer and probabilities are about the labels of the item."""
    labels = item.values.keys()
    for given in (line.probabilities, line.uncalibrated):
        if given is not None and given.keys() != labels:
            raise SampleError(
                f"{where}: item {line.id} ({line.question!r:.60}) has probabilities of {', '.join(given)}; expected "
                f"those of {', '.join(labels)}."
            )
    if line.answer is not None and line.answer not in labels:
        raise SampleError(
            f"{where}: item {line.id} ({line.question!r:.60}) has the answer {line.answer!r:.60}; allowed: "
            f"{', '.join(labels)}."
        )


def _item(key: str, line: ItemScore, known: Mapping[str, ChecklistItem], where: str) -> ChecklistItem:
    stated = known.get(key) or known.get(line.id)
    if stated is not None and worded(stated.question) == worded(line.question):
        return stated
    labels = list(line.probabilities or ([] if line.answer is None else [line.answer]))
    item = ChecklistItem(
        id=line.id, question=line.question, weight=line.weight, required=line.required, category=line.category
    )
    if set(labels) <= {YES, NO}:
        return item
    # The scorer may have put yes/no questions on an ordinal scale; the checklist column has them without options.
    scale = ordinal_scale(len(labels)) if len(labels) > 1 else ()
    if labels == [option.label for option in scale]:
        return item.model_copy(update={"options": scale})
    raise SampleError(
        f"{where}: item {line.id} ({line.question!r:.60}) is answered by {', '.join(labels)}, but the values of these "
        "labels are unknown; pass the checklist with --checklist-key or --checklist."
    )


def as_scored(checklist: Checklist, score: Score | None) -> Checklist:
    """The checklist column of a stored row with the weights of its score: those of `score --weights` or of another
    checklist are not in the column."""
    lines = {} if score is None else dict(zip(item_keys(score.items), score.items, strict=True))
    items = []
    for key, item in zip(item_keys(checklist.items), checklist.items, strict=True):
        line = lines.get(key)
        if line and (line.weight, line.required) != (item.weight, item.required):
            if worded(line.question) == worded(item.question):
                item = item.model_copy(update={"weight": line.weight, "required": line.required})
        items.append(item)
    return checklist.model_copy(update={"items": tuple(items)})


def kind_of(item: ChecklistItem) -> str:
    """The kind of an item. Items are compared within a kind: the same possible answers with the same values."""
    if item.options is None:
        return YES_NO
    return " | ".join(f"{label}={'na' if value is None else f'{value:g}'}" for label, value in item.values.items())


def by_levels(items: Iterable[ChecklistItem]) -> dict[str, ChecklistItem]:
    """For items whose options have the same values in other words, such as rubrics that describe the levels of each
    task: by their kind, the item with "level 1", "level 2" and so on in place of the words."""
    alike: dict[tuple[float | None, ...], dict[str, ChecklistItem]] = {}
    for item in items:
        if YES not in item.values and len({*item.values.values()} - {None}) == len(item.values):
            alike.setdefault(tuple(item.values.values()), {})[kind_of(item)] = item
    found: dict[str, ChecklistItem] = {}
    for values, same in alike.items():
        options = tuple(Option(label=f"level {number}", value=value) for number, value in enumerate(values, start=1))
        found |= {kind: item.model_copy(update={"options": options}) for kind, item in same.items() if len(same) > 1}
    return found


def _named_value(data: Mapping[str, Any], key: str, option: str, where: str) -> str:
    if data.get(key) is None:
        keys = ", ".join(map(repr, data)) or "no columns"
        raise SampleError(f"{where}: {key!r} is missing or empty ({option}); the row has {keys}.")
    return str(data[key])
