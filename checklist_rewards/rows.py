"""The values in a row: what a writer, a judge and a policy get from it.

A [`Sample`] is a text to judge, a [`Request`] a prompt to write a checklist for, and a [`Pool`] several texts about
one prompt. [`Columns`] makes them from a row, before any model is loaded. An error names the row, the column and the
value. Commands, pipelines, datasets and labels (`judges/labels.py`) read their rows with it.
[`score_from`] parses the score in a row of a scored file.

A column named by the user must exist in every row. Otherwise the first row decides between the two usual names
(`prompt` or `input`, `target` or `completion`), and all rows must have the same column: if the first row has no input,
no row may have one. Chat messages are handled as in training (`chat.py`).

Of a target, the answer is judged, without its thought. Text that a person has written (inputs, histories, references)
is never changed. An input that a chat template has rendered to a string is split into its messages.

The images of a prompt are in its messages, in the columns `image` and `images`, or both (`with_images`).
Further fields of a writer prompt (reference, candidates, ...) are in columns of the same name, optional unless named.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import ValidationError

from checklist_rewards.chat import CompletionReader, Message, Target, completion_text, prompt_text, rendered_turns
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, ConfigError, SampleError, warn_once
from checklist_rewards.files.cells import decoded, messages_in, only_text
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import SCORE_COLUMN, Row, RowWriter, read_rows, write_rows
from checklist_rewards.images import Image, clean, file_in, has_images, image_of, images_in, is_plain, parts, shown
from checklist_rewards.messages import (
    PROMPT_COLUMNS,
    Images,
    chat_messages,
    images_of,
    speakers,
    with_images,
    with_moved,
    with_places,
    without_images,
)
from checklist_rewards.scores import Score, TargetState, Verdict
from checklist_rewards.validation import one_sentence

PROMPT, HISTORY, REFERENCE, CANDIDATES = "prompt", "history", "reference", "candidates"
CONTEXT = (REFERENCE, HISTORY, "context", "chosen", "rejected", CANDIDATES)
"""The fields of a [`Request`] other than its input."""
INPUTS, TARGETS = (PROMPT, "input"), ("target", "completion")
IMAGE_COLUMNS = ("images", "image")
"""Columns in which data sets have the images of a prompt: several, or one."""
MEDIA = ("audio", "video", "videos")
"""Columns in which data sets have other media of a prompt."""
_PATHS = ("path", "url", "image", "image_url")
"""Keys of a cell whose value may be the path of an image."""
ANSWERS = ("filtered_resps", "resps", "output", "response", "generated_text", "prediction")
"""Columns in which evaluation tools have the answer of a model; their `target` is the gold answer."""
_READERS = {images: CompletionReader(images=images) for images in get_args(Images)}


@dataclass(frozen=True, slots=True)
class Sample:
    """One target to be scored.

    Args:
        checklist: a [`Checklist`], or anything that [`Checklist.parse`] takes.
        target (`str`): the text being scored; may be empty.
        input (`str`, *optional*): what was asked.
        reference (`str`, *optional*): a known good answer, shown to the judge if its prompt has `{reference}`, and to
            an encoder that was trained with references.
        history (`str`, *optional*): earlier turns, shown to the judge if its prompt has `{history}`.
        state (`str`, *optional*, defaults to `"answered"`): what the policy made of its turn; see [`Target`]. A blank
            target is `empty` in any case.
        messages (sequence of [`Message`]): the messages of a target that has several, for items with a scope
            (`scoped.py`). Without them, the target counts as one message of the assistant.
        checked (mapping, *optional*): the verdicts of code checks that have run already, by [`ChecklistItem.check`];
            see [`ChecklistScorer.checked`].
        images (sequence, *optional*): the images of input and history, as [`image_of`] accepts them. If neither text
            has the mark of an image, they are put in front of the input. By default, those whose marks they have.
        target_images (sequence of [`Image`], *optional*): the images of the target and its messages, such as those
            that tools returned.
    """

    checklist: Any
    target: str
    input: str | None = None
    reference: str | None = None
    history: str | None = None
    state: TargetState = field(default="answered", kw_only=True)
    messages: Sequence[Message] = field(default=(), kw_only=True, repr=False)
    checked: Mapping[str, Verdict] | None = field(default=None, kw_only=True, repr=False)
    images: Sequence[Image] = field(default=(), kw_only=True, repr=False)
    target_images: Sequence[Image] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Put the images into the input, and clean the other texts of marks of images that are not theirs."""
        told = [text for message in self.messages for text in (message.text, message.shown)]
        if not self.images and all(map(is_plain, (self.target, self.input, self.history, self.reference, *told))):
            return
        _hold(self)
        own = self.target_images
        object.__setattr__(self, "target", _cleaned(self.target, own))
        object.__setattr__(self, REFERENCE, _cleaned(self.reference))
        messages = [m._replace(text=clean(m.text, own), shown=clean(m.shown, own)) for m in self.messages]
        object.__setattr__(self, "messages", tuple(messages))

    @classmethod
    def of(
        cls,
        checklist: Any,
        target: Target,
        input: str | None = None,
        reference: str | None = None,
        history: str | None = None,
        images: Sequence[Image] = (),
    ) -> Sample:
        """The sample of an answer that was read from a completion, about a prompt with these images."""
        return cls(
            checklist,
            target.text,
            input,
            reference,
            history,
            state=target.state,
            messages=target.messages,
            images=images,
            target_images=target.images,
        )

    @property
    def target_state(self) -> TargetState:
        """The state, `empty` if the text is blank."""
        return "empty" if self.state in ("answered", "cut") and not self.target.strip() else self.state


