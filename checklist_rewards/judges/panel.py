"""Several judges as one: a panel combines their answers, and a cascade asks the next judge if one is unsure.

Both are a [`JudgeGroup`]. If the server of a judge is unreachable, all its reads are unanswered and the other judges
continue. A warning is logged, and the votes of every read contain the failure. The run stops only if no judge is left.

In a [`PanelJudge`], all judges answer every item, and their answers are combined into one verdict.

    >>> panel = PanelJudge([LogprobJudge("org/one"), LogprobJudge("org/two")], weights=[2, 1])
    >>> ChecklistScorer(judge=panel).score(...)  # doctest: +SKIP

A judge that fails has no vote; a failure never counts as no. If less than `quorum` of the panel's weight answered, the
item is unanswered("quorum: 1 of 3 judges answered"). If a retry may reach the quorum, the reason includes the
transient failure ("quorum: timeout: 1 of 3 judges answered"). If the quorum is missed because servers are unreachable,
an error is raised. A judge that *abstains* (an option such as "cannot assess") has answered. If at least half of the
answers abstain, the panel abstains; otherwise abstentions are ignored. The score keeps every vote, including failures
and abstentions, and the fraction of votes that agree with the outcome.

Rules that combine probabilities; an answer without probabilities counts as certain:

| rule | outcome |
|---|---|
| mean | weighted mean of the judges' probabilities (a linear opinion pool) |
| median | the verdict with the median soft value; with an even number of judges the mean of the middle two |
| min, max | the verdict with the lowest or highest soft value |

Rules that count hard answers; soft scores use the probabilities:

| rule | outcome | probabilities |
|---|---|---|
| majority | the most frequent answer; for options it requires more than half of the votes | fractions of the votes |
| weighted | the answer with the largest total weight | fractions of the weight |
| mode | the most frequent answer | fractions of the votes |
| unanimous | yes only if all judges answer yes; options that differ are unanswered("disagreement") | 1 |
| any | yes if at least one judge answers yes; yes/no items only | 1 |

Ties go to the answer that is worst for the target: the lowest value of a positive item, the highest of a penalty.

In a [`CascadeJudge`], a cheap judge answers first, and only unsure answers go to the next judge.

    >>> cascade = CascadeJudge([LogprobJudge("org/small"), LogprobJudge("org/large")], margin=0.4)
    >>> ChecklistScorer(judge=cascade).score(...)  # doctest: +SKIP

A verdict is *sure* if its margin (the probability of its best label minus that of the second, in [0, 1]) is at least
`margin` and its label mass at least `mass`. A verdict without probabilities counts as sure. Reads that are unsure or
unanswered go to the next judge. The verdict of the last judge that answered is returned, so if a later judge fails,
the earlier answer stands. The verdicts of all judges are kept in the votes of the score.

Choose the margin offline from two scored files with `checklist-rewards cascade` (`evaluation/cascade_replay.py`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from typing_extensions import override

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.config import Config, Unchecked
from checklist_rewards.errors import ChecklistError, NoServerError, SampleError, shown
from checklist_rewards.judges.base import (
    DEFAULT_QUORUM,
    Ask,
    Judge,
    Progress,
    Receipt,
    missed_quorum,
    quorate,
)
from checklist_rewards.judges.calibration import Member
from checklist_rewards.scores import DEFAULT_THRESHOLD, Verdict, answer_of, expected
from checklist_rewards.scores.reasons import Reason, Unanswered

logger = logging.getLogger(__name__)


class JudgeGroup(Judge):
    """Two or more different judges.

    Args:
        judges (sequence of [`Judge`] or [`Member`]):
            The judges, each with a calibration if it is a [`Member`].
        what (`str`):
            Name of the group in errors, such as "panel".

    Raises:
        SampleError: For fewer than two judges, or if one is given twice.
    """

    def __init__(self, judges: Sequence[Judge | Member], what: str):
        self._members = list(map(Member.of, judges))
        if len(judges) < 2 or len({id(member.judge) for member in self._members}) < len(judges):
            raise SampleError(f"a {what} requires two or more different judges, got {len(judges)}.")
        self.judges = [member.judge if member.calibration is None else member for member in self._members]

    @override
    def parts(self) -> Iterator[Judge]:
        for member in self._members:
            yield from member.judge.parts()
        yield self

    @override
    def validate(self) -> None:
        for member in self._members:
            member.validate()

    @override
    def check_item(self, item: ChecklistItem, where: str) -> None:
        for member in self._members:
            member.check_item(item, where)

    def _names(self) -> list[str]:
        return [member.judge.name for member in self._members]


def answers_of(
    member: Member, asks: Sequence[Ask], progress: Progress | None = None
) -> tuple[list[Verdict], Receipt, NoServerError | None]:
    """The calibrated verdicts of one judge of a group, their cost, and the error if its server is unreachable: then
    all verdicts are unanswered."""
    judge, calibration = member
    spent: list[Receipt] = []

    def ask(asked: Sequence[Ask], progress: Progress | None = None) -> list[Verdict]:
        verdicts, receipt = judge.answer(asked, progress)
        spent.append(receipt)
        return verdicts

    try:
        verdicts = ask(asks, progress)
        if calibration is not None:
            verdicts = calibration.calibrated(asks, verdicts, ask)
        return verdicts, sum(spent, Receipt()), None
    except NoServerError as error:
        logger.warning("continuing without the judge %s: %s", judge.name, error)
        if progress is not None:
            progress(len(asks))
        lost = Verdict(unanswered=Unanswered(Reason.BACKEND_ERROR, str(error)), judge=judge.name)
        return [lost] * len(asks), Receipt(), error


Rule = Literal["mean", "median", "min", "max", "majority", "weighted", "mode", "unanimous", "any"]
Share = Annotated[float, Ge(0), Le(1)]
SOFT_RULES = ("mean", "median", "min", "max")


class PanelConfig(Config):
    """How the judges of a [`PanelJudge`] are combined.

    Raises:
        SampleError: For a value that is not allowed.
    """

    rule: Rule = "mean"
    """Rule that combines the answers; see the module docstring."""
    weights: Unchecked[Sequence[float] | None] = None
    """Weight of each judge, above 0; equal weights by default. Used for the quorum and by the rules `mean` and
    `weighted`."""
    quorum: Share = DEFAULT_QUORUM
    """Fraction of the weight that must have answered, in [0, 1]. With 1, a single failure leaves the item
    unanswered."""
    threshold: Share = DEFAULT_THRESHOLD
    """Lowest P(yes) at which a judge's hard answer is yes."""


