"""TRL's `SDPOTrainer` with the checklist as the teacher's feedback.

    >>> trainer = ChecklistSDPOTrainer(model=..., reward_funcs=ChecklistReward(scorer), ...)  # doctest: +SKIP

A group in which all completions have the same score teaches GRPO nothing, although the judge's answers say which
items each one failed. SDPO lets the policy itself, which has read feedback about its completion, be the teacher of
the policy that has not. TRL takes the feedback from a column of the dataset, so it is the same for all completions of
a prompt. This trainer makes it from the scores of the reward: one scoring gives each completion its reward and its
feedback.

The feedback names the items that a completion failed, with the required answer, and those that it passed. An item that
was not answered, or of which the judge is not sure, is left out: a judge failure never teaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trl.experimental.sdpo import SDPOTrainer

from checklist_rewards.checklists import YES
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import ItemScore, Score
from checklist_rewards.scores.feedback import feedback_of
from checklist_rewards.validation import fraction

DEFAULT_SURE = 0.2


class ChecklistSDPOTrainer(SDPOTrainer):
    """`SDPOTrainer` whose teacher reads what the checklist says about each completion. Takes the same arguments.

    Set `include_environment_feedback=True` in its configuration.

    Args:
        sure (`float`, *optional*, defaults to `0.2`):
            How far P(yes) must be from 0.5 for an answer to be part of the feedback, in [0, 0.5].

    Raises:
        SampleError: Without exactly one [`ChecklistReward`] among the rewards, or if the configuration leaves feedback
            out.
    """

    def __init__(self, *args: Any, sure: float = DEFAULT_SURE, **kwargs: Any):
        fraction("sure", sure)
        super().__init__(*args, **kwargs)
        found = [reward for reward in self.reward_funcs if isinstance(reward, ChecklistReward)]
        if len(found) != 1:
            raise SampleError(
                f"ChecklistSDPOTrainer takes its feedback from one ChecklistReward; reward_funcs has {len(found)}."
            )
        if not vars(self.args)["include_environment_feedback"]:
            raise SampleError(
                "include_environment_feedback=False would leave out the feedback of the checklist; set it to True."
            )
        self.teacher_context_builder: Any = _WithFeedback(self.teacher_context_builder, found[0], sure)


def feedback_texts(reward: ChecklistReward, sure: float = DEFAULT_SURE) -> list[str | None]:
    """What the checklists say about the completions of the last call of a reward: None where no item was failed for
    sure, or nothing was answered. `sure` is that of [`ChecklistSDPOTrainer`]."""

    def text_of(sample: Sample | None, score: Score | None) -> str | None:
        if sample is None or score is None or score.no_answer:
            return None
        lines = tuple(line if _is_sure(line, sure) else replace(line, passed=None) for line in score.items)
        failed = any(line.passed is False for line in lines)
        return feedback_of(sample.checklist, score.model_copy(update={"items": lines})) if failed else None

    last = None if reward.last is None else reward.last.counting()
    return [] if last is None else list(map(text_of, last.samples, last.scores))


def _is_sure(line: ItemScore, sure: float) -> bool:
    yes = None if line.probabilities is None else line.probabilities.get(YES)
    return yes is None or abs(yes - 0.5) >= sure


class _WithFeedback:
    """The builder of TRL, with the feedback of the last scoring in place of the dataset's."""

    def __init__(self, inner: Any, reward: ChecklistReward, sure: float):
        self._inner, self._reward, self._sure = inner, reward, sure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def build(self, output: Any, prompts: Sequence[Any], rewards: Any, feedbacks: Any = None) -> Any:
        """Build the teacher's prompts."""
        return self._inner.build(output, prompts, rewards, feedbacks=feedback_texts(self._reward, self._sure))
