"""The options of commands, made from settings classes.

A command takes groups of options as parameters, next to options that several commands share:

    class StoreOptions(Options):
        heading = OUTPUT
        shown = ("store",)
        store: Path | None = None
        \"\"\"SQLite file that stores every model answer.\"\"\"

    @brief("json")
    def score(files: Files, store_options: StoreOptions, json: Json = None) -> None: ...

Name, type, limits, help and default of an option are those of the field. The sentence "Defaults to ..." at the
end of a docstring becomes the default shown. A group may also have the fields of settings classes ([`Part`]) as
options, such as those of the judge as `--judge.NAME`. Such an option is None unless the user gives it, so that only
given values override a pipeline; the settings class checks the values, as everywhere.

One name means one thing in all commands: `--model`, `--judge.NAME`, `--writer.NAME` and `--policy.NAME` are those of a
model (in `generate`, which has no judge, `--model` is the writer); `--output` (`-o`) is the file that a command makes,
`--json` the figures that it prints, `--summary` the totals of its rows.

`--help` shows the options that most users need ([`brief`]), each with the first sentence of its docstring;
`--help-all` shows all of them in full.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

import typer
import yaml
from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, OptionInfo

from checklist_rewards.backends import Engine
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.cli.help import HelpAll
from checklist_rewards.cli.output import running
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import DEFAULT_RESAMPLES, Bootstrap
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.judges.settings import ENGINE_SETTINGS, JudgeConfig, ScorerConfig
from checklist_rewards.messages import Images
from checklist_rewards.pipelines import PipelineConfig, WriterConfig, load_config
from checklist_rewards.progress import AddBar
from checklist_rewards.rows import read_checklist
from checklist_rewards.writer import Writer as WriterModel

ROWS, JUDGE, SCORE, WRITER = "Rows", "Judge", "Score", "Checklist writer"
POLICY, OUTPUT, PIPELINE, CLUSTER = "Policy", "Output and store", "Pipeline", "Cluster"
OF_JUDGE, OF_WRITER, OF_POLICY = "judge.", "writer.", "policy."
"""What the names of the options of a model begin with."""
SHORT = ("model", "base_url", "backend", "engine_args", "mode", "calibration")
"""Settings that have a short name as well, for the model that a command is about."""
SAMPLING = ("policy.temperature", "policy.max_tokens", "policy.seed")
FROM_STORED = {"metric": "primary_metric"} | {
    name: name for name in ("threshold", "min_answered", "abstention", "no_answer")
}
"""Options that need no judge, with their fields of [`Aggregation`]."""


class Part(NamedTuple):
    """Fields of a settings class that are options of a group."""

    owner: type[BaseModel]
    prefix: str = ""
    heading: str | None = None
    short: bool = False
    """Whether the settings in `SHORT` have their short names as well."""
    only: Sequence[str] = ()
    """The fields; empty for all."""
    apart: Sequence[str] = ()
    """Fields without an option."""
    helps: Mapping[str, str] = {}
    """The help of fields whose own is about another model."""

    def fields(self) -> dict[str, FieldInfo]:
        """The fields by their names on the command line."""
        fields = self.owner.model_fields
        return {self.prefix + name: fields[name] for name in self.only or fields if name not in self.apart}

    def spelled(self, name: str) -> tuple[str, ...]:
        """The names of an option, short ones first."""
        option = name.replace("_", "-")
        field = name.removeprefix(self.prefix)
        if not self.short or field not in SHORT:
            return (f"--{option}",)
        return (f"--{field.replace('_', '-')}", *(["-m"] if field == "model" else []), f"--{option}")


class Options(BaseModel):
    """A group of options: its fields, and those of its parts."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, defer_build=True)

    heading: ClassVar[str | None] = None
    prefix: ClassVar[str] = ""
    shown: ClassVar[Sequence[str] | None] = None
    """The options of the group that most users need; None for all."""
    parts: ClassVar[tuple[Part, ...]] = ()
    other_prefix: ClassVar[str] = ""
    """Prefix of the options of a model other than the judge; see [`Options.other_engine`]."""

    given: dict[str, Any] = {}
    """The values of the parts that the user gave, by name, such as `judge.model`."""

    @classmethod
    def parameters(cls) -> dict[str, inspect.Parameter]:
        """The options by name, as parameters of a command."""
        own = Part(cls, cls.prefix, cls.heading, apart=("given",))
        parts = (*cls.parts, own)
        named = {name.rpartition(".")[2]: part.spelled(name)[0] for part in parts for name in part.fields()}
        return {
            name: _parameter(name, field, part, named, always=part is own)
            for part in parts
            for name, field in part.fields().items()
        }

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The group of these values of parameters, which are taken out of `values`."""
        named = {name: values.pop(_identifier(name)) for name in cls.parameters()}
        own = {field: named.pop(cls.prefix + field) for field in cls.model_fields if field != "given"}
        return cls(**own, given={name: value for name, value in named.items() if value is not None and value != []})

    def settings_of(self, prefix: str) -> dict[str, Any]:
        """The given settings whose names begin with `prefix`, without it; with "", those that have no prefix."""
        names = [name for name in self.given if name.rpartition(".")[0] == prefix.rstrip(".")]
        return {name.removeprefix(prefix): self.given[name] for name in names}

    def engine_of(self, prefix: str, backend: Any = None) -> Engine:
        """The engine of the options that begin with `prefix`; `backend` replaces theirs."""
        given = self.settings_of(prefix)
        option = next(part for part in self.parts if part.prefix == prefix).spelled(f"{prefix}engine_args")[0]
        settings = engine_settings(option, given.get("engine_args"))
        model, base_url = given.get("model", UNNAMED), given.get("base_url")
        return Engine(model, backend or given.get("backend", "auto"), base_url, settings)

    def other_engine(self, judge: JudgeOptions) -> Engine | None:
        """The engine of the options that begin with `other_prefix`. None if they name no model; then the other options
        of this prefix are refused.

        Its backend is the judge's if that can write and neither of the two models is on a server.
        """
        given = self.settings_of(self.other_prefix)
        if "model" not in given:
            why = f"without --{self.other_prefix}model (options of the judge have no prefix)"
            no_effect(why, f"{self.other_prefix}base_url", f"{self.other_prefix}engine_args")
            return None
        own = judge.engine.backend in ("transformers", "vllm") and "base_url" not in given
        return self.engine_of(self.other_prefix, judge.engine.backend if own else "auto")


def _identifier(name: str) -> str:
    """The name of an option as that of a parameter, which has no dots."""
    return name.replace(".", "__")


def _parameter(name: str, field: FieldInfo, part: Part, named: Mapping[str, str], always: bool) -> inspect.Parameter:
    """A field of `part` as a parameter of a command. `named` has the options of fields that its docstring may name.
    The default is that of the field if `always`, else None."""
    kind, at_least, at_most = _kind(field.annotation, field.metadata)
    found = [one for one in field.metadata if isinstance(one, ArgumentInfo | OptionInfo)]
    info = copy.copy(found[0]) if found else typer.Option()
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    named = {field: option for field, option in named.items() if field not in choices}
    documented = " ".join(part.helps.get(name.removeprefix(part.prefix), field.description or "").split())
    text = re.sub(r"\[?`(\w+)`\]?", lambda code: named.get(code[1], f"`{code[1]}`"), documented)
    info.help, _, default = text.partition(" Defaults to ")
    known = field.default is not None and field.default is not False and not field.is_required()
    info.show_default = default.rstrip(".").replace("`", "") or (str(field.default) if known else False)
    info.rich_help_panel = info.rich_help_panel or part.heading
    if isinstance(info, OptionInfo):
        names = info.param_decls or part.spelled(name)
        if kind is bool and not (always and field.default is False):
            positive = f"--{part.prefix}"
            negative = f"{positive}no-{names[-1].removeprefix(positive)}"
            names = (*names[:-1], f"{names[-1]}/{negative}")
        info.param_decls = names
        if always or at_most is None:  # settings classes check their fields with an upper limit
            info.min, info.max = at_least, at_most
    absent = field.default if always else None
    return inspect.Parameter(
        _identifier(name),
        inspect.Parameter.KEYWORD_ONLY,  # typer recognizes arguments by their annotation
        default=inspect.Parameter.empty if field.is_required() else absent,
        annotation=Annotated[kind | None if absent is None and not field.is_required() else kind, info],
    )


def _kind(annotation: Any, metadata: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The type of a field on the command line, and its limits. For a union, the first member that can be written as
    text. A mapping, written as repeated NAME=VALUE, is used only if no other member can."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _kind(inner, [*metadata, *more])
    if origin in (Union, UnionType):
        kinds = [_kind(member, metadata) for member in get_args(annotation) if member is not NoneType]
        known = [found for found in kinds if found[0] is not None]
        return next((found for found in known if found[0] != list[str]), known[0])
    if origin in (Mapping, dict, tuple):
        return list[str], None, None
    if annotation not in (str, bool, int, float, Path) and origin not in (Literal, list):
        return None, None, None
    at_least = next((limit.ge for limit in metadata if isinstance(limit, Ge)), None)
    return annotation, at_least, next((limit.le for limit in metadata if isinstance(limit, Le)), None)


_METAVARS: dict[Any, str] = {str: "TEXT", Path: "PATH", int: "N", float: "N"}


def grouped() -> Callable[[Callable[..., None]], Grouped]:
    """Expand every parameter of a command that is a group of options into the options of the group. `--help` shows all
    options."""
    return lambda command: Grouped(command, None)


def brief(*more: str) -> Callable[[Callable[..., None]], Grouped]:
    """As [`grouped`], for a command whose `--help` shows the options that most users need: those of the groups (see
    [`Options.shown`]) and `more`. `--help-all` shows all others under their headings."""
    return lambda command: Grouped(command, more)


class Grouped:
    """A command with the options of its groups, which are made when typer asks for its signature."""

    def __init__(self, command: Callable[..., None], more: Sequence[str] | None):
        functools.update_wrapper(self, command, ("__module__", "__name__", "__qualname__", "__doc__"))
        del vars(self)["__wrapped__"]
        self._command, self._more = command, more

    @functools.cached_property
    def _kinds(self) -> dict[str, Any]:
        return get_type_hints(self._command, include_extras=True)

    @functools.cached_property
    def _groups(self) -> dict[str, type[Options]]:
        return {
            name: kind for name, kind in self._kinds.items() if isinstance(kind, type) and issubclass(kind, Options)
        }

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.KEYWORD_ONLY
        options: dict[str, inspect.Parameter] = {}
        shown = set(self._more or ())
        for name, parameter in inspect.signature(self._command).parameters.items():
            if name in self._groups:
                own = self._groups[name].parameters()
                options |= own
                shown |= {*own} if (most := self._groups[name].shown) is None else {*most}
            else:
                options[name] = parameter.replace(kind=kind, annotation=self._kinds[name])
        assert shown <= options.keys(), shown - options.keys()
        in_brief = [] if self._more is None else [name for name in options if name in shown]
        written = [_shown(options.pop(name), True) for name in in_brief]
        written += [_shown(parameter, False) for parameter in options.values()]
        if self._more is not None:
            written.append(inspect.Parameter("help_all", kind, default=False, annotation=HelpAll))
        return inspect.Signature([*written, inspect.Parameter("context", kind, annotation=typer.Context)])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: parameter.annotation for name, parameter in self.__signature__.parameters.items()}

    def __call__(self, context: typer.Context, **values: Any) -> None:
        """Call the command with its groups, of the values of the options."""
        values.pop("help_all", None)
        has_checklist = values.get("checklist") is not None
        instances = {name: kind.of(values) for name, kind in self._groups.items()}
        before = running.set(context)
        try:
            if has_checklist:
                no_effect("with --checklist, which is used for every row", "checklist_key")
            self._command(**values, **instances)
        finally:
            running.reset(before)


def _shown(parameter: inspect.Parameter, in_brief: bool) -> inspect.Parameter:
    """The parameter as the help shows it: with the form of its value, which is the choices or the type, and without a
    heading if `--help` shows it."""
    kind, info = get_args(parameter.annotation)
    info = copy.copy(info)
    if in_brief:
        info.rich_help_panel = None
    of_value = [member for member in (get_args(kind) or [kind]) if member is not NoneType][-1]
    of_value = get_args(of_value)[0] if get_origin(of_value) is list else of_value
    if isinstance(info, OptionInfo) and info.metavar is None:
        choices = get_args(of_value) if get_origin(of_value) is Literal else get_args(kind)
        info.metavar = _METAVARS.get(of_value) or "|".join(map(str, choices))
    return parameter.replace(annotation=Annotated[kind, info])


def no_effect(why: str, *options: str | type[Options]) -> None:
    """Refuse options, or groups of them, that the user has written and that have no effect in a combination such as
    "without --policy.model"."""
    context = running.get()
    if context is None:  # the function of a command, called without a command line
        return
    names = {_identifier(name) for one in options for name in ([one] if isinstance(one, str) else one.parameters())}
    for parameter in context.command.params:
        if parameter.name not in names:
            continue
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "COMMANDLINE":
            raise SampleError(f"{parameter.opts[0]} has no effect {why}; omit it.")


def option(panel: str, help: str, default: str | bool = False, **more: Any) -> Any:
    """An option in the help panel `panel`. `default` is the default shown in the help."""
    return typer.Option(rich_help_panel=panel, help=help, show_default=default, **more)


def engine_settings(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Engine settings from the values of `option`: NAME=VALUE pairs, or JSON objects.

    Raises:
        SampleError: For any other text.
    """
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        try:
            parsed = json.loads(text) if text.startswith("{") else {name: yaml.safe_load(value)} if equals else None
        except (ValueError, yaml.YAMLError):
            parsed = None
        if not isinstance(parsed, dict) or not all(isinstance(key, str) and key for key in parsed):
            raise SampleError(
                f"{option} {text!r:.80}: expected NAME=VALUE, such as tensor_parallel_size=2, or a JSON object."
            )
        settings |= parsed
    return settings


