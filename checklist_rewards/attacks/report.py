"""What an attack found: the figures, their file, and the comparison of two files."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from checklist_rewards.errors import ConfigError, SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Result
from checklist_rewards.evaluation.intervals import Rule
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.validation import one_sentence

FORMAT = "checklist-rewards-attack-1"
FOUND = "found"
"""Kind of a combination that the search found."""
SCORES, RISES, CHANGES = (Rule(least=least, most=most) for least, most in ((0.0, 1.0), (-1.0, 1.0), (-2.0, 2.0)))
"""The rules of means of scores, of their differences, and of differences of these."""


class AttackFigures(Result):
    """What one attack did to the bad responses of the reported prompts."""

    name: str
    kind: str
    """Kind of the bank, or `found` for a combination of the search."""
    source: str
    does: str
    attacks: tuple[str, ...]
    before: str = ""
    after: str = ""
    cases: int
    """Attacked responses with a score."""
    failed: int
    """Attacked responses that the judge did not answer completely. They are in no figure."""
    rise: Figure
    """Mean change of the score without what code says was earned, in [-1, 1], with the interval over prompts."""
    earned: Figure
    """Mean change of the score by checked items that the attacked text really meets."""
    beats: Figure
    """Share of pairs of an attacked response and an honest one in which the attacked one has the higher score, also
    without what it earned. None without honest responses."""
    rises: dict[str, float] = Field(default_factory=dict)
    """Mean rise by hash of the prompt."""


class Fallen(Result):
    """How often attacks turned failed items, or items of one kind, into passed ones that code does not confirm."""

    name: str
    """The question, or the kind of question: its category, `code check`, `options`, or its first words."""
    failed: int
    """Reads of attacked texts in which the item had failed before the attack."""
    fell: int
    """Those in which it passes after the attack."""
    attack: str
    """The attack under which it fell most often."""

    @property
    def share(self) -> float:
        """fell / failed."""
        return self.fell / self.failed if self.failed else 0.0


class Example(Result):
    """A bad response before and after an attack. Texts are cut at 600 characters."""

    attack: str
    reason: str
    prompt: str
    response: str
    score: float
    attacked: str
    attacked_score: float
    earned: float
    honest: str | None = None
    """The honest response with the highest score."""
    honest_score: float | None = None


class AttackReport(Result):
    """The result of [`attack`]. Files contain `model_dump()`."""

    format: str = FORMAT
    judge: str
    prompts: int
    searched: int
    """Prompts on which attacks were chosen."""
    reported: int
    """The other prompts. All figures are theirs."""
    seed: int
    reads: int
    """Reads requested, including those answered from the store."""
    budget_reads: int
    rounds: int
    """Rounds of the search."""
    bad: dict[str, Figure]
    """Mean score of the bad responses before any attack, by reason; a reason without responses is in `missing`."""
    honest: Figure
    """Mean score of the honest responses."""
    beats_before: Figure
    """Share of pairs of a bad response and an honest one in which the bad one has the higher score, without an
    attack."""
    missing: dict[str, str]
    """What was not measured, and why."""
    unanswered: dict[str, int]
    """Unanswered reads by reason."""
    details: dict[str, str]
    """The first detail of each reason."""
    chosen: str | None
    """The attack that raised scores most on the searched prompts; None if the judge scored nothing."""
    attacks: tuple[AttackFigures, ...]
    """By rise, largest first."""
    kinds: tuple[Fallen, ...]
    """Kinds of questions, by share that fell."""
    fallen: tuple[Fallen, ...]
    """The 20 items that fell most often."""
    examples: tuple[Example, ...]
    """The worst response of each of the three attacks with the largest rise."""
    labels: tuple[dict[str, Any], ...] = Field(default=(), exclude=True)
    """Successful attacks on the searched prompts as labelled rows, not in files: `target`, `input`, `images` and
    `reference` if given, `checklist`, `labels` (one per item, None for items that the attack did not raise), `group`
    (the prompt; its hash if it has images), `attack` and `kind`."""

    @property
    def worst(self) -> AttackFigures | None:
        """The figures of the chosen attack: what a policy can gain, without the optimism of choosing and measuring on
        the same prompts."""
        return next((figures for figures in self.attacks if figures.name == self.chosen), None)


class AttackChange(Result):
    """One attack on two judges."""

    name: str
    kind: str
    one: Figure
    """Rise with the first judge, over its reported prompts."""
    other: Figure
    """Rise with the other judge."""
    change: Figure
    """Mean of (rise with the other judge - rise with the first) over the prompts of both, in [-2, 2], with the paired
    interval."""
    beats_one: Figure
    beats_other: Figure


class AttackComparison(Result):
    """The result of [`compare`]. Files contain `model_dump()`."""

    one: str
    """Judge of the first file."""
    other: str
    prompts: int
    """Prompts in both files."""
    chosen_one: str | None
    """The attack that the search chose against the first judge."""
    chosen_other: str | None
    worst_one: Figure | None
    """Rise of the chosen attack of the first judge."""
    worst_other: Figure | None
    honest_one: Figure
    honest_other: Figure
    change: Figure
    """Mean change over all attacks of both files, with the paired interval over prompts."""
    attacks: tuple[AttackChange, ...]
    """Attacks of both files, by rise with the first judge."""


def is_attack(path: Path) -> bool:
    """Whether a file is the result of an attack: a `.json` file with its format."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        value = read_value(read_text(path), path)
    except ConfigError:
        return False
    return isinstance(value, Mapping) and str(value.get("format", "")).startswith("checklist-rewards-attack-")


