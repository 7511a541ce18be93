"""The interactive generator: questions from think-aloud protocols, as in InteractEval (arXiv:2409.07355).

    attributes ──▶ components ──▶ assign ──▶ key_questions ──▶ sub_questions ──▶ validate ──▶ one checklist

Attributes that people and models named for one quality dimension are grouped into a few *components*. Every attribute
is *assigned* to at least one component. Each component gets a *key question* and, based on it and the attributes, two
or three *sub-questions*. *Validation* merges and revises all questions. The reply of each stage must match its input
exactly (components by name, attributes by number). A reply that does not match is requested again with the difference
in the prompt; after the last attempt the stage raises a [`StageError`].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators.base import check_numbers
from checklist_rewards.generators.parsing import is_question, tidy
from checklist_rewards.generators.shapes import Questions, Shape
from checklist_rewards.generators.sources import ThinkAloud
from checklist_rewards.generators.stages import (
    CorpusWriter,
    Prompt,
    Run,
    StagePrompt,
    Watcher,
    holds_questions,
    numbered,
    questions_of,
)

SUB_QUESTIONS = (2, 3)
_ABOUT = ("dimension", "definition")


class Component(Shape):
    """A theme that several attributes share."""

    name: str
    meaning: str


class Components(Shape):
    """The themes."""

    components: list[Component]


class Assignment(Shape):
    """Which attributes belong to a component."""

    component: str
    attributes: list[int]


class Assignments(Shape):
    """The attributes of all components."""

    assignments: list[Assignment]


class KeyQuestion(Shape):
    """What a component comes down to."""

    component: str
    question: str


class KeyQuestions(Shape):
    """One for each component."""

    questions: list[KeyQuestion]


@dataclass
class Theme:
    """A component with the results of the stages."""

    component: Component
    attributes: list[str]
    key_question: str = ""
    sub_questions: Sequence[str] = ()


class InteractiveGenerator(CorpusWriter):
    """Writes one checklist for a corpus from think-aloud protocols about one quality dimension.

    Args:
        model, backend, base_url, prompts, temperature, max_tokens, max_attempts, seed, store: see
            [`InductiveGenerator`]. The stages with a prompt are `components`, `assign`, `key_questions`,
            `sub_questions` and `validate`.
        max_components (`int`, *optional*, defaults to `5`): maximum number of components.
        min_items, max_items (`int`, *optional*, default to `2` and `15`): allowed number of questions after
            validation.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "interacteval"
    stage_prompts = {
        "components": StagePrompt("generators/interacteval_components", (*_ABOUT, "attributes", "count")),
        "assign": StagePrompt("generators/interacteval_assign", ("attributes", "components"), _ABOUT),
        "key_questions": StagePrompt("generators/interacteval_key_questions", (*_ABOUT, "components")),
        "sub_questions": StagePrompt(
            "generators/interacteval_sub_questions", (*_ABOUT, "component", "attributes", "key_question")
        ),
        "validate": StagePrompt("generators/interacteval_validate", (*_ABOUT, "questions", "least", "most")),
    }

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompts: Mapping[str, Prompt] | None = None,
        max_components: int = 5,
        min_items: int = 2,
        max_items: int = 15,
        temperature: float = 0.7,
        max_tokens: int = 2048,
        max_attempts: int = 3,
        seed: int = 0,
        store: bool | str | Path | Store = True,
    ):
        super().__init__(model, backend, base_url, prompts, temperature, max_tokens, max_attempts, seed, store)
        check_numbers(temperature, max_components=max_components, min_items=min_items)
        if max_items < min_items:
            raise SampleError(f"max_items={max_items!r} is not allowed; it must be at least min_items={min_items}.")
        self.max_components, self.min_items, self.max_items = max_components, min_items, max_items

    def generate(self, source: ThinkAloud | Mapping[str, Any], *, progress: Watcher | None = None) -> Checklist:
        """Write the checklist of one dimension. The dimension is the category of all items.

        Args:
            source ([`ThinkAloud`] or mapping): the dimension and the attributes.
            progress (callable, *optional*): called with every completed [`Stage`].

        Raises:
            SampleError: If the source is not valid. Nothing has been sent to the model at that point.
            StageError: If a stage fails. The message names the stage.
        """
        source = ThinkAloud.of(source)
        run = self._run(progress)
        components = self._components(run, source)
        themes = self._assigned(run, source, components)
        self._key_questions(run, source, themes)
        self._sub_questions(run, source, themes)
        questions = self._validated(run, source, themes)
        return self._checklist([ChecklistItem(question=text, category=source.dimension) for text in questions])

    def _components(self, run: Run, source: ThinkAloud) -> list[Component]:
        with run.stage("components") as step:
            prompt = self.prompts["components"].messages(
                **_about(source), attributes=numbered(source.attributes), count=self.max_components
            )
            [reply] = step.ask([prompt], [source.dimension], Components, lambda _, v: self._component_complaint(v))
            step.kept = len(reply.components)
        return reply.components

    def _component_complaint(self, value: Components) -> str | None:
        names = [_key(component.name) for component in value.components]
        if not 1 <= len(names) <= self.max_components:
            return f"the reply holds {len(names)} components; 1 to {self.max_components} are wanted."
        if len(set(names)) != len(names) or not all(names):
            return f"each component needs a name of its own; got {', '.join(map(repr, names))}."
        return None

    def _assigned(self, run: Run, source: ThinkAloud, components: Sequence[Component]) -> list[Theme]:
        attributes = source.attributes

        def complaint(index: int, value: Assignments) -> str | None:
            wrong = _unmatched([c.name for c in components], [entry.component for entry in value.assignments])
            numbers = {number for entry in value.assignments for number in entry.attributes}
            unknown = sorted(numbers - set(range(len(attributes))))
            missing = sorted(set(range(len(attributes))) - numbers)
            if wrong is not None:
                return wrong
            if unknown:
                return f"there are no attributes {unknown}; the numbers are 0 to {len(attributes) - 1}."
            return f"the attributes {missing} are assigned to no component." if missing else None

        with run.stage("assign") as step:
            prompt = self.prompts["assign"].messages(
                **_about(source), attributes=numbered(attributes), components=_listed(components)
            )
            [reply] = step.ask([prompt], [source.dimension], Assignments, complaint)
            assigned = {_key(entry.component): entry.attributes for entry in reply.assignments}
            # Components without attributes are dropped.
            themes = [
                Theme(component, [attributes[number] for number in sorted(set(assigned[_key(component.name)]))])
                for component in components
                if assigned[_key(component.name)]
            ]
            step.kept = len(themes)
        return themes

    def _key_questions(self, run: Run, source: ThinkAloud, themes: Sequence[Theme]) -> None:
        names = [theme.component.name for theme in themes]

        def complaint(index: int, value: KeyQuestions) -> str | None:
            for entry in value.questions:
                if not is_question(tidy(entry.question)):
                    return f"{entry.question!r:.80} is no question; it must end with a question mark."
            return _unmatched(names, [entry.component for entry in value.questions])

        with run.stage("key_questions") as step:
            prompt = self.prompts["key_questions"].messages(**_about(source), components=_listed_themes(themes))
            [reply] = step.ask([prompt], [source.dimension], KeyQuestions, complaint)
            key_questions = {_key(entry.component): tidy(entry.question) for entry in reply.questions}
            for theme in themes:
                theme.key_question = key_questions[_key(theme.component.name)]
            step.kept = len(themes)

    def _sub_questions(self, run: Run, source: ThinkAloud, themes: Sequence[Theme]) -> None:
        least, most = SUB_QUESTIONS

        def complaint(index: int, value: Questions) -> str | None:
            wrong = holds_questions(index, value)
            count = 0 if wrong else len(questions_of(value))
            return wrong or (
                None if least <= count <= most else f"the reply holds {count} questions; {least} to {most} are wanted."
            )

        with run.stage("sub_questions") as step:
            prompts = [
                self.prompts["sub_questions"].messages(
                    **_about(source),
                    component=f"{theme.component.name}: {theme.component.meaning}",
                    attributes=numbered(theme.attributes),
                    key_question=theme.key_question,
                )
                for theme in themes
            ]
            replies = step.ask(prompts, [theme.component.name for theme in themes], Questions, complaint)
            for theme, value in zip(themes, replies, strict=True):
                theme.sub_questions = questions_of(value)
                step.kept += len(theme.sub_questions)

    def _validated(self, run: Run, source: ThinkAloud, themes: Sequence[Theme]) -> list[str]:
        def complaint(index: int, value: Questions) -> str | None:
            wrong = holds_questions(index, value)
            count = 0 if wrong else len(questions_of(value))
            if wrong or self.min_items <= count <= self.max_items:
                return wrong
            return f"the reply holds {count} questions; {self.min_items} to {self.max_items} are wanted."

        with run.stage("validate") as step:
            prompt = self.prompts["validate"].messages(
                **_about(source), questions=_all_questions(themes), least=self.min_items, most=self.max_items
            )
            [reply] = step.ask([prompt], [source.dimension], Questions, complaint)
            questions = questions_of(reply)
            step.kept = len(questions)
        return questions


