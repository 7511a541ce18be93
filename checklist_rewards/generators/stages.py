"""Stages: how a corpus-level generator gets from its source to one checklist, and how it breaks.

A stage puts all its prompts to the model in one call of `replies.ask`, through the store. A reply that cannot be used
is asked for again with the error shown; if the last attempt is no better, or the engine broke, the stage ends in a
[`StageError`] that names it and the parts concerned (a dimension, a batch of observations). Nothing is left out
silently. All replies so far are in the store, so running again pays only for what is missing: nothing for earlier
stages, and with a greater `max_attempts` only the new attempts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import BaseModel

from checklist_rewards.backends import Backend, Engine, Messages, Sampling
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError, PromptError, SampleError, StageError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.generators.base import Stage, check_numbers
from checklist_rewards.generators.shapes import ask_in_shape, items_of
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.replies import ask
from checklist_rewards.version import __version__

logger = logging.getLogger(__name__)

Value = TypeVar("Value", bound=BaseModel)
Prompt = str | Path | PromptTemplate
Watcher = Callable[[Stage], None]
_LISTED = 5


@dataclass(frozen=True)
class StagePrompt:
    """The packaged prompt of a stage, and what a prompt in its place may and must speak of."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def load(self, prompt: Prompt | None) -> PromptTemplate:
        """The template. Raises [`PromptError`] for one that lacks a field or names one that there is not."""
        template = load_prompt(self.name if prompt is None else prompt, "stage")
        allowed = (*self.required, *self.optional)
        listed = ", ".join(f"{{{name}}}" for name in allowed)
        for name in sorted(template.placeholders - set(allowed)):
            raise PromptError(f"{template.name}: unknown placeholder {{{name}}}; allowed in its place: {listed}.")
        for name in self.required:
            if name not in template.placeholders:
                raise PromptError(f"{template.name}: the placeholder {{{name}}} is missing.")
        return template


@dataclass
class Step:
    """A stage that is under way; `asked` and `kept` are what its [`Stage`] will say."""

    writer: CorpusWriter
    name: str
    asked: int = 0
    kept: int = 0

    def ask(
        self,
        prompts: Sequence[Messages],
        parts: Sequence[str],
        shape: type[Value],
        check: Callable[[int, Value], str | None] | None = None,
        temperature: float | None = None,
    ) -> list[Value]:
        """A value of `shape` for every prompt, all asked in one call.

        Args:
            prompts (sequence of chat messages).
            parts (sequence of `str`): what each prompt is about, for the error.
            shape (pydantic model class): what a reply must hold.
            check (callable, *optional*): (index, value) -> what is wrong with it, or None.
            temperature (`float`, *optional*): instead of the writer's.

        Raises:
            StageError: if any prompt has no usable reply.
        """
        values = self.try_ask(prompts, shape, check, temperature)
        self.refuse(values, parts)
        return [value for value in values if not isinstance(value, GenerationError)]

    def try_ask(
        self,
        prompts: Sequence[Messages],
        shape: type[Value],
        check: Callable[[int, Value], str | None] | None = None,
        temperature: float | None = None,
    ) -> list[Value | GenerationError]:
        """As [`Step.ask`], with the error in the place of its value."""
        self.asked += len(prompts)
        writer = self.writer
        sampling = writer.sampling if temperature is None else replace(writer.sampling, temperature=temperature)
        asked = [ask_in_shape(prompt, shape) for prompt in prompts]
        return ask(
            writer.engine, asked, shape, sampling, store=writer.store, attempts=writer.max_attempts, check=check
        )

    def refuse(self, values: Sequence[object], parts: Sequence[str]) -> None:
        """Raise a [`StageError`] that names the parts whose value is an error, if there are any."""
        broken = {part: v for part, v in zip(parts, values, strict=True) if isinstance(v, GenerationError)}
        if broken:
            part, first = next(iter(broken.items()))
            stored = " What was replied so far is in the store." if self.writer.store is not None else ""
            raise self.error(f"{part}: {str(first).rstrip('.')}.{stored}", list(broken), len(parts), first.raw)

    def error(self, message: str, parts: Sequence[str], total: int, raw: str = "") -> StageError:
        """The error that this stage broke for `parts`, of `total`."""
        listed = ", ".join(parts[:_LISTED]) + (f" and {len(parts) - _LISTED} more" if len(parts) > _LISTED else "")
        where = f" for {len(parts)} of {total} ({listed})" if total > 1 else ""
        return StageError(
            f"{self.writer.name}: the stage {self.name!r} broke{where}. {message}", raw, self.name, parts
        )


