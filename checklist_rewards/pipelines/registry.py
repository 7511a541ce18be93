"""Registries of the parts of a pipeline by name: generators, refiners, scorers.

The package registers its own parts at the end of this module. Users add more with the decorators; registered names can
be used in configs, in `pipeline(...)`, and on the command line (see `plugins.py`).

    @register_refiner("shortest")
    class Shortest:
        \"\"\"Keeps the shortest questions.\"\"\"

        def __init__(self, keep: int = 5): ...
        def validate(self) -> None: ...
        def refine(self, checklist, samples=()): ...

A registered class or function is called with the settings of the config and with `model`, `backend`, `base_url`,
`store` and `scorer`, as far as it has these parameters, all by keyword. It must not load a model at that point.
Built-in names cannot be replaced; other names only with `replace=True`, so that plugins do not replace each other by
accident. The module of a built-in part is imported when the part is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from pydantic import BaseModel

from checklist_rewards.errors import ConfigError
from checklist_rewards.plugins import load_plugins
from checklist_rewards.validation import nearest, unknown
from checklist_rewards.writer import parameters_of

Factory = TypeVar("Factory", bound=Callable[..., Any])

SURROUNDINGS = ("model", "backend", "base_url", "store", "scorer")
"""Arguments that a pipeline passes to a part in addition to its settings, if the part has these parameters."""


@dataclass(frozen=True)
class Entry:
    """One registered part."""

    name: str
    registered: Callable[..., Any] | str
    """The class or function; of a built-in part its place, `module:name`."""
    built_in: bool
    of_source: type[BaseModel] | None = None
    """The source class with which a generator of a user was registered."""

    @cached_property
    def factory(self) -> Callable[..., Any]:
        """The class or function."""
        if not isinstance(self.registered, str):
            return self.registered
        module, _, name = self.registered.partition(":")
        return getattr(import_module(f"checklist_rewards.{module}"), name)

    @property
    def source(self) -> type[BaseModel] | None:
        """The source class of a corpus-level generator; None for other parts."""
        return self.of_source or getattr(self.factory, "source_shape", None)

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return " ".join((inspect.getdoc(self.factory) or "").split("\n\n")[0].split())

    @cached_property
    def settings(self) -> tuple[str, ...] | None:
        """The names of its parameters; None if it takes any."""
        parameters = parameters_of(self.factory)
        return None if parameters is None else tuple(parameters)

    def takes(self, name: str) -> bool:
        """Whether it has a parameter `name`."""
        return self.settings is None or name in self.settings

    def check_settings(self, names: Iterable[str], what: str) -> None:
        """Check setting names. Raises a [`ConfigError`] that begins with `what` for an unknown setting."""
        allowed = None if self.settings is None else [name for name in self.settings if name not in SURROUNDINGS]
        for name in names:
            if allowed is not None and name not in allowed:
                raise ConfigError(
                    f"{what} {self.name!r} has no setting {name!r}{nearest(name, allowed)}; allowed: "
                    f"{', '.join(allowed)}."
                )


class Registry:
    """A registry of one kind of part.

    Args:
        what (`str`): The kind, for error messages, such as "refiner".
        **built_in (`str`): Places of the built-in parts.
    """

    def __init__(self, what: str, **built_in: str):
        self.what = what
        self._entries = {name: Entry(name, place, True) for name, place in built_in.items()}

    def register(
        self, name: str, *, source: type[BaseModel] | None = None, replace: bool = False
    ) -> Callable[[Factory], Factory]:
        """A decorator that registers a class or function.

        Args:
            name (`str`): The name in configs.
            source (pydantic model class, *optional*): The source of a corpus-level generator; source files are
                validated with it. Defaults to that of the built-in generator from which a class derives. Without one,
                a generator writes one checklist per input.
            replace (`bool`, *optional*, defaults to `False`): Whether to replace an existing registration of this
                name.

        Raises:
            ConfigError: If the name is taken.
        """
        existing = self._entries.get(name)
        if existing is not None and (existing.built_in or not replace):
            hint = "a built-in name; choose another" if existing.built_in else "taken; pass replace=True to replace it"
            raise ConfigError(f"the {self.what} name {name!r} is {hint}.")

        def register(factory: Factory) -> Factory:
            self._entries[name] = Entry(name, factory, False, source)
            return factory

        return register

    def get(self, name: str) -> Entry:
        """The part with this name. Raises [`ConfigError`] that lists the known names."""
        if name not in self._entries:
            load_plugins()
        if name not in self._entries:
            raise ConfigError(unknown(self.what, name, list(self._entries)))
        return self._entries[name]

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))


GENERATORS = Registry(
    "generator",
    direct="generators.direct:DirectGenerator",
    contrastive="generators.contrastive:ContrastiveGenerator",
    constraints="generators.constraints:ConstraintsGenerator",
    inductive="generators.inductive:InductiveGenerator",
    deductive="generators.deductive:DeductiveGenerator",
    interactive="generators.interactive:InteractiveGenerator",
)
REFINERS = Registry(
    "refiner",
    deduplicator="refiners:Deduplicator",
    tagger="refiners:Tagger",
    unit_tester="refiners:UnitTester",
    selector="refiners:Selector",
    check_admission="refiners:CheckAdmission",
)
SCORERS = Registry("scorer", checklist="scorer:ChecklistScorer")
register_generator, register_refiner, register_scorer = GENERATORS.register, REFINERS.register, SCORERS.register
