"""Judging and writing checklists in the app, by the pipeline that the command line would build.

A page sends settings with every request; [`Judging`] turns them into a pipeline of the engines that the app was
started with. Answers are sent as they arrive: a served judge answers the items one by one, a judge in this process
answers a checklist in one pass, as `score` does. The score is computed from these answers, so its figures are those of
`ChecklistScorer.score`. Answers are kept in the store: after an edit, only the edited item is read again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter

from checklist_rewards.backends import Engine, choose_backend
from checklist_rewards.backends.engine import SERVED
from checklist_rewards.backends.packaged import ENGLISH_WRITER, POCKET, SMOLLM2, caveat
from checklist_rewards.backends.servers import OPENAI
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistRewardsError, GenerationError, SampleError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.store import Store
from checklist_rewards.images import PLACE
from checklist_rewards.judges.probe import probe
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.judges.settings import FILE_SETTINGS, ScorerConfig, load_jury
from checklist_rewards.pipelines import Pipeline, PipelineConfig, assemble, list_pipelines, load_config
from checklist_rewards.pipelines.registry import SURROUNDINGS
from checklist_rewards.rows import CONTEXT, SENT
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score, score_checklist
from checklist_rewards.scores.reasons import ADVICE
from checklist_rewards.ui.permitted import Address, Permitted, named_addresses
from checklist_rewards.ui.project import Project
from checklist_rewards.ui.thumbnails import has_places
from checklist_rewards.writer import parameters_of

SETTINGS = (
    *("mode", "metric", "threshold", "min_answered", "abstention", "no_answer"),
    *("scale", "capture_reasoning", "votes"),
)
"""Settings of the scorer that the page has fields for. `pipeline`, `judge` and `calibration` are names of files."""
_FILES = ("judge", "calibration")
_RULES = {"primary_metric": "metric"}
"""Fields of an [`Aggregation`] that have another name as a setting."""
_CONCURRENT = 8
_MOST_PIPELINES = 64
_PLAIN = (str, bool, int, float)
WRITERS = ("pocket", ENGLISH_WRITER, SMOLLM2)
"""The packaged models that can write checklists."""


@dataclass
class Judging:
    """What the app was started with."""

    project: Project
    config: PipelineConfig
    """The pipeline of the command line, with its judge options."""
    given: Mapping[str, Any]
    """The judge options of the command line alone; they also apply to other pipelines."""
    judge: Engine
    writer: Engine
    store: Store | None = None
    store_path: str | None = None
    """The store that the user chose, for the exported command."""
    _pipelines: dict[str, Pipeline] = field(default_factory=dict)
    _writers: dict[str, Engine] = field(default_factory=dict)
    _building: threading.Lock = field(default_factory=threading.Lock)
    _loading: threading.Lock = field(default_factory=threading.Lock)
    _probed: dict[str, Any] | None = None

    @cached_property
    def permitted(self) -> Permitted:
        """What files of the project may set: less than the options with which the app was started."""
        jury = self.config.scorer.judge
        engines = [self.judge, self.writer, *(_engines_of(jury) if jury is not None else ())]
        addresses: set[Address] = set().union(*map(named_addresses, engines))
        remote_code = bool(self.writer.settings.get("trust_remote_code"))
        return Permitted(self.project, addresses, bool(self.given.get("allow_code")), remote_code)

    @property
    def served(self) -> bool:
        """Whether the judge is a server, which answers every item in a request of its own."""
        backend = self.judge.backend
        if not isinstance(backend, str):
            return False
        return backend == REMOTE or choose_backend(self.judge.model, backend, self.judge.base_url) == OPENAI

    def config_of(self, settings: Mapping[str, Any]) -> PipelineConfig:
        """The pipeline's config with the settings of the page. Raises a [`ChecklistRewardsError`]."""
        values = known_settings(settings, (*SETTINGS, *_FILES, "pipeline"))
        config = self.config
        if "pipeline" in values:
            config = self._pipeline_named(values.pop("pipeline"))
        for name in _FILES:
            if name in values:
                if name == "judge":
                    self.permitted.check_jury(values[name])
                values[name] = str(self.project.existing(values[name]))
        return config.replace({"scorer": values}, "settings") if values else config

    def pipeline(self, settings: Mapping[str, Any], writes: bool = False, writer: str | None = None) -> Pipeline:
        """The pipeline for the settings of the page. Pipelines of equal settings are the same, and all share engines.

        With `writes`, it has a generator as well, of the [`writer_named`][Judging.writer_named] `writer`; without, it
        only scores.
        """
        own = self.writer_named(writer)
        config = self.config_of(settings)  # files are checked at every use: they may have changed
        key = json.dumps([config.model_dump(mode="json"), _stamps(config), writes, writer])
        with self._building:
            if key not in self._pipelines:
                if len(self._pipelines) >= _MOST_PIPELINES:
                    self._pipelines.clear()
                engines = own if writes else None, self.engine_of(config)
                self._pipelines[key] = assemble(config, *engines, self.store, own.named)
            return self._pipelines[key]

    def writer_named(self, name: Any) -> Engine:
        """The writer of a request: a packaged model that the page has chosen, or that of the command line."""
        if not name:
            return self.writer
        if name not in WRITERS:
            raise SampleError(f"{name!r:.80} is not a writer that the page offers; allowed: {', '.join(WRITERS)}.")
        return self._writers.setdefault(name, Engine(name))

    def engine_of(self, config: PipelineConfig) -> Engine:
        """The engine of a config of [`config_of`]: that of the command line, unless the page has chosen a file of
        judges, which replaces it."""
        chosen = config.scorer.judge
        return self.judge if chosen in (None, self.config.scorer.judge) else Engine()

    def health(self) -> dict[str, Any]:
        """Whether the judge can be loaded. `state` is `loaded` (in this process), `reachable` (a server), `files`
        (judges of a file, which load at the first score) or `failed` with the `error`; `probe` is the last result of
        [`probed`][Judging.probed]."""
        known: dict[str, Any] = {"probe": self._probed, "can_probe": self._probes}
        if not self._probes:
            return known | {"state": "files"}
        try:
            with self._loading:
                self.judge.load()
        except ChecklistRewardsError as error:
            return known | {"state": "failed", "error": str(error)}
        return known | {"state": "reachable" if self.served else "loaded"}

    @property
    def _probes(self) -> bool:
        """Whether the judge is one model, whose answers can be probed."""
        return self.config.scorer.judge is None and self.judge.backend != REMOTE

    def probed(self) -> dict[str, Any]:
        """Ask the judge twelve questions with known answers, as `checklist-rewards probe` does. Raises [`ModelError`]
        if it cannot be loaded."""
        if not self._probes:
            raise SampleError(f"{self.shown} is not one model; probe its models with checklist-rewards probe.")
        started = time.perf_counter()
        report = probe(self.judge, replies=False)
        names = ("accuracy", "margin", "mass", "answered", "refusal")
        found = {name: getattr(report, name) for name in names} | {"asked": len(report.lines)}
        self._probed = found | {"seconds": round(time.perf_counter() - started, 3)}
        return self._probed

    def cannot_write(self) -> str | None:
        """Why the writer cannot write checklists, as a sentence; None if it can."""
        try:
            self.pipeline({}, writes=True).check_writers()
        except ChecklistRewardsError as error:
            return str(error)
        return None

    def described(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Who judges with the settings of the page: `judge`, the name of the model, server or file of judges;
        `models`, the models that judge, each once; `threshold`, the lowest P(yes) that counts as yes; `caveats`, what
        the answers of the packaged models among them are worth, as sentences; `toy`, whether one of them is the pocket
        model; and `files`, the versions of the files that the settings name."""
        config = self.config_of(settings)
        jury = config.scorer.judge
        engines = [self.judge] if jury is None else _engines_of(jury)
        packaged = dict.fromkeys(engine.model for engine in engines if _in_process(engine))
        return {
            "judge": self._shown(config),
            "models": list(dict.fromkeys(engine.model for engine in engines)),
            "threshold": config.scorer.aggregation.threshold,
            "caveats": list(filter(None, map(caveat, packaged))),
            "toy": POCKET in packaged,
            "files": _stamps(config),
        }

    def of_the_app(self) -> dict[str, Any]:
        """As [`described`][Judging.described] of the settings that the app was started with. If its file of judges was
        changed and is not valid now, the error is the caveat."""
        try:
            return self.described({})
        except ChecklistRewardsError as error:
            unknown: dict[str, Any] = {"models": [], "threshold": None, "toy": False, "files": []}
            return {"judge": self.shown, **unknown, "caveats": [str(error)]}

    def name_in_scores(self, settings: Mapping[str, Any]) -> str:
        """The name that the answers of the judge have in a score. No model is loaded."""
        scorer = self.pipeline(settings).scorer
        return scorer.judge.name if isinstance(scorer, ChecklistScorer) else self.shown

    def like(self, score: Score) -> tuple[dict[str, Any], dict[str, Any]]:
        """How the page asks as a stored score was asked: the settings that differ from how the app was started, which
        are the rules of the score, and the file of judges of the project whose judge has this name, if the judge of
        the app has another one; and `judges`, the names in the score, with `same`, whether they are the judge of these
        settings."""
        judges, settings = judges_of([score]), {}
        if score.aggregation is not None:
            rules, own = map(asdict, (score.aggregation, self.config.scorer.aggregation))
            settings = {_RULES.get(name, name): value for name, value in rules.items() if value != own[name]}
        same = not judges or judges == [self.name_in_scores({})]
        for name in () if same else self._files_of_judges():
            try:
                same = judges == [self.name_in_scores({"judge": name})]
            except ChecklistRewardsError:  # the page shows why when it is chosen
                continue
            if same:
                settings["judge"] = name
                break
        return settings, {"judges": judges, "same": same}

    def sample(self, body: Mapping[str, Any]) -> Sample:
        """What a request has scored. As in `score`, only the answer of the response is judged."""
        _check_places(body, "input", "target", "history")
        checklist = Checklist.parse(body.get("checklist"))
        row = {name: _text(body, name) or None for name in ("input", "reference", "history")}
        return SENT.sample_of({**row, "target": _text(body, "target") or ""}, "the response", checklist)

    def score(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Score a response: an event per item as it is answered, then one with the score and who gave it as
        [`described`][Judging.described], or one with an error."""
        try:
            settings = body.get("settings") or {}
            by = self.described(settings)
            pipe = self.pipeline(settings)
            sample = self.sample(body)
            pipe.check_checklist(sample.checklist, "checklist")
            pipe.scorer.validate()
            pipe.check_sample(sample, "the response")
            yield {"event": "start", "items": len(sample.checklist)}
            started = time.perf_counter()
            score = yield from self._answers(pipe, sample)
            seconds = time.perf_counter() - started
            shown = score.model_dump(mode="json")
            yield {"event": "score", "score": shown, "seconds": round(seconds, 3), "by": by}
        except ChecklistRewardsError as error:
            yield {"event": "error", "message": str(error)}

    def write(self, body: Mapping[str, Any]) -> Checklist:
        """Write a checklist for the input. Raises [`GenerationError`] if the model could not."""
        pipe = self.pipeline(body.get("settings") or {}, writes=True, writer=body.get("writer") or None)
        if pipe.corpus_level:
            use = "use `checklist-rewards run --source`"
            raise SampleError(f"{pipe.name} writes one checklist for many inputs; {use}.")
        _check_places(body, "input", "history")
        row = {name: body[name] for name in CONTEXT if body.get(name)} | {"input": _text(body, "input") or ""}
        request = pipe.check_request(SENT.request_of(row, "the prompt"), "the prompt")
        pipe.check_writers()
        [result] = pipe.write_batch([request])
        if isinstance(result, GenerationError):
            raise result
        return result

    @property
    def shown(self) -> str:
        """The name of the judge of the command line."""
        return self._shown(self.config)

    def _shown(self, config: PipelineConfig) -> str:
        """The name of a judge: of a file of judges in the project, its name there."""
        jury = config.scorer.judge
        if jury is None:
            return str(self.judge.base_url if self.judge.backend == REMOTE else self.judge.model)
        path, folder = Path(str(jury)), self.project.folder
        return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(jury)

    def _files_of_judges(self) -> list[str]:
        return [file.name for file in self.project.files() if file.name.startswith("judges/")]

    def choices(self) -> dict[str, Any]:
        """What the page can choose from, and what the command line has set."""
        files = [file.name for file in self.project.files()]
        return {
            "served": self.served,
            "writer": self.writer.model,
            "cannot_write": self.cannot_write(),
            "writers": [name for name in WRITERS if name != self.writer.model],
            "advice": ADVICE,
            "pipelines": [
                {"name": name, "description": config.description, "corpus_level": config.corpus_level}
                for name, config in ((name, load_config(name)) for name in list_pipelines())
            ],
            "checklists": [name for name in files if name.startswith("checklists/") and name.endswith(".json")],
            "judges": self._files_of_judges(),
            "settings": self._settings_form(files),
        }

    def _settings_form(self, files: Sequence[str]) -> dict[str, Any]:
        """The JSON schema of the settings. What is left empty stays as the app was started."""
        known = dict(settings_form(ScorerConfig)["properties"])
        known["scale"] = {"type": "integer", "default": "yes/no"}
        known["capture_reasoning"] = {"type": "json", "enum": [False, True], "default": False}
        fields = {name: {key: one for key, one in known[name].items() if key != "default"} for name in SETTINGS}
        for name, one in fields.items():
            value = getattr(self.config.scorer, name)
            one["empty"] = f"as started ({known[name]['default'] if value is None else value})"
        names = {
            "pipeline": [*list_pipelines(), *(name for name in files if name.startswith("pipelines/"))],
            "judge": [name for name in files if name.startswith("judges/")],
            "calibration": [name for name in files if name.endswith(".json") and "/" not in name],
        }
        fields = {name: {"enum": found, "empty": "as started"} for name, found in names.items()} | fields
        fields["judge"]["empty"] = f"as started ({self.shown})"
        return {"type": "object", "properties": {name: {**one, "optional": True} for name, one in fields.items()}}

    def _answers(self, pipe: Pipeline, sample: Sample) -> Generator[dict[str, Any], None, Score]:
        """An event per answer, in the order of their arrival. The result is the score."""
        scorer, of_app = pipe.scorer, pipe.config.scorer.judge is None
        if not (isinstance(scorer, ChecklistScorer) and scorer.mode == "item" and self.served and of_app):
            [score] = pipe.score_batch([sample])
            for index, line in enumerate(score.model_dump(mode="json")["items"]):
                yield {"event": "item", "index": index, "item": line}
            return score
        singles = [
            # A weight of 0 alone would make no checklist; the answer does not depend on weights.
            replace(sample, checklist=Checklist(items=(item.model_copy(update={"weight": item.weight or 1.0}),)))
            for item in sample.checklist.items
        ]
        verdicts = {}
        with ThreadPoolExecutor(_CONCURRENT) as threads:
            futures = {threads.submit(pipe.score_batch, [single]): place for place, single in enumerate(singles)}
            try:
                for done in as_completed(futures):
                    place, [score] = futures[done], done.result()
                    verdicts[place] = score.items[0].verdict()
                    line = score.model_dump(mode="json")["items"][0]
                    line["weight"] = sample.checklist.items[place].weight
                    yield {"event": "item", "index": place, "item": line}
            finally:
                for future in futures:
                    future.cancel()
        checklist = scorer.prepared(sample.checklist)
        in_order = [verdicts[place] for place in range(len(checklist))]
        return score_checklist(checklist, in_order, scorer.aggregation, state=sample.target_state)

    def _pipeline_named(self, name: Any) -> PipelineConfig:
        if name in list_pipelines():
            config = load_config(name)
        else:
            path = self.project.existing(name)
            self.permitted.check_pipeline(name, read_value(read_text(path), name))
            config = load_config(path)
        return config.replace({"scorer": dict(self.given)}, "options") if self.given else config


def judges_of(scores: Iterable[Score | None]) -> list[str]:
    """The names of the judges in stored scores, each once. Code checks are not judges."""
    lines = (line for score in scores if score is not None for line in score.items)
    return list(dict.fromkeys(line.judge for line in lines if line.judge is not None and not line.by_code))


def _stamps(config: PipelineConfig) -> list[str]:
    """Time and size of the files that a config names."""
    named = [getattr(config.scorer, name) for name in ("judge", "weights", *FILE_SETTINGS)]
    named += [config.generator.prompt, *(config.generator.prompts or {}).values()]
    found = [Path(file).stat() for file in named if file is not None and Path(file).is_file()]
    return [f"{status.st_mtime_ns}-{status.st_size}" for status in found]


def _in_process(engine: Engine) -> bool:
    """Whether an engine runs a model by its name in this process: a server may give any name to its model."""
    return engine.base_url is None and isinstance(engine.backend, str) and engine.backend not in (REMOTE, *SERVED)


def _engines_of(jury: str) -> list[Engine]:
    """The engines of a file of judges. No model is loaded."""
    found: list[Engine] = []

    def remember(engine: Engine) -> Engine:
        found.append(engine)
        return engine

    load_jury(jury, False, remember)
    return found


def known_settings(settings: Any, allowed: Iterable[str], of: str = "") -> dict[str, Any]:
    """The settings of a request that have a value. Raises [`SampleError`] for one that the page has no field for."""
    if not isinstance(settings, Mapping):
        raise SampleError(f"settings must be an object, got {type(settings).__name__}.")
    if unknown := sorted(set(settings) - set(allowed)):
        raise SampleError(f"{unknown[0]!r:.80} is not a setting{of}; allowed: {', '.join(allowed)}.")
    return {name: value for name, value in settings.items() if value not in (None, "")}


def _text(body: Mapping[str, Any], name: str) -> str | list[Any] | None:
    """A text of a request, or its chat messages."""
    value = body.get(name)
    if not isinstance(value, str | list | None):
        raise SampleError(f"{name} must be a text, got {type(value).__name__}.")
    return value


def _check_places(body: Mapping[str, Any], *names: str) -> None:
    """Refuse texts that have the place of an image, but no image there."""
    if has_places(body, *names):
        raise SampleError(
            f"{PLACE} stands for an image of a row, but this text is not of a row with an image there; open the row "
            f"from its report, or in Compare from its file, or remove {PLACE} to use the text alone."
        )


@cache
def settings_form(factory: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of the parameters of a part that are a number, a text, a choice or yes/no.

    Parameters of other kinds, such as a prompt file, an embedder or the permission to run code, are left out: the page
    cannot set them.
    """
    fields = {
        name: TypeAdapter(parameter.hint).json_schema()
        | ({} if parameter.default is ... else {"default": parameter.default})
        for name, parameter in (parameters_of(factory) or {}).items()
        if name not in SURROUNDINGS and _is_plain(parameter.hint)
    }
    return {"type": "object", "title": "settings", "properties": fields}


def _is_plain(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return len(kinds) == 1 and _is_plain(kinds[0])
    return hint in _PLAIN or get_origin(hint) is Literal