def _about(source: ThinkAloud) -> dict[str, str]:
    return {"dimension": source.dimension, "definition": source.definition}


def _key(name: str) -> str:
    """Normalized name of a component; models may change its case and spacing."""
    return " ".join(name.split()).casefold()


def _unmatched(wanted: Sequence[str], got: Sequence[str]) -> str | None:
    """The error if `got` does not contain each of `wanted` exactly once, else None."""
    if sorted(map(_key, wanted)) == sorted(map(_key, got)):
        return None
    return (
        f"each component is wanted once, by its name: {', '.join(map(repr, wanted))}; got {', '.join(map(repr, got))}."
    )


def _listed(components: Sequence[Component]) -> str:
    return "\n".join(f"- {' '.join(c.name.split())}: {' '.join(c.meaning.split())}" for c in components)


def _listed_themes(themes: Sequence[Theme]) -> str:
    blocks = (f"{_listed([t.component])}\n" + "\n".join(f"  - {text}" for text in t.attributes) for t in themes)
    return "\n".join(blocks)


def _all_questions(themes: Sequence[Theme]) -> str:
    blocks = (
        "\n".join([f"{' '.join(t.component.name.split())}", *(f"- {q}" for q in (t.key_question, *t.sub_questions))])
        for t in themes
    )
    return "\n\n".join(blocks)