@dataclass(frozen=True, slots=True)
class Request:
    """The input of a generator. Its prompt uses the fields for which it has placeholders.

    Args:
        input (`str`): the instruction that responses follow; must not be blank.
        reference (`str`, *optional*): a known good answer.
        history (`str`, *optional*): earlier turns of the conversation.
        context (`str`, *optional*): further material of the task, such as a source document.
        candidates (sequence of `str`, *optional*): responses to compare; ranked best first if the prompt needs a
            ranking.
        chosen, rejected (`str`, *optional*): a better and a worse response; give both or neither.
        images (sequence, *optional*): the images of input and history, as in [`Sample`].
    """

    input: str
    reference: str | None = None
    history: str | None = None
    context: str | None = None
    candidates: Sequence[str] = ()
    chosen: str | None = None
    rejected: str | None = None
    images: Sequence[Image] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Put the images into the input, and clean the other texts of foreign marks."""
        others = ("reference", "context", "chosen", "rejected")
        texts = [getattr(self, name) for name in ("input", HISTORY, *others)]
        if not self.images and all(map(is_plain, (*texts, *self.candidates))):
            return
        _hold(self)
        for name in others:
            object.__setattr__(self, name, _cleaned(getattr(self, name)))
        object.__setattr__(self, CANDIDATES, tuple(map(_cleaned, self.candidates)))


class Candidate(str):
    """A text of a policy, together with the answer in it, which is what is judged.

    A plain string is a candidate too. Its answer is then found in the text alone.

    Args:
        text (`str`): the full text.
        target ([`Target`], *optional*): the answer and its state.
    """

    __slots__ = ("target",)
    target: Target

    def __new__(cls, text: str, target: Target | None = None) -> Self:
        """Read the answer from the text, if it is not given."""
        self = super().__new__(cls, text)
        if target is None:
            target = text.target if isinstance(text, Candidate) else _READERS["show"].read(text)
        self.target = target
        return self

    def __reduce__(self) -> tuple[type[Candidate], tuple[str, Target]]:
        """Copied and pickled with the answer."""
        return Candidate, (str(self), self.target)


@dataclass(frozen=True, slots=True)
class Pool:
    """Several texts about one input, before scoring: candidates, or honest responses.

    Args:
        checklist: a [`Checklist`], or any value that [`Checklist.parse`] accepts.
        candidates (sequence of `str`, *optional*): the texts; a [`Candidate`] has its answer with it.
        input, reference, history (`str`, *optional*): context for the judge, as in [`Sample`].
        images (sequence, *optional*): the images of input and history, as in [`Sample`].
    """

    checklist: Any
    candidates: Sequence[str] = ()
    input: str | None = None
    reference: str | None = None
    history: str | None = None
    images: Sequence[Image] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Put the images into the input."""
        if self.images or not (is_plain(self.input) and is_plain(self.history)):
            _hold(self)

    @property
    def samples(self) -> list[Sample]:
        """The answers of the candidates, in order."""
        return [
            Sample.of(self.checklist, Candidate(text).target, self.input, self.reference, self.history, self.images)
            for text in self.candidates
        ]


