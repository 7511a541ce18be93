"""What corpus-level generators work from, as plain values that a JSON file can hold.

Each has `model_json_schema()`, which documents the file, and `example()`, which is one. Blank texts, unknown fields
and names that occur twice are refused.

    >>> Dimensions.model_validate_json('{"dimensions": [{"name": "fluency", "definition": "It reads well."}]}').task
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from checklist_rewards.errors import SampleError

AnySource = TypeVar("AnySource", bound="Source")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is blank")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]


class Source(BaseModel):
    """Base of all sources."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls: type[AnySource], value: Any) -> AnySource:
        """The value itself, or what a mapping (a file's content) describes.

        Raises:
            SampleError: one sentence that names the field, what was got and what is wrong with it.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise SampleError(f"expected a {cls.__name__} or a mapping, got {type(value).__name__} {value!r:.60}.")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in detail["loc"])
            message = detail["msg"].removeprefix("Value error, ")
            got = "" if detail["type"] == "missing" else f", got {detail['input']!r:.60}"
            raise SampleError(f"{cls.__name__}{f': {place}' if place else ''}: {message}{got}.") from None


class Feedback(Source):
    """Observations about the texts of a corpus: complaints, review comments, notes."""

    observations: list[Text] = Field(min_length=1)
    """One remark each. Items of the checklist name them by their index, from 0."""
    domain: Text | None = None
    """What the texts are, such as "summaries of news articles"."""

    @classmethod
    def example(cls) -> Feedback:
        """A small one."""
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
    """One quality that texts shall have."""

    name: Text
    """Becomes the category of its questions."""
    definition: Text
    sub_dimensions: list[Text] = []
    """Parts of it that the questions shall cover."""
    seed_questions: list[Text] = []
    """Questions to begin with; without any, a model writes them."""


class Dimensions(Source):
    """The qualities that a checklist shall cover."""

    dimensions: list[Dimension] = Field(min_length=1)
    task: Text | None = None
    """What the texts are for, such as "Summarize a news article"."""

    @model_validator(mode="after")
    def _each_once(self) -> Dimensions:
        names = [dimension.name.casefold() for dimension in self.dimensions]
        if len(set(names)) != len(names):
            raise ValueError(f"two dimensions share a name: {', '.join(names)}")
        return self

    @classmethod
    def example(cls) -> Dimensions:
        """A small one."""
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
    """What people and models said when they thought aloud about one quality of some texts."""

    dimension: Text
    """Becomes the category of the questions."""
    definition: Text
    human: list[Text] = []
    """Attributes that people named."""
    model: list[Text] = []
    """Attributes that models named."""

    @model_validator(mode="after")
    def _some_attribute(self) -> ThinkAloud:
        if not self.attributes:
            raise ValueError("there are no attributes; human or model must hold at least one")
        return self

    @property
    def attributes(self) -> list[str]:
        """All attributes, people's first, each once."""
        return list(dict.fromkeys(" ".join(text.split()) for text in (*self.human, *self.model)))

    @classmethod
    def example(cls) -> ThinkAloud:
        """A small one."""
        return cls(
            dimension="coherence",
            definition="The sentences of the summary form one text, in an order that makes sense.",
            human=["I look whether each sentence follows from the one before.", "Pronouns must be clear."],
            model=["Events are told in order.", "There is one main topic.", "No sudden change of subject."],
        )