class PanelJudge(JudgeGroup):
    """Several judges used as one judge.

    Args:
        judges (sequence of [`Judge`] or [`Member`]):
            Two or more judges. They are called one after the other, each with all reads.
        **settings:
            The fields of [`PanelConfig`]: `rule`, `weights`, `quorum`, `threshold`.

    Raises:
        SampleError: For invalid settings.
    """

    def __init__(self, judges: Sequence[Judge | Member], **settings: Any):
        super().__init__(judges, "panel")
        config = PanelConfig(**settings)
        self.rule: Rule = config.rule
        self.weights = _weights(config.weights, len(judges))
        self.quorum, self.threshold = config.quorum, config.threshold

    @property
    def name(self) -> str:  # type: ignore[override]
        """The rule and the names of the judges."""
        return f"{self.rule} of {', '.join(self._names())}"

    @override
    def check_item(self, item: ChecklistItem, where: str) -> None:
        if self.rule == "any" and item.options is not None:
            raise ChecklistError(f"{where}: item {item.id} has options, but the rule any supports yes/no items only.")
        super().check_item(item, where)

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        shared = None if progress is None else SharedProgress(progress, len(self.judges))
        answers = [answers_of(member, asks, shared) for member in self._members]
        errors = [error for *_, error in answers if error is not None]
        if errors and not quorate(self.weights, [error is None for *_, error in answers], self.quorum):
            raise errors[0]
        of_asks = zip(asks, zip(*(found for found, *_ in answers), strict=True), strict=True)
        verdicts = [self._combined(ask.item, votes) for ask, votes in of_asks]
        return verdicts, sum((receipt for _, receipt, _ in answers), Receipt())

    def _combined(self, item: ChecklistItem, found: Sequence[Verdict]) -> Verdict:
        """The verdicts of the judges on one item as one, with all votes; see the module docstring for the rules. The
        sign of the item's weight decides ties."""
        rule, judge = self.rule, self.name
        votes = tuple([v if v.unanswered else replace(v, answer=answer_of(item, v, self.threshold)) for v in found])
        if (missed := missed_quorum(votes, self.weights, self.quorum)) is not None:
            return Verdict(unanswered=missed, judge=judge, votes=votes)
        weights = self.weights if rule in ("mean", "weighted") else [1.0] * len(votes)
        named = [(str(v.answer), v, weight) for v, weight in zip(votes, weights, strict=True) if v.unanswered is None]
        abstained = [entry for entry in named if item.values[entry[0]] is None]
        if 2 * len(abstained) >= len(named):
            return _voted(_winner(item, abstained), named, item, judge, votes)
        named = [entry for entry in named if item.values[entry[0]] is not None]
        if rule in SOFT_RULES:
            return Verdict(_pooled(item, named, rule), judge=judge, method="panel", votes=votes)
        answers = {answer for answer, _, _ in named}
        if rule == "unanimous" and len(answers) > 1 and item.options is not None:
            different = Unanswered(Reason.DISAGREEMENT, ", ".join(sorted(answers)))
            return Verdict(unanswered=different, judge=judge, votes=votes)
        if rule in ("unanimous", "any"):
            winner = answers.pop() if len(answers) == 1 else (NO if rule == "unanimous" else YES)
            named = [entry for entry in named if entry[0] == winner]
        else:
            winner = _winner(item, named)
            heads = sum(answer == winner for answer, _, _ in named)
            if rule == "majority" and item.options is not None and 2 * heads <= len(named):
                short = Unanswered(Reason.NO_MAJORITY, f"{heads} of {len(named)} say {winner!r}")
                return Verdict(unanswered=short, judge=judge, votes=votes)
        return _voted(winner, named, item, judge, votes)


