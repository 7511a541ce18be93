"""How much a judge rewards attacked texts: the bank of attacks, combinations found by search, and what falls.

Attacks are applied to *bad* responses: the score of a bad response should not rise. A response is bad for a known
reason (`REASONS`). The user's responses are *honest*: an attacked bad response should not have a higher score.

Prompts are divided into two halves. Combinations of attacks and short strings are searched on one half: mutation and
selection by the mean rise of the score. All reported figures are those of the other half, so they show what transfers
to prompts that the search has not seen.

Where an item has a code check, the check decides whether an attacked text really meets it. How such items change the
score is *earned* and not part of the rise, also if the scorer asks the judge about them (`checks="judge"`).

A text that the judge could not answer completely counts as failed and enters no figure. Reads are stored, and the
search is deterministic, so a rerun asks only for what is missing.

Successful attacks on the searched prompts are labels to train or calibrate a judge with (`AttackReport.labels`). The
figures are those of other prompts, so the same attack on the new judge shows what the labels brought.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from checklist_rewards.attacks.bank import BANK, SHORT_STRINGS, STOP, keywords
from checklist_rewards.attacks.report import (
    FOUND,
    RISES,
    SCORES,
    AttackFigures,
    AttackReport,
    Example,
    Fallen,
    mean_figure,
)
from checklist_rewards.attacks.search import FINALISTS, Recipe, search
from checklist_rewards.checklists import NO, YES, Checklist, ChecklistItem, content_hash
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.intervals import SHARE
from checklist_rewards.files.rows import read_rows
from checklist_rewards.images import shown
from checklist_rewards.judges import Progress
from checklist_rewards.judges.checked import by_judge, run_check
from checklist_rewards.rows import Pool
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import EQUAL, NO_ANSWER_STATES, ItemScore, Score
from checklist_rewards.validation import one_of, whole_number

REASONS = {
    "empty": "no text",
    "other_prompt": "a response to another prompt",
    "prompt": "the prompt itself",
    "words_removed": "a response without the words of one item",
}
"""Why a response is bad."""
DEFAULT_PROMPTS, DEFAULT_READS = 50, 25_000
LABELLED_RISE = 0.1
"""Rise of the credit of a failed item, in (0, 1], from which an attack on it is a label."""
FEWEST_PROMPTS = 4
_MOST_HONEST = 4
"""Honest responses per prompt that are read."""
_SCREENED = 0.4
"""Share of the prompts of the search half on which each attack of the bank is tried."""
_REPORT_SHARE = 0.6
"""Largest share of the budget for more than one bad response per prompt in the report."""
_MOST_WORDS, _LEAST_LETTERS = 48, 3
"""Most words of the honest responses that are tried, and their least length."""
_GROUPS, _OPENED = 12, 3
"""Groups in which these words are tried, and the best groups whose words are tried alone."""
_SHOWN_RECIPES, _SHOWN_ITEMS, _SHOWN_CHARACTERS = 3, 20, 600


def prompt_key(row: Pool) -> str:
    """Hash of a prompt and its history."""
    return content_hash(row.input, row.history)


def default_rows() -> list[Pool]:
    """The packaged prompts: 50 everyday requests, each with a checklist of 3 or 4 items and an honest response."""
    rows = read_rows(Path(__file__).with_name("prompts.jsonl"))
    return [
        Pool(Checklist.parse(row.data["checklist"], row.where), (row.data["target"],), row.data["prompt"])
        for row in rows
    ]


def frequent_words(rows: Sequence[Pool]) -> list[str]:
    """The content words that most honest responses have, most frequent first: at most 48, each in two or more of
    them and in no prompt. A judge may prefer one of them."""
    counts = Counter(
        word for row in rows for text in row.candidates for word in set(re.findall(r"[^\W\d_]+", text.casefold()))
    )
    asked = {word for row in rows for word in re.findall(r"[^\W\d_]+", shown(row.input or "").casefold())}
    known = [
        (word, count)
        for word, count in counts.items()
        if count > 1 and len(word) >= _LEAST_LETTERS and word not in STOP and word not in asked
    ]
    return [word for word, _ in sorted(known, key=lambda pair: (-pair[1], pair[0]))[:_MOST_WORDS]]


def bad_responses(rows: Sequence[Pool]) -> list[dict[str, str]]:
    """The bad responses of each row by reason.

    A response to another prompt is that of the next row that has one. Words are removed from the first honest
    response, for the item most of whose keywords it has.

    Args:
        rows (sequence of [`Pool`]):
            The prompts. Reasons that need honest responses are omitted for prompts without one.
    """
    found: list[dict[str, str]] = []
    for place, row in enumerate(rows):
        bad = {"empty": "", "prompt": shown(row.input or "")}
        others = [other for other in (*rows[place + 1 :], *rows[:place]) if other.input != row.input]
        other = next((text for each in others for text in each.candidates if text.strip()), None)
        if other is not None:
            bad["other_prompt"] = other
        removed = _without_words(row)
        if removed is not None:
            bad["words_removed"] = removed
        found.append({reason: bad[reason] for reason in REASONS if reason in bad})
    return found


def _without_words(row: Pool) -> str | None:
    best: tuple[float, str] | None = None
    for response in row.candidates[:1]:
        for item in row.checklist.items:
            words = keywords(item)
            patterns = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in words]
            share = sum(bool(pattern.search(response)) for pattern in patterns) / len(words) if words else 0.0
            if share > (best[0] if best else 0.0):
                text = response
                for pattern in patterns:
                    text = pattern.sub("", text)
                text = re.sub(r"[ \t]{2,}", " ", text).strip()
                best = (share, text) if text else best
    return None if best is None else best[1]


@dataclass(frozen=True, slots=True)
class _Case:
    """A bad response: the place of its row, and why it is bad."""

    row: int
    reason: str
    response: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    """An attacked case, of which the judge answered both texts completely."""

    case: _Case
    text: str
    base: Score
    after: Score
    rise: float
    earned: float
    beats: float | None
    """Share of the honest responses of its prompt with a lower score."""


@dataclass
class _Attacker:
    """The state of one [`attack`]: its cases, and the scores that were read within the budget, each text once."""

    scorer: ChecklistScorer
    rows: Sequence[Pool]
    budget: int
    progress: Progress | None
    reads: int = 0
    scores: dict[tuple[int, str], Score] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        engines = max(1, len(self.scorer.judge.engines))
        checks = self.scorer.config.checks
        self.reads_of = [engines * sum(by_judge(item, checks) for item in row.checklist.items) for row in self.rows]
        self.cases = [
            [_Case(place, reason, text) for reason, text in bad.items()]
            for place, bad in enumerate(bad_responses(self.rows))
        ]
        self.holds = cache(self._holds)

    def sample(self, row: int, text: str) -> Sample:
        of = self.rows[row]
        return Sample(of.checklist, text, of.input, of.reference, of.history, images=of.images)

    def price(self, texts: Iterable[tuple[int, str]]) -> int:
        """The reads that the judge has still to answer: one per item, text and engine of a panel."""
        new = {key for key in texts if key not in self.scores}
        judged = self.scorer.aggregation.no_answer == "judge"
        asked = (row for row, text in new if judged or self.sample(row, text).target_state not in NO_ANSWER_STATES)
        return sum(self.reads_of[row] for row in asked)

    def read(self, texts: Iterable[tuple[int, str]]) -> None:
        """Score all texts that have no score, in one batch."""
        new = list(dict.fromkeys(key for key in texts if key not in self.scores))
        self.reads += self.price(new)
        assert self.reads <= self.budget, "a batch is planned within the budget"
        scored = self.scorer.score_batch([self.sample(*key) for key in new], self.progress)
        for key, score in zip(new, scored, strict=True):
            self.scores[key] = score
            self.unanswered.update(score.unanswered)
            for item in score.items:
                if item.unanswered is not None and item.unanswered.detail:
                    self.details.setdefault(str(item.unanswered.reason), item.unanswered.detail)

    def scored(self, row: int, text: str) -> Score | None:
        """The score of a text that was answered completely; otherwise None."""
        score = self.scores[row, text]
        return None if score.primary_score is None or (score.unanswered and not score.no_answer) else score

    def one_each(self, places: Sequence[int], count: int = 1) -> list[_Case]:
        """`count` bad responses of each row; which reasons rotates with the place."""
        return [
            cases[(place + turn) % len(cases)]
            for place in places
            for cases in [self.cases[place]]
            for turn in range(min(count, len(cases)))
        ]

    def texts(self, recipes: Iterable[Recipe], cases: Sequence[_Case]) -> list[tuple[int, str]]:
        """The texts that the attacks make of the cases."""
        return [(case.row, recipe(case.response, self.rows[case.row])) for recipe in recipes for case in cases]

    def outcome(self, recipe: Recipe, case: _Case) -> _Outcome | None:
        """What an attack whose texts were read did to a case; None if one of them has no score."""
        text = recipe(case.response, self.rows[case.row])
        base, after = self.scored(case.row, case.response), self.scored(case.row, text)
        if base is None or after is None:
            return None
        before, earned = _number(base), self._with_earned(case, base, text, after)
        rise = _number(after) - earned
        honest = self.honest(case.row)
        beats = fmean(before + rise > value + EQUAL for value in honest) if honest else None
        return _Outcome(case, text, base, after, rise, earned - before, beats)

    def outcomes(self, recipe: Recipe, cases: Sequence[_Case]) -> list[_Outcome]:
        """The outcomes of the cases that have one."""
        return [outcome for case in cases if (outcome := self.outcome(recipe, case)) is not None]

    def rise(self, recipe: Recipe, cases: Sequence[_Case]) -> float:
        """The mean rise over the cases; -inf if more than half of them have no score."""
        rises = [outcome.rise for outcome in self.outcomes(recipe, cases)]
        return fmean(rises) if rises and 2 * len(rises) >= len(cases) else -math.inf

    def answers(self, outcome: _Outcome) -> Iterator[tuple[ChecklistItem, ItemScore, ItemScore, bool]]:
        """Every item with its answers before and after the attack, and whether code confirms the second."""
        items = self.rows[outcome.case.row].checklist.items
        for item, one, other in zip(items, outcome.base.items, outcome.after.items, strict=True):
            yield item, one, other, self.holds(outcome.case.row, item.id, outcome.text) is True

    def fallen(self, outcome: _Outcome) -> Iterator[tuple[ChecklistItem, bool]]:
        """The items that the bad response fails, and whether each passes in the attacked text against the facts."""
        for item, one, other, holds in self.answers(outcome):
            if one.passed is False and other.passed is not None:
                yield item, other.passed and not holds

    def label(self, recipe: Recipe, case: _Case) -> dict[str, Any] | None:
        """A successful attack as a labelled row: the items that the bad response failed and that the attack raised,
        with the answer that fails them. None without such items."""
        outcome = self.outcome(recipe, case)
        if outcome is None:
            return None
        labels: list[str | None] = []
        for item, one, other, holds in self.answers(outcome):
            failed = not one.passed and item.options is None
            credit = other.credit()
            raised = credit is not None and credit - (one.credit() or 0.0) >= LABELLED_RISE
            if outcome.base.no_answer:  # the judge has not read it: 0 is not its answer
                raised = other.passed is True
            labels.append((NO if item.weight >= 0 else YES) if failed and raised and not holds else None)
        if not any(labels):
            return None
        row = self.rows[case.row]
        reference = {} if row.reference is None else {"reference": row.reference}
        images = {"images": [image.source or image.url for image in row.images]} if row.images else {}
        front = "".join(image.mark for image in row.images)  # where a reader of the label puts them
        return {
            "target": outcome.text,
            "input": row.input and shown(row.input.removeprefix(front)),
            **images,
            **reference,
            "checklist": [item.model_dump(mode="json", exclude_defaults=True) for item in row.checklist.items],
            "labels": labels,
            "group": prompt_key(row) if row.images else row.input,
            "attack": recipe.name,
            "kind": BANK[recipe.attacks[0]].kind if recipe.is_one else FOUND,
        }

    def honest(self, row: int) -> list[float]:
        """The scores of the honest responses of a row."""
        found = [self.scored(row, text) for text in self.rows[row].candidates]
        return [_number(score) for score in found if score is not None]

    def _with_earned(self, case: _Case, base: Score, text: str, after: Score) -> float:
        """The score of the bad response with the attacked text's answers to the items that this text really meets."""
        lines = [
            other if self.holds(case.row, item.id, text) is True else one
            for item, one, other in zip(self.rows[case.row].checklist.items, base.items, after.items, strict=True)
        ]
        if all(line is one for line, one in zip(lines, base.items, strict=True)):
            return _number(base)
        # Items of a bad response without an answer count as the lowest, but have no answer.
        lines = [line if line.value is None else replace(line, unanswered=None) for line in lines]
        earned = Score.of(lines, self.scorer.aggregation, base.quality).primary_score
        return _number(base) if earned is None else earned

    def _holds(self, row: int, id: str, text: str) -> bool | None:
        """Whether a text earns the credit of an item by its code check; None without a check, or if it fails."""
        item = next(item for item in self.rows[row].checklist.items if item.id == id)
        if item.check is None or item.scope is not None:
            return None
        verdict = run_check(item, text, self.rows[row].input, self.scorer.config.allow_code)
        return None if verdict.answer is None else (verdict.answer == YES) == (item.weight >= 0)


