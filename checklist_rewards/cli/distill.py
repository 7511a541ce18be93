"""`distill`: fine-tune a small encoder into a judge, from human labels or a larger judge's probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.labels import Json, Resamples, Seed
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import bars, refuse, write_json
from checklist_rewards.distill.folds import cross_validate, held_out_figures, model_card, no_better_than_chance
from checklist_rewards.distill.labels import LabelledPair, folds_of, read_labels
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, Figure
from checklist_rewards.evaluation.agreement.measures import DEFAULT_RESAMPLES
from checklist_rewards.validation import import_extra

_LABELS, _TRAINING = "Labels", "Training"


@grouped
def distill(
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS",
            show_default=False,
            help="Labelled rows, or a file written by `score` or `run`. The judge also reads the columns `input` and "
            "`reference`, if rows have them.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="Folder to write the judge to. An existing judge is replaced when the new one is complete.",
        ),
    ],
    target_key: Annotated[
        str | None,
        typer.Option(show_default="target, else completion", rich_help_panel=_LABELS, help="Column of the text."),
    ] = None,
    question_key: Annotated[str, typer.Option(rich_help_panel=_LABELS, help="Column of the question.")] = "question",
    label_key: Annotated[
        str,
        typer.Option(
            rich_help_panel=_LABELS,
            help="Column of the label, 0 (no) to 1 (yes). Scored rows without it use the judge's P(yes) as labels.",
        ),
    ] = "label",
    group_key: Annotated[
        str | None,
        typer.Option(
            show_default="group, else the text",
            rich_help_panel=_LABELS,
            help="Column of the group; rows of a group are held out together in cross-validation.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            show_default="the packaged MiniLM",
            rich_help_panel=_TRAINING,
            help="Base encoder: a local folder or a Hub id.",
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            rich_help_panel=_TRAINING,
            help="Cross-validation folds for the metrics in the model card; 0 or 1 to skip them.",
        ),
    ] = 5,
    epochs: Annotated[float, typer.Option(rich_help_panel=_TRAINING, help="Training epochs.")] = 2.0,
    learning_rate: Annotated[float, typer.Option(rich_help_panel=_TRAINING, help="Peak learning rate.")] = 1.5e-4,
    targets: Annotated[
        int, typer.Option(min=1, rich_help_panel=_TRAINING, help="Texts per step, with all their questions.")
    ] = 4,
    layout: Annotated[
        Literal["packed", "matched"],
        typer.Option(
            rich_help_panel=_TRAINING,
            help="packed: encode a text once with all its questions. matched: encode each question with the text, "
            "which agrees slightly better with human labels and is several times slower.",
        ),
    ] = "packed",
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    r"""Fine-tune a small encoder into a judge, from human labels or the probabilities of a larger judge.

    Use the written folder like any other judge, with `--model FOLDER`. It sees the text and the question. If labels
    have an `input` or a `reference`, it sees at most 95 tokens of each too, in training and afterwards; with `score`,
    set `--reference-key`.

    The model card describes the training data and reports cross-validated metrics on held-out groups. If these are not
    better than chance, the judge is written with a warning and the exit code is 1.

    **Examples**

    ```
    checklist-rewards distill votes.jsonl -o judge --group-key document
    checklist-rewards distill scored.jsonl -o judge --group-key prompt --folds 3
    checklist-rewards score answers.jsonl -o scored.jsonl --model judge
    ```
    """
    import_extra("torch", extra="encoder")
    # Imported here because they import torch, which the help of other commands must not wait for.
    from checklist_rewards.backends.encoder import EncoderBackend
    from checklist_rewards.distill.training import Training, TrainingStep, check_installed, train_encoder

    _check_output(output)
    check_outputs([labels], folders={"--output": output}, json=json)
    training = Training(epochs=epochs, learning_rate=learning_rate, targets=targets, layout=layout, seed=seed)
    pairs = read_labels(
        labels, target_key=target_key, question_key=question_key, label_key=label_key, group_key=group_key
    )
    several = folds > 1
    if several:
        folds_of(pairs, folds, seed)  # raises for labels that cannot be split, before training starts
    check_installed()
    figures: dict[str, Figure] | None = None
    unread = 0

    def card(record: Mapping[str, Any]) -> str:
        return model_card(record, data=labels.name, folds=folds, figures=figures, unread=unread)

    with bars() as bar:
        steps = bar("steps", _steps(pairs, folds if several else 0, training, seed))
        parts = iter([*(f"fold {fold} of {folds}" for fold in range(1, folds + 1) if several), "all labels"])

        def train(some: Sequence[LabelledPair], path: Path, **options: Any) -> dict[str, Any]:
            part = next(parts)

            def progress(step: TrainingStep) -> None:
                steps(1, f"{part}, epoch {step.epoch:.2f} of {epochs:g}, loss {step.loss:.3f}")

            return train_encoder(some, path, base=base, training=training, progress=progress, **options)

        if several:
            predicted = cross_validate(pairs, folds, train, EncoderBackend, seed, bar("held-out pairs", len(pairs)))
            unread = sum(value is None for value in predicted)
            draws = bar("bootstrap draws", None)
            figures = held_out_figures(pairs, predicted, Bootstrap(bootstrap, seed, draws))
        record = train(pairs, output, card=card)
    console = Console()
    if figures is not None:
        table = Table("", "held out", title=f"{len(pairs):,} pairs, {folds} folds by group", title_justify="left")
        for name, figure in figures.items():
            table.add_row(name, escape(figure.shown()))
        console.print(table)
    console.print(f"written: {escape(str(output))}")
    warning = None if figures is None else no_better_than_chance(figures)
    if json is not None:
        held_out = None if figures is None else {name: figure.model_dump() for name, figure in figures.items()}
        write_json(
            json,
            {**record, "folds": folds if several else 0, "unread": unread, "held_out": held_out, "warning": warning},
        )
    if warning is not None:
        refuse(f"{warning} The judge was written to {output}; train it on more labels or longer before using it.")
        raise typer.Exit(1)


def _steps(pairs: Sequence[LabelledPair], folds: int, training: Any, seed: int) -> int:
    fold_of = folds_of(pairs, folds, seed) if folds else []
    others = [[pair for pair, of in zip(pairs, fold_of, strict=True) if of != fold] for fold in range(folds)]
    return sum(training.steps(some) for some in [*others, pairs])


def _check_output(output: Path) -> None:
    """Refuse to overwrite a file, or a folder without a model."""
    if output.is_file() or (output.is_dir() and any(output.iterdir()) and not (output / "config.json").is_file()):
        raise SampleError(f"--output {output} exists but is not a model folder; choose a new folder.")
