"""Running a pipeline: write checklists for inputs and score targets.

    >>> pipe = pipeline("tick", model="org/model")
    >>> result = pipe("Write a haiku about rain.", target="Drops on the window ...")
    >>> result.checklist, result.score.primary_score  # doctest: +SKIP

A pipeline is a generator (`generate_batch`), a scorer (`score_batch`) or both (`run_batch`). A failure affects only
its own row: the result has no checklist, or a score of None with the reasons. Errors that no reply can fix, such as a
missing model or a row without a required field, are raised before anything is sampled.

A corpus-level pipeline writes one checklist from a source (such as dimensions or observations) and scores all rows
with it: `run_batch(rows, source=...)`. Any pipeline scores all rows with a given checklist: `run_batch(rows,
checklist=...)`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from checklist_rewards.backends import Backend, Engine, Progress
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, ConfigError, GenerationError, SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.generators import Request
from checklist_rewards.generators.base import check_request
from checklist_rewards.judges import Budget, Judge
from checklist_rewards.judges.jury import load_jury
from checklist_rewards.pipelines.build import build_generator, build_refiners, build_scorer
from checklist_rewards.pipelines.builtin import get_pipeline
from checklist_rewards.pipelines.config import PipelineConfig
from checklist_rewards.pipelines.requests import CANDIDATES, TEXTS, a_few, request_from, sample_from, samples_of
from checklist_rewards.pipelines.sources import source_from
from checklist_rewards.refiners import CheckAdmission, UnitTester
from checklist_rewards.refiners.base import refine_all
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score
from checklist_rewards.scores.scales import on_scale, ordinal_scale

logger = logging.getLogger(__name__)


class Scorer(Protocol):
    """Protocol of scorers, such as [`ChecklistScorer`]."""

    def check(self) -> None:
        """Check settings and models without loading an engine."""
        ...

    def score_batch(self, samples: Sequence[Sample], progress: Progress | None = None) -> list[Score]:
        """Score every sample, in order."""
        ...


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The result of one row."""

    checklist: Checklist | None
    score: Score | None
    """None without a checklist or a target."""
    error: GenerationError | None = None
    """The error if there is no checklist."""