InputKey = Annotated[
    list[str] | None,
    option(
        ROWS,
        "Column of the input: text or chat messages. Repeatable; several columns are joined by a blank line.",
        default="prompt, else input",
    ),
]
ChecklistKey = Annotated[
    str | None,
    option(ROWS, "Column of the checklist: a list of questions, or of items with weights.", default="checklist"),
]
TargetKey = Annotated[str | None, option(ROWS, "Column of the text to score.", default="target, else completion")]
ChecklistFile = Annotated[Path | None, option(ROWS, "JSON file with a checklist to use for all rows.")]


def _resamples(value: int) -> int:
    try:
        Bootstrap(value)  # refuses too few before anything is asked
    except SampleError as error:
        raise typer.BadParameter(str(error)) from None
    return value


Json = Annotated[Path | None, option(OUTPUT, "JSON file to write all figures to.")]
Concurrency = Annotated[
    int | None, option(OUTPUT, "Concurrent requests to a server, per address.", min=1, default="the engine's")
]
OUTPUT_FILE = typer.Option("--output", "-o", rich_help_panel=OUTPUT)
"""How a field is the output of a command."""


class Resampling(Options):
    """The confidence intervals of figures."""

    heading = OUTPUT
    shown = ()

    bootstrap: Annotated[int, Ge(0), typer.Option(callback=_resamples)] = DEFAULT_RESAMPLES
    """Bootstrap resamples for the 95 % intervals, at least 20; 0 for no intervals."""
    seed: Annotated[int, Ge(0)] = 0
    """Random seed."""

    def draws(self, bar: AddBar | None = None) -> Bootstrap:
        """The settings of the intervals, with a progress bar."""
        return Bootstrap(self.bootstrap, self.seed, None if bar is None else bar("bootstrap draws", None))


