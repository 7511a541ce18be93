"""From a config to a pipeline: engines, store, scorer, refiners and generator. No model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.backends.models import POCKET
from checklist_rewards.backends.servers import joined
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.judges import Budget, Judge
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.pipelines.builtin import get_pipeline
from checklist_rewards.pipelines.config import GeneratorConfig, PipelineConfig, RefinerConfig, ScorerConfig, entry_of
from checklist_rewards.pipelines.pipeline import Pipeline
from checklist_rewards.refiners import CheckAdmission

logger = logging.getLogger(__name__)


def pipeline(
    config: str | Path | PipelineConfig = "tick",
    *,
    model: str | None = None,
    generator_model: str | None = None,
    scorer_model: str | None = None,
    backend: str | Backend = "auto",
    base_url: str | Sequence[str] | None = None,
    generator_backend: str | Backend | None = None,
    generator_base_url: str | Sequence[str] | None = None,
    engine: Mapping[str, Any] | None = None,
    generator_engine: Mapping[str, Any] | None = None,
    generator: Mapping[str, Any] | None = None,
    refiners: Sequence[Any] | None = None,
    scorer: Mapping[str, Any] | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    store: bool | str | Path | Store = True,
) -> Pipeline:
    """Create a pipeline. No model is loaded.

    Args:
        config (`str`, `Path` or [`PipelineConfig`], *optional*, defaults to `"tick"`): the name of a pipeline (see
            [`list_pipelines`]), a JSON or YAML file, or a config.
        model (`str`, *optional*): the model that writes checklists and judges. Defaults to the models that the config
            names, or to `"pocket"`.
        generator_model, scorer_model (`str`, *optional*): override `model` for writing and refining, and for judging.
        backend, base_url: backend of both models, or of the scorer only if the generator has its own.
        generator_backend, generator_base_url (*optional*): backend of the generator.
        engine, generator_engine (mapping, *optional*): engine settings, as in [`ChecklistScorer`]. `engine` also
            applies to the generator unless the generator has its own backend or settings.
        generator, scorer (mapping, *optional*): settings that override the config, such as `{"max_items": 20}`.
        refiners (sequence, *optional*): names or mappings that replace the refiners of the config.
        budget ([`Budget`], *optional*): joint budget of all models of the pipeline; see [`ChecklistScorer`].
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where replies and reads are stored.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """
    loaded = load_config(config)
    changes = {"generator": generator, "refiners": refiners, "scorer": scorer}
    if any(value is not None for value in changes.values()):
        loaded = loaded.replace({name: value for name, value in changes.items() if value is not None})
    own_engine = any(value is not None for value in (generator_backend, generator_base_url, generator_engine))
    # A server has its own models; those that a config names are here.
    here = loaded if base_url is None else PipelineConfig()
    judge = Engine(scorer_model or model or here.scorer.model or POCKET, backend, joined(base_url), engine or {})
    writer = judge.named(generator_model or model or here.generator.model or POCKET)
    if own_engine:
        if generator_base_url is not None:
            writer = writer.named(generator_model or model or POCKET)
        writer = Engine(writer.model, generator_backend or "auto", joined(generator_base_url), generator_engine or {})
    opened = open_store(store)
    if budget is None:
        return assemble(loaded, writer, judge, opened)
    limited = Budget.of(budget).limited
    file = loaded.scorer.judge
    jury = None if file is None else load_jury(file, False if opened is None else opened, limited)
    return assemble(
        loaded,
        limited(writer),
        limited(judge) if jury is None else judge,
        opened,
        lambda name: limited(writer.named(name)),
        jury,
    )


def assemble(
    config: PipelineConfig,
    writer: Engine | None,
    judge: Engine,
    store: Store | None,
    candidate_engine: Callable[[str], Engine] | None = None,
    jury: Judge | None = None,
) -> Pipeline:
    """Build the parts of `config` with the given engines.

    Args:
        config ([`PipelineConfig`]): the config of the pipeline.
        writer ([`Engine`], *optional*): the engine that writes and refines. With None, the pipeline only scores: it
            has no generator and no refiners.
        judge ([`Engine`]): the engine that judges.
        store ([`Store`], *optional*): where replies and reads are stored.
        candidate_engine (callable, *optional*): resolves candidate models by name.
        jury ([`Judge`], *optional*): the judge of the config's file of judges, if it was already loaded.
    """
    scorer = build_scorer(config.scorer, judge, store, jury)
    if writer is None:
        return Pipeline(config, None, (), scorer)
    if config.generator.shape == "checked" and CheckAdmission.name not in [
        refiner.kind for refiner in config.refiners
    ]:
        logger.warning(
            "code checks written by the model are used without being compared with the judge; add the refiner %s "
            "to remove checks that disagree with the judge.",
            CheckAdmission.name,
        )
    refiners = build_refiners(config.refiners, writer, store, scorer)
    generator = build_generator(config.generator, writer, store, scorer, candidate_engine)
    return Pipeline(config, generator, refiners, scorer)


def load_config(config: str | Path | PipelineConfig) -> PipelineConfig:
    """Load a config by name or from a file; a config is returned unchanged. Raises [`ConfigError`]."""
    if isinstance(config, PipelineConfig):
        return config
    if isinstance(config, Path) or str(config).endswith((".json", ".yaml", ".yml")):
        return PipelineConfig.load(config)
    return get_pipeline(config)


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
        return _part(config, engine, store, scorer)
    return _part(config, engine, store, scorer, candidate_models=tuple(map(candidate_engine, config.candidate_models)))


def build_refiners(
    configs: Sequence[RefinerConfig], engine: Engine, store: Store | None, scorer: Any
) -> tuple[Any, ...]:
    """Build the refiners of a config. Refiners that test a checklist on texts use the scorer of the pipeline."""
    return tuple(_part(config, engine, store, scorer) for config in configs)


def build_scorer(config: ScorerConfig, engine: Engine, store: Store | None, jury: Judge | None = None) -> Any:
    """Build the scorer of a config; no model is loaded. `jury` is the judge of the config's file of judges, if it was
    already loaded."""
    return _part(config, engine, store, None, **({} if jury is None else {"judge": jury}))


def _part(
    config: GeneratorConfig | RefinerConfig | ScorerConfig,
    engine: Engine,
    store: Store | None,
    scorer: Any,
    **others: Any,
) -> Any:
    entry = entry_of(config)
    arguments = {
        # User-registered parts expect a model name; an engine with settings has to be passed as an object.
        "model": engine if engine.settings else engine.model,
        "backend": "auto" if engine.settings else engine.backend,
        "base_url": None if engine.settings else engine.base_url,
        "store": store if store is not None else False,
        "scorer": scorer,
    }
    accepted = {name: value for name, value in arguments.items() if entry.takes(name)}
    return entry.factory(**accepted | config.settings() | others)
