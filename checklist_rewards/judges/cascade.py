"""A cascade of judges: a cheap judge answers first, and only unsure answers go to the next judge.

    >>> cascade = CascadeJudge([LogprobJudge("org/small"), LogprobJudge("org/large")], margin=0.4)
    >>> ChecklistScorer(judge=cascade).score(...)  # doctest: +SKIP

A verdict is *sure* if its margin (the probability of its best label minus that of the second, in [0, 1]) is at least
`margin` and its label mass at least `mass`. A verdict without probabilities counts as sure. Reads that are unsure or
unanswered go to the next judge. The verdict of the last judge that answered is returned, so if a later judge fails,
the earlier answer stands. The verdicts of all judges are kept in the votes of the score.

Choose the margin offline from two scored files with `checklist-rewards cascade` (`evaluation/cascade_replay.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from checklist_rewards.errors import NoServerError
from checklist_rewards.judges.base import Judge, Progress, Read
from checklist_rewards.judges.several import JudgeGroup, judge_or_error, unreachable
from checklist_rewards.scores import Verdict
from checklist_rewards.validation import fraction

DEFAULT_MARGIN = 0.5


class CascadeJudge(JudgeGroup):
    """Judges in order of price, used as one judge.

    Args:
        judges (sequence of [`Judge`]):
            Two or more judges, the cheapest first.
        margin (`float`, *optional*, defaults to `0.5`):
            Lowest margin of a sure verdict, in [0, 1]. With 0, only unanswered reads go to the next judge.
        mass (`float`, *optional*, defaults to `0.0`):
            Lowest label mass of a sure verdict, in [0, 1].

    Raises:
        SampleError: For invalid settings.
    """

    def __init__(self, judges: Sequence[Judge], *, margin: float = DEFAULT_MARGIN, mass: float = 0.0):
        super().__init__(judges, "cascade")
        fraction("margin", margin)
        fraction("mass", mass)
        self.margin = margin
        self.mass = mass
        self.name = " then ".join(judge.name for judge in judges)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        verdicts: list[list[Verdict]] = [[] for _ in reads]
        open_reads = list(range(len(reads)))
        unreachable_errors: list[NoServerError] = []
        for stage, judge in enumerate(self.judges):
            if not open_reads:
                break
            answers = judge_or_error(judge, [reads[i] for i in open_reads])
            if isinstance(answers, NoServerError):
                unreachable_errors.append(answers)
                answers = [unreachable(judge, answers)] * len(open_reads)
            for index, verdict in zip(open_reads, answers, strict=True):
                verdicts[index].append(verdict)
            before = len(open_reads)
            if stage < len(self.judges) - 1:
                open_reads = [index for index in open_reads if not self.sure(verdicts[index][-1])]
            else:
                open_reads = []
            if len(unreachable_errors) == len(self.judges):
                raise unreachable_errors[0]
            if progress is not None:
                progress(before - len(open_reads))
        return [self._final(votes) for votes in verdicts]

    def sure(self, verdict: Verdict) -> bool:
        """Whether the verdict is final, so that the next judge is not called."""
        if verdict.unanswered is not None or (verdict.mass is not None and verdict.mass < self.mass):
            return False
        margin = margin_of(verdict)
        return margin is None or margin >= self.margin

    @staticmethod
    def _final(verdicts: Sequence[Verdict]) -> Verdict:
        last = next((verdict for verdict in reversed(verdicts) if verdict.unanswered is None), verdicts[-1])
        return last if len(verdicts) == 1 else replace(last, votes=tuple(verdicts))


def margin_of(verdict: Verdict) -> float | None:
    """P(best label) - P(second best), in [0, 1]; for yes/no |2 P(yes) - 1|. None without probabilities."""
    if verdict.probabilities is None:
        return None
    best, second = sorted(verdict.probabilities.values(), reverse=True)[:2]
    return best - second
