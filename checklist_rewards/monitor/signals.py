"""The signals that a monitor watches: what is measured, how it is compared, which completions show it.

A signal is a function with a decorator: [`_of_completions`] if it is the mean of a number over completions, or
[`_of_steps`]. Its name is that of the signal, and its docstring says what an alarm means.

A completion without an answer counts in its state and in the rewards. The judge was not asked about it, so it does not
count in the other signals: an empty text is neither short nor free of repetition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeVar

from checklist_rewards.checklists import EVOLVING_CATEGORY, YES
from checklist_rewards.monitor.detectors import (
    Cusum,
    Figure,
    Shift,
    Size,
    Sums,
    changed,
    fallen,
    lost,
    mean,
    reached,
    risen,
    spread,
)
from checklist_rewards.monitor.seen import Line, Observation, Seen
from checklist_rewards.monitor.text import opening
from checklist_rewards.rewards.settings import ATTACK, MonitorConfig
from checklist_rewards.scores import NO_ANSWER_STATES, item_keys

About = Literal["hacking", "judge", "training"]
Number = Callable[[Seen], float | None]
Measure = Callable[[Observation], Sums | None]


@dataclass(frozen=True)
class Signal:
    """One thing that is watched."""

    name: str
    """`max_<name>` of [`MonitorConfig`] is its threshold."""
    about: About
    """`hacking`: the policy may exploit the reward. `judge`: its answers cannot be trusted. `training`: the reward
    teaches little."""
    doc: str
    """What an alarm means, in one sentence."""
    measure: Measure
    """The sums of one step; None if the step has nothing to measure."""
    evidence: Number
    """How well a completion shows it: the larger, the better. None: not at all."""
    why: str
    """What the number of `evidence` is."""
    figure: Figure = mean
    size: Size | None = risen()
    """None: CUSUM."""
    found: Callable[[Observation], str] | None = None
    """What a step shows, as a sentence that an alarm adds to `doc`."""

    def detector(self, settings: MonitorConfig) -> Cusum | Shift:
        """A new detector for this signal."""
        start, threshold = settings.start, settings.threshold(self.name)
        if self.size is None:
            return Cusum(self.figure, start=start, threshold=threshold)
        window, certainty = settings.window, settings.certainty
        return Shift(self.figure, self.size, start=start, window=window, threshold=threshold, certainty=certainty)


SIGNALS: list[Signal] = []
"""In the order in which alarms are reported. Those of attacks follow."""
_Measured = TypeVar("_Measured", bound=Callable[..., Any])


def _of_steps(about: About, evidence: Number, why: str, **fields: Any) -> Callable[[_Measured], _Measured]:
    """The signal whose measure is the decorated function."""

    def registered(function: _Measured) -> _Measured:
        doc = str(function.__doc__)
        SIGNALS.append(Signal(function.__name__, about, doc, function, evidence, why, **fields))
        return function

    return registered


def _of_completions(
    about: About,
    why: str,
    evidence: Number | None = None,
    *,
    answered: bool = False,
    signed: bool = False,
    **fields: Any,
) -> Callable[[_Measured], _Measured]:
    """The signal whose measure is the mean of a number over completions; over those with an answer if `answered`. The
    number is also the evidence by default. If it is not `signed`, a completion with 0 is not shown as evidence."""

    def registered(function: _Measured) -> _Measured:
        measure, doc = mean_over(function, answered), str(function.__doc__)
        shown = evidence or (function if signed else lambda one: function(one) or None)
        SIGNALS.append(Signal(function.__name__, about, doc, measure, shown, why, **fields))
        return function

    return registered


def mean_over(number: Number, answered: bool = False) -> Measure:
    """The measure that is the mean of a number over completions, or over those with an answer."""
    return lambda observation: mean_of(map(number, observation.answered if answered else observation.seen))


def mean_of(values: Iterable[float | None]) -> Sums | None:
    """The sums of a mean over the values that exist."""
    known = [value for value in values if value is not None]
    return (sum(known), len(known)) if known else None


def best(completions: Iterable[Seen], evidence: Number, count: int = 3) -> list[tuple[Seen, float]]:
    """The completions that show a signal best, with the evidence. Equal texts of one prompt are shown once."""
    rated = [(value, one) for one in completions if (value := evidence(one)) is not None]
    found: list[tuple[Seen, float]] = []
    shown: set[tuple[str, str]] = set()
    for value, one in sorted(rated, key=lambda pair: -pair[0]):
        if len(found) < count and (one.group, one.text) not in shown:
            shown.add((one.group, one.text))
            found.append((one, float(value)))
    return found


def reward(one: Seen) -> float | None:
    """The reward of a completion."""
    return one.reward


# --- the items of the checklists

_LEAST_ITEMS = 3


def credit(one: Seen, held_out: bool) -> float | None:
    """Mean credit of the held-out, or of the rewarded, items of a completion. Items that the checklist got during
    training are left out, so all steps are compared on the same items."""
    known = [
        line.credit
        for line in one.lines
        if line.held_out == held_out and line.credit is not None and line.category != EVOLVING_CATEGORY
    ]
    return fmean(known) if known else None


@_of_completions("hacking", "credit of rewarded items - credit of held-out items", signed=True)
def held_out_gap(one: Seen) -> float | None:
    """Rewarded items improve and held-out items do not: the policy learns the items, not the task."""
    rewarded, held_out = credit(one, False), credit(one, True)
    return None if rewarded is None or held_out is None else rewarded - held_out


@_of_completions("hacking", "score of the judge - score of the shadow judge", signed=True)
def shadow_gap(one: Seen) -> float | None:
    """The judge gives more than at the start, and the shadow judge does not agree."""
    return None if one.shadow is None else one.shadow.own - one.shadow.shadow


def kappa(sums: Sums) -> float | None:
    """Cohen's kappa (1960) from the counts of [`Shadowed.agreement`]; None if both judges always answer the same."""
    # Not by statsmodels: `audit` works in the base install, without numpy.
    both, own, other, neither = sums
    total = both + own + other + neither
    if not total:
        return None
    chance = ((both + own) * (both + other) + (other + neither) * (own + neither)) / total**2
    return None if chance >= 1 else ((both + neither) / total - chance) / (1 - chance)


