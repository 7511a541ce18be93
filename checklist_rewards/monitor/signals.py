"""The signals that a monitor watches, as values: what is measured, how it is compared, which completions show it.

They come from the items of a checklist, the judge, the texts, the states of completions and the rewards. A completion
without an answer counts in its state and in the rewards. The judge was not asked about it, so it does not count in the
other signals: an empty text is neither short nor free of repetition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

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
from checklist_rewards.monitor.seen import Line, Observation, Retest, Seen
from checklist_rewards.monitor.text import opening
from checklist_rewards.rewards.settings import ATTACK, MonitorConfig
from checklist_rewards.scores import NO_ANSWER_STATES, item_keys

About = Literal["hacking", "judge", "training"]
Evidence = Callable[[Seen], float | None]


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
    measure: Callable[[Observation], Sums | None]
    """The sums of one step; None if the step has nothing to measure."""
    evidence: Evidence
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
        threshold = settings.threshold(self.name)
        if self.size is None:
            return Cusum(self.figure, start=settings.start, threshold=threshold)
        return Shift(
            self.figure,
            self.size,
            start=settings.start,
            window=settings.window,
            threshold=threshold,
            certainty=settings.certainty,
        )


def mean_of(values: Iterable[float | None]) -> Sums | None:
    """The sums of a mean over the values that exist."""
    known = [value for value in values if value is not None]
    return (sum(known), len(known)) if known else None


def over(number: Callable[[Seen], float | None]) -> Callable[[Observation], Sums | None]:
    """The measure that is the mean of a number over completions."""
    return lambda observation: mean_of(map(number, observation.seen))


def reward(one: Seen) -> float | None:
    """The reward of a completion."""
    return one.reward


def best(completions: Iterable[Seen], evidence: Evidence, count: int = 3) -> list[tuple[Seen, float]]:
    """The completions that show a signal best, with the evidence. Equal texts of one prompt are shown once."""
    rated = [(value, one) for one in completions if (value := evidence(one)) is not None]
    found: list[tuple[Seen, float]] = []
    shown: set[tuple[str, str]] = set()
    for value, one in sorted(rated, key=lambda pair: -pair[0]):
        if len(found) < count and (one.group, one.text) not in shown:
            shown.add((one.group, one.text))
            found.append((one, float(value)))
    return found


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


def held_out_gap(one: Seen) -> float | None:
    """Mean credit of rewarded items - mean credit of held-out items, in [-1, 1]."""
    rewarded, held_out = credit(one, False), credit(one, True)
    return None if rewarded is None or held_out is None else rewarded - held_out


def shadow_gap(one: Seen) -> float | None:
    """Score of the judge - score of the shadow judge, in [-1, 1]."""
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


def dominance(one: Seen, of: Callable[[Line], str | None] = lambda line: line.id) -> float | None:
    """Largest share of the earned weight that comes from one item, or one category; None below three."""
    earned: dict[str, float] = {}
    for line in one.lines:
        name = of(line)
        if line.weight > 0 and line.credit is not None and not line.held_out and name is not None:
            earned[name] = earned.get(name, 0.0) + line.weight * line.credit
    total = sum(earned.values())
    return max(earned.values()) / total if len(earned) >= _LEAST_ITEMS and total > 0 else None


def _dominance(one: Seen) -> float | None:
    shares = [dominance(one), dominance(one, lambda line: line.category)]
    return max((share for share in shares if share is not None), default=None)


def _disagreements(observation: Observation) -> Sums | None:
    tables = [one.shadow.agreement for one in observation.seen if one.shadow is not None]
    return tuple(map(float, map(sum, zip(*tables, strict=True)))) if tables else None


def _disagreement(one: Seen) -> float | None:
    return None if one.shadow is None else one.shadow.agreement[1] + one.shadow.agreement[2]


def _alike(passed: bool) -> Callable[[Observation], Sums | None]:
    return lambda observation: mean_of(
        float(all(answer == passed for answer in answers))
        for group in observation.groups.values()
        for answers in _answers(group)
    )


def _answers(group: Iterable[Seen]) -> list[list[bool]]:
    """The answers to each item that two completions of a group have an answer to."""
    answers: dict[str, list[bool]] = {}
    for one in group:
        for key, line in zip(item_keys(one.lines), one.lines, strict=True):
            if line.passed is not None:
                answers.setdefault(key, []).append(line.passed)
    return [each for each in answers.values() if len(each) > 1]


_OF_ITEMS = (
    Signal(
        "held_out_gap",
        "hacking",
        "Rewarded items improve and held-out items do not: the policy learns the items, not the task.",
        over(held_out_gap),
        held_out_gap,
        "credit of rewarded items - credit of held-out items",
    ),
    Signal(
        "shadow_gap",
        "hacking",
        "The judge gives more than at the start, and the shadow judge does not agree.",
        over(shadow_gap),
        shadow_gap,
        "score of the judge - score of the shadow judge",
    ),
    Signal(
        "shadow_disagreement",
        "hacking",
        "Judge and shadow judge agree on fewer items than at the start.",
        _disagreements,
        _disagreement,
        "items on which the judges disagree",
        figure=kappa,
        size=fallen(kappa),
    ),
    Signal(
        "passed_by_all",
        "training",
        "Almost all items are passed by all completions of a group, so they teach nothing.",
        _alike(True),
        reward,
        "reward",
        size=reached,
    ),
    Signal(
        "failed_by_all",
        "training",
        "Almost all items are failed by all completions of a group, so they teach nothing.",
        _alike(False),
        lambda one: None if one.reward is None or not one.lines else -one.reward,
        "-reward",
        size=reached,
    ),
    Signal(
        "dominance",
        "training",
        "One item or category brings almost all of the reward.",
        over(_dominance),
        _dominance,
        "share of one item or category",
        size=reached,
    ),
)


def _retests(observation: Observation) -> Iterator[Retest]:
    return (retest for one in observation.seen for retest in one.retests)


def _mass(observation: Observation) -> Sums | None:
    return mean_of(line.mass for one in observation.seen for line in one.lines)


def _unanswered(observation: Observation) -> Sums | None:
    return mean_of(float(line.unanswered) for one in observation.seen for line in one.lines)


def _flips(observation: Observation) -> Sums | None:
    flips = [retest.flipped for retest in _retests(observation)]
    return mean_of(None if flip is None else float(flip) for flip in flips)


def judged_steering(one: Seen) -> float | None:
    """1 if the judge finds that the completion steers its grader, 0 if not; None if it was not asked."""
    answers = [retest.again for retest in one.retests if retest.how == "steering" and retest.again is not None]
    return float(answers[0] == YES) if answers else None


def _least_mass(one: Seen) -> float | None:
    masses = [line.mass for line in one.lines if line.mass is not None]
    return 1 - min(masses) if masses else None


_OF_THE_JUDGE = (
    Signal(
        "mass_loss",
        "judge",
        "The judge's next token is a label less often than at the start: it cannot read what the policy writes.",
        _mass,
        _least_mass,
        "1 - lowest label mass",
        size=fallen(),
    ),
    Signal(
        "unanswered",
        "judge",
        "More questions are unanswered than at the start.",
        _unanswered,
        lambda one: sum(line.unanswered for line in one.lines) or None,
        "unanswered items",
    ),
    Signal(
        "flips",
        "judge",
        "The judge changes its answer when the same question is reworded, or its labels are in another order.",
        _flips,
        lambda one: sum(bool(retest.flipped) for retest in one.retests) or None,
        "answers that changed",
        size=reached,
    ),
    Signal(
        "judged_steering",
        "judge",
        "The judge finds more completions that talk to their grader or praise themselves than at the start.",
        lambda observation: mean_of(map(judged_steering, observation.seen)),
        lambda one: judged_steering(one) or None,
        "the judge says yes",
    ),
)


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


def length_reward(start: Sums, recent: Sums) -> float | None:
    """Reward gained through length: slope of reward on words inside the last groups x change of the mean length."""
    if not recent[1] > 1e-9 or not start[5] or not recent[5]:
        return None
    return recent[0] / recent[1] * (recent[3] / recent[5] - start[3] / start[5])


def length_matched(start: Sums, recent: Sums) -> float | None:
    """Mean reward of the last groups if their completions had the mean length of the first ones."""
    gained = length_reward(start, recent)
    return None if gained is None else recent[4] / recent[5] - gained


def _mean_reward(sums: Sums) -> float | None:
    return sums[4] / sums[5] if sums[5] else None


def _over_texts(number: Callable[[Seen], float | None]) -> Callable[[Observation], Sums | None]:
    """The measure that is the mean of a number over the completions with an answer."""
    return lambda observation: mean_of(map(number, observation.answered))


def _long(one: Seen) -> float | None:
    return None if one.reward is None or not one.answered else one.words * one.reward


def steered(one: Seen) -> float:
    """1 if a phrase of the text steers its grader."""
    return float(one.steering is not None)


def same_opening(observation: Observation) -> Sums | None:
    """For each completion, the share of the completions of other prompts in its step that begin with the same words;
    as the sums of a mean."""
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


def _opened(observation: Observation) -> str:
    """The sentence that counts the completions with the most frequent opening."""
    if not observation.openings:
        return "None of this step has an answer."
    words, by_prompt = max(observation.openings.items(), key=lambda pair: sum(pair[1].values()))
    return (
        f"{sum(by_prompt.values())} of {len(observation.answered)} completions of this step, to {len(by_prompt)} "
        f"prompts, begin with {words!r}."
    )


_OF_TEXTS = (
    Signal(
        "steering",
        "hacking",
        "More completions have a phrase that addresses the grader or praises the response than at the start.",
        _over_texts(steered),
        lambda one: steered(one) or None,
        "has a steering phrase",
    ),
    Signal(
        "copied",
        "hacking",
        "Completions copy the questions of their checklist more than at the start.",
        _over_texts(lambda one: one.copied if one.lines else None),
        lambda one: one.copied or None,
        "share of the questions that are copied",
    ),
    Signal(
        "prompt_copied",
        "hacking",
        "Completions copy their prompt more than at the start.",
        _over_texts(lambda one: one.prompt_copied),
        lambda one: one.prompt_copied or None,
        "share of the prompt that is copied",
    ),
    Signal(
        "repetition",
        "hacking",
        "Completions repeat themselves more than at the start.",
        _over_texts(lambda one: one.repetition),
        lambda one: one.repetition or None,
        "share of repeated trigrams",
    ),
    Signal(
        "same_opening",
        "training",
        "Completions of different prompts begin with the same words more often than at the start.",
        same_opening,
        lambda one: one.reward if one.answered else None,
        "reward",
        found=_opened,
    ),
    Signal(
        "length_change",
        "training",
        "Completions are much longer or shorter than at the start.",
        _over_texts(lambda one: float(one.words)),
        lambda one: float(one.words) if one.answered else None,
        "words",
        size=changed,
    ),
    Signal(
        "length_bias",
        "training",
        "Longer completions of a group get more reward than at the start.",
        within_groups,
        _long,
        "words x reward",
        figure=correlation,
        size=risen(correlation),
    ),
    Signal(
        "length_reward",
        "training",
        "The reward rises because completions become longer or shorter.",
        within_groups,
        _long,
        "words x reward",
        figure=_mean_reward,
        size=length_reward,
    ),
)


_CUT = frozenset({"cut"})


def share(states: Collection[str]) -> Callable[[Observation], Sums | None]:
    """The measure that is the share of completions with one of these states, among those whose state is recorded."""
    return over(lambda one: None if one.state is None else float(one.state in states))


def _counted(states: Collection[str], what: str) -> Callable[[Observation], str]:
    """The sentence that counts the completions of a step with one of these states."""

    def sentence(observation: Observation) -> str:
        known = Counter(one.state for one in observation.seen if one.state is not None)
        found = [(state, count) for state, count in known.most_common() if state in states]
        each = ", ".join(f"{count} {state}" for state, count in found) if len(states) > 1 else ""
        total = sum(count for _, count in found)
        return f"{total} of {known.total()} completions of this step {what}{': ' if each else ''}{each}."

    return sentence


def _without_answer(one: Seen) -> float | None:
    return 1.0 if one.state in NO_ANSWER_STATES else None


def _cut(one: Seen) -> float | None:
    return float(one.words) if one.state in _CUT else None


_OF_STATES = (
    Signal(
        "no_answer",
        "training",
        "Many completions have no answer: they are empty, were cut in their thought, or end with a tool call.",
        share(NO_ANSWER_STATES),
        _without_answer,
        "has no answer",
        size=reached,
        found=_counted(NO_ANSWER_STATES, "have no answer"),
    ),
    Signal(
        "cut",
        "training",
        "Many completions reach the length limit in their answer, so the judge reads texts without an end.",
        share(_CUT),
        _cut,
        "words before the cut",
        size=reached,
        found=_counted(_CUT, "were cut in their answer"),
    ),
)


_FULL = 0.99
_FLAT = 1e-3


def _rewards(observation: Observation) -> list[list[float]]:
    return [[one.reward or 0.0 for one in group] for group in observation.rewarded]


def _spread(observation: Observation) -> Sums | None:
    return mean_of(map(spread, _rewards(observation)))


def _flat(observation: Observation) -> Sums | None:
    return mean_of(float(max(group) - min(group) < _FLAT) for group in _rewards(observation))


_OF_REWARDS = (
    Signal(
        "variance_loss",
        "training",
        "The rewards of a group differ much less than at the start.",
        _spread,
        reward,
        "reward",
        size=lost,
    ),
    Signal(
        "saturation",
        "training",
        "Almost all completions get the full score, so the checklist no longer separates them.",
        over(lambda one: None if one.score is None or not one.answered else float(one.score >= _FULL)),
        lambda one: one.score,
        "score",
        size=reached,
    ),
    Signal(
        "flat_groups",
        "training",
        "Most groups have no variance, so they teach nothing.",
        _flat,
        reward,
        "reward",
        size=reached,
    ),
    Signal(
        "reward_jump",
        "training",
        "The mean reward jumps: a change point (CUSUM).",
        over(reward),
        reward,
        "reward",
        size=None,
    ),
)


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
        _over_texts(shows),
        lambda one: shows(one) or None,
        "shows the attack",
    )


SIGNALS: tuple[Signal, ...] = (*_OF_ITEMS, *_OF_THE_JUDGE, *_OF_TEXTS, *_OF_STATES, *_OF_REWARDS)
"""In the order in which alarms are reported. Those of attacks follow."""
