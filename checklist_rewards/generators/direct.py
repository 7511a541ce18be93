"""The direct generator: two to eight yes/no questions per input, as in TICK (arXiv:2410.03608, section 3.1).

The reply is parsed strictly: as a numbered list, or as JSON if `shape` is given. If it is not a usable checklist, the
model is asked again with another seed (for JSON, also with the error in the prompt), up to `max_attempts` replies in
total. Then the request gets a [`GenerationError`] with the last reply. Attempt k uses `seed + k`, so each attempt has
its own store key, and a failed request fails again without cost until the seed, the prompt or the model changes.

A reply cut off at `max_tokens` is never used, even if it contains enough questions. Requests that exceed the model's
context, and engine failures, are not retried, because another sample would not help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Unpack

from pydantic import BaseModel

from checklist_rewards.backends import Engine, Progress, Reply
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.packaged import ENGLISH_WRITER
from checklist_rewards.backends.replies import sample_values
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.generators.base import Request, check_counts, check_request
from checklist_rewards.generators.constraints import constraint_items, covering, with_constraints
from checklist_rewards.generators.shapes import ask_in_shape, items_of, list_field, parse_questions
from checklist_rewards.images import Image, images_in, words_of
from checklist_rewards.prompts import PromptTemplate, fence, load_prompt
from checklist_rewards.version import __version__
from checklist_rewards.writer import Writer, WriterKwargs, writer_of

DEFAULT_PROMPT = "generators/tick"


class DirectGenerator:
    """Writes the questions of each input with a model.

    Args:
        model (`str`, [`Engine`] or [`Writer`], *optional*): the model that writes: "pocket", a folder, a Hub id, or,
            with `base_url`, the name of a served model. Or all settings of the writer as one value.
        prompt (`str` or `Path`, *optional*): a Markdown file, or the name of a packaged prompt. `Checklist.source` is
            its file name and the version of this package ("tick/0.1.0"). A registered pipeline with its own prompt
            names itself instead ("english/0.1.0").
        shape (pydantic model class, *optional*): the JSON form of a reply: a model with one list field, of strings or
            of models with `question` and fields such as `weight` or `category` ([`WeightedQuestions`],
            [`CategorizedQuestions`], or your own; see `shapes.py`). The JSON schema is sent with the request and
            described in a last section of the prompt. Without a shape, the reply is a plain numbered list.
        min_items, max_items (`int`, *optional*, default to `2` and `8`): allowed number of questions. A reply with
            more is not truncated but requested again. The packaged prompt asks for two to eight questions.
        constraints (`bool`, *optional*, defaults to `False`): begin each checklist with the code checks that rules
            find in the input ([`ConstraintsGenerator`]), and ask the model only about the rest. `min_items` and
            `max_items` count the model's questions.
        drop_faults (`bool`, *optional*): leave out entries of a numbered list that are not one yes/no question, are
            copied from the input, name a number or a quoted string that the input does not have, or ask nothing new
            (English only); the rest is used if it has `min_items` questions. By default such a reply is refused and
            requested again, except from `"english-writer"`, which is too small to do without. `left_out` counts the
            entries by fault.
        **settings: the other fields of [`Writer`]. By default `temperature` is 0.7, `max_tokens` 512 and
            `max_attempts` 3. With `temperature=0` and without a shape there is only one attempt, because all attempts
            would give the same reply.

    Raises:
        ChecklistRewardsError: If an argument is not valid. The model is not loaded here, but at the first reply that
            is not in the store.
    """

    writing: ClassVar[WriterKwargs] = {"temperature": 0.7, "max_tokens": 512, "max_attempts": 3}

    def __init__(
        self,
        model: str | Engine | Writer = UNNAMED,
        *,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        shape: type[BaseModel] | None = None,
        min_items: int = 2,
        max_items: int = 8,
        constraints: bool = False,
        drop_faults: bool | None = None,
        **settings: Unpack[WriterKwargs],
    ):
        self.writer = writer_of(self, model, settings)
        check_counts(min_items, max_items)
        self.engine = self.writer.engine
        self.model, self.shape = self.engine.model, shape
        if shape is not None:
            list_field(shape)
            if drop_faults or self.model == ENGLISH_WRITER:
                what = "drop_faults is for" if drop_faults else f"{ENGLISH_WRITER} writes"
                raise SampleError(f"{what} numbered lists only, but replies in the shape {shape.__name__} are JSON.")
        self.prompt = load_prompt(prompt, "generator")
        self.source = f"{Path(self.prompt.name).stem}/{__version__}"
        """`Checklist.source`: name of the prompt, or of the registered pipeline it belongs to, and package version."""
        self.min_items, self.max_items = min_items, max_items
        self.constraints = constraints
        self.drop_faults = self.model == ENGLISH_WRITER if drop_faults is None else drop_faults
        self.left_out: Counter[str] = Counter()

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.writer.validate()

    def generate(
        self,
        input: str,
        reference: str | None = None,
        history: str | None = None,
        context: str | None = None,
        candidates: Sequence[str] = (),
        chosen: str | None = None,
        rejected: str | None = None,
        images: Sequence[Image] = (),
    ) -> Checklist:
        """Write the checklist of one input; see [`Request`] for the arguments.

        Raises:
            GenerationError: If no attempt gives a usable checklist; `raw` is the last reply.
        """
        request = Request(input, reference, history, context, candidates, chosen, rejected, images=images)
        checklist = self.generate_batch([request])[0]
        if isinstance(checklist, GenerationError):
            raise checklist
        return checklist

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """Write a checklist for every request. Equal requests are sampled once.

        Args:
            requests (sequence of [`Request`] or `str`): a string is a request with only an input.
            progress (callable, *optional*): called with the number of requests that got their first reply since its
                last call.

        Raises:
            SampleError: If a request is not valid. The message names its number, from 1; nothing has been sampled.
            ModelError: If the model cannot be used.
        """
        checked = [
            self.check_request(request, f"request {number}") for number, request in enumerate(requests, start=1)
        ]
        self.validate()
        return self.write_batch(checked, progress)

    def check_request(self, request: str | Request, where: str) -> Request:
        """Check one request. Raises a [`SampleError`] that begins with `where` if it is not valid, or if the writer
        cannot take an image that its prompt shows."""
        request = check_request(request, where)
        shown = [getattr(request, name) for name in ("input", "history") if name in self.prompt.placeholders]
        self.engine.check_images(images_in(*shown), f"{where}: the input")
        return request

    def write_batch(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """[`generate_batch`] for requests that [`check_request`] has already accepted."""
        items = [constraint_items(request.input) if self.constraints else [] for request in requests]
        messages = [
            covering(self.prompt.messages(**_fields(request)), covered)
            for request, covered in zip(requests, items, strict=True)
        ]
        inputs = [words_of(request.input) for request in requests]
        results: list[Checklist | GenerationError]
        if self.shape is None:
            sampled = sample_values(
                self.engine,
                messages,
                lambda place, reply: self._checklist(reply, inputs[place]),
                self.writer.sampling,
                store=self.writer.replies,
                attempts=self.writer.attempts if self.writer.sampling.temperature > 0 else 1,
                progress=progress,
            )
            results = [result for [result] in sampled]
        else:
            asked = [ask_in_shape(prompt, self.shape) for prompt in messages]
            values = self.writer.ask(asked, self.shape, self._complaint, progress=progress)
            results = [value if isinstance(value, GenerationError) else self._from_value(value) for value in values]
        return [
            result if isinstance(result, GenerationError) or not covered else with_constraints(result, covered)
            for result, covered in zip(results, items, strict=True)
        ]

    def _complaint(self, index: int, value: BaseModel) -> str | None:
        try:
            count = len(items_of(value))
            if self.min_items <= count <= self.max_items:
                self._from_value(value)
                return None
        except ValueError as error:
            return f"the reply holds no usable checklist: {str(error).rstrip('.')}."
        wanted = f"at least {self.min_items}" if count < self.min_items else f"at most {self.max_items}"
        return f"the reply holds {count} different questions; {wanted} are wanted."

    def _from_value(self, value: BaseModel) -> Checklist:
        return Checklist.parse({"items": items_of(value), "source": self.source, "model": self.model}, "the reply")

    def _checklist(self, reply: Reply, input: str) -> Checklist:
        text = reply.text or ""
        if reply.finish_reason == "length":
            most = self.writer.sampling.max_tokens
            raise GenerationError(f"the reply was cut off at max_tokens={most}; increase max_tokens.", text)
        parsed = parse_questions(
            text,
            min_items=self.min_items,
            max_items=self.max_items,
            drop_faults_of=input if self.drop_faults else None,
        )
        self.left_out.update(parsed.left_out)
        return Checklist.parse({"items": parsed.questions, "source": self.source, "model": self.model})


def _fields(request: Request) -> dict[str, str | None]:
    """The fields of a generator's prompt. Each response has its own fence, so that no response can imitate another."""
    return {
        "input": request.input,
        "reference": request.reference,
        "history": request.history,
        "context": request.context,
        "candidates": _listed("candidate", request.candidates),
        "responses": _listed("response", request.candidates),
        "chosen": request.chosen,
        "rejected": request.rejected,
    }


def _listed(name: str, texts: Sequence[str]) -> str | None:
    blocks = [f"{name.capitalize()} {number}:\n{fence(name, text)}" for number, text in enumerate(texts, start=1)]
    return "\n\n".join(blocks) or None
