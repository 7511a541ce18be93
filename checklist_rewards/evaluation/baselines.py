"""The baselines of TICK (arXiv:2410.03608, section 3.3), as items for any judge.

- *direct score*: one grade from 1 to 5 for the whole response;
- *check then score*: a grade from 1 to 5 with the checklist in the prompt, without answering its questions one by one;
- *preference*: which of two responses is better, asked in both orders. Judges have a position bias, so a preference
  counts only if both orders agree; otherwise the result is a tie with `consistent=False`.

A grade is an item with the grades as options; a preference is an item with the options first, second and same. Any
judge can answer them: a [`ReasonedJudge`] reasons first, as in TICK, and a [`LogprobJudge`] reads the grade as one
token and returns its mean. Storage, usage and failures are handled by the judge. An unanswered grade is None, never a
low grade. A target without an answer is not graded.

    >>> judge = ReasonedJudge("pocket", prompt=DIRECT_PROMPT)
    >>> [grade] = direct_scores(judge, [Sample(["Is it short?"], "Hi.", "Greet me.")])  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from checklist_rewards.checklists import Checklist, ChecklistItem, Option
from checklist_rewards.judges import Ask, Judge, Progress
from checklist_rewards.judges.written import numbered
from checklist_rewards.prompts import fence
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import (
    BEST_QUALITY,
    LEAST_QUALITY,
    NO_ANSWER_STATES,
    Reason,
    Score,
    Unanswered,
    Verdict,
    score_checklist,
)
from checklist_rewards.validation import string

Winner = Literal["first", "second", "tie"]

DIRECT_PROMPT = "judges/direct_score"
PREFERENCE_PROMPT = "judges/preference"

_STEPS = BEST_QUALITY - LEAST_QUALITY
_GRADES = tuple(Option(label=str(LEAST_QUALITY + step), value=step / _STEPS) for step in range(_STEPS + 1))
_HOW_GOOD = "How good is the response as a whole?"
_WITH_CHECKLIST = (
    f"{_HOW_GOOD} Let this checklist guide you, and do not stop at it: what else is good or bad counts as well.\n\n"
)
_WINNERS: dict[str, Winner] = {"A": "first", "B": "second", "C": "tie"}
_SWAPPED: dict[Winner, Winner] = {"first": "second", "second": "first", "tie": "tie"}
_WHICH = ChecklistItem(
    question="Which response is better?",
    options=(Option(label="A", value=1), Option(label="B", value=0), Option(label="C", value=0.5)),
)


@dataclass(frozen=True, slots=True)
class Grade:
    """One response graded as a whole."""

    grade: int | None
    """From 1 to 5; None if unanswered."""
    expected: float | None
    """Mean grade under the judge's probabilities or votes; equal to `grade` without them."""
    reasoning: str | None = None
    unanswered: Unanswered | None = None


@dataclass(frozen=True, slots=True)
class ResponsePair:
    """Two responses to one input."""

    first: str
    second: str
    input: str | None = None
    reference: str | None = None
    history: str | None = None


@dataclass(frozen=True, slots=True)
class Preference:
    """Which response of a pair is better."""

    winner: Winner | None
    """None if either order is unanswered."""
    share: float | None
    """Preference for the first response, from 0 to 1: the mean over both orders, soft with probabilities."""
    consistent: bool | None
    """Whether both orders gave the same answer; otherwise the winner is a tie."""
    reasoning: tuple[str | None, str | None] = (None, None)
    """Reasoning for the original and for the swapped order."""
    unanswered: Unanswered | None = None


def direct_scores(judge: Judge, samples: Sequence[Sample], progress: Progress | None = None) -> list[Grade]:
    """Grade every sample's target from 1 to 5, without its checklist.

    Args:
        judge ([`Judge`]): a judge created with `prompt=DIRECT_PROMPT`.
        samples (sequence of [`Sample`]): the targets to grade.
        progress (callable, *optional*): called with the number of grades since its last call.

    Returns:
        `list[Grade]`: One per sample, in order.
    """
    item = ChecklistItem(question=_HOW_GOOD, options=_GRADES)
    return _grades(judge, samples, [item] * len(samples), progress)


