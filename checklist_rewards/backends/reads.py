"""Reads as complete prompts, for engines that have a prefix cache.

[`read_prompts`] assembles the prompts, skips those that do not fit the context, and sums the probabilities of all
surface forms of each label. Prompts that start with the same tokens are adjacent, so the engine finds these in its
cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from checklist_rewards.backends.base import Answer, ReadGroup, Usage, not_logprobs
from checklist_rewards.backends.tokens import ChatTokenizer, Forms, TokenGroup
from checklist_rewards.backends.trees import Branch, branches_of, floor_tokens
from checklist_rewards.errors import ModelError
from checklist_rewards.scores.reasons import Reason, Unanswered

MAX_LABEL_TOKENS = 128
"""vLLM returns log-probabilities for at most this many tokens per prompt (`MAX_LOGPROB_TOKEN_IDS`)."""

TokenAnswer = Mapping[int, float] | Unanswered
"""ln P of each requested token id, from the softmax over the full vocabulary; or why there is no
answer."""

Send = Callable[[list[Branch[int]], list[int]], tuple[list[TokenAnswer], int | None]]
"""Called with prompts, each with its place among all reads, and token ids. Returns an answer per prompt, and the
number of computed prompt tokens (None if unknown)."""


def read_prompts(
    tokens: ChatTokenizer,
    groups: Sequence[ReadGroup],
    labels: Sequence[str],
    ask: Send,
    *,
    limit: int,
    over_limit: Answer = Answer(None, Unanswered(Reason.TOO_LONG)),  # noqa: B008 - a constant
    tokenized: Sequence[TokenGroup] | None = None,
) -> tuple[list[Answer], Usage]:
    """Implement `Backend.read` with a function that sends prompts to an engine.

    Args:
        tokens, groups, labels: The tokenizer of the model, and the arguments of [`Backend.read`].
        ask (callable): Sends prompts to the engine.
        limit (`int`): The context length of the engine in tokens. A prompt must leave room for one token.
        over_limit ([`Answer`], *optional*, defaults to "too_long"): The result for prompts that exceed the limit.
        tokenized (sequence of [`TokenGroup`], *optional*): The groups as token ids, if they have images.

    Returns:
        `tuple[list[Answer], Usage]`: One answer per read, and the cost of those that the engine answered.

    Raises:
        ModelError: If two labels share a token, or if the labels have too many surface forms.
    """
    forms = tokens.label_groups(labels)
    ids = sorted({token for group in forms for token in group})
    if len(ids) > MAX_LABEL_TOKENS:
        raise ModelError(
            f"this model cannot be used with the labels {list(labels)}: they have {len(ids)} surface forms in its "
            f"vocabulary, and at most {MAX_LABEL_TOKENS} are possible."
        )
    tokenized = tokens.groups(groups) if tokenized is None else tokenized
    reads = [answer for group in tokenized for answer in group.unread(over_limit)]
    branches = branches_of(tokenized, limit)
    answers, computed = ask(branches, ids) if branches else ([], 0)
    places = [place for _, tails in branches for _, place in tails]
    for place, answer in zip(places, answers, strict=True):
        reads[place] = _answer(answer, forms)
    failed = {place for place, answer in zip(places, answers, strict=True) if isinstance(answer, str)}
    prompt_tokens, floor = floor_tokens(
        (prefix, [tail for tail in tails if tail[1] not in failed] if failed else tails) for prefix, tails in branches
    )
    return reads, Usage(prompt_tokens, computed, floor)


def _answer(answer: TokenAnswer, forms: Forms) -> Answer:
    if isinstance(answer, str):
        return Answer(None, answer)
    values = [[answer[token] for token in group] for group in forms]
    if (reason := not_logprobs(list(chain.from_iterable(values)))) is not None:
        return Answer(None, reason)
    return Answer(tuple([logsumexp(group) for group in values]))


def logsumexp(values: Sequence[float]) -> float:
    """The logarithm of the sum of the exponentials of some values; -inf without values."""
    top = max(values, default=-math.inf)
    if not math.isfinite(top):
        return top
    return top + math.log(math.fsum([math.exp(value - top) for value in values]))
