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
from checklist_rewards.rewards.batch import Call, Guard
from checklist_rewards.rewards.placement import keep_awake
from checklist_rewards.rewards.ranks import rank
from checklist_rewards.rewards.settings import MonitorConfig
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import NO_ANSWER_STATES, PrimaryMetric, Score

CANARY = "canary"
_REWORDED = ("Question about the response: {}", "Look at the response again. {}", "Consider the whole response. {}")
_CANARY_PROMPTS = 2
_STEERING = ChecklistItem(question=STEERING_QUESTION, weight=1.0)


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

    def record(self, step: int) -> dict[str, Any]:
        """The record in the monitor's file."""
        fields = asdict(self)
        return {"kind": CANARY, "step": step, CANARY: fields.pop("name"), **fields}


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


@dataclass
class Extra:
    """What was read in addition for a call. Completions are named by their places."""

    reads: Counter[str] = field(default_factory=Counter)
    retests: dict[int, list[Retest]] = field(default_factory=dict)
    shadow: dict[int, Score] = field(default_factory=dict)
    canaries: list[Canary] = field(default_factory=list)

    def fields(self, held_out: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """The fields of each completion in the reward's log."""
        return [
            {
                "held_out": list(items),
                "shadow": self.shadow[place].model_dump() if place in self.shadow else None,
                "retests": [asdict(one) for one in self.retests.get(place, ())],
            }
            for place, items in enumerate(held_out)
        ]


class ExtraReads:
    """Reads more than the checklists of a call, at most a fraction of the reads of the reward.

    What is not used is carried over to later calls. The canaries before the first step are read on credit, which later
    steps pay back before they may read anything else.

    Args:
        scorer ([`ChecklistScorer`]): The judge of the reward.
        shadow ([`ChecklistScorer`], *optional*): The shadow judge.
        metric (`str`): The metric of the reward.
        settings ([`MonitorConfig`]): Which fractions are read.
        guard ([`Guard`]): Runs each kind of reads.
    """

    def __init__(
        self,
        scorer: ChecklistScorer,
        shadow: ChecklistScorer | None,
        metric: PrimaryMetric,
        settings: MonitorConfig,
        guard: Guard,
    ):
        self.scorer, self.shadow, self.metric, self.settings, self.guard = scorer, shadow, metric, settings, guard
        self.budget = 0.0
        """Reads that are allowed now."""
        self.due = {"retests": 0.0, "shadow": 0.0}
        """Completions to choose, with fractions that are carried over."""
        self.last_canaries: int | None = None

    def __call__(self, call: Call, step: int) -> Extra:
        """Read about some completions of a call that was judged."""
        settings, extra = self.settings, Extra()
        rng = random.Random(f"{settings.seed}:{step}:{rank()}")
        scored = {
            place: (sample, score)
            for place, (sample, score) in enumerate(zip(call.samples, call.scores, strict=True))
            if sample is not None and score is not None
        }
        asked = {place: pair for place, pair in scored.items() if not pair[1].no_answer}
        extra.reads["checklist"] = sum(score.total for _, score in asked.values())
        self.budget += settings.extra_reads * extra.reads["checklist"]
        if rank() == 0 and scored and self._due_canaries(step):
            samples = [sample for sample, _ in scored.values()]
            self.guard("canaries", lambda: self.read_canaries(extra, step, samples), None)
        if self.shadow is not None:
            chosen = self._chosen("shadow", settings.shadow_share, list(asked), rng)
            self.guard("shadow", lambda: self.read_shadow(extra, {n: asked[n][0] for n in chosen}), None)
        again = self._chosen("retests", settings.retest_share, list(asked), rng)
        self.guard("retests", lambda: self.retest(extra, {n: asked[n] for n in again}, rng), None)
        return extra

    def _chosen(self, kind: str, share: float, places: Sequence[int], rng: random.Random) -> list[int]:
        """A share of `places`, in random order."""
        self.due[kind] += share * len(places)
        count = min(int(self.due[kind]), len(places))
        self.due[kind] -= count
        return rng.sample(places, count)

    def _spend(self, reads: int, *, on_credit: bool = False) -> bool:
        """Whether `reads` more are allowed; if so, they are counted."""
        if self.settings.extra_reads == 0 or (not on_credit and reads > self.budget):
            return False
        self.budget -= reads
        return True

    def retest(self, extra: Extra, completions: Mapping[int, tuple[Sample, Score]], rng: random.Random) -> None:
        """Read one item of each completion again: reworded, with its labels in another order, and a steering
        question."""
        again: dict[int, Sample] = {}
        asked: dict[int, list[tuple[str, str, str | None]]] = {}
        for place, (sample, score) in completions.items():
            items = [
                (item, line.answer)
                for item, line in zip(sample.checklist.items, score.items, strict=True)
                if item.check is None and line.answer is not None
            ]
            if not items:
                continue
            item, answer = rng.choice(items)
            variants = {"reworded": reworded(item, rng), "reordered": reordered(item)}
            if self.settings.steering != "off":
                variants["steering"] = _STEERING
            variants = {how: one for how, one in variants.items() if self._readable(one)}
            if variants and self._spend(len(variants)):
                again[place] = replace(sample, checklist=Checklist(items=tuple(variants.values())))
                asked[place] = [
                    (how, STEERING_QUESTION, None) if how == "steering" else (how, item.id, answer) for how in variants
                ]
        scores = self.scorer.score_prepared(list(again.values()))  # the steering question has no scale and no weight
        for place, score in zip(again, scores, strict=True):
            lines = zip(asked[place], score.items, strict=True)
            extra.retests[place] = [Retest(id, how, answer, line.answer) for (how, id, answer), line in lines]
        extra.reads["retests"] = sum(map(len, asked.values()))

    def _readable(self, item: ChecklistItem) -> bool:
        try:
            self.scorer.check_item(item, "retest")
        except ChecklistError:  # a cross-encoder, for example, answers only yes/no items
            return False
        return True

    def read_shadow(self, extra: Extra, samples: Mapping[int, Sample]) -> None:
        """Score samples with the shadow judge, as far as the budget allows."""
        assert self.shadow is not None
        allowed = {place: sample for place, sample in samples.items() if self._spend(len(sample.checklist))}
        with keep_awake(self.shadow.judge):
            scores = self.shadow.score_batch(list(allowed.values()))
        extra.shadow = dict(zip(allowed, scores, strict=True))
        extra.reads["shadow"] = sum(len(sample.checklist) for sample in allowed.values())

    def _due_canaries(self, step: int) -> bool:
        every, last = self.settings.canary_every, self.last_canaries
        return self.settings.max_canary is not None and (last is None or bool(every and step - last >= every))

    def read_canaries(self, extra: Extra, step: int, samples: Sequence[Sample]) -> None:
        """Score degenerate replies to the first two prompts of a call; none if the budget does not allow it. Each is
        the only message of its completion, without the tools and images of the real one. An empty reply is left out
        if the scorer does not ask its judge about targets without an answer."""
        first = self.last_canaries is None
        if first:
            self.last_canaries = step  # also if it fails: a judge that cannot read them now will not be asked again
        chosen: dict[str, Sample] = {}
        for sample in samples:
            if len(chosen) < _CANARY_PROMPTS:
                chosen.setdefault(f"{sample.history}\n{sample.input}\n{sample.checklist.id}", sample)
        replies = [
            (name, replace(sample, target=text, state="answered", messages=(), checked=None, target_images=()))
            for sample in chosen.values()
            for name, text in degenerate_replies(shown(sample.input or ""), sample.checklist).items()
        ]
        judged = self.scorer.aggregation.no_answer == "judge"
        made = [(name, sample) for name, sample in replies if judged or sample.target_state not in NO_ANSWER_STATES]
        reads = sum(len(sample.checklist) for _, sample in made)
        if not made or not self._spend(reads, on_credit=first):
            return
        scores = self.scorer.score_batch([sample for _, sample in made])
        extra.canaries = [
            Canary(name, shown(one.input or "")[:SHOWN], one.target[:SHOWN], score.under(self.metric).primary_score)
            for (name, one), score in zip(made, scores, strict=True)
        ]
        extra.reads["canaries"] = reads
        self.last_canaries = step


def degenerate_replies(prompt: str, checklist: Checklist) -> dict[str, str]:
    """The replies to a prompt by name: the attacks [`CANARIES`] of the bank."""
    return {name: BANK[name]("", prompt, checklist) for name in CANARIES}


def reworded(item: ChecklistItem, rng: random.Random) -> ChecklistItem:
    """The item with other words around its question."""
    question = rng.choice(_REWORDED).format(item.question)
    return item.model_copy(update={"question": question, "id": f"{item.id}/reworded"})


def reordered(item: ChecklistItem) -> ChecklistItem:
    """The item with its labels in the reverse order; for a yes/no item, with no before yes as written options."""
    options = item.options or (Option(label="yes", value=1), Option(label="no", value=0))
    return item.model_copy(update={"options": tuple(reversed(options)), "id": f"{item.id}/reordered"})
