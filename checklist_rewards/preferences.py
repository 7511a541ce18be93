"""Preference pairs for DPO, KTO and reward modelling from scored candidates.

A [`ScoredPool`] has the candidates of one prompt with their scores. [`choose_pair`] compares all pairs of candidates
and selects one by the [`Rule`], or returns the reason why there is none. [`mine_pairs`] does this for many pools and
counts the reasons. [`rows_of`] converts a pair to the columns of a trainer.

A candidate is the full text of a policy, with its thought. The scores are those of its answer ([`Candidate`]), and the
rows have the full text, because a policy that is trained on it must learn its own format. Candidates with the same
answer make no pair. The score of a candidate without an answer (cut in its thought, empty) is the lowest one, and no
judge was asked. It may be rejected, but it is never chosen over a candidate with an answer.

Unanswered items never decide a pair. With `unanswered="shared"`, two candidates are compared on the items answered for
*both*. With `unanswered="bounds"`, they make a pair only if no answer to the unanswered items could reverse the order:
the lower bound of one score is above the upper bound of the other.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any, Literal, Self, get_args

from annotated_types import Ge, Le
from pydantic import model_validator

from checklist_rewards.checklists import Checklist, content_hash
from checklist_rewards.config import Config
from checklist_rewards.errors import SampleError
from checklist_rewards.rows import IMAGE_COLUMNS, Candidate
from checklist_rewards.scores import (
    EQUAL,
    Reason,
    Score,
    Unanswered,
    Verdict,
    item_credits,
    score_checklist,
)
from checklist_rewards.validation import one_of
from checklist_rewards.version import __version__

Select = Literal["best_vs_worst", "random", "rlcf"]
Ties = Literal["drop", "keep"]
UnansweredItems = Literal["shared", "bounds"]
Form = Literal["dpo", "kto", "reward"]
FORMS: tuple[str, ...] = get_args(Form)
RLCF_FRACTION = 0.4
PROMPT_PARTS = (*IMAGE_COLUMNS, "tools", "chat_template_kwargs")
"""Columns that TRL's trainers render with the prompt."""

REASONS = {
    "no_checklist": "the prompt has no checklist",
    "too_few": "fewer than two candidates with different answers have a score",
    "unanswered": "too many items are unanswered to decide which candidate is better",
    "tie": "the candidates have the same score",
    "margin": "the score difference is below min_margin",
    "not_top": "the largest difference in a single item is smaller than in the pairs that were kept",
}
"""The reasons why a prompt has no pair."""


@dataclass(frozen=True, slots=True)
class ScoredPool:
    """The scored candidates of one prompt.

    Args:
        prompt (`str` or list of messages): copied to the rows unchanged. Completions have the same format.
        checklist ([`Checklist`]): the checklist that the candidates were scored with.
        candidates (sequence of `str`): the full texts; a [`Candidate`] has its answer with it.
        scores (sequence of [`Score`], one per candidate): the scores of their answers, in the same order.
        columns (mapping, *optional*): the columns that a trainer renders with the prompt ([`PROMPT_PARTS`]), copied to
            the rows unchanged.
    """

    prompt: Any
    checklist: Checklist
    candidates: Sequence[str]
    scores: Sequence[Score]
    columns: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.candidates):
            raise SampleError(
                f"got {len(self.scores)} scores for {len(self.candidates)} candidates; give one score per candidate."
            )


