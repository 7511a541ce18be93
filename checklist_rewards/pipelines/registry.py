"""What a pipeline is put together from, by name: generators, refiners, scorers.

The package registers its own in `parts.py`; a user adds more with the decorators, and they are then known everywhere:
in configs, in `pipeline(...)`, on the command line of a program that imports them.

    @register_refiner("shortest")
    class Shortest:
        \"\"\"Keeps the shortest questions.\"\"\"

        def __init__(self, keep: int = 5): ...
        def check(self) -> None: ...
        def refine(self, checklist, samples=()): ...

What is registered is called with those of `model`, `backend`, `base_url`, `store` and `scorer` that it takes, and with
the settings of a config, all by name. It must load no model when it is made. A built-in name cannot be taken; a name
of one's own only with `replace=True`, so that two plugins cannot displace each other unnoticed.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from checklist_rewards.errors import ConfigError

Factory = TypeVar("Factory", bound=Callable[..., Any])

SURROUNDINGS = ("model", "backend", "base_url", "store", "scorer")
"""What a pipeline hands to a part beside its settings, where the part takes it."""


@dataclass(frozen=True)
class Entry:
    """One registered part."""

    name: str
    factory: Callable[..., Any]
    built_in: bool
    source: type[BaseModel] | None = None
    """What a corpus-level generator works from; None for everything else."""

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring, in one line."""
        return " ".join((inspect.getdoc(self.factory) or "").split("\n\n")[0].split())

    @property
    def settings(self) -> tuple[str, ...] | None:
        """The names it takes; None if it takes any."""
        parameters = inspect.signature(self.factory).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return None
        return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL)

    def takes(self, name: str) -> bool:
        """Whether it can be given `name`."""
        return self.settings is None or name in self.settings

    def check_settings(self, names: Iterable[str], what: str) -> None:
        """Raises [`ConfigError`] that begins with `what` for a setting it does not take."""
        allowed = None if self.settings is None else [name for name in self.settings if name not in SURROUNDINGS]
        for name in names:
            if allowed is not None and name not in allowed:
                raise ConfigError(f"{what} {self.name!r} has no setting {name!r}; it takes: {', '.join(allowed)}.")


class Registry:
    """Names of one sort of part.

    Args:
        what (`str`): the sort, as errors call it.
    """

    def __init__(self, what: str):
        self.what = what
        self._entries: dict[str, Entry] = {}

    def register(
        self, name: str, *, source: type[BaseModel] | None = None, replace: bool = False, built_in: bool = False
    ) -> Callable[[Factory], Factory]:
        """A decorator that registers a class or function under `name`. Raises [`ConfigError`] if the name is taken."""
        there = self._entries.get(name)
        if there is not None and (there.built_in or not replace):
            hint = "a built-in name; choose another" if there.built_in else "taken; pass replace=True to replace it"
            raise ConfigError(f"the {self.what} name {name!r} is {hint}.")

        def keep(factory: Factory) -> Factory:
            self._entries[name] = Entry(name, factory, built_in, source)
            return factory

        return keep

    def get(self, name: str) -> Entry:
        """The part of that name. Raises [`ConfigError`] naming those there are."""
        if name not in self._entries:
            raise ConfigError(unknown(self.what, name, list(self._entries)))
        return self._entries[name]

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def names(self) -> list[str]:
        """All names, the built-in ones first."""
        return list(self._entries)


def unknown(what: str, name: str, allowed: list[str]) -> str:
    """The sentence for a name that nobody has."""
    near = difflib.get_close_matches(name, allowed, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"there is no {what} {name!r}{hint}; allowed: {', '.join(allowed)}."


GENERATORS, REFINERS, SCORERS = Registry("generator"), Registry("refiner"), Registry("scorer")


def register_generator(
    name: str, *, source: type[BaseModel] | None = None, replace: bool = False
) -> Callable[[Factory], Factory]:
    """Register a generator.

    Args:
        name (`str`): as configs name it.
        source (pydantic model class, *optional*): what a corpus-level generator works from; its files are checked
            against it. Without one the generator writes a checklist per input.
        replace (`bool`, *optional*, defaults to `False`): whether a name of one's own may be taken again.
    """
    return GENERATORS.register(name, source=source, replace=replace)


def register_refiner(name: str, *, replace: bool = False) -> Callable[[Factory], Factory]:
    """Register a refiner; see [`register_generator`]."""
    return REFINERS.register(name, replace=replace)


def register_scorer(name: str, *, replace: bool = False) -> Callable[[Factory], Factory]:
    """Register a scorer, which has the methods of [`ChecklistScorer`]; see [`register_generator`]."""
    return SCORERS.register(name, replace=replace)