def check_then_scores(judge: Judge, samples: Sequence[Sample], progress: Progress | None = None) -> list[Grade]:
    """Grade every sample's target from 1 to 5 with its checklist in the prompt; arguments as in
    [`direct_scores`]."""
    items = []
    for number, sample in enumerate(samples, start=1):
        checklist = Checklist.parse(sample.checklist, f"sample {number}")
        items.append(ChecklistItem(question=_WITH_CHECKLIST + numbered(checklist.items), options=_GRADES))
    return _grades(judge, samples, items, progress)


def preferences(judge: Judge, pairs: Sequence[ResponsePair], progress: Progress | None = None) -> list[Preference]:
    """Compare the responses of every pair, in both orders.

    Args:
        judge ([`Judge`]): a judge created with `prompt=PREFERENCE_PROMPT`.
        pairs (sequence of [`ResponsePair`]): the responses to compare.
        progress (callable, *optional*): called with the number of comparisons (two per pair) since its last call.

    Returns:
        `list[Preference]`: One per pair, in order.
    """
    reads: list[Ask] = []
    for number, pair in enumerate(pairs, start=1):
        for name in ("first", "second"):
            string(f"pair {number}: {name}", getattr(pair, name))
        for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
            both = f"Response A:\n{fence('response', one)}\n\nResponse B:\n{fence('response', other)}"
            reads.append(Ask(_WHICH, both, pair.input, pair.reference, pair.history, len(reads)))
    verdicts = _judged(judge, reads, progress)
    return [_preference(*verdicts[start : start + 2]) for start in range(0, len(verdicts), 2)]


def preferred(first: float | None, second: float | None) -> Winner | None:
    """The better of two scores of the same kind; None if either is None."""
    if first is None or second is None:
        return None
    return "tie" if first == second else "first" if first > second else "second"


def _grades(
    judge: Judge, samples: Sequence[Sample], items: Sequence[ChecklistItem], progress: Progress | None
) -> list[Grade]:
    reads = {}
    for index, (sample, item) in enumerate(zip(samples, items, strict=True)):
        string(f"sample {index + 1}: target", sample.target)
        if sample.target_state not in NO_ANSWER_STATES:
            reads[index] = Ask(item, sample.target, sample.input, sample.reference, sample.history, index)
    read = dict(zip(reads, _judged(judge, list(reads.values()), progress), strict=True))
    grades = []
    for index, (sample, item) in enumerate(zip(samples, items, strict=True)):
        verdict = read.get(index) or Verdict(unanswered=Unanswered(Reason.NO_ANSWER, sample.target_state))
        score = _alone(item, verdict)
        [line] = score.items
        soft = None if score.no_answer else score.expected_score
        grades.append(
            Grade(
                None if line.answer is None else int(line.answer),
                None if soft is None else LEAST_QUALITY + _STEPS * soft,
                verdict.reasoning,
                verdict.unanswered,
            )
        )
    return grades


def _judged(judge: Judge, asks: Sequence[Ask], progress: Progress | None) -> list[Verdict]:
    for number, read in enumerate(asks, start=1):
        judge.check_item(read.item, f"read {number}")
    judge.validate()
    return judge.answer(asks, progress)[0]


def _preference(given: Verdict, swapped: Verdict) -> Preference:
    reasoning = given.reasoning, swapped.reasoning
    scores = [_alone(_WHICH, verdict) for verdict in (given, swapped)]
    answers = [score.items[0].answer for score in scores]
    one, other = (score.expected_score for score in scores)
    if answers[0] is None or answers[1] is None or one is None or other is None:
        return Preference(None, None, None, reasoning, given.unanswered or swapped.unanswered)
    winner, second_look = _WINNERS[answers[0]], _SWAPPED[_WINNERS[answers[1]]]
    consistent = winner == second_look
    return Preference(winner if consistent else "tie", (one + 1 - other) / 2, consistent, reasoning)


def _alone(item: ChecklistItem, verdict: Verdict) -> Score:
    return score_checklist(Checklist(items=(item,)), [verdict])
