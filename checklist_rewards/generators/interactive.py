"""The interactive generator: questions from think-aloud protocols, as in InteractEval (arXiv:2409.07355).

    attributes ──▶ components ──▶ assign ──▶ key_questions ──▶ sub_questions ──▶ validate ──▶ one checklist

Attributes that people and models named for one quality dimension are grouped into a few *components*. Every attribute
is *assigned* to at least one component. Each component gets a *key question* and, based on it and the attributes, two
or three *sub-questions*. *Validation* merges and revises all questions. The reply of each stage must match its input
exactly (components by name, attributes by number). A reply that does not match is requested again with the difference
in the prompt; after the last attempt the stage raises a [`StageError`]. The draft of a stage is its [`Themes`].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from pydantic import BaseModel, ConfigDict

from checklist_rewards.backends import Engine
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.generators.base import Stage, check_counts
from checklist_rewards.generators.shapes import Questions, Shape, tidy
from checklist_rewards.generators.stages import (
    CorpusWriter,
    Prompt,
    StageMethod,
    ThinkAloud,
    Value,
    check_questions,
    holds_questions,
    numbered,
    questions_of,
)
from checklist_rewards.judges.faults import question_fault
from checklist_rewards.judges.questions import compared
from checklist_rewards.writer import Writer, WriterKwargs

MAX_COMPONENTS = 5
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


class Theme(BaseModel):
    """A component with the results of the stages so far."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    meaning: str
    attributes: list[str] = []
    key_question: str = ""
    sub_questions: list[str] = []


