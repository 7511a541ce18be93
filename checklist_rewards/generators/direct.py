"""The direct generator: one input becomes two to eight yes/no questions, as in TICK (arXiv:2410.03608, section 3.1).

The prompt is filled with the input (and the reference, the conversation ..., where there are any), a reply is sampled
through the store, and read strictly: as a numbered list, or where a `shape` is given as JSON of that shape. A reply
that holds no usable checklist is asked for again with another seed (and of JSON with the error shown), up to
`max_attempts` samples in all; then the request gets a [`GenerationError`] with the last reply. Attempt k samples with
`seed + k`, so every attempt has a key of its own and a rerun finds them all in the store: it fails where it failed, at
no cost, until the seed, the prompt or the model changes.

A reply cut off at `max_tokens` is no checklist, however many questions it holds by then. A request that does not fit
the model's context, or whose engine broke, is not tried again: another sample would not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.generators.base import Request, check_numbers, check_request
from checklist_rewards.generators.parsing import parse_questions
from checklist_rewards.generators.shapes import ask_in_shape, items_of, list_field
from checklist_rewards.prompts import PromptTemplate, fence, load_prompt
from checklist_rewards.replies import ask, sample_replies
from checklist_rewards.version import __version__

DEFAULT_PROMPT = "generators/tick"


class DirectGenerator:
    """Asks a model for the questions of one input.

    Args:
        model (`str`, *optional*, defaults to `"pocket"`): the model that writes: "pocket", a folder, a Hub id, or with
            `base_url` the name the server knows it by.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): auto, transformers, vllm, openai, or an
            engine.
        base_url (`str`, *optional*): an OpenAI-compatible server, such as "http://localhost:8000/v1".
        prompt (`str` or `Path`, *optional*): a Markdown file, or the name of a packaged prompt. Its file name becomes
            the first half of `Checklist.source`, the version of this package the second ("tick/0.1.0").
        shape (pydantic model class, *optional*): what a reply must hold, as JSON: a model with one list field, of
            strings or of models with `question` and, say, `weight` or `category` ([`WeightedQuestions`],
            [`CategorizedQuestions`], one's own; see `shapes.py`). The schema travels with the request, and the prompt
            gets a last section that says it in words. Without a shape a plain numbered list is wanted.
        min_items, max_items (`int`, *optional*, default to `2` and `8`): how many questions a checklist may have; a
            reply with more is not cut but asked for again. The packaged prompt asks for two to eight in words.
        temperature (`float`, *optional*, defaults to `0.7`): of the sampling. With 0 and without a shape every attempt
            would give the same reply, so there is only one.
        max_tokens (`int`, *optional*, defaults to `512`): of one reply. A model that thinks first needs more.
        max_attempts (`int`, *optional*, defaults to `3`): samples per request.
        seed (`int`, *optional*, defaults to `0`): of the first attempt.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where replies are kept; False for nowhere.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used. No model is loaded here: that
            happens at the first reply that is not in the store.
    """

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        shape: type[BaseModel] | None = None,
        min_items: int = 2,
        max_items: int = 8,
        temperature: float = 0.7,
        max_tokens: int = 512,
        max_attempts: int = 3,
        seed: int = 0,
        store: bool | str | Path | Store = True,
    ):
        check_numbers(temperature, min_items=min_items, max_tokens=max_tokens, max_attempts=max_attempts)
        if max_items < min_items:
            raise SampleError(f"max_items={max_items!r} is not allowed; it is at least min_items, {min_items}.")
        if shape is not None:
            list_field(shape)
        self.engine = Engine.of(model, backend, base_url)
        self.model, self.shape = self.engine.model, shape
        self.prompt = load_prompt(prompt, "generator")
        self.min_items, self.max_items = min_items, max_items
        self.temperature, self.max_tokens, self.seed = temperature, max_tokens, seed
        self.max_attempts = max_attempts if temperature > 0 or shape is not None else 1
        self.store = open_store(store)

    @property
    def source(self) -> str:
        """Pipeline and version, as `Checklist.source` has them."""
        return f"{Path(self.prompt.name).stem}/{__version__}"

    def check(self) -> None:
        """Refuse a model that is not there. Raises [`ModelError`]."""
        _ = self.engine.identity

    def generate(
        self,
        input: str,
        reference: str | None = None,
        history: str | None = None,
        context: str | None = None,
        candidates: Sequence[str] = (),
        chosen: str | None = None,
        rejected: str | None = None,
    ) -> Checklist:
        """Write the checklist of one input; see [`Request`] for the arguments.

        Raises:
            GenerationError: if no attempt gave a usable checklist; `raw` is the last reply.
        """
        request = Request(input, reference, history, context, candidates, chosen, rejected)
        checklist = self.generate_batch([request])[0]
        if isinstance(checklist, GenerationError):
            raise checklist
        return checklist

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """Write a checklist for every request. Equal requests are sampled once.

        Args:
            requests (sequence of [`Request`] or `str`): a string is a request with nothing but an input.
            progress (callable, *optional*): told how many requests got their first reply since its last call.

        Returns:
            list of [`Checklist`] or, in its place, the [`GenerationError`] that says why there is none; in order.

        Raises:
            SampleError: naming a request (from 1) that cannot be used, before anything is sampled.
            ModelError: if the model cannot be used.
        """
        checked = [
            self.check_request(request, f"request {number}") for number, request in enumerate(requests, start=1)
        ]
        self.check()
        return self._write(checked, progress)

    def check_request(self, request: str | Request, where: str) -> Request:
        """The request, refused with a [`SampleError`] that begins with `where` if it cannot be used."""
        return check_request(request, where)

    def _write(self, requests: Sequence[Request], progress: Progress | None) -> list[Checklist | GenerationError]:
        messages = [self.prompt.messages(**_fields(request)) for request in requests]
        return self._write_list(messages, progress) if self.shape is None else self._write_json(messages, progress)

    def _write_list(
        self, messages: Sequence[Messages], progress: Progress | None
    ) -> list[Checklist | GenerationError]:
        results: dict[int, Checklist | GenerationError] = {}
        pending = list(range(len(messages)))
        for attempt in range(self.max_attempts):
            sampling = Sampling(self.max_tokens, self.temperature, seed=self.seed + attempt)
            told = progress if attempt == 0 else None
            replies = sample_replies(self.engine, [messages[i] for i in pending], sampling, self.store, told)
            again = []
            for index, (reply,) in zip(pending, replies, strict=True):
                try:
                    results[index] = self._checklist(reply)
                except GenerationError as error:
                    results[index] = error
                    if reply.unanswered is None:
                        again.append(index)
            pending = again
        return [results[index] for index in range(len(messages))]

    def _write_json(
        self, messages: Sequence[Messages], progress: Progress | None
    ) -> list[Checklist | GenerationError]:
        assert self.shape is not None
        values = ask(
            self.engine,
            [ask_in_shape(prompt, self.shape) for prompt in messages],
            self.shape,
            Sampling(self.max_tokens, self.temperature, seed=self.seed),
            store=self.store,
            attempts=self.max_attempts,
            check=self._complaint,
            progress=progress,
        )
        return [value if isinstance(value, GenerationError) else self._from_value(value) for value in values]

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

    def _checklist(self, reply: Reply) -> Checklist:
        if reply.text is None:
            raise GenerationError(f"the model gave no reply: {reply.unanswered}.")
        if reply.finish_reason == "length":
            raise GenerationError(f"the reply was cut off at max_tokens={self.max_tokens}; allow more.", reply.text)
        found = parse_questions(reply.text, min_items=self.min_items, max_items=self.max_items)
        return Checklist.parse({"items": found.questions, "source": self.source, "model": self.model})


def _fields(request: Request) -> dict[str, str | None]:
    """The placeholders of a generator's prompt. Responses are fenced one by one, so that none can pose as another."""
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
