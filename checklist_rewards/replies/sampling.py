"""Samples replies from a model, using the store as a cache.

The key of a stored reply contains everything on which it depends: the model's identity, the messages, and the sampling
parameters including the seed. Identical prompts are sampled once. The [`Engine`] is loaded only if a reply is missing,
so a run whose replies are all stored needs no engine.

All missing prompts are sent to the engine in one call, which keeps it fully used until the last prompt. Replies are
stored while they arrive, every `STORE_SECONDS`, so a killed run loses only the most recent ones. A reply does not
depend on the other prompts in the call ([`Backend.generate`]), so an interrupted run that is resumed gives the same
texts as an uninterrupted one. A stored reply is never replaced. With temperature 0, the seed, `top_p` and `n` have no
effect and are not part of the key.

If the engine fails, the missing replies are unanswered with the reason "backend_error: ..." and are not stored, so a
rerun samples them again.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

from checklist_rewards.backends import Engine, Messages, Progress, Reply, Sampling, is_kept
from checklist_rewards.backends.base import MISSED, is_over
from checklist_rewards.chat import CompletionReader, Target
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.files.store import Key, Store, key_of
from checklist_rewards.scores.reasons import Reason, Unanswered

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
) -> list[list[Reply]]:
    """Sample `sampling.n` replies to each prompt. Only replies that are not in the store are requested from the
    engine.

    Args:
        engine ([`Engine`]): The model that replies.
        prompts (sequence of chat messages): The prompts, each a list of {"role", "content"}.
        sampling ([`Sampling`]): The sampling parameters.
        store ([`Store`], *optional*): The store of replies.
        progress (callable, *optional*): Called while replies arrive, with the number of prompts answered since the
            last call.

    Returns:
        `list[list[Reply]]`: `sampling.n` replies per prompt, in order. If a reply is missing, its `unanswered` is the
        reason.

    Raises:
        SampleError: If a message has no role, or a content that is not text.
        ModelError: If the model does not exist.
    """
    greedy = sampling.temperature == 0
    effective = replace(sampling, n=1, seed=0, top_p=1.0) if greedy else sampling
    base = key_of(_FORMAT, engine.identity, json.dumps(asdict(effective), sort_keys=True))
    prompts = [_text_messages(prompt, f"prompt {number}") for number, prompt in enumerate(prompts, start=1)]
    keys = [key_of(base, *(part for message in prompt for part in _key_parts(message))) for prompt in prompts]
    distinct = dict(zip(keys, prompts, strict=True))
    counts = Counter(keys)

    replies = {} if store is None else store.get(list(distinct), lambda _, text: _loaded(text))
    if progress is not None and replies:
        progress(sum(counts[key] for key in replies))
    missing = [key for key in distinct if key not in replies]
    if missing:
        with _StoreWriter(store) as writer:

            def arrived(place: int, new: list[Reply]) -> None:
                key = missing[place]
                if key not in replies:
                    replies[key] = new
                    writer.add(key, new)
                    if progress is not None:
                        progress(counts[key])

            backend = engine.load()
            try:
                if is_over():
                    sampled = [[Reply(None, unanswered=MISSED)] * effective.n] * len(missing)
                else:
                    sampled = backend.generate([distinct[key] for key in missing], effective, arrived)
            except BackendError as error:
                failed = [Reply(None, unanswered=Unanswered(Reason.BACKEND_ERROR, str(error)))] * effective.n
                sampled = [replies.get(key, failed) for key in missing]
                logger.warning("%d prompts got no reply: %s", sum(entry is failed for entry in sampled), error)
            for place, entry in enumerate(sampled):
                arrived(place, entry)
        if store is not None:
            # If another process has stored replies first, use those, because every rerun will read them.
            replies.update(store.get(missing, lambda _, text: _loaded(text)))
    return [replies[key] * (sampling.n if greedy else 1) for key in keys]


def target_of(reply: Reply) -> Target:
    """What a reply answers: its text without the thought, and whether the token limit has cut it.

    Args:
        reply ([`Reply`]): A reply with a text.
    """
    completion: Any = reply.text
    if reply.thought is not None:
        completion = [{"role": "assistant", "content": reply.text, "reasoning_content": reply.thought}]
    return _READER.read(completion, cut=reply.finish_reason == "length")


class Candidate(str):
    """A text of a policy, together with the answer in it, which is what is judged.

    A plain string is a candidate too. Its answer is then found in the text alone.

    Args:
        text (`str`): the full text.
        target ([`Target`], *optional*): the answer and its state.
    """

    __slots__ = ("target",)
    target: Target

    def __new__(cls, text: str, target: Target | None = None) -> Self:
        """Read the answer from the text, if it is not given."""
        self = super().__new__(cls, text)
        if target is None:
            target = text.target if isinstance(text, Candidate) else _READER.read(text)
        self.target = target
        return self

    def __reduce__(self) -> tuple[type[Candidate], tuple[str, Target]]:
        """Copied and pickled with the answer."""
        return Candidate, (str(self), self.target)


def _text_messages(prompt: Messages, where: str) -> list[dict[str, Any]]:
    """A conversation whose contents are strings: typed blocks of text are joined, and None is ""."""
    messages: list[dict[str, Any]] = []
    for message in prompt:
        content: Any = message.get("content")
        if isinstance(content, Sequence) and not isinstance(content, str):
            if not all(isinstance(block, Mapping) and isinstance(block.get("text"), str) for block in content):
                raise SampleError(f"{where}: only text can be sent to this model, got the content {content!r:.80}.")
            content = "".join(block["text"] for block in content)
        if not isinstance(content, str | None) or not isinstance(message.get("role"), str):
            raise SampleError(f"{where}: a message needs a role and a text, got {message!r:.80}.")
        messages.append({**message, "content": content or ""})
    return messages


def _key_parts(message: Mapping[str, Any]) -> tuple[str, ...]:
    """What identifies a message: role and content, and all other fields that it has (tool calls, name, thoughts)."""
    others = {name: value for name, value in message.items() if name not in ("role", "content") and value is not None}
    parts = message["role"], message["content"]
    return parts if not others else (*parts, "fields", json.dumps(others, sort_keys=True, default=str))


class _StoreWriter:
    """Writes replies to the store every few seconds, and the rest when the block ends, also after an error."""

    def __init__(self, store: Store | None):
        self.store = store
        self._waiting: list[tuple[Key, str]] = []
        self._written = time.monotonic()

    def __enter__(self) -> _StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, key: Key, replies: Sequence[Reply]) -> None:
        """Store the replies to one prompt, unless a retry may give a different result for one of them."""
        if self.store is not None and all(map(is_kept, replies)):
            self._waiting.append((key, _dumped(replies)))
            if time.monotonic() - self._written >= STORE_SECONDS:
                self._write()

    def _write(self) -> None:
        if self.store is not None and self._waiting:
            self.store.put(self._waiting)
        self._waiting, self._written = [], time.monotonic()


def _dumped(replies: Sequence[Reply]) -> str:
    return json.dumps([_fields(reply) for reply in replies])


def _fields(reply: Reply) -> list[str | int | None]:
    fields = [reply.text, reply.finish_reason, reply.unanswered, reply.prompt_tokens, reply.completion_tokens]
    return fields if reply.thought is None else [*fields, reply.thought]


def _loaded(text: str) -> list[Reply]:
    """Parse the output of [`_dumped`]. Raises `ValueError` if it is invalid."""
    replies = []
    for fields in json.loads(text):
        match fields:
            case [str() | None, str() | None, str() | None, int(), int()]:
                replies.append(Reply(*fields))
            case [*others, str(thought)] if len(others) == 5:
                [reply] = _loaded(json.dumps([others]))
                replies.append(replace(reply, thought=thought))
            case _:
                raise ValueError(f"not a reply: {fields!r:.60}")
    return replies
