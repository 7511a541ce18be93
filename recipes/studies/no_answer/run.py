"""What should a completion without an answer be worth? GRPO of a pocket policy that thinks, with thoughts in reach of
the length limit.

    python recipes/studies/no_answer/run.py --output runs/no_answer

The pocket policy is first taught to write `<think>...</think>` before its answer. The thoughts restate the instruction
or say nothing, and their lengths vary widely, so that a thought does not help the answer and many completions are cut
in their thought. All arms start from this policy and differ in what a completion without an answer is worth:

- *lowest*: `no_answer="lowest"`, the default: the lowest score that the checklist allows;
- *unscored*: `no_answer="unscored"`: the reward is None, and TRL leaves the completion out of its group;
- *judge*: `no_answer="judge"`: the judge reads the empty text;
- *masked*: as *lowest*, with TRL's `mask_truncated_completions=True`: completions that reach the limit have no
  gradient, but their rewards still count in the mean of their group. (With *unscored* in place of *lowest*, masking
  would only add the completions whose answer was cut.)

*Gold* is the share of the instruction's constraints that the answer meets, computed by code, and 0 without an answer.
At the start and at the end, every policy answers held-out prompts under the same length limit, sampled at temperature
1. Each run has the folder `<arm>-<seed>`. Finished runs are skipped, so the same command continues an interrupted
study; `--summary` starts no run. Writes `summary.json`, `table.md` and `no_answer.png` under `--output`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from pocket.data import VIOLATE
from pocket.grpo_run import console
from pocket.policy import as_prompt, checklist_dataset
from pocket.world import (
    EVERYDAY_WORDS,
    Task,
    sample_plan,
    sample_task,
    satisfaction,
    tasks,
    write_response,
    write_text,
)
from studies.arms import run_arms
from studies.common import Result, band, figure, markdown, once, save_json, shown, smoothed, spread
from studies.no_answer.training import LoggedReward, by_step, grpo, mean_words, read_log, shares, teach
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import engine_identity, pocket_dir
from checklist_rewards.chat import CompletionReader, Target

ARMS: dict[str, dict[str, Any]] = {
    "lowest": {"no_answer": "lowest"},
    "unscored": {"no_answer": "unscored"},
    "judge": {"no_answer": "judge"},
    "masked": {"no_answer": "lowest", "masked": True},
}
COLORS = {"lowest": "C0", "unscored": "C2", "judge": "C3", "masked": "C1"}
LONGEST_THOUGHT = 40
"""Most sentences of a taught thought. The number is drawn with the same probability for 1 to 2, 2 to 4, 4 to 8 ..."""
SAMPLES = 4
"""Replies to each held-out prompt."""
FIGURES = {
    "gold": "gold",
    "no_answer": "no answer",
    "answered_gold": "gold of answers",
    "thought": "words of thought",
    "unmarked": "without `<think>`",
}
LOG = "rewards.jsonl"


def draw(rng: random.Random) -> tuple[str, str]:
    """An instruction, and a reply that thinks first. As in the pocket policy's training, the answer breaks some
    constraints."""
    task = sample_task(rng, split="train")
    said = [f"{sentence}." for sentence in task.instruction.rstrip(".").split(". ")]
    thought = []
    for place in range(round(LONGEST_THOUGHT ** rng.random())):
        filler = write_text(rng, sample_plan(rng, 1), EVERYDAY_WORDS).removeprefix("- ")
        thought.append(said[place % len(said)] if rng.random() < 0.5 else filler)
    return task.instruction, f"<think>{' '.join(thought)}</think>{write_response(rng, task, VIOLATE)}"


class Study:
    """The start, the prompts with their checklists, and the settings that all runs share.

    Args:
        args: the values of [`options`].
    """

    def __init__(self, args: argparse.Namespace):
        self.args = args
        args.output.mkdir(parents=True, exist_ok=True)
        self.start = self._taught(args.output / "start")
        train_items = tasks(args.train_prompts, seed=1, split="test")
        self.train_set, self.train_items = checklist_dataset(train_items, args.output / "store.sqlite")
        self.test_items = tasks(args.test_prompts, seed=2, split="test")
        self.by_instruction = {task.instruction: task for task in self.train_items}
        self.settings = {
            "start": engine_identity(str(self.start), "transformers"),
            **{key: getattr(args, key) for key in ("tokens", "test_prompts")},
        }
        self.how = {key: getattr(args, key) for key in ("steps", "groups", "learning_rate", "train_prompts")}

    def _taught(self, folder: Path) -> Path:
        if not (folder / "model.safetensors").is_file():
            torch.manual_seed(0)
            tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
            model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype="float32")
            teach(model, tokenizer, draw, steps=self.args.start_steps, batch=16, learning_rate=1e-3)
            tokenizer.save_pretrained(folder)
            model.save_pretrained(folder)  # last: its file shows that the folder is complete
        return folder

    def evaluate(self, policy: Path) -> Result:
        """The figures of what a policy writes to the held-out prompts."""
        targets = sampled(policy, [as_prompt(task) for task in self.test_items], self.args.tokens)
        pairs = [(task, target) for task, group in zip(self.test_items, targets, strict=True) for target in group]
        return figures(pairs)

    def run(self, arm: str, seed: int, folder: Path) -> Result:
        """Train one run. Its figures are those of its log and its policy."""
        args, how = self.args, ARMS[arm]
        log = folder / LOG
        log.unlink(missing_ok=True)  # of an interrupted run
        scorer = ChecklistScorer("pocket", store=False, no_answer=how["no_answer"])
        model = AutoModelForCausalLM.from_pretrained(self.start, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(self.start)
        entries = grpo(
            model,
            tokenizer,
            self.train_set,
            LoggedReward(scorer, log=log),
            folder,
            steps=args.steps,
            groups=args.groups,
            tokens=args.tokens,
            learning_rate=args.learning_rate,
            seed=seed,
            masked=how.get("masked", False),
        )
        model.save_pretrained(folder / "policy")
        tokenizer.save_pretrained(folder / "policy")
        return {"seconds": fmean(entry["step_time"] for entry in entries)}

    def curve(self, log: Path) -> list[Result]:
        """The figures of each step of a log, with the mean reward, also of completions without an answer."""
        lines = []
        for step, found in by_step(read_log(log)):
            pairs = [(self.by_instruction[one.prompt], Target(one.answer, one.state, one.thought)) for one in found]
            paid = {
                "reward": mean([one.reward for one in found]),
                "reward_without_answer": mean(
                    [one.reward for one, (_, target) in zip(found, pairs, strict=True) if not target.has_answer]
                ),
            }
            lines.append({"step": step, **figures(pairs), **paid})
        return lines


def figures(pairs: Sequence[tuple[Task, Target]]) -> Result:
    """Gold, the shares of states, and the length of thoughts of completions."""
    golds = [satisfaction(task, target.text) if target.has_answer else 0.0 for task, target in pairs]
    return {
        "gold": fmean(golds),
        "no_answer": fmean(not target.has_answer for _, target in pairs),
        "answered_gold": mean([gold for gold, (_, target) in zip(golds, pairs, strict=True) if target.has_answer]),
        "thought": mean_words([target.thought for _, target in pairs]),
        "unmarked": fmean(target.thought is None for _, target in pairs),
        **shares([target.state for _, target in pairs]),
    }


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the numbers; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@torch.no_grad()
def sampled(policy: Path, prompts: Sequence[Any], tokens: int, seed: int = 0) -> list[list[Target]]:
    """`SAMPLES` completions of a policy to every prompt, read with its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(policy)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype="float32").eval()
    inputs = tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
    )
    torch.manual_seed(seed)
    how: dict[str, Any] = {"max_new_tokens": tokens, "temperature": 1.0, "top_k": 0, "num_return_sequences": SAMPLES}
    rows = model.generate(**inputs, do_sample=True, **how)[:, inputs["input_ids"].shape[1] :].tolist()
    end = tokenizer.eos_token_id
    ids = [row[: row.index(end) + 1] if end in row else row for row in rows]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    targets = CompletionReader(tokenizer).read_batch(texts, ids=ids, limit=tokens)
    return [targets[place : place + SAMPLES] for place in range(0, len(targets), SAMPLES)]


