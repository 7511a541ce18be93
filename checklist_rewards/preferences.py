"""Preference data: scored candidates of a prompt in, a chosen and a rejected one out.

A [`Pool`] has the candidates of one prompt with their scores. [`choose_pair`] compares every two of them, takes one
pair by the [`Rule`], and gives it or the reason why there is none; [`mine_pairs`] does so for many pools and counts
the reasons. [`rows_of`] writes a pair as trainers take it: `prompt/chosen/rejected` for DPOTrainer, the same with the
`margin` that RewardTrainer puts into its loss, or one labelled completion per row for KTOTrainer.

A pair is never decided by what a judge failed to answer. Two candidates are compared on the items that were answered
for *both* (`unanswered="shared"`), or only where no answer to the others could turn the order: the lower bound of one
is above the upper bound of the other (`unanswered="bounds"`). Where neither can be said, there is no pair.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

from checklist_rewards.checklists import Checklist, content_hash
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.shaping import item_credits
from checklist_rewards.scores import Aggregation, Score, Verdict, score_checklist
from checklist_rewards.version import __version__

Select = Literal["best_vs_worst", "random", "rlcf"]
Ties = Literal["drop", "keep"]
Unanswered = Literal["shared", "bounds"]
Form = Literal["dpo", "kto", "reward"]
FORMS: tuple[str, ...] = get_args(Form)
RLCF_FRACTION = 0.4
_EQUAL = 1e-9

REASONS = {
    "no_checklist": "the prompt has no checklist",
    "too_few": "fewer than two different candidates have a score",
    "unanswered": "too much was left unanswered to say which candidate is better",
    "tie": "the candidates have the same score",
    "margin": "the scores are closer than the least margin",
    "not_top": "no item tells the two apart as clearly as in the pairs that were kept",
}
"""Why a prompt has no pair."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one prompt, scored.

    Args:
        prompt (`str` or list of messages): written to the rows as it is; completions take its format.
        checklist ([`Checklist`]): what the scores were made with.
        candidates (sequence of `str`).
        scores (sequence of [`Score`], one per candidate).
    """

    prompt: Any
    checklist: Checklist
    candidates: Sequence[str]
    scores: Sequence[Score]

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.candidates):
            raise SampleError(f"got {len(self.scores)} scores for {len(self.candidates)} candidates; each needs one.")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which pair of a prompt is taken, if any."""

    select: Select = "best_vs_worst"
    """best_vs_worst: the two furthest apart, of several the earliest. random: any two that are far enough apart. rlcf:
    best_vs_worst, and then of all prompts the `top_fraction` whose pair differs most in a single item (RLCF,
    arXiv 2507.18624)."""
    min_margin: float = 0.0
    """Least difference of the two scores, in [0, 1]; for random this is the gap."""
    ties: Ties = "drop"
    """keep: equal scores make a pair too, whose chosen one is the earlier."""
    unanswered: Unanswered = "shared"
    """shared: compare on the items answered for both. bounds: compare the worst case of one with the best case of the
    other."""
    top_fraction: float | None = None
    """Share of pairs that rlcf keeps, in (0, 1]; 0.4 where it is None. The other rules keep all."""
    seed: int = 0
    """Another seed, other random pairs. The pair of a prompt does not depend on the other prompts."""

    def __post_init__(self) -> None:
        allowed = {
            "select": get_args(Select),
            "ties": get_args(Ties),
            "unanswered": get_args(Unanswered),
        }
        for name, words in allowed.items():
            if getattr(self, name) not in words:
                raise SampleError(
                    f"{name}={getattr(self, name)!r} is not known; allowed: {', '.join(map(repr, words))}."
                )
        if not 0 <= self.min_margin <= 1:
            raise SampleError(f"min_margin={self.min_margin!r} is not allowed: it must be in [0, 1].")
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise SampleError(f"top_fraction={self.top_fraction!r} is not allowed: it must be above 0 and at most 1.")
        if self.top_fraction is not None and self.select != "rlcf":
            raise SampleError(f"top_fraction={self.top_fraction} belongs to select='rlcf', got {self.select!r}.")
        if self.ties == "keep" and self.min_margin > 0:
            raise SampleError(f"ties='keep' and min_margin={self.min_margin} contradict each other; give one of them.")

    @property
    def fraction(self) -> float:
        """Share of pairs that is kept."""
        return 1.0 if self.select != "rlcf" else RLCF_FRACTION if self.top_fraction is None else self.top_fraction

    def __str__(self) -> str:
        far = f" at least {self.min_margin:g} apart" if self.min_margin else ""
        pair = "a random pair" if self.select == "random" else "the best against the worst"
        parts = [f"of every prompt {pair} of its candidates{far}"]
        if self.select == "rlcf":
            parts.append(
                f"of these the {self.fraction:.0%} with the largest difference in a single item (RLCF's rule)"
            )
        parts.append("ties kept, the earlier one chosen" if self.ties == "keep" else "ties dropped")
        parts.append(
            "compared on the items that were answered for both"
            if self.unanswered == "shared"
            else "taken only where no unanswered item could turn the order"
        )
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two candidates of one prompt in order of preference."""

    prompt: Any
    chosen: str
    rejected: str
    score_chosen: float
    """The score it was decided by: over the items answered for both, or the lower bound."""
    score_rejected: float
    """The same for the rejected one, or its upper bound."""
    checklist: Checklist
    flipped: tuple[dict[str, Any], ...]
    """Items that one of the two passes and the other does not: id, question, and the answers of both."""
    largest_difference: float
    """max |c(chosen) - c(rejected)| over the items with a weight, c being the soft credit, in [0, 1]."""

    @property
    def margin(self) -> float:
        """score_chosen - score_rejected, >= 0."""
        return self.score_chosen - self.score_rejected


@dataclass(frozen=True, slots=True)
class Mined:
    """The pairs of many pools, in their order, and how many pools gave none, by reason (see `REASONS`)."""

    pairs: tuple[Pair, ...]
    dropped: Counter[str]


def mine_pairs(pools: Iterable[Pool], rule: Rule | None = None) -> Mined:
    """At most one pair per pool, by the rule."""
    rule = rule or Rule()
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pool in pools:
        found = choose_pair(pool, rule)
        if isinstance(found, Pair):
            pairs.append(found)
        else:
            dropped[found] += 1
    kept = keep_top(pairs, rule.fraction)
    if len(kept) < len(pairs):
        dropped["not_top"] += len(pairs) - len(kept)
    return Mined(tuple(kept), dropped)


def choose_pair(pool: Pool, rule: Rule) -> Pair | str:
    """The pair of one pool, or why there is none: too_few, unanswered, tie or margin.

    Equal texts make no pair, whatever their scores.
    """
    scored = [position for position, score in enumerate(pool.scores) if score.primary_score is not None]
    both = [(a, b) for a, b in combinations(scored, 2) if pool.candidates[a] != pool.candidates[b]]
    if not both:
        return "too_few"
    decided = [found for a, b in both if (found := _compared(pool, a, b, rule)) is not None]
    if not decided:
        return "unanswered"
    best = max(decided, key=lambda found: found.margin)  # of several the first: the earliest candidates
    if best.margin == 0 and rule.ties == "drop":
        return "tie"
    least = max(rule.min_margin, 0.0 if rule.ties == "keep" else 2 * _EQUAL)
    if best.margin < least - _EQUAL:
        return "margin"
    if rule.select == "random":
        dice = random.Random(content_hash(str(rule.seed), json.dumps(pool.prompt, default=str), *pool.candidates))
        best = dice.choice([found for found in decided if found.margin >= least - _EQUAL])
    return _pair(pool, best)


def keep_top(pairs: Sequence[Pair], fraction: float) -> list[Pair]:
    """The pairs with the largest single-item differences, in their order: ceil(fraction x n) of n, of equal ones the
    earlier."""
    count = math.ceil(fraction * len(pairs) - _EQUAL)
    order = sorted(range(len(pairs)), key=lambda n: -pairs[n].largest_difference)
    return [pairs[n] for n in sorted(order[:count])]


def rows_of(pair: Pair, form: Form = "dpo") -> list[dict[str, Any]]:
    """A pair as rows of a dataset.

    Args:
        pair ([`Pair`]).
        form (`str`, *optional*, defaults to `"dpo"`): dpo: one row with prompt, chosen, rejected, score_chosen,
            score_rejected, checklist and flipped. reward: the same with margin, which changes RewardTrainer's loss and
            is therefore in no other. kto: two rows with prompt, completion, label, score and checklist.

    Chosen, rejected and completion are strings where the prompt is one, else a list of one assistant message.
    """
    if form not in FORMS:
        raise SampleError(f"form={form!r} is not known; allowed: {', '.join(map(repr, FORMS))}.")
    checklist = [item.model_dump(mode="json", exclude={"sources"}) for item in pair.checklist.items]
    chosen, rejected = (_completion(pair.prompt, text) for text in (pair.chosen, pair.rejected))
    if form == "kto":
        return [
            {"prompt": pair.prompt, "completion": text, "label": label, "score": score, "checklist": checklist}
            for text, label, score in ((chosen, True, pair.score_chosen), (rejected, False, pair.score_rejected))
        ]
    row = {
        "prompt": pair.prompt,
        "chosen": chosen,
        "rejected": rejected,
        "score_chosen": pair.score_chosen,
        "score_rejected": pair.score_rejected,
        "checklist": checklist,
        "flipped": [dict(item) for item in pair.flipped],
    }
    return [row | {"margin": pair.margin} if form == "reward" else row]


def preference_card(
    title: str, rule: Rule, form: Form, pairs: int, dropped: Mapping[str, int], judge: str | None = None
) -> str:
    """A dataset card (Markdown with a YAML head) that states the rule and what it dropped.

    Args:
        title (`str`): the dataset's name.
        rule ([`Rule`]).
        form (`str`): dpo, kto or reward.
        pairs (`int`): how many were kept.
        dropped (mapping): prompts without a pair, by reason.
        judge (`str`, *optional*): the model that answered the checklists.
    """
    trainer = {"dpo": "DPOTrainer", "kto": "KTOTrainer", "reward": "RewardTrainer"}[form]
    lines = [f"| {reason} | {count:,} | {REASONS.get(reason, '')} |" for reason, count in sorted(dropped.items())]
    table = ["| dropped | prompts | why |", "|---|---|---|", *lines] if lines else ["No prompt was dropped."]
    head = ["---", f"pretty_name: {json.dumps(title)}", "tags: [checklist-rewards, preference, trl]", "---"]
    text = [
        f"# {title}",
        "",
        f"{pairs:,} pairs from {pairs + sum(dropped.values()):,} prompts, for TRL's `{trainer}`.",
        "",
        f"**Rule**: {rule}. Scores are those of a checklist{f' answered by `{judge}`' if judge else ''}.",
        "",
        *table,
        "",
        f"Made with checklist-rewards {__version__}.",
    ]
    return "\n".join([*head, "", *text]) + "\n"


@dataclass(frozen=True, slots=True)
class _Comparison:
    better: int
    worse: int
    score_better: float
    score_worse: float

    @property
    def margin(self) -> float:
        # Sums of the same numbers in another order differ in their last digit; that is no preference.
        margin = self.score_better - self.score_worse
        return 0.0 if margin < _EQUAL else round(margin, 9)


def _compared(pool: Pool, a: int, b: int, rule: Rule) -> _Comparison | None:
    """The two in order; None where unanswered items decide it."""
    one, other = pool.scores[a], pool.scores[b]
    if one.answered == one.total and other.answered == other.total:
        values = one.primary_score, other.primary_score
    elif rule.unanswered == "bounds":
        bounds = ((a, b, one.lower, other.upper), (b, a, other.lower, one.upper))
        for better, worse, low, high in bounds:
            if low is not None and high is not None and low - high > _EQUAL:
                return _Comparison(better, worse, low, high)
        return None
    else:
        shared = [x.unanswered is None and y.unanswered is None for x, y in zip(one.items, other.items, strict=True)]
        values = _on_shared(pool.checklist, one, shared), _on_shared(pool.checklist, other, shared)
    first, second = values
    if first is None or second is None:
        return None
    if second - first > _EQUAL:
        return _Comparison(b, a, second, first)
    return _Comparison(a, b, first, second)


def _on_shared(checklist: Checklist, score: Score, shared: Sequence[bool]) -> float | None:
    # The items stay in the checklist: whether it has penalties only, and how much of it is answered, are its own.
    verdicts = [
        line.verdict() if kept else Verdict(unanswered="not_shared")
        for line, kept in zip(score.items, shared, strict=True)
    ]
    return score_checklist(
        checklist,
        verdicts,
        score.aggregation or Aggregation(primary_metric=score.primary_metric),  # type: ignore[arg-type]
        quality=score.quality,
    ).primary_score


def _pair(pool: Pool, found: _Comparison) -> Pair:
    chosen, rejected = pool.scores[found.better], pool.scores[found.worse]
    credits = zip(
        pool.checklist.items,
        item_credits(pool.checklist, chosen),
        item_credits(pool.checklist, rejected),
        strict=True,
    )
    differences = [abs(c - r) for item, c, r in credits if item.weight and c is not None and r is not None]
    flipped = tuple(
        {"id": c.id, "question": c.question, "chosen": c.answer, "rejected": r.answer}
        for c, r in zip(chosen.items, rejected.items, strict=True)
        if c.passed is not None and r.passed is not None and c.passed != r.passed
    )
    return Pair(
        pool.prompt,
        pool.candidates[found.better],
        pool.candidates[found.worse],
        found.score_better,
        found.score_worse,
        pool.checklist,
        flipped,
        max(differences, default=0.0),
    )


def _completion(prompt: Any, text: str) -> str | list[dict[str, str]]:
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