def _weights(weights: Sequence[float] | None, judges: int) -> list[float]:
    found = [1.0] * judges if weights is None else list(weights) if isinstance(weights, Iterable) else []
    if len(found) != judges or not all(isinstance(one, int | float) and 0 < one < math.inf for one in found):
        raise SampleError(
            f"weights={shown(weights)} is not allowed; it must have one number above 0 for each of {judges} judges."
        )
    return found


Named = Sequence[tuple[str, Verdict, float]]
"""The answer, the verdict and the weight of each counted judge; 1 with rules that do not weigh."""


def _winner(item: ChecklistItem, named: Named) -> str:
    support: dict[str, float] = {}
    for answer, _, weight in named:
        support[answer] = support.get(answer, 0.0) + weight
    most = max(support.values())
    tied = [label for label in item.values if label in support and support[label] >= most - 1e-9]
    # Ties go to the answer that is worst for the target. Abstentions have no value, so the first option wins.
    return min(tied, key=lambda label: (item.values[label] or 0.0) * (1 if item.weight >= 0 else -1))


def _voted(winner: str, named: Named, item: ChecklistItem, judge: str, votes: tuple[Verdict, ...]) -> Verdict:
    shares = {label: fmean([answer == label for answer, *_ in named], [w for *_, w in named]) for label in item.values}
    reasoning = next((vote.reasoning for answer, vote, _ in named if answer == winner and vote.reasoning), None)
    return Verdict(shares, winner, reasoning=reasoning, judge=judge, method="votes", votes=votes)


def _pooled(item: ChecklistItem, named: Named, rule: str) -> Mapping[str, float]:
    each = [(v.probabilities or {label: float(label == answer) for label in item.values}, w) for answer, v, w in named]
    n = len(each)
    first, end = {"mean": (0, n), "min": (0, 1), "max": (n - 1, n), "median": ((n - 1) // 2, n // 2 + 1)}[rule]
    pooled = sorted(each, key=lambda pair: expected(item.values, pair[0]) or 0.0)[first:end]
    weights = [weight for _, weight in pooled]
    return {label: fmean([one[label] for one, _ in pooled], weights) for label in item.values}


class SharedProgress:
    """Progress of several judges over the same reads: a read counts when all judges have answered it."""

    def __init__(self, progress: Progress, judges: int):
        self.progress, self.judges, self.done, self.reported = progress, judges, 0, 0

    def __call__(self, count: int) -> None:
        """Add the number of reads that one of the judges has answered."""
        self.done += count
        whole = self.done // self.judges - self.reported
        self.reported += whole
        self.progress(whole)


class CascadeConfig(Config):
    """When a [`CascadeJudge`] calls the next judge.

    Raises:
        SampleError: For a value that is not allowed.
    """

    margin: Share = 0.5
    """Lowest margin of a sure verdict, in [0, 1]. With 0, only unanswered reads go to the next judge."""
    mass: Share = 0.0
    """Lowest label mass of a sure verdict, in [0, 1]."""


class CascadeJudge(JudgeGroup):
    """Judges in order of price, used as one judge.

    Args:
        judges (sequence of [`Judge`] or [`Member`]):
            Two or more judges, the cheapest first.
        **settings:
            The fields of [`CascadeConfig`]: `margin`, `mass`.

    Raises:
        SampleError: For invalid settings.
    """

    def __init__(self, judges: Sequence[Judge | Member], **settings: Any):
        super().__init__(judges, "cascade")
        config = CascadeConfig(**settings)
        self.margin, self.mass = config.margin, config.mass

    @property
    def name(self) -> str:  # type: ignore[override]
        """The names of the judges, in their order."""
        return " then ".join(self._names())

    @override
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        verdicts: list[list[Verdict]] = [[] for _ in asks]
        open_reads = list(range(len(asks)))
        errors: list[NoServerError] = []
        receipt = Receipt()
        for stage, member in enumerate(self._members):
            if not open_reads:
                break
            answers, spent, error = answers_of(member, [asks[i] for i in open_reads])
            receipt += spent
            errors += [] if error is None else [error]
            for index, verdict in zip(open_reads, answers, strict=True):
                verdicts[index].append(verdict)
            if len(errors) == len(self.judges):
                raise errors[0]
            last = stage == len(self.judges) - 1
            unsure = [index for index in open_reads if not last and not self.sure(verdicts[index][-1])]
            if progress is not None:
                progress(len(open_reads) - len(unsure))
            open_reads = unsure
        return [self._final(votes) for votes in verdicts], receipt

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