def table(summary: Result) -> str:
    """The results as Markdown: means over the seeds, with the least and the greatest."""
    columns = {
        **FIGURES,
        "trained_gold": "gold, mean of all steps",
        "reward_without_answer": "reward without an answer",
    }
    rows = [
        [arm, *(_shown(found[name], 0 if name == "thought" else 2) for name in columns)]
        for arm, found in summary.items()
    ]
    return markdown(["arm", *columns.values()], rows) + "\n"


def _shown(values: Result | None, digits: int) -> str:
    if values is None:
        return ""
    return shown(values, digits) if len(values["per_seed"]) > 1 else f"{values['mean']:.{digits}f}"


def summarize(start: Result, runs: dict[str, list[Result]]) -> Result:
    """Every figure over the seeds, by arm, on held-out prompts; before them, those of the start. Gold of all steps and
    the reward without an answer are means in training."""
    missing = {"trained_gold": None, "reward_without_answer": None}
    summary: Result = {"start": {name: spread([start[name]]) for name in FIGURES} | missing}
    for arm, found in runs.items():
        if not found:
            continue
        summary[arm] = {
            name: spread([run["held_out"][name] for run in found]) for name in (*FIGURES, "cut_in_thought", "cut")
        }
        summary[arm]["trained_gold"] = spread([fmean(step["gold"] for step in run["curve"]) for run in found])
        paid = [mean([step["reward_without_answer"] for step in run["curve"]]) for run in found]
        known = [value for value in paid if value is not None]
        summary[arm]["reward_without_answer"] = spread(known) if known else None
    return summary