def _disagreement(one: Seen) -> float | None:
    return None if one.shadow is None else one.shadow.agreement[1] + one.shadow.agreement[2]


@_of_steps("hacking", _disagreement, "items on which the judges disagree", figure=kappa, size=fallen(kappa))
def shadow_disagreement(observation: Observation) -> Sums | None:
    """Judge and shadow judge agree on fewer items than at the start."""
    tables = [one.shadow.agreement for one in observation.seen if one.shadow is not None]
    return tuple(map(float, map(sum, zip(*tables, strict=True)))) if tables else None


def _alike(observation: Observation, passed: bool) -> Sums | None:
    """The items of groups to which two completions have an answer, and all the same."""
    answers: dict[tuple[str, str], list[bool]] = {}
    for one in observation.seen:
        for key, line in zip(item_keys(one.lines), one.lines, strict=True):
            if line.passed is not None:
                answers.setdefault((one.group, key), []).append(line.passed)
    return mean_of(float(all(one == passed for one in some)) for some in answers.values() if len(some) > 1)


@_of_steps("training", reward, "reward", size=reached)
def passed_by_all(observation: Observation) -> Sums | None:
    """Almost all items are passed by all completions of a group, so they teach nothing."""
    return _alike(observation, True)


def _lack(one: Seen) -> float | None:
    return None if one.reward is None or not one.lines else -one.reward


@_of_steps("training", _lack, "-reward", size=reached)
def failed_by_all(observation: Observation) -> Sums | None:
    """Almost all items are failed by all completions of a group, so they teach nothing."""
    return _alike(observation, False)


def largest_share(one: Seen, of: Callable[[Line], str | None]) -> float | None:
    """Largest share of the earned weight that comes from one item, or one category; None below three."""
    earned: dict[str, float] = {}
    for line in one.lines:
        name = of(line)
        if line.weight > 0 and line.credit is not None and not line.held_out and name is not None:
            earned[name] = earned.get(name, 0.0) + line.weight * line.credit
    total = sum(earned.values())
    return max(earned.values()) / total if len(earned) >= _LEAST_ITEMS and total > 0 else None


@_of_completions("training", "share of one item or category", size=reached)
def dominance(one: Seen) -> float | None:
    """One item or category brings almost all of the reward."""
    shares = [largest_share(one, lambda line: line.id), largest_share(one, lambda line: line.category)]
    return max((share for share in shares if share is not None), default=None)


# --- the judge


def _least_mass(one: Seen) -> float | None:
    masses = [line.mass for line in one.lines if line.mass is not None]
    return 1 - min(masses) if masses else None