class Pipeline:
    """A generator, refiners and a scorer. Create one with [`pipeline`].

    Args:
        config ([`PipelineConfig`]): the config of the pipeline.
        generator: instance-level (`generate_batch`) or corpus-level (`generate`).
        refiners (sequence): applied in order to every checklist.
        scorer: scores targets with the checklists.
    """

    def __init__(self, config: PipelineConfig, generator: Any, refiners: Sequence[Any], scorer: Scorer):
        self.config = config
        self.generator = generator
        self.refiners = tuple(refiners)
        self.scorer = scorer

    @property
    def name(self) -> str:
        """The name of the config."""
        return self.config.name

    @property
    def corpus_level(self) -> bool:
        """Whether the pipeline writes one checklist for all rows."""
        return self.config.corpus_level

    def check(self) -> None:
        """Check that all models exist, without loading them. Raises a [`ChecklistRewardsError`]."""
        self.check_writers()
        self.scorer.check()

    def check_writers(self) -> None:
        """[`Pipeline.check`] without the scorer, for writing checklists only."""
        self.generator.check()
        for refiner in self.refiners:
            refiner.check()

    @property
    def shown(self) -> frozenset[str]:
        """The fields of a [`Request`] that the generator's prompt uses."""
        prompt = getattr(self.generator, "prompt", None)
        spoken = frozenset() if prompt is None else prompt.placeholders
        if spoken & {"candidates", "responses"}:
            spoken |= {"candidates", "chosen", "rejected"}  # a pair can be used as candidates
        return spoken & {field.name for field in fields(Request)}

    @property
    def tries_texts(self) -> bool:
        """Whether a corpus-level pipeline tests its checklist on texts, so that samples are passed to `generate`."""
        return self._takes_samples or bool(self.refiners)

    @property
    def _takes_samples(self) -> bool:
        return self.corpus_level and "samples" in inspect.signature(self.generator.generate).parameters

    def check_request(self, request: str | Request, where: str) -> Request:
        """Check that a checklist can be written and refined for the request.

        Raises:
            SampleError: If the request is not valid. The message begins with `where`.
        """
        request = check_request(request, where)
        # Only the generator can check for responses to compare; otherwise the run would fail halfway.
        own = getattr(self.generator, "check_request", None)
        request = request if own is None else own(request, where)
        tries = next((r.name for r in self.refiners if isinstance(r, UnitTester | CheckAdmission)), None)
        if tries is not None and not samples_of(request, ()):
            raise SampleError(
                f"{where}: {tries} tests the questions on responses, but the request has neither candidates nor a "
                "chosen and a rejected response."
            )
        return request

    def check_checklist(self, checklist: Checklist, where: str) -> None:
        """Check that the scorer can answer a checklist. Raises a [`ChecklistError`] that begins with `where`."""
        check_item = getattr(self.scorer, "check_item", None)
        if check_item is not None:
            for item in self._scaled(checklist).items:
                check_item(item, where)

    def __call__(
        self,
        input: str | None = None,
        target: str | None = None,
        *,
        checklist: Any = None,
        source: Any = None,
        **others: Any,
    ) -> PipelineResult:
        """Write a checklist and score a target with it.

        Args:
            input (`str`, *optional*): the instruction.
            target (`str`, *optional*): the text to score. Without one, only the checklist is written.
            checklist (*optional*): score with this checklist instead of writing one.
            source (*optional*): the source of a corpus-level pipeline.
            **others: `reference`, `history`, `context`, `candidates`, `chosen`, `rejected`, as the generator requires.

        Returns:
            [`PipelineResult`]: The checklist and the score.

        Raises:
            GenerationError: If no checklist could be written.
        """
        unknown = sorted(set(others) - {*TEXTS, CANDIDATES})
        if unknown:
            raise SampleError(f"{unknown[0]!r} is not a field of a row; allowed: {', '.join((*TEXTS, CANDIDATES))}.")
        row = {**others, "input": input, "target": target}
        sample_from(row, "the row", ())  # raises before a checklist is generated
        if source is not None and checklist is None:
            checklist = self.generate(source)
        result = self.run_batch([row], checklist=checklist)[0]
        if result.error is not None:
            raise result.error
        return result

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """Write and refine one checklist per request, in order; a failed request gives an error in its place.

        Refiners get the candidates, chosen and rejected responses of a request as samples.
        """
        if self.corpus_level:
            raise ConfigError(f"pipeline {self.name!r} writes one checklist from a source; call generate(source).")
        asked = [self.check_request(request, f"request {number}") for number, request in enumerate(requests, start=1)]
        made = self.generator.generate_batch(asked, progress)
        samples = [
            () if isinstance(c, GenerationError) else samples_of(r, c) for r, c in zip(asked, made, strict=True)
        ]
        return self._refined(made, samples)

    def generate(self, source: Any, samples: Sequence[Sample] = ()) -> Checklist:
        """Write the checklist of a corpus-level pipeline.

        Args:
            source: an instance of `config.source`, a mapping, or a JSON or YAML file.
            samples (sequence of [`Sample`], *optional*): texts on which refiners test the checklist.

        Raises:
            GenerationError: If a stage fails. The message names the stage.
        """
        if self.config.source is None:
            raise ConfigError(f"pipeline {self.name!r} writes a checklist per input; call generate_batch(requests).")
        found = source_from(self.config, source)
        made = self.generator.generate(found, samples) if self._takes_samples else self.generator.generate(found)
        [refined] = self._refined([made], [samples])
        if isinstance(refined, GenerationError):
            raise refined
        return refined

    def score_batch(self, samples: Sequence[Sample], progress: Progress | None = None) -> list[Score]:
        """Score every sample, with all reads in one plan; see [`ChecklistScorer.score_batch`]."""
        scaled = [replace(sample, checklist=self._scaled(sample.checklist)) for sample in samples]
        return self.scorer.score_batch(scaled, progress)

    def run_batch(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        checklist: Any = None,
        source: Any = None,
        progress: Progress | None = None,
    ) -> list[PipelineResult]:
        """Write a checklist for every row, or one for all, and score every row's target.

        Args:
            rows (sequence of mappings): with `input`, `target` and the fields that the generator requires
                (`reference`, `history`, `context`, `candidates`, `chosen`, `rejected`). Other keys are ignored. A row
                without a target only gets a checklist.
            checklist (*optional*): one checklist for all rows, instead of generated ones.
            source (*optional*): the source of a corpus-level pipeline. Up to 20 evenly spaced targets of the rows are
                used as samples for unit tests.
            progress (callable, *optional*): called with the number of checklists or reads completed since its last
                call.

        Returns:
            `list[PipelineResult]`: One per row, in order.
        """
        if source is not None and (checklist is not None or not self.corpus_level):
            raise ConfigError("source=... requires a corpus-level pipeline and cannot be combined with checklist=....")
        if self.corpus_level and checklist is None and source is None:
            raise ConfigError(f"pipeline {self.name!r} requires source=... or checklist=....")
        placed = [(row, f"row {number}") for number, row in enumerate(rows, start=1)]
        drafts = [sample_from(row, where, ()) for row, where in placed]  # raises if a row cannot be scored
        made: list[Checklist | GenerationError]
        if checklist is not None:
            made = [Checklist.parse(checklist)] * len(rows)
        elif source is not None:
            self.check()
            made = [self.generate(source, a_few([draft for draft in drafts if draft is not None]))] * len(rows)
        else:
            requests = [self.check_request(request_from(row, where), where) for row, where in placed]
            self.check()
            made = self.generate_batch(requests, progress)
        samples = {
            index: replace(draft, checklist=found)
            for index, (draft, found) in enumerate(zip(drafts, made, strict=True))
            if draft is not None and isinstance(found, Checklist)
        }
        scores = dict(zip(samples, self.score_batch(list(samples.values()), progress), strict=True))
        return [
            PipelineResult(None, None, found)
            if isinstance(found, GenerationError)
            else PipelineResult(found, scores.get(index))
            for index, found in enumerate(made)
        ]

    def _refined(
        self, made: Sequence[Checklist | GenerationError], samples: Sequence[Sequence[Sample]]
    ) -> list[Checklist | GenerationError]:
        """Apply all refiners in order, each to all checklists at once."""
        found = list(made)
        for refiner in self.refiners:
            there = [(index, one) for index, one in enumerate(found) if isinstance(one, Checklist)]
            refined = refine_all(refiner, [one for _, one in there], [samples[index] for index, _ in there])
            for (index, _), better in zip(there, refined, strict=True):
                if isinstance(better, ChecklistError):
                    found[index] = GenerationError(f"the checklist cannot be used: {better}")
                else:
                    found[index] = better
        return [self._with_universal(one) if isinstance(one, Checklist) else one for one in found]

    def _with_universal(self, checklist: Checklist) -> Checklist:
        there = {item.id for item in checklist.items}
        items = (*checklist.items, *(item for item in self.config.universal if item.id not in there))
        return Checklist(items=items, source=checklist.source, model=checklist.model)

    def _scaled(self, checklist: Any) -> Any:
        steps = self.config.scorer.scale
        return checklist if steps is None else on_scale(checklist, ordinal_scale(steps))


