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

Rows are converted to the inputs of generators and scorers; every error begins with the row's location. [`pipeline`]
makes engines, store, scorer, refiners and generator from a config. No model is loaded.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Backend, Engine, Progress
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.servers import joined as joined_addresses
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, ConfigError, GenerationError, SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.generators import ConstraintsGenerator, DirectGenerator, Request
from checklist_rewards.generators.base import check_request
from checklist_rewards.judges import Budget, Judge, Member
from checklist_rewards.judges.settings import load_jury
from checklist_rewards.pipelines.builtin import has_own_prompt, load_config
from checklist_rewards.pipelines.config import (
    PipelineConfig,
    RefinerConfig,
    ScorerPart,
    WriterConfig,
    source_from,
)
from checklist_rewards.refiners import CheckAdmission, UnitTester
from checklist_rewards.refiners.base import refine_all
from checklist_rewards.rows import CONTEXT, FIELDS, Candidate, Sample
from checklist_rewards.scorer import ChecklistScorer, Scorer
from checklist_rewards.scores import NO_ANSWER_STATES, Score
from checklist_rewards.version import __version__

TRIED = 20


def _sample(row: Mapping[str, Any], where: str) -> Sample | None:
    """The answer in the row's target, without a checklist; None if the row has no target."""
    return None if row.get("target") is None else FIELDS.sample_of(row, where, ())


