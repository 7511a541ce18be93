"""Variance of the judge and variance of the texts, from repeated answers.

Every question about every text is answered K times: reworded, or sampled again (`judges/variants.py`). A difference
between repeats is the judge's; a difference between texts that all repeats agree on is the texts'. The components are
analysis-of-variance estimates of random effects (Searle, Casella and McCulloch 1992, chapter 4), cut off at 0:

    prompt + text within the prompt + repeat + residual

`repeat` is a shift of all texts, as by a strict wording, which cancels in the advantages of a group. `judge` is repeat
+ residual, the variance of one answer; the mean of k repeats has judge / k. If no prompt has two texts, `text`
contains the prompt. The scores and every item are estimated in this way.

Intervals resample prompts, so they hold for the items. If the repeats are wordings of one checklist, other wordings
would shift the scores by other amounts. The intervals of `repeat`, `judge` and `judge_share` are then widened by the
error of the mean square of repeats, whose distribution is chi-squared (the modified large-sample method: Burdick and
Graybill 1992, chapter 3), and need 4 repeats. If answers are sampled again, `repeat` is 0 but for noise, and has no
interval. Components between texts and prompts need 200 prompts. A text is left out of an estimate if one of its
repeats is unanswered. A text without an answer, which no judge has read, is left out of all estimates. Only sums are
kept, a few numbers per prompt. The analysis of variance of statsmodels needs all rows in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Result, Totals
from checklist_rewards.evaluation.intervals import NO_INTERVAL, SHARE, Rule
from checklist_rewards.scores import Score, item_keys
from checklist_rewards.validation import import_extra, np

MOST_ITEMS = 1000
"""Items of a result: those with the largest judge variance."""
_WITH_INTERVALS = 50
_LEAST_WORDINGS = 4
_TEXTS = Rule(groups=200, least=0.0)  # not a share: it may be 0


class Components(Result):
    """Variance components of one quantity."""

    texts: int
    prompts: int
    """Groups that the intervals resample."""
    figures: dict[str, Figure]
    """Variances by component, in squared units of the score; and `judge_share`, the judge's part of the total."""


class ItemVariance(Components):
    """Variance components of one item."""

    id: str
    question: str


class VarianceReport(Result):
    """Variance components of a file, and the repeats that a precision needs."""

    how: str
    """ "reworded" or "resampled"."""
    repeats: int
    rows: int
    incomplete: int
    """Rows without a score in one of the repeats."""
    no_answer: int
    """Rows that no judge has read, because the text has no answer."""
    scores: Components | None
    items: tuple[ItemVariance, ...]
    all_items: int
    precision: float
    needed: int | None
    """Repeats whose mean score has a standard error of at most `precision`."""


@dataclass
class _Nested:
    """Sums of one quantity by prompt: n, n², total, sum of squared text means x K, sum of squares, and by repeat."""

    repeats: int
    by_prompt: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, prompt: str, values: np.ndarray) -> None:
        sums = self.by_prompt.get(prompt)
        if sums is None:
            sums = self.by_prompt[prompt] = np.zeros(4 + self.repeats)
        total = values.sum()
        sums[:4] += 1, total, total**2 / self.repeats, values @ values
        sums[4:] += values

    def totals(self, reworded: bool = False) -> Totals:
        sums = np.array(list(self.by_prompt.values()))
        n, total, between = sums[:, 0], sums[:, 1], sums[:, 2]
        within = between - total**2 / (n * self.repeats)
        vectors = np.column_stack([np.ones(len(sums)), n**2, within, sums])
        rules = {
            **dict.fromkeys(("prompt", "text"), _TEXTS),
            **dict.fromkeys(("residual", "judge", "judge_share"), SHARE),
            "repeat": Rule(least=0.0) if reworded else NO_INTERVAL,
        }
        return Totals(vectors, self._components, rules, dict.fromkeys(rules, n))

    @property
    def texts(self) -> int:
        return int(sum(sums[0] for sums in self.by_prompt.values()))

    def _components(self, sums: np.ndarray) -> dict[str, float]:
        prompts, squares, within, n, total, between, every = sums[:7]
        k, by_repeat = self.repeats, sums[7:]
        undefined = dict.fromkeys(("prompt", "text", "repeat", "residual", "judge", "judge_share"), math.nan)
        if n < 2:
            return undefined
        correction = total**2 / (n * k)
        ss_texts, ss_repeats = between - correction, by_repeat @ by_repeat / n - correction
        residual = max(0.0, every - correction - ss_texts - ss_repeats) / ((n - 1) * (k - 1))
        repeat = max(0.0, (ss_repeats / (k - 1) - residual) / n)
        prompt = math.nan
        if n > prompts:
            text = max(0.0, (within / (n - prompts) - residual) / k)
            if prompts > 1:
                spread = ss_texts - (n - 1) * (residual + k * text)
                prompt = max(0.0, spread / (k * (n - squares / n)))
        else:
            text = max(0.0, (ss_texts / (n - 1) - residual) / k)
        judge = repeat + residual
        whole = judge + text + (0.0 if math.isnan(prompt) else prompt)
        share = judge / whole if whole > 0 else math.nan
        named = {"prompt": prompt, "text": text, "repeat": repeat, "residual": residual}
        return {**named, "judge": judge, "judge_share": share}