def read_attack(path: str | Path) -> AttackReport:
    """Read the file of an attack.

    Raises:
        SampleError: If it is not one, or was written by another version.
        ConfigError: If it is not JSON.
    """
    value = read_value(read_text(Path(path)), Path(path))
    name = value.get("format") if isinstance(value, Mapping) else None
    if name != FORMAT:
        raise SampleError(f"{path} is not a file of `attack`: its format is {name!r:.60}, not {FORMAT!r}.")
    try:
        return AttackReport.model_validate(value)
    except ValidationError as error:
        raise SampleError(f"{path} is not a file of `attack`: {one_sentence(error)}") from None


def compare(one: AttackReport, other: AttackReport, bootstrap: Bootstrap | None = None) -> AttackComparison:
    """Compare the attacks on two judges on the prompts that both files report.

    Args:
        one, other ([`AttackReport`]): Attacks on the same prompts, with other judges.
        bootstrap ([`Bootstrap`], *optional*): Settings of the intervals.

    Raises:
        SampleError: If the files have no attack on a common prompt.
    """
    intervals = bootstrap or Bootstrap()
    theirs = {figures.name: figures for figures in other.attacks}
    both = [(figures, theirs[figures.name]) for figures in one.attacks if figures.name in theirs]
    changes = [
        {prompt: after.rises[prompt] - rise for prompt, rise in before.rises.items() if prompt in after.rises}
        for before, after in both
    ]
    prompts = list(dict.fromkeys(prompt for change in changes for prompt in change))
    if not prompts:
        raise SampleError(
            "the two files have no attack on a common prompt; run `attack` on both judges with the same checklists, "
            "--prompts and --seed."
        )
    values = [(prompt, value) for change in changes for prompt, value in change.items()]
    return AttackComparison(
        one=one.judge,
        other=other.judge,
        prompts=len(prompts),
        chosen_one=one.chosen,
        chosen_other=other.chosen,
        worst_one=None if one.worst is None else one.worst.rise,
        worst_other=None if other.worst is None else other.worst.rise,
        honest_one=one.honest,
        honest_other=other.honest,
        change=mean_figure(values, intervals, CHANGES),
        attacks=tuple(
            AttackChange(
                name=before.name,
                kind=before.kind,
                one=before.rise,
                other=after.rise,
                change=mean_figure(list(change.items()), intervals, CHANGES),
                beats_one=before.beats,
                beats_other=after.beats,
            )
            for (before, after), change in zip(both, changes, strict=True)
        ),
    )


def mean_figure(values: Sequence[tuple[Hashable, float]], bootstrap: Bootstrap, rule: Rule) -> Figure:
    """The mean of values with the groups they belong to."""
    return bootstrap.mean([value for _, value in values], [group for group, _ in values], rule)
