"""Building a checklist in the app: the stages of the corpus-level generators one by one, refiners with before and
after, and scores of sample responses while the checklist is edited.

Nothing is kept between requests: the page sends the source, the draft or the checklist, and gets the next one. Forms
are JSON schemas of the settings of generators and refiners, and of the code checks, so a registered check or part has
its form without code in the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from checklist_rewards.backends.packaged import POCKET
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.checks import CHECKS
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.generators import Stage
from checklist_rewards.generators.stages import CorpusWriter
from checklist_rewards.judges.checked import run_check
from checklist_rewards.pipelines import (
    REFINERS,
    PipelineConfig,
    RefinerConfig,
    WriterConfig,
    list_pipelines,
    load_config,
)
from checklist_rewards.pipelines.assembly import build
from checklist_rewards.pipelines.registry import GENERATORS, Entry
from checklist_rewards.refiners.base import Report
from checklist_rewards.rows import SENT
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import (
    NO_ANSWER_STATES,
    ItemScore,
    Reason,
    Score,
    Unanswered,
    Verdict,
    score_checklist,
)
from checklist_rewards.ui.code import items_of
from checklist_rewards.ui.judging import WRITERS, Judging, known_settings, settings_form
from checklist_rewards.validation import finite, one_sentence


def with_defaults(schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with other defaults, those of a pipeline."""
    known = schema["properties"]
    return {**schema, "properties": known | {k: known[k] | {"default": v} for k, v in values.items() if k in known}}


def check_forms() -> list[dict[str, Any]]:
    """Name, description, example and form of every type of code check."""
    forms = []
    for name, kind in CHECKS.items():
        if kind.offered:
            schema = kind.model_json_schema()
            known = {key: value for key, value in schema["properties"].items() if key != "type"}
            # A check inside a check can be of any type, which a form cannot know: it is edited as JSON.
            known = {key: {"type": "json"} if "$ref" in json.dumps(value) else value for key, value in known.items()}
            form = {"type": "object", "properties": known, "required": schema.get("required", [])}
            about = {"summary": kind.summary, "runs_code": kind.executes, "example": dict(kind.example)}
            forms.append({"name": name, **about, "form": form})
    return forms


MOST_SAMPLES = 20
STAGES = {
    "seed": "A few questions per dimension, to start with. Dimensions with seed questions keep theirs.",
    "elaborate": "Adds more detailed questions, from the seeds.",
    "diversify": "Adds questions about other aspects, from the seeds.",
    "filter": "Keeps questions to which yes is better and that belong to their dimension.",
    "deduplicate": "Merges questions of a dimension that ask the same.",
    "questions": "Questions from the observations, each with the numbers of those behind it, from 0.",
    "components": "Groups the attributes into a few components.",
    "assign": "Assigns every attribute to a component.",
    "key_questions": "One key question per component.",
    "sub_questions": "Two or three questions per component.",
    "validate": "Merges and revises all questions of the checklist.",
}
"""What a stage does, by its name."""
_LINES = TypeAdapter(list[ItemScore])


@dataclass
class Run:
    """A stage that runs."""

    asked: int = 0
    answered: int = 0
    stopped: bool = False

    def heard(self, asked: int, replies: int) -> None:
        """Count replies. Raises [`SampleError`] if the page has stopped the stage."""
        self.asked, self.answered = asked, self.answered + replies
        if self.stopped:
            raise SampleError("the stage was cancelled; the replies so far are stored.")