class Rule(Config):
    """The rule that selects at most one pair per prompt."""

    select: Select = "best_vs_worst"
    """`"best_vs_worst"`: the pair with the largest margin; the earliest among equals. `"random"`: a random pair with a
    margin of at least `min_margin`. `"rlcf"`: best_vs_worst, then only the `top_fraction` of all
    prompts whose pair differs most in a single item (RLCF, arXiv:2507.18624)."""
    min_margin: Annotated[float, Ge(0), Le(1)] = 0.0
    """Least difference of the two scores, from 0 to 1."""
    ties: Ties = "drop"
    """`"drop"`: equal scores make no pair. `"keep"`: they do, and the earlier candidate is chosen, but one with an
    answer before one without."""
    unanswered: UnansweredItems = "shared"
    """`"shared"`: compare on the items answered for both. `"bounds"`: compare the lower bound of one score with the
    upper bound of the other."""
    top_fraction: float | None = None
    """Fraction of pairs that `"rlcf"` keeps, above 0 and at most 1; the other rules keep all. Defaults to 0.4."""
    seed: int = 0
    """Seed of the choice `"random"`. The pair of a prompt does not depend on the other prompts."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise SampleError(
                f"top_fraction={self.top_fraction!r} is not allowed; it must be a number above 0 and at most 1."
            )
        if self.top_fraction is not None and self.select != "rlcf":
            raise SampleError(f"top_fraction={self.top_fraction} requires select='rlcf', got {self.select!r}.")
        if self.ties == "keep" and self.min_margin > 0:
            raise SampleError(
                f"ties='keep' and min_margin={self.min_margin} cannot be combined, because tied scores have margin 0."
            )
        return self

    @property
    def fraction(self) -> float:
        """Fraction of pairs that is kept."""
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
    """A chosen and a rejected candidate of one prompt."""

    prompt: Any
    chosen: str
    """The full text, with its thought."""
    rejected: str
    score_chosen: float
    """Score of the chosen candidate used in the comparison: over the items answered for both, or its lower bound."""
    score_rejected: float
    """Score of the rejected candidate used in the comparison: over the shared items, or its upper bound."""
    checklist: Checklist
    flipped: tuple[dict[str, Any], ...]
    """Items that exactly one of the two passes, with id, question and both answers."""
    largest_difference: float
    """max |c(chosen) - c(rejected)| over items with nonzero weight, where c is the soft credit; in [0, 1]."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The columns that a trainer renders with the prompt."""

    @property
    def margin(self) -> float:
        """score_chosen - score_rejected, >= 0."""
        return self.score_chosen - self.score_rejected


@dataclass(frozen=True, slots=True)
class Mined:
    """The pairs of many pools, in order, and the number of pools without a pair by reason (see `REASONS`)."""

    pairs: tuple[Pair, ...]
    dropped: Counter[str]


def mine_pairs(pools: Iterable[ScoredPool], rule: Rule | None = None) -> Mined:
    """Select at most one pair per pool by the rule (default `Rule()`)."""
    rule = rule or Rule()
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pool in pools:
        pair = choose_pair(pool, rule)
        if isinstance(pair, Pair):
            pairs.append(pair)
        else:
            dropped[pair] += 1
    top = top_places([pair.largest_difference for pair in pairs], rule.fraction)
    if len(top) < len(pairs):
        dropped["not_top"] += len(pairs) - len(top)
    return Mined(tuple(pair for place, pair in enumerate(pairs) if place in top), dropped)


def choose_pair(pool: ScoredPool, rule: Rule) -> Pair | str:
    """The pair of one pool, or the reason for none: "too_few", "unanswered", "tie" or "margin".

    Candidates with equal answers never make a pair.
    """
    scored = [position for position, score in enumerate(pool.scores) if score.primary_score is not None]
    answers = {position: Candidate(pool.candidates[position]).target.text for position in scored}
    both = [(a, b) for a, b in combinations(scored, 2) if answers[a] != answers[b]]
    if not both:
        return "too_few"
    decisions = [decision for a, b in both if (decision := _compared(pool, a, b, rule)) is not None]
    if not decisions:
        return "unanswered"
    best = max(decisions, key=lambda decision: decision.margin)  # the first maximum: the earliest candidates
    if best.margin == 0 and rule.ties == "drop":
        return "tie"
    least = max(rule.min_margin, 0.0 if rule.ties == "keep" else 2 * EQUAL)
    if best.margin < least - EQUAL:
        return "margin"
    if rule.select == "random":
        generator = random.Random(content_hash(str(rule.seed), json.dumps(pool.prompt, default=str), *pool.candidates))
        best = generator.choice([decision for decision in decisions if decision.margin >= least - EQUAL])
    return _pair(pool, best)


def top_places(differences: Sequence[float], fraction: float) -> set[int]:
    """The places of the ceil(fraction x n) of n pairs with the largest single-item differences; among equal ones, of
    the first."""
    count = math.ceil(fraction * len(differences) - EQUAL)
    return set(sorted(range(len(differences)), key=lambda place: -differences[place])[:count])


def rows_of(pair: Pair, form: Form = "dpo") -> list[dict[str, Any]]:
    """Convert a pair to dataset rows.

    `chosen`, `rejected` and `completion` are strings if the prompt is a string, otherwise a list with one assistant
    message.

    Args:
        pair ([`Pair`]): the pair.
        form (`str`, *optional*, defaults to `"dpo"`): `"dpo"`: one row with prompt, chosen, rejected, score_chosen,
            score_rejected, checklist and flipped. `"reward"`: the same plus margin, which `RewardTrainer` uses in its
            loss. `"kto"`: two rows with prompt, completion, label, score and checklist.

    Returns:
        `list[dict]`: One or two rows.
    """
    one_of("form", form, FORMS)
    checklist = [item.model_dump(mode="json", exclude={"sources"}) for item in pair.checklist.items]
    chosen, rejected = (_completion(pair.prompt, text) for text in (pair.chosen, pair.rejected))
    if form == "kto":
        return [
            {"prompt": pair.prompt, "completion": text, "label": label, "score": score, "checklist": checklist}
            | dict(pair.columns)
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
        **pair.columns,
    }
    return [row | {"margin": pair.margin} if form == "reward" else row]


