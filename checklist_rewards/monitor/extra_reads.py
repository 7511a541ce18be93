"""The reads that only the monitor needs: retests, the shadow judge, canaries, and their common budget.

The reward keeps its judge awake for all of them; only the shadow judge is woken here.

Canaries are degenerate replies that no judge should reward. They are built from a prompt and its checklist, and scored
like any completion. A judge that gives them a high score can be exploited; this is known before the first step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from statistics import fmean
from typing import Any

from checklist_rewards.attacks.bank import BANK, CANARIES
from checklist_rewards.checklists import Checklist, ChecklistItem, Option
from checklist_rewards.errors import ChecklistError
from checklist_rewards.images import shown
from checklist_rewards.monitor.seen import SHOWN, Retest
from checklist_rewards.monitor.text import STEERING_QUESTION
from checklist_rewards.rewards.placement import keep_awake
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import NO_ANSWER_STATES, ItemScore, Score

CANARY = "canary"


@dataclass(frozen=True)
class Canary:
    """A degenerate reply, and what the judge gave for it."""

    name: str
    """`empty` (only if the judge is asked about empty texts), `yes`, `prompt`, `checklist`, `filler` or
    `instruction`."""
    prompt: str
    completion: str
    score: float | None = None
    """In [0, 1]; None if the judge did not answer."""


def degenerate_replies(prompt: str, checklist: Checklist) -> dict[str, str]:
    """The replies by name: the attacks [`CANARIES`] of the bank.

    Args:
        prompt (`str`):
            What was asked.
        checklist ([`Checklist`]):
            Its checklist.
    """
    return {name: BANK[name]("", prompt, checklist) for name in CANARIES}


def raised(found: Sequence[Canary]) -> tuple[float | None, list[Canary]]:
    """The largest mean score of a reply over prompts, and the three replies with the highest ones, that one first."""
    scores: dict[str, list[tuple[float, Canary]]] = {}
    for canary in found:
        if canary.score is not None:
            scores.setdefault(canary.name, []).append((canary.score, canary))
    if not scores:
        return None, []
    means = {name: fmean(score for score, _ in of_name) for name, of_name in scores.items()}
    ranked = sorted(means, key=lambda name: -means[name])
    worst = [max(scores[name], key=itemgetter(0))[1] for name in ranked]
    return means[ranked[0]], worst[:3]


def canary_record(step: int, canary: Canary) -> dict[str, Any]:
    """The record of a canary in the monitor's file."""
    fields = asdict(canary)
    return {"kind": CANARY, "step": step, CANARY: fields.pop("name"), **fields}


_REWORDED = ("Question about the response: {}", "Look at the response again. {}", "Consider the whole response. {}")
_CANARY_PROMPTS = 2
_STEERING = ChecklistItem(question=STEERING_QUESTION, weight=1.0)


@dataclass
class ReadBudget:
    """What may still be read in addition: a fraction of the reads of the reward.

    What is not used is carried over. The canaries before the first step are read on credit, which later steps pay back
    before they may read anything else.
    """

    share: float
    left: float = 0.0

    def earn(self, reads: int) -> None:
        """Count reads of the reward."""
        self.left += self.share * reads

    def spend(self, reads: int, *, on_credit: bool = False) -> bool:
        """Whether `reads` more are allowed; if so, they are counted."""
        if self.share == 0 or (not on_credit and reads > self.left):
            return False
        self.left -= reads
        return True


class Sampler:
    """Chooses a share of the completions of each step; fractions are carried over to the next step."""

    def __init__(self, share: float):
        self.share = share
        self.due = 0.0

    def choose(self, places: Sequence[int], rng: random.Random) -> list[int]:
        """Some of `places`, in random order."""
        self.due += self.share * len(places)
        count = min(int(self.due), len(places))
        self.due -= count
        return rng.sample(list(places), count)


