"""Replies of a model, sampled through the store: what was once sampled is not sampled again.

A reply is stored under everything it depends on: the model's identity, the messages, the sampling parameters with
their seed. Equal prompts are sampled once. An [`Engine`] is only built when a reply is missing, so a run whose replies
are all in the store needs none.

All missing prompts go to the engine in one call, so it works at its full width until the last one. Replies are stored
as they arrive, every `STORE_SECONDS`: a killed run loses at most what arrived since. A reply does not depend on the
prompts it was sampled with ([`Backend.generate`]), so a run that was interrupted and started again gives the texts of
one that was not; the first reply that the store has of a key stays. With temperature 0 nothing is drawn: seed, `top_p`
and `n` are then no part of the key.

If the engine breaks, the replies that had not arrived are unanswered("backend_error: ...") and are not stored: a rerun
asks for them again.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

from checklist_rewards.backends import Engine, Messages, Progress, Reply, Sampling, is_kept
from checklist_rewards.errors import BackendError
from checklist_rewards.files.store import Key, Store, key_of

logger = logging.getLogger(__name__)

STORE_SECONDS = 2.0
"""How often replies that arrived are written to the store."""
BACKEND_ERROR = "backend_error"
_FORMAT = "reply-2"


def sample_replies(
    engine: Engine,
    prompts: Sequence[Messages],
    sampling: Sampling,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[list[Reply]]:
    """Sample `sampling.n` replies to each prompt, asking the engine only for what the store does not have.

    Args:
        engine ([`Engine`]): who replies.
        prompts (sequence of chat messages): each a list of {"role", "content"}.
        sampling ([`Sampling`]): how.
        store ([`Store`], *optional*): where replies are kept.
        progress (callable, *optional*): called as replies arrive, with the number of `prompts` answered since its last
            call.

    Returns:
        `list[list[Reply]]`, `sampling.n` per prompt, in order. A reply that could not be had says why in `unanswered`.

    Raises:
        ModelError: if there is no such model.
    """
    greedy = sampling.temperature == 0
    asked = replace(sampling, n=1, seed=0, top_p=1.0) if greedy else sampling
    base = key_of(_FORMAT, engine.identity, json.dumps(asdict(asked), sort_keys=True))
    keys = [key_of(base, *(part for m in prompt for part in (m["role"], m["content"]))) for prompt in prompts]
    distinct = dict(zip(keys, prompts, strict=True))
    counts = Counter(keys)

    replies = {} if store is None else store.get(list(distinct), lambda _, text: _loaded(text))
    if progress is not None and replies:
        progress(sum(counts[key] for key in replies))
    missing = [key for key in distinct if key not in replies]
    if missing:
        with _Keeper(store) as keeper:

            def arrived(place: int, found: list[Reply]) -> None:
                key = missing[place]
                if key not in replies:
                    replies[key] = found
                    keeper.add(key, found)
                    if progress is not None:
                        progress(counts[key])

            backend = engine.load()
            try:
                found = backend.generate([distinct[key] for key in missing], asked, arrived)
            except BackendError as error:
                lost = [Reply(None, unanswered=f"{BACKEND_ERROR}: {error}")] * asked.n
                found = [replies.get(key, lost) for key in missing]
                logger.warning("%d prompts got no reply: %s", sum(entry is lost for entry in found), error)
            for place, entry in enumerate(found):
                arrived(place, entry)
        if store is not None:
            # Another process may have been first; then its replies are the ones that every rerun will see.
            replies.update(store.get(missing, lambda _, text: _loaded(text)))
    return [replies[key] * (sampling.n if greedy else 1) for key in keys]


class _Keeper:
    """Writes replies to the store every few seconds, and what is left when the block ends, however it ends."""

    def __init__(self, store: Store | None):
        self.store = store
        self._waiting: list[tuple[Key, str]] = []
        self._written = time.monotonic()

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, key: Key, replies: Sequence[Reply]) -> None:
        """Keep the replies to one prompt, unless one of them may be different at the next try."""
        if self.store is not None and all(map(is_kept, replies)):
            self._waiting.append((key, _dumped(replies)))
            if time.monotonic() - self._written >= STORE_SECONDS:
                self._write()

    def _write(self) -> None:
        if self.store is not None and self._waiting:
            self.store.put(self._waiting)
        self._waiting, self._written = [], time.monotonic()


def _dumped(replies: Sequence[Reply]) -> str:
    return json.dumps([[r.text, r.finish_reason, r.unanswered, r.prompt_tokens, r.completion_tokens] for r in replies])


def _loaded(text: str) -> list[Reply]:
    """What [`_dumped`] wrote. Raises `ValueError` for anything else."""
    replies = []
    for fields in json.loads(text):
        match fields:
            case [str() | None, str() | None, str() | None, int(), int()]:
                replies.append(Reply(*fields))
            case _:
                raise ValueError(f"not a reply: {fields!r:.60}")
    return replies
