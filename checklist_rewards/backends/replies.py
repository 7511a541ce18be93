"""Replies of a model: sampled, with the store as a cache, and parsed as values of a given schema.

The key of a stored reply contains everything on which it depends: the model's identity, the messages, and the sampling
parameters including the seed. With temperature 0, the seed, `top_p` and `n` have no effect and are not part of the
key. Identical prompts are sampled once. The [`Engine`] is loaded only if a reply is missing.

All missing prompts are sent to the engine in one call, which keeps it fully used until the last prompt. Replies are
stored while they arrive, every `STORE_SECONDS`. A stored reply is never replaced. If the engine fails, the missing
replies are unanswered with the reason "backend_error: ..." and are not stored, so a rerun samples them again.

[`sample_values`] repeats prompts with invalid replies, for all writers and judges. [`ask`] requests values of a
pydantic class. The request contains the JSON schema, which some engines can enforce; for the others, the prompt must
describe the format. Replies are parsed tolerantly and validated strictly.

    >>> class Answer(BaseModel):
    ...     answer: Literal["yes", "no"]
    >>> ask(Engine("pocket"), [[{"role": "user", "content": "Is it short? ..."}]], Answer)  # doctest: +SKIP
    [Answer(answer='yes')]
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Reply, Sampling, is_kept
from checklist_rewards.backends.base import MISSED, is_over
from checklist_rewards.chat import CompletionReader, Target, strip_thinking
from checklist_rewards.checklists import Key, key_of
from checklist_rewards.errors import BackendError, GenerationError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.images import Image, clean, images_in, is_plain
from checklist_rewards.messages import content_of, with_images
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import in_reply

logger = logging.getLogger(__name__)

_READER = CompletionReader()
STORE_SECONDS = 2.0
"""Seconds between two writes of new replies to the store."""
_FORMAT = "reply-2"


def sample_replies(
    engine: Engine,
    prompts: Sequence[Messages],
    sampling: Sampling,
    store: Store | None = None,
    progress: Progress | None = None,
    *,
    before: Callable[[Backend], None] | None = None,
) -> list[list[Reply]]:
    """Sample `sampling.n` replies to each prompt. Only replies that are not in the store are requested from the
    engine.

    Args:
        engine, prompts, sampling: As in [`Backend.generate`].
        store ([`Store`], *optional*): The store of replies.
        progress (callable, *optional*): Called while replies arrive, with the number of prompts answered since the
            last call.
        before (callable, *optional*): Called with the loaded backend before anything is sent to it.

    Returns:
        `list[list[Reply]]`: `sampling.n` replies per prompt, in order. If a reply is missing, its `unanswered` is the
        reason.

    Raises:
        SampleError: If a message has no role, or a content that is neither text nor an image; or if it has an image,
            and the model reads text only.
        ModelError: If the model does not exist.
    """
    greedy = sampling.temperature == 0
    effective = replace(sampling, n=1, seed=0, top_p=1.0) if greedy else sampling
    base = key_of(_FORMAT, engine.identity, json.dumps(asdict(effective), sort_keys=True))
    shown = [with_images(prompt) for prompt in prompts]  # holds the images until the engine has answered
    prompts = [_text_messages(prompt, f"prompt {number}") for number, prompt in enumerate(shown, start=1)]
    for number, prompt in enumerate(prompts, start=1):
        engine.check_images(images_in(*(message["content"] for message in prompt)), f"prompt {number}")
    keys = [key_of(base, *(part for message in prompt for part in _key_parts(message))) for prompt in prompts]
    distinct = dict(zip(keys, prompts, strict=True))
    counts = Counter(keys)

    replies = {} if store is None else store.get(list(distinct), lambda _, text: _loaded(text))
    if progress is not None and replies:
        progress(sum(counts[key] for key in replies))
    missing = [key for key in distinct if key not in replies]
    if missing:
        with _storing(store) as keep:

            def arrived(place: int, new: list[Reply]) -> None:
                key = missing[place]
                if key not in replies:
                    replies[key] = new
                    keep(key, new)
                    if progress is not None:
                        progress(counts[key])

            if before is not None:
                before(engine.load())
            try:
                if is_over():
                    sampled = [[Reply(None, unanswered=MISSED)] * effective.n] * len(missing)
                else:
                    sampled = engine.generate([distinct[key] for key in missing], effective, arrived)
            except BackendError as error:
                failed = [Reply(None, unanswered=Unanswered(Reason.BACKEND_ERROR, str(error)))] * effective.n
                sampled = [replies.get(key, failed) for key in missing]
                logger.warning("%d prompts got no reply: %s", sum(entry is failed for entry in sampled), error)
            for place, entry in enumerate(sampled):
                arrived(place, entry)
        if store is not None:
            # If another process has stored replies first, use those, because every rerun will read them.
            replies.update(store.get(missing, lambda _, text: _loaded(text)))
    replies = {key: list(map(_without_marks, entry)) for key, entry in replies.items()}
    return [replies[key] * (sampling.n if greedy else 1) for key in keys]


def _without_marks(reply: Reply) -> Reply:
    """A reply whose texts contain no image."""
    if is_plain(reply.text) and is_plain(reply.thought):
        return reply
    text, thought = (None if text is None else clean(text) for text in (reply.text, reply.thought))
    return replace(reply, text=text, thought=thought)


def target_of(reply: Reply) -> Target:
    """What a reply answers: its text without the thought, and whether the token limit has cut it.

    Args:
        reply ([`Reply`]): A reply with a text.
    """
    completion: Any = reply.text
    if reply.thought is not None:
        completion = [{"role": "assistant", "content": reply.text, "reasoning_content": reply.thought}]
    return _READER.read(completion, cut=reply.finish_reason == "length")


def _text_messages(prompt: Messages, where: str) -> list[dict[str, Any]]:
    """A conversation whose contents are strings: typed blocks are joined, with the marks of images, and None is ""."""
    messages: list[dict[str, Any]] = []
    for message in prompt:
        content: Any = message.get("content")
        if isinstance(content, Sequence) and not isinstance(content, str):
            if not all(isinstance(block, Mapping) and _is_shown(block) for block in content):
                raise SampleError(
                    f"{where}: only text and images can be sent to this model, got the content {content!r:.80}."
                )
            content = content_of(message)
        if not isinstance(content, str | None) or not isinstance(message.get("role"), str):
            raise SampleError(f"{where}: a message needs a role and a text, got {message!r:.80}.")
        messages.append({**message, "content": content or ""})
    return messages


def _is_shown(block: Mapping[str, Any]) -> bool:
    return isinstance(block.get("text"), str) or isinstance(block.get("image"), Image)


def _key_parts(message: Mapping[str, Any]) -> tuple[str, ...]:
    """What identifies a message: role and content, and all other fields that it has (tool calls, name, thoughts)."""
    others = {name: value for name, value in message.items() if name not in ("role", "content") and value is not None}
    parts = message["role"], message["content"]
    return parts if not others else (*parts, "fields", json.dumps(others, sort_keys=True, default=str))


@contextmanager
def _storing(store: Store | None) -> Iterator[Callable[[Key, Sequence[Reply]], None]]:
    """Context manager that gives a function to store the replies to one prompt, unless a retry may give a different
    result for one of them. They are written every few seconds, and the rest at the end, also after an error."""
    waiting: list[tuple[Key, str]] = []
    written = time.monotonic()

    def write() -> None:
        nonlocal written
        if store is not None and waiting:
            store.put(waiting)
        waiting.clear()
        written = time.monotonic()

    def add(key: Key, replies: Sequence[Reply]) -> None:
        if store is not None and all(map(is_kept, replies)):
            waiting.append((key, _dumped(replies)))
            if time.monotonic() - written >= STORE_SECONDS:
                write()

    try:
        yield add
    finally:
        write()


def _dumped(replies: Sequence[Reply]) -> str:
    return json.dumps(
        [
            [reply.text, reply.finish_reason, reply.unanswered, reply.prompt_tokens, reply.completion_tokens]
            + ([] if reply.thought is None else [reply.thought])
            for reply in replies
        ]
    )


def _loaded(text: str) -> list[Reply]:
    """Parse the output of [`_dumped`]. Raises `ValueError` if it is invalid."""
    replies = []
    for fields in json.loads(text):
        match fields:
            case [str() | None, str() | None, str() | None, int(), int()]:
                replies.append(Reply(*fields))
            case [str() | None, str() | None, str() | None, int(), int(), str(thought)]:
                replies.append(replace(Reply(*fields[:5]), thought=thought))
            case _:
                raise ValueError(f"not a reply: {fields!r:.60}")
    return replies


Value = TypeVar("Value")
Model = TypeVar("Model", bound=BaseModel)
Check = Callable[[int, Any], str | None]
Parse = Callable[[int, Reply], Value]
Retry = Callable[[Messages, str, str], Messages]

_TRAILING_COMMA = re.compile(r",(?=\s*[\]}])")
_START = re.compile(r"""\{(?=\s*["}])|\[(?=\s*["\[{\]\-0-9tfnNI])""")
"""The beginning of a value. Most brackets in prose and code do not begin one."""
_WORK = 100_000
"""Characters of failed attempts, plus a multiple of its length, after which a reply is searched no further."""
_NESTED = 1_000
"""Characters that an attempt costs that ends in a RecursionError."""


def extract_json(text: str) -> Any:
    """Extract the last JSON object of a reply, or its last array if it has no object outside of arrays. The reply may
    also contain prose, quoted examples and code fences.

    Thinking is ignored, and so is a comma before a closing bracket.

    Raises:
        ValueError: If the reply contains no JSON object or array.
    """
    values = json_values(text)
    if not values:
        raise ValueError("there is no JSON object in it")
    return next((value for value in reversed(values) if isinstance(value, dict)), values[-1])


def json_values(text: str) -> list[Any]:
    """All JSON objects and arrays of a reply that are not part of another one, in order. The work is linear in the
    length of the reply: after too many failed attempts, the search ends."""
    text = strip_thinking(text)
    repaired = _TRAILING_COMMA.sub(" ", text)
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    values: list[Any] = []
    position, work = 0, _WORK + 8 * len(text)
    while work > 0 and (match := _START.search(text, position)):
        start = match.start()
        position = start + 1
        for candidate in dict.fromkeys((text, repaired)):
            try:
                value, position = decoder.raw_decode(candidate, start)
            except json.JSONDecodeError as error:
                work -= error.pos - start + error.pos // 64  # the error counts the lines before it
            except RecursionError:
                work -= _NESTED
            else:
                values.append(value)
                break
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. A key with several different values has their list, which no reader takes for one of
    them; `json` alone would keep the last."""
    value: dict[str, Any] = dict(pairs)
    if len(value) < len(pairs):
        for key in value:
            entries = [entry for name, entry in pairs if name == key]
            if any(entry != entries[0] for entry in entries):
                value[key] = entries
    return value


class NoReply(GenerationError):
    """The engine gave no reply, for the reason `unanswered`. `first` is the error of the previous reply, if this
    prompt was repeated, and `missing` what is missing, for the message."""

    def __init__(
        self,
        unanswered: Unanswered,
        first: GenerationError | None = None,
        missing: str = "the model gave no reply",
    ):
        super().__init__(f"{missing}: {unanswered}.")
        self.unanswered, self.first, self.missing = unanswered, first, missing

    @property
    def transient(self) -> bool:
        """Whether there may be a reply if the model is asked again."""
        return self.unanswered.transient_reason is not None

    def __reduce__(self):
        return type(self), (self.unanswered, self.first, self.missing)


def sample_values(
    engine: Engine,
    prompts: Sequence[Messages],
    parse: Parse[Value],
    sampling: Sampling,
    *,
    store: Store | None = None,
    attempts: int = 3,
    retry: Retry | None = None,
    progress: Progress | None = None,
) -> list[list[Value | GenerationError]]:
    """Sample replies, parse them, and repeat the prompts whose reply is invalid. A prompt that the engine did not
    answer is not repeated, and its [`NoReply`] is not stored.

    Args:
        engine, prompts, store: As in [`sample_replies`].
        parse (callable): Called with the index of a prompt and its reply. Returns the value, or raises
            [`GenerationError`] with what is wrong with the reply.
        sampling ([`Sampling`]): The sampling parameters. Attempt k uses `seed + k`.
        attempts (`int`, *optional*, defaults to `3`): Maximum number of replies per prompt. With `sampling.n > 1`
            there is only one attempt.
        retry (callable, *optional*): Called with the messages, the invalid reply and the error. Returns the messages
            of the next attempt. By default, the prompt is repeated unchanged.
        progress (callable, *optional*): Called with the number of prompts that got their first reply since the last
            call.

    Returns:
        `list[list]`: `sampling.n` values per prompt, in order; a [`GenerationError`] in place of a value if the reply
        is invalid, or a [`NoReply`] if the engine gave none.
    """
    results: list[list[Value | GenerationError]] = [[] for _ in prompts]
    pending = list(enumerate(prompts))
    for attempt in range(attempts if sampling.n == 1 else 1):
        replies = sample_replies(
            engine,
            [messages for _, messages in pending],
            replace(sampling, seed=sampling.seed + attempt),
            store,
            progress if attempt == 0 else None,
        )
        again: list[tuple[int, Messages]] = []
        for (index, _), group in zip(pending, replies, strict=True):
            first = next(iter(results[index]), None)
            results[index] = [_value(parse, index, reply, first) for reply in group]
            error, text = results[index][0], group[0].text
            if isinstance(error, GenerationError) and text is not None:
                prompt = prompts[index]
                again.append((index, prompt if retry is None else retry(prompt, text, str(error))))
        pending = again
        if not pending:
            break
    return results


def with_complaint(messages: Messages, reply: str, complaint: str) -> Messages:
    """The messages, extended with an invalid reply and what to tell the model about it."""
    return [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": complaint}]


def ask(
    engine: Engine,
    prompts: Sequence[Messages],
    shape: type[Model],
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    *,
    store: Store | None = None,
    attempts: int = 3,
    check: Check | None = None,
    progress: Progress | None = None,
) -> list[Model | GenerationError]:
    """Ask a model for a value of the class `shape` for every prompt, as in [`sample_values`]; `n` and `schema` of the
    sampling parameters are set here. `check` is called with the index of the prompt and the value, and returns what is
    wrong with the value, or None.

    Returns:
        `list`: One value per prompt, in order; or a [`GenerationError`] for a prompt without a valid reply.
    """
    sampling = replace(sampling, n=1, schema=json.dumps(shape.model_json_schema()))

    def parse(index: int, reply: Reply) -> Model:
        value = _parsed(reply, shape, sampling.max_tokens)
        complaint = None if check is None else check(index, value)
        if complaint is not None:
            raise GenerationError(complaint, reply.text or "")
        return value

    def retry(messages: Messages, reply: str, error: str) -> Messages:
        return with_complaint(messages, reply, f"That cannot be used: {error} Reply again, with the JSON object only.")

    results = sample_values(
        engine, prompts, parse, sampling, store=store, attempts=attempts, retry=retry, progress=progress
    )
    return [result for [result] in results]


def _value(parse: Parse[Value], index: int, reply: Reply, first: Any) -> Value | GenerationError:
    if reply.text is None:
        return NoReply(reply.unanswered or Unanswered(Reason.BACKEND_ERROR), first)
    try:
        return parse(index, reply)
    except GenerationError as error:
        return error.with_traceback(None)  # its frames hold the results of all prompts


def _parsed(reply: Reply, shape: type[Model], max_tokens: int) -> Model:
    text = reply.text or ""
    try:
        for value in reversed(json_values(text)):  # a quoted example comes before the answer
            try:
                return shape.model_validate(_in_its_field(value, shape))
            except ValidationError:
                continue
        return shape.model_validate(_in_its_field(extract_json(text), shape))
    except ValidationError as error:
        raise GenerationError(f"the reply does not fit: {in_reply(error)}.", text) from None
    except ValueError as error:
        cut = f"; it was cut off at max_tokens={max_tokens}" if reply.finish_reason == "length" else ""
        raise GenerationError(f"the reply cannot be read: {error}{cut}.", text) from None


def _in_its_field(value: Any, shape: type[BaseModel]) -> Any:
    """Wrap a list in an object if the class has only one field: models often omit the object around it."""
    fields = list(shape.model_fields)
    return {fields[0]: value} if isinstance(value, list) and len(fields) == 1 else value
