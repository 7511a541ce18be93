"""Shaping steps: the formulas of `shaping.py` as a list of named steps, for the `shaping` argument and config files.

    >>> shaping = Shaping(
    ...     [
    ...         {"name": "earned", "answers": "hard"},
    ...         {"name": "gate", "how": "floor", "floor": 0.1},
    ...         {"name": "length_penalty", "free": 200, "cap": 400},
    ...         "clipped",
    ...     ]
    ... )

The value of a completion starts as its `primary_score` and passes through the steps in order. `earned` replaces the
value: a metric already includes required items, `earned` does not, so put `gate` after it. None stays None: a
completion without a score has no shaped reward.

The name and settings of every step are validated when it is created.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from typing_extensions import override

from checklist_rewards.backends.models import from_hub, resolve_model
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards import group_shaping, shaping
from checklist_rewards.rewards.batch import Call, Rewards
from checklist_rewards.rewards.ranks import from_other_ranks
from checklist_rewards.rewards.shaping import Gate, Spread, Unit
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Answers, Score, item_credits
from checklist_rewards.validation import one_sentence

WITHOUT_VARIANCE = "items_without_variance"
"""Metric of the steps that shape items across a group: the share of items, over all groups, without variance."""


class ShapingStep(BaseModel):
    """Base class of the steps. Its fields are the settings of the step."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    by_group: ClassVar[bool] = False
    """Whether the value of a completion depends on its group, which requires communication between ranks."""
    name: str

    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        """The value of one completion after this step."""
        raise NotImplementedError

    def values(self, call: Call) -> Rewards:
        """The rewards of all completions after this step."""
        rows = zip(call.rewards, call.samples, call.scores, strict=True)
        return [None if v is None or s is None or score is None else self.value(v, s, score) for v, s, score in rows]

    def __call__(self, call: Call) -> Call:
        """Apply the step."""
        return call.staged(self.name, self.values(call))


class Earned(ShapingStep):
    """Replace the value by [`earned`] minus [`penalties`], not clipped."""

    name: Literal["earned"] = "earned"
    answers: Answers = "soft"
    categories: dict[str, float] = Field(default={})
    """Factor on the weights of items by category, >= 0."""

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
        credits = item_credits(sample.checklist, score, self.answers)
        gained = shaping.earned(sample.checklist, credits, self.categories)
        return shaping.less(gained, shaping.penalties(sample.checklist, credits, self.categories))


class GateStep(ShapingStep):
    """Reduce the value by the required items; see [`gate`]."""

    name: Literal["gate"] = "gate"
    how: Gate = "multiply"
    floor: float = 0.0
    answers: Answers = "soft"

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        credits = item_credits(sample.checklist, score, self.answers)
        return shaping.gate(value, sample.checklist, credits, self.how, self.floor)


class FormatGate(ShapingStep):
    """Limit the value of texts that do not match a regular expression; see [`format_gate`]."""

    name: Literal["format_gate"] = "format_gate"
    form: str
    otherwise: float = 0.0

    @field_validator("form")
    @classmethod
    def _compiles(cls, form: str) -> str:
        try:
            re.compile(form)
        except re.error as error:
            raise ValueError(f"{form!r} is not a regular expression ({error})") from None
        return form

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        return shaping.format_gate(value, sample.target, self.form, self.otherwise)


