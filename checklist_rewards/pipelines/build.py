"""From configs to parts: a registered factory, the engine it works with, and the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from checklist_rewards.backends import Engine
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Judge
from checklist_rewards.pipelines.config import GeneratorConfig, RefinerConfig, ScorerConfig, entry_of


def build_generator(
    config: GeneratorConfig,
    engine: Engine,
    store: Store | None,
    scorer: Any,
    candidate_engine: Callable[[str], Engine] | None = None,
) -> Any:
    """The generator of a config; no model is loaded. `candidate_engine` gives the engines of other models by name,
    where they are not to be looked for beside the generator's own."""
    if config.candidate_models is None or candidate_engine is None:
        return _made(config, engine, store, scorer)
    return _made(config, engine, store, scorer, candidate_models=tuple(map(candidate_engine, config.candidate_models)))


def build_refiners(
    configs: Sequence[RefinerConfig], engine: Engine, store: Store | None, scorer: Any
) -> tuple[Any, ...]:
    """The refiners of a config. Those that try a checklist on texts share the pipeline's scorer."""
    return tuple(_made(config, engine, store, scorer) for config in configs)


def build_scorer(config: ScorerConfig, engine: Engine, store: Store | None, jury: Judge | None = None) -> Any:
    """The scorer of a config; no model is loaded. `jury` is what the config's file of judges describes, where that was
    read already."""
    return _made(config, engine, store, None, **({} if jury is None else {"judge": jury}))


def _made(
    config: GeneratorConfig | RefinerConfig | ScorerConfig,
    engine: Engine,
    store: Store | None,
    scorer: Any,
    **others: Any,
) -> Any:
    entry = entry_of(config)
    around = {
        # What others have registered takes a name; an engine with settings cannot be told as one.
        "model": engine if engine.settings else engine.model,
        "backend": "auto" if engine.settings else engine.backend,
        "base_url": None if engine.settings else engine.base_url,
        "store": store if store is not None else False,
        "scorer": scorer,
    }
    given = {name: value for name, value in around.items() if entry.takes(name)}
    return entry.factory(**given | config.settings() | others)
