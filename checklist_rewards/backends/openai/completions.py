"""Prompt lists: many reads in one `/v1/completions` request, as vLLM takes them.

Prompts travel as token ids. `logprob_token_ids` makes vLLM give the exact log-probability of the named tokens, under
keys that carry the id and not the text ("yes" and " yes" may look alike as text).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from checklist_rewards.backends.openai.chat import broken_off
from checklist_rewards.backends.reads import Answer

NO_TOKENS = "backend_error: the server gave no log-probability of the label"


def body(model: str, prompts: Sequence[Sequence[int]], ids: Sequence[int]) -> dict[str, Any]:
    """One request for one token after each of `prompts`."""
    return {
        "model": model,
        "prompt": [list(prompt) for prompt in prompts],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 1,
        "logprob_token_ids": list(ids),
        "return_tokens_as_token_ids": True,
    }


def answers(choices: Sequence[Any], ids: Sequence[int], count: int) -> list[Answer | None]:
    """An answer for each of `count` prompts, by the index that the server gives; None where it is missing, or there
    twice."""
    found: dict[int, list[Any]] = {}
    for choice in choices:
        if isinstance(choice, dict):
            found.setdefault(choice.get("index", -1), []).append(choice)
    return [_named(found[place][0], ids) if len(found.get(place, ())) == 1 else None for place in range(count)]


def _named(choice: dict[str, Any], ids: Sequence[int]) -> Answer:
    if (broken := broken_off(choice)) is not None:
        return broken
    try:
        top = choice["logprobs"]["top_logprobs"][0]
        named = {token: float(top[f"token_id:{token}"]) for token in ids}
    except (KeyError, IndexError, TypeError, ValueError):
        return NO_TOKENS
    return NO_TOKENS if any(math.isnan(value) for value in named.values()) else named