def pipeline(
    config: str | Path | PipelineConfig = "tick",
    *,
    model: str | None = None,
    generator_model: str | None = None,
    scorer_model: str | None = None,
    backend: str | Backend = "auto",
    base_url: str | None = None,
    generator_backend: str | Backend | None = None,
    generator_base_url: str | None = None,
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
        model (`str`, *optional*, defaults to `"pocket"`): the model that writes checklists and judges.
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
    chosen = load_config(config)
    changes = {"generator": generator, "refiners": refiners, "scorer": scorer}
    if any(value is not None for value in changes.values()):
        chosen = chosen.replace({name: value for name, value in changes.items() if value is not None})
    own = any(value is not None for value in (generator_backend, generator_base_url, generator_engine))
    judge = Engine(scorer_model or model or "pocket", backend, base_url, engine or {})
    writer = judge.named(generator_model or model or "pocket")
    if own:
        writer = Engine(writer.model, generator_backend or "auto", generator_base_url, generator_engine or {})
    kept = open_store(store)
    if budget is None:
        return assemble(chosen, writer, judge, kept)
    limited = Budget.of(budget).limited
    file, at = chosen.scorer.judge, False if kept is None else kept
    jury = None if file is None else load_jury(file, at, limited)
    return assemble(
        chosen,
        limited(writer),
        limited(judge) if jury is None else judge,
        kept,
        lambda name: limited(writer.named(name)),
        jury,
    )


def assemble(
    config: PipelineConfig,
    writer: Engine,
    judge: Engine,
    store: Store | None,
    candidate_engine: Callable[[str], Engine] | None = None,
    jury: Judge | None = None,
) -> Pipeline:
    """Build the parts of `config` with the given engines.

    Args:
        config ([`PipelineConfig`]): the config of the pipeline.
        writer, judge ([`Engine`]): the engine that writes and refines, and the engine that judges.
        store ([`Store`], *optional*): where replies and reads are stored.
        candidate_engine (callable, *optional*): resolves candidate models by name.
        jury ([`Judge`], *optional*): the judge of the config's file of judges, if it was already loaded.
    """
    if config.generator.shape == "checked" and CheckAdmission.name not in [
        refiner.kind for refiner in config.refiners
    ]:
        logger.warning(
            "code checks written by the model are used without being compared with the judge; add the refiner %s "
            "to remove checks that disagree with the judge.",
            CheckAdmission.name,
        )
    made = build_scorer(config.scorer, judge, store, jury)
    refiners = build_refiners(config.refiners, writer, store, made)
    generator = build_generator(config.generator, writer, store, made, candidate_engine)
    return Pipeline(config, generator, refiners, made)


def load_config(config: str | Path | PipelineConfig) -> PipelineConfig:
    """Load a config by name or from a file; a config is returned unchanged. Raises [`ConfigError`]."""
    if isinstance(config, PipelineConfig):
        return config
    if isinstance(config, Path) or str(config).endswith((".json", ".yaml", ".yml")):
        return PipelineConfig.load(config)
    return get_pipeline(config)
