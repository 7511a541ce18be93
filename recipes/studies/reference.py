"""What does a judge cost that is in memory already? GRPO with a LoRA policy, judged by its own base or by a copy.

    python recipes/studies/reference.py costs --model smollm2 --steps 4 --output runs/reference
    python recipes/studies/reference.py plot --output runs/reference
    python recipes/studies/reference.py rewards --steps 20
    python recipes/studies/reference.py preference --prompts 400
    python recipes/studies/reference.py precision --reads 1000

`costs` trains three arms, each in a process of its own: rewards by code only, by `model="reference"`, and by a copy of
the same model. It prints the seconds per step and the peak memory of each process, and writes them to `costs.json`;
`plot` draws that file. `rewards` trains one policy of the
pocket world whose completions both judges score in every step, and compares the scores. `preference` asks whether the
base judges texts that it has written itself more kindly than texts of another writer that are as good: the difference
of its P(yes) between both, among questions with the same true answer. `precision` reads in rows of several prompts in
bf16 and fp16, and compares P(yes) with a separate forward pass of each prompt, in the same precision and in float32.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from pocket.world import Task, satisfaction, tasks, write_response
from studies.common import figure, save_json

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine, Sampling, resolve_model
from checklist_rewards.checklists import YES
from checklist_rewards.rewards.trl import ChecklistReward

CODE, REFERENCE, COPY = "code", "reference", "copy"
ARMS = (CODE, REFERENCE, COPY)
_SKIPPED = 1  # the first step loads and compiles


def rows(count: int) -> list[dict[str, Any]]:
    """Prompts of the pocket world with a question for every constraint."""
    return [
        {
            "prompt": [{"role": "user", "content": task.instruction}],
            "checklist": [constraint.question() for constraint in task.constraints],
            "number": number,
        }
        for number, task in enumerate(tasks(count, seed=1, split="train"))
    ]


def by_code(completions: list[Any], **columns: Any) -> list[float]:
    """A reward without a model: shorter is better."""
    return [-len(completion[-1]["content"]) / 100 for completion in completions]


class Timed:
    """A reward with the seconds of its calls and what it gave."""

    def __init__(self, reward: Any):
        self.reward, self.seconds, self.given = reward, list[float](), list[list[float | None]]()
        self.__name__ = getattr(reward, "__name__", "reward")

    def __call__(self, **columns: Any) -> list[float | None]:
        """Call the reward."""
        started = time.perf_counter()
        rewards = self.reward(**columns)
        self.seconds.append(time.perf_counter() - started)
        self.given.append(rewards)
        return rewards


def reward_of(arm: str, model: str) -> Timed:
    """The reward of an arm."""
    if arm == CODE:
        return Timed(by_code)
    if arm == REFERENCE:
        return Timed(ChecklistReward(model="reference", store=False, name=REFERENCE))
    return Timed(ChecklistReward(model=model, backend="transformers", store=False, name=COPY))


def trained(rewards: list[Timed], model: str, steps: int, tokens: int) -> tuple[Any, list[float]]:
    """Train a LoRA policy; returns the trainer and the seconds of its steps."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Clock(TrainerCallback):
        """Notes the time at the end of each step."""

        ends = [time.perf_counter()]

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.ends.append(time.perf_counter())

    with TemporaryDirectory() as folder:
        clock = Clock()
        clock.ends = [time.perf_counter()]
        trainer = GRPOTrainer(
            model=resolve_model(model),
            reward_funcs=rewards,
            args=GRPOConfig(
                output_dir=folder,
                # On a CPU, where bf16 is slow, and as the published figures were measured: without checkpoints.
                use_cpu=True,
                bf16=False,
                save_strategy="no",
                beta=0.0,
                per_device_train_batch_size=16,
                num_generations=8,
                max_completion_length=tokens,
                max_steps=steps,
                learning_rate=1e-3,
                seed=0,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows(64)),
            peft_config=LoraConfig(r=16, target_modules="all-linear"),
            callbacks=[clock],
        )
        trainer.train()
    return trainer, list(np.diff(clock.ends))


