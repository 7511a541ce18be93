"""Sources of the corpus-level generators, as values that can be stored in a JSON file.

Each source has `model_json_schema()`, which documents the file, and `example()`. Blank texts, unknown fields and
duplicate names are errors.

    >>> Dimensions.model_validate_json('{"dimensions": [{"name": "fluency", "definition": "It reads well."}]}').task
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from checklist_rewards.errors import SampleError
from checklist_rewards.validation import one_sentence

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
        """Parse a source from an instance of this class or a mapping, such as the content of a file.

        Raises:
            SampleError: If the value is not valid. The message names the field, the value and the error.
        """
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
