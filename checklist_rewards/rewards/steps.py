"""Shaping steps by name, for the `shaping` argument and config files.

    >>> shaping = Shaping(
    ...     [
    ...         {"name": "earned", "answers": "hard"},
    ...         {"name": "gate", "how": "floor", "floor": 0.1},
    ...         {"name": "length_penalty", "free": 200, "cap": 400},
    ...         "clipped",
    ...     ]
    ... )

The value of a completion starts as its `primary_score` and passes through the steps in order. `earned` replaces the
value: a metric already includes required items, `earned` does not, so put `gate` after it. A completion without a
score has no shaped reward. A custom step is passed as an instance, or as a function of one completion:

    >>> class Square(ShapingStep):
    ...     name: str = "square"
    ...
    ...     def value(self, value, sample, score):
    ...         return value**2
    >>> shaping = Shaping([Square(), lambda value, sample, score: value / 2])

With [`register_step`], files can name it too (see `plugins.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from checklist_rewards.errors import SampleError
from checklist_rewards.plugins import load_plugins
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.group_shaping import Contrast, ItemZscore, Whitened
from checklist_rewards.rewards.shaping import (
    Called,
    Centred,
    Clipped,
    Earned,
    FormatGate,
    GateStep,
    LengthPenalty,
)
from checklist_rewards.rewards.shaping import ShapingStep as ShapingStep  # for steps of other packages
from checklist_rewards.validation import one_sentence, unknown

_STEPS: tuple[type[ShapingStep], ...] = (
    Earned, GateStep, FormatGate, LengthPenalty, Clipped, Centred, ItemZscore, Contrast, Whitened,
)  # fmt: skip
STEPS: dict[str, type[ShapingStep]] = {step.model_fields["name"].default: step for step in _STEPS}
"""All registered steps by name."""

_Kind = TypeVar("_Kind", bound=ShapingStep)
Step = Mapping[str, Any] | str | ShapingStep | Callable[..., float | None]
"""What the `shaping` argument takes as a step."""


def register_step(kind: type[_Kind]) -> type[_Kind]:
    """Class decorator that registers a step. Its name is the default of its field `name`.

    Raises:
        SampleError: If the name is missing or taken.
    """
    name = kind.model_fields["name"].default
    if not isinstance(name, str):
        raise SampleError(f"{kind.__name__}: name the step with a field: name: Literal['x'] = 'x'.")
    if STEPS.get(name, kind) is not kind:
        raise SampleError(f"the step {name!r} already exists ({STEPS[name].__name__}); use another name.")
    STEPS[name] = kind
    return kind


class Shaping:
    """A sequence of shaping steps.

    Args:
        steps (sequence of mappings, `str`, [`ShapingStep`] or callables):
            Each with the `name` of a step and its settings. A name alone uses the default settings. Or a step itself,
            or a function of the value, the [`Sample`] and the [`Score`] of one completion that returns the new value.

    Raises:
        SampleError: For an unknown step or an invalid setting.
    """

    def __init__(self, steps: Sequence[Step]):
        if isinstance(steps, str | Mapping) or not isinstance(steps, Sequence):
            raise SampleError(f"shaping must be a list of steps, such as [{{'name': 'clipped'}}], got {steps!r:.60}.")
        self.steps = tuple(_step(step, f"shaping, step {number}") for number, step in enumerate(steps, start=1))

    @property
    def by_group(self) -> bool:
        """Whether the value of a completion depends on its group, which requires communication between ranks."""
        return any(step.by_group for step in self.steps)

    def __call__(self, call: Call) -> Call:
        """Apply all steps to the rewards of a call that has samples, scores and groups. Each step adds a stage."""
        for step in self.steps:
            call = step(call)
        return call


def _step(step: Any, where: str) -> ShapingStep:
    if isinstance(step, ShapingStep):
        return step
    if callable(step) and not isinstance(step, type):
        return Called(name=str(getattr(step, "__name__", type(step).__name__)), function=step)
    settings = {"name": step} if isinstance(step, str) else step
    if isinstance(settings, Mapping) and settings.get("name") not in STEPS:
        load_plugins()
    name = settings.get("name") if isinstance(settings, Mapping) else None
    if not isinstance(name, str):
        raise SampleError(f"{where}: expected a mapping with a name among {', '.join(STEPS)}, got {step!r:.60}.")
    if name not in STEPS:
        raise SampleError(f"{where}: {unknown('step', name, STEPS)}")
    shape = STEPS[name]
    try:
        return shape.model_validate(dict(settings))
    except ValidationError as error:
        raise SampleError(f"{where} ({name}): {one_sentence(error, shape)}") from None