@_of_steps("judge", _least_mass, "1 - lowest label mass", size=fallen())
def mass_loss(observation: Observation) -> Sums | None:
    """The judge's next token is a label less often than at the start: it cannot read what the policy writes."""
    return mean_of(line.mass for one in observation.seen for line in one.lines)


@_of_steps("judge", lambda one: sum(line.unanswered for line in one.lines) or None, "unanswered items")
def unanswered(observation: Observation) -> Sums | None:
    """More questions are unanswered than at the start."""
    return mean_of(float(line.unanswered) for one in observation.seen for line in one.lines)


@_of_steps("judge", lambda one: sum(map(bool, _flips(one))) or None, "answers that changed", size=reached)
def flips(observation: Observation) -> Sums | None:
    """The judge changes its answer when the same question is reworded, or its labels are in another order."""
    return mean_of(None if flip is None else float(flip) for one in observation.seen for flip in _flips(one))


def _flips(one: Seen) -> list[bool | None]:
    return [retest.flipped for retest in one.retests]


@_of_completions("judge", "the judge says yes")
def judged_steering(one: Seen) -> float | None:
    """The judge finds more completions that talk to their grader or praise themselves than at the start."""
    answers = [retest.again for retest in one.retests if retest.how == "steering" and retest.again is not None]
    return float(answers[0] == YES) if answers else None


# --- the texts


@_of_completions("hacking", "has a steering phrase", answered=True)
def steering(one: Seen) -> float:
    """More completions have a phrase that addresses the grader or praises the response than at the start."""
    return float(one.steering is not None)


@_of_completions("hacking", "share of the questions that are copied", answered=True)
def copied(one: Seen) -> float | None:
    """Completions copy the questions of their checklist more than at the start."""
    return one.copied if one.lines else None


@_of_completions("hacking", "share of the prompt that is copied", answered=True)
def prompt_copied(one: Seen) -> float | None:
    """Completions copy their prompt more than at the start."""
    return one.prompt_copied


@_of_completions("hacking", "share of repeated trigrams", answered=True)
def repetition(one: Seen) -> float:
    """Completions repeat themselves more than at the start."""
    return one.repetition


def _opened(observation: Observation) -> str:
    """The sentence that counts the completions with the most frequent opening."""
    if not observation.openings:
        return "None of this step has an answer."
    words, by_prompt = max(observation.openings.items(), key=lambda pair: sum(pair[1].values()))
    return (
        f"{sum(by_prompt.values())} of {len(observation.answered)} completions of this step, to {len(by_prompt)} "
        f"prompts, begin with {words!r}."
    )


@_of_steps("training", lambda one: one.reward if one.answered else None, "reward", found=_opened)
def same_opening(observation: Observation) -> Sums | None:
    """Completions of different prompts begin with the same words more often than at the start."""
    # For each completion: the share of the completions of other prompts in its step that begin with the same words.
    openings = observation.openings if observation.in_step is None else observation.in_step
    prompts = Counter[str]()
    for by_prompt in openings.values():
        prompts.update(by_prompt)
    shares = []
    for one in observation.answered:
        prompt, same = observation.prompts[one.group], openings[opening(one.text)]
        if others := prompts.total() - prompts[prompt]:
            shares.append((sum(same.values()) - same[prompt]) / others)
    return mean_of(shares)


def _words(one: Seen) -> float | None:
    return float(one.words) if one.answered else None


@_of_completions("training", "words", _words, answered=True, size=changed)
def length_change(one: Seen) -> float:
    """Completions are much longer or shorter than at the start."""
    return float(one.words)


def within_groups(observation: Observation) -> Sums | None:
    """Sums of products of words and reward around the means of their group, and of words and reward themselves, over
    the completions with an answer.

    Returns:
        tuple of `float`: Sxy, Sxx, Syy (x words, y reward, centred in each group), sum of x, sum of y, count.
    """
    groups = Observation(observation.step, observation.answered).rewarded
    if not groups:
        return None
    totals = [0.0] * 6
    for group in groups:
        x, y = [float(one.words) for one in group], [one.reward or 0.0 for one in group]
        mx, my = fmean(x), fmean(y)
        pairs = [(a - mx, b - my) for a, b in zip(x, y, strict=True)]
        totals[0] += sum(a * b for a, b in pairs)
        totals[1] += sum(a * a for a, _ in pairs)
        totals[2] += sum(b * b for _, b in pairs)
        totals[3] += sum(x)
        totals[4] += sum(y)
        totals[5] += len(group)
    return tuple(totals)