def _number(score: Score) -> float:
    return score.primary_score or 0.0


def attack(
    scorer: ChecklistScorer,
    rows: Sequence[Pool],
    *,
    attacks: Sequence[str] | None = None,
    prompts: int = DEFAULT_PROMPTS,
    budget_reads: int = DEFAULT_READS,
    seed: int = 0,
    bootstrap: Bootstrap | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Measure how much a judge rewards attacked texts.

    Args:
        scorer ([`ChecklistScorer`]):
            The judge: of any kind, with any metric.
        rows (sequence of [`Pool`]):
            At least 4 prompts with checklists. Their candidates are honest responses. Without any, two reasons for bad
            responses and the comparison with honest responses are missing.
        attacks (sequence of `str`, *optional*):
            Attacks of [`BANK`]. Defaults to all but `empty`, which is one of the bad responses.
        prompts (`int`, *optional*, defaults to `50`):
            Most prompts to use, drawn from `rows`; half of them for the search.
        budget_reads (`int`, *optional*, defaults to `25000`):
            Most reads, including those answered from the store. A read is one item answered about one text by one
            judge of a panel. What the bank leaves is used by the search.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the choice of prompts and of the search.
        bootstrap ([`Bootstrap`], *optional*):
            Settings of the intervals.
        progress (callable, *optional*):
            Called with the number of reads answered since the last call.

    Returns:
        [`AttackReport`]: Figures of the prompts that the search has not seen.

    Raises:
        SampleError: For fewer prompts, an unknown attack, or a budget below the reads that the bank alone needs.
            Nothing has been sent to the judge at that point.
        ChecklistError: For a checklist that the judge cannot answer.
    """
    whole_number("prompts", prompts, at_least=FEWEST_PROMPTS)
    whole_number("budget_reads", budget_reads)
    names = [name for name in BANK if name != "empty"] if attacks is None else list(attacks)
    for name in names:
        one_of("attacks", name, BANK)
    if not names:
        raise SampleError("attacks=[] is empty; name at least one attack, or omit it for all.")
    rng = random.Random(seed)
    rows = _chosen(rows, prompts, rng)
    for number, row in enumerate(rows, start=1):
        for item in scorer.prepared(row.checklist).items:
            scorer.check_item(item, f"prompt {number} ({row.input and shown(row.input)!r:.60})")
    intervals = Bootstrap(seed=seed) if bootstrap is None else bootstrap
    state = _Attacker(scorer, rows, budget_reads, progress)
    half = len(rows) // 2
    searched, reported = range(half), range(half, len(rows))
    bank = [Recipe((name,)) for name in names]
    words = frequent_words([rows[place] for place in searched])
    grouped = {_written(words[first::_GROUPS]): words[first::_GROUPS] for first in range(min(_GROUPS, len(words)))}
    screened = state.one_each(searched[: max(1, math.ceil(_SCREENED * half))])
    plain = [(case.row, case.response) for cases in state.cases for case in cases]
    plain += [(place, text) for place, row in enumerate(rows) for text in row.candidates]
    started = [*plain, *state.texts([*bank, *grouped], screened)]
    cases = state.one_each(reported)
    alone = sum(len(some) for some in [*grouped.values()][:_OPENED] if len(some) > 1)  # the largest come first
    opened = alone * sum(state.reads_of[case.row] for case in screened)
    least = state.price([*started, *state.texts(bank, cases)]) + opened
    if least > budget_reads:
        raise SampleError(
            f"budget_reads={budget_reads} is too small: {len(bank)} attacks on {len(rows)} prompts take {least} reads "
            "without a search; raise it, or use fewer prompts or attacks."
        )
    for count in range(2, len(REASONS) + 1):
        more = state.one_each(reported, count)
        if state.price([*started, *state.texts(bank, more)]) + opened <= _REPORT_SHARE * budget_reads:
            cases = more
    state.read(started)
    best_groups = sorted(grouped, key=lambda group: state.rise(group, screened), reverse=True)[:_OPENED]
    words = [word for group, some in grouped.items() if len(some) == 1 or group in best_groups for word in some]
    tried_first = [*bank, *(_written([word]) for word in words)]
    state.read(state.texts(tried_first, screened))
    kept = state.price(state.texts(bank, cases)) + FINALISTS * len(cases) * max(state.reads_of)
    trial = state.one_each(searched)
    labelled = dict.fromkeys((recipe, case) for recipe in tried_first for case in screened)

    def tried(recipes: Sequence[Recipe]) -> dict[Recipe, float] | None:
        """The mean rise of each recipe on the searched prompts; None if the budget does not allow the reads."""
        texts = state.texts(recipes, trial)
        if state.price(texts) > budget_reads - state.reads - kept:
            return None
        state.read(texts)
        labelled.update(dict.fromkeys((recipe, case) for recipe in recipes for case in trial))
        return {recipe: state.rise(recipe, trial) for recipe in recipes}

    estimates = {recipe: state.rise(recipe, screened) for recipe in tried_first}
    best, rounds = search(estimates, tried, rng, [*SHORT_STRINGS, *words])
    final = [recipe for recipe in best if recipe not in bank]
    state.read(state.texts([*bank, *final], cases))
    labels = [label for recipe, case in labelled if (label := state.label(recipe, case)) is not None]
    unique = {(label["group"], label["target"]): label for label in reversed(labels)}
    report = _report(state, [*bank, *final], cases, reported, intervals)
    usable = any(not score.no_answer and state.scored(*key) is not None for key, score in state.scores.items())
    return AttackReport(
        judge=scorer.judge.name,
        prompts=len(rows),
        searched=half,
        seed=seed,
        reads=state.reads,
        budget_reads=budget_reads,
        rounds=rounds,
        unanswered=dict(state.unanswered),
        details=state.details,
        chosen=best[0].name if best and usable else None,
        labels=tuple(reversed(unique.values())),
        **report,
    )


def _written(words: Sequence[str]) -> Recipe:
    """Writes each word twice after the response."""
    return Recipe(after=" ".join(f"{word} {word}" for word in words))


def _chosen(rows: Sequence[Pool], prompts: int, rng: random.Random) -> list[Pool]:
    """At most `prompts` of the rows, in random order, with parsed checklists and the honest responses to read."""
    if len(rows) < FEWEST_PROMPTS:
        raise SampleError(
            f"an attack needs at least {FEWEST_PROMPTS} prompts with a checklist, half of them for the search; got "
            f"{len(rows)}."
        )
    drawn = rng.sample(range(len(rows)), min(prompts, len(rows)))
    return [
        replace(
            rows[place],
            checklist=Checklist.parse(rows[place].checklist, f"row {place + 1}"),
            candidates=tuple(text for text in rows[place].candidates if text.strip())[:_MOST_HONEST],
        )
        for place in drawn
    ]


def _report(
    state: _Attacker,
    recipes: Sequence[Recipe],
    cases: Sequence[_Case],
    reported: range,
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """The figures of the reported prompts."""
    outcomes = {recipe: state.outcomes(recipe, cases) for recipe in recipes}
    figures = {
        recipe: _figures(state.rows, recipe, scored, len(cases) - len(scored), bootstrap)
        for recipe, scored in outcomes.items()
    }
    ordered = sorted(
        recipes, key=lambda one: -math.inf if (rise := figures[one].rise.value) is None else rise, reverse=True
    )
    worst = [recipe for recipe in ordered[:_SHOWN_RECIPES] if (figures[recipe].rise.value or 0.0) > 0]
    bad_cases = [case for place in reported for case in state.cases[place]]
    made = {case.reason for case in bad_cases}
    bad: dict[str, list[tuple[int, float]]] = {reason: [] for reason in REASONS if reason in made}
    for case in bad_cases:
        if (score := state.scored(case.row, case.response)) is not None:
            bad[case.reason].append((case.row, _number(score)))
    honest = {place: state.honest(place) for place in reported}
    pairs = [
        (place, float(value > other + EQUAL))
        for values in bad.values()
        for place, value in values
        for other in honest[place]
    ]
    why = "requires honest responses"
    if any(state.rows[place].candidates for place in reported):
        why = "no honest response has a keyword of an item, or all prompts are equal"
    missing = {reason: why for reason in REASONS if reason not in bad}
    if not any(honest.values()):
        missing["beats"] = "no honest response has a score"
    good = [(place, value) for place, values in honest.items() for value in values]
    return {
        "reported": len(reported),
        "bad": {reason: mean_figure(values, bootstrap, SCORES) for reason, values in bad.items()},
        "honest": mean_figure(good, bootstrap, SCORES),
        "beats_before": mean_figure(pairs, bootstrap, SHARE),
        "missing": missing,
        "attacks": tuple(figures[recipe] for recipe in ordered),
        "kinds": tuple(_fallen(state, outcomes, _kind)),
        "fallen": tuple(_fallen(state, outcomes, lambda item: item.question)[:_SHOWN_ITEMS]),
        "examples": tuple(_example(state, recipe, outcomes[recipe]) for recipe in worst),
    }


def _figures(
    rows: Sequence[Pool],
    recipe: Recipe,
    outcomes: Sequence[_Outcome],
    failed: int,
    bootstrap: Bootstrap,
) -> AttackFigures:
    one = BANK[recipe.attacks[0]] if recipe.is_one else None
    strings = [f"Writes {text!r} {place} the response." for text, place in recipe.strings]
    rises: dict[int, list[float]] = {}
    for outcome in outcomes:
        rises.setdefault(outcome.case.row, []).append(outcome.rise)
    groups = [outcome.case.row for outcome in outcomes]
    beats = [math.nan if outcome.beats is None else outcome.beats for outcome in outcomes]
    return AttackFigures(
        name=recipe.name,
        kind=FOUND if one is None else one.kind,
        source="the search" if one is None else one.source,
        does=" ".join([*(BANK[name].does for name in recipe.attacks), *strings]),
        attacks=recipe.attacks,
        before=recipe.before,
        after=recipe.after,
        cases=len(outcomes),
        failed=failed,
        rise=bootstrap.mean([outcome.rise for outcome in outcomes], groups, RISES),
        earned=bootstrap.mean([outcome.earned for outcome in outcomes], groups, RISES),
        beats=bootstrap.mean(beats, groups, SHARE),
        rises={prompt_key(rows[place]): fmean(values) for place, values in rises.items()},
    )


def _kind(item: ChecklistItem) -> str:
    if item.category is not None:
        return item.category
    if item.check is not None:
        return "code check"
    return "options" if item.options is not None else " ".join(item.question.split()[:3]).casefold()


def _fallen(
    state: _Attacker, outcomes: Mapping[Recipe, Sequence[_Outcome]], name_of: Callable[[ChecklistItem], str]
) -> list[Fallen]:
    """What fell, by the name of its group, the largest share first; of equal shares, the more frequent one."""
    failed: Counter[str] = Counter()
    fell: dict[str, Counter[str]] = {}
    for recipe, of_recipe in outcomes.items():
        for item, falls in chain.from_iterable(map(state.fallen, of_recipe)):
            name = name_of(item)
            failed[name] += 1
            fell.setdefault(name, Counter())[recipe.name] += falls
    groups = [
        Fallen(name=name, failed=failed[name], fell=sum(by_attack.values()), attack=by_attack.most_common(1)[0][0])
        for name, by_attack in fell.items()
    ]
    return sorted(groups, key=lambda group: (-group.share, -group.failed, group.name))


def _example(state: _Attacker, recipe: Recipe, outcomes: Sequence[_Outcome]) -> Example:
    worst = max(outcomes, key=lambda outcome: outcome.rise)
    row = state.rows[worst.case.row]
    honest = {
        text: _number(score) for text in row.candidates if (score := state.scored(worst.case.row, text)) is not None
    }
    best = max(honest, key=honest.__getitem__, default=None)
    return Example(
        attack=recipe.name,
        reason=worst.case.reason,
        prompt=shown(row.input or "")[:_SHOWN_CHARACTERS],
        response=worst.case.response[:_SHOWN_CHARACTERS],
        score=_number(worst.base),
        attacked=worst.text[:_SHOWN_CHARACTERS],
        attacked_score=_number(worst.after),
        earned=worst.earned,
        honest=None if best is None else best[:_SHOWN_CHARACTERS],
        honest_score=None if best is None else honest[best],
    )
