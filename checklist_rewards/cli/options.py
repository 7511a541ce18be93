"""The options of all commands, each written once.

A command takes a dataclass of options as one parameter:

    @dataclass(frozen=True)
    class StoreOptions:
        store: StorePath = None
        no_store: NoStore = False

    @grouped("output", "store")
    def score(files: Files, store_options: StoreOptions) -> None: ...

The command line has the options of all groups in order. The command is called with an instance of each group.

Options of a settings class are generated: type, limits, help and default of an option follow from the field. Stated
here is only how an option is spelled where that differs from the field. Options that a pipeline also sets default to
None, so that only values given by the user override the pipeline.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer
import yaml

from checklist_rewards.backends import SERVED, Engine
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.cli.output import running
from checklist_rewards.errors import SampleError
from checklist_rewards.fields import field_docs, settings_of
from checklist_rewards.files.store import Store, default_store_path, open_store
from checklist_rewards.judges.checked import CheckSettings
from checklist_rewards.judges.remote import REMOTE, JudgeBackend
from checklist_rewards.judges.settings import ENGINE_SETTINGS, JudgeSettings
from checklist_rewards.pipelines import GeneratorConfig, PipelineConfig, ScorerConfig, load_config
from checklist_rewards.scores import Aggregation


def grouped(*shown: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Expand every parameter of a command whose type is a dataclass into the fields of that dataclass.

    Args:
        *shown (`str`):
            Parameters that the help shows first, in this order and without a heading: the options that most users
            need. All others follow under their headings.
    """

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        hints.pop("return", None)
        groups: dict[str, type] = {}
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            kind = hints[name]
            if isinstance(kind, type) and is_dataclass(kind):
                groups[name] = kind
                types = get_type_hints(kind, include_extras=True)
                parameters += [_parameter(f.name, types[f.name], f.default) for f in fields(kind)]
            else:
                parameters.append(_parameter(name, kind, parameter.default))
        by_name = {parameter.name: parameter for parameter in parameters}
        first = [_without_heading(by_name.pop(name)) for name in shown]
        parameters = [*first, *by_name.values()]

        @functools.wraps(command)
        def call(context: typer.Context, **values: Any) -> None:
            instances, has_checklist = {}, values.get("checklist") is not None
            for name, kind in groups.items():
                instances[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            before = running.set(context)
            try:
                if has_checklist:
                    no_effect("with --checklist, which is used for every row", "checklist_key")
                command(**values, **instances)
            finally:
                running.reset(before)

        of_typer = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters.append(of_typer)
        vars(call)["__signature__"] = inspect.Signature(parameters)
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del vars(call)["__wrapped__"]
        return call

    return expand


def no_effect(why: str, *options: str | type) -> None:
    """Refuse options that the user set and that have no effect in this combination.

    Args:
        why (`str`): The combination, such as "without --policy".
        *options (`str` or dataclass): Names of parameters of the command, or a group of options.

    Raises:
        SampleError: Names the first such option. Options that have their default are not refused, unless the user
            has written them.
    """
    context = running.get()
    if context is None:  # the function of a command, called without a command line
        return
    names = [name for one in options for name in ([one] if isinstance(one, str) else [f.name for f in fields(one)])]
    for parameter in context.command.params:
        if parameter.name not in names:
            continue
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "COMMANDLINE":
            raise SampleError(f"{parameter.opts[0]} has no effect {why}; omit it.")


def _without_heading(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, *notes = get_args(parameter.annotation)
    notes = [copy.copy(note) for note in notes]
    for note in notes:
        note.rich_help_panel = None
    return parameter.replace(annotation=Annotated[(kind, *notes)])


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    absent = default is MISSING or default is inspect.Parameter.empty
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,  # typer recognizes arguments by their annotation
        default=inspect.Parameter.empty if absent else default,
        annotation=annotation,
    )


ROWS, JUDGE, WRITER, OUTPUT = "Rows", "Judge", "Checklist writer", "Output and store"
PIPELINE = "Pipeline"


def option(panel: str | None, help: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    """An option in the help panel `panel`. `default` is the default shown in the help."""
    return typer.Option(*names, rich_help_panel=panel, help=help, show_default=default, **more)


_NO_SETTINGS = (
    *("model", "backend", "base_url", "engine_options"),
    *("generator_model", "generator_base_url", "generator_engine_options", "refiner"),
)


def engine_settings(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Engine settings from the values of `option`: NAME=VALUE pairs, or JSON objects.

    Raises:
        SampleError: For any other text.
    """
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        try:
            parsed = _object(text) if text.startswith("{") else {name: yaml.safe_load(value)} if equals else None
        except yaml.YAMLError:
            parsed = None
        if not isinstance(parsed, dict) or not all(isinstance(key, str) and key for key in parsed):
            raise SampleError(
                f"{option} {text!r:.80}: expected NAME=VALUE, such as tensor_parallel_size=2, or a JSON object."
            )
        settings |= parsed
    return settings


def _object(text: str) -> Any:
    """A JSON object, or one in YAML, which reads 1e-05 as a text."""
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def given(group: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    """The settings given by the user, under the argument names of generators and scorers."""
    values = {field.name: getattr(group, field.name) for field in fields(group) if field.name not in _NO_SETTINGS}
    return {renamed.get(name, name): value for name, value in values.items() if value is not None and value != []}


SPELLED: dict[str, tuple[str, ...]] = {
    "model": ("--model", "-m", "--scorer-model"),
    "engine": ("--engine",),
    "primary_metric": ("--metric",),
    "prompt": ("--prompt", "--scorer-prompt"),
    "use_logprobs": ("--use-logprobs/--no-use-logprobs", "--logprobs/--no-logprobs"),
    "capture_reasoning": ("--capture-reasoning/--no-capture-reasoning", "--reasoning/--no-reasoning"),
    "temperature": ("--scorer-temperature",),
    "example_reasons": ("--example-reasons",),
}
"""Names of the options of judge settings: the name of the field first, unless a command has a writer with a setting of
that name, then shorter ones. All others are called as the field."""

NOT_AN_OPTION = ("max_tokens",)
"""Settings without an option in commands with a writer, which has an option of that name."""

OptionField = tuple[str, Any, Any]
"""Name, annotation and default of a field of an option group."""


def group_of(*options: OptionField) -> Any:
    """A dataclass with these fields, as the base of an option group."""
    return make_dataclass("Options", options, frozen=True)


def setting(
    owner: type,
    name: str,
    *,
    attribute: str | None = None,
    default: str = "{}",
    always: bool = False,
    **more: Any,
) -> OptionField:
    """A field of an option group for a judge setting, None unless the user gives the option.

    Args:
        owner (`type`):
            The dataclass of the setting.
        name (`str`):
            Its field.
        attribute (`str`, *optional*):
            Name of the field in the group. Defaults to `name`.
        default (`str`, *optional*, defaults to `"{}"`):
            The default shown, with `{}` for that of the field.
        always (`bool`, *optional*, defaults to `False`):
            Whether the default of the field is used if the option is not given, instead of None.
        **more:
            Arguments of [`option_of`].
    """
    field = settings_of(owner)[name]
    kind: Any = field.kind
    if field.kind is str and field.choices:
        kind = Literal.__getitem__(field.choices)
    if field.at_most is None:  # a value outside of two limits is refused by the class, as everywhere
        more["min"] = field.at_least
    if always:
        info = option_of(owner, name, *SPELLED.get(name, ()), default=True, **more)
        return attribute or name, Annotated[kind, info], field.default
    if field.default not in (None, False) or default != "{}":
        more["default"] = default.format(field.default)
    return attribute or name, Annotated[kind | None, option_of(owner, name, *SPELLED.get(name, ()), **more)], None


def option_of(
    owner: type,
    name: str,
    *names: str,
    panel: str | None = JUDGE,
    default: str | bool = False,
    form: str = "",
    **more: Any,
) -> Any:
    """An option whose help is the docstring under a field.

    Args:
        owner (`type`):
            The class of the setting.
        name (`str`):
            Its field. Settings in its docstring are replaced by their options, and the sentence "Defaults to ..." at
            its end becomes the default shown.
        *names (`str`):
            Names of the option. Defaults to that of the parameter.
        panel (`str`, *optional*, defaults to `JUDGE`):
            Panel of the help; None for the first one.
        default (`str` or `bool`, *optional*, defaults to `False`):
            The default shown if the docstring states none.
        form (`str`, *optional*):
            How the value is given on the command line; the help begins with it.
        **more:
            Arguments of `typer.Option`.
    """
    own = settings_of(owner) if is_dataclass(owner) else {}
    optional = {*settings_of(JudgeSettings), *settings_of(Aggregation), *own}

    def as_option(named: re.Match[str]) -> str:
        """The option of a setting that a docstring names; other names stay code."""
        field = named[1]
        if field in NOT_AN_OPTION or field not in optional:
            return f"`{field}`"
        return SPELLED.get(field, (f"--{field.replace('_', '-')}",))[0].partition("/")[0]

    doc = re.sub(r"\[?`(\w+)`\]?", as_option, " ".join(field_docs(owner).get(name, "").split()))
    text, _, documented = doc.partition(" Defaults to ")
    shown = documented.rstrip(".").replace("`", "")
    return option(panel, f"{form} {text}".strip(), *names, default=default or shown or False, **more)


InputKey = Annotated[
    list[str] | None,
    option(
        ROWS,
        "Column of the input: text or chat messages. Repeatable; several columns are joined by a blank line.",
        "--input-key",
        default="prompt, else input",
    ),
]
TargetKey = Annotated[
    str | None, option(ROWS, "Column of the text to score.", "--target-key", default="target, else completion")
]
ChecklistKey = Annotated[
    str | None,
    option(
        ROWS,
        "Column of the checklist: a list of questions, or of items with weights.",
        "--checklist-key",
        default="checklist",
    ),
]
ChecklistFile = Annotated[Path | None, option(ROWS, "JSON file with a checklist to use for all rows.", "--checklist")]
Summary = Annotated[Path | None, option(OUTPUT, "Also write the summary to this JSON file.")]


@dataclass(frozen=True)
class Files:
    """The input and output files of a command."""

    rows: Annotated[
        Path,
        typer.Argument(metavar="ROWS", show_default=False, help="Input rows: a .jsonl, .csv or .parquet file."),
    ]
    output: Annotated[
        Path,
        option(
            OUTPUT,
            "Output file (.jsonl, .csv or .parquet). An existing file is replaced when the new one is complete.",
            "--output",
            "-o",
        ),
    ]
    summary: Summary = None


@dataclass(frozen=True)
class StoreOptions:
    """Where model answers are stored."""

    store: Annotated[
        Path | None,
        option(
            OUTPUT,
            "SQLite file that stores every model answer, so that no question is sent twice; with --ray a folder, "
            "with one file per shard.",
            "--store",
            default="in the user's cache folder",
        ),
    ] = None
    no_store: Annotated[bool, option(OUTPUT, "Do not store answers.", "--no-store")] = False

    def check(self) -> None:
        """Raises [`SampleError`] if both options are set."""
        if self.store is not None and self.no_store:
            raise SampleError(f"--store {self.store} and --no-store contradict each other; set only one of them.")

    def open(self, *, create: bool = True) -> Store | None:
        """Open the store; without `create`, None if it does not exist. Raises [`SampleError`] if both options are
        set."""
        self.check()
        if not create and not (self.store or default_store_path()).exists():
            return None
        return open_store(self.store or not self.no_store)


@dataclass(frozen=True)
class Dry:
    """Dry runs, prices and budgets."""

    dry_run: Annotated[
        bool,
        option(OUTPUT, "Print the expected calls, tokens and price. Loads no model and writes nothing.", "--dry-run"),
    ] = False
    price: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "US dollars per million prompt and reply tokens, as MODEL=IN,OUT, or a JSON or YAML file that maps models "
            "to such pairs. Repeatable.",
            "--price",
        ),
    ] = None
    budget: Annotated[
        float | None,
        option(
            OUTPUT,
            "Stop before more than this many US dollars are spent. Unanswered items are listed; rerun with a larger "
            "budget to continue.",
            "--budget",
            min=0,
        ),
    ] = None


@dataclass(frozen=True)
class Preset:
    """The pipeline. Other options override its settings."""

    pipeline: Annotated[
        str | None, option(PIPELINE, "Name of a pipeline; see `checklist-rewards list pipelines`.", "--pipeline")
    ] = None
    config: Annotated[
        Path | None, option(PIPELINE, "JSON or YAML file of a pipeline; check it with `checklist-rewards lint`.")
    ] = None

    def load(self) -> PipelineConfig:
        """The config. Raises [`ConfigError`]."""
        if self.pipeline is not None and self.config is not None:
            raise SampleError(f"--pipeline {self.pipeline} and --config {self.config}: set only one of them.")
        if self.pipeline is None and self.config is None:
            return PipelineConfig()
        return load_config(self.config if self.config is not None else str(self.pipeline))


@dataclass(frozen=True)
class Keys:
    """Columns of the input, the reference answer and the conversation history."""

    input_key: InputKey = None
    reference_key: Annotated[
        str | None, option(ROWS, "Column of a reference answer.", default="reference for the writer, else none")
    ] = None
    history_key: Annotated[
        str | None, option(ROWS, "Column of the conversation before the input, as text.", default="history")
    ] = None


@dataclass(frozen=True)
class WriterKeys(Keys):
    """Columns that some writer prompts use in addition."""

    context_key: Annotated[
        str | None, option(ROWS, "Column of a document the input refers to.", default="context")
    ] = None
    candidates_key: Annotated[
        str | None, option(ROWS, "Column of responses to compare: a list, best first.", default="candidates")
    ] = None
    chosen_key: Annotated[str | None, option(ROWS, "Column of the better of two responses.", default="chosen")] = None
    rejected_key: Annotated[str | None, option(ROWS, "Column of the worse one.", default="rejected")] = None


Resamples = Annotated[
    int,
    typer.Option(
        "--bootstrap",
        min=0,
        rich_help_panel=OUTPUT,
        help="Bootstrap resamples for the 95 % intervals; 0 for no intervals.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, rich_help_panel=OUTPUT, help="Random seed.")]
Json = Annotated[
    Path | None,
    typer.Option("--json", show_default=False, rich_help_panel=OUTPUT, help="JSON file to write all figures to."),
]
JsonOutput = Annotated[
    Path | None,
    typer.Option(
        "--json",
        "-o",
        "--output",
        show_default=False,
        rich_help_panel=OUTPUT,
        help="JSON file to write all figures to.",
    ),
]
"""[`Json`] of a command that writes nothing else."""
Plots = Annotated[
    Path | None,
    typer.Option("--plots", show_default=False, rich_help_panel=OUTPUT, help="Folder to write plots to."),
]


Concurrency = Annotated[
    int | None, option(OUTPUT, "Concurrent requests to a server, per address.", min=1, default="the engine's")
]

ENGINE = (
    setting(JudgeSettings, "backend", always=True),
    setting(JudgeSettings, "base_url"),
    (
        "engine_options",
        Annotated[
            list[str] | None,
            option_of(JudgeSettings, "engine", "--engine", form="NAME=VALUE or a JSON object, repeatable."),
        ],
        None,
    ),
)
_MODEL: Any = group_of(setting(JudgeSettings, "model", always=True), *ENGINE, setting(JudgeSettings, "prompt"))
_PROBED: Any = group_of(setting(Aggregation, "threshold"), setting(JudgeSettings, "mass_floor"))
_APART: dict[str, dict[str, Any]] = {
    "mode": {"default": "the pipeline's, else {}"},
    "primary_metric": {"attribute": "metric", "default": "the pipeline's, else {}"},
    "temperature": {"attribute": "scorer_temperature"},
}
_JUDGE: Any = group_of(
    *(
        setting(owner, name, **_APART.get(name, {}))
        for owner in (JudgeSettings, Aggregation)
        for name in settings_of(owner)
        if name not in (*ENGINE_SETTINGS, "prompt", *NOT_AN_OPTION)
    ),
    ("judge", Annotated[str | None, option_of(ScorerConfig, "judge")], None),
    ("scale", Annotated[int | None, option_of(ScorerConfig, "scale", min=2, default="the pipeline's")], None),
    ("weights", Annotated[str | None, option_of(ScorerConfig, "weights")], None),
    setting(CheckSettings, "checks"),
)


@dataclass(frozen=True)
class JudgeModel(_MODEL):
    """The judge's engine and prompt."""

    @property
    def engine(self) -> Engine:
        """The judge's engine."""
        name = settings_of(JudgeSettings)["model"].default if self.model is None else self.model
        return Engine(name, self.backend, self.base_url, engine_settings("--engine", self.engine_options))


@dataclass(frozen=True)
class ProbeOptions(_PROBED, JudgeModel):
    """Options of a judge to test."""

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of `probe`."""
        return given(self, {})


@dataclass(frozen=True)
class JudgeOptions(_JUDGE, JudgeModel):
    """Options of the judge and of the aggregation of its answers."""

    model: Annotated[str | None, option_of(JudgeSettings, "model", *SPELLED["model"], default="the pipeline's")] = None
    allow_code: Annotated[
        bool | None,
        option(
            JUDGE,
            "Let checks run code, which a model may have written, in an isolated interpreter "
            "(pip install 'checklist-rewards[code]').",
            "--allow-code",
        ),
    ] = None
    allow_unsafe_code: Annotated[
        bool | None,
        option(
            JUDGE,
            "Let checks run code in an ordinary process with access to your files and the network.",
            "--allow-unsafe-code",
        ),
    ] = None

    @property
    def shown(self) -> str:
        """The judge's name for messages: its model, the file of judges, or the URL of the reward server."""
        return self.judge or (str(self.base_url) if self.backend == REMOTE else self.engine.model)

    @property
    def names_no_model(self) -> bool:
        """Whether the judge is the pipeline's: the user named neither a model nor a server."""
        return self.model is None and self.base_url is None and self.backend != REMOTE

    @property
    def asks(self) -> bool:
        """Whether the user named a judge."""
        named = self.model is not None or self.judge is not None or self.base_url is not None
        return named or self.backend != settings_of(JudgeSettings)["backend"].default

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the scorer."""
        settings = given(self, {"scorer_temperature": "temperature"})
        if settings.pop("allow_unsafe_code", False):
            settings["allow_code"] = "unsafe"
        return settings


@dataclass(frozen=True)
class OnlyJudge(JudgeOptions):
    """Judge options for commands that need no writer model."""

    scorer_temperature: Annotated[
        float | None, option_of(JudgeSettings, "temperature", "--temperature", "--scorer-temperature", min=0)
    ] = None
    max_tokens: Annotated[int | None, option_of(JudgeSettings, "max_tokens", min=1)] = None


FROM_STORED = {"metric": "primary_metric"} | {
    field.name: field.name for field in fields(Aggregation) if field.name != "primary_metric"
}
"""Options that need no judge, with their fields of [`Aggregation`]."""


@dataclass(frozen=True)
class OtherJudge(OnlyJudge):
    """Judge options for a command that can also use stored answers."""

    model: Annotated[
        str | None, option_of(JudgeSettings, "model", *SPELLED["model"], default="the stored answers")
    ] = None


_PIPELINE = "the pipeline's"


def _field(name: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    return option_of(GeneratorConfig, name, *names, panel=WRITER, default=default, **more)


@dataclass(frozen=True)
class Writing:
    """Options of a checklist generator."""

    refiner: Annotated[
        list[str] | None,
        option(WRITER, "Refiner to apply to the checklists. Repeatable, applied in order.", default=_PIPELINE),
    ] = None
    min_items: Annotated[int | None, _field("min_items", min=1, default=_PIPELINE)] = None
    max_items: Annotated[int | None, _field("max_items", min=1, default=_PIPELINE)] = None
    temperature: Annotated[float | None, _field("temperature", min=0, default="the pipeline's, else 0.7")] = None
    max_tokens: Annotated[int | None, _field("max_tokens", min=1, default="the generator's")] = None
    seed: Annotated[int | None, _field("seed", default="0")] = None
    shape: Annotated[str | None, _field("shape", default=_PIPELINE)] = None
    constraints: Annotated[bool | None, _field("constraints", default=_PIPELINE)] = None
    candidate_model: Annotated[list[str] | None, _field("candidate_models", form="Repeatable.")] = None
    num_candidates: Annotated[int | None, _field("num_candidates", min=1)] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the generator."""
        return given(self, {"generator_prompt": "prompt", "candidate_model": "candidate_models"})


_WRITER: Any = group_of(
    (
        "model",
        Annotated[
            str | None,
            option(
                WRITER,
                "Writer model: english-writer, a local folder, a Hub id, a model on a server; pocket for demos.",
                "--model",
                "-m",
                "--generator-model",
                default="the pipeline's",
            ),
        ],
        None,
    ),
    *ENGINE,
)


@dataclass(frozen=True)
class Writer(_WRITER, Writing):
    """Writer options for commands that need no judge."""

    generator_prompt: Annotated[str | None, _field("prompt", "--prompt", "--generator-prompt", default=_PIPELINE)] = (
        None
    )

    @property
    def engine(self) -> Engine:
        """The writer's engine."""
        model = self.model or UNNAMED
        return Engine(model, self.backend, self.base_url, engine_settings("--engine", self.engine_options))

    @property
    def names_no_model(self) -> bool:
        """Whether the writer is the pipeline's: the user named neither a model nor a server."""
        return self.model is None and self.base_url is None


@dataclass(frozen=True)
class OwnWriter(Writing):
    """Writer options for commands that also have a judge."""

    generator_model: Annotated[
        str | None, option(WRITER, "Model that writes the checklists.", default="the judge, or the pipeline's")
    ] = None
    generator_base_url: Annotated[str | None, option(WRITER, "URL of the server of --generator-model.")] = None
    generator_engine_options: Annotated[
        list[str] | None,
        option(WRITER, "Engine argument of --generator-model, as in --engine. Repeatable.", "--generator-engine"),
    ] = None
    generator_prompt: Annotated[str | None, _field("prompt", default=_PIPELINE)] = None

    @property
    def names_no_model(self) -> bool:
        """Whether the user named no writer."""
        return self.generator_model is None

    def engine_beside(self, judge: JudgeOptions) -> Engine:
        """The writer's engine: the judge's engine unless --generator-model is set."""
        settings = engine_settings("--generator-engine", self.generator_engine_options)
        if self.generator_model is None:
            no_effect("without --generator-model", "generator_base_url")
            if settings:
                raise SampleError("--generator-engine requires --generator-model; use --engine for the judge.")
            return judge.engine
        url = self.generator_base_url
        return Engine(self.generator_model, _backend_beside(judge.backend, url), url, settings)


def policy(
    judge: JudgeOptions, model: str | None, base_url: str | None, settings: Sequence[str] | None
) -> Engine | None:
    """The engine of --policy, or None without --policy. Raises [`SampleError`] for policy options without --policy."""
    if model is not None:
        found = engine_settings("--policy-engine", settings)
        return Engine(model, _backend_beside(judge.backend, base_url), base_url, found)
    if base_url is not None:
        raise SampleError(f"--policy-base-url {base_url} requires --policy, the model name on that server.")
    if settings:
        raise SampleError(f"--policy-engine {settings[0]} requires --policy; use --engine for the judge.")
    return None


def _backend_beside(judge: JudgeBackend, base_url: str | None) -> JudgeBackend:
    """The backend of a second model: the judge's backend unless one of the two models is on a server."""
    return "auto" if judge in (*SERVED, REMOTE) or base_url is not None else judge


CLUSTER = "Cluster"


@dataclass(frozen=True)
class Cluster:
    """Where and how a dataset of shards is processed."""

    ray: Annotated[
        bool,
        option(
            CLUSTER,
            "Process shards on a Ray cluster (pip install 'checklist-rewards[ray]'). ROWS is a folder or a quoted "
            "pattern of files, or one .jsonl file, which is cut; --output is a folder. Rerun to resume.",
            "--ray",
        ),
    ] = False
    actors: Annotated[int | None, option(CLUSTER, "Actors, each with an engine of its own.", min=1, default="1")] = (
        None
    )
    num_gpus: Annotated[
        float | None,
        option(CLUSTER, "GPUs per actor.", min=0, default="the judge's tensor_parallel_size, else 0"),
    ] = None
    shard_rows: Annotated[
        int | None, option(CLUSTER, "Rows per shard when one .jsonl file is cut.", min=1, default="16384")
    ] = None
