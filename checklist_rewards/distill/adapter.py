"""Fine-tuning a LoRA adapter for a causal language model, with the trainer of transformers: as a judge or a writer.

A judge is trained on labelled answers, as the one-token judge reads it (`judges/logprob.py`): the same prompt, tokens
and labels. The loss is the cross-entropy of the next token over the full vocabulary, in which P(yes) and P(no) are
summed over their surface forms and the label may be soft. So training raises the label mass as well.

A writer is trained on replies to the messages of a generator. The loss is the cross-entropy of the reply's tokens,
with the token that ends a reply.

Rows are prefix trees (`backends/trees.py`), with half of the tokens of separate prompts or less. Lower layers are
frozen, which saves their backward pass. Checkpoints are written to the folder `<output>.training`; after an
interruption, the same call continues from the last one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import torch
from annotated_types import Ge, Le
from pydantic import model_validator

from checklist_rewards.backends import Messages, ReadGroup
from checklist_rewards.backends.inputs import Layers, attention_masks
from checklist_rewards.backends.models import from_hub, model_identity, resolve_model
from checklist_rewards.backends.tokens import ChatTokenizer, load_chat_tokenizer
from checklist_rewards.backends.trees import Branch, TreeRow, tree_rows
from checklist_rewards.config import Config
from checklist_rewards.distill.labels import Context, by_target
from checklist_rewards.distill.training import RECENT_STEPS, TrainingStep, bf16_is_faster
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.atomic import replace_folder, write_text
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.judges.logprob import DEFAULT_PROMPT, LABELS
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.validation import finite, missing

_PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_NEIGHBORS = 6
"""Number of targets with the same input that are kept together: their input is computed once."""
_HASHED = ("target", "question", "label", "group", "input", "reference")
"""Fields of a label that a started training depends on."""
_SAVED_STEPS = 50
_KEPT = 2
_SETTINGS, _FINISHED = "settings.json", "finished.json"


class AdapterTraining(Config):
    """Training settings of an adapter."""

    epochs: float = 1.0
    """Passes over the labels."""
    learning_rate: float = 5e-4
    """Peak learning rate, with linear warmup over the first twentieth of the steps and linear decay to 0."""
    rank: Annotated[int, Ge(1)] = 16
    """Rank of the LoRA matrices; `lora_alpha` is twice the rank."""
    frozen: Annotated[float, Ge(0), Le(1)] = 1 / 3
    """Fraction of the layers, from the first, without an adapter; below 1."""
    row_tokens: Annotated[int, Ge(1)] = 768
    """Maximum number of tokens of a row. Longer prompts are skipped."""
    rows: Annotated[int, Ge(1)] = 2
    """Rows per step."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the order of the data and of the adapter."""

    @model_validator(mode="after")
    def _can_train(self) -> Self:
        finite("epochs", self.epochs, above=0)
        finite("learning_rate", self.learning_rate, above=0)
        if self.frozen == 1:
            raise SampleError("frozen=1 leaves no layer with an adapter; it must be below 1.")
        return self


def train_adapter(
    pairs: Sequence[Labelled],
    output: str | Path,
    *,
    base: str,
    start: str | Path | None = None,
    training: AdapterTraining | None = None,
    prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
    progress: Callable[[TrainingStep], object] | None = None,
) -> dict[str, Any]:
    """Fine-tune a LoRA adapter and save it in the format of PEFT.

    Args:
        pairs (sequence of [`Labelled`]): the training data.
        output (`str` or `Path`): the folder of the adapter. It is written atomically and replaces an existing folder.
        base (`str`): the causal language model, a folder or a Hub id.
        start (`str` or `Path`, *optional*): the folder of an adapter of `base` that is trained further; `rank` and
            `frozen` of `training` are not used. Defaults to a new adapter.
        training ([`AdapterTraining`], *optional*): training settings.
        prompt (`str`, `Path` or [`PromptTemplate`], *optional*, defaults to `"judges/item"`): the judge prompt.
        progress (callable, *optional*): called with a [`TrainingStep`] after every step.

    Returns:
        `dict`: base, start, parameters (of the adapter), pairs, skipped (pairs that are too long), targets, groups,
        tokens (of one epoch), training (the settings), steps, seconds (with those of interrupted calls), and the mean
        loss.

    Raises:
        ModelError: If the packages, the model or `start` are missing, if `start` is not an adapter of `base`, or if
            the model cannot read packed rows.
        SampleError: If there are no pairs, if `output` exists and is not an adapter, or if `<output>.training` is from
            another model, prompt, labels or settings.
    """
    _check_peft()
    if not pairs:
        raise SampleError("pairs is empty; training needs at least one label.")
    training = training or AdapterTraining()
    tokens, template = load_chat_tokenizer(resolve_model(base)), load_prompt(prompt, "judge")
    forms = [list(forms) for forms in tokens.label_groups(LABELS)]
    return _train(
        list(_rows(pairs, tokens, template, training)),
        lambda model, row, layers: label_losses(model, row, layers, forms),
        output,
        base=base,
        start=start,
        training=training,
        about={
            "labels": _hash({name: getattr(pair, name) for name in _HASHED} for pair in pairs),
            "prompt": _hash(
                [template.system, template.prefix(target="t", input="i", reference="r"), template.tail("q")]
            ),
        },
        facts={
            "pairs": len(pairs),
            "targets": len({pair.target for pair in pairs}),
            "groups": len({pair.group for pair in pairs}),
        },
        progress=progress,
    )


