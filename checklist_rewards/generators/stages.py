"""Sources and stages of the corpus-level generators.

A stage sends all its prompts to the model in one call of `replies.ask`. An unusable reply is requested again with the
error in the prompt. If the last attempt fails too, or the engine fails, the stage raises a [`StageError`] that names
the stage and the parts concerned (such as a dimension or a batch of observations). All replies are stored, so a rerun
requests only what is missing.

A stage turns the *draft* of the stage before it into a new one, and the last draft becomes the checklist. `generate`
runs all stages; [`CorpusWriter.advance`] runs one, so that people can edit the draft before the next stage reads it.

A source can be stored in a JSON file, which `model_json_schema()` documents. Blank texts, unknown fields and duplicate
names are errors.

    >>> Dimensions.model_validate_json('{"dimensions": [{"name": "fluency", "definition": "It reads well."}]}').task
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, Unpack

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from checklist_rewards.backends import Engine, Messages
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError, StageError
from checklist_rewards.generators.base import Stage
from checklist_rewards.generators.shapes import ask_in_shape, check_question, items_of
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.validation import one_of, one_sentence
from checklist_rewards.version import __version__
from checklist_rewards.writer import Value, Writer, WriterKwargs, prompt_with, writer_of

AnySource = TypeVar("AnySource", bound="Source")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(f"the text is blank: {text!r:.60}")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]


class Source(BaseModel):
    """Base of all sources."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def example(cls) -> Source:
        """A small example; each source of a generator has one."""
        raise NotImplementedError

    @classmethod
    def of(cls: type[AnySource], value: Any) -> AnySource:
        """Parse a source from an instance of this class or a mapping. Raises a [`SampleError`] that names the field
        and the value."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise SampleError(f"expected a {cls.__name__} or a mapping, got {type(value).__name__} {value!r:.60}.")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise SampleError(f"{cls.__name__}: {one_sentence(error, cls)}") from None


class Feedback(Source):
    """Observations about the texts of a corpus: complaints, review comments, notes."""

    observations: list[Text] = Field(min_length=1)
    """One remark per entry. `ChecklistItem.sources` refers to them by index, from 0."""
    domain: Text | None = None
    """The kind of the texts, such as "summaries of news articles"."""

    @classmethod
    def example(cls) -> Feedback:
        """A small example."""
        return cls(
            observations=[
                "The summary names a city that is not in the article.",
                "Half of it repeats the headline.",
                "I could not tell who 'he' was in the second sentence.",
                "It stops in the middle of a sentence.",
            ],
            domain="summaries of news articles",
        )


class Dimension(Source):
    """One quality dimension, such as fluency."""

    name: Text
    """Name of the dimension; the category of its questions."""
    definition: Text
    sub_dimensions: list[Text] = []
    """Aspects of the dimension that the questions cover."""
    seed_questions: list[Text] = []
    """Questions to start with; if empty, the model writes them."""


class Dimensions(Source):
    """The quality dimensions that a checklist covers."""

    dimensions: list[Dimension] = Field(min_length=1)
    task: Text | None = None
    """The task of the texts, such as "Summarize a news article"."""

    @model_validator(mode="after")
    def _each_once(self) -> Dimensions:
        names = [dimension.name.casefold() for dimension in self.dimensions]
        if len(set(names)) != len(names):
            raise ValueError(f"two dimensions share a name: {', '.join(names)}")
        return self

    @classmethod
    def example(cls) -> Dimensions:
        """A small example."""
        fluency = Dimension(
            name="fluency",
            definition="The summary is well written: each sentence is grammatical and easy to read.",
            sub_dimensions=["grammar", "readability"],
        )
        consistency = Dimension(
            name="consistency",
            definition="The summary says nothing that the article does not say.",
            seed_questions=["Is every name in the summary also in the article?"],
        )
        return cls(dimensions=[fluency, consistency], task="Summarize a news article in three sentences.")


class ThinkAloud(Source):
    """Think-aloud protocols of people and models about one quality dimension."""

    dimension: Text
    """Name of the dimension; the category of the questions."""
    definition: Text
    human: list[Text] = []
    """Attributes that people named."""
    model: list[Text] = []
    """Attributes that models named."""

    @model_validator(mode="after")
    def _some_attribute(self) -> ThinkAloud:
        if not self.attributes:
            raise ValueError("`human` and `model` are both empty; at least one attribute is required")
        return self

    @property
    def attributes(self) -> list[str]:
        """All distinct attributes, those of people first."""
        return list(dict.fromkeys(" ".join(text.split()) for text in (*self.human, *self.model)))

    @classmethod
    def example(cls) -> ThinkAloud:
        """A small example."""
        return cls(
            dimension="coherence",
            definition="The sentences of the summary form one text, in an order that makes sense.",
            human=["I look whether each sentence follows from the one before.", "Pronouns must be clear."],
            model=["Events are told in order.", "There is one main topic.", "No sudden change of subject."],
        )


logger = logging.getLogger(__name__)

Prompt = str | Path | PromptTemplate
Watcher = Callable[[Stage], None]
_LISTED = 5


def holds_questions(index: int, value: BaseModel) -> str | None:
    """A check for [`CorpusWriter._ask`]: the error of a list of questions, or None."""
    try:
        return None if items_of(value) else "the reply holds no question; at least one is wanted."
    except ValueError as error:
        return f"the reply cannot be used: {error}."


StageMethod = Callable[[Stage, Any, Any], BaseModel]
"""(stage, source, draft of the stage before, None for the first stage) -> draft."""


class CorpusWriter:
    """Base of the corpus-level generators: writer, prompts, and the walk through the stages.

    Args: as in [`InductiveGenerator`].
    """

    writing: ClassVar[WriterKwargs] = {"temperature": 0.7, "max_tokens": 2048, "max_attempts": 3}

    name: ClassVar[str] = ""
    """Name in `Checklist.source`, before the version."""
    stage_prompts: ClassVar[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    """Per stage with a prompt, the placeholders that it must and may have."""
    source_shape: ClassVar[type[Source]]
    draft_shape: ClassVar[type[BaseModel]]

    def __init__(
        self, model: str | Engine | Writer, prompts: Mapping[str, Prompt] | None, **settings: Unpack[WriterKwargs]
    ):
        self.writer = writer_of(self, model, settings)
        self.engine = self.writer.engine
        self.model = self.engine.model
        for stage in prompts or {}:
            if stage not in self.stage_prompts:
                stages = ", ".join(self.stage_prompts)
                raise SampleError(f"prompts: the stage {stage!r} is not known; allowed: {stages}.")
        # The packaged prompts have the name of the class that defines the stages, which a subclass may change.
        own: Any = next(one for one in type(self).__mro__ if "stage_prompts" in vars(one))
        packaged: dict[str, Prompt] = {stage: f"generators/{own.name}_{stage}" for stage in self.stage_prompts}
        named = packaged | {stage: prompt for stage, prompt in (prompts or {}).items() if prompt is not None}
        self.prompts = {stage: prompt_with(named[stage], *fields) for stage, fields in self.stage_prompts.items()}
        self.stages: list[Stage] = []
        self.watch: Callable[[int, int], None] | None = None
        """Called while a stage runs with the number of its requests so far and of replies since the last call. What it
        raises ends the stage; the replies so far are stored."""

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.writer.validate()

    def generate(self, source: Any, *, progress: Watcher | None = None) -> Checklist:
        """Write the checklist of a source.

        Args:
            source (`source_shape` or mapping): the source, such as [`Dimensions`] or [`ThinkAloud`].
            progress (callable, *optional*): called with every completed [`Stage`].

        Raises:
            SampleError: If the source is not valid. Nothing has been sent to the model at that point.
            StageError: If a stage fails. The message names the stage and the parts that failed.
        """
        source = self._source(source)
        return self._finished(source, self._walk(self.order, source, None, progress))

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the stages that `generate` walks through with these settings."""
        return tuple(self._order())

    def advance(self, stage: str, source: Any, draft: Any = None, *, progress: Watcher | None = None) -> BaseModel:
        """Run one stage.

        Args:
            stage (`str`): one of `order`.
            source (source or mapping): as in `generate`.
            draft (`draft_shape` or mapping, *optional*): the draft of the stage before, as it was returned or edited.
                The first stage has none.
            progress (callable, *optional*): called with the completed [`Stage`].

        Returns:
            The draft of this stage, of the class `draft_shape`.

        Raises:
            SampleError: If an argument is not valid. Nothing has been sent to the model at that point.
            StageError: If the stage fails.
        """
        one_of("stage", stage, self.order)
        source = self._source(source)
        given = None if stage == self.order[0] else self._draft(source, draft)
        return self._walk([stage], source, given, progress)

    def checklist(self, source: Any, draft: Any) -> Checklist:
        """The checklist of the last draft. Raises [`SampleError`] if the draft is not valid or has no questions."""
        source = self._source(source)
        return self._finished(source, self._draft(source, draft))

    def _walk(self, stages: Sequence[str], source: Any, draft: Any, progress: Watcher | None) -> Any:
        """The draft after some stages, of a checked source and the draft before them."""
        self.validate()
        self.stages = []
        order = self._order()
        for stage in stages:
            with self._stage(stage, progress) as running:
                draft = order[stage](running, source, draft)
        return draft

    @contextmanager
    def _stage(self, name: str, progress: Watcher | None) -> Iterator[Stage]:
        """Run a stage: measure its time, report it when completed, and name it in any error."""
        stage, started = Stage(name), time.perf_counter()
        try:
            yield stage
        except StageError:
            raise
        except (GenerationError, ChecklistError) as error:
            raise self._error(stage, str(error), [], 1, getattr(error, "raw", "")) from error
        stage.seconds = time.perf_counter() - started
        logger.info("%s: %s, %d asked, %d kept, %.1f s", self.name, name, stage.asked, stage.kept, stage.seconds)
        self.stages.append(stage)
        if progress is not None:
            progress(stage)

    def _ask(
        self,
        stage: Stage,
        prompts: Sequence[Messages],
        parts: Sequence[str],
        shape: type[Value],
        check: Callable[[int, Value], str | None] | None = None,
        temperature: float | None = None,
    ) -> list[Value]:
        """Ask for a value of `shape` for every prompt, in one call. `parts` says what each prompt is about, and
        `check(index, value)` gives an error message, or None for a valid value. Raises a [`StageError`] if any prompt
        has no usable reply."""
        values = self._try_ask(stage, prompts, shape, check, temperature)
        self._refuse(stage, values, parts)
        return [value for value in values if not isinstance(value, GenerationError)]

    def _try_ask(
        self,
        stage: Stage,
        prompts: Sequence[Messages],
        shape: type[Value],
        check: Callable[[int, Value], str | None] | None = None,
        temperature: float | None = None,
    ) -> list[Value | GenerationError]:
        """As [`_ask`], but returns errors in place of values instead of raising."""
        stage.asked += len(prompts)
        requests = [ask_in_shape(prompt, shape) for prompt in prompts]

        def answered(replies: int) -> None:
            if self.watch is not None:
                self.watch(stage.asked, replies)

        answered(0)
        return self.writer.ask(requests, shape, check, temperature=temperature, progress=answered)

    def _refuse(self, stage: Stage, values: Sequence[object], parts: Sequence[str]) -> None:
        """Raise a [`StageError`] naming the parts whose value is an error, if any."""
        failed = {part: v for part, v in zip(parts, values, strict=True) if isinstance(v, GenerationError)}
        if failed:
            part, first = next(iter(failed.items()))
            stored = " The replies so far are stored." if self.writer.replies is not None else ""
            message = f"{part}: {str(first).rstrip('.')}.{stored}"
            raise self._error(stage, message, list(failed), len(parts), first.raw)

    def _error(self, stage: Stage, message: str, parts: Sequence[str], total: int, raw: str = "") -> StageError:
        """The error that a stage failed for `parts`, out of `total` parts."""
        listed = ", ".join(parts[:_LISTED]) + (f" and {len(parts) - _LISTED} more" if len(parts) > _LISTED else "")
        where = f" for {len(parts)} of {total} ({listed})" if total > 1 else ""
        return StageError(f"{self.name}: the stage {stage.name!r} failed{where}. {message}", raw, stage.name, parts)

    def _order(self) -> Mapping[str, StageMethod]:
        """The stages by name, in order."""
        raise NotImplementedError

    def _finished(self, source: Any, draft: Any) -> Checklist:
        """The checklist of a checked source and draft."""
        raise NotImplementedError

    def _source(self, source: Any) -> Any:
        return self.source_shape.of(source)

    def _draft(self, source: Any, draft: Any) -> Any:
        """Parse a draft that may have been edited. Raises [`SampleError`]."""
        try:
            return self.draft_shape.model_validate(draft)
        except ValidationError as error:
            raise SampleError(f"{self.name}: the draft: {one_sentence(error, self.draft_shape)}") from None

    def _checklist(self, items: Sequence[ChecklistItem]) -> Checklist:
        return Checklist(items=tuple(items), source=f"{self.name}/{__version__}", model=self.model)


def check_questions(questions: Sequence[str], where: str) -> None:
    """Raise [`SampleError`] for a text that is not a yes/no question. The message begins with `where`."""
    try:
        for question in questions:
            check_question(question)
    except ValueError as error:
        raise SampleError(f"{where} {error}.") from None


def questions_of(value: BaseModel) -> list[str]:
    """The questions of a validated reply."""
    return [item.question for item in items_of(value)]


def numbered(texts: Sequence[str], start: int = 0) -> str:
    """One numbered line per text. Line breaks in a text are removed, so that a text cannot fake another number."""
    return "\n".join(f"{number}: {' '.join(text.split())}" for number, text in enumerate(texts, start=start))
