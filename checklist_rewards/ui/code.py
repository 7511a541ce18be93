"""What the screen says, as code: a batch job as a command line, and settings as Python, as a command and as YAML.

A [`Job`] is the content of `jobs/<id>.json`. The snippets of the same settings give the same figures.

Keys are not part of them: models on servers take their keys from the environment. Engine arguments whose name is that
of a secret ([`is_secret`]), and a password in an address, are left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError, without_password
from checklist_rewards.judges.settings import JudgeConfig
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.progress import FORECAST_VARIABLE, SECONDS_VARIABLE
from checklist_rewards.scorer import Sample
from checklist_rewards.ui.judging import Judging
from checklist_rewards.validation import one_sentence


class Columns(BaseModel):
    """The options `--input-key`, `--target-key` and so on. What is not set is chosen as by the command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: list[str] = []
    target: str | None = None
    checklist: str | None = None
    reference: str | None = None
    history: str | None = None


class Job(BaseModel):
    """What was asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    created: str
    file: str
    output: str
    columns: Columns = Columns()
    checklist: str | None = None
    """A file with a checklist for all rows."""
    settings: dict[str, JsonValue] = {}
    """Settings of the judge, as in the view Judge."""
    engine: dict[str, JsonValue] = {}
    """The judge, without keys. Only an app that was started with this judge resumes the job."""
    price: dict[str, tuple[float, float]] | None = None
    """US dollars per million prompt and reply tokens, by model."""
    budget: float | None = Field(default=None, ge=0)
    paused: bool = False

    @field_validator("engine")
    @classmethod
    def _of_older_files(cls, engine: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return {JudgeConfig.older.get(name, name): value for name, value in engine.items()}

    @property
    def column_options(self) -> dict[str, Any]:
        """The options of `score` that name the columns."""
        return {f"{name}_key": value for name, value in self.columns.model_dump().items()}


def validated(value: Any, where: str) -> Job:
    """A job from its JSON. Raises [`SampleError`] that begins with `where`."""
    try:
        return Job.model_validate(value)
    except ValidationError as error:
        raise SampleError(f"{where}: {one_sentence(error, Job)}") from None


def arguments(job: Job, judging: Judging, config: Path) -> list[str]:
    """The arguments of `score` for a job, whose pipeline is in the file `config`."""
    project, judge = judging.project, judging.judge
    judged_by = engine_arguments(judge, public=False)
    options = _job_options(job, judging.config_of(job.settings), judged_by, judging.store_path)
    if job.checklist is not None:
        options["checklist"] = project.existing(job.checklist)
    options["price"] = [f"{model}={prompt},{reply}" for model, (prompt, reply) in (job.price or {}).items()]
    options |= {"config": config, "budget": job.budget}
    given = [str(project.path(job.file)), f"--output={project.path(job.output)}", *_given(options)]
    return [*given, *["--no-store"] * (judging.store is None)]


def _job_options(job: Job, config: PipelineConfig, judge: Mapping[str, Any], store_path: str | None) -> dict[str, Any]:
    """The options of `score` for a job, without its config and its costs. The judge's are not used if the config names
    a file of judges."""
    given = judge if config.scorer.judge is None else {}
    return {**given, **job.column_options, "checklist": job.checklist, "store": store_path}


def _given(options: Mapping[str, Any]) -> list[str]:
    """Options of a command, each one argument, so that no value is taken for an option. None is not given."""
    return [
        f"--{name.replace('_', '-')}={json.dumps(each) if isinstance(each, dict) else each}"
        for name, value in options.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    ]


def environment() -> dict[str, str]:
    """The environment of the process: this package, a line of progress per second, a dry run as JSON, and no line
    breaks in messages."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUTF8": "1",
        "COLUMNS": "1000",
        "NO_COLOR": "1",
        SECONDS_VARIABLE: "1",
        FORECAST_VARIABLE: "json",
    }


