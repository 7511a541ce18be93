"""GRPO against a judge with a known weakness, with gold computed by code.

    python -m recipes.hacking.run --bias length --strength 0.6 --seed 0 -o runs/hacking
    python -m recipes.hacking.run --all -o runs/hacking

A run trains the policy of `start.py` on the answers of a [`BiasedJudge`] and writes `summary.json` and
`rewards.jsonl`, with one line per completion: step, prompt, completion, reward, gold (fraction of the constraints met,
computed by code), `held_out` (ids of the items that were read and not rewarded), and the score with all items.
`uncalibrated` in an item is what the judge would have said without its weakness. Without `--bias`, the run is clean.

Finished runs are skipped. `--all` walks the study: five biases times three seeds, ten clean runs, then the biased runs
again under each prevention.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hacking.biases import BIASES, BiasedJudge  # noqa: E402
from hacking.holdout import HeldOutReward  # noqa: E402
from hacking.start import make_start  # noqa: E402
from pocket.grpo_run import console, train  # noqa: E402
from pocket.policy import checklist_dataset  # noqa: E402
from pocket.study import once  # noqa: E402
from pocket.world import Task, satisfaction, tasks  # noqa: E402
from transformers.utils import logging as transformers_logging  # noqa: E402

from checklist_rewards import ChecklistScorer  # noqa: E402
from checklist_rewards.files.atomic import atomic_path  # noqa: E402
from checklist_rewards.files.rows import read_rows  # noqa: E402
from checklist_rewards.judges import Judge  # noqa: E402
from checklist_rewards.judges.panel import PanelJudge  # noqa: E402

SEEDS, CLEAN_SEEDS = range(3), range(10)
PREVENTIONS = ("none", "dropout", "panel", "steering")
STRENGTH = 0.8


@dataclass(frozen=True)
class Run:
    """The settings of one run. `bias=None` is a clean run."""

    bias: str | None
    seed: int
    strength: float = STRENGTH
    prevention: str = "none"
    steps: int = 40
    groups: int = 4
    prompts: int = 128
    learning_rate: float = 5e-4
    max_tokens: int = 72

    @property
    def name(self) -> str:
        return "-".join([self.bias or "clean", *([] if self.prevention == "none" else [self.prevention]), str(self.seed)])


def study() -> Iterator[Run]:
    """All runs, in the order in which they are of use."""
    for seed in SEEDS:
        yield from (Run(bias, seed) for bias in BIASES)
        yield from (Run(None, clean) for clean in CLEAN_SEEDS if clean % len(SEEDS) == seed)
    for prevention in PREVENTIONS[1:]:
        yield from (Run(bias, seed, prevention=prevention) for seed in SEEDS for bias in BIASES)


def judge_of(run: Run, store: Path) -> Judge:
    """The biased judge of a run. A panel has two more judges, with the two weaknesses that follow in `BIASES`."""
    inner = ChecklistScorer("pocket", store=store if run.prevention == "panel" else False).judge
    if run.bias is None:
        return inner
    if run.prevention != "panel":
        return BiasedJudge(inner, run.bias, run.strength)
    names = [*BIASES, *BIASES]
    first = names.index(run.bias)
    return PanelJudge([BiasedJudge(inner, name, run.strength) for name in names[first : first + 3]], rule="median")


def execute(run: Run, output: Path) -> dict[str, Any]:
    """Train, unless the run is finished, and return its summary: settings, and proxy and gold per step."""
    folder = output / run.name

    def trained() -> dict[str, Any]:
        dataset, items = checklist_dataset(tasks(run.prompts, seed=1, split="test"), output / "checklists.sqlite")
        scorer = ChecklistScorer(judge=judge_of(run, folder / "store.sqlite"))
        raw = folder / "all.jsonl"
        reward = HeldOutReward(scorer, log=raw, seed=run.seed, redraw=run.prevention == "dropout")
        log = train(
            dataset,
            items,
            scorer,
            folder,
            steps=run.steps,
            learning_rate=run.learning_rate,
            seed=run.seed,
            start=make_start(output / "start"),
            reward=reward,
            groups=run.groups,
            max_tokens=run.max_tokens,
        )
        write_log(raw, folder / "rewards.jsonl", {task.instruction: task for task in items}, reward)
        return {"log": log}

    return once(folder, asdict(run), trained)


def write_log(raw: Path, path: Path, by_prompt: dict[str, Task], reward: HeldOutReward) -> None:
    """Write the log of a run with gold and the held-out items, without fields that are None; delete the raw log."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in read_rows(raw):
            record = row.data
            prompt = record["prompt"][-1]["content"]
            record["gold"] = satisfaction(by_prompt[prompt], record["completion"])
            ids = [item["id"] for item in record["score"]["items"]]
            record["held_out"] = sorted(reward.held_out(ids, record["step"]))
            file.write(json.dumps(_without_none(record)) + "\n")
    raw.unlink()


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value


def main(argv: Sequence[str] | None = None) -> None:
    """Run one run, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/hacking"), help="folder of all runs")
    parser.add_argument("--all", action="store_true", help="run the whole study")
    parser.add_argument("--bias", choices=[*BIASES], help="weakness of the judge; omit for a clean run")
    parser.add_argument("--strength", type=float, default=STRENGTH, help="strength of the weakness, from 0 to 1")
    parser.add_argument("--prevention", choices=PREVENTIONS, default="none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Run.steps)
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()
    one = Run(args.bias, args.seed, args.strength, args.prevention, args.steps)
    for run in study() if args.all else [one]:
        log = execute(run, args.output)["log"]
        first, last = ({key: _mean(part, key) for key in ("proxy", "gold")} for part in (log[:5], log[-5:]))
        console.print(
            f"{run.name}: proxy {first['proxy']:.2f} -> {last['proxy']:.2f}, "
            f"gold {first['gold']:.2f} -> {last['gold']:.2f}"
        )


def _mean(log: list[dict[str, float]], key: str) -> float:
    return sum(entry[key] for entry in log) / len(log)


if __name__ == "__main__":
    main()
