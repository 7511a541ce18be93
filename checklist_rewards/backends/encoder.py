"""The encoder engine: a cross-encoder that reads a question beside a target and gives one number, the log-odds of yes.

A *packed* model (what `distill` makes of a BERT) reads all questions of a target in one row: the target once, then
every question behind it. The target sees itself, a question sees the target and itself, never another question, and
positions restart, so the answer is the one that a row with this question alone would give, for a fraction of the
tokens:

    target      t t t t           positions 0 1 2 3
    question 1  . . . . a a       positions         0 1
    question 2  . . . .     b b b positions         0 1 2

Of the two token types that a BERT has, tokens of a question that the target has, too, are of the second, and all
others of the first: word overlap says most about whether a thing is mentioned, and need not be learned from attention.

A *matched* model (the other thing that `distill` makes of a BERT) reads each question in a row with the target, where
both see each other. It marks the tokens that both have in the same way, all of them on either side. It computes the
target anew for every question, and agrees a little better with people for it (recipes/evaluate/README.md).

Any other cross-encoder with one output reads *pairs*, (question, target), as it was trained to. Which of the three a
model is, its `config.json` says under `LAYOUT`.

A target longer than the window is read in overlapping windows, and the largest log-odds of them counts: a thing is in
a text if it is in a part of it. A question that does not fit is unanswered("too_long"). Rows are sorted by length and
batched by tokens. In single precision, so that a batch's company does not show in an answer.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from checklist_rewards.backends.base import (
    TOO_LONG,
    Arrived,
    LabelRead,
    Messages,
    ReadGroup,
    ReadResult,
    Reply,
    Sampling,
)
from checklist_rewards.backends.models import model_identity, resolve_model
from checklist_rewards.errors import BackendError, ModelError

LAYOUT = "checklist_layout"
PACKED, MATCHED, PAIRS = "packed", "matched", "pairs"
WINDOW = 256
"""Tokens of a target that are read at once, special tokens included."""
MAX_QUESTION = 128
_ROW_TOKENS = 1024
_BATCH_TOKENS = 4096
_NOT_FINITE = "not_finite"


class Row(NamedTuple):
    """What stands in one row: a window of a target, and questions with the place that each answer belongs to."""

    target: list[int]
    questions: list[tuple[Any, list[int]]]
    kinds: list[int] | None = None
    """Of a pair, which stands in `target` with its question, the type of every token: 0 for the first text, 1 for the
    second; where tokens are matched, 1 for those that both have."""

    @property
    def length(self) -> int:
        """Tokens, padding excluded."""
        return len(self.target) + sum(len(tokens) for _, tokens in self.questions)


class EncoderBackend:
    """A cross-encoder with one output, on the GPU if there is one.

    Args:
        model (`str`): a folder or a Hub id.

    Raises [`ModelError`] if the model cannot be loaded or has not exactly one output.
    """

    chunk_reads = 512

    def __init__(self, model: str):
        path = resolve_model(model)
        self.identity = model_identity(model)
        self._lock = threading.Lock()  # trainers may score from several threads; the engine is one
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path)
            self.model: Any = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"model {model!r} cannot be loaded as an encoder: {reason}") from error
        if self.model.config.num_labels != 1:
            raise ModelError(
                f"model {model!r} has {self.model.config.num_labels} outputs; an encoder judge has one, the log-odds "
                "of yes."
            )
        self.model.to(self.device).eval()

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]: of a group the prefix is the target and the tails are the questions. Labels are yes, no."""
        if tuple(labels) != ("yes", "no"):
            raise ModelError(f"an encoder answers yes or no; it was asked for {', '.join(labels)}.")
        rows, sizes = rows_of(self.tokenizer, self.model, [(group.prefix, group.tails) for group in groups])
        best: dict[Any, float] = {}
        broken = set()
        try:
            for batch in batches(rows, _BATCH_TOKENS):
                with self._lock, torch.inference_mode():
                    found = logits(self.model, batch).float().tolist()
                places = (place for row in batch for place, _ in row.questions)
                for place, value in zip(places, found, strict=True):
                    best[place] = max(value, best.get(place, -math.inf))
                    if not math.isfinite(value):
                        broken.add(place)
        except (RuntimeError, MemoryError) as error:
            raise BackendError(f"the encoder failed: {str(error).strip().splitlines()[0]}") from error
        reads = [
            tuple(
                LabelRead(None, _NOT_FINITE) if (group, tail) in broken else _label_read(best.get((group, tail)))
                for tail in range(len(asked.tails))
            )
            for group, asked in enumerate(groups)
        ]
        alone = sum(row.length + (len(row.questions) - 1) * len(row.target) for row in rows)
        return ReadResult(reads, alone, sum(row.length for row in rows), sizes)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """An encoder writes nothing. Raises [`ModelError`]."""
        raise ModelError("an encoder answers questions and writes nothing; name another model to write with.")