_SECRET = re.compile(r"key|token|secret|password|credential|authorization|headers", re.I)
"""In the name of an environment variable."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = re.compile(
    "(api)?key|apikeys|secrets?|pass(word|phrase|wd)s?|credentials?|auth(orization)?|bearer|cookies?|headers?"
)
_SPECIAL_TOKENS = (
    *("bos", "eos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "start", "end", "stop"),
)
_WIDTH = 100


def snippets(config: PipelineConfig, judge: Engine, sample: Sample, store_path: str | None = None) -> dict[str, str]:
    """Code that scores a response as the page does, with a store that the user chose: as `python`, as `cli` (a shell
    script that writes its files), and `yaml` (the pipeline)."""
    if sample.images or sample.target_images:
        raise SampleError("code for a text with images is not exported; score its file in Batch, and export the job.")
    text = _yaml(config)
    return {
        "python": _python(config, judge, sample, store_path),
        "cli": _command(text, {} if config.scorer.judge else engine_arguments(judge), sample, store_path),
        "yaml": text,
    }


def file_snippets(config: PipelineConfig, judge: Engine, job: Job, store_path: str | None = None) -> dict[str, str]:
    """Code that scores the file of a batch job as the job does, to be run in the project folder; see [`snippets`]."""
    text = _yaml(config)
    options = _job_options(job, config, engine_arguments(judge), store_path)
    return {
        "python": _python_of_file(config, judge, job, store_path),
        "cli": _score(job.file, job.output, text, options),
        "yaml": text,
    }


def _yaml(config: PipelineConfig) -> str:
    if config.scorer.kind != "checklist":
        raise SampleError(f"the scorer {config.scorer.kind!r} is not part of the package and cannot be exported.")
    document = config.model_dump(mode="json", exclude_defaults=True) | {"name": config.name}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def items_of(checklist: Checklist) -> list[str | dict[str, Any]]:
    """The items of a checklist in their shortest form; ids that follow from the content are left out."""
    items: list[str | dict[str, Any]] = []
    for item in checklist.items:
        dumped = item.model_dump(mode="json", exclude_defaults=True)
        if type(item)(**{**item.model_dump(), "id": ""}).id == item.id:
            dumped.pop("id", None)
        items.append(item.question if set(dumped) == {"question"} else dumped)
    return items


def loop_commands(
    file: str,
    labels: str,
    judges: Sequence[str] | None,
    judging: Judging,
    columns: Mapping[str, Any],
    pictured: bool = False,
) -> list[str]:
    """The commands that use a labels file: agreement, calibration, few-shot examples and distillation.

    They name the judges that scored `file` (None for a file without scores): with the options of the app if it is the
    same judge, else by its name. Of a file of several other judges, which no option names, only the commands without a
    judge are given. `columns` are the options of `score` that name columns and checklist. Examples and distillation do
    not take rows with images (`pictured`).
    """
    jury = judging.config.scorer.judge
    options = _given(engine_arguments(judging.judge) if jury is None else {"judge": jury})
    if judges and list(judges) != [judging.name_in_scores({})]:
        options, jury = [f"--model={judges[0]}"], None
    options, text = [*options, *_given(columns)], _given({"target_key": columns.get("target_key")})
    answers, commands = file, []
    if judges is None:
        answers = "scored.jsonl"
        commands.append(["score", file, "-o", answers, *options])
    commands.append(["agree", answers, "--labels", labels, *text])
    commands.append(["calibrate", answers, "--labels", labels, "-o", "calibration.json", *text])
    if judges is None or len(judges) < 2:
        commands.append(["score", file, "-o", "calibrated.jsonl", "--calibration", "calibration.json", *options])
        if jury is None and not pictured:
            commands.append(["score", file, "-o", "with_examples.jsonl", "--judge.examples", labels, *options])
    if not pictured:
        commands.append(["distill", labels, "-o", "judge"])
    return [shlex.join(["checklist-rewards", *command]) for command in commands]


def report_command(
    files: Sequence[str],
    labels: str | None,
    column: str | None,
    inputs: Sequence[str] = (),
    target: str | None = None,
) -> str:
    """The command that writes the report of files of the project as a page, to be run in the project folder: with the
    file or the column of labels that it uses, and the columns of prompt and response if they have other names than
    usual."""
    names = [f"./{name}" if name.startswith("-") else name for name in files]
    labelled = [f"--labels={labels}"] if labels is not None else []
    labelled += [f"--label-key={column}"] if column else []
    keys = [f"--input-key={name}" for name in inputs] + ([f"--target-key={target}"] if target else [])
    return shlex.join(["checklist-rewards", "report", *names, "-o", "report.html", *keys, *labelled])


def _scorer(config: PipelineConfig, judge: Engine, store_path: str | None) -> str:
    """The line that makes the scorer."""
    arguments = {**config.scorer.settings(), "store": store_path}
    if "judge" not in arguments:
        arguments = {**engine_arguments(judge), **arguments}
    model = arguments.pop("model", None)
    given = [repr(model)] if model is not None else []
    given += [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    return f"scorer = ChecklistScorer({', '.join(given)})"


def _python(config: PipelineConfig, judge: Engine, sample: Sample, store_path: str | None) -> str:
    lines = ["from checklist_rewards import Checklist, ChecklistScorer"]
    texts = {"target": sample.target, "input": sample.input, "reference": sample.reference, "history": sample.history}
    named = [f"    {name}={value!r}," for name, value in texts.items() if value is not None]
    lines += ["", _scorer(config, judge, store_path)]
    lines += [f"checklist = Checklist.parse({pformat(items_of(sample.checklist), width=_WIDTH, sort_dicts=False)})"]
    lines += ["score = scorer.score(", "    checklist,", *named, ")", "print(score.primary_score)"]
    lines += ["for item in score.items:", "    print(item.answer, item.probabilities, item.question)"]
    return "\n".join(lines) + "\n"


def _command(text: str, judge: Mapping[str, Any], sample: Sample, store_path: str | None) -> str:
    row: dict[str, Any] = {"prompt": sample.input, "target": sample.target, "checklist": items_of(sample.checklist)}
    more = {name: value for name in ("reference", "history") if (value := getattr(sample, name)) is not None}
    options = {**judge, **{f"{name}_key": name for name in more}, "store": store_path}
    score = _score("row.jsonl", "scored.jsonl", text, options)
    return f"cat > row.jsonl <<'END'\n{json.dumps(row | more)}\nEND\n{score}"


def _score(file: str, output: str, text: str, options: Mapping[str, Any]) -> str:
    given = ["score", file, "-o", output, "--config", "judge.yaml", *_given(options)]
    command = shlex.join(["checklist-rewards", *given])
    return f"cat > judge.yaml <<'END'\n{text}END\n{command}\n"


def _python_of_file(config: PipelineConfig, judge: Engine, job: Job, store_path: str | None) -> str:
    columns: dict[str, Any] = {name: value for name, value in job.columns.model_dump().items() if value}
    named = [f"{'inputs' if name == 'input' else name}={value!r}" for name, value in columns.items()]
    if job.checklist is not None:
        named.append(f"shared=read_checklist(Path({job.checklist!r}))")
    imports = ["from pathlib import Path", ""] if job.checklist is not None else []
    imports += ["from checklist_rewards import BatchScore, ChecklistScorer"]
    imports += [f"from checklist_rewards.rows import Columns{', read_checklist' if job.checklist else ''}"]
    imports += ["from checklist_rewards.files.rows import read_rows"]
    lines = [*imports, "", _scorer(config, judge, store_path), f"rows = list(read_rows({job.file!r}))"]
    lines += [f"columns = Columns.of({', '.join(['rows[0]', *named])})"]
    lines += ["checklists = [columns.checklist_of(row.data, row.where) for row in rows]"]
    lines += ["samples = ["]
    lines += ["    columns.sample_of(row.data, row.where, checklist)"]
    lines += ["    for row, checklist in zip(rows, checklists) if checklist is not None", "]"]
    lines += ["answered = iter(scorer.score_batch(samples))"]
    lines += ["scores = [None if checklist is None else next(answered) for checklist in checklists]"]
    lines += ["batch = BatchScore(scores, [row.data for row in rows])", "print(batch.mean)"]
    if job.output.lower().endswith((".jsonl", ".parquet")):
        lines += [f"batch.to_{job.output.rpartition('.')[2].lower()}({job.output!r})"]
    return "\n".join(lines) + "\n"


def is_secret(name: str) -> bool:
    """Whether the value of a setting is a key, by the words of its name: `api_key`, `hf_token` and `headers` are, but
    `tokenizer_mode`, `max_tokens` and `eos_token` are not."""
    words = [word.lower() for word in _WORD.findall(re.sub(r"[_\W]v\d+$", "", name))]
    is_token = words[-1:] == ["token"] and not set(words[-2:-1]) & set(_SPECIAL_TOKENS)
    return is_token or words[-1:] == ["keys"] or any(_SECRETS.fullmatch(word) for word in words)


def _public(value: Any) -> Any:
    """A setting without the keys inside it."""
    if isinstance(value, Mapping):
        return {name: _public(inner) for name, inner in value.items() if not is_secret(str(name))}
    return [_public(inner) for inner in value] if isinstance(value, list) else value


def engine_arguments(engine: Engine, public: bool = True) -> dict[str, Any]:
    """The arguments of an engine without defaults, except for the model; if `public`, only what may be shown."""
    settings = _public(engine.settings) if public else dict(engine.settings)
    given: dict[str, Any] = {"model": engine.model}
    if engine.backend != "auto" and isinstance(engine.backend, str):
        given["backend"] = engine.backend
    if engine.base_url is not None:
        shown = ",".join(map(public_address, engine.base_url.split(",")))
        given["base_url"] = shown if public else engine.base_url
    return given | ({"engine_args": settings} if settings else {})


def public_address(address: str) -> str:
    """An address without its user name, password and query."""
    parts = urlsplit(address)
    if not parts.netloc:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def without_secrets(message: str) -> str:
    """A message without the keys of the environment, which a server may have repeated in its error."""
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= 8:
            message = message.replace(value, "***")
    return without_password(message).replace("***@", "")
