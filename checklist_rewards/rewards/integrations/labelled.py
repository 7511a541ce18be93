"""Rewards for frameworks that score one sample at a time and pass the checklist as a label.

Most RL frameworks pass a reward function the prompt, the completion, and one opaque value of the row (`ground_truth`,
`label`). Here this *label* is a checklist in any form that [`Checklist.parse`] accepts, or a mapping of `checklist`
and any of `input`, `reference` and `history`, or the JSON of either. A JSON string is the safest form in Parquet. Use
`input` if the framework passes no prompt, or only the text of a chat template.

Calls from many threads and coroutines are batched by a [`MicroBatcher`]. These frameworks have no reward None: a
sample with too few answers raises [`Unscored`], unless `unscored` sets a number for it. An invalid label raises before
the judge is called.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.rewards.integrations.queue import DEFAULT_MAX_BATCH, DEFAULT_MAX_WAIT, MicroBatcher
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score

_CONTEXT_FIELDS = ("input", "reference", "history")
_END_TOKENS = re.compile(
    r"(?:(?:<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return)\|>|</s>|<eos>|<end_of_turn>)\s*)+\Z"
)


class Unscored(BackendError):
    """The judge answered too few items of a checklist for a reward."""


class SamplewiseReward:
    """Base class of the framework adapters.

    Args:
        scorer ([`ChecklistScorer`], *optional*):
            Scorer for the completions. Alternatively, pass the keyword arguments of a [`ChecklistScorer`].
        max_wait (`float`, *optional*, defaults to `0.005`):
            Longest time in seconds that a call waits for others to share its batch.
        max_batch (`int`, *optional*, defaults to `256`):
            Maximum number of samples per batch.
        unscored (`float`, *optional*):
            Reward of a sample that could not be scored. By default [`Unscored`] is raised, because any number would
            change the policy for a failure of the judge.
        keep_thinking, thinking_opened (`bool`, *optional*, default to `False`):
            As in `rewards.trl.ChecklistReward`.
        **scorer_arguments:
            Keyword arguments of [`ChecklistScorer`].
    """

    def __init__(
        self,
        scorer: ChecklistScorer | None = None,
        *,
        max_wait: float = DEFAULT_MAX_WAIT,
        max_batch: int = DEFAULT_MAX_BATCH,
        unscored: float | None = None,
        keep_thinking: bool = False,
        thinking_opened: bool = False,
        **scorer_arguments: Any,
    ):
        if scorer is not None and scorer_arguments:
            raise SampleError(f"set {', '.join(scorer_arguments)} on the scorer, since a scorer is given.")
        if unscored is not None and (
            isinstance(unscored, bool) or not isinstance(unscored, int | float) or not math.isfinite(unscored)
        ):
            raise SampleError(f"unscored={unscored!r} is not allowed; it must be a finite number, or None to raise.")
        self.queue = MicroBatcher(
            scorer or ChecklistScorer(**scorer_arguments), max_wait=max_wait, max_batch=max_batch
        )
        self.unscored = unscored
        self.keep_thinking, self.thinking_opened = keep_thinking, thinking_opened

    def scores(self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any]) -> list[Score]:
        """Score samples, blocking until they are done.

        Args:
            labels (sequence):
                One label per completion; see the module docstring.
            completions (sequence of `str` or lists of messages):
                Completions to score.
            prompts (sequence of `str`, lists of messages or `None`):
                Their prompts.

        Returns:
            `list[Score]`: One score per completion, in order.

        Raises:
            SampleError, ChecklistError: For an invalid row, with its number from 1. The judge has not been called yet.
        """
        return [future.result() for future in self.queue.submit(self._samples(labels, completions, prompts))]

    async def scores_async(
        self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any]
    ) -> list[Score]:
        """Score samples without blocking the event loop; see [`scores`]."""
        return await self.queue.score_async(self._samples(labels, completions, prompts))

    def reward(self, score: Score) -> float:
        """The reward for the framework. Raises [`Unscored`] if the score has no number and `unscored` is None."""
        if score.primary_score is not None:
            return score.primary_score
        if self.unscored is None:
            raise Unscored(unscored_reason(score))
        return float(self.unscored)

    def details(self, score: Score) -> dict[str, float]:
        """Metrics to log with a reward; see [`score_details`]."""
        return score_details(score)

    def _samples(self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any]) -> list[Sample]:
        if not len(labels) == len(completions) == len(prompts):
            raise SampleError(
                f"expected one label and one prompt per completion, got {len(completions)} completions, "
                f"{len(labels)} labels and {len(prompts)} prompts."
            )
        rows = enumerate(zip(labels, completions, prompts, strict=True), start=1)
        return [self._sample(label, text, prompt, f"row {row}") for row, (label, text, prompt) in rows]

    def _sample(self, label: Any, completion: Any, prompt: Any, where: str) -> Sample:
        opened = self.thinking_opened or (prompt is not None and opens_thinking(prompt))
        target = completion_text(completion, keep_thinking=self.keep_thinking, opened=opened)
        return labelled_sample(label, target, prompt, where)


def labelled_sample(label: Any, target: str, prompt: Any, where: str) -> Sample:
    """The [`Sample`] of a label, a text and a prompt (or None).

    Raises:
        SampleError, ChecklistError: For an invalid label. The message starts with `where`.
    """
    if isinstance(label, str):
        try:
            label = json.loads(label)
        except ValueError as error:
            raise SampleError(
                f"{where}: a label that is a string must be JSON ({error}), got {label!r:.60}."
            ) from None
    context: dict[str, Any] = {}
    if isinstance(label, Mapping) and "checklist" in label:
        for key in label:
            if key not in ("checklist", *_CONTEXT_FIELDS):
                raise SampleError(
                    f"{where}: unknown key {key!r} in a label; allowed: checklist, {', '.join(_CONTEXT_FIELDS)}."
                )
        for name in _CONTEXT_FIELDS:
            text = label.get(name)
            if text is not None and not isinstance(text, str):
                raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
            context[name] = text
        label = label["checklist"]
    checklist = Checklist.parse(label, where)
    input, history = (None, None) if prompt is None else prompt_text(prompt)
    if context.get("input") is not None:
        input, history = context["input"], None
    return Sample(checklist, target, input, context.get("reference"), context.get("history") or history)


def answer_after(prompt: str, query: str, where: str) -> str:
    """Extract the completion from a decoded query (prompt and completion), without special tokens at its end.

        >>> answer_after("<|user|>Hi<|assistant|>", "<s><|user|>Hi<|assistant|>Hello.<|im_end|>", "row 1")
        'Hello.'

    Raises:
        SampleError: If the query does not contain the prompt, for example because it was truncated.
    """
    for name, text in (("prompt", prompt), ("query", query)):
        if not isinstance(text, str):
            raise SampleError(f"{where}: the {name} must be a string, got {type(text).__name__} {text!r:.60}.")
    _, match, answer = query.partition(prompt) if prompt else ("", "", query)
    if prompt and not match:
        raise SampleError(
            f"{where}: the query does not contain its prompt {prompt!r:.60}, so the answer cannot be extracted; was "
            "the prompt truncated?"
        )
    return _END_TOKENS.sub("", answer)


def score_details(score: Score) -> dict[str, float]:
    """Metrics to log with a reward. Frameworks require the same keys for every sample; a missing value is -1."""
    numbers = {
        "pass_rate": score.pass_rate,
        "answered_weight": score.answered_weight,
        "scored": float(score.primary_score is not None),
    }
    return {f"checklist/{name}": -1.0 if value is None else value for name, value in numbers.items()}


def unscored_reason(score: Score) -> str:
    """Why a score has no number, as one sentence."""
    why = ", ".join(f"{count} {reason}" for reason, count in score.unanswered.most_common())
    return (
        f"the judge answered {score.answered} of {score.total} items ({why or 'none unanswered'}), too few to score."
    )
