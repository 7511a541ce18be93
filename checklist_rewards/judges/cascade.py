"""A cascade: a cheap judge answers first, and only what it is unsure of goes to the next one.

    >>> cascade = CascadeJudge([LogprobJudge("org/small"), LogprobJudge("org/large")], margin=0.4)
    >>> ChecklistScorer(judge=cascade).score(...)  # doctest: +SKIP

A verdict is *sure* if its margin (the probability of its best label less that of the second, in [0, 1]) is at least
`margin` and its label mass at least `mass`. What is not sure, or not answered at all, goes on. The verdict of the last
judge that answered stands; if a later judge fails, what an earlier one said still does, since it was an answer. A
judge that names a label without probabilities is sure of it. Who said what before is kept in the votes of the score.

Which margin is worth its price is found offline from two scored files, without asking anybody: `replay.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from checklist_rewards.errors import NoServerError
from checklist_rewards.judges.base import Judge, Progress, Read
from checklist_rewards.judges.several import Several, ask, share, silence
from checklist_rewards.scores import Verdict

DEFAULT_MARGIN = 0.5


class CascadeJudge(Several):
    """Judges in order of their price, as one.

    Args:
        judges (sequence of [`Judge`]): two or more, the cheapest first.
        margin (`float`, *optional*, defaults to `0.5`): least margin of a verdict that is sure, in [0, 1]. With 0 only
            what was not answered goes on.
        mass (`float`, *optional*, defaults to `0`): least label mass of a verdict that is sure, in [0, 1].

    Raises:
        SampleError: for settings that cannot be used.
    """

    def __init__(self, judges: Sequence[Judge], *, margin: float = DEFAULT_MARGIN, mass: float = 0.0):
        super().__init__(judges, "cascade")
        share("margin", margin)
        share("mass", mass)
        self.margin = margin
        self.mass = mass
        self.name = " then ".join(judge.name for judge in judges)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        said: list[list[Verdict]] = [[] for _ in reads]
        open_reads = list(range(len(reads)))
        gone: list[NoServerError] = []
        for stage, judge in enumerate(self.judges):
            if not open_reads:
                break
            answers = ask(judge, [reads[i] for i in open_reads])
            if isinstance(answers, NoServerError):
                gone.append(answers)
                answers = [silence(judge, answers)] * len(open_reads)
            for index, verdict in zip(open_reads, answers, strict=True):
                said[index].append(verdict)
            before = len(open_reads)
            if stage < len(self.judges) - 1:
                open_reads = [index for index in open_reads if not self.sure(said[index][-1])]
            else:
                open_reads = []
            if len(gone) == len(self.judges):
                raise gone[0]
            if progress is not None:
                progress(before - len(open_reads))
        return [self._final(verdicts) for verdicts in said]

    def sure(self, verdict: Verdict) -> bool:
        """Whether the next judge need not be asked."""
        if verdict.unanswered is not None or (verdict.mass is not None and verdict.mass < self.mass):
            return False
        found = margin_of(verdict)
        return found is None or found >= self.margin

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