class Variance:
    """Collects repeated scores, and computes variance components.

    Args:
        repeats (`int`): scores per text, at least 2.
    """

    def __init__(self, repeats: int):
        self.repeats = repeats
        self.rows = self.incomplete = self.no_answer = 0
        self._scores = _Nested(repeats)
        self._items: dict[str, _Nested] = {}
        self._questions: dict[str, str] = {}

    def add(self, prompt: str, scores: Sequence[Score]) -> None:
        """Add a text.

        Args:
            prompt (`str`): identity of its prompt.
            scores (sequence of [`Score`]): one per repeat, of the same items.
        """
        self.rows += 1
        if any(score.no_answer for score in scores):
            self.no_answer += 1
            return
        values = [score.primary_score for score in scores]
        if None in values:
            self.incomplete += 1
        else:
            self._scores.add(prompt, np.array(values, dtype=float))
        keys = item_keys(scores[0].items)
        for key, *lines in zip(keys, *(score.items for score in scores), strict=True):
            if all(line.by_code for line in lines):
                continue
            answers = [line.soft for line in lines]
            if None not in answers:
                self._questions.setdefault(key, lines[0].question)
                self._items.setdefault(key, _Nested(self.repeats)).add(prompt, np.array(answers, dtype=float))

    def result(self, how: str, bootstrap: Bootstrap, precision: float) -> VarianceReport:
        """Compute the components.

        Args:
            how (`str`): how the answers were repeated.
            bootstrap ([`Bootstrap`]): settings of the intervals.
            precision (`float`): wanted standard error of a score, above 0.
        """
        wordings = self.repeats if how == "reworded" else None
        scores = _components(self._scores, bootstrap, wordings) if self._scores.by_prompt else None
        judge = None if scores is None else scores.figures["judge"].value
        items = sorted(self._items.items(), key=lambda item: -_judge(item[1]))[:MOST_ITEMS]
        without = Bootstrap(0, bootstrap.seed)
        return VarianceReport(
            how=how,
            repeats=self.repeats,
            rows=self.rows,
            incomplete=self.incomplete,
            no_answer=self.no_answer,
            scores=scores,
            items=tuple(
                ItemVariance(
                    id=id,
                    question=self._questions[id],
                    **_components(sums, bootstrap if place < _WITH_INTERVALS else without, wordings).model_dump(),
                )
                for place, (id, sums) in enumerate(items)
            ),
            all_items=len(self._items),
            precision=precision,
            needed=None if judge is None else max(1, math.ceil(judge / precision**2 - 1e-9)),
        )


def _components(sums: _Nested, bootstrap: Bootstrap, wordings: int | None) -> Components:
    totals = sums.totals(wordings is not None)
    figures = bootstrap.figures(totals, list(sums.by_prompt))
    if wordings is not None:
        figures |= _for_other_wordings(figures, sums.texts, wordings)
    return Components(texts=sums.texts, prompts=totals.units, figures=figures)


def _for_other_wordings(figures: Mapping[str, Figure], texts: int, wordings: int) -> dict[str, Figure]:
    """The figures that depend on the wordings, with intervals that hold for other wordings too."""
    found = {name: figures[name] for name in ("repeat", "judge", "judge_share") if figures[name].low is not None}
    if wordings < _LEAST_WORDINGS:
        reason = f"needs {_LEAST_WORDINGS} repeats, has {wordings}"
        return {name: Figure(value=figure.value, refused=reason) for name, figure in found.items()}
    repeat, residual, judge, share = (
        figures[name].value or 0.0 for name in ("repeat", "residual", "judge", "judge_share")
    )
    [stats] = import_extra("scipy.stats")
    ratios = (wordings - 1) / stats.chi2.ppf([0.975, 0.025], wordings - 1)
    ends = judge + (repeat + residual / texts) * (ratios - 1)  # of the judge's variance, if all else were known
    rest = judge / share - judge if share else 0.0
    other = {"repeat": ends - judge + repeat, "judge": ends, "judge_share": ends / (ends + rest) if share else ends}
    for name, figure in found.items():
        assert figure.value is not None and figure.low is not None and figure.high is not None
        low = figure.value - math.hypot(figure.value - figure.low, figure.value - other[name][0])
        high = figure.value + math.hypot(figure.high - figure.value, other[name][1] - figure.value)
        found[name] = Figure(value=figure.value, low=max(0.0, low), high=min(1.0, high))
    return found


def _judge(sums: _Nested) -> float:
    return sums.totals().figures()["judge"] or 0.0
