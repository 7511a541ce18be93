"""The encoder engine: a cross-encoder that takes a question and a target and returns the log-odds of yes.

A *packed* model (created by `distill` from a BERT) reads all questions of a target in one row: the target once, then
all questions. The target attends to itself, and each question attends to the target and to itself. Positions restart
for each question. Each answer is therefore the same as in a row with this question only, for a fraction of the tokens:

    target      t t t t           positions 0 1 2 3
    question 1  . . . . a a       positions         0 1
    question 2  . . . .     b b b positions         0 1 2

BERT has two token types. Tokens of a question that also occur in the target have the second type, all others the
first. Word overlap is the strongest sign that something is mentioned, and the model does not need to learn it from
attention.

A *matched* model (also created by `distill` from a BERT) reads each question in a row with the target, where both
attend to each other. The tokens that occur in both texts are marked in the same way, on both sides. The target is
computed again for every question; the agreement with people is slightly better (recipes/evaluate/README.md).

Any other cross-encoder with one output reads *pairs*, (question, target), as it was trained. The `config.json` of a
model contains the layout under the key `LAYOUT`.

A target longer than the window is read in overlapping windows, and the largest log-odds counts: a text mentions
something if any part of it does. A question that does not fit is unanswered with the reason "too_long". Rows are
sorted by length and batched by tokens. The engine uses single precision, so that answers do not depend on the batch.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from checklist_rewards.backends.base import (
    Arrived,
    LabelRead,
    Messages,
    ReadGroup,
    ReadResult,
    Reply,
    Sampling,
)
from checklist_rewards.backends.encoder_rows import MATCHED, PACKED, EncoderRow, EncoderTexts, layout_of, rows_of
from checklist_rewards.backends.loading import load_whole
from checklist_rewards.backends.models import model_identity, pinned, resolve_model
from checklist_rewards.errors import BackendError, ModelError
from checklist_rewards.scores.reasons import Reason, Unanswered

_SETTINGS = ("revision", "trust_remote_code")
_BATCH_TOKENS = 4096


class EncoderBackend:
    """A cross-encoder with one output, on the GPU if there is one.

    Args:
        model (`str`): a folder or a Hub id.
        **settings: `revision` and `trust_remote_code`, as in `from_pretrained`.

    Raises:
        ModelError: If the model cannot be loaded or does not have exactly one output, or if a setting is unknown.
    """

    chunk_reads = 512
    name = "encoder"

    def __init__(self, model: str, **settings: Any):
        for name in settings:
            if name not in _SETTINGS:
                raise ModelError(f"unknown engine setting {name!r} for an encoder; allowed: {', '.join(_SETTINGS)}.")
        self.identity = model_identity(model, settings)
        path = resolve_model(model, settings.get("revision"))
        settings = pinned(path, settings)
        self._lock = threading.Lock()  # trainers may score from several threads
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.texts = EncoderTexts(AutoTokenizer.from_pretrained(path, **settings))
            self.model: Any = load_whole(AutoModelForSequenceClassification, path, dtype=torch.float32, **settings)
        except Exception as error:  # transformers raises many types of errors while loading
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(f"model {model!r} cannot be loaded as an encoder: {reason}") from error
        if self.model.config.num_labels != 1:
            raise ModelError(
                f"model {model!r} has {self.model.config.num_labels} outputs; an encoder judge needs exactly one, the "
                "log-odds of yes."
            )
        self.model.to(self.device).eval()

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Compute the log-probabilities of yes and no. The prefix of a group is the target, the tails are the
        questions.

        Raises:
            ModelError: If the labels are not yes and no.
            BackendError: If the model fails.
        """
        if tuple(labels) != ("yes", "no"):
            raise ModelError(f"an encoder answers yes or no; it cannot be used with the labels {', '.join(labels)}.")
        rows, floor_tokens = rows_of(self.texts, self.model, [(group.prefix, group.tails) for group in groups])
        best: dict[Any, float] = {}
        broken = set()
        try:
            for batch in batches(rows, _BATCH_TOKENS):
                with self._lock, torch.inference_mode():
                    values = logits(self.model, batch).float().tolist()
                places = (place for row in batch for place, _ in row.questions)
                for place, value in zip(places, values, strict=True):
                    best[place] = max(value, best.get(place, -math.inf))
                    if not math.isfinite(value):
                        broken.add(place)
        except (RuntimeError, MemoryError) as error:
            raise BackendError(f"the encoder failed: {str(error).strip().splitlines()[0]}") from error
        reads = [
            tuple(
                LabelRead(None, Unanswered(Reason.NOT_FINITE))
                if (group, tail) in broken
                else _label_read(best.get((group, tail)))
                for tail in range(len(read_group.tails))
            )
            for group, read_group in enumerate(groups)
        ]
        separate = sum(row.length + (len(row.questions) - 1) * len(row.target) for row in rows)
        return ReadResult(reads, separate, sum(row.length for row in rows), floor_tokens)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Raises [`ModelError`]: an encoder cannot generate text."""
        raise ModelError("an encoder can only answer questions; use another model to generate text.")


def _label_read(value: float | None) -> LabelRead:
    if value is None:
        return LabelRead(None, Unanswered(Reason.TOO_LONG))
    return LabelRead((-_softplus(-value), -_softplus(value)))


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def batches(rows: Sequence[EncoderRow], tokens: int) -> Iterator[list[EncoderRow]]:
    """Batch rows of similar length, with at most `tokens` tokens per batch including padding. A longer row gets a
    batch of its own."""
    batch: list[EncoderRow] = []
    for row in sorted(rows, key=lambda row: row.length):
        if batch and row.length * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def logits(model: Any, rows: Sequence[EncoderRow]) -> torch.Tensor:
    """Compute the log-odds of yes for all questions of all rows, in order: shape (questions,). Gradients are recorded
    unless disabled by the caller. The inputs are created on the model's device."""
    return _packed_logits(model, rows) if layout_of(model) == PACKED else _pair_logits(model, rows)