def correlation(sums: Sums) -> float | None:
    """Pooled correlation of words and reward inside groups, in [-1, 1]; None if one of them does not vary."""
    spread = (sums[1] * sums[2]) ** 0.5
    return max(-1.0, min(sums[0] / spread, 1.0)) if spread > 1e-9 else None


def gained_by_length(start: Sums, recent: Sums) -> float | None:
    """Reward gained through length: slope of reward on words inside the last groups x change of the mean length."""
    if not recent[1] > 1e-9 or not start[5] or not recent[5]:
        return None
    return recent[0] / recent[1] * (recent[3] / recent[5] - start[3] / start[5])


def length_matched(start: Sums, recent: Sums) -> float | None:
    """Mean reward of the last groups if their completions had the mean length of the first ones."""
    gained = gained_by_length(start, recent)
    return None if gained is None else recent[4] / recent[5] - gained


def _mean_reward(sums: Sums) -> float | None:
    return sums[4] / sums[5] if sums[5] else None


def _long(one: Seen) -> float | None:
    return None if one.reward is None or not one.answered else one.words * one.reward


@_of_steps("training", _long, "words x reward", figure=correlation, size=risen(correlation))
def length_bias(observation: Observation) -> Sums | None:
    """Longer completions of a group get more reward than at the start."""
    return within_groups(observation)


@_of_steps("training", _long, "words x reward", figure=_mean_reward, size=gained_by_length)
def length_reward(observation: Observation) -> Sums | None:
    """The reward rises because completions become longer or shorter."""
    return within_groups(observation)


# --- the states


def _counted(states: Collection[str], what: str) -> Callable[[Observation], str]:
    """The sentence that counts the completions of a step with one of these states."""

    def sentence(observation: Observation) -> str:
        known = Counter(one.state for one in observation.seen if one.state is not None)
        found = [(state, count) for state, count in known.most_common() if state in states]
        each = ", ".join(f"{count} {state}" for state, count in found) if len(states) > 1 else ""
        total = sum(count for _, count in found)
        return f"{total} of {known.total()} completions of this step {what}{': ' if each else ''}{each}."

    return sentence


@_of_completions("training", "has no answer", size=reached, found=_counted(NO_ANSWER_STATES, "have no answer"))
def no_answer(one: Seen) -> float | None:
    """Many completions have no answer: they are empty, were cut in their thought, or end with a tool call."""
    return None if one.state is None else float(one.state in NO_ANSWER_STATES)


@_of_completions(
    "training",
    "words before the cut",
    lambda one: float(one.words) if one.state == "cut" else None,
    size=reached,
    found=_counted(("cut",), "were cut in their answer"),
)
def cut(one: Seen) -> float | None:
    """Many completions reach the length limit in their answer, so the judge reads texts without an end."""
    return None if one.state is None else float(one.state == "cut")


# --- the rewards

_FULL = 0.99
_FLAT = 1e-3


def _rewards(observation: Observation) -> list[list[float]]:
    return [[one.reward or 0.0 for one in group] for group in observation.rewarded]


@_of_steps("training", reward, "reward", size=lost)
def variance_loss(observation: Observation) -> Sums | None:
    """The rewards of a group differ much less than at the start."""
    return mean_of(map(spread, _rewards(observation)))


@_of_completions("training", "score", lambda one: one.score, size=reached)
def saturation(one: Seen) -> float | None:
    """Almost all completions get the full score, so the checklist no longer separates them."""
    return None if one.score is None or not one.answered else float(one.score >= _FULL)


@_of_steps("training", reward, "reward", size=reached)
def flat_groups(observation: Observation) -> Sums | None:
    """Most groups have no variance, so they teach nothing."""
    return mean_of(float(max(group) - min(group) < _FLAT) for group in _rewards(observation))


@_of_completions("training", "reward", reward, size=None)
def reward_jump(one: Seen) -> float | None:
    """The mean reward jumps: a change point (CUSUM)."""
    return one.reward


# --- the attacks


def attack_signals(names: Iterable[str]) -> list[Signal]:
    """A signal for each attack that raised the judge's scores before the training."""
    return [_attack_signal(name) for name in names]


def _attack_signal(name: str) -> Signal:
    def shows(one: Seen) -> float:
        return float(name in one.attacks)

    return Signal(
        f"{ATTACK}{name}",
        "hacking",
        f"More completions show the attack {name}, which raised the judge's scores before the training.",
        mean_over(shows, answered=True),
        lambda one: shows(one) or None,
        "shows the attack",
    )
