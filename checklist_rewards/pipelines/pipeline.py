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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, ConfigError, GenerationError, SampleError
from checklist_rewards.generators import ConstraintsGenerator, DirectGenerator, Request
from checklist_rewards.generators.base import check_request
from checklist_rewards.pipelines.config import PipelineConfig
from checklist_rewards.pipelines.requests import CANDIDATES, TEXTS, a_few, request_from, sample_from, samples_of
from checklist_rewards.pipelines.sources import source_from
from checklist_rewards.refiners import CheckAdmission, UnitTester
from checklist_rewards.refiners.base import refine_all
from checklist_rewards.scorer import Sample, Scorer
from checklist_rewards.scores import Score
from checklist_rewards.scores.scales import on_scale, ordinal_scale


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
        for part in (self.generator, *self.refiners):
            part.check()

    @property
    def finds_constraints(self) -> bool:
        """Whether rules find items in the input, alone or before a model writes the others."""
        return bool(getattr(self.generator, "constraints", False))

    @property
    def left_out(self) -> Counter[str]:
        """How many entries of the writer's replies were left out so far, by fault; see [`DirectGenerator`]."""
        return getattr(self.generator, "left_out", None) or Counter()

    @property
    def needs_writer(self) -> bool:
        """Whether a model writes the checklists."""
        return not isinstance(self.generator, ConstraintsGenerator)

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
            for item in self.scaled(checklist).items:
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
        checked = [
            self.check_request(request, f"request {number}") for number, request in enumerate(requests, start=1)
        ]
        return self.write_batch(checked, progress)

    def write_batch(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """[`generate_batch`] for requests that [`check_request`] has already accepted."""
        self.generator.check()
        # `generate_batch` of the built-in generators checks requests; that of a subclass must not be bypassed.
        checks = getattr(type(self.generator), "generate_batch", None) is DirectGenerator.generate_batch
        write = self.generator.write_batch if checks else self.generator.generate_batch
        results = write(requests, progress)
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
        scaled = [replace(sample, checklist=self.scaled(sample.checklist)) for sample in samples]
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
        located = [(row, f"row {number}") for number, row in enumerate(rows, start=1)]
        drafts = [sample_from(row, where, ()) for row, where in located]  # raises if a row cannot be scored
        results: list[Checklist | GenerationError]
        if checklist is not None:
            results = [Checklist.parse(checklist)] * len(rows)
        elif source is not None:
            self.check()
            results = [self.generate(source, a_few([draft for draft in drafts if draft is not None]))] * len(rows)
        else:
            requests = [self.check_request(request_from(row, where), where) for row, where in located]
            self.check()
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
        refined = list(results)
        for refiner in self.refiners:
            checklists = {index: result for index, result in enumerate(refined) if isinstance(result, Checklist)}
            outcomes = refine_all(refiner, list(checklists.values()), [samples[index] for index in checklists])
            for index, outcome in zip(checklists, outcomes, strict=True):
                if isinstance(outcome, ChecklistError):
                    refined[index] = GenerationError(f"the checklist cannot be used: {outcome}")
                else:
                    refined[index] = outcome
        return [self._with_universal(result) if isinstance(result, Checklist) else result for result in refined]

    def _with_universal(self, checklist: Checklist) -> Checklist:
        ids = {item.id for item in checklist.items}
        items = (*checklist.items, *(item for item in self.config.universal if item.id not in ids))
        return Checklist(items=items, source=checklist.source, model=checklist.model)

    def scaled(self, checklist: Any) -> Any:
        """The checklist as the scorer answers it: on the scale of the config, if it has one."""
        steps = self.config.scorer.scale
        return checklist if steps is None else on_scale(checklist, ordinal_scale(steps))