def preference_card(
    title: str, rule: Rule, form: Form, pairs: int, dropped: Mapping[str, int], judges: Sequence[str] = ()
) -> str:
    """A dataset card (Markdown with a YAML header) that documents the rule and the number of dropped prompts.

    Args:
        title (`str`): name of the dataset.
        rule ([`Rule`]): the rule of the pairs.
        form (`str`): `"dpo"`, `"kto"` or `"reward"`.
        pairs (`int`): number of pairs.
        dropped (mapping): number of prompts without a pair, by reason.
        judges (sequence of `str`, *optional*): the judges that answered the checklists, as their answers name them.
    """
    trainer = {"dpo": "DPOTrainer", "kto": "KTOTrainer", "reward": "RewardTrainer"}[form]
    lines = [f"| {reason} | {count:,} | {REASONS.get(reason, '')} |" for reason, count in sorted(dropped.items())]
    table = ["| dropped | prompts | why |", "|---|---|---|", *lines] if lines else ["No prompt was dropped."]
    head = ["---", f"pretty_name: {json.dumps(title)}", "tags: [checklist-rewards, preference, trl]", "---"]
    names = ", ".join(f"`{judge}`" for judge in judges)
    text = [
        f"# {title}",
        "",
        f"{pairs:,} pairs from {pairs + sum(dropped.values()):,} prompts, for TRL's `{trainer}`.",
        "",
        f"**Rule**: {rule}. Scores are those of a checklist{f' answered by {names}' if names else ''}.",
        "",
        *table,
        "",
        f"Made with checklist-rewards {__version__}.",
    ]
    return "\n".join([*head, "", *text]) + "\n"


@dataclass(frozen=True, slots=True)
class _Decision:
    better: int
    worse: int
    score_better: float
    score_worse: float

    @property
    def margin(self) -> float:
        # Floating-point sums in a different order differ in the last digit; that is not a preference.
        margin = self.score_better - self.score_worse
        return 0.0 if margin < EQUAL else round(margin, 9)


def _compared(pool: ScoredPool, a: int, b: int, rule: Rule) -> _Decision | None:
    """The two candidates in order of preference; None if it depends on unanswered items."""
    one, other = pool.scores[a], pool.scores[b]
    is_complete = all(score.no_answer or score.answered == score.total for score in (one, other))
    # Every item of a candidate without an answer counts as bad, so it has the same score on any of them.
    if is_complete or (rule.unanswered == "shared" and (one.no_answer or other.no_answer)):
        values = one.primary_score, other.primary_score
    elif rule.unanswered == "bounds":
        bounds = ((a, b, one.lower, other.upper), (b, a, other.lower, one.upper))
        for better, worse, low, high in bounds:
            if low is not None and high is not None and low - high > EQUAL:
                return _Decision(better, worse, low, high)
        return None
    else:
        shared = [x.unanswered is None and y.unanswered is None for x, y in zip(one.items, other.items, strict=True)]
        values = _on_shared(pool.checklist, one, shared), _on_shared(pool.checklist, other, shared)
    first, second = values
    if first is None or second is None:
        return None
    if second - first > EQUAL or (first - second <= EQUAL and one.no_answer and not other.no_answer):
        return _Decision(b, a, second, first)
    return _Decision(a, b, first, second)


def _on_shared(checklist: Checklist, score: Score, shared: Sequence[bool]) -> float | None:
    # Unshared items stay in the checklist as unanswered, so that rules about the whole checklist (penalties only,
    # least answered weight) apply unchanged.
    verdicts = [
        line.verdict() if is_shared else Verdict(unanswered=Unanswered(Reason.NOT_SHARED))
        for line, is_shared in zip(score.items, shared, strict=True)
    ]
    return score_checklist(
        checklist,
        verdicts,
        score.rules,
        quality=score.quality,
    ).primary_score


def _pair(pool: ScoredPool, decision: _Decision) -> Pair:
    chosen, rejected = pool.scores[decision.better], pool.scores[decision.worse]
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
        pool.candidates[decision.better],
        pool.candidates[decision.worse],
        decision.score_better,
        decision.score_worse,
        pool.checklist,
        flipped,
        max(differences, default=0.0),
        pool.columns,
    )


def _completion(prompt: Any, text: str) -> str | list[dict[str, str]]:
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
