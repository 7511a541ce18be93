"""Shaping by name: the functions of `shaping.py` as a list of steps, as a settings file can hold it.

    >>> shaping = Shaping(
    ...     [
    ...         {"name": "earned", "answers": "hard"},
    ...         {"name": "gate", "how": "floor", "floor": 0.1},
    ...         {"name": "length_penalty", "free": 200, "cap": 400},
    ...         "clipped",
    ...     ]
    ... )

The value of a completion begins as what the reward's metric says (its `primary_score`) and goes through the steps in
order. `earned` replaces it: a metric has its gates in it already, `earned` has none, so what gates it comes after.
None stays None: a completion without a score gets no shaped reward either.

Every step is checked when it is made: its name, its settings, their types and whether they make sense together.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from checklist_rewards.backends.models import resolve_model
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards import shaping
from checklist_rewards.rewards.failures import from_other_ranks
from checklist_rewards.rewards.shaping import Answers, Gate, Spread, Unit
from checklist_rewards.scores import Score
from checklist_rewards.validation import one_sentence

Values = list[float | None]


@dataclass(frozen=True, slots=True)
class Judged:
    """What the steps know of a completion."""

    checklist: Checklist
    score: Score
    text: str


class _Step(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def value(self, value: float, of: Judged) -> float | None:
        """The value of one completion after this step."""
        raise NotImplementedError

    def values(self, values: Values, judged: Sequence[Judged | None], groups: Sequence[str]) -> Values:
        """Those of all completions. `groups` says which belong to the same prompt."""
        pairs = zip(values, judged, strict=True)
        return [None if value is None or of is None else self.value(value, of) for value, of in pairs]


class Earned(_Step):
    """[`earned`] less [`penalties`], instead of the metric; not clipped."""

    name: Literal["earned"] = "earned"
    answers: Answers = "soft"
    categories: dict[str, float] = Field(default={})
    """Factor of the weights of a category's items, >= 0."""

    @field_validator("categories")
    @classmethod
    def _weights(cls, categories: dict[str, float]) -> dict[str, float]:
        for name, factor in categories.items():
            if factor < 0:
                raise ValueError(f"the weight of category {name!r} is {factor}; allowed: a finite number from 0 up")
        return categories

    def value(self, value: float, of: Judged) -> float | None:
        """See [`_Step`]."""
        credits = shaping.item_credits(of.checklist, of.score, self.answers)
        gained = shaping.earned(of.checklist, credits, self.categories)
        return shaping.less(gained, shaping.penalties(of.checklist, credits, self.categories))


class GateStep(_Step):
    """[`gate`]: the required items decide how much is left."""

    name: Literal["gate"] = "gate"
    how: Gate = "multiply"
    floor: float = 0.0
    answers: Answers = "soft"

    def value(self, value: float, of: Judged) -> float | None:
        """See [`_Step`]."""
        credits = shaping.item_credits(of.checklist, of.score, self.answers)
        return shaping.gate(value, of.checklist, credits, self.how, self.floor)


class FormatGate(_Step):
    """[`format_gate`]: a regular expression that the whole text must match."""

    name: Literal["format_gate"] = "format_gate"
    form: str
    otherwise: float = 0.0

    @field_validator("form")
    @classmethod
    def _compiles(cls, form: str) -> str:
        try:
            re.compile(form)
        except re.error as error:
            raise ValueError(f"{form!r} is no regular expression ({error})") from None
        return form

    def value(self, value: float, of: Judged) -> float | None:
        """See [`_Step`]."""
        return shaping.format_gate(value, of.text, self.form, self.otherwise)