def _label_read(value: float | None) -> LabelRead:
    if value is None:
        return LabelRead(None, TOO_LONG)
    return LabelRead((-_softplus(-value), -_softplus(value)))


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def rows_of(
    tokenizer: Any, model: Any, groups: Sequence[tuple[str, Sequence[str]]], *, window: int = WINDOW
) -> tuple[list[Row], int]:
    """The rows to be read for targets and their questions.

    Args:
        tokenizer: the model's.
        model: decides the layout, see the module.
        groups (sequence of `(target, questions)`).
        window (`int`, *optional*, defaults to `256`): tokens of a target per row, at most what the model has positions
            for.

    Returns:
        `(list[Row], int)`: the rows, whose questions' places are (group, question); and the fewest tokens that could
        be read: each target once, each question once. A question of more than 128 tokens is in no row.
    """
    limit = min(
        tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    )
    window = min(window, limit)
    asked = list(dict.fromkeys(question for _, questions in groups for question in questions))
    known = dict(zip(asked, _tokens(tokenizer, asked), strict=True))
    targets = _tokens(tokenizer, [target for target, _ in groups])
    rows: list[Row] = []
    fewest = 0
    for group, ((target, questions), tokens) in enumerate(zip(groups, targets, strict=True)):
        fitting = [index for index, question in enumerate(questions) if len(known[question]) <= MAX_QUESTION]
        fewest += len(tokens) + 2 + sum(len(known[questions[index]]) + 2 for index in fitting)
        layout = layout_of(model)
        if layout == PACKED:
            places = [((group, index), _framed(tokenizer, known[questions[index]])) for index in fitting]
            for part in _windows(tokens, window - 2):
                framed = _framed(tokenizer, part)
                rows += [Row(framed, some) for some in _filled(places, _ROW_TOKENS - len(framed))]
        else:
            for index in fitting:
                room = min(window + len(known[questions[index]]), limit)
                pairs = _pairs(tokenizer, (group, index), questions[index], target, room)
                rows += map(_matched, pairs) if layout == MATCHED else pairs
    return rows, fewest


def _tokens(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []


def _framed(tokenizer: Any, tokens: list[int]) -> list[int]:
    return [tokenizer.cls_token_id, *tokens, tokenizer.sep_token_id]


def _windows(tokens: list[int], room: int) -> Iterator[list[int]]:
    """Parts of at most `room` tokens that overlap by half, so what is no longer than that is whole in one of them."""
    yield tokens[:room]
    for start in range(room // 2, len(tokens) - room // 2, room // 2):
        yield tokens[start : start + room]


def _filled(places: Sequence[tuple[Any, list[int]]], room: int) -> Iterator[list[tuple[Any, list[int]]]]:
    """Questions by the rowful, in order."""
    some: list[tuple[Any, list[int]]] = []
    used = 0
    for place, tokens in places:
        if some and used + len(tokens) > room:
            yield some
            some, used = [], 0
        some.append((place, tokens))
        used += len(tokens)
    if some:
        yield some


def _pairs(tokenizer: Any, place: Any, question: str, target: str, room: int) -> list[Row]:
    parts = tokenizer(
        question,
        target,
        truncation="only_second",
        max_length=room,
        stride=room // 4,
        return_overflowing_tokens=True,
        return_token_type_ids=True,
    )
    windows = zip(parts["input_ids"], parts["token_type_ids"], strict=True)
    return [Row(ids, [(place, [])], kinds) for ids, kinds in windows]


def _matched(row: Row) -> Row:
    assert row.kinds is not None
    sides: tuple[set[int], set[int]] = (set(), set())
    for token, kind in zip(row.target, row.kinds, strict=True):
        sides[kind].add(token)
    shared = sides[0] & sides[1] - {row.target[0], row.target[-1]}  # but the tokens that frame a row
    return row._replace(kinds=[int(token in shared) for token in row.target])


def layout_of(model: Any) -> str:
    """How a model reads: packed rows, matched pairs or pairs."""
    return getattr(model.config, LAYOUT, PAIRS)


def batches(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Rows of about the same length, at most `tokens` of them with padding; a longer row is alone."""
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: row.length):
        if batch and row.length * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def logits(model: Any, rows: Sequence[Row]) -> torch.Tensor:
    """The log-odds of yes of every question of every row, in order, shape (questions,); with gradients if there are
    to be any. Inputs are made here, on the device of the model."""
    return _packed_logits(model, rows) if layout_of(model) == PACKED else _pair_logits(model, rows)


def _packed_logits(model: Any, rows: Sequence[Row]) -> torch.Tensor:
    shape = len(rows), max(row.length for row in rows)
    ids, positions, kinds = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    block = torch.full(shape, -1)
    spans = []
    for number, row in enumerate(rows):
        start, there = 0, set(row.target[1:-1])
        for part, tokens in enumerate([row.target, *(tokens for _, tokens in row.questions)]):
            end = start + len(tokens)
            ids[number, start:end] = torch.tensor(tokens)
            positions[number, start:end] = torch.arange(len(tokens))
            block[number, start:end] = part
            if part:
                kinds[number, start:end] = torch.tensor([int(token in there) for token in tokens])
                spans.append((number, start, end))
            start = end
    seen = (block[:, None, :] == 0) | (block[:, None, :] == block[:, :, None])
    ids, positions, kinds, seen = (tensor.to(model.device) for tensor in (ids, positions, kinds, seen))
    hidden = model.base_model(
        input_ids=ids, position_ids=positions, token_type_ids=kinds, attention_mask=seen[:, None]
    ).last_hidden_state
    return _head(model, torch.stack([hidden[number, start:end].mean(dim=0) for number, start, end in spans]))


def _head(model: Any, pooled: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(pooled[:, None])))[:, 0]


def _pair_logits(model: Any, rows: Sequence[Row]) -> torch.Tensor:
    shape = len(rows), max(row.length for row in rows)
    ids = torch.full(shape, model.config.pad_token_id or 0)
    kinds, seen = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : row.length] = torch.tensor(row.target)
        kinds[number, : row.length] = torch.tensor(row.kinds)
        seen[number, : row.length] = 1
    inputs = {"input_ids": ids.to(model.device), "attention_mask": seen.to(model.device)}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = kinds.to(model.device)
    if layout_of(model) == MATCHED:
        hidden = model.base_model(**inputs).last_hidden_state
        weights = seen.to(hidden)[..., None]
        return _head(model, (hidden * weights).sum(dim=1) / weights.sum(dim=1))
    return model(**inputs).logits[:, 0]
