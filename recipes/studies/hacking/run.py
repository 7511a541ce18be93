"""GRPO against a judge with a known weakness, watched by a monitor, with gold computed by code.

    python recipes/studies/hacking/run.py --bias length --strength 0.8 --seed 0 -o runs/hacking
    python recipes/studies/hacking/run.py --all -o runs/hacking

A run trains the policy of `start.py` on the answers of a [`BiasedJudge`] and writes `summary.json` and
`rewards.jsonl`, the log of a monitored reward with one line per completion and `gold` in addition: the fraction of the
constraints met, computed by code. The shadow judge is the judge without its weakness. `uncalibrated` in an item is its
answer, for all completions: so `evaluate.py` can replay the shadow signals with another share. Without `--bias`, the
run is clean.

The prevention `patterns` gives no reward to completions that show what an attack on the judge found: `--attacks` is
the output folder of `recipes/studies/attack/predict.py`.

Finished runs are skipped. `--all` walks the study: five biases at two strengths and the clean runs, then the biased
runs again under each prevention, and runs with eight prompts per step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pocket.grpo_run import console, satisfied, train
from pocket.policy import checklist_dataset
from pocket.world import tasks
from studies.common import once
from studies.hacking.biases import BIASES, BiasedJudge
from studies.hacking.logs import write_log
from studies.hacking.start import make_start, measure_difficulty
from studies.hacking.study import PREVENTIONS, STRENGTH, Run, study
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.judges import Judge
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.rewards.trl import ChecklistReward


def judges_of(run: Run, store: Path) -> tuple[Judge, Judge]:
    """The judge of a run, and the same judge without its weakness.

    A panel is the median of three judges with different weaknesses: that of the run, and the next two of `BIASES`.
    """
    inner = ChecklistScorer("pocket", store=store).judge
    if run.bias is None:
        return inner, inner
    names = [*BIASES, *BIASES][list(BIASES).index(run.bias) :]
    judges = [BiasedJudge(inner, name, run.strength) for name in names[:3]]
    return PanelJudge(judges, rule="median") if run.prevention == "panel" else judges[0], inner


def attack_on(run: Run, attacks: Path | None) -> Path:
    """The file of the attack on the judge of a run, in the output folder of `predict.py`."""
    path = (attacks or Path()) / "judges" / f"{run.bias}-{run.strength:g}.json"
    if not path.is_file():
        raise SampleError(f"{path}: file not found; run studies/attack/predict.py and name its folder with --attacks.")
    return path


def execute(run: Run, output: Path, attacks: Path | None = None) -> dict[str, Any]:
    """Train, unless the run is finished, and return its summary: settings, and proxy and gold per step.

    Args:
        run ([`Run`]): The run.
        output (`Path`): Folder of all runs.
        attacks (`Path`, *optional*): Folder with the attacks on all judges; the prevention `patterns` needs it.
    """
    folder = output / run.name

    def trained() -> dict[str, Any]:
        dataset, items = checklist_dataset(tasks(run.prompts, seed=1, split="test"), output / "checklists.sqlite")
        raw = folder / "all.jsonl"
        raw.unlink(missing_ok=True)  # of an interrupted run
        judge, unbiased = judges_of(run, Path(reads) / "store.sqlite")
        scorer = ChecklistScorer(judge=judge)
        monitor = {
            **PREVENTIONS[run.prevention],
            "action": "log",
            "seed": run.seed,
            "shadow": ChecklistScorer(judge=unbiased),
            "log": folder / "monitor.jsonl",
            "attacks": None if run.prevention != "patterns" else attack_on(run, attacks),
        }
        log = train(
            dataset,
            items,
            scorer,
            folder,
            steps=run.steps,
            learning_rate=run.learning_rate,
            seed=run.seed,
            start=make_start(output / "start"),
            reward=ChecklistReward(scorer, log=raw, monitor=monitor),
            groups=run.groups,
            max_tokens=run.max_tokens,
        )
        write_log(raw, folder / "rewards.jsonl", satisfied(items))
        return {"log": log}

    with TemporaryDirectory() as reads:  # judges of a panel share their reads; runs do not
        return once(folder, asdict(run), trained)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one run, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/hacking"), help="folder of all runs")
    parser.add_argument("--all", action="store_true", help="run the whole study")
    parser.add_argument("--bias", choices=[*BIASES], help="weakness of the judge; omit for a clean run")
    parser.add_argument("--strength", type=float, default=STRENGTH, help="strength of the weakness, from 0 to 1")
    parser.add_argument("--prevention", choices=PREVENTIONS, default="none")
    parser.add_argument("--attacks", type=Path, help="folder of predict.py's attacks, for the prevention `patterns`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Run.steps)
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()
    one = Run(args.bias, args.seed, args.strength, args.prevention, args.steps)
    measure_difficulty(make_start(args.output / "start"), tasks(Run.prompts, seed=1, split="test"))
    for run in study() if args.all else [one]:
        log = execute(run, args.output, args.attacks)["log"]
        first, last = ({key: _mean(part, key) for key in ("proxy", "gold")} for part in (log[:5], log[-5:]))
        console.print(
            f"{run.name}: proxy {first['proxy']:.2f} -> {last['proxy']:.2f}, "
            f"gold {first['gold']:.2f} -> {last['gold']:.2f}"
        )


def _mean(log: Sequence[dict[str, float]], key: str) -> float:
    return sum(entry[key] for entry in log) / len(log)


if __name__ == "__main__":
    main()