def _hold(value: Sample | Request | Pool) -> None:
    """Set the images of a new value to those that were given and those in its input and history. If neither has an
    image, the given ones are put in front of the input."""
    given = [image_of(image, f"image {number}") for number, image in enumerate(value.images, start=1)]
    object.__setattr__(value, "input", _with_images(given, value.input, value.history))
    object.__setattr__(value, "images", tuple(dict.fromkeys([*images_in(value.history, value.input), *given])))


def _with_images(images: Sequence[Image], input: str | None, history: str | None) -> str | None:
    """An input with images in front, if neither input nor history has one."""
    if not images or has_images(input) or has_images(history):
        return input
    return "".join(image.mark for image in images) + (input or "")


def _cleaned(text: Any, images: Sequence[Image] = ()) -> Any:
    """A text without the marks of other images; other values unchanged. The type of a plain text is kept."""
    return text if is_plain(text) else clean(text, images)


@dataclass(frozen=True)
class Columns:
    """The columns of a file of rows. Create it with [`Columns.of`]."""

    inputs: tuple[str, ...]
    """Input columns. If empty, the judge sees no input."""
    target: str = TARGETS[0]
    checklist: str = "checklist"
    reference: str | None = None
    """Column of the reference answer shown to the judge."""
    history: str | None = HISTORY
    """Column of the conversation before the input, for inputs that are not chat messages."""
    writer: Mapping[str, str] = field(default_factory=dict)
    """Further fields of [`Request`] for the writer prompt: field name to column."""
    shared: Checklist | None = None
    """A checklist for all rows, used instead of the column."""
    optional: frozenset[str] = frozenset()
    """Columns not named by the user; rows may lack them."""
    blank_is_null: bool = False
    """Treat an empty cell as null, because CSV has no null."""
    images: Images = "show"
    """What to do with the images of a row: show them to the judge, or ignore them."""
    folder: Path | None = Path()
    """Where relative paths of images of a prompt begin; None if paths are refused. Those of a target always are."""
    named: bool = False
    """Whether the user named the input columns. Otherwise a row is refused if a part of its prompt is elsewhere."""
    target_named: bool = True
    """Whether the user named the target column. Otherwise a row is refused if `target` may be its gold answer."""

    @classmethod
    def of(
        cls,
        row: Row | Mapping[str, Any],
        *,
        inputs: Sequence[str] | None = None,
        target: str | None = None,
        checklist: str | None = None,
        reference: str | None = None,
        history: str | None = None,
        writer: Mapping[str, str | None] | None = None,
        shared: Checklist | None = None,
        images: Images = "show",
    ) -> Columns:
        """The columns of a file by its first row; None means "not named by the user".

        `writer` has one entry per field that the writer prompt uses.
        """
        first = row.data if isinstance(row, Row) else row
        usual = [key for key in INPUTS if key in first][:1]
        fields = {name: key or name for name, key in (writer or {}).items()}
        unnamed = {name for name, key in (writer or {}).items() if key is None} | ({HISTORY} if not history else set())
        return cls(
            tuple(inputs or usual),
            target or next((key for key in TARGETS if key in first), TARGETS[0]),
            checklist or "checklist",
            reference,
            history or HISTORY,
            fields,
            shared,
            frozenset(unnamed - set(filter(None, (reference, history)))),
            isinstance(row, Row) and row.csv,
            images,
            row.folder if isinstance(row, Row) else Path(),
            bool(inputs),
            target is not None,
        )

    @classmethod
    def each(cls, path: str | Path, **named: Any) -> Iterator[tuple[Row, Columns]]:
        """The rows of a file, each with the columns of the file; `named` as in [`Columns.of`]."""
        columns: Columns | None = None
        for row in read_rows(path):
            columns = columns or cls.of(row, **named)
            yield row, columns

    def input_of(self, row: Mapping[str, Any], where: str) -> tuple[str | None, str | None]:
        """The input and the conversation before it, as text; several columns are joined by blank lines, skipping empty
        ones. "[image]" stands in place of an image."""
        input, history, _ = self.context_of(row, where)
        return input and shown(input), history and shown(history)

    def context_of(self, row: Mapping[str, Any], where: str) -> tuple[str | None, str | None, Sequence[Image]]:
        """The input, the conversation before it, and the images of both."""
        self._check_elsewhere(row, where)
        prompts = [self._prompt(row, key, where) for key in self.inputs]
        prompts, images = self._prompts_with_images(row, prompts, where)
        texts = [
            (None, None) if prompt is None else self._texts(key, prompt, where)
            for key, prompt in zip(self.inputs, prompts, strict=True)
        ]
        name = self.history
        before = None if name is None or self._absent(row, name) else self.get(row, name, "--history-key", where)
        if before == "[]" or _is_blank(before):  # a CSV file has an empty list as text
            before = None
        elif not isinstance(before, str):
            kind = "a string (put earlier chat messages into the input column)"
            raise SampleError(f"{where}: {self.history!r} must be {kind}, got {_shown(before)}.")
        history = joined([before and clean(before), *(history for _, history in texts)])
        input = texts[0][0] if len(texts) == 1 else joined([text for text, _ in texts])
        return _with_images(images, input, history), history, images

    def _prompts_with_images(
        self, row: Mapping[str, Any], prompts: list[Any], where: str
    ) -> tuple[list[Any], Sequence[Image]]:
        """The prompts of a row with its images, and all of these images. Those of the columns belong to the first
        prompt that is a conversation."""
        if self.images == "ignore":
            return prompts, ()
        given = images_of_row(row, where, self.folder)
        held = list(given)
        for place, prompt in enumerate(prompts):
            if not isinstance(prompt, list | tuple):
                continue
            try:
                prompts[place] = with_images(prompt, given, folder=self.folder)
            except SampleError as error:
                raise SampleError(f"{where}, {self.inputs[place]!r}: {error}") from None
            held += images_of(prompts[place])
            given = []
        return prompts, tuple(dict.fromkeys(held))

    def _check_elsewhere(self, row: Mapping[str, Any], where: str) -> None:
        """Refuse a row with a part of its prompt in a column that the judge does not see."""
        if self.named:
            return
        found = [key for key in INPUTS if not _is_blank(row.get(key))]
        if found and not self.inputs:
            raise SampleError(
                f"{where}: the row has an input in {found[0]!r}, but the first row has no such column; give every row "
                "the column, with null in rows without an input (or name it with --input-key)."
            )
        if found and all(_is_blank(row.get(key)) for key in self.inputs):
            raise SampleError(
                f"{where}: the row has an input in {found[0]!r}, but none in {self.inputs[0]!r}, the input column of "
                f"this file; put it there, or name the columns: --input-key {self.inputs[0]} --input-key {found[0]}."
            )
        if self.inputs == INPUTS[1:] and not _is_blank(row.get("instruction")):
            raise SampleError(
                f"{where}: the row has an 'instruction' too, so 'input' may be only a part of the prompt; name the "
                "columns: --input-key instruction --input-key input (or --input-key input alone)."
            )
        if self.images == "ignore":
            return
        similar = [] if self.inputs else [key for key in row if key.strip().lower() in INPUTS and row[key]]
        if similar:
            name = similar[0].strip().lower()
            raise SampleError(
                f"{where}: the judge would not see the column {similar[0]!r}; rename it to {name!r}, or name it with "
                "--input-key."
            )
        media = [key for key in MEDIA if key in row and not _is_blank(row[key])]
        if media:
            columns = " ".join(f"--input-key {key}" for key in self.inputs)
            advice = f", or name the columns that it sees: {columns}" if columns else ""
            raise SampleError(
                f"{where}: the row has media in {media[0]!r}, but a judge reads text and images only; remove the "
                f"column{advice}."
            )

    def _check_seen(self, row: Mapping[str, Any], where: str, input: str | None, checklist: Any) -> None:
        """Warn of what may be the input, if a judge sees none: the messages before an answer, or another column."""
        judged = not isinstance(checklist, Checklist) or any(item.check is None for item in checklist.items)
        if input is not None or self.named or not judged:
            return
        read = {self.target, self.checklist, self.reference, self.history, *self.writer.values()}
        if "user" in speakers(row.get(self.target))[:-1]:
            warn_once(
                where,
                self.target,
                "only the last answer in the conversation is judged, and items without a scope do not see the "
                f"messages before it; put these into the column {PROMPT!r}",
            )
        for key, value in row.items():
            has_text = isinstance(value, list | Mapping) or (isinstance(value, str) and " " in value.strip())
            if has_text and key not in read and key.strip().lower() in (*PROMPT_COLUMNS, "arguments"):  # of lm-eval
                sees = "the judge sees no input; if this is the prompt, name it with --input-key"
                warn_once(where, key, f"{sees}; if it is inside, put it into the column {PROMPT!r}")

    def request_of(self, row: Mapping[str, Any], where: str) -> Request:
        """The row as a [`Request`] for a checklist. Raises [`SampleError`] if the input is blank."""
        if not self.inputs:
            self.get(row, PROMPT, "--input-key", where)
        input, history, images = self.context_of(row, where)
        if input is None or not input.strip():
            raise SampleError(
                f"{where}: the input ({', '.join(self.inputs)}) is blank; a checklist requires an input."
            )
        values = {
            name: (self.list_of if name == CANDIDATES else self.get)(row, key, f"--{name}-key", where)
            for name, key in self.writer.items()
            if not self._absent(row, key)
        }
        return Request(input, history=history, images=images, **fields_of(values, where, self.writer))

    def messages_of(self, row: Mapping[str, Any], where: str) -> str | list[dict[str, str]] | None:
        """The prompt as the policy receives it, without the images of columns: chat messages are returned as chat
        messages. Raises [`SampleError`] for images in the messages of one of several columns, which have no place in
        their text."""
        value = messages_in(row.get(self.inputs[0])) if len(self.inputs) == 1 else None
        if isinstance(value, str):
            return value
        if value is None:
            for key in self.inputs if self.images == "show" else ():
                if not isinstance(prompt := messages_in(row.get(key)), str) and with_places(prompt)[1]:
                    raise SampleError(
                        f"{where}, {key!r}: an image in a message has no place in the text of several columns; name "
                        "one input column, or put the images into the column 'images'."
                    )
            return replace(self, images="ignore").input_of(row, where)[0]
        input, history = self.input_of(row, where)  # raises if the value is not a conversation
        return chat_messages(value) if input or history else None

    def asked_of(self, row: Mapping[str, Any], where: str) -> Any:
        """[`messages_of`] with the images of the row, unless they are ignored, for a model that answers the prompt."""
        if self.images == "show" and (len(self.inputs) != 1 or row.get(self.inputs[0]) is None):
            input, _, images = self.context_of(row, where)
            if images:
                content = [
                    {"type": "text", "text": p} if isinstance(p, str) else {"type": "image", "image": p}
                    for p in parts(input or "")
                ]
                return [{"role": "user", "content": content}]
        prompt = self.messages_of(row, where)
        if prompt is None or self.images == "ignore":
            return prompt and without_images(prompt)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        [messages], images = self._prompts_with_images(row, [messages], where)
        return messages if images else prompt

    def sample_of(self, row: Mapping[str, Any], where: str, checklist: Any) -> Sample:
        """The row as a [`Sample`] with this checklist. Raises [`SampleError`] for invalid columns."""
        cells = [row.get(key) for key in (*self.inputs, self.target)]
        if self.blank_is_null and self.inputs and all(isinstance(c, str) and not c.strip() for c in cells):
            names = ", ".join(map(repr, (*self.inputs, self.target)))
            raise SampleError(f"{where}: {names} are blank; remove the row, or fill it.")
        if other := self.other_answer(row):
            raise SampleError(
                f"{where}: the row has an answer in {other!r} too, so {self.target!r} may be the gold answer; name "
                f"the column to score: --target-key {other} or --target-key {self.target}."
            )
        input, history, images = self.context_of(row, where)
        target, reference = self.target_of(row, where), self.reference_of(row, where)
        self._check_seen(row, where, input, checklist)
        return Sample.of(checklist, target, input, reference, history, images)

    def other_answer(self, row: Mapping[str, Any]) -> str | None:
        """A further column with an answer, so that `target`, which the user did not name, may be the gold answer."""
        known = {*self.inputs, self.checklist, self.reference, self.history, *self.writer.values()}
        unsure = not self.target_named and self.target == TARGETS[0] and self.target in row
        return next((key for key in ANSWERS if unsure and key not in known and not _is_blank(row.get(key))), None)

    def pool_of(self, row: Mapping[str, Any], where: str, candidates: Sequence[str] = ()) -> Pool:
        """The row as a [`Pool`] of these candidates. Raises [`SampleError`] for invalid columns."""
        input, history, images = self.context_of(row, where)
        checklist, reference = self.checklist_of(row, where), self.reference_of(row, where)
        self._check_seen(row, where, input, checklist)
        return Pool(checklist, candidates, input, reference, history, images=images)

    def target_of(self, row: Mapping[str, Any], where: str) -> Target:
        """The answer to score, as in training. Raises [`SampleError`] if the column is missing."""
        target = self.get(row, self.target, "--target-key", where)
        # A CSV file has the lists of lm-evaluation-harness as text.
        text = only_text(decoded(target) if self.target in ANSWERS[:2] else target, f"{where}: {self.target!r}")
        target = text if isinstance(text, str) else target
        opened = self._opened(row)
        try:
            if self.images == "show":
                target = with_images(target, what="a completion", folder=None)  # a policy may read no files
            return _READERS[self.images].read(target, opened=opened)
        except SampleError as error:
            raise _unread(where, self.target, target, error) from None

    def answer_of(self, row: Mapping[str, Any], completion: Any) -> Target:
        """What a completion answers to the prompt of a row. Raises [`SampleError`] unless it is text or messages."""
        return _READERS[self.images].read(completion, opened=self._opened(row))

    def checklist_of(self, row: Mapping[str, Any], where: str) -> Checklist | None:
        """The row's checklist; None if the column is null, for example after a failed generation."""
        if self.shared is not None:
            return self.shared
        value = self.get(row, self.checklist, "--checklist-key, or use --checklist FILE", where)
        if value is None or (value == "" and self.blank_is_null):
            return None
        return Checklist.parse(value, f"{where}, {self.checklist!r}")

    def checklist_place(self, where: str) -> str:
        """What an error about the checklist of a row names: the row, or the option of the checklist of all rows."""
        return where if self.shared is None else "--checklist"

    def list_of(self, row: Mapping[str, Any], key: str, option: str, where: str) -> Any:
        """`row[key]`, expected to be a list; CSV files hold it as JSON, or as Python or NumPy writes it."""
        value = self.get(row, key, option, where)
        found = None if value == "" and self.blank_is_null else decoded(value)
        if isinstance(found, str):
            raise SampleError(f"{where}: {key!r} must be a list or a JSON list, got {found!r:.60}.")
        return found

    def reference_of(self, row: Mapping[str, Any], where: str) -> str | None:
        """The row's reference answer, or None."""
        if self.reference is None or self._absent(row, self.reference):
            return None
        value = self.get(row, self.reference, "--reference-key", where)
        return fields_of({REFERENCE: value}, where, {REFERENCE: self.reference})[REFERENCE]

    @staticmethod
    def get(row: Mapping[str, Any], key: str, option: str, where: str) -> Any:
        """`row[key]`. If it is missing, raises [`SampleError`] with the row's columns and the option to set."""
        if key not in row:
            columns = ", ".join(map(repr, row)) or "no columns"
            raise SampleError(f"{where}: column {key!r} not found; the row has {columns} (set it with {option}).")
        return row[key]

    def _opened(self, row: Mapping[str, Any]) -> Any:
        """Whether the prompt of a row opens the thought of its completion."""
        prompt = messages_in(row.get(self.inputs[0])) if len(self.inputs) == 1 else None
        if isinstance(prompt, str) and rendered_turns(prompt) is None:  # it only mentions the marker at its end
            return None
        return _READERS["ignore"].opened(prompt)

    def _absent(self, row: Mapping[str, Any], key: str) -> bool:
        return key in self.optional and key not in row

    def _prompt(self, row: Mapping[str, Any], key: str, where: str) -> Any:
        return None if self._absent(row, key) else messages_in(self.get(row, key, "--input-key", where))

    def _texts(self, key: str, prompt: Any, where: str) -> tuple[str | None, str | None]:
        try:
            texts = prompt_text(prompt, images=self.images)
        except SampleError as error:
            raise _unread(where, key, prompt, error) from None
        of_file = self.named and self.folder is not None  # not the input of a request
        if of_file and key == self.inputs[-1] and speakers(prompt)[-1:] == ["assistant"]:
            warn_once(
                where,
                key,
                "the conversation ends with a message of the assistant, which is shown as part of the input; if it is "
                f"the answer, put the messages before it into the column {PROMPT!r}",
            )
        return texts


