"""Shaping of one completion: steps that turn a reward into another one by the items, the text, or a range.

    >>> from checklist_rewards.checklists import Checklist
    >>> from checklist_rewards.scores import Verdict, item_credits, score_checklist
    >>> checklist = Checklist.parse([{"question": "Polite?", "required": True}, "Short?", "Funny?"])
    >>> verdicts = [Verdict({"yes": p, "no": 1 - p}) for p in (0.9, 0.8, 0.1)]
    >>> credits = item_credits(checklist, score_checklist(checklist, verdicts))
    >>> value = GateStep().reduced(Earned().earned(checklist, credits), checklist, credits)  # 0.6 x 0.9
    >>> round(value - LengthPenalty().penalty(7000), 3)
    0.375

The credit of an item is v for a weight >= 0 and 1 - v for a penalty, where v in [0, 1] is its value (see `scores/`).
`earned`, clipped, is the score without required items: `expected_score` for soft answers, `weighted_score` for hard
answers. `steps.py` has the steps by name, and `group_shaping.py` those that compare the items of a group.

None means unknown: a value of None stays None, and unanswered items are excluded from sums and products. A judge
failure can therefore neither open nor close a gate, nor change the mean of a group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from statistics import fmean
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import override

from checklist_rewards.checklists import Checklist
from checklist_rewards.rewards.batch import Call, Rewards, load_tokenizer
from checklist_rewards.rewards.ranks import from_other_ranks
from checklist_rewards.rows import Sample
from checklist_rewards.scores import PASS_CREDIT, Answers, Score, item_credits

Credits = Sequence[float | None]
"""Credit of every item of a checklist; None if it is unanswered. See [`item_credits`]."""


class ShapingStep(BaseModel):
    """Base class of the steps. Its fields are the settings of the step."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    by_group: ClassVar[bool] = False
    """Whether the value of a completion depends on its group, which requires communication between ranks."""
    name: str

    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        """The value of one completion after this step. With None, NaN or an infinity it gets no reward."""
        raise NotImplementedError

    def values(self, call: Call) -> Rewards:
        """The rewards of all completions after this step."""
        rows = zip(call.rewards, call.samples, call.scores, strict=True)
        return [None if v is None or s is None or score is None else self.value(v, s, score) for v, s, score in rows]

    def __call__(self, call: Call) -> Call:
        """Apply the step."""
        return call.staged(self.name, self.values(call))


class Called(ShapingStep):
    """A function of one completion as a step."""

    function: Callable[..., float | None]

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        return self.function(value, sample, score)


class Earned(ShapingStep):
    """Replace the value by what the items earn, minus the cost of the penalties, not clipped.

    (sum m w c - sum m |w| (1 - c)) / scale, over the answered items with w > 0 and with w < 0. The scale is sum m w
    over the answered items with w > 0. For a checklist with penalties only, it is sum m |w|, and their cost is
    subtracted from 1.
    """

    name: Literal["earned"] = "earned"
    answers: Answers = "soft"
    categories: dict[str, float] = Field(default={})
    """Factor m on the weights of items by category, >= 0. 1 for categories not listed, and without a category."""

    @field_validator("categories")
    @classmethod
    def _weights(cls, categories: dict[str, float]) -> dict[str, float]:
        for name, factor in categories.items():
            if factor < 0:
                raise ValueError(f"the weight of category {name!r} is {factor}; allowed: a finite number >= 0")
        return categories

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        if score.weighted_score is None:  # an unanswered penalty costs an unknown amount, not nothing
            return None
        return self.earned(sample.checklist, item_credits(sample.checklist, score, self.answers))

    def earned(self, checklist: Checklist, credits: Credits) -> float | None:
        """The formula. None if no item with a positive weight was answered; for a checklist with penalties only, if no
        item was."""
        known = [
            (item.weight * (1.0 if item.category is None else self.categories.get(item.category, 1.0)), credit)
            for item, credit in zip(checklist.items, credits, strict=True)
            if credit is not None
        ]
        only = checklist.only_penalties
        scale = math.fsum(abs(w) if only else max(w, 0.0) for w, _ in known)
        if not scale:
            return None
        gained = 1.0 if only else min(1.0, math.fsum(w * credit for w, credit in known if w > 0) / scale)
        return gained - math.fsum(-w * (1 - credit) for w, credit in known if w < 0) / scale


class GateStep(ShapingStep):
    """Reduce the value by the required items of the checklist."""

    name: Literal["gate"] = "gate"
    how: Literal["multiply", "floor"] = "multiply"
    """`multiply`: value x p, with p the product of the required items' c; for a value below 0 value x (2 - p), so that
    a failed item lowers it too. `floor`: min(value, floor) if a required item fails (c < 0.5), else value."""
    floor: float = 0.0
    """Upper limit of the value if a required item fails and `how="floor"`."""
    answers: Answers = "soft"

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float:
        return self.reduced(value, sample.checklist, item_credits(sample.checklist, score, self.answers))

    def reduced(self, value: float, checklist: Checklist, credits: Credits) -> float:
        """The formula."""
        pairs = zip(checklist.items, credits, strict=True)
        required = [credit for item, credit in pairs if item.required and credit is not None]
        if self.how == "multiply":
            product = math.prod(required)
            return value * (product if value >= 0 else 2 - product)
        return min(value, self.floor) if any(credit < PASS_CREDIT for credit in required) else value


