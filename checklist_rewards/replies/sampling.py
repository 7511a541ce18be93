"""Replies of a model, sampled through the store: what was once sampled is not sampled again.

A reply is kept under everything it depends on: the model's identity, the messages, the sampling parameters with their
seed. Equal prompts are sampled once. An [`Engine`] is only built when a reply is missing, so a run whose replies are
all in the store needs none.

An engine draws the samples of one call from one seed, so a sampled text depends on what was sampled beside it. Two
rules make a rerun and a resumed run give the texts of an uninterrupted one all the same:

- the first reply that the store has of a key stays;
- chunks are cut from all the prompts asked for, before the store is looked at, and a chunk's replies are stored in one
  transaction. A killed run leaves whole chunks, so the next one asks for whole chunks: the same calls with the same
  seed.

Other prompts beside it, or another store, may draw other samples. With temperature 0 nothing is drawn: seed, `top_p`
and `n` are then no part of the key.

If the engine breaks, the replies of that chunk are unanswered("backend_error: ...") and are not stored: a rerun asks
again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Reply, Sampling, is_transient
from checklist_rewards.errors import BackendError
from checklist_rewards.store import Key, Store, key_of

logger = logging.getLogger(__name__)

CHUNK_REPLIES = 128
"""Replies per engine call: enough to keep an engine busy, few enough to store often. A constant, because samples
depend on it: were it the engine's, a run could not be cut into the same calls without building the engine."""
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
        progress (callable, *optional*): told how many of `prompts` were answered since its last call.

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
    counts = dict.fromkeys(distinct, 0)
    for key in keys:
        counts[key] += 1

    replies: dict[Key, list[Reply]] = {}
    size = max(1, CHUNK_REPLIES // asked.n)
    order = list(distinct)
    for start in range(0, len(order), size):
        chunk = order[start : start + size]
        known = {} if store is None else {key: _loaded(text) for key, text in store.get(chunk).items()}
        missing = [key for key in chunk if key not in known]
        if missing:
            fresh = _sample(engine.load(), [distinct[key] for key in missing], asked)
            known.update(zip(missing, fresh, strict=True))
            if store is not None:
                store.put((key, _dumped(known[key])) for key in missing if not _transient(known[key]))
                # Another process may have been first; then its replies are the ones that every rerun will see.
                known.update((key, _loaded(text)) for key, text in store.get(missing).items())
        replies.update(known)
        if progress is not None:
            progress(sum(counts[key] for key in chunk))
    return [replies[key] * (sampling.n if greedy else 1) for key in keys]


def _sample(backend: Backend, prompts: Sequence[Messages], sampling: Sampling) -> list[list[Reply]]:
    try:
        return backend.generate(prompts, sampling)
    except BackendError as error:
        logger.warning("%d prompts got no reply: %s", len(prompts), error)
        return [[Reply(None, unanswered=f"{BACKEND_ERROR}: {error}")] * sampling.n for _ in prompts]


def _transient(replies: Sequence[Reply]) -> bool:
    return any(is_transient(reply.unanswered) for reply in replies)


def _dumped(replies: Sequence[Reply]) -> str:
    return json.dumps([astuple(reply) for reply in replies])


def _loaded(text: str) -> list[Reply]:
    return [Reply(*fields) for fields in json.loads(text)]