FIELDS = Columns(
    ("input",),
    reference=REFERENCE,
    writer={name: name for name in CONTEXT if name != HISTORY},
    optional=frozenset(["input", *CONTEXT]),
    named=True,
)
"""How rows are read that name the fields themselves: those of a pipeline."""
SENT = replace(FIELDS, folder=None)
"""How rows of requests are read: as `FIELDS`, but images are data URLs, because a request may read no file."""


def images_of_row(
    row: Mapping[str, Any], where: str, folder: str | Path | None = "", read: Callable[..., Image] = image_of
) -> list[Image]:
    """The images in the column `images` of a row, or in `image`. Raises [`SampleError`] for a value that is none, such
    as null in a list, and for a row with both columns."""
    column, images = image_column(row)
    both = [name for name in IMAGE_COLUMNS if not _is_blank(row.get(name))]
    if len(both) > 1:
        raise SampleError(f"{where}: the row has images in {both[0]!r} and in {both[1]!r}; keep one of the columns.")
    of = [f", image {number}" if len(images) > 1 else "" for number in range(1, len(images) + 1)]
    return [read(image, f"{where}, {column!r}{n}", folder) for n, image in zip(of, images, strict=True)]


def image_column(row: Mapping[str, Any]) -> tuple[str | None, list[Any]]:
    """The column of a row that has its images, and these images, as [`image_of`] accepts them."""
    column = next((name for name in IMAGE_COLUMNS if not _is_blank(row.get(name))), None)
    value = [] if column is None else decoded(row[column])
    return column, list(value) if isinstance(value, list | tuple) else [value]


