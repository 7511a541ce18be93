"""Self-refinement on the pocket model with checklist feedback (STICK) and with critiques: the gain per round.

    python recipes/studies/stick.py --output_dir runs/stick
    python recipes/studies/stick.py --policy runs/demo/policy --output_dir runs/stick_trained   # another pocket model

For held-out prompts of the pocket world, a model answers, is judged, and answers again for several rounds. The pocket
model writes the checklists and judges. With the method *checklist*, the feedback is the verdicts; with *critique*, it
is the model's own critique in free text, and the checklist is only used for scoring. The first answers are the same
for both methods. Each method runs once per seed.

After every round, over all prompts, the recipe reports the judge's score and the gold score (the fraction of
constraints met, computed by code) of the current answer, and of the best answer so far by score, which is the result
of `refine_batch`. A prompt that needs no further round keeps its answer. Prompts for which a step failed (no reply, no
checklist, no score) are excluded from the means of that method and seed and counted in `lost`.

Writes `summary.json` and `rounds.png` (mean over seeds, shaded from the lowest to the highest) under `--output_dir`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pocket.world import Task, satisfaction, tasks
from rich.console import Console
from rich.table import Table
from studies.common import figure, run_main, save_json
from trl import TrlParser

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, Sampling
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import open_store
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.self_refine import METHODS, UNSCORED, Refinement, refine_batch

MEASURES = {"score": "score (judge)", "gold": "gold (code)"}
CHOICES = {"last": "the answer that stands", "best": "the best so far by score"}
Curves = dict[str, dict[str, list[float]]]
"""Measure -> choice -> mean after round 0, 1, 2 ..."""


@dataclass
class StickArguments:
    """Settings of the study."""

    policy: str = field(default="pocket", metadata={"help": "The model that answers and critiques."})
    prompts: int = field(default=96, metadata={"help": "Number of held-out pocket prompts."})
    rounds: int = field(default=3, metadata={"help": "Maximum number of answers after the first."})
    seeds: int = field(default=3, metadata={"help": "Runs of each method."})
    temperature: float = field(default=1.0, metadata={"help": "Sampling temperature of answers and critiques."})
    max_tokens: int = 128
    store: str | None = field(default=None, metadata={"help": "Store file. Defaults to the user cache."})
    output_dir: str = "runs/stick"


def curves(items: Sequence[Task], refined: Sequence[Refinement], rounds: int) -> tuple[Curves, int]:
    """Means after each round, and the number of prompts excluded because a step failed."""
    kept = [(task, done) for task, done in zip(items, refined, strict=True) if _complete(done)]
    if not kept:
        raise SampleError(f"none of the {len(items)} prompts could be refined; the first: {refined[0].stopped}.")
    sums: Curves = {measure: {choice: [] for choice in CHOICES} for measure in MEASURES}
    for number in range(rounds + 1):
        for choice in CHOICES:
            standing = [_standing(done, number, choice) for _, done in kept]
            sums["score"][choice].append(fmean(score for _, score in standing))
            sums["gold"][choice].append(
                fmean(satisfaction(task, text) for (task, _), (text, _) in zip(kept, standing, strict=True))
            )
    return sums, len(items) - len(kept)


def _complete(done: Refinement) -> bool:
    failed = done.stopped == UNSCORED or done.stopped.startswith("no_reply")
    return bool(done.rounds) and not failed and all(_score(done, number) is not None for number in _numbers(done))


def _numbers(done: Refinement) -> range:
    return range(len(done.rounds))


def _score(done: Refinement, number: int) -> float | None:
    score = done.rounds[number].score
    return None if score is None else score.primary_score


def _standing(done: Refinement, number: int, choice: str) -> tuple[str, float]:
    """Text and score of an answer after round `number`: the last one, or the earliest best one."""
    until = _numbers(done)[: number + 1]
    scores = [_score(done, i) or 0.0 for i in until]
    place = until[-1] if choice == "last" else scores.index(max(scores))
    return done.rounds[place].text, scores[place]


def spread(runs: Sequence[Curves]) -> dict[str, Any]:
    """Mean, minimum and maximum over the seeds, per round."""
    return {
        measure: {
            choice: {
                name: [of(values) for values in zip(*(run[measure][choice] for run in runs), strict=True)]
                for name, of in (("mean", fmean), ("lowest", min), ("highest", max))
            }
            for choice in CHOICES
        }
        for measure in MEASURES
    }


def plot(methods: dict[str, dict[str, Any]], path: Path) -> None:
    """Score and gold against rounds, side by side, both methods in each."""
    with figure(path, 2, dpi=150, figsize=(9.5, 4.2), sharey=True) as panels:
        for axes, (measure, title) in zip(panels, MEASURES.items(), strict=True):
            for color, (method, result) in zip(("C0", "C1"), methods.items(), strict=True):
                for choice, style in (("last", "-"), ("best", "--")):
                    line, label = result["curves"][measure][choice], f"{method}, {CHOICES[choice]}"
                    numbers = range(len(line["mean"]))
                    axes.plot(numbers, line["mean"], style, color=color, marker="o", label=label)
                    axes.fill_between(numbers, line["lowest"], line["highest"], color=color, alpha=0.15, linewidth=0)
            axes.set(xlabel="round (0: the plain answer)", title=title, xticks=list(numbers))
        panels[0].set_ylabel("mean over prompts and seeds")
        panels[1].legend(frameon=False, fontsize="small")


def report(summary: dict[str, Any]) -> None:
    """Print the results as a table."""
    table = Table("method", "", title=f"Mean over {summary['prompts']} prompts and {summary['seeds']} seeds, by round")
    for number in range(summary["rounds"] + 1):
        table.add_column(str(number), justify="right")
    for method, result in summary["methods"].items():
        for measure in MEASURES:
            for choice in CHOICES:
                values = result["curves"][measure][choice]["mean"]
                table.add_row(method, f"{measure}, {CHOICES[choice]}", *(f"{value:.3f}" for value in values))
    Console().print(table)


def main(arguments: StickArguments) -> dict[str, Any]:
    """Run both methods with every seed; returns the content of `summary.json`."""
    output = Path(arguments.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    store: str | bool = arguments.store or True
    items = tasks(arguments.prompts, seed=3, split="test")
    scorer, engine = ChecklistScorer("pocket", store=store), Engine(arguments.policy, "transformers")
    generator = DirectGenerator("pocket", temperature=0, store=store)
    methods: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        runs, lost = [], []
        stopped: dict[str, int] = {}
        for seed in range(arguments.seeds):
            # Round k samples with seed + k, so the seeds are spaced such that runs share no replies.
            sampling = Sampling(arguments.max_tokens, arguments.temperature, seed=seed * (arguments.rounds + 2))
            refined = refine_batch(
                [task.instruction for task in items],
                engine,
                scorer,
                generator,
                rounds=arguments.rounds,
                method=method,
                sampling=sampling,
                store=open_store(store),
            )
            run, left_out = curves(items, refined, arguments.rounds)
            runs.append(run)
            lost.append(left_out)
            for done in refined:
                reason = done.stopped.partition(":")[0]
                stopped[reason] = stopped.get(reason, 0) + 1
        methods[method] = {"curves": spread(runs), "runs": runs, "lost": lost, "stopped": stopped}
    summary = {
        **{name: getattr(arguments, name) for name in ("policy", "prompts", "rounds", "seeds", "temperature")},
        "methods": methods,
        "receipt": asdict(scorer.receipt),
    }
    save_json(output / "summary.json", summary)
    plot(methods, output / "rounds.png")
    report(summary)
    return summary


if __name__ == "__main__":
    run_main(lambda: main(*TrlParser((StickArguments,)).parse_args_and_config()))
