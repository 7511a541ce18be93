"""Reads as whole prompts: what the engines that keep shared prefixes in a cache of their own have in common.

Such an engine takes prompts as token ids and gives the log-probabilities of named tokens as the next one.
[`read_prompts`] writes the prompts out (those that share a prefix stand together, so the engine finds it warm),
leaves out what does not fit the context, and sums the surface forms of every label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from checklist_rewards.backends.base import TOO_LONG, LabelRead, ReadGroup, ReadResult
from checklist_rewards.backends.tokens import ChatTokenizer, count_tokens
from checklist_rewards.errors import ModelError

MAX_LABEL_TOKENS = 128
"""vLLM names at most this many tokens per prompt (`MAX_LOGPROB_TOKEN_IDS`)."""

Answer = Mapping[int, float] | str
"""ln P of each token id asked for, from the softmax over the full vocabulary; or why a prompt was not answered."""

Ask = Callable[[list[list[int]], list[int]], tuple[list[Answer], int | None]]
"""Prompts and token ids in; an answer per prompt and the number of computed prompt tokens out, None if not known."""


def read_prompts(
    tokens: ChatTokenizer,
    groups: Sequence[ReadGroup],
    labels: Sequence[str],
    ask: Ask,
    *,
    limit: int,
    over_limit: str = TOO_LONG,
) -> ReadResult:
    """`Backend.read` on top of an engine's `ask`.

    Args:
        tokens ([`ChatTokenizer`]): of the model that is asked.
        groups, labels: see [`Backend`].
        ask (callable): puts prompts to the engine.
        limit (`int`): the engine's context in tokens; a prompt and the one token of its answer must fit.
        over_limit (`str`, *optional*, defaults to `"too_long"`): why a prompt above the limit is unanswered.

    Raises:
        ModelError: if the labels cannot be told apart, or have more surface forms than an engine reads at once.
    """
    forms = tokens.label_groups(labels)
    ids = sorted({token for group in forms for token in group})
    if len(ids) > MAX_LABEL_TOKENS:
        raise ModelError(
            f"this model cannot be read by label: {list(labels)} have {len(ids)} surface forms, at most "
            f"{MAX_LABEL_TOKENS} are read at once."
        )
    tokenized = tokens.groups(groups)
    reads = [[LabelRead(None, over_limit)] * len(group.tails) for group in tokenized]
    places = [(number, index) for number, group in enumerate(tokenized) for index, _ in group.fitting(limit)]
    prompts = [group.prefix + tail for group in tokenized for _, tail in group.fitting(limit)]
    answers, computed = ask(prompts, ids) if prompts else ([], 0)
    for (number, index), answer in zip(places, answers, strict=True):
        reads[number][index] = _label_read(answer, forms)
    prompt_tokens, floor_tokens = count_tokens(tokenized, limit)
    return ReadResult([tuple(group) for group in reads], prompt_tokens, computed, floor_tokens)


def _label_read(answer: Answer, forms: Sequence[tuple[int, ...]]) -> LabelRead:
    if isinstance(answer, str):
        return LabelRead(None, answer)
    return LabelRead(tuple(_logsumexp([answer[token] for token in group]) for group in forms))


def _logsumexp(values: Sequence[float]) -> float:
    top = max(values)
    if not math.isfinite(top):
        return top
    return top + math.log(math.fsum(math.exp(value - top) for value in values))