@contextmanager
def write_rows_of(source: Path, output: Path) -> Iterator[RowWriter]:
    """[`write_rows`] for rows of a file in another folder: relative paths of images are written so that they begin in
    the folder of the output. See [`moved`]."""
    folder, to = source.parent, output.parent
    with write_rows(output) as rows:
        yield rows if os.path.realpath(folder) == os.path.realpath(to) else _Moving(rows, folder, to)


@dataclass(frozen=True)
class _Moving:
    """Writes the rows of another folder."""

    rows: RowWriter
    folder: Path
    to: Path

    def write(self, row: Mapping[str, Any]) -> object:
        """Append a row."""
        return self.rows.write(moved(row, self.folder, self.to))


def moved(row: Mapping[str, Any], folder: Path, to: Path) -> dict[str, Any]:
    """A row whose relative paths of images begin in another folder.

    Args:
        row (mapping): The row. Its images are in messages and in the columns of images.
        folder (`Path`): Where its paths begin.
        to (`Path`): Where they shall begin. Paths that name no file in `folder` are unchanged, and so are absolute
            paths, addresses and data URLs.
    """

    def cell(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return list(map(cell, value))
        if isinstance(value, Mapping):
            bare = value.get("bytes") is None  # with bytes, the path is only a name
            return {name: cell(inner) if bare and name in _PATHS else inner for name, inner in value.items()}
        if not isinstance(value, str) or os.path.isabs(value) or file_in(value, folder) is None:
            return value
        parts = Path(value).parts
        up = max((place for place, part in enumerate(parts, start=1) if part == ".."), default=0)
        begin = os.path.realpath(folder.joinpath(*parts[:up]))  # the rest keeps its names, which may be links
        with suppress(ValueError):  # on another drive
            begin = os.path.relpath(begin, os.path.realpath(to))
        return value if begin == "." else Path(begin, *parts[up:]).as_posix()

    changed: dict[str, Any] = {}
    for name, value in row.items():
        if name in IMAGE_COLUMNS:
            found = cell(given := decoded(value))
        elif isinstance(value, str) and value.lstrip()[:1] == "[":
            found = with_moved(given := messages_in(value), cell)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            found = with_moved(given := value, cell)
        else:
            continue
        if found is not given and found != given:
            text = isinstance(value, str) and not isinstance(found, str)
            changed[name] = json.dumps(found, ensure_ascii=False) if text else found
    return {**row, **changed}


def read_checklist(path: Path) -> Checklist:
    """The checklist in a JSON file. Raises [`ChecklistError`] naming the file."""
    try:
        text = read_text(path)
        value = read_value(text, path) if path.suffix.lower() == ".json" else text
    except ConfigError as error:
        raise ChecklistError(str(error)) from None
    return Checklist.parse(value, str(path))


def _unread(where: str, key: str, value: Any, error: SampleError) -> SampleError:
    """The error of a value that is no text: its type, or what is wrong with its messages."""
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        return SampleError(f"{where}, {key!r}: {error}")
    return SampleError(f"{where}: {key!r} must be a string or chat messages, got {_shown(value)}.")


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str | list) and not value)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"


