"""`distill`, `audit` and `demo`: train a judge, check a training run, see one.

- `distill`: fine-tune a small encoder into a judge, from human labels or a larger judge's probabilities.
- `audit`: look for reward hacking in the log of a training run.
- `demo`: run `recipes/demo.py`, from the checkout or from inside the wheel.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from annotated_types import Ge
from rich.table import Column, Table

import checklist_rewards
from checklist_rewards.attacks.patterns import patterns_of
from checklist_rewards.attacks.report import read_attack
from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import Json, brief, grouped
from checklist_rewards.cli.output import bars, check_outputs, console, decimal, plain_console, refuse, table
from checklist_rewards.distill.folds import cross_validate, held_out_figures, model_card, no_better_than_chance
from checklist_rewards.distill.labels import folds_of, read_labels
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import LIBRARIES, Figure
from checklist_rewards.files.atomic import check_writable, write_json
from checklist_rewards.files.rows import write_rows
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.monitor import Audit, MonitorConfig, audit
from checklist_rewards.monitor.signals import SIGNALS, About, Signal, attack_signals
from checklist_rewards.validation import import_extra, one_of


class LabelColumns(o.Options):
    """Labelled rows, and the judge that is made from them."""

    heading = "Labels"

    labels: Annotated[Path, typer.Argument(metavar="LABELS")]
    """Labelled rows, or a file written by `score` or `run`. The judge also reads the columns `input` and `reference`,
    if rows have them."""
    output: Annotated[Path, o.OUTPUT_FILE]
    """Folder to write the judge to. An existing judge is replaced when the new one is complete."""
    target_key: str | None = None
    """Column of the text. Defaults to target, else completion."""
    question_key: str = "question"
    """Column of the question."""
    label_key: str = "label"
    """Column of the label, 0 (no) to 1 (yes). Scored rows without it use the judge's P(yes) as labels."""
    group_key: str | None = None
    """Column of the group; rows of a group are held out together in cross-validation. Defaults to group, else the
    text."""


class TrainingOptions(o.Options):
    """How a judge is trained."""

    heading = "Training"

    base: str | None = None
    """Base encoder: a local folder or a Hub id. Defaults to the packaged MiniLM."""
    folds: Annotated[int, Ge(0)] = 5
    """Cross-validation folds for the metrics in the model card; 0 or 1 to skip them."""
    epochs: float = 2.0
    """Training epochs."""
    learning_rate: float = 1.5e-4
    """Peak learning rate."""


