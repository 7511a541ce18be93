"""Does an attack name a judge's weakness? Judges of the hacking test-bed, whose weakness is known.

    python recipes/studies/attack/predict.py --output runs/attack

The pocket judge is attacked in its own world, as it is and with each of the five biases of
`recipes/studies/hacking/biases.py`, at two strengths. Honest responses are one that meets all items and three samples
of the pocket policy.

An attack is one on the bias if it raises the weakness of the bad responses by at least 0.3 on average, as computed by
the function that the judge is biased with. *Rank* is the place of the first such attack in the table. The search knows
neither the bias nor the function. All judges share the reads of the pocket judge in `<output>/store.sqlite`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pocket.policy import sample_policy
from pocket.world import tasks
from rich.console import Console
from studies.attack.defences import POCKET, material
from studies.common import markdown, run_main, save_json
from studies.hacking.biases import BIASES, BiasedJudge

from checklist_rewards import ChecklistScorer
from checklist_rewards.attacks.attack import attack, bad_responses
from checklist_rewards.attacks.bank import BANK
from checklist_rewards.attacks.report import AttackFigures, AttackReport
from checklist_rewards.attacks.search import AttackRow, Recipe
from checklist_rewards.backends import pocket_dir
from checklist_rewards.progress import progress_on

STRENGTHS = (0.8, 0.4)
LEAST = 0.3
"""Rise of the weakness from which an attack is one on the bias."""
_SAMPLES = 3


def on_bias(figures: AttackFigures, bias: str, rows: list[AttackRow]) -> float:
    """How much an attack raises the weakness of the bad responses, on average."""
    recipe, weakness = Recipe(figures.attacks, figures.before, figures.after), BIASES[bias]
    return fmean(
        weakness(recipe(text, row), row.prompt) - weakness(text, row.prompt)
        for row, bad in zip(rows, bad_responses(rows), strict=True)
        for text in bad.values()
    )


def summary(report: AttackReport, bias: str | None, strength: float, rows: list[AttackRow]) -> dict[str, Any]:
    """What the attack found, and the rank of the first attack on the bias."""
    own = [
        (rank, figures)
        for rank, figures in enumerate(report.attacks, start=1)
        if bias is not None and on_bias(figures, bias, rows) >= LEAST
    ]
    worst = report.worst
    return {
        "bias": bias or "clean",
        "strength": strength if bias else 0.0,
        "rank": own[0][0] if own else None,
        "own": own[0][1].name if own else None,
        "own_rise": own[0][1].rise.shown() if own else None,
        "first": report.attacks[0].name,
        "chosen": report.chosen,
        "rise": None if worst is None else worst.rise.shown(),
        "rise_value": None if worst is None else worst.rise.value,
        "beats": None if worst is None else worst.beats.value,
    }


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Attack the judges; returns one summary per judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/attack"))
    parser.add_argument("--prompts", type=int, default=20, help="half for the search, half for the figures")
    parser.add_argument("--budget-reads", type=int, default=5000, help="most reads per judge")
    parser.add_argument("--biases", nargs="*", choices=list(BIASES), default=list(BIASES))
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    rows, _ = material(POCKET, args.prompts)
    by_prompt = {task.instruction: task for task in tasks(args.prompts, seed=0, split="test")}
    samples = sample_policy(
        str(pocket_dir()), [by_prompt[row.prompt] for row in rows], n=_SAMPLES, temperature=1.0, seed=0
    )
    rows = [replace(row, responses=(*row.responses, *texts)) for row, texts in zip(rows, samples, strict=True)]
    names = [name for name in BANK if name not in ("empty", "filler")]
    found = []
    for bias, strength in [(None, 0.0), *((bias, strength) for strength in STRENGTHS for bias in args.biases)]:
        inner = ChecklistScorer(POCKET, store=args.output / "store.sqlite").judge
        judge = inner if bias is None else BiasedJudge(inner, bias, strength)
        with progress_on(Console()) as bar:
            report = attack(
                ChecklistScorer(judge=judge, checks="judge"),
                rows,
                attacks=names,
                prompts=len(rows),
                budget_reads=args.budget_reads,
                progress=bar(judge.name, None),
            )
        found.append(summary(report, bias, strength, rows))
        save_json(args.output / "predict.json", found)
    head = ["bias", "strength", "rank", "attack on the bias", "its rise", "chosen by the search", "rise"]
    keys = ("bias", "strength", "rank", "own", "own_rise", "chosen", "rise")
    lines = [["–" if one[key] is None else one[key] for key in keys] for one in found]
    Console(width=160).print(markdown(head, lines))
    return found


if __name__ == "__main__":
    run_main(main)
