"""Held-out items: a share of each checklist is read but not rewarded.

If the policy improves on rewarded items and not on the others, it learns the items and not the task. The choice
depends only on the seed and the items (and with `draw="step"` on the step), so all completions of a prompt, on all
ranks, have the same items held out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from checklist_rewards.checklists import Checklist, content_hash
from checklist_rewards.evolving.buffer import EVOLVING_CATEGORY
from checklist_rewards.monitor.settings import Draw, MonitorSettings
from checklist_rewards.rewards.split import only
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import PrimaryMetric, Score

_DIGITS = 13

HeldOut = tuple[Sequence[Sequence[str]], Sequence[Sample | None], Sequence[Score | None]]
"""Ids of the held-out items of each completion, and samples and scores without them."""


def hold_out(
    samples: Sequence[Sample | None],
    scores: Sequence[Score | None],
    settings: MonitorSettings,
    metric: PrimaryMetric,
    step: int,
) -> HeldOut:
    """Take held-out items out of the completions of a call."""
    if settings.held_out == 0 or metric == "quality":  # a grade of the whole text does not depend on items
        return [()] * len(samples), samples, scores
    chosen: dict[str, list[str]] = {}
    held_out: list[Sequence[str]] = []
    pairs: list[tuple[Sample | None, Score | None]] = []
    for sample, score in zip(samples, scores, strict=True):
        if sample is None or score is None:
            held_out.append(())
            pairs.append((sample, score))
            continue
        key = "\n".join(item.id for item in sample.checklist.items)
        if key not in chosen:
            chosen[key] = held_out_items(
                sample.checklist, settings.held_out, seed=settings.seed, draw=settings.draw, step=step
            )
        held_out.append(chosen[key])
        pairs.append(without(sample, score, chosen[key], metric))
    return held_out, [sample for sample, _ in pairs], [score for _, score in pairs]


def held_out_items(
    checklist: Checklist, share: float, *, seed: int = 0, draw: Draw = "fixed", step: int = 0
) -> list[str]:
    """Ids of the items of a checklist that are not rewarded.

    Required items always count. At least one item with a positive weight counts if the checklist has any, and one item
    otherwise. The number of held-out items is rounded up or down at random, so that over many checklists it is the
    share on average. Evolving items are never held out, so the held-out items stay the same while the checklist
    evolves.

    Args:
        checklist ([`Checklist`]):
            All items.
        share (`float`):
            Fraction to hold out, in [0, 1].
        seed (`int`, *optional*, defaults to `0`):
            Seed of the choice.
        draw (`str`, *optional*, defaults to `"fixed"`):
            `"step"` chooses other items at another step.
        step (`int`, *optional*, defaults to `0`):
            The step.
    """
    salt = f"{seed}" if draw == "fixed" else f"{seed}:{step}"
    own = [item for item in checklist.items if item.category != EVOLVING_CATEGORY]
    chance = _uniform(salt, *(item.id for item in own))
    count = math.floor(share * len(own) + chance)
    kept = [item for item in own if item.weight > 0] or [item for item in own if item.weight]
    ranked = sorted(own, key=lambda item: _uniform(salt, item.id))
    out: list[str] = []
    for item in ranked:
        last = {one.id for one in kept} - set(out) == {item.id}
        if len(out) < count and not item.required and not last and item.id not in out:
            out.append(item.id)
    return out


def without(sample: Sample, score: Score, held_out: Sequence[str], metric: PrimaryMetric) -> tuple[Sample, Score]:
    """A sample and its score without some of its items.

    Args:
        sample ([`Sample`]):
            Its checklist is a [`Checklist`].
        score ([`Score`]):
            Its score, with all items.
        held_out (sequence of `str`):
            Ids of the items to leave out.
        metric (`str`):
            The metric of the reward.
    """
    if not held_out:
        return sample, score
    return only(sample, score, [item.id for item in sample.checklist.items if item.id not in held_out], metric)


def _uniform(*parts: str) -> float:
    return int(content_hash(*parts, length=_DIGITS), 16) / 16**_DIGITS
