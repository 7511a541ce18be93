"""Robust by what? The same attack on a judge after each defence that the package has.

    python recipes/studies/attack/defences.py pocket --output runs/attack
    python recipes/studies/attack/defences.py english-encoder --output runs/attack

`pocket` is attacked in its own world (`material.py`), where code is gold for all items; other judges on the packaged
prompts of `checklist-rewards attack`. The judge answers all items itself (`checks="judge"`), except with `code`.

| defence | what answers |
|---|---|
| `none` | the judge |
| `code` | code, where an item has a check |
| `panel` | the judge and two rewordings of it (`prompts/variants/`, 2 and 4): the median |
| `strict panel` | the same three judges: the lowest |
| `opposite` | the judge, also asked whether the opposite is true: the mean of P(yes) and 1 - P(yes, opposite) |
| `calibration` | the judge, calibrated on good and bad responses to other prompts |
| `penalty` | the judge, and no for a response with a phrase that steers its grader (`steering="penalize"`) |
| `patterns` | the judge, and no for a response that shows an attack that worked without a defence (at most 8) |
| `reasoning`, `thinking` | the judge after written reasoning, or a thought; on one attack per kind |

Each defence is a file of `attack` in `<output>/defences/`, so `checklist-rewards diff` compares any two of them. All
have the same prompts, and store their reads in `<output>/store.sqlite`; finished ones are not run again. `filler` is
left out: its 2,000 words take as long as all other attacks together.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from studies.attack.material import pocket_rows
from studies.common import Reworded, markdown, save_json

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.attacks.attack import DEFAULT_PROMPTS, attack, bad_responses, default_rows
from checklist_rewards.attacks.bank import BANK, statement
from checklist_rewards.attacks.patterns import patterns_of
from checklist_rewards.attacks.report import AttackReport, compare, read_attack
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.evaluation.calibration import LabelledRead, Reads, fit_calibration
from checklist_rewards.judges import Ask, Judge, Member, Progress, Receipt
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.monitor.text import steering
from checklist_rewards.progress import progress_on
from checklist_rewards.rerank import Pool
from checklist_rewards.scores import Verdict

NONE, WRITING = "none", ("reasoning", "thinking")
DEFENCES = (NONE, "code", "panel", "strict panel", "opposite", "calibration", "penalty", "patterns", *WRITING)
POCKET = "pocket"
_WORDINGS = (2, 4)
_FITTED_PROMPTS = 12
"""Prompts, others than those attacked, on whose responses a judge is calibrated."""
_TOKENS = 32
_COLUMNS = {
    "checklist": ("checklist", "statements", "keywords"),
    "prompt": ("prompt",),
    "grader": ("praise", "claim", "instruction", "verdict"),
}
"""Columns of the table: mean rise of the attacks of these kinds that copy the checklist or the prompt, or address the
grader. The kinds are those of the bank."""
Answers = Callable[[Sequence[Ask], list[Verdict]], list[Verdict]]


class Changed(Judge):
    """A judge whose verdicts are changed by a function of the reads and the verdicts."""

    def __init__(self, inner: Judge, how: str, change: Answers):
        self.inner, self.change, self.name = inner, change, f"{inner.name}, {how}"

    def parts(self) -> Iterator[Judge]:
        """The inner judge and what it asks, and this judge."""
        yield from self.inner.parts()
        yield self

    def validate(self) -> None:
        """Raise a [`ChecklistRewardsError`] if the inner judge cannot be used."""
        self.inner.validate()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`] for an item that the inner judge cannot answer."""
        self.inner.check_item(item, where)

    def answer(self, reads: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """As the inner judge, with changed verdicts."""
        verdicts, spent = self.inner.answer(reads, progress)
        return self.change(reads, verdicts), spent


def opposite(item: ChecklistItem) -> ChecklistItem:
    """The item that asks whether the opposite of its question is true.

    >>> opposite(ChecklistItem(question="Does the response name a city?")).question
    'Is it true that the response does not name a city?'
    """
    text = statement(item.question, negated=True)
    return item.model_copy(
        update={"question": f"Is it true that {text[0].lower()}{text[1:-1]}?", "id": f"{item.id}/not"}
    )


def with_opposites(judge: Judge) -> Judge:
    """The judge, also asked the opposite of every question."""

    def change(reads: Sequence[Ask], verdicts: list[Verdict]) -> list[Verdict]:
        others, _ = judge.answer([replace(read, item=opposite(read.item)) for read in reads])
        return [_mean(verdict, other) for verdict, other in zip(verdicts, others, strict=True)]

    return Changed(judge, "opposite", change)


def _mean(verdict: Verdict, other: Verdict) -> Verdict:
    if verdict.probabilities is None or other.probabilities is None:
        return verdict if verdict.probabilities is None else other
    yes = (verdict.probabilities[YES] + other.probabilities[NO]) / 2
    return replace(verdict, probabilities={YES: yes, NO: 1 - yes})


def penalized(judge: Judge, shows: Callable[[Ask], bool] = lambda read: bool(steering(read.target))) -> Judge:
    """The judge; a response of a kind (by default, with a steering phrase) fails every item."""

    def failed(read: Ask, verdict: Verdict) -> Verdict:
        if verdict.probabilities is None or not shows(read):
            return verdict
        yes = 0.0 if read.item.weight >= 0 else 1.0
        return replace(verdict, probabilities={YES: yes, NO: 1 - yes})

    def change(reads: Sequence[Ask], verdicts: list[Verdict]) -> list[Verdict]:
        return [failed(read, verdict) for read, verdict in zip(reads, verdicts, strict=True)]

    return Changed(judge, "penalty", change)


def shows_attack(report: AttackReport, rows: Sequence[Pool]) -> Callable[[Ask], bool]:
    """Whether the response of a read shows an attack that worked: [`patterns_of`] the report."""
    patterns = patterns_of(report)
    questions = {row.input: [item.question for item in Checklist.parse(row.checklist).items] for row in rows}

    @cache
    def shown(text: str, prompt: str) -> bool:
        return any(pattern.shown(text, prompt, questions[prompt]) for pattern in patterns)

    return lambda read: shown(read.target, read.input or "")


def calibration(judge: Judge, rows: Sequence[Pool]) -> Calibration:
    """A calibration on the honest responses to some prompts (yes) and on their bad ones (no), by code where it can
    tell."""
    scorer = ChecklistScorer(judge=judge, checks="judge")
    code = ChecklistScorer(judge=judge, checks="only")
    rows = [replace(row, checklist=Checklist.parse(row.checklist)) for row in rows]
    targets = [
        (row, text, yes)
        for row, bad in zip(rows, bad_responses(rows), strict=True)
        for text, yes in [*((text, True) for text in row.candidates), *((text, False) for text in bad.values())]
        if text.strip()
    ]
    samples = [Sample(row.checklist, text, row.input) for row, text, _ in targets]
    labelled: list[LabelledRead] = []
    for score, (row, text, yes) in zip(scorer.score_batch(samples), targets, strict=True):
        only = [item for item in row.checklist.items if item.check is not None]
        by_code = {}
        if only:
            lines = code.score(Checklist(items=tuple(only)), text, row.input).items
            by_code = {item.id: line.answer for item, line in zip(only, lines, strict=True)}
        for item, line in zip(row.checklist.items, score.items, strict=True):
            if line.probabilities is not None:
                label = by_code.get(item.id) or (YES if yes else NO)
                labelled.append(LabelledRead(item, dict(line.probabilities), label, row.input))
    return fit_calibration(Reads(judge.name, "logprobs", tuple(labelled)), bootstrap=Bootstrap(0))[0]


def defended(
    model: str, store: Path, rows: Sequence[Pool], others: Sequence[Pool], plain: Path
) -> dict[str, Callable[[], ChecklistScorer]]:
    """The scorer of each defence. `plain` is the file of the attack without a defence."""

    def judge(**settings: object) -> Judge:
        return ChecklistScorer(model, store=store, **settings).judge  # type: ignore[arg-type]

    def scorer(judge: Judge | Member, **settings: object) -> ChecklistScorer:
        return ChecklistScorer(judge=judge, **({"checks": "judge"} | settings))  # type: ignore[arg-type]

    def panel(rule: str) -> ChecklistScorer:
        plain = judge()
        return scorer(PanelJudge([plain, *(Reworded(judge(), number) for number in _WORDINGS)], rule=rule))  # type: ignore[arg-type]

    return {
        NONE: lambda: scorer(judge()),
        "code": lambda: scorer(judge(), checks="only"),
        "panel": lambda: panel("median"),
        "strict panel": lambda: panel("min"),
        "opposite": lambda: scorer(with_opposites(judge())),
        "calibration": lambda: scorer(Member(judge(), calibration(judge(), others))),
        "penalty": lambda: scorer(penalized(judge())),
        "patterns": lambda: scorer(penalized(judge(), shows_attack(read_attack(plain), rows))),
        "reasoning": lambda: scorer(judge(capture_reasoning=True, max_tokens=_TOKENS)),
        "thinking": lambda: scorer(judge(thinking=_TOKENS)),
    }


def material(model: str, count: int) -> tuple[list[Pool], list[Pool]]:
    """The prompts to attack, and others to calibrate on."""
    if model == POCKET:
        rows = [
            Pool(Checklist.parse(row["checklist"]), (row["target"],), row["prompt"])
            for row in pocket_rows(count + _FITTED_PROMPTS, 0)
        ]
        return rows[:count], rows[count:]
    rows = default_rows()
    count = min(count, DEFAULT_PROMPTS - _FITTED_PROMPTS)
    return rows[:count], rows[count : count + _FITTED_PROMPTS]


def attacked(args: argparse.Namespace) -> dict[str, AttackReport]:
    """The report of each defence; finished ones are read from their files."""
    rows, others = material(args.model, args.prompts)
    found: dict[str, AttackReport] = {}
    paths = {name: args.output / "defences" / f"{args.model}-{name.replace(' ', '-')}.json" for name in DEFENCES}
    for name, scorer in defended(args.model, args.output / "store.sqlite", rows, others, paths[NONE]).items():
        path = paths[name]
        if name not in args.defences:
            continue
        if not path.is_file():
            names = [attack for attack in BANK if attack not in ("empty", "filler")]
            if name in WRITING:
                names = list({BANK[attack].kind: attack for attack in reversed(names)}.values())
            with progress_on(Console()) as bar:
                judged = scorer()
                report = attack(
                    judged,
                    rows,
                    attacks=names,
                    prompts=len(rows),
                    budget_reads=args.budget_reads * len(judged.judge.engines),
                    progress=bar(f"{args.model}, {name}", None),
                )
            save_json(path, report.model_dump())
        found[name] = read_attack(path)
    return found


def mean_rise(report: AttackReport, kinds: Sequence[str]) -> str:
    """Mean rise of the attacks of some kinds in the bank."""
    rises = [
        figures.rise.value
        for figures in report.attacks
        if figures.name in BANK and BANK[figures.name].kind in kinds and figures.rise.value is not None
    ]
    return f"{fmean(rises):.2f}" if rises else ""


def table(reports: dict[str, AttackReport], bootstrap: Bootstrap) -> str:
    """One line per defence."""
    plain, lines = reports[NONE], []
    for name, report in reports.items():
        worst = report.worst
        change = "" if name == NONE else compare(plain, report, bootstrap).change.shown()
        beats = "" if worst is None or worst.beats.value is None else f"{worst.beats.value:.0%}"
        before = "" if report.beats_before.value is None else f"{report.beats_before.value:.0%}"
        lost = sum(report.unanswered.values())
        cells = [f"`{worst.name}`" if worst else "none", worst.rise.shown() if worst else "", beats]
        cells += [mean_rise(report, kinds) for kinds in _COLUMNS.values()] + [change]
        lines.append([f"`{name}`", report.honest.shown(), before, *cells, f"{report.reads:,}", str(lost)])
    head = ["defence", "honest", "beat an honest one before", "chosen attack", "rise", "then beats honest"]
    return markdown([*head, *_COLUMNS, "change of all attacks", "reads", "unanswered"], lines)


def main(argv: list[str] | None = None) -> dict[str, AttackReport]:
    """Attack all defences and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pocket, or another judge without a server")
    parser.add_argument("--output", type=Path, default=Path("runs/attack"))
    parser.add_argument("--prompts", type=int, default=20, help="half for the search, half for the figures")
    parser.add_argument("--budget-reads", type=int, default=5000, help="most reads per defence and judge of a panel")
    parser.add_argument(
        "--defences", nargs="+", choices=DEFENCES, default=DEFENCES[:-2], help="default: all but the last two"
    )
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    reports = attacked(args)
    text = table(reports, Bootstrap())
    Console(width=200).print(text)
    (args.output / "defences" / f"{args.model}.md").write_text(text + "\n", encoding="utf-8")
    return reports


if __name__ == "__main__":
    main()