class Themes(BaseModel):
    """All components, and after validation the questions of the checklist."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    themes: list[Theme]
    questions: list[str] = []


class InteractiveGenerator(CorpusWriter):
    """Writes one checklist for a corpus from think-aloud protocols about one quality dimension.

    Args:
        model, prompts: see [`InductiveGenerator`]. The stages with a prompt are `components`, `assign`,
            `key_questions`, `sub_questions` and `validate`.
        min_items, max_items (`int`, *optional*, default to `2` and `15`): allowed number of questions after
            validation.
        **settings: the other fields of [`Writer`]; `writing` has the defaults.
    """

    name = "interacteval"
    source_shape, draft_shape = ThinkAloud, Themes
    stage_prompts = {
        "components": ((*_ABOUT, "attributes", "count"), ()),
        "assign": (("attributes", "components"), _ABOUT),
        "key_questions": ((*_ABOUT, "components"), ()),
        "sub_questions": (
            (*_ABOUT, "component", "attributes", "key_question"),
            (),
        ),
        "validate": ((*_ABOUT, "questions", "least", "most"), ()),
    }

    def __init__(
        self,
        model: str | Engine | Writer = UNNAMED,
        *,
        prompts: Mapping[str, Prompt] | None = None,
        min_items: int = 2,
        max_items: int = 15,
        **settings: Unpack[WriterKwargs],
    ):
        super().__init__(model, prompts, **settings)
        check_counts(min_items, max_items)
        self.min_items, self.max_items = min_items, max_items

    def _order(self) -> Mapping[str, StageMethod]:
        return {
            "components": self._components,
            "assign": self._assign,
            "key_questions": self._key_questions,
            "sub_questions": self._sub_questions,
            "validate": self._validate,
        }

    def _draft(self, source: ThinkAloud, draft: Any) -> Themes:
        themes: Themes = super()._draft(source, draft)
        if fault := _unnamed(themes.themes):
            raise SampleError(fault)
        for theme in themes.themes:
            written = [theme.key_question] if theme.key_question else []
            check_questions([*written, *theme.sub_questions], f"component {theme.name!r}:")
        check_questions(themes.questions, "the draft:")
        return themes

    def _finished(self, source: ThinkAloud, draft: Themes) -> Checklist:
        if not draft.questions:
            raise SampleError("the draft has no questions yet; run the stages up to 'validate', or write some.")
        return self._checklist([ChecklistItem(question=text, category=source.dimension) for text in draft.questions])

    def _components(self, stage: Stage, source: ThinkAloud, draft: None) -> Themes:
        fields: dict[str, Any] = {"attributes": numbered(source.attributes), "count": MAX_COMPONENTS}
        reply = self._reply(stage, source, Components, _component_complaint, **fields)
        stage.kept = len(reply.components)
        return Themes(themes=[Theme(name=entry.name, meaning=entry.meaning) for entry in reply.components])

    def _reply(
        self,
        stage: Stage,
        source: ThinkAloud,
        shape: type[Value],
        complaint: Callable[[int, Value], str | None],
        **fields: str | int,
    ) -> Value:
        """The reply to the only prompt of a stage."""
        prompt = self.prompts[stage.name].messages(**_about(source), **fields)
        [reply] = self._ask(stage, [prompt], [source.dimension], shape, complaint)
        return reply

    def _assign(self, stage: Stage, source: ThinkAloud, draft: Themes) -> Themes:
        attributes = source.attributes

        def complaint(index: int, value: Assignments) -> str | None:
            if wrong := _unmatched(draft.themes, [entry.component for entry in value.assignments]):
                return wrong
            numbers = {number for entry in value.assignments for number in entry.attributes}
            if unknown := sorted(numbers - set(range(len(attributes)))):
                return f"there are no attributes {unknown}; the numbers are 0 to {len(attributes) - 1}."
            missing = sorted(set(range(len(attributes))) - numbers)
            return f"the attributes {missing} are assigned to no component." if missing else None

        fields = {"attributes": numbered(attributes), "components": _listed(draft.themes)}
        reply = self._reply(stage, source, Assignments, complaint, **fields)
        assigned = {compared(entry.component): entry.attributes for entry in reply.assignments}
        # Components without attributes are dropped.
        themes = [
            theme.model_copy(update={"attributes": [attributes[number] for number in sorted(set(numbers))]})
            for theme in draft.themes
            if (numbers := assigned[compared(theme.name)])
        ]
        stage.kept = len(themes)
        return Themes(themes=themes)

    def _key_questions(self, stage: Stage, source: ThinkAloud, draft: Themes) -> Themes:
        def complaint(index: int, value: KeyQuestions) -> str | None:
            for entry in value.questions:
                if (fault := question_fault(tidy(entry.question))) is not None:
                    return f"{entry.question!r:.80} is not a yes/no question; it {fault}."
            return _unmatched(draft.themes, [entry.component for entry in value.questions])

        reply = self._reply(stage, source, KeyQuestions, complaint, components=_listed_themes(draft.themes))
        key_questions = {compared(entry.component): tidy(entry.question) for entry in reply.questions}
        stage.kept = len(draft.themes)
        themes = [t.model_copy(update={"key_question": key_questions[compared(t.name)]}) for t in draft.themes]
        return Themes(themes=themes)

    def _sub_questions(self, stage: Stage, source: ThinkAloud, draft: Themes) -> Themes:
        _check_key_questions(draft)
        prompts = [
            self.prompts["sub_questions"].messages(
                **_about(source),
                component=f"{theme.name}: {theme.meaning}",
                attributes=numbered(theme.attributes),
                key_question=theme.key_question,
            )
            for theme in draft.themes
        ]
        replies = self._ask(
            stage, prompts, [theme.name for theme in draft.themes], Questions, _holding(*SUB_QUESTIONS)
        )
        themes = [
            theme.model_copy(update={"sub_questions": questions_of(value)})
            for theme, value in zip(draft.themes, replies, strict=True)
        ]
        stage.kept = sum(len(theme.sub_questions) for theme in themes)
        return Themes(themes=themes)

    def _validate(self, stage: Stage, source: ThinkAloud, draft: Themes) -> Themes:
        _check_key_questions(draft)
        counts = {"least": self.min_items, "most": self.max_items}
        complaint = _holding(self.min_items, self.max_items)
        reply = self._reply(stage, source, Questions, complaint, questions=_all_questions(draft.themes), **counts)
        questions = questions_of(reply)
        stage.kept = len(questions)
        return draft.model_copy(update={"questions": questions})


def _component_complaint(index: int, value: Components) -> str | None:
    count = len(value.components)
    if not 1 <= count <= MAX_COMPONENTS:
        return f"the reply holds {count} components; 1 to {MAX_COMPONENTS} are wanted."
    return _unnamed(value.components)


def _holding(least: int, most: int) -> Callable[[int, Questions], str | None]:
    """The error of a reply that does not have `least` to `most` questions, or None; see [`CorpusWriter._ask`]."""

    def complaint(index: int, value: Questions) -> str | None:
        wrong = holds_questions(index, value)
        count = 0 if wrong else len(questions_of(value))
        if wrong or least <= count <= most:
            return wrong
        return f"the reply holds {count} questions; {least} to {most} are wanted."

    return complaint


def _about(source: ThinkAloud) -> dict[str, str]:
    return {"dimension": source.dimension, "definition": source.definition}


def _unnamed(components: Sequence[Component | Theme]) -> str | None:
    """The error of components without a name of their own, or None."""
    names = [compared(component.name) for component in components]
    if names and all(names) and len(set(names)) == len(names):
        return None
    return f"each component needs a name of its own; got {', '.join(map(repr, names)) or 'none'}."


def _unmatched(themes: Sequence[Theme], got: Sequence[str]) -> str | None:
    """The error if `got` does not contain the name of each component exactly once, else None."""
    wanted = [theme.name for theme in themes]
    if sorted(map(compared, wanted)) == sorted(map(compared, got)):
        return None
    return (
        f"each component is wanted once, by its name: {', '.join(map(repr, wanted))}; got {', '.join(map(repr, got))}."
    )


def _check_key_questions(draft: Themes) -> None:
    for theme in draft.themes:
        if not theme.key_question:
            raise SampleError(f"component {theme.name!r} has no key question; run the stage 'key_questions' first.")


def _listed(themes: Sequence[Theme]) -> str:
    return "\n".join(f"- {' '.join(t.name.split())}: {' '.join(t.meaning.split())}" for t in themes)


def _listed_themes(themes: Sequence[Theme]) -> str:
    blocks = (f"{_listed([t])}\n" + "\n".join(f"  - {text}" for text in t.attributes) for t in themes)
    return "\n".join(blocks)


def _all_questions(themes: Sequence[Theme]) -> str:
    blocks = (
        "\n".join([f"{' '.join(t.name.split())}", *(f"- {q}" for q in (t.key_question, *t.sub_questions))])
        for t in themes
    )
    return "\n\n".join(blocks)