class LengthPenalty(ShapingStep):
    """Subtract the [`length_penalty`] of the text. The value is None if the penalty depends on a number of words that
    cannot be counted (Thai, Lao, Khmer, Burmese, Tibetan); use characters or tokens for such texts."""

    name: Literal["length_penalty"] = "length_penalty"
    unit: Unit = "words"
    free: float = 6000
    cap: float = 8000
    at_cap: float = 0.5
    exponent: float = 1.6
    tokenizer: str | None = None
    """For unit "tokens": the model whose tokenizer to use, a local folder or a Hub id."""

    @model_validator(mode="after")
    def _makes_a_curve(self) -> Self:
        shaping.length_penalty(0, **self._curve)
        if (self.unit == "tokens") != (self.tokenizer is not None):
            raise ValueError(
                f"unit='tokens' and tokenizer require each other, got {self.unit!r} and {self.tokenizer!r}"
            )
        if self.tokenizer is not None:
            _tokenize(self.tokenizer)
        return self

    @property
    def _curve(self) -> dict[str, float]:
        return {"free": self.free, "cap": self.cap, "at_cap": self.at_cap, "exponent": self.exponent}

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        tokenize = None if self.tokenizer is None else _tokenize(self.tokenizer)
        bounds = shaping.length_bounds(sample.target, self.unit, tokenize)
        least, greatest = (shaping.length_penalty(length, **self._curve) for length in bounds)
        return shaping.less(value, least if least == greatest else None)


class Clipped(ShapingStep):
    """Clip the value to a range; see [`clipped`]."""

    name: Literal["clipped"] = "clipped"
    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        shaping.clipped(None, self.low, self.high)
        return self

    @override
    def value(self, value: float, sample: Sample, score: Score) -> float | None:
        return shaping.clipped(value, self.low, self.high)


class Centred(ShapingStep):
    """Subtract the mean of the completions of the same prompt on all ranks; see [`centred`]."""

    by_group: ClassVar[bool] = True
    name: Literal["centred"] = "centred"
    spread: Spread = "none"

    @override
    def values(self, call: Call) -> Rewards:
        mine = list(zip(call.rewards, call.groups, strict=True))
        everyone = [*mine, *from_other_ranks(mine)]
        values, groups = [value for value, _ in everyone], [group for _, group in everyone]
        return shaping.centred(values, groups, self.spread)[: len(mine)]


class ItemsAcrossGroup(ShapingStep):
    """Base class of the steps that replace the value by one computed from the items of all completions of the prompt,
    on all ranks. Required items are not gates in it. Completions without a value are left out."""

    by_group: ClassVar[bool] = True
    answers: Answers = "soft"
    min_std: float = Field(default=group_shaping.MIN_STD, ge=0)
    """Standard deviation of an item's credits, in [0, 0.5], up to which it is without variance and carries nothing."""

    def shaped(self, credits: group_shaping.Credits, checklist: Checklist) -> list[float]:
        """The values of one group, from a matrix of completions x items."""
        raise NotImplementedError

    @override
    def __call__(self, call: Call) -> Call:
        groups = call.groups
        rows = [
            None
            if v is None or sample is None or score is None
            else item_credits(sample.checklist, score, self.answers)
            for v, sample, score in zip(call.rewards, call.samples, call.scores, strict=True)
        ]
        asked = [None if sample is None else sample.checklist.id for sample in call.samples]
        mine_and_others = [*zip(groups, rows, asked, strict=True)]
        mine_and_others += from_other_ranks(mine_and_others)
        self._same_items((group, checklist) for group, row, checklist in mine_and_others if row is not None)
        others = [(group, row) for group, row, _ in mine_and_others[len(rows) :]]
        values: Rewards = [None] * len(rows)
        metrics: list[tuple[str, float]] = []
        for group in dict.fromkeys(groups):
            places = [place for place, row in enumerate(rows) if row is not None and groups[place] == group]
            checklist = next((s.checklist for place in places if (s := call.samples[place]) is not None), None)
            if checklist is None:
                continue
            mine = [row for place in places if (row := rows[place]) is not None]
            credits = [*mine, *(row for other, row in others if row is not None and other == group)]
            # The values of other ranks come last; their ranks compute them too, from the same rows in another order.
            for place, value in zip(places, self.shaped(credits, checklist), strict=False):
                values[place] = value
            flat = group_shaping.without_variance(credits, self.min_std)
            metrics += [(WITHOUT_VARIANCE, float(f)) for f, i in zip(flat, checklist.items, strict=True) if i.weight]
        return call.staged(self.name, values, metrics)

    def _same_items(self, asked: Iterable[tuple[str, str | None]]) -> None:
        """Refuse groups whose completions have different checklists, which environments may write."""
        checklist_of: dict[str, str | None] = {}
        for group, checklist in asked:
            if checklist_of.setdefault(group, checklist) != checklist:
                raise SampleError(
                    f"shaping step {self.name!r} compares items across a group, but completions of one group have "
                    "different checklists; use 'centred', or give all completions of a row the same checklist."
                )