def holds_questions(index: int, value: BaseModel) -> str | None:
    """A check for [`Step.ask`]: what is wrong with a list of questions."""
    try:
        return None if items_of(value) else "the reply holds no question; at least one is wanted."
    except ValueError as error:
        return f"the reply cannot be used: {error}."


@dataclass
class Run:
    """One checklist in the making."""

    writer: CorpusWriter
    progress: Watcher | None = None
    stages: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[Step]:
        """A stage: timed, reported when it is done, and named in whatever error ends it."""
        step, started = Step(self.writer, name), time.perf_counter()
        try:
            yield step
        except StageError:
            raise
        except (GenerationError, ChecklistError) as error:
            raise step.error(str(error), [], 1, getattr(error, "raw", "")) from error
        done = Stage(name, step.asked, step.kept, time.perf_counter() - started)
        logger.info("%s: %s, %d asked, %d kept, %.1f s", self.writer.name, name, done.asked, done.kept, done.seconds)
        self.stages.append(done)
        if self.progress is not None:
            self.progress(done)


class CorpusWriter:
    """What the corpus-level generators have in common: whom they ask, how, and with which prompts.

    Args: see [`InductiveGenerator`]; they mean the same everywhere.
    """

    name: ClassVar[str] = ""
    """First half of `Checklist.source`."""
    stage_prompts: ClassVar[Mapping[str, StagePrompt]] = {}

    def __init__(
        self,
        model: str | Engine,
        backend: str | Backend,
        base_url: str | None,
        prompts: Mapping[str, Prompt] | None,
        temperature: float,
        max_tokens: int,
        max_attempts: int,
        seed: int,
        store: bool | str | Path | Store,
    ):
        check_numbers(temperature, max_tokens=max_tokens, max_attempts=max_attempts)
        for stage in prompts or {}:
            if stage not in self.stage_prompts:
                stages = ", ".join(self.stage_prompts)
                raise SampleError(f"prompts: there is no stage {stage!r} with a prompt; allowed: {stages}.")
        self.engine = Engine.of(model, backend, base_url)
        self.model, self.max_attempts = self.engine.model, max_attempts
        self.sampling = Sampling(max_tokens, temperature, seed=seed)
        self.store = open_store(store)
        self.prompts = {name: known.load((prompts or {}).get(name)) for name, known in self.stage_prompts.items()}
        self.stages: list[Stage] = []

    def check(self) -> None:
        """Refuse a model that is not there. Raises [`ModelError`]."""
        _ = self.engine.identity

    def _run(self, progress: Watcher | None) -> Run:
        self.check()
        run = Run(self, progress)
        self.stages = run.stages
        return run

    def _checklist(self, items: Sequence[ChecklistItem]) -> Checklist:
        return Checklist(items=tuple(items), source=f"{self.name}/{__version__}", model=self.model)


def questions_of(value: BaseModel) -> list[str]:
    """The questions of a reply that was checked."""
    return [item.question for item in items_of(value)]


def numbered(texts: Sequence[str], start: int = 0) -> str:
    """One line per text, with its number: no text can pose as a line of another number."""
    return "\n".join(f"{number}: {' '.join(text.split())}" for number, text in enumerate(texts, start=start))