def train_writer(
    replies: Sequence[tuple[Messages, str]],
    output: str | Path,
    *,
    base: str,
    start: str | Path | None = None,
    training: AdapterTraining | None = None,
    progress: Callable[[TrainingStep], object] | None = None,
) -> dict[str, Any]:
    """Fine-tune a LoRA adapter that writes, and save it in the format of PEFT.

    Args:
        replies (sequence of `(messages, reply)`): the messages that a generator sends
            (`load_prompt("generators/tick", "generator").messages(input=...)`), and the reply that the model should
            give.
        output, base, start, training, progress: as in [`train_adapter`].

    Returns:
        `dict`: base, start, parameters (of the adapter), replies, skipped (those that are too long with their
        messages), tokens (of one epoch), training (the settings), steps, seconds (with those of interrupted calls),
        and the mean loss per token.

    Raises:
        ModelError, SampleError: As [`train_adapter`].
    """
    _check_peft()
    if not replies:
        raise SampleError("replies is empty; training needs at least one.")
    training = training or AdapterTraining()
    tokens = load_chat_tokenizer(resolve_model(base))
    end = tokens.tokenizer.eos_token_id

    def prompts() -> Iterator[Branch[int]]:
        for messages, reply in replies:
            written = [*tokens.encoder.data([reply])[0], end]
            yield tokens.prompt(messages), [(written, len(written))]

    return _train(
        list(_fitting(prompts(), training.row_tokens)),
        reply_losses,
        output,
        base=base,
        start=start,
        training=training,
        about={"replies": _hash(replies)},
        facts={"replies": len(replies)},
        progress=progress,
    )


def _check_peft() -> None:
    if missing("peft"):
        raise ModelError("training an adapter needs peft: pip install 'checklist-rewards[lora]'.")
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ModelError("an adapter is trained in one process; start it without torchrun or accelerate launch.")


T = TypeVar("T")
Losses = Callable[[Any, Mapping[str, torch.Tensor], Layers], torch.Tensor]
"""The losses of a row: a function of the model, the row's tensors and the layers."""


