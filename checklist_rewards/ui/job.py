"""What a batch job was asked to do: the content of `jobs/<id>.json`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from checklist_rewards.errors import SampleError
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
    price: tuple[float, float] | dict[str, tuple[float, float]] | None = None
    """US dollars per million prompt and reply tokens, of each model, or of the only one."""
    budget: float | None = Field(default=None, ge=0)
    paused: bool = False


def validated(value: Any, where: str) -> Job:
    """A job from its JSON. Raises [`SampleError`] that begins with `where`."""
    try:
        return Job.model_validate(value)
    except ValidationError as error:
        raise SampleError(f"{where}: {one_sentence(error, Job)}") from None
