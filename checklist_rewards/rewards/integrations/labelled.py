"""Rewards for hosts that ask for one sample at a time and carry the checklist in a label.

Most RL frameworks hand a reward three things: the prompt, the completion, and one value of the row that the framework
does not look into (`ground_truth`, `label`). That value is the *label* here: a checklist, which is anything that
[`Checklist.parse`] takes (a JSON string is safest through Parquet), or a mapping of `checklist` and any of `input`,
`reference` and `history`, or the JSON of one. A label's `input` stands in for a prompt that the host does not pass, or
passes only as the text of a chat template.

Calls of many threads and coroutines are grouped by a [`MicroBatcher`]. These hosts have no None: a sample of which too
little was answered raises [`Unscored`], unless a number is chosen to stand for it. A broken label raises before
anything is asked.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.rewards.configured import CONFIG_VARIABLE, configured_reward
from checklist_rewards.rewards.integrations.queue import DEFAULT_MAX_BATCH, DEFAULT_MAX_WAIT, MicroBatcher
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score

_BESIDE = ("input", "reference", "history")
_END_TOKENS = re.compile(
    r"(?:(?:<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return)\|>|</s>|<eos>|<end_of_turn>)\s*)+\Z"
)


class Unscored(BackendError):
    """The judge answered too little of a checklist for a reward."""


class SamplewiseReward:
    """What the adapters of such hosts share.

    Args:
        scorer ([`ChecklistScorer`], *optional*): answers the checklists. Instead of one, its keyword arguments may be
            given here.
        max_wait (`float`, *optional*, defaults to `0.005`): seconds that a call waits for others to share its batch.
        max_batch (`int`, *optional*, defaults to `256`): samples in one batch at most.
        unscored (`float`, *optional*): the reward of a sample that could not be scored. None raises [`Unscored`],
            because any number there moves the policy for a fault of the judge.
        keep_thinking, thinking_opened (`bool`, *optional*, default to `False`): as in `rewards.trl.ChecklistReward`.
        **scorer_arguments: of [`ChecklistScorer`].
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
            raise SampleError(f"a scorer is given, so {', '.join(scorer_arguments)} must be set on it, not here.")
        if unscored is not None and (
            isinstance(unscored, bool) or not isinstance(unscored, int | float) or not math.isfinite(unscored)
        ):
            raise SampleError(f"unscored={unscored!r} is not allowed; it is a finite number, or None to raise.")
        self.queue = MicroBatcher(
            scorer or ChecklistScorer(**scorer_arguments), max_wait=max_wait, max_batch=max_batch
        )
        self.unscored = unscored
        self.keep_thinking, self.thinking_opened = keep_thinking, thinking_opened

    def scores(self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any]) -> list[Score]:
        """Score samples; blocks.

        Args:
            labels (sequence): one per completion; see the module.
            completions, prompts (sequences of `str` or of lists of messages): a prompt may be None.

        Raises:
            SampleError, ChecklistError: naming the row (from 1), before anything is asked.
        """
        return [future.result() for future in self.queue.submit(self._samples(labels, completions, prompts))]

    async def scores_async(
        self, labels: Sequence[Any], completions: Sequence[Any], prompts: Sequence[Any]
    ) -> list[Score]:
        """Score samples without blocking the event loop; see [`scores`]."""
        return await self.queue.score_async(self._samples(labels, completions, prompts))

    def reward(self, score: Score) -> float:
        """The number a host gets. Raises [`Unscored`] where there is none and `unscored` is None."""
        if score.primary_score is not None:
            return score.primary_score
        if self.unscored is None:
            raise Unscored(unscored_reason(score))
        return float(self.unscored)

    def details(self, score: Score) -> dict[str, float]:
        """Numbers to log beside a reward, the same keys for every sample, as hosts demand; -1 where there is none."""
        numbers = {
            "pass_rate": score.pass_rate,
            "answered_weight": score.answered_weight,
            "scored": float(score.primary_score is not None),
        }
        return {f"checklist/{name}": -1.0 if value is None else value for name, value in numbers.items()}

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
    """The sample that a label, a text and a prompt (or None) make.

    Raises:
        SampleError, ChecklistError: one sentence that begins with `where`.
    """
    if isinstance(label, str):
        try:
            label = json.loads(label)
        except ValueError as error:
            raise SampleError(
                f"{where}: a label given as a string must be JSON ({error}); got {label!r:.60}."
            ) from None
    beside: dict[str, Any] = {}
    if isinstance(label, Mapping) and "checklist" in label:
        for key in label:
            if key not in ("checklist", *_BESIDE):
                raise SampleError(
                    f"{where}: unknown key {key!r} in a label; allowed: checklist, {', '.join(_BESIDE)}."
                )
        for name in _BESIDE:
            text = label.get(name)
            if text is not None and not isinstance(text, str):
                raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
            beside[name] = text
        label = label["checklist"]
    checklist = Checklist.parse(label, where)
    input, history = (None, None) if prompt is None else prompt_text(prompt)
    if beside.get("input") is not None:
        input, history = beside["input"], None
    return Sample(checklist, target, input, beside.get("reference"), beside.get("history") or history)


def answer_after(prompt: str, query: str, where: str) -> str:
    """The completion in a decoded prompt-and-completion, without the special tokens at its end.

        >>> answer_after("<|user|>Hi<|assistant|>", "<s><|user|>Hi<|assistant|>Hello.<|im_end|>", "row 1")
        'Hello.'

    Raises:
        SampleError: if the prompt does not stand in the query (it was cut to fit the context).
    """
    for name, text in (("prompt", prompt), ("query", query)):
        if not isinstance(text, str):
            raise SampleError(f"{where}: the {name} must be a string, got {type(text).__name__} {text!r:.60}.")
    _, found, answer = query.partition(prompt) if prompt else ("", "", query)
    if prompt and not found:
        raise SampleError(
            f"{where}: the query does not contain its prompt {prompt!r:.60}, so the answer is not known."
        )
    return _END_TOKENS.sub("", answer)


def unscored_reason(score: Score) -> str:
    """Why a score has no number, in one sentence."""
    why = ", ".join(f"{count} {reason}" for reason, count in score.unanswered.most_common())
    return (
        f"the judge answered {score.answered} of {score.total} items ({why or 'none unanswered'}), too few to score."
    )


def configured() -> SamplewiseReward:
    """The reward for hosts that build adapters themselves and pass no settings: one per process.

    Its settings are in the YAML file that the environment variable `CHECKLIST_REWARDS_CONFIG` names, as for
    `rewards.trl.reward`.

    Raises:
        ChecklistRewardsError: naming the file and the key, for anything that cannot be used.
    """
    return _configured(os.environ.get(CONFIG_VARIABLE))


@functools.cache
def _configured(path: str | None) -> SamplewiseReward:
    reward = configured_reward(path)
    for name, given, plain, instead in (
        ("metric", reward.metric, None, "set primary_metric, which does the same"),
        ("shaping", reward.shaping.steps, (), "these hosts get the scores as they are"),
        ("target", reward.target, "last", "these hosts pass one text"),
    ):
        if given != plain:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: {name} is for TRL's trainers; {instead}.")
    return SamplewiseReward(reward.scorer, keep_thinking=reward.keep_thinking, thinking_opened=reward.thinking_opened)