class ItemZscore(ItemsAcrossGroup):
    """Replace the value by the weighted sum of items standardized in the group; see [`item_zscore`]."""

    name: Literal["item_zscore"] = "item_zscore"

    @override
    def shaped(self, credits: group_shaping.Credits, checklist: Checklist) -> list[float]:
        return group_shaping.item_zscore(credits, [item.weight for item in checklist.items], min_std=self.min_std)


class Contrast(ItemsAcrossGroup):
    """Replace the value by the mean credit under weights that follow the items' variance; see [`contrast`]."""

    name: Literal["contrast"] = "contrast"

    @override
    def shaped(self, credits: group_shaping.Credits, checklist: Checklist) -> list[float]:
        categories = [item.category for item in checklist.items]
        return group_shaping.contrast(
            credits, [item.weight for item in checklist.items], categories, min_std=self.min_std
        )


class Whitened(ItemsAcrossGroup):
    """Replace the value by the sum of standardized items in which correlated items share their weight; see
    [`whitened`]."""

    name: Literal["whitened"] = "whitened"

    @override
    def shaped(self, credits: group_shaping.Credits, checklist: Checklist) -> list[float]:
        return group_shaping.whitened(credits, [item.weight for item in checklist.items], min_std=self.min_std)


_STEPS: tuple[type[ShapingStep], ...] = (
    Earned, GateStep, FormatGate, LengthPenalty, Clipped, Centred, ItemZscore, Contrast, Whitened,
)  # fmt: skip
STEPS: dict[str, type[ShapingStep]] = {step.model_fields["name"].default: step for step in _STEPS}


class Shaping:
    """A sequence of shaping steps.

    Args:
        steps (sequence of mappings or `str`):
            Each with the `name` of a step and its settings. A name alone uses the default settings.

    Raises:
        SampleError: For an unknown step or an invalid setting.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any] | str]):
        if isinstance(steps, str | Mapping) or not isinstance(steps, Sequence):
            raise SampleError(f"shaping must be a list of steps, such as [{{'name': 'clipped'}}], got {steps!r:.60}.")
        self.steps = tuple(_step(step, f"shaping, step {number}") for number, step in enumerate(steps, start=1))

    @property
    def by_group(self) -> bool:
        """Whether the value of a completion depends on its group, which requires communication between ranks."""
        return any(step.by_group for step in self.steps)

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics of all steps."""
        return [WITHOUT_VARIANCE] if any(isinstance(step, ItemsAcrossGroup) for step in self.steps) else []

    def __call__(self, call: Call) -> Call:
        """Apply all steps to the rewards of a call that has samples, scores and groups. Each step adds a stage."""
        for step in self.steps:
            call = step(call)
        return call


def _step(step: Any, where: str) -> ShapingStep:
    settings = {"name": step} if isinstance(step, str) else step
    if not isinstance(settings, Mapping) or settings.get("name") not in STEPS:
        raise SampleError(f"{where}: expected a mapping with a name among {', '.join(STEPS)}, got {step!r:.60}.")
    shape = STEPS[settings["name"]]
    try:
        return shape.model_validate(dict(settings))
    except ValidationError as error:
        raise SampleError(f"{where} ({settings['name']}): {one_sentence(error, shape)}") from None


@functools.cache
def _tokenize(name: str) -> Callable[[str], list[str]]:
    from transformers import AutoTokenizer

    try:
        with from_hub(path := resolve_model(name)):
            return AutoTokenizer.from_pretrained(path).tokenize
    except (OSError, ValueError) as error:
        raise ValueError(f"tokenizer of {name!r} not found ({str(error).splitlines()[0]:.120})") from None
