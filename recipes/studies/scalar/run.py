"""The same number of human labels, spent on a checklist judge, on a calibrated one, and on a scalar reward model.

    python recipes/studies/scalar/run.py --output runs/scalar

Three rewards are trained from the same weights on 100, 300, 1,000 and 3,000 labels, and used to choose the best of N
completions and to train the pocket policy with GRPO. Gold is the fraction of constraints met, computed by code.

*One label* is one bit: for the checklist judge, a yes or no to one item about one completion; for the scalar model, a
preference between two completions of a prompt, without ties. The checklists themselves are written by the pocket model
and cost no label. That is what is compared: a checklist says what to look for, and a preference does not.

*The start* is a language model of the pocket world that was not trained to judge (`start.py`); how well it judges
before any label is measured and stands in the table. *Calibrated* means that a fifth of the labels is kept from the
training of the judge and spent on a Platt map. Spending all labels on a map of the untrained judge would be of little
use: the map rises, so it changes hardly any order of two completions.

*Over-optimisation* is the reward minus gold, after a linear map that gives the reward the mean and the standard
deviation of gold on completions of the start policy (`measures.py`).

Each cell (reward, labels, seed) has a folder with its reward, `best/` and `grpo/`. Finished parts are skipped, so the
same command continues an interrupted study; `--summary` starts nothing. Writes `summary.json`, `table.md` and
`scalar.png` under `--output`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pocket.grpo_run import console, train
from pocket.policy import checklist_dataset, sample_policy
from pocket.world import satisfaction, tasks
from studies.common import Result, once, save_json
from studies.scalar.labels import Prompt, fingerprint, sampled_prompts
from studies.scalar.measures import Scale, chosen
from studies.scalar.report import plot, summarize, table
from studies.scalar.rewards import ARMS, LEARNING_RATES, JudgeReward, ScalarReward, load_reward, train_reward
from studies.scalar.start import STEPS, make_start
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import engine_identity

BUDGETS, GRPO_BUDGETS = (100, 300, 1000, 3000), (300, 3000)
SEEDS = (2, 3, 4)
"""The learning rates were chosen on seed 1."""
POOL_SAMPLES = 4
GRPO = {"groups": 4, "max_tokens": 72, "learning_rate": 5e-4}
"""As in the hacking study."""


class Study:
    """What all cells share: the start, the texts that are labelled, and the candidates.

    Args:
        args: the values of [`options`].
    """

    def __init__(self, args: argparse.Namespace):
        self.args, self.output = args, args.output
        store = self.output / "checklists.sqlite"
        self.start = make_start(self.output / "start", steps=args.start_steps)
        sampled = partial(sampled_prompts, store=store)
        self.pool = sampled(self.output / "pool.jsonl", args.pool, seed=5, n=POOL_SAMPLES)
        self.held_out = sampled(self.output / "held_out.jsonl", args.test_prompts, seed=2, n=args.n)
        self.dataset, self.items = checklist_dataset(tasks(args.train_prompts, seed=1, split="test"), store)
        of_test = {task.instruction: task for task in tasks(args.test_prompts, seed=2, split="test")}
        self.test_items = [of_test[prompt.instruction] for prompt in self.held_out]
        self.gold = [prompt.gold for prompt in self.held_out]
        self.trained_on = {"start": engine_identity(str(self.start), "transformers"), "pool": fingerprint(self.pool)}

    def references(self) -> Result:
        """Gold without a choice and with the best one, of greedy decoding, and of two judges that need no label."""
        greedy = sample_policy("pocket", self.test_items, n=1, temperature=0.0)
        packaged = JudgeReward(ChecklistScorer("pocket", store=False))
        return {
            "random": fmean(fmean(line) for line in self.gold),
            "oracle": fmean(max(line) for line in self.gold),
            "greedy": fmean(satisfaction(task, text) for task, [text] in zip(self.test_items, greedy, strict=True)),
            "start": chosen(JudgeReward.untrained(self.start).scores(self.held_out), self.gold),
            "packaged": chosen(packaged.scores(self.held_out), self.gold),
        }

    def cell(self, arm: str, budget: int, seed: int) -> dict[str, Any] | None:
        """The figures of one cell; with `--summary`, None if it is not finished."""
        args = self.args
        suffix = "" if args.rate is None else f"-rate{args.rate:g}"
        folder = self.output / f"{arm}-{budget}-{seed}{suffix}"
        done = (folder / "best" / "summary.json").is_file()
        if args.summary and not done:
            return None
        settings: Result = {
            **self.trained_on,
            "arm": arm,
            "budget": budget,
            "seed": seed,
            "rate": args.rate or LEARNING_RATES[arm],
        }
        reward = folder / "reward"
        console.print(f"[bold]{arm}, {budget} labels, seed {seed}[/]")
        train_it = partial(train_reward, arm, self.start, self.pool, budget, seed, reward, args.rate)
        trained = once(folder, settings, train_it)
        settings = {**settings, "held_out": fingerprint(self.held_out)}
        best = once(folder / "best", settings, partial(self.best, arm, reward))
        cell: dict[str, Any] = {"arm": arm, "budget": budget, "seed": seed, "trained": trained, "best": best}
        grpo = folder / "grpo"
        if budget in args.grpo_budgets and (not args.summary or (grpo / "summary.json").is_file()):
            settings = {**settings, **GRPO, "steps": args.steps, "train_prompts": args.train_prompts}
            cell["grpo"] = once(grpo, settings, partial(self.grpo, arm, reward, grpo, seed, Scale(**best["scale"])))
        return cell

    def best(self, arm: str, reward: Path) -> Result:
        """Best of N by the reward, on candidates that all cells share."""
        return chosen(load_reward(arm, self.start, reward).scores(self.held_out), self.gold)

    def grpo(self, arm: str, reward: Path, folder: Path, seed: int, scale: Scale) -> Result:
        """Train the pocket policy; reward and gold by step, and at the end on held-out prompts."""
        loaded = load_reward(arm, self.start, reward)
        scorer = loaded.scorer if isinstance(loaded, JudgeReward) else ChecklistScorer("pocket", store=False)
        log = train(
            self.dataset,
            self.items,
            scorer,
            folder,
            steps=self.args.steps,
            seed=seed,
            reward=loaded if isinstance(loaded, ScalarReward) else None,
            **GRPO,
        )
        replies = sample_policy(str(folder / "policy"), self.test_items, n=POOL_SAMPLES, temperature=1.0)
        after = [
            Prompt(prompt.instruction, prompt.questions, tuple(texts), tuple(satisfaction(task, t) for t in texts))
            for prompt, task, texts in zip(self.held_out, self.test_items, replies, strict=True)
        ]
        gold = fmean(fmean(prompt.gold) for prompt in after)
        proxy = scale(fmean(fmean(line) for line in loaded.scores(after)))
        curve = [{"gold": entry["gold"], "proxy": scale(entry["proxy"])} for entry in log]
        return {"gold": gold, "proxy": proxy, "gap": proxy - gold, "curve": curve}


def cells(study: Study) -> Iterator[dict[str, Any]]:
    """All cells, seed by seed, so that a part of the study has every reward and budget."""
    args = study.args
    for seed in args.seeds:
        for budget in args.budgets:
            for arm in args.arms:
                if (cell := study.cell(arm, budget, seed)) is not None:
                    yield cell


def options() -> argparse.ArgumentParser:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/scalar"))
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="numbers of labels")
    parser.add_argument("--grpo-budgets", type=int, nargs="*", default=GRPO_BUDGETS, help="those with a GRPO run")
    parser.add_argument("--arms", choices=ARMS, nargs="+", default=ARMS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of labels, training and GRPO")
    parser.add_argument("--rate", type=float, help="learning rate of the rewards; by default that of each arm")
    parser.add_argument("--steps", type=int, default=40, help="GRPO steps")
    parser.add_argument("--n", type=int, default=16, help="candidates per held-out prompt")
    parser.add_argument("--pool", type=int, default=1500, help="prompts whose completions are labelled")
    parser.add_argument("--train-prompts", type=int, default=128, help="prompts of GRPO")
    parser.add_argument("--test-prompts", type=int, default=96, help="held-out prompts")
    parser.add_argument("--start-steps", type=int, default=STEPS, help="training steps of the start")
    parser.add_argument("--summary", action="store_true", help="start no cell, only summarize those that are finished")
    return parser


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its summary."""
    args = options().parse_args(argv)
    transformers_logging.disable_progress_bar()
    study = Study(args)
    held_out = {**study.trained_on, "held_out": fingerprint(study.held_out)}
    references = once(args.output / "references", held_out, study.references)
    found = list(cells(study))
    summary = summarize(found, references)
    save_json(args.output / "summary.json", summary)
    (args.output / "table.md").write_text(table(summary), encoding="utf-8")
    plot(found, summary, args.output / "scalar.png")
    console.print(table(summary), markup=False, soft_wrap=True)
    return summary


if __name__ == "__main__":
    main()