def a_few(samples: Sequence[Sample]) -> list[Sample]:
    """At most `TRIED` evenly spaced samples, to limit the reads of unit tests (every question on every sample).
    Samples without an answer are used only if there are no others."""
    samples = [sample for sample in samples if sample.target_state not in NO_ANSWER_STATES] or samples
    step = max(1, -(-len(samples) // TRIED))
    return list(samples[::step])


def samples_of(request: Request, checklist: Any) -> list[Sample]:
    """The answers of the responses in a request, as samples for refiners that test a checklist on texts."""
    texts = (*request.candidates, request.chosen, request.rejected)
    targets = [Candidate(text).target for text in texts if text is not None]
    distinct = {target.text: target.state for target in targets if target.has_answer}
    return [
        Sample(checklist, text, request.input, request.reference, request.history, state=state)
        for text, state in distinct.items()
    ]


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
        generator: instance-level (`generate_batch`) or corpus-level (`generate`). With None, the pipeline only scores.
        refiners (sequence): applied in order to every checklist.
        scorer: scores targets with the checklists.
    """

    def __init__(self, config: PipelineConfig, generator: Any, refiners: Sequence[Any], scorer: Scorer):
        self.config = config
        self.generator = generator
        self.refiners = tuple(refiners)
        self.scorer = scorer
        self._refined_away: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The name of the config."""
        return self.config.name

    @property
    def corpus_level(self) -> bool:
        """Whether the pipeline writes one checklist for all rows."""
        return self.config.corpus_level

    def validate(self) -> None:
        """Check that all models exist, without loading them. Raises a [`ChecklistRewardsError`]."""
        self.check_writers()
        self.scorer.validate()

    def check_writers(self) -> None:
        """[`Pipeline.validate`] without the scorer, for writing checklists only."""
        for part in (self.generator, *self.refiners):
            part.validate()

    @property
    def finds_constraints(self) -> bool:
        """Whether rules find items in the input, alone or before a model writes the others."""
        return bool(getattr(self.generator, "constraints", False))

    @property
    def left_out(self) -> Counter[str]:
        """How many questions were left out so far: entries of the writer's replies by their fault (see
        [`DirectGenerator`]), and items that a refiner merged or dropped by the refiner."""
        return (getattr(self.generator, "left_out", None) or Counter()) + self._refined_away

    @property
    def shown(self) -> frozenset[str]:
        """The fields of a [`Request`] that the generator's prompt uses."""
        prompt = getattr(self.generator, "prompt", None)
        placeholders = frozenset() if prompt is None else prompt.placeholders
        if placeholders & {"candidates", "responses"}:
            placeholders |= {"candidates", "chosen", "rejected"}  # a pair can be used as candidates
        return placeholders & {field.name for field in fields(Request)}

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
        # Some generators also check for responses to compare; otherwise the run would fail halfway.
        check = getattr(self.generator, "check_request", check_request)
        request = check(request, where)
        tries = next((r.name for r in self.refiners if isinstance(r, UnitTester | CheckAdmission)), None)
        samples: Sequence[Sample] = () if tries is None else samples_of(request, ())
        for sample in samples:
            self.check_sample(sample, where)
        if tries is not None and not samples:
            raise SampleError(
                f"{where}: {tries} tests the questions on responses, but the request has neither candidates nor a "
                "chosen and a rejected response."
            )
        return request

    def check_checklist(self, checklist: Checklist, where: str) -> None:
        """Check that the scorer can answer a checklist. Raises a [`ChecklistError`] that begins with `where`."""
        if isinstance(self.scorer, ChecklistScorer):
            for item in self.scorer.prepared(checklist, where).items:
                self.scorer.check_item(item, where)

    def check_sample(self, sample: Sample, where: str) -> None:
        """Refuse a sample with images that the judge cannot take; see [`ChecklistScorer.check_sample`]. A sample
        without a parsed checklist gets that of the generator."""
        by_code = isinstance(self.generator, ConstraintsGenerator) and not self.config.universal
        if isinstance(self.scorer, ChecklistScorer) and (isinstance(sample.checklist, Checklist) or not by_code):
            self.scorer.check_sample(sample, where)

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
        unknown = sorted(set(others) - set(CONTEXT))
        if unknown:
            raise SampleError(f"{unknown[0]!r} is not a field of a row; allowed: {', '.join(CONTEXT)}.")
        row = {**others, "input": input, "target": target}
        _sample(row, "the row")  # raises before a checklist is generated
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
        checked = [
            self.check_request(request, f"request {number}") for number, request in enumerate(requests, start=1)
        ]
        return self.write_batch(checked, progress)

    def write_batch(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """[`generate_batch`] for requests that [`check_request`] has already accepted."""
        self.generator.validate()
        results = self.generator.generate_batch(requests, progress)
        samples = [
            () if isinstance(result, GenerationError) else samples_of(request, result)
            for request, result in zip(requests, results, strict=True)
        ]
        return self._refined(results, samples)

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
        arguments = (source_from(self.config, source), *([samples] if self._takes_samples else []))
        [refined] = self._refined([self.generator.generate(*arguments)], [samples])
        if isinstance(refined, GenerationError):
            raise refined
        return refined

    def score_batch(self, samples: Sequence[Sample], progress: Progress | None = None) -> list[Score]:
        """Score every sample, with all reads in one plan; see [`ChecklistScorer.score_batch`]."""
        return self.scorer.score_batch(samples, progress)

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
        located = [(row, f"row {number}") for number, row in enumerate(rows, start=1)]
        drafts = [_sample(row, where) for row, where in located]  # raises if a row cannot be scored
        shared = None if checklist is None else Checklist.parse(checklist)
        for draft, (_, where) in zip(drafts, located, strict=True):
            if draft is not None:
                self.check_sample(draft if shared is None else replace(draft, checklist=shared), where)
        results: list[Checklist | GenerationError]
        if shared is not None:
            results = [shared] * len(rows)
        elif source is not None:
            self.validate()
            results = [self.generate(source, a_few([draft for draft in drafts if draft is not None]))] * len(rows)
        else:
            requests = [self.check_request(FIELDS.request_of(row, where), where) for row, where in located]
            self.validate()
            results = self.write_batch(requests, progress)
        samples = {
            index: replace(draft, checklist=result)
            for index, (draft, result) in enumerate(zip(drafts, results, strict=True))
            if draft is not None and isinstance(result, Checklist)
        }
        scores = dict(zip(samples, self.score_batch(list(samples.values()), progress), strict=True))
        return [
            PipelineResult(None, None, result)
            if isinstance(result, GenerationError)
            else PipelineResult(result, scores.get(index))
            for index, result in enumerate(results)
        ]

    def _refined(
        self, results: Sequence[Checklist | GenerationError], samples: Sequence[Sequence[Sample]]
    ) -> list[Checklist | GenerationError]:
        """Apply all refiners in order, each to all checklists at once."""
        refined = [one if isinstance(one, GenerationError) else Checklist.parse(one, "generator") for one in results]
        for refiner in self.refiners:
            checklists = {index: result for index, result in enumerate(refined) if isinstance(result, Checklist)}
            outcomes = refine_all(refiner, list(checklists.values()), [samples[index] for index in checklists])
            for index, outcome in zip(checklists, outcomes, strict=True):
                if isinstance(outcome, ChecklistError):
                    refined[index] = GenerationError(f"the checklist cannot be used: {outcome}")
                elif isinstance(outcome, GenerationError):
                    refined[index] = outcome
                else:
                    kept = refined[index] = Checklist.parse(outcome, f"refiner {_name(refiner)!r}")
                    self._refined_away[f"by {_name(refiner)}"] += max(0, len(checklists[index]) - len(kept))
        return [self._with_universal(result) if isinstance(result, Checklist) else result for result in refined]

    def _with_universal(self, checklist: Checklist) -> Checklist:
        ids = {item.id for item in checklist.items}
        items = (*checklist.items, *(item for item in self.config.universal if item.id not in ids))
        return Checklist(items=items, source=checklist.source, model=checklist.model)


def _name(refiner: Any) -> str:
    return getattr(refiner, "name", type(refiner).__name__)


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
    engine_args: Mapping[str, Any] | None = None,
    generator_engine_args: Mapping[str, Any] | None = None,
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
            names.
        generator_model, scorer_model (`str`, *optional*): override `model` for writing and refining, and for judging.
        backend, base_url: backend of both models, or of the scorer only if the generator has its own.
        generator_backend, generator_base_url (*optional*): backend of the generator.
        engine_args, generator_engine_args (mapping, *optional*): engine arguments, as in [`ChecklistScorer`].
            `engine_args` also applies to the generator unless the generator has its own backend or arguments.
        generator, scorer (mapping, *optional*): settings that override the config, such as `{"max_items": 20}`.
        refiners (sequence, *optional*): names or mappings that replace the refiners of the config.
        budget ([`Budget`], *optional*): joint budget of all models of the pipeline; see [`ChecklistScorer`].
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where replies and reads are stored.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """
    loaded = load_config(config)
    changes = {"generator": generator, "refiners": refiners, "scorer": scorer}
    if changes := {name: value for name, value in changes.items() if value is not None}:
        loaded = loaded.replace(changes)
    named = Engine(UNNAMED, backend, joined_addresses(base_url), engine_args or {})
    judging = scorer_model or model or (scorer or {}).get("model")
    writing = generator_model or model or (generator or {}).get("model")
    # A server has its own models; those that a config names are here.
    judge = named.named(judging or UNNAMED)
    if base_url is None and not (scorer_model or model):
        judge = loaded.scorer.asked.overridden(named)
    if base_url is None and generator_base_url is None:
        writing = writing or loaded.generator.model
    writer = named.named(writing or UNNAMED)
    if any(value is not None for value in (generator_backend, generator_base_url, generator_engine_args)):
        address = joined_addresses(generator_base_url)
        writer = Engine(writer.model, generator_backend or "auto", address, generator_engine_args or {})
    opened = open_store(store)
    if budget is None:
        return assemble(loaded, writer, judge, opened)
    limited = Budget.of(budget).limited
    file = loaded.scorer.judge
    jury = None if file is None else load_jury(file, False if opened is None else opened, limited)
    judge = limited(judge) if jury is None else judge
    return assemble(loaded, limited(writer), judge, opened, lambda name: limited(writer.named(name)), jury)


def assemble(
    config: PipelineConfig,
    writer: Engine | None,
    judge: Engine,
    store: Store | None,
    candidate_engine: Callable[[str], Engine] | None = None,
    jury: Judge | Member | None = None,
) -> Pipeline:
    """Build the parts of `config` with the given engines.

    Args:
        config ([`PipelineConfig`]): the config of the pipeline.
        writer ([`Engine`], *optional*): the engine that writes and refines. With None, the pipeline only scores: it
            has no generator and no refiners.
        judge ([`Engine`]): the engine that judges.
        store ([`Store`], *optional*): where replies and reads are stored.
        candidate_engine (callable, *optional*): resolves candidate models by name. Without it, they use the backend of
            the generator.
        jury ([`Judge`], *optional*): the judge of the config's file of judges, if it was already loaded.
    """
    scorer = build(config.scorer, judge, store, **({} if jury is None else {"judge": jury}))
    if writer is None:
        return Pipeline(config, None, (), scorer)
    kinds = [refiner.kind for refiner in config.refiners]
    if config.generator.shape == "checked" and CheckAdmission.name not in kinds:
        logger.warning(
            "code checks written by the model are used without being compared with the judge; add the refiner %s "
            "to remove checks that disagree with the judge.",
            CheckAdmission.name,
        )
    refiners = [build(refiner, writer, store, scorer) for refiner in config.refiners]
    others: dict[str, Any] = {}
    if config.generator.candidate_models is not None and candidate_engine is not None:
        others = {"candidate_models": tuple(map(candidate_engine, config.generator.candidate_models))}
    generator = build(config.generator, writer, store, scorer, **others)
    if isinstance(generator, DirectGenerator) and has_own_prompt(config):
        generator.source = f"{config.name}/{__version__}"
    return Pipeline(config, generator, refiners, scorer)


def build(
    config: WriterConfig | RefinerConfig | ScorerPart,
    engine: Engine,
    store: Store | None,
    scorer: Any = None,
    **others: Any,
) -> Any:
    """Build a part of a pipeline; no model is loaded. Refiners that test a checklist on texts use the `scorer`."""
    entry = config.entry
    arguments = {
        # User-registered parts expect a model name; an engine with more than that has to be passed as an object.
        "model": engine.model if engine.is_plain else engine,
        "backend": engine.backend if engine.is_plain else "auto",
        "base_url": engine.base_url if engine.is_plain else None,
        "store": store if store is not None else False,
        "scorer": scorer,
    }
    accepted = {name: value for name, value in arguments.items() if entry.takes(name)}
    return entry.factory(**accepted | config.settings() | others)
