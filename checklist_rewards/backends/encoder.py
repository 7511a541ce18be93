"""The encoder engine: a cross-encoder that takes a question and a target and returns the log-odds of yes.

A *packed* model (created by `distill` from a BERT) reads all questions of a target in one row: the target once, then
all questions. The target attends to itself, and each question attends to the target and to itself. Positions restart
for each question. Each answer is therefore the same as in a row with this question only, for a fraction of the tokens:

    target      t t t t           positions 0 1 2 3
    question 1  . . . . a a       positions         0 1
    question 2  . . . .     b b b positions         0 1 2

Tokens of a question that also occur in the target have the second of BERT's two token types: word overlap is the
strongest sign that something is mentioned, and the model does not need to learn it from attention. If the model was
trained with the input and the reference, they are in the row too (`encoder_rows.py`). They and the target attend to
each other, and every question attends to all of them.

A *matched* model (created by earlier versions) reads each question in a row with the target, where both attend to each
other. The tokens that occur in both texts are marked in the same way, on both sides.

Any other cross-encoder with one output reads *pairs*, (question, target), as it was trained. The `config.json` of a
model contains the layout under the key `LAYOUT`.

A target longer than the window is read in overlapping windows, and the largest log-odds counts: a text mentions
something if any part of it does. A question that does not fit is unanswered with the reason "too_long". Rows are
sorted by length and batched by tokens. The engine uses single precision by default, so that answers do not depend on
the batch. With `dtype="bfloat16"`, the same read in another batch may differ by about 0.004 in P(yes).

int8 is not supported: a read in another batch differs by up to 0.25 in P(yes) (docs/studies/english_models.md).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from checklist_rewards.backends.base import Answer, Arrived, Backend, Messages, ReadGroup, Reply, Sampling, Usage
from checklist_rewards.backends.encoder_rows import (
    MATCHED,
    PACKED,
    EncoderRow,
    EncoderTexts,
    Segment,
    context_of,
    layout_of,
    rows_of,
)
from checklist_rewards.backends.models import (
    check_settings,
    from_hub,
    load_whole,
    model_identity,
    pinned,
    resolve_model,
)
from checklist_rewards.errors import BackendError, ModelError, first_line
from checklist_rewards.scores.reasons import Reason, Unanswered

_SETTINGS = ("dtype", "revision", "trust_remote_code")
_DTYPES = ("float32", "bfloat16")
_BATCH_TOKENS = 4096
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Largest difference of log-odds between two ways to compute a read, by precision."""


class EncoderBackend(Backend):
    """A cross-encoder with one output, on the GPU if there is one.

    Args:
        model (`str`): a folder or a Hub id.
        **settings: `revision` and `trust_remote_code`, as in `from_pretrained`, and `dtype`, "float32" (the default)
            or "bfloat16". On a CPU, bfloat16 is faster only if the CPU has instructions for it.

    Raises:
        ModelError: If the model cannot be loaded or does not have exactly one output, or if a setting is unknown or
            has a value that is not supported.
    """

    chunk_reads = 512
    in_process = True
    name = "encoder"
    writes = False

    def __init__(self, model: str, **settings: Any):
        check_settings("an encoder", settings, _SETTINGS)
        dtype = settings.get("dtype", "float32")
        if dtype not in _DTYPES:
            raise ModelError(f"dtype={dtype!r} is not supported by an encoder; use {' or '.join(map(repr, _DTYPES))}.")
        self.identity = model_identity(model, settings)
        path = resolve_model(model, settings.get("revision"))
        settings = {name: value for name, value in pinned(path, settings).items() if name != "dtype"}
        self._lock = threading.Lock()  # trainers may score from several threads
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            with from_hub(path):
                self.texts = EncoderTexts(AutoTokenizer.from_pretrained(path, **settings))
            self.model: Any = load_whole(AutoModelForSequenceClassification, path, dtype=dtype, **settings)
        except Exception as error:  # transformers raises many types of errors while loading
            raise ModelError(f"model {model!r} cannot be loaded as an encoder: {first_line(error)}") from error
        if self.model.config.num_labels != 1:
            raise ModelError(
                f"model {model!r} has {self.model.config.num_labels} outputs; an encoder judge needs exactly one, the "
                "log-odds of yes."
            )
        self.model.to(self.device).eval()
        self.context = context_of(self.model.config)
        self.pads = self._padding_agrees(_TOLERANCE[dtype])

    def _padding_agrees(self, tolerance: float) -> bool:
        """Whether rows of different lengths, padded on the right, give the same results together as alone."""
        groups = [ReadGroup(None, "A text. " * count, ("Is it a text?",)) for count in (1, 6)]
        rows, _ = rows_of(self.texts, self.model, groups)
        with torch.inference_mode():
            try:
                together = logits(self.model, rows)
                alone = torch.cat([logits(self.model, [row]) for row in rows])
            except (RuntimeError, ValueError):  # without a padding token
                return False
        return bool((together - alone).abs().max() < tolerance)

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Compute the log-probabilities of yes and no; other labels raise [`ModelError`]. The prefix of a group is the
        target, the tails are the questions. The context is read if the model was trained with it."""
        if tuple(labels) != ("yes", "no"):
            raise ModelError(f"an encoder answers yes or no; it cannot be used with the labels {', '.join(labels)}.")
        rows, floor_tokens = rows_of(self.texts, self.model, groups)
        best: dict[int, float] = {}
        broken: set[int] = set()
        try:
            for batch in batches(rows, _BATCH_TOKENS, pads=self.pads):
                with self._lock, torch.inference_mode():
                    values = logits(self.model, batch).float().tolist()
                places = (place for row in batch for place, _ in row.questions)
                for place, value in zip(places, values, strict=True):
                    best[place] = max(value, best.get(place, -math.inf))
                    if not math.isfinite(value):
                        broken.add(place)
        except (RuntimeError, MemoryError) as error:
            raise BackendError(f"the encoder failed: {first_line(error)}") from error
        answers = [
            Answer(None, Unanswered(Reason.NOT_FINITE)) if place in broken else _answer(best.get(place))
            for place in range(sum(len(group.tails) for group in groups))
        ]
        separate = sum(row.length + (len(row.questions) - 1) * row.shared for row in rows)
        return answers, Usage(separate, sum(row.length for row in rows), floor_tokens)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Raises [`ModelError`]: an encoder cannot generate text."""
        raise ModelError("an encoder can only answer questions; use another model to generate text.")