def costs(args: argparse.Namespace) -> None:
    """Print the costs of every arm."""
    if args.arm is not None:
        reward = reward_of(args.arm, args.model)
        _, seconds = trained([reward], args.model, args.steps, args.tokens)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        figures = {
            "step": median(seconds[_SKIPPED:]),
            "judge": median(reward.seconds[_SKIPPED:]),
            "memory": memory,
            "first": reward.given[0],
        }
        print(json.dumps(figures))
        return
    found = {}
    for arm in ARMS:
        command = [sys.executable, __file__, "costs", "--arm", arm, "--model", args.model]
        command += ["--steps", str(args.steps), "--tokens", str(args.tokens)]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[arm] = json.loads(out.strip().splitlines()[-1])
    print("| judge | seconds per step | of which judging | peak memory | beside code only |\n|---|---|---|---|---|")
    for arm, figures in found.items():
        beside = figures["memory"] / found[CODE]["memory"] - 1
        print(
            f"| {arm} | {figures['step']:.2f} | {figures['judge']:.2f} | {figures['memory']:.2f} GiB | {beside:+.1%} |"
        )
    print(f"\nrewards of the first step equal: {found[REFERENCE]['first'] == found[COPY]['first']}")
    save_json(args.output / "costs.json", found)


def plot(args: argparse.Namespace) -> None:
    """Draw the costs of every arm: time per step and memory."""
    found = json.loads((args.output / "costs.json").read_text(encoding="utf-8"))
    names = [{CODE: "code only", REFERENCE: 'model="reference"', COPY: "a separate copy"}[arm] for arm in ARMS]
    step, judge, memory = ([found[arm][name] for arm in ARMS] for name in ("step", "judge", "memory"))
    rest = [whole - part for whole, part in zip(step, judge, strict=True)]
    with figure(args.output / "reference.png", columns=2, figsize=(8.4, 2.4), sharey=True) as (times, sizes):
        times.barh(names, rest, color="#9aa5b1", label="training")
        times.barh(names, judge, left=rest, color="#c2571a", label="judging")
        times.set(xlabel="seconds per step")
        times.legend(frameon=False, fontsize=8)
        times.invert_yaxis()
        sizes.barh(names, memory, color="#3c6e9f")
        sizes.set(xlabel="peak memory of the process, GiB", xlim=(0, 1.25 * max(memory)))
        for place, size in enumerate(memory):
            more = f" ({size / memory[0] - 1:+.0%})" if place else ""
            sizes.text(size, place, f" {size:.2f}{more}", va="center", fontsize=8)


