"""Is the share of groups with a gradient known before training?

    python recipes/studies/gradient.py --output runs/gradient

Ten checklist sets of different quality for the same prompts of the pocket world: all constraints of the prompt, its
first one, only the kinds of constraints that the policy mostly meets or mostly misses, vague items that every text
passes, duplicates, and mixtures. Code answers the items. For each set, `evaluation/gradient.py` sees the completions
of some prompts and predicts the fraction of groups of 8 and of 4 whose scores differ; it is measured on the groups of
all other prompts. The policy does not change: this measures the prediction for the first step of a training.

    python recipes/studies/gradient.py --output runs/gradient --log runs/demo/rewards.jsonl

The same sets on the completions of a real GRPO run, from the reward log of the demo: the forecast sees the groups of
the first steps, and the fraction is measured on those of later steps. The run was trained with all constraints.

    python recipes/studies/gradient.py --output runs/gradient --prompts 120 --sample 40 --train 3

A GRPO run for each set, trained on its own score. The forecast sees completions of the untrained policy to
`--sample` prompts; the run has the other prompts. Measured is 1 - `frac_reward_zero_std`, as TRL logs it per step.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from pocket.policy import MAX_TOKENS, as_prompt, sample_policy
from pocket.world import Constraint, Task, parse_question, tasks
from rich.console import Console
from scipy.stats import spearmanr
from studies.common import json_lines, markdown, once, run_main, save_json

from checklist_rewards import Checklist, Score
from checklist_rewards.backends import pocket_dir
from checklist_rewards.evaluation.gradient import GradientForecast
from checklist_rewards.scores import EQUAL, Aggregation, Verdict, score_checklist

POOL = 8
_HARD = Aggregation(primary_metric="weighted")


def sets(items: Sequence[Task], replies: Sequence[Sequence[str]]) -> dict[str, Callable[[Task], list[Constraint]]]:
    """The constraints that each set asks about, as a function of the task."""
    met: dict[str, list[bool]] = {}
    for item, texts in zip(items, replies, strict=True):
        for constraint in item.constraints:
            met.setdefault(constraint.family, []).extend(map(constraint.holds, texts))
    order = sorted(met, key=lambda family: fmean(met[family]))
    hard, easy = set(order[: len(order) // 3]), set(order[-(len(order) // 3) :])
    return {
        "all constraints": lambda task: list(task.constraints),
        "the first one": lambda task: list(task.constraints[:1]),
        "the first two": lambda task: list(task.constraints[:2]),
        "the last one, three times": lambda task: [task.constraints[-1]] * 3,
        "easy kinds": lambda task: [c for c in task.constraints if c.family in easy],
        "hard kinds": lambda task: [c for c in task.constraints if c.family in hard],
        "not the easy kinds": lambda task: [c for c in task.constraints if c.family not in easy],
        "not the hard kinds": lambda task: [c for c in task.constraints if c.family not in hard],
        "one of three prompts vague": lambda task: [] if len(task.instruction) % 3 == 0 else list(task.constraints),
        "two of three prompts vague": lambda task: (
            list(task.constraints[:1]) if len(task.instruction) % 3 == 0 else []
        ),
    }


def scored(constraints: Sequence[Constraint], text: str) -> Score:
    """The score of a text: the constraints by code, and a vague item that every text passes."""
    met = [*(float(constraint.holds(text)) for constraint in constraints), 1.0]
    questions = [*(constraint.question() for constraint in constraints), "Is it a text?"]
    return score_checklist(Checklist.parse(questions), [Verdict({"yes": p, "no": 1 - p}) for p in met], _HARD)


def material(args: argparse.Namespace) -> tuple[list[Task], list[int], list[int], list[list[str]]]:
    """The tasks, the places of those that the forecast sees and of the others, and the completions of every task."""
    items = tasks(args.prompts, seed=11, split="test")
    path = args.output / "completions.json"
    if not path.is_file():
        save_json(path, sample_policy(str(pocket_dir()), items, n=POOL, temperature=1.0, seed=11))
    places = list(range(len(items)))
    random.Random(1).shuffle(places)
    return items, places[: args.sample], places[args.sample :], json.loads(path.read_text(encoding="utf-8"))


def study(args: argparse.Namespace) -> dict[str, Any]:
    """Predicted and measured fractions of every set."""
    items, sample, others, replies = material(args)
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for name, chosen in sets(items, replies).items():
        scores = {place: [scored(chosen(items[place]), text) for text in replies[place]] for place in sample + others}
        found[name] = {}
        for size in (POOL, POOL // 2):
            forecast = GradientForecast(size)
            for place in sample:
                for score, text in zip(scores[place], replies[place], strict=True):
                    forecast.add(str(place), score, len(text))
            report = forecast.report()
            groups = [[score.primary_score for score in scores[place]] for place in others]
            drawn = [rng.choice(np.array(group, dtype=float), size, replace=False) for group in groups]
            measured = fmean(float(np.ptp(group) > EQUAL) for group in drawn)
            found[name][str(size)] = {"predicted": report.gradient.model_dump(), "measured": measured}
    return {"prompts": len(sample), "others": len(others), "sets": found}


def over_a_run(log: Path, first: int) -> tuple[list[str], dict[str, list[Any]]]:
    """The forecast from the groups before step `first` of a reward log, and the fractions in the rest of the run, in
    three parts: their names, and by set the forecast with one fraction per part."""
    groups: dict[tuple[int, str], list[str]] = {}
    asked: dict[str, SimpleNamespace] = {}
    for row in json_lines(log):
        prompt = row["prompt"][-1]["content"]
        found = [parse_question(item["question"]) for item in row["score"]["items"]]
        asked[prompt] = SimpleNamespace(instruction=prompt, constraints=[one for one in found if one is not None])
        groups.setdefault((row["step"], prompt), []).append(row["completion"])
    last = max(step for step, _ in groups) + 1
    bounds = [first, 5 * first, (5 * first + last) // 2, last]
    names = [f"steps {start} to {end - 1}" for start, end in pairwise(bounds)]
    known = [key for key in groups if key[0] < first]
    results: dict[str, list[Any]] = {}
    for name, chosen in sets([asked[prompt] for _, prompt in known], [groups[key] for key in known]).items():
        scores = {key: [scored(chosen(asked[key[1]]), text) for text in texts] for key, texts in groups.items()}
        forecast = GradientForecast()
        for key in known:
            for score, text in zip(scores[key], groups[key], strict=True):
                forecast.add(str(key), score, len(text))
        results[name] = [forecast.report().gradient.model_dump()]
        for start, end in pairwise(bounds):
            part = [some for key, some in scores.items() if start <= key[0] < end]
            results[name].append(fmean(float(np.ptp([one.primary_score for one in some]) > EQUAL) for some in part))
    return names, results


def trained(args: argparse.Namespace) -> dict[str, Any]:
    """For every set, the forecast, and the fraction of groups with a gradient by step of a run, from TRL's log.

    The trainer is not that of `pocket/grpo_run.py`, whose aggregation logs another `frac_reward_zero_std`.
    """
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, ProgressCallback
    from trl import GRPOConfig, GRPOTrainer

    items, sample, others, replies = material(args)
    by_prompt = {item.instruction: item for item in items}
    dataset = Dataset.from_list([{"prompt": as_prompt(items[place])} for place in others])
    results: dict[str, Any] = {}
    for name, chosen in sets(items, replies).items():

        def reward(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float | None]:
            return [
                scored(chosen(by_prompt[prompt[-1]["content"]]), completion[-1]["content"]).primary_score  # noqa: B023
                for prompt, completion in zip(prompts, completions, strict=True)
            ]

        def run() -> dict[str, Any]:
            config = GRPOConfig(
                output_dir=str(args.output / "trainer"),
                # On a CPU, where bf16 is slow, and as the published figures were measured: without checkpoints.
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=args.groups * POOL,
                num_generations=POOL,
                max_completion_length=MAX_TOKENS,
                temperature=1.0,
                beta=0.0,
                learning_rate=3e-4,
                max_steps=args.train,
                logging_steps=1,
                save_strategy="no",
            )
            trainer = GRPOTrainer(
                model=AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype="float32"),
                args=config,
                train_dataset=dataset,
                processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
                reward_funcs=[reward],  # noqa: B023
            )
            trainer.remove_callback(ProgressCallback)
            trainer.train()
            log = [entry for entry in trainer.state.log_history if "frac_reward_zero_std" in entry]
            keys = {"gradient": "frac_reward_zero_std", "reward": "reward", "seconds": "step_time"}
            steps = {key: [entry[logged] for entry in log] for key, logged in keys.items()}
            return steps | {"gradient": [1 - flat for flat in steps["gradient"]]}

        forecast = GradientForecast(POOL)
        for place in sample:
            for text in replies[place]:
                forecast.add(str(place), scored(chosen(items[place]), text), len(text))
        folder = args.output / "trained" / name.replace(" ", "_").replace(",", "")
        settings = {key: getattr(args, key) for key in ("prompts", "sample", "train", "groups")}
        results[name] = {"predicted": forecast.report().gradient.model_dump(), **once(folder, settings, run)}
    return results


def trained_table(results: dict[str, Any]) -> str:
    """Predicted and logged fractions as Markdown, by fourth of the steps if there are 8 or more; then the rank
    correlation over the sets, and the errors."""
    steps = len(next(iter(results.values()))["gradient"])
    count = 4 if steps >= 8 else 1
    bounds = [round(part * steps / count) for part in range(count + 1)]
    names = [f"steps {start + 1} to {end}" for start, end in pairwise(bounds)]
    rows, measured = [], []
    for name, of_set in results.items():
        forecast = of_set["predicted"]
        parts = [fmean(of_set["gradient"][start:end]) for start, end in pairwise(bounds)]
        measured.append(parts)
        shown = f"{forecast['value']:.2f} [{forecast['low']:.2f}, {forecast['high']:.2f}]"
        reward = f"{of_set['reward'][0]:.2f} to {fmean(of_set['reward'][-3:]):.2f}"
        rows.append([name, shown, *(f"{part:.2f}" for part in parts), reward])
    predicted = [of_set["predicted"] for of_set in results.values()]
    lines = []
    for name, part in zip(names, zip(*measured, strict=True), strict=True):
        values = [forecast["value"] for forecast in predicted]
        errors = [one - other for one, other in zip(part, values, strict=True)]
        inside = sum(forecast["low"] <= one <= forecast["high"] for one, forecast in zip(part, predicted, strict=True))
        lines.append(
            f"{name}: rank correlation {spearmanr(values, part).statistic:.2f}, mean absolute error "
            f"{fmean(map(abs, errors)):.3f}, mean error {fmean(errors):+.3f}, {inside} of {len(part)} inside."
        )
    return markdown(["set", "predicted", *names, "score"], rows) + "\n\n" + "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the study; returns the figures by set."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/gradient"))
    parser.add_argument("--prompts", type=int, default=250)
    parser.add_argument("--sample", type=int, default=64, help="prompts that the forecast sees")
    parser.add_argument("--log", type=Path, help="reward log of a GRPO run in the pocket world")
    parser.add_argument("--first", type=int, default=3, help="steps of the log that the forecast sees")
    parser.add_argument("--train", type=int, metavar="STEPS", help="steps of a GRPO run for each set")
    parser.add_argument("--groups", type=int, default=16, help="groups per step of these runs")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    if args.log is not None:
        names, of_run = over_a_run(args.log, args.first)
        lines = []
        for name, (forecast, *measured) in of_run.items():
            shown = f"{forecast['value']:.2f} [{forecast['low']:.2f}, {forecast['high']:.2f}]"
            lines.append([name, shown, *(f"{fraction:.2f}" for fraction in measured)])
        Console(width=160).print(markdown(["set", "predicted", *names], lines), markup=False)
        return {"parts": names, "sets": of_run}
    if args.train is not None:
        of_runs = trained(args)
        (args.output / "trained.md").write_text(trained_table(of_runs) + "\n", encoding="utf-8")
        Console(width=160).print(trained_table(of_runs), markup=False)
        return of_runs
    settings = {"prompts": args.prompts, "sample": args.sample}
    found = once(args.output / "figures", settings, lambda: study(args))
    rows, pairs, inside = [], [], []
    for name, of_set in found["sets"].items():
        cells = []
        for cell in of_set.values():
            low, high = cell["predicted"]["low"], cell["predicted"]["high"]
            cells += [f"{cell['predicted']['value']:.2f} [{low:.2f}, {high:.2f}]", f"{cell['measured']:.2f}"]
            pairs.append((cell["predicted"]["value"], cell["measured"]))
            inside.append(low <= cell["measured"] <= high)
        rows.append([name, *cells])
    sizes = [
        f"{what}, groups of {size}"
        for size in next(iter(found["sets"].values()))
        for what in ("predicted", "measured")
    ]
    errors = [abs(one - other) for one, other in pairs]
    text = markdown(["set", *sizes], rows) + (
        f"\n\nRank correlation {spearmanr(*zip(*pairs, strict=True)).statistic:.3f}, mean absolute error "
        f"{fmean(errors):.3f}, largest {max(errors):.3f}; {sum(inside)} of {len(inside)} measured values are inside "
        "the interval."
    )
    (args.output / "table.md").write_text(text + "\n", encoding="utf-8")
    Console(width=160).print(text, markup=False)
    return found


if __name__ == "__main__":
    run_main(main)