class Files(Options):
    """The input and output files of a command."""

    heading = OUTPUT
    shown = ("output",)

    rows: Annotated[Path, typer.Argument(metavar="ROWS")]
    """Input rows: a .jsonl, .csv or .parquet file."""
    output: Annotated[Path, OUTPUT_FILE]
    """Output file (.jsonl, .csv or .parquet). An existing file is replaced when the new one is complete."""
    summary: Path | None = None
    """Also write the summary to this JSON file."""


class StoreOptions(Options):
    """Where model answers are stored."""

    heading = OUTPUT
    shown = ("store",)

    store: Path | None = None
    """SQLite file that stores every model answer. No question is sent twice. With --ray, a folder with one file per
    shard. Defaults to a file in the user's cache folder."""
    no_store: bool = False
    """Do not store answers."""

    def consistent(self) -> None:
        """Raises [`SampleError`] if both options are set."""
        if self.store is not None and self.no_store:
            raise SampleError(f"--store {self.store} and --no-store contradict each other; set only one of them.")

    def open(self, *, writes: bool = True) -> Store | None:
        """Open the store, only to read unless the command `writes`. Raises [`SampleError`] if both options are set."""
        self.consistent()
        return open_store(self.store or not self.no_store, writes=writes)


class Spending(Options):
    """Prices and budgets."""

    heading = OUTPUT
    shown: ClassVar[Sequence[str] | None] = ()

    price: list[str] | None = None
    """US dollars per million prompt and reply tokens, as MODEL=IN,OUT. Repeatable."""
    budget: Annotated[float, Ge(0)] | None = None
    """Stop before more than this many US dollars are spent. Unanswered items are listed; rerun with a larger budget to
    continue."""


