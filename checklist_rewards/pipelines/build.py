"""Build generators, refiners and scorers from configs, with their engines."""

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
    """Build the generator of a config; no model is loaded.

    `candidate_engine` resolves candidate models by name. Without it, they use the same backend as the generator.
    """
    if config.candidate_models is None or candidate_engine is None:
        return _made(config, engine, store, scorer)
    return _made(config, engine, store, scorer, candidate_models=tuple(map(candidate_engine, config.candidate_models)))


def build_refiners(
    configs: Sequence[RefinerConfig], engine: Engine, store: Store | None, scorer: Any
) -> tuple[Any, ...]:
    """Build the refiners of a config. Refiners that test a checklist on texts use the scorer of the pipeline."""
    return tuple(_made(config, engine, store, scorer) for config in configs)


def build_scorer(config: ScorerConfig, engine: Engine, store: Store | None, jury: Judge | None = None) -> Any:
    """Build the scorer of a config; no model is loaded. `jury` is the judge of the config's file of judges, if it was
    already loaded."""
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
        # User-registered parts expect a model name; an engine with settings has to be passed as an object.
        "model": engine if engine.settings else engine.model,
        "backend": "auto" if engine.settings else engine.backend,
        "base_url": None if engine.settings else engine.base_url,
        "store": store if store is not None else False,
        "scorer": scorer,
    }
    given = {name: value for name, value in around.items() if entry.takes(name)}
    return entry.factory(**given | config.settings() | others)