def _train(
    rows: Sequence[TreeRow[Any]],
    losses: Losses,
    output: str | Path,
    *,
    base: str,
    start: str | Path | None,
    training: AdapterTraining,
    about: Mapping[str, Any],
    facts: Mapping[str, int],
    progress: Callable[[TrainingStep], object] | None,
) -> dict[str, Any]:
    """Train and save an adapter. `about` tells this training from others in its checkpoints; the first of `facts` is
    the number of examples."""
    from peft import PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    output, path = _checked(Path(output).resolve()), resolve_model(base)
    if not rows:
        raise SampleError(f"all prompts have more than {training.row_tokens} tokens (row_tokens).")
    identity = model_identity(base, {} if start is None else {"adapter": start})
    checkpoints = _checkpoints(output, {"model": identity, "training": training.model_dump(), **about})
    seconds_path = checkpoints / "seconds.txt"
    before, started = float(seconds_path.read_text()) if seconds_path.is_file() else 0.0, time.monotonic()

    torch.manual_seed(training.seed)  # initializes the adapter
    with from_hub(path):
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if (found := Layers.of(model)) is None:
        raise ModelError(f"an adapter for {base!r} cannot be trained: {type(model).__name__} cannot read packed rows.")
    layers: Layers = found
    if start is not None:
        try:
            model = PeftModel.from_pretrained(model, str(start), is_trainable=True)
        except (ValueError, RuntimeError) as error:  # other layers, or matrices of other sizes
            raise ModelError(f"start={str(start)!r} is not an adapter of {base!r} ({str(error)[:200]}).") from error
    else:
        model = get_peft_model(model, _new_adapter(model.config, training))

    class AdapterTrainer(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss = torch.cat([losses(model, row, layers) for row in inputs["rows"]]).mean()
            if not loss.isfinite():
                raise ModelError(f"the loss is {loss.item()} at step {self.state.global_step}; lower learning_rate.")
            return loss

    class Report(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if progress is not None:
                progress(TrainingStep(state.epoch, _mean_loss(state.log_history[-RECENT_STEPS:])))

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            write_text(seconds_path, str(before + time.monotonic() - started))

    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=training.epochs,
        per_device_train_batch_size=training.rows,
        learning_rate=training.learning_rate,
        warmup_steps=0.05,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        use_cpu=not torch.cuda.is_available(),
        bf16=bf16_is_faster(),
        seed=training.seed,
        save_steps=_SAVED_STEPS,
        save_total_limit=_KEPT,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # the rows of a step are not divided among several GPUs
    trainer = AdapterTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=_collated,
        callbacks=[Report()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=_last_checkpoint(checkpoints))
    record = {
        "base": base,
        "start": None if start is None else str(start),
        "parameters": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        **facts,
        "skipped": next(iter(facts.values())) - sum(len(row.values) for row in rows),
        "tokens": sum(len(row.ids) for row in rows),
        "training": training.model_dump(),
        "steps": trainer.state.global_step,
        "seconds": before + time.monotonic() - started,
        "loss": _mean_loss(trainer.state.log_history),
    }
    finished = checkpoints / "adapter"
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(str(finished), save_embedding_layers=False)
    replace_folder(finished, output, checkpoints / "replaced")
    # Killed at any instant, the same training can be called again.
    (checkpoints / _SETTINGS).rename(checkpoints / _FINISHED)
    shutil.rmtree(checkpoints)
    return record


def label_losses(
    model: Any, inputs: Mapping[str, torch.Tensor], layers: Layers, forms: Sequence[list[int]]
) -> torch.Tensor:
    """Cross-entropy of each label of a row, in nats: shape (prompts,).

    Args:
        model: The causal language model.
        inputs (mapping): `ids` and `positions` of shape (1, width), `visible` of shape (1, width, width), and for each
            prompt the column of its last token in `answers` and its label, P(yes), in `values`.
        layers ([`Layers`]): The layers of the model.
        forms (sequence of `list[int]`): Token ids of all surface forms of yes and of no.
    """
    logprobs = _logits(model, inputs, layers, inputs["answers"]).log_softmax(-1)
    yes, no = (logprobs[:, ids].logsumexp(-1) for ids in forms)
    label = inputs["values"]
    return -(label * yes + (1 - label) * no)


def reply_losses(model: Any, inputs: Mapping[str, torch.Tensor], layers: Layers) -> torch.Tensor:
    """Cross-entropy of each token of the replies of a row, in nats: shape (tokens,).

    Args:
        model: The causal language model.
        inputs (mapping): as for [`label_losses`], with `parents`; but `values` has the number of tokens of each
            reply, and `answers` the columns of their last tokens.
        layers ([`Layers`]): The layers of the model.
    """
    columns = _reply_columns(inputs)
    logits = _logits(model, inputs, layers, inputs["parents"][columns])
    return torch.nn.functional.cross_entropy(logits, inputs["ids"][0, columns], reduction="none")


def _logits(model: Any, inputs: Mapping[str, torch.Tensor], layers: Layers, columns: torch.Tensor) -> torch.Tensor:
    """The logits of some columns of a row."""
    return (
        model(
            input_ids=inputs["ids"],
            attention_mask=attention_masks(inputs["visible"], inputs["positions"], layers, model),
            position_ids=inputs["positions"],
            use_cache=False,
            logits_to_keep=columns,
        )
        .logits[0]
        .float()
    )


def _reply_columns(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The columns of the tokens of all replies, from their last tokens back."""
    columns = []
    for column, count in zip(inputs["answers"], inputs["values"], strict=True):
        for _ in range(int(count)):
            columns.append(column)
            column = inputs["parents"][column]
    return torch.stack(columns)


def _new_adapter(config: Any, training: AdapterTraining) -> Any:
    from peft import LoraConfig

    count = config.get_text_config().num_hidden_layers
    return LoraConfig(
        r=training.rank,
        lora_alpha=2 * training.rank,
        target_modules=_PROJECTIONS,
        layers_to_transform=list(range(int(training.frozen * count), count)),
        task_type="CAUSAL_LM",
    )


def _rows(
    pairs: Sequence[Labelled], tokens: ChatTokenizer, prompt: PromptTemplate, training: AdapterTraining
) -> Iterator[TreeRow[float]]:
    """Rows of the prompts with their labels, in random order; targets with the same input are mostly adjacent."""
    contexts = by_target(pairs)
    by_input: dict[str | None, list[Context]] = {}
    for context in contexts:
        by_input.setdefault(context[1], []).append(context)
    rng = random.Random(training.seed)
    blocks: list[list[Context]] = []
    for given, members in by_input.items():
        size = 1 if given is None else _NEIGHBORS
        rng.shuffle(members)
        blocks += [members[start : start + size] for start in range(0, len(members), size)]
    rng.shuffle(blocks)

    def prompts() -> Iterator[Branch[float]]:
        for block in blocks:
            groups = [
                ReadGroup(
                    prompt.system,
                    prompt.prefix(target=target, input=given, reference=reference),
                    tuple(prompt.tail(pairs[place].question) for place in contexts[target, given, reference]),
                )
                for target, given, reference in block
            ]
            for context, group in zip(block, tokens.groups(groups), strict=True):
                labels = [pairs[place].label for place in contexts[context]]
                yield group.prefix, list(zip(group.tails, labels, strict=True))

    return _fitting(prompts(), training.row_tokens)


def _fitting(branches: Iterable[Branch[T]], room: int) -> Iterator[TreeRow[T]]:
    """Rows of the prompts that fit into one."""
    fitting = ((prefix, [one for one in tails if len(prefix) + len(one[0]) <= room]) for prefix, tails in branches)
    return tree_rows(fitting, room)


def _collated(rows: Sequence[TreeRow[Any]]) -> dict[str, Any]:
    # Not "labels": the trainer of transformers counts those, as it would the tokens of texts.
    return {"rows": [_tensors(row) for row in rows]}


def _tensors(row: TreeRow[Any]) -> dict[str, torch.Tensor]:
    return {
        "ids": torch.tensor(row.ids)[None],
        "parents": torch.from_numpy(row.parent_columns()),
        "positions": torch.from_numpy(row.positions())[None],
        "visible": torch.from_numpy(row.visible())[None],
        "answers": torch.tensor(row.answers),
        "values": torch.tensor(row.values),
    }


def _checked(output: Path) -> Path:
    """Refuse an output that is neither new nor an adapter."""
    if output.exists() and not (output / "adapter_config.json").is_file() and not _is_empty(output):
        raise SampleError(f"{output} exists and is not an adapter; choose a new folder.")
    return output


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _checkpoints(output: Path, about: Mapping[str, Any]) -> Path:
    """The folder of the checkpoints, for this training only."""
    folder = output.with_name(f"{output.name}.training")
    if (folder / _FINISHED).is_file():  # the process was killed while these checkpoints were deleted
        shutil.rmtree(folder)
    path = folder / _SETTINGS
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != about:
            raise SampleError(
                f"{folder} is from another model, prompt, labels or settings; delete it, or choose another output."
            )
    elif folder.exists() and not _is_empty(folder):
        raise SampleError(f"{folder} exists without {_SETTINGS}; delete it, or choose another output.")
    write_text(path, json.dumps(about))
    return folder


def _last_checkpoint(folder: Path) -> str | None:
    """The last complete checkpoint. One that was being written when the process was killed has no state."""
    complete = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    return str(max(complete, key=lambda path: int(path.name.rpartition("-")[2]))) if complete else None


def _hash(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps(part).encode())
    return digest.hexdigest()


def _mean_loss(history: Sequence[Mapping[str, Any]]) -> float:
    losses = [entry["loss"] for entry in history if "loss" in entry]
    return sum(losses) / len(losses) if losses else math.nan