class Dry(Spending):
    """Dry runs, prices and budgets."""

    shown = ("dry_run",)

    dry_run: bool = False
    """Print the expected calls, tokens and price. Loads no model and writes nothing."""


class Preset(Options):
    """The pipeline. Other options override its settings."""

    heading = PIPELINE
    shown = ()

    pipeline: str | None = None
    """Name of a pipeline; see `checklist-rewards list pipelines`."""
    config: Path | None = None
    """JSON or YAML file of a pipeline; check it with `checklist-rewards lint`."""

    def load(self) -> PipelineConfig:
        """The config. Raises [`ConfigError`]."""
        if self.pipeline is not None and self.config is not None:
            raise SampleError(f"--pipeline {self.pipeline} and --config {self.config}: set only one of them.")
        if self.pipeline is None and self.config is None:
            return PipelineConfig()
        return load_config(self.config if self.config is not None else str(self.pipeline))


class Keys(Options):
    """Columns of the input, the reference answer and the conversation history."""

    heading = ROWS
    shown = ()

    input_key: list[str] | None = None
    """Column of the input: text or chat messages. Repeatable; several columns are joined by a blank line. Defaults to
    prompt, else input."""
    reference_key: str | None = None
    """Column of a reference answer. Defaults to reference for the writer, else none."""
    history_key: str | None = None
    """Column of the conversation before the input, as text. Defaults to history."""
    images: Images = "show"
    """Show the images of messages and of the columns image and images to the model, or ignore them."""

    def columns(self, file: Path | None = None, /, **named: Any) -> dict[str, Any]:
        """Arguments of [`Columns.of`]: these columns, the checklist in `file`, and `named` ones."""
        shared = None if file is None else read_checklist(file)
        keys: dict[str, Any] = {"inputs": self.input_key, "reference": self.reference_key, "history": self.history_key}
        keys["images"] = self.images
        return {**keys, "shared": shared, **named}


