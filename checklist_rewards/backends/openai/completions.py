"""Prompt lists: many reads in one `/v1/completions` request, as supported by vLLM.

Prompts are sent as token ids. With `logprob_token_ids`, vLLM returns the exact log-probabilities of the given tokens.
They are keyed by token id, because different tokens may have the same text ("yes" and " yes").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from checklist_rewards.backends.openai.chat import broken_off
from checklist_rewards.backends.reads import Answer
from checklist_rewards.scores.reasons import Reason, Unanswered

NO_TOKENS = Unanswered(Reason.BACKEND_ERROR, "the server gave no log-probability of the label")


def body(model: str, prompts: Sequence[Sequence[int]], ids: Sequence[int]) -> dict[str, Any]:
    """Create a request for one token after each of `prompts`."""
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
    """Parse the answers to `count` prompts by their index in the response. An answer that is missing or duplicated is
    None."""
    by_index: dict[int, list[Any]] = {}
    for choice in choices:
        if isinstance(choice, dict):
            by_index.setdefault(choice.get("index", -1), []).append(choice)
    return [_answer(by_index[place][0], ids) if len(by_index.get(place, ())) == 1 else None for place in range(count)]


def _answer(choice: dict[str, Any], ids: Sequence[int]) -> Answer:
    if (reason := broken_off(choice)) is not None:
        return reason
    try:
        top = choice["logprobs"]["top_logprobs"][0]
        logprobs = {token: float(top[f"token_id:{token}"]) for token in ids}
    except (KeyError, IndexError, TypeError, ValueError):
        return NO_TOKENS
    return NO_TOKENS if any(math.isnan(value) for value in logprobs.values()) else logprobs
