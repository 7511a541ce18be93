"""Structured replies: asks a model for values of a pydantic class and validates them.

The request contains the JSON schema, which some engines can enforce; for the others, the prompt must describe the
format. Replies are parsed tolerantly (`extract_json` accepts code fences, prose around the JSON, thinking, and
trailing commas) and validated strictly. If a reply is invalid, the error is sent to the model, which replies again.
After `attempts` invalid replies, the result of the request is a [`GenerationError`]; other requests are not affected.

    >>> class Answer(BaseModel):
    ...     answer: Literal["yes", "no"]
    >>> ask(Engine("pocket"), [[{"role": "user", "content": "Is it short? ..."}]], Answer)  # doctest: +SKIP
    [Answer(answer='yes')]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from checklist_rewards.backends import Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.chat import strip_thinking
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.store import Store
from checklist_rewards.replies.sampling import sample_replies

Value = TypeVar("Value", bound=BaseModel)
Check = Callable[[int, Any], str | None]

_TRAILING_COMMA = re.compile(r",(?=\s*[\]}])")
_START = re.compile(r"[\[{]")


def extract_json(text: str) -> Any:
    """Extract the longest JSON object or array from a reply, which may also contain prose and code fences.

    Thinking is ignored, and so is a comma before a closing bracket.

    Raises:
        ValueError: If the reply contains no JSON object or array.
    """
    text = strip_thinking(text)
    decoder = json.JSONDecoder()
    longest: tuple[int, Any] | None = None
    for candidate in (text, _TRAILING_COMMA.sub("", text)):
        position = 0
        while match := _START.search(candidate, position):
            try:
                value, position = decoder.raw_decode(candidate, match.start())
            except (ValueError, RecursionError):
                position = match.start() + 1
                continue
            if longest is None or position - match.start() > longest[0]:
                longest = position - match.start(), value
        # With a trailing comma, only a part of the value is valid. The value in the repaired text is then longer.
    if longest is None:
        raise ValueError("there is no JSON object in it")
    return longest[1]


def ask(
    engine: Engine,
    prompts: Sequence[Messages],
    shape: type[Value],
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    *,
    store: Store | None = None,
    attempts: int = 3,
    check: Check | None = None,
    progress: Progress | None = None,
    on_reply: Callable[[Reply], None] | None = None,
) -> list[Value | GenerationError]:
    """Ask a model for a value of the class `shape` for every prompt.

    Args:
        engine ([`Engine`]): The model that replies.
        prompts (sequence of chat messages): The prompts.
        shape (pydantic model class): The class of the values.
        sampling ([`Sampling`], *optional*): The sampling parameters. `schema` is set by this function, and attempt k
            uses `seed + k`.
        store ([`Store`], *optional*): The store of replies.
        attempts (`int`, *optional*, defaults to `3`): Maximum number of replies per prompt.
        check (callable, *optional*): Called with the index of the prompt and the value. Returns what is wrong with the
            value, or None.
        progress (callable, *optional*): Called with the number of prompts that got their first reply since the last
            call.
        on_reply (callable, *optional*): Called with every reply, for example to record its cost.

    Returns:
        `list`: One value per prompt, in order; or a [`GenerationError`] for a prompt without a valid reply.
    """
    sampling = replace(sampling, n=1, schema=json.dumps(shape.model_json_schema()))
    results: dict[int, Value | GenerationError] = {}
    pending: list[tuple[int, Messages]] = list(enumerate(prompts))
    for attempt in range(attempts):
        again: list[tuple[int, Messages]] = []
        replies = sample_replies(
            engine,
            [messages for _, messages in pending],
            replace(sampling, seed=sampling.seed + attempt),
            store,
            progress if attempt == 0 else None,
        )
        for (index, _), (reply,) in zip(pending, replies, strict=True):
            if on_reply is not None:
                on_reply(reply)
            found = _read(reply, shape, sampling.max_tokens)
            if not isinstance(found, GenerationError) and check is not None:
                complaint = check(index, found)
                found = found if complaint is None else GenerationError(complaint, reply.text or "")
            results[index] = found
            if isinstance(found, GenerationError) and reply.text is not None:
                again.append((index, _with_complaint(prompts[index], reply.text, str(found))))
        pending = again
        if not pending:
            break
    return [results[index] for index in range(len(prompts))]


def _read(reply: Reply, shape: type[Value], max_tokens: int) -> Value | GenerationError:
    if reply.text is None:
        return GenerationError(f"the model gave no reply: {reply.unanswered}.")
    try:
        return shape.model_validate(_in_its_field(extract_json(reply.text), shape))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in detail["loc"])
        complaint = detail["msg"].removeprefix("Value error, ")
        return GenerationError(f"the reply does not fit: {field + ': ' if field else ''}{complaint}.", reply.text)
    except ValueError as error:
        cut = f"; it was cut off at max_tokens={max_tokens}" if reply.finish_reason == "length" else ""
        return GenerationError(f"the reply cannot be read: {error}{cut}.", reply.text)


def _in_its_field(value: Any, shape: type[BaseModel]) -> Any:
    """Wrap a list in an object if the class has only one field: models often omit the object around it."""
    fields = list(shape.model_fields)
    return {fields[0]: value} if isinstance(value, list) and len(fields) == 1 else value


def _with_complaint(messages: Messages, reply: str, complaint: str) -> Messages:
    """The messages, extended with the invalid reply and the error."""
    return [
        *messages,
        {"role": "assistant", "content": reply},
        {"role": "user", "content": f"That cannot be used: {complaint} Reply again, with the JSON object only."},
    ]
