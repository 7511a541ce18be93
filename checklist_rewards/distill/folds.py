"""What a distilled judge is worth on what it has not seen: cross-validation by group, and the model card.

For every fold an encoder is trained on the others and reads the fold's pairs; the figures are of all pairs together,
with intervals of the bootstrap over groups. The judge that is kept is trained on everything.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.backends.base import Backend, ReadGroup
from checklist_rewards.checklists import NO, YES
from checklist_rewards.distill.labels import LabelledPair, by_target, folds_of
from checklist_rewards.evaluation.agreement import Bootstrap, Categories, Figure, Numbers

Train = Callable[[Sequence[LabelledPair], Path], object]
"""Trains an encoder on pairs into a folder."""


def cross_validate(
    pairs: Sequence[LabelledPair],
    folds: int,
    train: Train,
    load: Callable[[str], Backend],
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> list[float | None]:
    """P(yes) of every pair by an encoder that has not seen its group; None where it could not be read.

    Args:
        pairs (sequence of [`LabelledPair`]).
        folds (`int`): how many, from 2 up.
        train (callable): trains on some of the pairs.
        load (callable): from a folder to its engine.
        seed (`int`, *optional*, defaults to `0`): another seed, other folds.
        progress (callable, *optional*): called with the number of held-out pairs read since its last call.

    Raises [`SampleError`] if there are fewer groups than folds.
    """
    fold_of = folds_of(pairs, folds, seed)
    found: list[float | None] = [None] * len(pairs)
    with tempfile.TemporaryDirectory(prefix="checklist-rewards-folds-") as folder:
        for fold in range(folds):
            path = Path(folder) / str(fold)
            train([pair for pair, of in zip(pairs, fold_of, strict=True) if of != fold], path)
            places = [place for place, of in enumerate(fold_of) if of == fold]
            predicted = read_pairs(load(str(path)), [pairs[place] for place in places], progress)
            for place, value in zip(places, predicted, strict=True):
                found[place] = value
    return found


def read_pairs(
    engine: Backend, pairs: Sequence[LabelledPair], progress: Callable[[int], object] | None = None
) -> list[float | None]:
    """P(yes) of every pair; None where it could not be read. Texts are read in chunks of `engine.chunk_reads`."""
    places = list(by_target(pairs).values())
    groups = [
        ReadGroup(None, pairs[some[0]].target, tuple(pairs[place].question for place in some)) for some in places
    ]
    found: list[float | None] = [None] * len(pairs)
    for start in range(0, len(groups), engine.chunk_reads):
        chunk = slice(start, start + engine.chunk_reads)
        for some, reads in zip(places[chunk], engine.read(groups[chunk], (YES, NO)).reads, strict=True):
            for place, read in zip(some, reads, strict=True):
                found[place] = None if read.logprobs is None else math.exp(read.logprobs[0])
            if progress is not None:
                progress(len(some))
    return found


def held_out_figures(
    pairs: Sequence[LabelledPair], predicted: Sequence[float | None], bootstrap: Bootstrap
) -> dict[str, Figure]:
    """AUC, kappa and accuracy against labels above one half, error (RMSE) and Pearson against the labels themselves,
    over the pairs that were read."""
    known = [(pair, value) for pair, value in zip(pairs, predicted, strict=True) if value is not None]
    groups = [pair.group for pair, _ in known]
    values, labels = [value for _, value in known], [pair.label for pair, _ in known]
    said, true = ([YES if value > 0.5 else NO for value in side] for side in (values, labels))
    auc = bootstrap.figures(Numbers(values, [float(label > 0.5) for label in labels]), groups)["auc"]
    categories = bootstrap.figures(Categories(said, true, {YES: 1.0, NO: 0.0}), groups)
    numbers = bootstrap.figures(Numbers(values, labels), groups)
    return (
        {"auc": auc}
        | {name: categories[name] for name in ("kappa", "accuracy")}
        | {name: numbers[name] for name in ("rmse", "pearson")}
    )


def no_better_than_chance(figures: Mapping[str, Figure]) -> str | None:
    """A sentence for a judge that learned nothing: its AUC, or the interval of that, reaches down to 0.5, or its kappa
    is not above 0. None for a judge that did learn."""
    auc, kappa = figures["auc"], figures["kappa"]
    least = auc.value if auc.low is None else auc.low
    if least is not None and least > 0.5 and kappa.value is not None and kappa.value > 0:
        return None
    return (
        "On groups it was not trained on, this judge is not shown to be better than chance: "
        f"AUC {auc.shown()}, kappa {kappa.shown()}."
    )


def model_card(
    record: Mapping[str, Any], *, data: str, folds: int, figures: Mapping[str, Figure] | None, unread: int = 0
) -> str:
    """The README.md of a distilled judge.

    Args:
        record (mapping): what `train_encoder` returns.
        data (`str`): the name of the labels.
        folds (`int`): how many the figures are of.
        figures (mapping, *optional*): of held-out groups; None where nothing was held out.
        unread (`int`, *optional*, defaults to `0`): pairs of theirs that could not be read.
    """
    settings = ", ".join(f"{name} {value}" for name, value in record["training"].items())
    if figures is None:
        measured = "Nothing was held out, so nothing is known about texts that it has not seen."
    else:
        lines = "\n".join(f"| {name} | {figure.shown()} |" for name, figure in figures.items())
        measured = (
            f"{folds} folds by group: each was read by an encoder trained on the others, with these settings. The "
            "judge in this folder is trained on all of them. Intervals (95 %) are of the bootstrap over groups.\n\n"
            f"| on held-out groups | |\n|---|---|\n{lines}"
        )
        warning = no_better_than_chance(figures)
        measured += f"\n\n**{warning}**" if warning is not None else ""
        measured += f"\n\n{unread} pairs were too long to be read." if unread else ""
    return f"""---
library_name: sentence-transformers
tags: [cross-encoder, checklist-rewards]
---

# A checklist judge

Gives P(yes) for a question about a text. It sees the text and the question, and nothing else; questions of another
kind than those it learned are guesswork.

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