def _packed_logits(model: Any, rows: Sequence[EncoderRow]) -> torch.Tensor:
    shape = len(rows), max(row.length for row in rows)
    ids, positions, kinds = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    block = torch.full(shape, -1)
    spans = []
    for number, row in enumerate(rows):
        start, target_tokens = 0, set(row.target[1:-1])
        for part, tokens in enumerate([row.target, *(tokens for _, tokens in row.questions)]):
            end = start + len(tokens)
            ids[number, start:end] = torch.tensor(tokens)
            positions[number, start:end] = torch.arange(len(tokens))
            block[number, start:end] = part
            if part:
                kinds[number, start:end] = torch.tensor([int(token in target_tokens) for token in tokens])
                spans.append((number, start, end))
            start = end
    visible = (block[:, None, :] == 0) | (block[:, None, :] == block[:, :, None])
    ids, positions, kinds, visible = (tensor.to(model.device) for tensor in (ids, positions, kinds, visible))
    hidden = model.base_model(
        input_ids=ids, position_ids=positions, token_type_ids=kinds, attention_mask=visible[:, None]
    ).last_hidden_state
    return _head(model, torch.stack([hidden[number, start:end].mean(dim=0) for number, start, end in spans]))


def _head(model: Any, pooled: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(pooled[:, None])))[:, 0]


def _pair_logits(model: Any, rows: Sequence[EncoderRow]) -> torch.Tensor:
    shape = len(rows), max(row.length for row in rows)
    ids = torch.full(shape, model.config.pad_token_id or 0)
    kinds, visible = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : row.length] = torch.tensor(row.target)
        kinds[number, : row.length] = torch.tensor(row.kinds)
        visible[number, : row.length] = 1
    inputs = {"input_ids": ids.to(model.device), "attention_mask": visible.to(model.device)}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = kinds.to(model.device)
    if layout_of(model) == MATCHED:
        hidden = model.base_model(**inputs).last_hidden_state
        weights = visible.to(hidden)[..., None]
        return _head(model, (hidden * weights).sum(dim=1) / weights.sum(dim=1))
    return model(**inputs).logits[:, 0]