@grouped()
def distill(
    columns: LabelColumns,
    how: TrainingOptions,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
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

    labels, output, folds, epochs = columns.labels, columns.output, how.folds, how.epochs
    _check_output(output)
    check_outputs(folders={"--output": output}, json=json)
    check_writable(output.resolve().parent, folder=True)  # the finished folder is renamed
    training = Training(seed=resampling.seed, epochs=how.epochs, learning_rate=how.learning_rate)
    pairs = read_labels(labels, **columns.model_dump(include={"target_key", "question_key", "label_key", "group_key"}))
    several = folds > 1
    if not several:
        o.no_effect("without --folds of 2 or more", "bootstrap", "group_key")
    if several:
        import_extra(*LIBRARIES, extra="encoder")  # now, not after the training
        folds_of(pairs, folds, resampling.seed)  # raises for labels that cannot be split, before training starts
    check_installed()
    figures: dict[str, Figure] | None = None
    unread = 0

    def card(record: Mapping[str, Any]) -> str:
        return model_card(record, data=labels.name, folds=folds, figures=figures, unread=unread)

    with bars() as bar:
        steps = bar("steps", _steps(pairs, folds if several else 0, training, resampling.seed))
        parts = iter([*(f"fold {fold} of {folds}" for fold in range(1, folds + 1) if several), "all labels"])

        def train(some: Sequence[Labelled], path: Path, **options: Any) -> dict[str, Any]:
            part = next(parts)

            def progress(step: TrainingStep) -> None:
                steps(1, f"{part}, epoch {step.epoch:.2f} of {epochs:g}, loss {step.loss:.3f}")

            return train_encoder(some, path, base=how.base, training=training, progress=progress, **options)

        if several:
            predicted = cross_validate(
                pairs, folds, train, EncoderBackend, resampling.seed, bar("held-out pairs", len(pairs))
            )
            unread = sum(value is None for value in predicted)
            figures = held_out_figures(pairs, predicted, resampling.draws(bar))
        record = train(pairs, output, card=card)
    console = plain_console()
    if figures is not None:
        rows = ((name, figure.shown()) for name, figure in figures.items())
        console.print(table("", "held out", rows=rows, title=f"{len(pairs):,} pairs, {folds} folds by group"))
    console.print(f"written: {output}")
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


def _steps(pairs: Sequence[Labelled], folds: int, training: Any, seed: int) -> int:
    fold_of = folds_of(pairs, folds, seed) if folds else []
    others = [[pair for pair, of in zip(pairs, fold_of, strict=True) if of != fold] for fold in range(folds)]
    return sum(training.steps(some) for some in [*others, pairs])


def _check_output(output: Path) -> None:
    """Refuse to overwrite a file, or a folder without a model."""
    is_folder = os.path.isdir(output)  # False, too, for a name that no file can have
    if os.path.isfile(output) or (is_folder and any(output.iterdir()) and not (output / "config.json").is_file()):
        raise SampleError(f"--output {output} exists but is not a model folder; choose a new folder.")


_SETTINGS = ("start", "window", "certainty", *(f"max_{signal.name}" for signal in SIGNALS), "max_attack")
"""The settings that apply to a log; the others say what is read during training."""


class AuditOptions(o.Options):
    """The logs, the settings of the signals, and which signals count."""

    shown = ("output", "about", "require", "start", "window", "certainty")
    parts = (o.Part(MonitorConfig, "", "Thresholds", only=_SETTINGS),)

    logs: Annotated[list[Path], typer.Argument(metavar="LOG...")]
    """Reward logs of one run (rewards.jsonl)."""
    about: list[str] | None = None
    """Alarms that count: about hacking, the judge or training. Repeatable. Defaults to all."""
    require: list[str] | None = None
    """Signal that must be evaluated. Repeatable."""
    attacks: Path | None = None
    """File of `attack` on the judge: look for the attacks that raised its scores."""
    output: Annotated[Path | None, o.OUTPUT_FILE] = None
    """Write the records of a monitor to this JSONL file."""


@brief("json")
def audit_log(
    audited: AuditOptions,
    json: Json = None,
) -> None:
    r"""Look for reward hacking in the reward log of a training run.

    Computes the signals of the reward monitor from the file of `ChecklistReward(log=...)`, without a model. Logs of
    other ranks (rewards.rank1.jsonl) are included. The log of a monitored reward also has the signals of its held-out
    items, its shadow judge and its retests.

    Signals that could not be evaluated are listed with the reason: the log has no data for them, or too few steps.

    Exit code 0: nothing found; 1: an alarm; 2: invalid input; 3: no alarm, but the log has too few steps for some
    signals, or a signal of --require was not evaluated.

    **Example**

    ```
    checklist-rewards audit rewards.jsonl --json audit.json
    ```
    """
    logs, output, about, require = audited.logs, audited.output, audited.about, audited.require
    check_outputs(output=output, json=json)
    for name in about or ():
        one_of("--about", name, get_args(About))
    patterns = [] if audited.attacks is None else patterns_of(read_attack(audited.attacks))
    signals_of = [*SIGNALS, *attack_signals(pattern.name for pattern in patterns)]
    for name in require or ():
        one_of("--require", name, [signal.name for signal in signals_of])
    settings = MonitorConfig(**audited.given)
    with ExitStack() as stack:
        record = None if output is None else stack.enter_context(write_rows(output)).write
        result = audit(logs, settings, record, patterns)
    counted = [alarm for alarm in result.alarms if about is None or alarm.about in about]
    console.print(_table(result, settings, signals_of))
    for alarm in counted:
        console.print(str(alarm), style="yellow" if alarm.about == "training" else "red")
    asked = {signal.name for signal in signals_of if about is None or signal.about in about}
    signals = len([name for name in asked if settings.threshold(name) is not None])
    missing = {name: reason for name, reason in result.not_evaluated.items() if name in asked}
    found = f"{len(counted)} alarms" if counted else f"nothing found by {signals - len(missing)} signals"
    console.print(f"{result.completions} completions in {result.steps} steps: {found}.")
    if missing:
        console.print(f"{len(missing)} of {signals} signals could not be evaluated:")
        for reason in dict.fromkeys(missing.values()):
            names = ", ".join(name for name, why in missing.items() if why == reason)
            console.print(f"  {reason}: {names}")
    if json is not None:
        write_json(json, result.as_json())
    if counted:
        raise typer.Exit(1)
    if result.too_short or result.not_evaluated.keys() & set(require or ()):
        raise typer.Exit(3)


def _table(result: Audit, settings: MonitorConfig, signals: Sequence[Signal]) -> Table:
    rows = []
    for signal in signals:
        threshold = settings.threshold(signal.name)
        reading = result.readings.get(signal.name)
        if reading is None:
            continue
        steps = [str(alarm.step) for alarm in result.alarms if alarm.signal == signal.name]
        numbers = (reading.start, reading.recent, reading.size, threshold)
        shown = (decimal(value, ".3g", "–") for value in numbers)
        rows.append((signal.name, signal.about, *shown, ", ".join(f"step {step}" for step in steps)))
    heads = ("about", "start", "recent", "size", "threshold", "alarms")
    return table(Column("signal", no_wrap=True), *heads, rows=rows, title="audit")


def demo(context: typer.Context) -> None:
    """Run an end-to-end demo with the pocket model: checklists, GRPO, best-of-8 and a plot.

    Takes a few minutes on a few CPU cores, downloads nothing, and writes to runs/demo. All options are passed to
    recipes/demo.py; see **checklist-rewards demo -- --help**.

    **Example**

    ```
    checklist-rewards demo --output runs/demo
    ```
    """
    import_extra("matplotlib", "trl", extra="recipes")
    folder = recipes_dir()
    script = folder / "demo.py"
    sys.path.insert(0, str(folder))
    sys.argv = [str(script), *context.args]
    runpy.run_path(str(script), run_name="__main__")


def recipes_dir() -> Path:
    """The folder of the recipes: inside the wheel, or at the top of a source checkout.

    Raises:
        SampleError: If neither folder has the recipes.
    """
    package = Path(checklist_rewards.__file__).resolve().parent
    for folder in (package / "_recipes", package.parent / "recipes"):
        if (folder / "demo.py").is_file():
            return folder
    raise SampleError(f"recipes not found in {package} or {package.parent}; reinstall checklist-rewards.")