@dataclass
class Extra:
    """What was read in addition for a call."""

    completions: int
    reads: Counter[str] = field(default_factory=Counter)
    retests: dict[int, list[Retest]] = field(default_factory=dict)
    shadow: dict[int, Score] = field(default_factory=dict)
    canaries: list[Canary] = field(default_factory=list)

    def fields(self, held_out: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """The fields of each completion in the reward's log."""
        return [
            {
                "held_out": list(held_out[place]),
                "shadow": self.shadow[place].model_dump() if place in self.shadow else None,
                "retests": [asdict(one) for one in self.retests.get(place, ())],
            }
            for place in range(self.completions)
        ]


def retest(
    scorer: ChecklistScorer,
    completions: Mapping[int, tuple[Sample, Score]],
    rng: random.Random,
    budget: ReadBudget,
    *,
    steering: bool,
) -> tuple[dict[int, list[Retest]], int]:
    """Read one item of each completion again: reworded, with its labels in another order, and a steering question.

    Args:
        scorer ([`ChecklistScorer`]):
            The judge.
        completions (mapping of `int` to pairs of [`Sample`] and [`Score`]):
            The completions by place.
        rng (`random.Random`):
            Chooses the item and the wording.
        budget ([`ReadBudget`]):
            Limits the reads.
        steering (`bool`):
            Whether to ask the steering question.

    Returns:
        The retests by place, and the number of reads.
    """
    again: dict[int, Sample] = {}
    asked: dict[int, list[tuple[str, ItemScore | None]]] = {}
    for place, (sample, score) in completions.items():
        items = [
            (item, line)
            for item, line in zip(sample.checklist.items, score.items, strict=True)
            if item.check is None and line.answer is not None
        ]
        if not items:
            continue
        item, line = rng.choice(items)
        variants = [("reworded", reworded(item, rng), line), ("reordered", reordered(item), line)]
        parts = [*variants, *([("steering", _STEERING, None)] if steering else [])]
        parts = [part for part in parts if _readable(scorer, part[1])]
        if parts and budget.spend(len(parts)):
            checklist = Checklist(items=tuple(part[1] for part in parts))
            again[place] = replace(sample, checklist=checklist)
            asked[place] = [(how, line) for how, _, line in parts]
    found = scorer.score_prepared(list(again.values()))  # the steering question has no scale and no weight of its own
    return {
        place: [
            Retest(
                STEERING_QUESTION if line is None else line.id, how, None if line is None else line.answer, new.answer
            )
            for (how, line), new in zip(asked[place], score.items, strict=True)
        ]
        for place, score in zip(again, found, strict=True)
    }, sum(map(len, asked.values()))


def reworded(item: ChecklistItem, rng: random.Random) -> ChecklistItem:
    """The item with other words around its question."""
    question = rng.choice(_REWORDED).format(item.question)
    return item.model_copy(update={"question": question, "id": f"{item.id}/reworded"})


def reordered(item: ChecklistItem) -> ChecklistItem:
    """The item with its labels in the reverse order; for a yes/no item, with no before yes as written options."""
    options = item.options or (Option(label="yes", value=1), Option(label="no", value=0))
    return item.model_copy(update={"options": tuple(reversed(options)), "id": f"{item.id}/reordered"})


def read_shadow(
    shadow: ChecklistScorer, samples: Mapping[int, Sample], budget: ReadBudget
) -> tuple[dict[int, Score], int]:
    """The scores of the shadow judge by place, as far as the budget allows, and the number of reads."""
    allowed = {place: sample for place, sample in samples.items() if budget.spend(len(sample.checklist))}
    with keep_awake(shadow.judge):
        scores = shadow.score_batch(list(allowed.values()))
    return dict(zip(allowed, scores, strict=True)), sum(len(sample.checklist) for sample in allowed.values())


def read_canaries(
    scorer: ChecklistScorer, samples: Sequence[Sample], budget: ReadBudget, metric: Any, *, on_credit: bool
) -> tuple[list[Canary], int]:
    """Score degenerate replies to the first two prompts of a batch; none if the budget does not allow it. Each is the
    only message of its completion, without the tools and images of the real one. An empty reply is left out if the
    scorer does not ask its judge about targets without an answer.

    Returns:
        The canaries, and the number of reads.
    """
    chosen: dict[str, Sample] = {}
    for sample in samples:
        if len(chosen) < _CANARY_PROMPTS:
            chosen.setdefault(f"{sample.history}\n{sample.input}\n{sample.checklist.id}", sample)
    replies = [
        (name, replace(sample, target=text, state="answered", messages=(), checked=None, target_images=()))
        for sample in chosen.values()
        for name, text in degenerate_replies(shown(sample.input or ""), sample.checklist).items()
    ]
    judged = scorer.aggregation.no_answer == "judge"
    made = [(name, sample) for name, sample in replies if judged or sample.target_state not in NO_ANSWER_STATES]
    reads = sum(len(sample.checklist) for _, sample in made)
    if not made or not budget.spend(reads, on_credit=on_credit):
        return [], 0
    scores = scorer.score_batch([sample for _, sample in made])
    return [
        Canary(name, shown(sample.input or "")[:SHOWN], sample.target[:SHOWN], score.under(metric).primary_score)
        for (name, sample), score in zip(made, scores, strict=True)
    ], reads


def _readable(scorer: ChecklistScorer, item: ChecklistItem) -> bool:
    try:
        scorer.check_item(item, "retest")
    except ChecklistError:  # a cross-encoder, for example, answers only yes/no items
        return False
    return True
