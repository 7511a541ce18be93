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
from typing import Any

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
from checklist_rewards.backends.encoder_rows import MATCHED, PACKED, EncoderTexts, Row, layout_of, rows_of
from checklist_rewards.backends.loading import load_whole
from checklist_rewards.backends.models import model_identity, pinned, resolve_model
from checklist_rewards.errors import BackendError, ModelError

_SETTINGS = ("revision", "trust_remote_code")
_BATCH_TOKENS = 4096
_NOT_FINITE = "not_finite"


class EncoderBackend:
    """A cross-encoder with one output, on the GPU if there is one.

    Args:
        model (`str`): a folder or a Hub id.
        **settings: `revision` and `trust_remote_code`, as in `from_pretrained`.

    Raises [`ModelError`] if the model cannot be loaded or has not exactly one output, or if there is no such setting.
    """

    chunk_reads = 512

    def __init__(self, model: str, **settings: Any):
        for name in settings:
            if name not in _SETTINGS:
                raise ModelError(f"engine setting {name!r} is unknown to encoders; allowed: {', '.join(_SETTINGS)}.")
        self.identity = model_identity(model, settings)
        path = resolve_model(model, settings.get("revision"))
        settings = pinned(path, settings)
        self._lock = threading.Lock()  # trainers may score from several threads; the engine is one
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.texts = EncoderTexts(AutoTokenizer.from_pretrained(path, **settings))
            self.model: Any = load_whole(AutoModelForSequenceClassification, path, dtype=torch.float32, **settings)
        except Exception as error:  # whatever transformers raises while loading, the model is not usable
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
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
        rows, sizes = rows_of(self.texts, self.model, [(group.prefix, group.tails) for group in groups])
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
