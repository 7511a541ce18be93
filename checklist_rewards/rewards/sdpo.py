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
from checklist_rewards.scores import ItemScore
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
        self.feedback = ChecklistFeedback(found[0], sure)
        self.teacher_context_builder: Any = _WithFeedback(self.teacher_context_builder, self.feedback)


class ChecklistFeedback:
    """What the checklists say about the completions of the last call of a reward.

    Args:
        reward ([`ChecklistReward`]): The reward.
        sure (`float`, *optional*, defaults to `0.2`): As in [`ChecklistSDPOTrainer`].
    """

    def __init__(self, reward: ChecklistReward, sure: float = DEFAULT_SURE):
        self.reward, self.sure = reward, sure

    def texts(self) -> list[str | None]:
        """One text per completion; None where no item was failed for sure, or nothing was answered."""
        last = None if self.reward.last is None else self.reward.last.counting()
        rows = () if last is None else zip(last.samples, last.scores, strict=True)
        return [None if sample is None or score is None else self._text(sample, score) for sample, score in rows]

    def _text(self, sample: Any, score: Any) -> str | None:
        lines = tuple(line if self._is_sure(line) else replace(line, passed=None) for line in score.items)
        if score.no_answer or not any(line.passed is False for line in lines):
            return None
        return feedback_of(sample.checklist, score.model_copy(update={"items": lines}))

    def _is_sure(self, line: ItemScore) -> bool:
        yes = None if line.probabilities is None else line.probabilities.get(YES)
        return yes is None or abs(yes - 0.5) >= self.sure


class _WithFeedback:
    """The builder of TRL, with the feedback of the last scoring in place of the dataset's."""

    def __init__(self, inner: Any, feedback: ChecklistFeedback):
        self._inner, self._feedback = inner, feedback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def build(self, output: Any, prompts: Sequence[Any], rewards: Any, feedbacks: Any = None) -> Any:
        """Build the teacher's prompts."""
        return self._inner.build(output, prompts, rewards, feedbacks=self._feedback.texts())