class JudgeModel(Options):
    """The judge's engine, prompt and mass floor."""

    shown = ("judge.model", "judge.base_url", "judge.backend")
    parts: ClassVar[tuple[Part, ...]] = (
        Part(JudgeConfig, OF_JUDGE, JUDGE, short=True, only=(*ENGINE_SETTINGS, "prompt", "mass_floor")),
    )

    @property
    def engine(self) -> Engine:
        """The judge's engine."""
        return self.engine_of(OF_JUDGE)


class JudgeOptions(JudgeModel):
    """Options of the judge, and of the score of its answers."""

    heading = SCORE
    parts: ClassVar[tuple[Part, ...]] = (
        Part(JudgeConfig, OF_JUDGE, JUDGE, short=True),
        Part(ScorerConfig, "", JUDGE, only=("judge",)),
        Part(ScorerConfig, "", SCORE, only=(*FROM_STORED, "scale", "weights", "checks")),
    )

    allow_code: bool = False
    """Let checks run code, which a model may have written, in an isolated interpreter (pip install
    'checklist-rewards[code]')."""
    allow_unsafe_code: bool = False
    """Let checks run code in an ordinary process with access to your files and the network."""

    @property
    def judge(self) -> str | None:
        """The file of judges."""
        return self.given.get("judge")

    @property
    def weights(self) -> str | None:
        """The file of weights."""
        return self.given.get("weights")

    @property
    def names_no_model(self) -> bool:
        """Whether the judge is the pipeline's: the user named neither a model nor a server."""
        given = self.settings_of(OF_JUDGE)
        return "model" not in given and "base_url" not in given and given.get("backend") != REMOTE

    @property
    def asks(self) -> bool:
        """Whether the user named a judge."""
        given = self.settings_of(OF_JUDGE)
        return (
            self.judge is not None
            or bool(given.keys() & {"model", "base_url"})
            or given.get("backend", "auto") != "auto"
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the scorer."""
        given = self.settings_of(OF_JUDGE) | self.settings_of("")
        code = {"allow_code": "unsafe"} if self.allow_unsafe_code else {"allow_code": True} if self.allow_code else {}
        return {name: value for name, value in given.items() if name not in ENGINE_SETTINGS} | code

    @property
    def aggregation(self) -> dict[str, Any]:
        """The given settings that apply to stored answers too, as fields of [`Aggregation`]."""
        return {field: self.settings[name] for name, field in FROM_STORED.items() if name in self.settings}

    @classmethod
    def option(cls, setting: str) -> str:
        """The name of the option of a setting of the scorer."""
        parts = ((part, f"{part.prefix}{setting}") for part in cls.parts)
        return next((part.spelled(name)[0] for part, name in parts if name in part.fields()), f"--{setting}")

    def named(self, model: str) -> Self:
        """The same options with this model."""
        return self.model_copy(update={"given": {**self.given, f"{OF_JUDGE}model": model}})


class Writing(Options):
    """Options of a checklist generator."""

    heading = WRITER
    parts: ClassVar[tuple[Part, ...]] = (
        Part(WriterConfig, OF_WRITER, WRITER, apart=("kind", "options", "model", "prompts")),
    )

    refiner: list[str] | None = None
    """Refiner to apply to the checklists. Repeatable, applied in order. Defaults to those of the pipeline."""

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the generator."""
        given = self.settings_of(OF_WRITER)
        return {name: value for name, value in given.items() if name not in ENGINE_SETTINGS}


class Writer(Writing):
    """Writer options for commands that need no judge."""

    shown = (
        *("writer.model", "writer.base_url", "writer.backend", "writer.prompt", "writer.max_items"),
        *("writer.constraints", "writer.temperature", "writer.max_tokens"),
    )
    parts: ClassVar[tuple[Part, ...]] = (
        Part(WriterConfig, OF_WRITER, WRITER, short=True, only=("model",)),
        Part(WriterModel, OF_WRITER, WRITER, short=True, only=("base_url", "backend")),
        Part(JudgeConfig, OF_WRITER, WRITER, short=True, only=("engine_args",)),
        *Writing.parts,
    )

    @property
    def engine(self) -> Engine:
        """The writer's engine."""
        return self.engine_of(OF_WRITER)

    @property
    def names_no_model(self) -> bool:
        """Whether the writer is the pipeline's: the user named neither a model nor a server."""
        return not self.settings_of(OF_WRITER).keys() & {"model", "base_url"}


class OwnWriter(Writing):
    """Writer options for commands that also have a judge, which writes unless another model is named."""

    other_prefix = OF_WRITER
    shown = ("writer.model", "writer.base_url")
    parts: ClassVar[tuple[Part, ...]] = (
        Part(WriterConfig, OF_WRITER, WRITER, only=("model",)),
        Part(WriterModel, OF_WRITER, WRITER, only=("base_url",)),
        Part(JudgeConfig, OF_WRITER, WRITER, only=("engine_args",)),
        *Writing.parts,
    )

    @property
    def names_no_model(self) -> bool:
        """Whether the user named no writer."""
        return f"{OF_WRITER}model" not in self.given


_TEXTS = """Model that writes the texts: "pocket", a local folder, a Hub id, or with `base_url` the name of the model
on the server."""


class Policy(Options):
    """The model that writes candidates or answers."""

    heading = POLICY
    prefix = other_prefix = OF_POLICY
    shown = ("policy.model", "policy.base_url")
    parts: ClassVar[tuple[Part, ...]] = (
        Part(WriterModel, OF_POLICY, POLICY, only=("model", "base_url"), helps={"model": _TEXTS}),
        Part(JudgeConfig, OF_POLICY, POLICY, only=("engine_args",)),
    )

    temperature: Annotated[float, Ge(0)] = 1.0
    """Sampling temperature; 0 is greedy."""
    max_tokens: Annotated[int, Ge(1)] = 512
    """Most tokens per text."""
    seed: int = 0
    """Random seed of the sampling."""

    @property
    def model(self) -> str | None:
        """Its name, or None."""
        return self.given.get("policy.model")


class Cluster(Options):
    """Where and how a dataset of shards is processed."""

    heading = CLUSTER
    shown = ()

    ray: bool = False
    """Process shards on a Ray cluster (pip install 'checklist-rewards[ray]'). ROWS is a folder or a quoted pattern of
    files, or one .jsonl file, which is cut; --output is a folder. Rerun to resume."""
    actors: Annotated[int, Ge(1)] | None = None
    """Actors, each with an engine of its own. Defaults to 1."""
    num_gpus: Annotated[float, Ge(0)] | None = None
    """GPUs per actor. Defaults to the judge's tensor_parallel_size, else 0."""
    shard_rows: Annotated[int, Ge(1)] | None = None
    """Rows per shard when one .jsonl file is cut. Defaults to 16384."""