class LengthPenalty(_Step):
    """Less [`length_penalty`] of the text."""

    name: Literal["length_penalty"] = "length_penalty"
    unit: Unit = "words"
    free: float = 6000
    cap: float = 8000
    at_cap: float = 0.5
    exponent: float = 1.6
    tokenizer: str | None = None
    """With unit "tokens": the model whose tokens they are, a folder or a Hub id."""

    @model_validator(mode="after")
    def _makes_a_curve(self) -> Self:
        shaping.length_penalty(0, **self._curve)
        if (self.unit == "tokens") != (self.tokenizer is not None):
            raise ValueError(f"unit='tokens' and tokenizer belong together, got {self.unit!r} and {self.tokenizer!r}")
        if self.tokenizer is not None:
            _tokenize(self.tokenizer)
        return self

    @property
    def _curve(self) -> dict[str, float]:
        return {"free": self.free, "cap": self.cap, "at_cap": self.at_cap, "exponent": self.exponent}

    def value(self, value: float, of: Judged) -> float | None:
        """See [`_Step`]."""
        tokenize = None if self.tokenizer is None else _tokenize(self.tokenizer)
        return shaping.less(value, shaping.length_penalty(shaping.length(of.text, self.unit, tokenize), **self._curve))


class Clipped(_Step):
    """[`clipped`] to a range."""

    name: Literal["clipped"] = "clipped"
    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        shaping.clipped(None, self.low, self.high)
        return self

    def value(self, value: float, of: Judged) -> float | None:
        """See [`_Step`]."""
        return shaping.clipped(value, self.low, self.high)


class Centred(_Step):
    """[`centred`]: relative to the group, that is to the completions of the same prompt, on all ranks."""

    name: Literal["centred"] = "centred"
    spread: Spread = "none"

    def values(self, values: Values, judged: Sequence[Judged | None], groups: Sequence[str]) -> Values:
        """See [`_Step`]."""
        elsewhere = from_other_ranks(list(zip(values, groups, strict=True)))
        there, their_groups = [value for value, _ in elsewhere], [group for _, group in elsewhere]
        return shaping.centred([*values, *there], [*groups, *their_groups], self.spread)[: len(values)]


_STEPS: tuple[type[_Step], ...] = (Earned, GateStep, FormatGate, LengthPenalty, Clipped, Centred)
STEPS: dict[str, type[_Step]] = {step.model_fields["name"].default: step for step in _STEPS}


class Shaping:
    """Steps, one after another.

    Args:
        steps (sequence of mappings): each with the `name` of a step and its settings; a name alone takes the defaults.

    Raises:
        SampleError: naming the step, the setting, the value and what is allowed.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any] | str]):
        if isinstance(steps, str | Mapping) or not isinstance(steps, Sequence):
            raise SampleError(f"shaping is a list of steps, such as [{{'name': 'clipped'}}]; got {steps!r:.60}.")
        self.steps = tuple(_step(step, f"shaping, step {number}") for number, step in enumerate(steps, start=1))

    @property
    def by_group(self) -> bool:
        """Whether a completion's value depends on its group, which then has to be known on every rank."""
        return any(isinstance(step, Centred) for step in self.steps)

    def __call__(self, values: Values, judged: Sequence[Judged | None], groups: Sequence[str]) -> Values:
        """The shaped values.

        Args:
            values (list of `float` or None): the rewards so far.
            judged (sequence of [`Judged`] or None): what they are the rewards of.
            groups (sequence of `str`): a name per completion, the same for those of the same prompt.
        """
        for step in self.steps:
            values = step.values(values, judged, groups)
        return values


def _step(step: Any, where: str) -> _Step:
    settings = {"name": step} if isinstance(step, str) else step
    if not isinstance(settings, Mapping) or settings.get("name") not in STEPS:
        raise SampleError(f"{where}: expected a mapping with a name out of {', '.join(STEPS)}; got {step!r:.60}.")
    shape = STEPS[settings["name"]]
    try:
        return shape.model_validate(dict(settings))
    except ValidationError as error:
        raise SampleError(f"{where} ({settings['name']}): {one_sentence(error, shape)}") from None


@functools.cache
def _tokenize(name: str) -> Callable[[str], list[str]]:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(resolve_model(name)).tokenize
    except (OSError, ValueError) as error:
        raise ValueError(f"there is no tokenizer of {name!r} ({str(error).splitlines()[0]:.120})") from None