def rewards(args: argparse.Namespace) -> None:
    """Print whether both judges give the same rewards while the policy changes, and its gold before and after."""
    own, copy = reward_of(REFERENCE, args.model), reward_of(COPY, args.model)
    gold: list[float] = []
    world = tasks(64, seed=1, split="train")

    def true(completions: list[Any], number: list[int], **columns: Any) -> list[float]:
        texts = [completion[-1]["content"] for completion in completions]
        gold.append(fmean(satisfaction(world[place], text) for place, text in zip(number, texts, strict=True)))
        return [0.0] * len(texts)

    trained([own, copy, Timed(true)], args.model, args.steps, args.tokens)
    calls = zip(own.given, copy.given, strict=True)
    pairs = [pair for ours, theirs in calls for pair in zip(ours, theirs, strict=True)]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    print(f"rewards: {len(pairs)}, equal to the last digit: {sum(one == other for one, other in pairs)}")
    print(f"largest difference: {max(abs(one - other) for one, other in both):.2g}")
    third = max(1, len(gold) // 3)
    print(f"gold of the samples: first third {fmean(gold[:third]):.3f}, last third {fmean(gold[-third:]):.3f}")


def preference(args: argparse.Namespace) -> None:
    """Print by how much the judge prefers its own texts to equally good ones of another writer."""
    engine = Engine(args.model, "transformers")
    world = tasks(args.prompts, seed=3, split="train")
    prompts = [[{"role": "user", "content": task.instruction}] for task in world]
    replies = engine.load().generate(prompts, Sampling(max_tokens=args.tokens, temperature=1.0, seed=0))
    own = [reply.text or "" for (reply,) in replies]
    rng = random.Random(0)
    other = [write_response(rng, task, violate=0.4) for task in world]
    scorer = ChecklistScorer(engine, store=False)
    seen = {name: _answers(scorer, world, texts) for name, texts in (("own", own), ("other", other))}
    print("| true answer | own texts | texts of the world's program | difference |\n|---|---|---|---|")
    for holds in (True, False):
        ours, theirs = seen["own"][holds], seen["other"][holds]
        low, high = _interval(ours, theirs)
        print(
            f"| {'yes' if holds else 'no'} | {fmean(ours):.3f} ({len(ours)}) | {fmean(theirs):.3f} ({len(theirs)}) | "
            f"{fmean(ours) - fmean(theirs):+.3f} [{low:+.3f}, {high:+.3f}] |"
        )


def _answers(scorer: ChecklistScorer, world: list[Task], texts: list[str]) -> dict[bool, list[float]]:
    """P(yes) of every question by its true answer."""
    samples = [
        Sample([c.question() for c in task.constraints], text, task.instruction)
        for task, text in zip(world, texts, strict=True)
    ]
    answers: dict[bool, list[float]] = defaultdict(list)
    for task, text, score in zip(world, texts, scorer.score_batch(samples), strict=True):
        for constraint, line in zip(task.constraints, score.items, strict=True):
            if line.probabilities is not None:
                answers[constraint.holds(text)].append(line.probabilities[YES])
    return answers


def _interval(ours: list[float], theirs: list[float], draws: int = 2000) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = [rng.choice(ours, len(ours)).mean() - rng.choice(theirs, len(theirs)).mean() for _ in range(draws)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def precision(args: argparse.Namespace) -> None:
    """Print the largest differences of P(yes) from separate forward passes, in 16 bits and in single precision."""
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = AutoModelForCausalLM.from_pretrained(resolve_model(args.model), dtype=torch.float32).to(device)
    single = Engine.of_model(loaded).load()
    asked = _asked(single, args.reads)
    exact = _separately(single, asked)
    print("| computes in | reads | from separate prompts | from float32 | separate prompts from float32 |")
    print("|---|---|---|---|---|")
    for name, weights, cast in (
        ("bf16 by autocast", torch.float32, torch.bfloat16),
        ("bf16 weights", torch.bfloat16, None),
        ("fp16 weights", torch.float16, None),
    ):
        model = AutoModelForCausalLM.from_pretrained(resolve_model(args.model), dtype=weights).to(device)
        if cast is not None:  # as accelerate does
            model.forward = torch.autocast(device, dtype=cast)(model.forward)
        backend = Engine.of_model(model).load()
        found = [backend.read(groups, labels) for groups, labels in asked]
        ours = [_yes(read.logprobs) for answers, _ in found for read in answers]
        same = _separately(backend, asked)
        figures = [max(map(abs, np.subtract(*pair))) for pair in ((ours, same), (ours, exact), (same, exact))]
        shown = " | ".join(f"{figure:.1e}" for figure in figures)
        receipt = sum(usage.computed_tokens for _, usage in found) / sum(usage.floor_tokens for _, usage in found)
        print(f"| {name} | {len(ours)} ({receipt:.2f} of the floor) | {shown} |", flush=True)


def _asked(backend: Any, reads: int) -> list[Any]:
    """The groups and labels of questions of the pocket world about texts of its program, as the judge asks them."""
    asked: list[Any] = []
    read = backend.read

    def kept(groups: Any, labels: Any) -> Any:
        asked.append((groups, labels))
        return read(groups, labels)

    rng, world = random.Random(0), tasks(reads, seed=3, split="train")
    samples = [Sample([c.question() for c in t.constraints], write_response(rng, t, violate=0.4)) for t in world]
    sizes = np.cumsum([len(sample.checklist) for sample in samples])
    backend.read = kept
    try:
        ChecklistScorer(Engine("precision", backend), store=False).score_batch(
            samples[: int(np.searchsorted(sizes, reads)) + 1]
        )
    finally:
        backend.read = read
    return asked


def _separately(backend: Any, asked: list[Any]) -> list[float]:
    """P(yes) of every prompt, by a forward pass of its own."""
    import torch

    found = []
    with torch.no_grad():
        for groups, labels in asked:
            forms = backend.tokens.label_groups(labels)
            for group in backend.tokens.groups(groups):
                for _, tail in group.fitting(backend.limit):
                    ids = torch.tensor([[*group.prefix, *tail]], device=backend.device)
                    logprobs = backend.model(input_ids=ids).logits[0, -1].float().log_softmax(-1)
                    found.append(_yes([logprobs[list(form)].logsumexp(-1).item() for form in forms]))
    return found


def _yes(logprobs: Any) -> float:
    yes, no = np.exp(logprobs)
    return float(yes / (yes + no))


def main() -> None:
    """Run one part of the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("costs", "plot", "rewards", "preference", "precision"))
    parser.add_argument("--model", default="pocket", help="policy and judge (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps of training (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=48, help="most tokens of a completion (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=400, help="prompts of `preference` (default: %(default)s)")
    parser.add_argument("--reads", type=int, default=1000, help="reads of `precision` (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/reference"), help="folder of `costs` and `plot`")
    parser.add_argument("--arm", choices=ARMS, help="train one arm in this process")
    args = parser.parse_args()
    parts = {"costs": costs, "plot": plot, "rewards": rewards, "preference": preference, "precision": precision}
    parts[args.part](args)


if __name__ == "__main__":
    main()