class FormatGate(ShapingStep):
    """Limit the value of texts that do not match a regular expression."""

    name: Literal["format_gate"] = "format_gate"
    form: str
    """Must match the whole text; a dot also matches line breaks."""
    otherwise: float = 0.0
    """Upper limit of the value of a text with another format."""

    @field_validator("form")
    @classmethod
    def _compiles(cls, form: str) -> str:
        try:
            re.compile(form)
        except re.error as error:
            raise ValueError(f"{form!r} is not a regular expression ({error})") from None
        return form

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float:
        matches = re.fullmatch(self.form, sample.target, re.DOTALL) is not None
        return value if matches else min(value, self.otherwise)


class LengthPenalty(ShapingStep):
    """Subtract a penalty for long texts: the curve of Autorubric's `LengthPenalty`, with its defaults.

    The penalty is 0 up to `free`, at_cap x ((length - free) / (cap - free)) ^ exponent up to `cap`, and `at_cap`
    above. The value is None if the penalty depends on a number of words that cannot be counted (Thai, Lao, Khmer,
    Burmese, Tibetan); use characters or tokens for such texts.
    """

    name: Literal["length_penalty"] = "length_penalty"
    unit: Literal["words", "characters", "tokens"] = "words"
    """The check `words` counts the same words: each Han or kana character is one. Characters are code points."""
    free: float = 6000
    """Length without penalty, >= 0."""
    cap: float = 8000
    """Length of the maximum penalty, above `free`."""
    at_cap: float = 0.5
    """Maximum penalty, >= 0."""
    exponent: float = 1.6
    """Shape of the curve, > 0. Above 1, the penalty starts slowly."""
    tokenizer: str | None = None
    """For unit "tokens": the model whose tokenizer to use, a local folder or a Hub id."""

    @model_validator(mode="after")
    def _makes_a_curve(self) -> Self:
        if not (0 <= self.free < self.cap and self.at_cap >= 0 and self.exponent > 0):
            raise ValueError(
                f"got free={self.free}, cap={self.cap}, at_cap={self.at_cap}, exponent={self.exponent}; "
                "allowed: 0 <= free < cap, at_cap >= 0, exponent > 0."
            )
        if (self.unit == "tokens") != (self.tokenizer is not None):
            raise ValueError(
                f"unit='tokens' and tokenizer require each other, got {self.unit!r} and {self.tokenizer!r}"
            )
        if self.tokenizer is not None:
            load_tokenizer(self.tokenizer)
        return self

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        least, greatest = map(self.penalty, self.bounds(sample.target))
        return value - least if least == greatest else None

    def penalty(self, length: float) -> float:
        """The curve."""
        over = min(1.0, max(0.0, (length - self.free) / (self.cap - self.free)))
        return self.at_cap * over**self.exponent

    def bounds(self, text: str) -> tuple[int, int]:
        """The least and the greatest length that a text can have. They differ only for words of a script that only a
        dictionary can count."""
        if self.tokenizer is not None:
            return (len(load_tokenizer(self.tokenizer).tokenize(text)),) * 2
        if self.unit == "characters":
            return (len(text),) * 2
        from checklist_rewards.checks.text import word_bounds  # a quarter of the time to import the package

        return word_bounds(text)


class Clipped(ShapingStep):
    """Clip the value to a range: min(high, max(low, value))."""

    name: Literal["clipped"] = "clipped"
    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low <= self.high:
            raise ValueError(f"low={self.low} is greater than high={self.high}; allowed: low <= high.")
        return self

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float:
        return min(self.high, max(self.low, value))


class Centred(ShapingStep):
    """Subtract the mean of the completions of the same prompt on all ranks, like the advantages of GRPO."""

    by_group: ClassVar[bool] = True
    name: Literal["centred"] = "centred"

    @override
    def values(self, call: Call) -> Rewards:
        mine = list(zip(call.rewards, call.groups, strict=True))
        everyone = [*mine, *from_other_ranks(mine)]
        return centred([one[0] for one in everyone], [one[1] for one in everyone])[: len(mine)]


def centred(values: Sequence[float | None], groups: Sequence[Hashable]) -> list[float | None]:
    """Values minus the mean of their group; see [`Centred`]. None is excluded from the mean and stays None."""
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        if value is not None:
            members.setdefault(group, []).append(value)
    means = {group: fmean(numbers) for group, numbers in members.items()}
    return [None if v is None else v - means[group] for v, group in zip(values, groups, strict=True)]
