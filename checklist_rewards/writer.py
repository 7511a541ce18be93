"""The writer: the model that writes the questions of generators and the replies of refiners, and how it is sampled.

[`Writer`] is the only place where these settings are documented and checked. A generator or refiner is called with a
`Writer`, or with the keyword arguments of one:

    >>> generator = DirectGenerator("org/model", temperature=0.3)
    >>> generator = DirectGenerator(Writer(model="org/model", temperature=0.3))

Settings that are not given are those of the part ([`WritingPart.writing`]), so one `Writer` can be shared by several
parts. [`writer_of`] combines the two. Replies are stored, and a rerun asks only for what is missing
(`backends/replies.py`). A value that is not allowed, or an unknown argument, is one sentence, before anything is
sampled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge
from pydantic import BaseModel, field_validator

from checklist_rewards.backends import ANSWERING, Backend, Engine, Messages, Progress, Sampling, WritingBackend
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.replies import ask
from checklist_rewards.config import Config, Unchecked, refuse_any
from checklist_rewards.errors import GenerationError, ModelError, PromptError, SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.validation import unknown

Value = TypeVar("Value", bound=BaseModel)


class WriterSampling(Config):
    """How the replies of a writer are sampled. None stands for the default of the generator or refiner."""

    temperature: Annotated[float, Ge(0)] | None = None
    """Sampling temperature of the replies. With 0, a rejected reply is written again only if its shape is declared."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """Maximum tokens per reply. Thinking models need more."""
    max_attempts: Annotated[int, Ge(1)] | None = None
    """Replies per request, if the first ones cannot be used."""
    seed: int | None = None
    """Seed of the first attempt. Defaults to 0."""


class Writer(WriterSampling):
    """A model that writes, and how it is sampled.

    Raises:
        ChecklistRewardsError: One sentence, for a value that is not allowed.
    """

    model: Unchecked[str | Engine] = UNNAMED
    """The model that writes: "pocket", a folder, a Hub id, or, with `base_url`, the name of a served model."""
    backend: Unchecked[WritingBackend | Backend] = "auto"
    """Inference engine, or in Python a [`Backend`] object. `auto`: the server at `base_url` if given, else vLLM if
    installed (except for the pocket model), else transformers."""
    base_url: Unchecked[str | Sequence[str] | None] = None
    """URL of an OpenAI-compatible server, such as http://localhost:8000/v1; or the name `openai` or `openrouter`.
    Replicas of a server: a list of URLs, or one string with commas between them."""
    store: Unchecked[bool | str | Path | Store] = True
    """Where replies are stored; False disables it."""

    @field_validator("backend")
    @classmethod
    def _can_write(cls, backend: Any) -> Any:
        if isinstance(backend, str) and backend in ANSWERING:
            raise ModelError(
                f"backend={backend!r} neither writes nor reads prompts: it answers the items of checklists. Allowed "
                f"for a writer: {', '.join(map(repr, get_args(WritingBackend)))}."
            )
        return backend

    @cached_property
    def engine(self) -> Engine:
        """The model with its backend; nothing is loaded."""
        return Engine.of(self.model, self.backend, self.base_url)

    @cached_property
    def replies(self) -> Store | None:
        """The store of replies; None if it is disabled."""
        return open_store(self.store)

    @property
    def with_defaults_of_parts(self) -> Writer:
        """A writer with the same engine and store, whose other settings are those of the part that uses it."""
        return Writer(model=self.engine, store=False if self.replies is None else self.replies)

    @property
    def sampling(self) -> Sampling:
        """How a reply is sampled."""
        given = {name: getattr(self, name) for name in ("max_tokens", "temperature", "seed")}
        return Sampling(**{name: value for name, value in given.items() if value is not None})

    @property
    def attempts(self) -> int:
        """Replies per request."""
        return 3 if self.max_attempts is None else self.max_attempts

    def validate(self) -> None:  # type: ignore[override]  # pydantic 1 had a class method of this name
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        _ = self.engine.identity

    def ask(
        self,
        prompts: Sequence[Messages],
        shape: type[Value],
        check: Callable[[int, Any], str | None] | None = None,
        *,
        temperature: float | None = None,
        progress: Progress | None = None,
    ) -> list[Value | GenerationError]:
        """Ask for a reply of `shape` to every prompt; see [`replies.ask`]. `temperature` overrides that of the
        writer."""
        sampling = self.sampling if temperature is None else replace(self.sampling, temperature=temperature)
        return ask(
            self.engine,
            prompts,
            shape,
            sampling,
            store=self.replies,
            attempts=self.attempts,
            check=check,
            progress=progress,
        )


class WriterKwargs(TypedDict, total=False):
    """The fields of [`Writer`] but `model`, for type checkers and editors."""

    backend: WritingBackend | Backend
    base_url: str | Sequence[str] | None
    temperature: float
    max_tokens: int
    max_attempts: int
    seed: int
    store: bool | str | Path | Store


class WritingPart(Protocol):
    """A generator or refiner class whose keyword arguments include those of a [`Writer`]."""

    writing: ClassVar[WriterKwargs]
    """The settings of its writer that are not given."""


def writer_of(part: WritingPart, model: str | Engine | Writer, settings: WriterKwargs) -> Writer:
    """The writer of a generator or refiner: its arguments, and the defaults of the part for the others.

    Raises:
        ChecklistRewardsError: If an argument is unknown or not valid.
    """
    given: dict[str, Any] = dict(settings)
    for name in given:
        if name not in Writer.model_fields:
            raise SampleError(unknown("argument", name, parameters_of(type(part)) or Writer.model_fields))
    if isinstance(model, Writer):
        refuse_any(given, "together with a Writer; set it there")
        given = {name: getattr(model, name) for name in Writer.model_fields}
    else:
        given["model"] = model
    missing = {name: value for name, value in part.writing.items() if given.get(name) is None}
    writer = Writer(**given | missing)
    _ = writer.engine, writer.replies  # raise for settings that cannot be combined
    return writer


def prompt_with(
    prompt: str | Path | PromptTemplate, required: Sequence[str], optional: Sequence[str] = ()
) -> PromptTemplate:
    """Load a prompt. Raises [`PromptError`] if a required placeholder is missing or another one is unknown."""
    template = load_prompt(prompt, "stage")
    listed = ", ".join(f"{{{name}}}" for name in (*required, *optional))
    for name in sorted(template.placeholders - {*required, *optional}):
        raise PromptError(f"{template.name}: unknown placeholder {{{name}}}; allowed: {listed}.")
    for name in required:
        if name not in template.placeholders:
            raise PromptError(f"{template.name}: the placeholder {{{name}}} is missing.")
    return template


class Parameter(NamedTuple):
    """A parameter of a part."""

    hint: Any
    """Its type; None without an annotation."""
    default: Any
    """`...` if it is required."""


def parameters_of(factory: Callable[..., Any]) -> dict[str, Parameter] | None:
    """The parameters of a class or function by name, those of `**settings: Unpack[...]` included; None if it accepts
    any keyword argument. Those of a configuration are its fields."""
    if isinstance(factory, type) and issubclass(factory, Config):
        return {name: Parameter(one.rebuild_annotation(), one.default) for name, one in factory.model_fields.items()}
    is_class = isinstance(factory, type)
    try:
        hints = get_type_hints(factory.__init__ if is_class else factory)
    except (NameError, TypeError):  # annotations that exist only where the part was defined
        hints = {}
    defaults: Mapping[str, Any] = {"seed": 0, **getattr(factory, "writing", {})}
    parameters: dict[str, Parameter] = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        hint = hints.get(name)
        if parameter.kind is parameter.VAR_KEYWORD:
            if get_origin(hint) is not Unpack:
                return None
            for key, value in get_type_hints(get_args(hint)[0]).items():
                parameters[key] = Parameter(value, defaults.get(key))
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            parameters[name] = Parameter(hint, ... if parameter.default is parameter.empty else parameter.default)
    return parameters
