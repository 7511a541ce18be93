"""Soft or hard answers as the reward: GRPO on the pocket model with both, over several seeds.

    python recipes/studies/soft_vs_hard.py --output runs/soft_vs_hard

*Soft* is `metric="expected"`: the weighted mean of P(yes). *Hard* is `"pass"`: the fraction of items passed.
All other settings are those of the demo. Each run is evaluated on held-out prompts by code (*gold*) every
`--eval-every` steps, and at the end by its own judge (*proxy*). A group is *without variance* if all completions of a
prompt have the same reward, so it gives no gradient.

Writes `summary.json` and `soft_vs_hard.png` under `--output`. Finished runs are skipped, so you can add seeds, run the
arms in parallel (`--arms soft`, `--arms hard`) and combine them, or resume an interrupted study.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pocket.grpo_run import GROUPS, NEARLY, overhead
from pocket.policy import gold, measure, sample_policy
from rich.console import Console
from rich.table import Table
from studies.arms import Runs, Study, gold_curve, options, run_arms
from studies.common import band, figure, once, save_json, shown, spread
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import pocket_dir

ARMS = {"soft": "expected", "hard": "pass"}
COLORS = {"soft": "C0", "hard": "C3"}


class SoftVsHard(Study):
    """Runs with either metric."""

    def scorer(self, arm: str, store: Path) -> ChecklistScorer:
        return ChecklistScorer("pocket", store=store, metric=ARMS[arm])

    def greedy_gold(self, policy: Path) -> float:
        return gold(self.test_items, sample_policy(str(policy), self.test_items, n=1, temperature=0.0))

    def before(self) -> dict[str, Any]:
        """Evaluate the untrained policy by code and by the judge of each arm."""
        texts = self.held_out(pocket_dir())
        found = {
            arm: measure(self.scorer(arm, self.store), self.test_set, self.test_items, texts)["proxy"] for arm in ARMS
        }
        return {
            "gold": gold(self.test_items, texts),
            "greedy_gold": self.greedy_gold(pocket_dir()),
            "proxy": found,
        }

    def run(self, arm: str, seed: int, folder: Path) -> dict[str, Any]:
        """Train and evaluate one run."""
        # Each run has its own store, because shared reads would make later runs faster.
        scorer, started = self.scorer(arm, folder / "store.sqlite"), time.perf_counter()
        log = self.train(scorer, folder, seed)
        trained = time.perf_counter() - started
        return {
            **self.evaluate(scorer, folder, log),
            "greedy_gold": self.greedy_gold(folder / "policy"),
            "reward_cost": overhead(log),
            "training_seconds": trained,
        }


def summarize(before: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """Results of each arm over its seeds, and soft minus hard for seeds that both arms have."""
    arms = {}
    for arm, of_seeds in runs.items():
        numbers = ("gold", "greedy_gold", "proxy", "zero_variance", "small_variance", "training_seconds")
        arms[arm] = {name: spread([run[name] for run in of_seeds]) for name in numbers}
        arms[arm] |= {
            "gap": spread([run["proxy"] - run["gold"] for run in of_seeds]),
            "overhead": spread([run["reward_cost"]["overhead"] for run in of_seeds]),
            "curve": gold_curve(before["gold"], of_seeds),
            "zero_variance_per_step": [
                fmean(entries)
                for entries in zip(*([e["zero_variance"] for e in r["log"]] for r in of_seeds), strict=True)
            ],
        }
    summary = {"before": {key: before[key] for key in ("gold", "greedy_gold", "proxy")}, "arms": arms}
    if set(runs) == set(ARMS):
        pairs = zip(runs["soft"], runs["hard"], strict=True)
        summary["soft_minus_hard_gold"] = spread([soft["gold"] - hard["gold"] for soft, hard in pairs])
    return summary


def plot(summary: dict[str, Any], path: Path) -> None:
    """Plot held-out gold and the fraction of groups without variance against the step."""
    with figure(path, 2, figsize=(9.5, 3.8)) as (left, right):
        for arm, found in summary["arms"].items():
            curve = {step: values["per_seed"] for step, values in found["curve"].items()}
            band(left, curve, f"{arm} ({ARMS[arm]})", COLORS[arm])
            shares = found["zero_variance_per_step"]
            right.plot(range(1, len(shares) + 1), shares, color=COLORS[arm], label=arm)
        left.set(xlabel="GRPO step", ylabel="share of constraints met (gold)")
        left.set_title(f"Held-out prompts, mean and range of {len(curve[0])} seeds")
        right.set(xlabel="GRPO step", ylabel="share of groups")
        right.set_title("Groups without variance, mean of the seeds")
        left.legend(frameon=False, loc="lower right")
        right.legend(frameon=False, loc="upper left")


def report(summary: dict[str, Any]) -> None:
    """Print both arms side by side."""
    table = Table(title="Held-out prompts: mean over the seeds (least-greatest)")
    table.add_column("")
    table.add_column("before")
    before, arms = summary["before"], summary["arms"]
    for arm in arms:
        table.add_column(arm)
    rows = (
        ("gold, sampled", f"{before['gold']:.3f}", "gold"),
        ("gold, greedy", f"{before['greedy_gold']:.3f}", "greedy_gold"),
        ("proxy", ", ".join(f"{before['proxy'][arm]:.3f}" for arm in arms), "proxy"),
        ("proxy - gold", "", "gap"),
        (f"equal rewards, share of {GROUPS} groups", "", "zero_variance"),
        (f"std < {NEARLY}, share of {GROUPS} groups", "", "small_variance"),
        ("reward's own time / step", "", "overhead"),
    )
    for name, first, key in rows:
        table.add_row(name, first, *(shown(found[key], 4 if key == "overhead" else 3) for found in arms.values()))
    Console().print(table)
    if "soft_minus_hard_gold" in summary:
        Console().print(f"Gold, soft minus hard, seed by seed: {shown(summary['soft_minus_hard_gold'])}.")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its summary."""
    parser = options(__doc__.split("\n")[0], "runs/soft_vs_hard", list(ARMS))
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()

    study = SoftVsHard(args)
    before = once(args.output / "before", study.settings, study.before)
    settings = {**study.settings, **study.how}
    runs = run_arms(args, settings, study.run)
    summary = {"settings": {**settings, "seeds": args.seeds}, **summarize(before, runs)}
    save_json(args.output / "summary.json", summary)
    plot(summary, args.output / "soft_vs_hard.png")
    report(summary)
    Console().print(f"Everything is in {args.output}/: summary.json, soft_vs_hard.png, and a folder for every run.")
    return summary


if __name__ == "__main__":
    main()