def fields_of(values: Mapping[str, Any], where: str, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Fields of a [`Request`] from values of a row.

    Args:
        values (mapping): field to value: a string, which is not changed, or chat messages, of which the answer is
            used; for `candidates` a list of strings. None and empty strings count as missing.
        where (`str`): the row, for error messages.
        keys (mapping, *optional*): field to column name, for error messages.

    Raises:
        SampleError: If a value has another type.
    """
    fields: dict[str, Any] = {}
    for name, value in values.items():
        key = (keys or {}).get(name, name)
        if name == CANDIDATES:
            is_list = isinstance(value, Sequence) and not isinstance(value, str)
            if value is not None and not (is_list and all(isinstance(text, str) for text in value)):
                raise SampleError(f"{where}: {key!r} must be a list of strings, got {_shown(value)}.")
            fields[name] = tuple(value or ())
            continue
        try:
            fields[name] = (value if value is None or isinstance(value, str) else completion_text(value)) or None
        except SampleError as error:
            must = f"{where}: {key!r} must be a string or chat messages with roles, got {_shown(value)}"
            raise SampleError(f"{must} ({str(error).rstrip('.')}).") from None
    return fields


def joined(texts: Sequence[str | None]) -> str | None:
    """The nonblank texts joined by blank lines; None if there are none."""
    return "\n\n".join(text for text in texts if text and text.strip()) or None


def score_from(value: Any, where: str) -> Score | None:
    """Parse the score in a cell of a file.

    Args:
        value: A mapping, its JSON text (CSV), or None or "" if the row was not scored.
        where (`str`): The place to name in an error ("data.jsonl, line 3").

    Raises:
        SampleError: If the value is not a score.
    """
    try:
        value = _own_labels(json.loads(value) if isinstance(value, str) and value else value)
        return None if value in (None, "") else Score.model_validate(value)
    except ValidationError as error:
        raise SampleError(f"{where}: {SCORE_COLUMN} is not a score: {one_sentence(error, Score)}") from None
    except (ValueError, RecursionError) as error:
        raise SampleError(f"{where}: {SCORE_COLUMN} is not valid JSON ({error}); got {value!r:.60}.") from None


def require_scores(names: Iterable[Any], where: str) -> None:
    """Raise a [`SampleError`] if the column of scores is missing."""
    if SCORE_COLUMN not in (columns := list(names)):
        raise SampleError(
            f"{where}: column not found: {SCORE_COLUMN!r}; the columns are {columns}; score the file first "
            "(checklist-rewards score)."
        )


def _own_labels(value: Any) -> Any:
    """A score without the labels of other items. Parquet gives all mappings of a column the same keys, with null for
    the labels that an item does not have."""
    if not isinstance(value, Mapping) or not isinstance(value.get("items"), list):
        return value
    return {**value, "items": [_without_null_labels(item) for item in value["items"]]}


def _without_null_labels(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    own: dict[str, Any] = {}
    for name in ("probabilities", "uncalibrated"):
        entries: Any = item.get(name)
        # Arrow's maps are read as lists of pairs.
        pairs = list(entries.items()) if isinstance(entries, Mapping) else entries or [None]
        if isinstance(pairs, list) and all(isinstance(pair, tuple) for pair in pairs):
            own[name] = {label: p for label, p in pairs if p is not None} or None
    votes = item.get("votes")
    cleaned = {"votes": [_without_null_labels(vote) for vote in votes]} if isinstance(votes, list) else {}
    return {**item, **own} | cleaned