def plot(runs: dict[str, list[Result]], path: Path) -> None:
    """Figures by step in training, as running means over five steps: mean and range over the seeds."""
    names = {
        "gold": "gold",
        "no_answer": "share without an answer",
        "thought": "words of thought",
        "unmarked": "share without <think>",
    }
    with figure(path, columns=len(names), figsize=(16, 3.8)) as all_axes:
        for axes, (name, label) in zip(all_axes, names.items(), strict=True):
            for arm, found in runs.items():
                if not found:
                    continue
                curves = [smoothed([step[name] for step in run["curve"]], 5) for run in found]
                band(axes, dict(enumerate(zip(*curves, strict=True), start=1)), arm, COLORS[arm])
            axes.set(xlabel="GRPO step", ylabel=label, ylim=(0, None))
        all_axes[0].legend(frameon=False, fontsize=8)


def options() -> argparse.ArgumentParser:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/no_answer"))
    parser.add_argument("--arms", choices=ARMS, nargs="+", default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(6)), help="training seeds")
    parser.add_argument("--steps", type=int, default=40, help="GRPO steps")
    parser.add_argument("--groups", type=int, default=4, help="prompts per step, with 8 completions each")
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of a completion, with its thought")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--start-steps", type=int, default=300, help="steps in which the policy is taught to think")
    parser.add_argument("--train-prompts", type=int, default=128)
    parser.add_argument("--test-prompts", type=int, default=96, help="held-out prompts")
    parser.add_argument("--summary", action="store_true", help="start no run, only summarize those that are finished")
    return parser


def main(argv: Sequence[str] | None = None) -> Result:
    """Run the study; returns its summary."""
    args = options().parse_args(argv)
    transformers_logging.disable_progress_bar()
    study = Study(args)
    start = once(args.output / "before", study.settings, partial(study.evaluate, study.start))
    runs = run_arms(args, {**study.settings, **study.how}, study.run, finished=args.summary)
    for found in runs.values():
        for run in found:
            folder = args.output / f"{run['settings']['arm']}-{run['settings']['seed']}"
            evaluate = partial(study.evaluate, folder / "policy")
            run["held_out"] = once(folder / "held_out", run["settings"], evaluate)
            run["curve"] = study.curve(folder / LOG)
    summary = summarize(start, runs)
    save_json(args.output / "summary.json", summary)
    (args.output / "table.md").write_text(table(summary), encoding="utf-8")
    if any(runs.values()):
        plot(runs, args.output / "no_answer.png")
    console.print(table(summary), markup=False, soft_wrap=True)
    return summary


if __name__ == "__main__":
    main()