@dataclass(frozen=True)
class Building:
    """What the view Build asks for."""

    judging: Judging
    _runs: dict[str, Run] = field(default_factory=dict)
    """The stages that run, by the name that the page gave them."""

    def choices(self) -> dict[str, Any]:
        """The corpus-level pipelines, refiners and code checks, with their settings as JSON schemas, and what stages
        do."""
        known = self.judging.writer.model
        toy = f"{known} cannot write in stages." if known == POCKET else None  # in the form that a stage requires
        pipelines = []
        for name, config in self._corpus_level():
            form = settings_form(GENERATORS.get(config.generator.kind).factory)
            settings = with_defaults(form, config.generator.settings())
            pipelines.append({"name": name, "description": config.description, "settings": settings})
        return {
            "writer": known,
            "cannot_write": toy or self.judging.cannot_write(),
            "writers": [name for name in WRITERS if name not in (known, POCKET)],
            "pipelines": pipelines,
            "refiners": [
                {"name": entry.name, "description": entry.summary, "settings": settings_form(entry.factory)}
                for entry in REFINERS
            ],
            "checks": check_forms(),
            "stages": STAGES,
        }

    def plan(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The stages of a pipeline with these settings, and the forms of its source and its drafts."""
        writer = self._writer(body)
        return {
            "stages": list(writer.order),
            "source": writer.source_shape.model_json_schema(),
            "example": writer.source_shape.example().model_dump(mode="json", exclude_defaults=True),
            "draft": writer.draft_shape.model_json_schema(),
        }

    def stage(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Run one stage on the draft of the stage before, as it was returned or edited. `questions` is the number of
        items that a checklist of the new `draft` would have, or None if it cannot be one yet."""
        writer, source, name = self._writer(body), body.get("source"), str(body.get("run"))
        completed: list[Stage] = []
        run = self._runs[name] = Run()
        writer.watch = run.heard
        try:
            draft = writer.advance(str(body.get("stage")), source, body.get("draft"), progress=completed.append)
        finally:
            self._runs.pop(name, None)
        try:
            questions = len(writer.checklist(source, draft))
        except SampleError:  # later stages write the questions
            questions = None
        [stage] = completed
        return {
            "draft": draft.model_dump(mode="json"),
            "questions": questions,
            "asked": stage.asked,
            "kept": stage.kept,
            "seconds": round(stage.seconds, 3),
        }

    def progress(self, name: Any) -> dict[str, int]:
        """How many requests of a running stage are answered; nothing once it has ended."""
        run = self._runs.get(str(name))
        return {} if run is None else {"done": run.answered, "total": run.asked}

    def stop(self, name: Any) -> dict[str, bool]:
        """End a stage at its next reply."""
        run = self._runs.get(str(name))
        if run is not None:
            run.stopped = True
        return {"stopped": run is not None}

    def checklist(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The checklist of a draft. Raises [`SampleError`] if the draft cannot be one."""
        found = self._writer(body).checklist(body.get("source"), body.get("draft"))
        return {"items": items_of(found), "source": found.source, "model": found.model}

    def refine(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Refine a checklist. `before` has per item of the given one `question`, `state` (kept, changed or dropped)
        and `reason`; `after` per refined item `question`, `state` (kept, changed or new) and `reason` (what changed,
        or why the refiner could not assess it)."""
        entry = REFINERS.get(str(body.get("refiner")))
        placed = _placed(body, entry, RefinerConfig)
        try:
            config = RefinerConfig(kind=entry.name, **placed)
        except ValidationError as error:
            raise SampleError(f"refiner {entry.name!r}: {one_sentence(error, RefinerConfig)}") from None
        checklist = Checklist.parse(body.get("checklist"))
        judging = self.judging
        scorer = judging.pipeline(body.get("judge") or {}).scorer
        refiner = build(config, judging.writer_named(body.get("writer")), judging.store, scorer)
        refined = refiner.refine(checklist, _samples(body, checklist))
        return {"items": items_of(refined), **_compared(checklist, refined, getattr(refiner, "report", None))}

    def preview(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Score samples with the answers that the page has. No model is asked; code checks are run.

        Each sample has `target`, optionally `input`, and `answers`: item scores of earlier reads, and `quality`, their
        grade in mode `quality`. An answer counts for an item with the same id and question; all other items are
        unanswered as not_read, and then the grade does not count. A sample without an answer needs none.
        """
        pipe = self.judging.pipeline(body.get("settings") or {})
        scorer = pipe.scorer
        if not isinstance(scorer, ChecklistScorer):
            raise SampleError(f"the scorer of {pipe.name!r} is not part of the package and has no preview.")
        checklist = Checklist.parse(body.get("checklist"))
        pipe.check_checklist(checklist, "checklist")
        checklist = scorer.prepared(checklist)
        settings = pipe.config.scorer

        def verdict(item: ChecklistItem, sample: Sample, known: Mapping[str, ItemScore]) -> Verdict:
            if item.check is not None and settings.checks in (None, "only"):
                return run_check(item, sample.target, sample.input, settings.allow_code or False)
            line = known.get(item.id)
            not_asked = line is not None and line.unanswered and line.unanswered.reason == Reason.NO_ANSWER
            if line is None or line.question != item.question or not_asked:
                return Verdict(unanswered=Unanswered(Reason.NOT_READ))
            return line.verdict()

        scores: list[Score] = []
        for sample, given in zip(_samples(body, checklist), body.get("samples") or (), strict=True):
            known, state = {line.id: line for line in _answers(given)}, sample.target_state
            if state in NO_ANSWER_STATES and scorer.aggregation.no_answer != "judge":
                verdicts = [Verdict(unanswered=Unanswered(Reason.NO_ANSWER, state))] * len(checklist)
            else:
                verdicts = [verdict(item, sample, known) for item in checklist.items]
            complete = all(v.unanswered is None or v.unanswered.reason != Reason.NOT_READ for v in verdicts)
            quality = given.get("quality") if complete else None
            if quality is not None:
                finite("quality", quality)
            scores.append(score_checklist(checklist, verdicts, scorer.aggregation, quality=quality, state=state))
        return {"scores": [score.model_dump(mode="json") for score in scores]}

    def _corpus_level(self) -> list[tuple[str, PipelineConfig]]:
        """The corpus-level pipelines of the package and of the project whose generators run stage by stage."""
        found = [(name, load_config(name)) for name in list_pipelines()]
        for file in self.judging.project.files():
            if file.name.startswith("pipelines/"):
                try:
                    found.append((file.name, self.judging.config_of({"pipeline": file.name})))
                except ChecklistRewardsError:  # the library shows its error
                    continue
        return [(name, config) for name, config in found if _steps(GENERATORS.get(config.generator.kind))]

    def _writer(self, body: Mapping[str, Any]) -> CorpusWriter:
        name = body.get("pipeline")
        if not isinstance(name, str) or not name:
            raise SampleError(f"pipeline must be the name of a pipeline, got {name!r:.80}.")
        config = self.judging.config_of({"pipeline": name})
        entry = GENERATORS.get(config.generator.kind)
        if not _steps(entry):
            raise SampleError(f"the pipeline {name!r} has no stages; it writes a checklist per input.")
        placed = _placed(body, entry, WriterConfig)
        placed["options"] = {**config.generator.options, **placed["options"]}
        config = config.replace({"generator": placed}, "settings")
        judging, engine = self.judging, self.judging.writer_named(body.get("writer"))
        return build(config.generator, engine, judging.store, judging.pipeline({}).scorer)


def _steps(entry: Entry) -> bool:
    return isinstance(entry.factory, type) and issubclass(entry.factory, CorpusWriter)


def _placed(body: Mapping[str, Any], entry: Entry, config: type[BaseModel]) -> dict[str, Any]:
    """The settings of a request as fields of a config, the others as its `options`."""
    allowed = settings_form(entry.factory)["properties"]
    settings = known_settings(body.get("settings") or {}, allowed, f" of {entry.name}")
    named = {name: value for name, value in settings.items() if name in config.model_fields}
    return named | {"options": {name: value for name, value in settings.items() if name not in named}}


def _samples(body: Mapping[str, Any], checklist: Checklist) -> list[Sample]:
    given = body.get("samples") or []
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) > MOST_SAMPLES:
        raise SampleError(f"samples must be a list of up to {MOST_SAMPLES} responses.")
    samples = []
    for number, one in enumerate(given, start=1):
        target, input = (one.get("target"), one.get("input")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(target, str) or not isinstance(input, str | None):
            raise SampleError(f"sample {number} must have a text as 'target', and as 'input' a text or nothing.")
        samples.append(SENT.sample_of({"target": target, "input": input or None}, f"sample {number}", checklist))
    return samples


def _answers(sample: Mapping[str, Any]) -> list[ItemScore]:
    try:
        return _LINES.validate_python(sample.get("answers") or [])
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise SampleError(f"answers must be items of a score: {detail['msg']}.") from None


def _compared(before: Checklist, after: Checklist, report: Report | None) -> dict[str, Any]:
    """What became of every item. Items of a report are the objects of the checklists, or else equal to them."""
    dropped = {id(note.item): note.reason for note in report.dropped} if report is not None else {}
    unclear = {note.item.id: note.reason for note in report.unclear} if report is not None else {}
    old = {item.id: item for item in before.items}
    new = {item.id: item for item in after.items}

    def was(item: ChecklistItem) -> dict[str, Any]:
        if id(item) in dropped or item.id not in new:
            return {"state": "dropped", "reason": dropped.get(id(item), "")}
        changes = _changes(item, new[item.id])
        return {"state": "changed" if changes else "kept", "reason": changes}

    def became(item: ChecklistItem) -> dict[str, Any]:
        changes = "" if item.id not in old else _changes(old[item.id], item)
        state = "new" if item.id not in old else "changed" if changes else "kept"
        return {"state": state, "reason": "; ".join(filter(None, (changes, unclear.get(item.id))))}

    return {
        "before": [{"question": item.question, **was(item)} for item in before.items],
        "after": [{"question": item.question, **became(item)} for item in after.items],
    }


def _changes(old: ChecklistItem, new: ChecklistItem) -> str:
    fields = ("weight", "category", "required")
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in fields]
    return ", ".join(f"{name} {_shown(a)} → {_shown(b)}" for name, a, b in pairs if a != b)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
