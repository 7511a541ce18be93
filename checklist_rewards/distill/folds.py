"""Held-out figures of a distilled judge: cross-validation by group, and the model card.

For every fold, an encoder is trained on the other folds and reads the pairs of this fold. Figures are over all pairs,
with bootstrap intervals over groups. The saved judge is trained on all pairs.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.backends.base import Backend
from checklist_rewards.backends.encoder_rows import MAX_CONTEXT
from checklist_rewards.checklists import NO, YES
from checklist_rewards.distill.labels import by_target, folds_of, read_group
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure
from checklist_rewards.evaluation.measures import Categories, Numbers
from checklist_rewards.judges.labels import Labelled

Train = Callable[[Sequence[Labelled], Path], object]
"""Trains an encoder on pairs into a folder."""


def cross_validate(
    pairs: Sequence[Labelled],
    folds: int,
    train: Train,
    load: Callable[[str], Backend],
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> list[float | None]:
    """P(yes) of every pair from an encoder that was not trained on its group; None for unreadable pairs.

    Args:
        pairs (sequence of [`Labelled`]): the labelled pairs.
        folds (`int`): number of folds, at least 2.
        train (callable): trains an encoder on pairs and saves it to a folder.
        load (callable): loads the engine of such a folder.
        seed (`int`, *optional*, defaults to `0`): seed of the folds.
        progress (callable, *optional*): called with the number of held-out pairs read since its last call.

    Raises:
        SampleError: If there are fewer groups than folds.
    """
    fold_of = folds_of(pairs, folds, seed)
    held_out: list[float | None] = [None] * len(pairs)
    with tempfile.TemporaryDirectory(prefix="checklist-rewards-folds-") as folder:
        for fold in range(folds):
            path = Path(folder) / str(fold)
            train([pair for pair, of in zip(pairs, fold_of, strict=True) if of != fold], path)
            places = [place for place, of in enumerate(fold_of) if of == fold]
            predicted = read_pairs(load(str(path)), [pairs[place] for place in places], progress)
            for place, value in zip(places, predicted, strict=True):
                held_out[place] = value
    return held_out


def read_pairs(
    engine: Backend, pairs: Sequence[Labelled], progress: Callable[[int], object] | None = None
) -> list[float | None]:
    """P(yes) of every pair; None for unreadable pairs. Targets are read in chunks of `engine.chunk_reads`."""
    places = list(by_target(pairs).values())
    groups = [read_group(pairs, some) for some in places]
    probabilities: list[float | None] = [None] * len(pairs)
    for start in range(0, len(groups), engine.chunk_reads):
        chunk = slice(start, start + engine.chunk_reads)
        answers = iter(engine.read(groups[chunk], (YES, NO))[0])
        for some in places[chunk]:
            for place in some:
                logprobs = next(answers).logprobs
                probabilities[place] = None if logprobs is None else math.exp(logprobs[0])
            if progress is not None:
                progress(len(some))
    return probabilities


def held_out_figures(
    pairs: Sequence[Labelled], predicted: Sequence[float | None], bootstrap: Bootstrap
) -> dict[str, Figure]:
    """Figures over the readable pairs: AUC, kappa and accuracy against labels binarized at 0.5; RMSE and Pearson
    against the labels."""
    readable = [(pair, value) for pair, value in zip(pairs, predicted, strict=True) if value is not None]
    groups = [pair.group for pair, _ in readable]
    values, labels = [value for _, value in readable], [pair.label for pair, _ in readable]
    judged, true = ([YES if value > 0.5 else NO for value in side] for side in (values, labels))
    auc = bootstrap.figures(Numbers(values, [float(label > 0.5) for label in labels], only=["auc"]), groups)
    categories = bootstrap.figures(Categories(judged, true, {YES: 1.0, NO: 0.0}), groups)
    numbers = bootstrap.figures(Numbers(values, labels, only=["rmse", "pearson"]), groups)
    return auc | {name: categories[name] for name in ("kappa", "accuracy")} | numbers


def no_better_than_chance(figures: Mapping[str, Figure]) -> str | None:
    """A warning if the judge is not better than chance, else None.

    That is, the lower bound of the AUC is at most 0.5 or refused, or kappa is at most 0. If no intervals were wanted,
    the AUC itself counts.
    """
    auc, kappa = figures["auc"], figures["kappa"]
    least = auc.value if auc.low is None and auc.refused is None else auc.limits[0]
    if least is not None and least > 0.5 and kappa.value is not None and kappa.value > 0:
        return None
    return (
        "On held-out groups, this judge is not shown to be better than chance: "
        f"AUC {auc.shown()}, kappa {kappa.shown()}."
    )


def model_card(
    record: Mapping[str, Any], *, data: str, folds: int, figures: Mapping[str, Figure] | None, unread: int = 0
) -> str:
    """The README.md of a distilled judge.

    Args:
        record (mapping): the return value of `train_encoder`.
        data (`str`): name of the labels.
        folds (`int`): number of folds of the figures.
        figures (mapping, *optional*): figures on held-out groups; None without cross-validation.
        unread (`int`, *optional*, defaults to `0`): number of pairs that were too long to read.
    """
    settings = ", ".join(f"{name} {value}" for name, value in record["training"].items())
    if figures is None:
        measured = "Not evaluated: no labels were held out."
    else:
        lines = "\n".join(f"| {name} | {figure.shown()} |" for name, figure in figures.items())
        measured = (
            f"{folds}-fold cross-validation by group with these settings. The judge in this folder is trained on all "
            "labels. 95% confidence intervals are from the bootstrap over groups.\n\n"
            f"| on held-out groups | |\n|---|---|\n{lines}"
        )
        warning = no_better_than_chance(figures)
        measured += f"\n\n**{warning}**" if warning is not None else ""
        measured += f"\n\n{unread} pairs were too long to read." if unread else ""
    return f"""---
library_name: sentence-transformers
tags: [cross-encoder, checklist-rewards]
---

# A checklist judge

Predicts P(yes) for a question about a text. {_seen(record)} Predictions for kinds of questions that are not in the
training data are unreliable.

    from checklist_rewards import ChecklistScorer
    ChecklistScorer("path/to/this/folder").score(["..."], target="...")

## Data

{record["pairs"]:,} labelled pairs from `{data}`: {record["targets"]:,} texts in {record["groups"]:,} groups.

## Figures

{measured}

## Training

{record["parameters"] / 1e6:.1f} M parameters, from {record["base"]}; {record["steps"]} steps in
{record["seconds"]:.0f} s ({settings}), mean loss {record["loss"]:.3f}.
"""


def _seen(record: Mapping[str, Any]) -> str:
    if not record["context"]:
        return "It sees the text and the question only, not the input, the reference or earlier turns."
    parts = [
        f"the {name} ({count:,} of {record['pairs']:,} pairs had one)" for name, count in record["context"].items()
    ]
    return (
        f"It sees the text, the question and {' and '.join(parts)}, but no earlier turns. An input or a reference of "
        f"more than {MAX_CONTEXT - 1} tokens is cut to that number: the middle is left out."
    )