def _answer(value: float | None) -> Answer:
    if value is None:
        return Answer(None, Unanswered(Reason.TOO_LONG))
    return Answer((-_softplus(-value), -_softplus(value)))


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def batches(rows: Sequence[EncoderRow], tokens: int, *, pads: bool = True) -> Iterator[list[EncoderRow]]:
    """Batch rows of similar length, with at most `tokens` tokens per batch including padding; of equal length, if the
    model does not ignore padding. A longer row gets a batch of its own."""
    batch: list[EncoderRow] = []
    for row in sorted(rows, key=lambda row: row.length):
        if batch and (row.length * (len(batch) + 1) > tokens or not (pads or row.length == batch[0].length)):
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
    segments, blocks, spans = [], [], []
    for number, row in enumerate(rows):
        target_tokens = set(row.target[1:-1])
        questions = [
            Segment(0, tokens, [int(token in target_tokens) for token in tokens]) for _, tokens in row.questions
        ]
        segments.append([Segment(0, row.target, [0] * len(row.target)), *row.context, *questions])
        block = [0] * row.shared
        for part, question in enumerate(questions, 1):
            spans.append((number, len(block), len(block) + len(question.tokens)))
            block += [part] * len(question.tokens)
        blocks.append(block)
    ids, positions, kinds = _inputs(segments)
    block_of = _padded(blocks, -1)
    visible = (block_of[:, None, :] == 0) | (block_of[:, None, :] == block_of[:, :, None])
    ids, positions, kinds, visible = (tensor.to(model.device) for tensor in (ids, positions, kinds, visible))
    hidden = model.base_model(
        input_ids=ids, position_ids=positions, token_type_ids=kinds, attention_mask=visible[:, None]
    ).last_hidden_state
    return _head(model, torch.stack([hidden[number, start:end].mean(dim=0) for number, start, end in spans]))


def _pair_logits(model: Any, rows: Sequence[EncoderRow]) -> torch.Tensor:
    segments = [[Segment(0, row.target, row.kinds), *row.context] for row in rows]
    ids, positions, kinds = _inputs(segments, model.config.pad_token_id or 0)
    visible = _padded([[1] * row.length for row in rows])
    inputs = {"input_ids": ids.to(model.device), "attention_mask": visible.to(model.device)}
    if any(row.context for row in rows):
        inputs["position_ids"] = positions.to(model.device)
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = kinds.to(model.device)
    if layout_of(model) == MATCHED:
        hidden = model.base_model(**inputs).last_hidden_state
        weights = visible.to(hidden)[..., None]
        return _head(model, (hidden * weights).sum(dim=1) / weights.sum(dim=1))
    return model(**inputs).logits[:, 0]


def _head(model: Any, pooled: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(pooled[:, None])))[:, 0]


def _inputs(rows: Sequence[Sequence[Segment]], pad: int = 0) -> list[torch.Tensor]:
    """Ids, positions and token types, each of shape (rows, tokens)."""
    ids = [[token for segment in row for token in segment.tokens] for row in rows]
    positions = [[place for segment in row for place in segment.positions] for row in rows]
    kinds = [[kind for segment in row for kind in segment.kinds] for row in rows]
    return [_padded(ids, pad), _padded(positions), _padded(kinds)]


def _padded(rows: Sequence[Sequence[int]], value: int = 0) -> torch.Tensor:
    """Rows of numbers as a tensor of shape (rows, tokens), padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)
