"""Replies with a declared shape: a pydantic model in, validated values out.

The schema travels with the request, for engines that can hold a model to it, and the prompt says the same in words for
those that cannot. A reply is therefore read tolerantly (`extract_json`: code fences, prose around the JSON, thinking,
trailing commas) and checked strictly. One that does not hold what was asked for is answered with the error, so that
the model can mend it; after `attempts` replies the request gets a [`GenerationError`] in its place, which costs this
request and no other.

    >>> class Verdict(BaseModel):
    ...     answer: Literal["yes", "no"]
    >>> ask(Engine("pocket"), [[{"role": "user", "content": "Is it short? ..."}]], Verdict)  # doctest: +SKIP
    [Verdict(answer='yes')]
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
    """The JSON value of a reply: the whole of it, what a code fence holds, or the longest value in the prose.

    Thinking is left out, and a comma before a closing bracket is forgiven.

    Raises:
        ValueError: if there is no JSON object or array.
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
        # A comma that had to be forgiven cut the value short: what the mended text holds is then the longer one.
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
    """Ask for a value of `shape` for every prompt.

    Args:
        engine ([`Engine`]): who replies.
        prompts (sequence of chat messages).
        shape (pydantic model class): what a reply must hold.
        sampling ([`Sampling`]): how; its `schema` is set here, and attempt k samples with `seed + k`.
        store ([`Store`], *optional*): where replies are kept.
        attempts (`int`, *optional*, defaults to `3`): replies per prompt at most.
        check (callable, *optional*): (index of the prompt, value) -> what is wrong with it, or None.
        progress (callable, *optional*): told how many prompts got their first reply since its last call.
        on_reply (callable, *optional*): given every reply, for what it cost.

    Returns:
        a value per prompt, in order, or in its place the [`GenerationError`] that says why there is none.
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
    """A bare list where the shape has but one field: models often leave out the object around it."""
    fields = list(shape.model_fields)
    return {fields[0]: value} if isinstance(value, list) and len(fields) == 1 else value


def _with_complaint(messages: Messages, reply: str, complaint: str) -> Messages:
    """The conversation so far, with the unusable reply and what is wrong with it."""
    return [
        *messages,
        {"role": "assistant", "content": reply},
        {"role": "user", "content": f"That cannot be used: {complaint} Reply again, with the JSON object only."},
    ]
