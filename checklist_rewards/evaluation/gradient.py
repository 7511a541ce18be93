"""What a set of checklists gives a trainer to learn from, known from a sample of completions before training.

Group-based trainers (GRPO, RLOO) learn from the differences of the rewards within a group of completions of one
prompt. Where all rewards of a group are equal, its advantages are 0 and its completions were sampled in vain. TRL logs
the fraction of such groups as `frac_reward_zero_std`.

A [`GradientForecast`] collects the scores of sampled completions by prompt. Its report has the fraction of groups with
a gradient for a group size, and what is wrong with the items: items that all or no completion of a prompt passes,
items that are not one yes/no question, a low label mass, scores that follow the length of the text, and degenerate
replies that score as well as honest ones.

The forecast is about the policy that was sampled. Training changes the policy, and with it the fraction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Figure
from checklist_rewards.evaluation.measures import correlation
from checklist_rewards.judges.faults import question_fault
from checklist_rewards.scores import EQUAL, Score, item_keys
from checklist_rewards.scores.tally import wilson
from checklist_rewards.validation import np

SOFT_METRICS = ("expected", "normalized")
LEAST_SPREAD = 0.01
"""Least standard deviation of a soft score within a group that counts as a gradient. Below it, the differences are
those of probabilities near 0 and 1, not of what the completions do."""
LOW_MASS = 0.5
_DRAWS = 100


@dataclass(frozen=True)
class GradientReport:
    """The forecast for one set of checklists. A figure is None where nothing was measured."""

    prompts: int
    """Prompts with at least two scored completions."""
    completions: int
    size: int
    """Completions per group."""
    gradient: Figure
    """Predicted fraction of groups with a gradient, with Wilson's interval over prompts."""
    all_pass: float
    """Fraction of items, counted per prompt, that every completion of the prompt passes."""
    none_pass: float
    faults: dict[str, int]
    """Distinct items that are not one yes/no question (English), by fault."""
    items: int
    """Distinct items."""
    low_mass: float | None
    """Fraction of reads with a label mass below 0.5."""
    length: float | None
    """Mean correlation of score and length within a prompt, in [-1, 1]."""
    canaries: dict[str, float] = field(default_factory=dict)
    """For each degenerate reply, the fraction of prompts on which it scores at least the median completion."""

    @property
    def sentence(self) -> str:
        """The forecast as one sentence."""
        if self.gradient.value is None:
            return "No prompt has two scored completions, so nothing is known about gradients."
        share = f"{self.gradient.value:.0%}"
        if self.gradient.low is not None and self.gradient.high is not None:
            share += f" [{self.gradient.low:.0%}, {self.gradient.high:.0%}]"
        return (
            f"This set gives a gradient on about {share} of the groups of {self.size} "
            f"({self.prompts} prompts sampled)."
        )


@dataclass
class _Prompt:
    scores: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    passed: dict[str, list[bool]] = field(default_factory=dict)
    canaries: dict[str, float] = field(default_factory=dict)

    @property
    def length_correlation(self) -> float | None:
        """Correlation of score and length; None if the scores differ by rounding only."""
        varied = np.ptp(self.scores) > EQUAL
        return correlation(np.array(self.scores), np.array(self.lengths), least=3) if varied else None


class GradientForecast:
    """Collects scored completions; see the module docstring.

    Args:
        size (`int`, *optional*): completions per group in training, at most the number that was sampled per prompt.
            Defaults to that number.
    """

    def __init__(self, size: int | None = None):
        self.size = size
        self._prompts: dict[str, _Prompt] = {}
        self._questions: dict[str, bool] = {}  # of judges; whether they were answered with yes or no
        self._masses: list[float] = []
        self._soft = False

    def add(self, prompt: str, score: Score, length: int) -> None:
        """Add a completion.

        Args:
            prompt (`str`): identifies the group.
            score ([`Score`]): its score. Without one it is left out.
            length (`int`): number of characters or tokens.
        """
        entry = self._prompts.setdefault(prompt, _Prompt())
        self._soft |= score.primary_metric in SOFT_METRICS
        if score.primary_score is not None:
            entry.scores.append(score.primary_score)
            entry.lengths.append(length)
        for key, line in zip(item_keys(score.items), score.items, strict=True):
            if not line.by_code:
                self._questions[line.question] = self._questions.get(line.question, False) or line.answer in (YES, NO)
            if line.passed is not None:
                entry.passed.setdefault(key, []).append(line.passed)
            if line.mass is not None:
                self._masses.append(line.mass)

    def add_canary(self, prompt: str, name: str, score: Score) -> None:
        """Add the score of a degenerate reply to a prompt."""
        if score.primary_score is not None:
            self._prompts.setdefault(prompt, _Prompt()).canaries[name] = score.primary_score

    def report(self) -> GradientReport:
        """The forecast. Raises [`SampleError`] if `size` is more than the completions of most prompts."""
        groups = [entry for entry in self._prompts.values() if len(entry.scores) > 1]
        sampled = int(np.median([len(entry.scores) for entry in groups])) if groups else 0
        size = sampled if self.size is None else self.size
        if groups and not 2 <= size <= sampled:
            raise SampleError(
                f"groups of {size} cannot be predicted from {sampled} completions per prompt; the size must be from 2 "
                "to that number."
            )
        least = LEAST_SPREAD if self._soft else EQUAL
        rng = np.random.default_rng(0)
        shares = [_share(np.array(entry.scores), size, least, rng) for entry in groups]
        # Not by the bootstrap, whose interval has no width if all sampled groups have a gradient.
        low, high = wilson(round(sum(shares)), len(shares)) or (None, None)
        gradient = Figure(value=fmean(shares) if shares else None, low=low, high=high)
        rates = [fmean(each) for entry in groups for each in entry.passed.values() if len(each) > 1]
        asked = (question for question, is_yes_no in self._questions.items() if is_yes_no)
        faults = Counter(fault for question in asked if (fault := question_fault(question)) is not None)
        lengths = [each for entry in groups if (each := entry.length_correlation) is not None]
        return GradientReport(
            prompts=len(groups),
            completions=sum(len(entry.scores) for entry in groups),
            size=size,
            gradient=gradient,
            all_pass=fmean(rate == 1 for rate in rates) if rates else 0.0,
            none_pass=fmean(rate == 0 for rate in rates) if rates else 0.0,
            faults=dict(faults),
            items=len(self._questions),
            low_mass=fmean(mass < LOW_MASS for mass in self._masses) if self._masses else None,
            length=fmean(lengths) if lengths else None,
            canaries=dict(self._canaries(groups)),
        )

    def _canaries(self, groups: Sequence[_Prompt]) -> Iterator[tuple[str, float]]:
        for name in dict.fromkeys(name for entry in groups for name in entry.canaries):
            read = [entry for entry in groups if name in entry.canaries]
            yield name, fmean(entry.canaries[name] >= float(np.median(entry.scores)) - EQUAL for entry in read)


def _share(scores: np.ndarray, size: int, least: float, rng: np.random.Generator) -> float:
    """The probability that `size` of the scores, drawn without replacement, have a larger standard deviation."""
    if size >= len(scores):
        return float(scores.std() > least)
    draws = rng.permuted(np.tile(scores, (_DRAWS, 1)), axis=1)[:, :size]
    return float((draws.std(axis=1) > least).mean())
