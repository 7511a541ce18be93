"""Train a judge that sees, measure it, and train a policy that describes drawings with it, on a CPU.

    python recipes/drawings/run.py --output runs/drawings

The model is trained from scratch unless `--output` has one. The judge is measured on held-out drawings. Then TRL's
`GRPOTrainer` trains the same model as a policy: most descriptions that it has seen had errors. Its only reward is
`ChecklistReward`, with the same question for every drawing; *gold* is computed by code and logged with weight 0.
Writes `figures.json`, the model, the policy and the reward log.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawings import world
from drawings.train import train
from drawings.world import ASKED, COLUMNS, KINDS, NAMED, SHAPES

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Sampling, load_backend
from checklist_rewards.images import image_of
from checklist_rewards.rewards.trl import ChecklistReward

PROMPT = Path(__file__).with_name("judge.md")
N, GROUPS, STEPS, LENGTH = 8, 16, 20, 8
"""Completions per prompt, prompts per step, steps, and tokens of a completion."""
EIGHT = [NAMED, *(f"Is there a {shape}?" for shape in SHAPES), *(f"Is there a {each} shape?" for each in COLUMNS)]
"""A checklist of eight items, to measure its cost; seven of them are about the drawing alone."""


def judge(model: Path) -> ChecklistScorer:
    """The scorer of the drawn judge. Nothing is stored, so that all reads are counted."""
    return ChecklistScorer(str(model), backend="transformers", prompt=PROMPT, store=False)


def measure(scorer: ChecklistScorer, number: int = 300) -> dict[str, float]:
    """AUC of P(yes) by kind of question, on held-out drawings, about descriptions that are right or wrong."""
    found = {}
    for kind, ask in KINDS.items():
        rng, samples, answers = random.Random(1), list[Sample](), list[bool]()
        while len(samples) < number:
            drawing = world.draw(rng, test=True)
            text = world.describe(world.some(drawing, rng, rng.random() < 0.5))
            if asked := ask(drawing, text, rng, len(samples) % 2 == 0):
                samples.append(Sample([asked[0]], text, ASKED, images=[image_of(world.picture(drawing, rng))]))
                answers.append(asked[1])
        read = [score.items[0].probabilities["yes"] for score in scorer.score_batch(samples)]
        yes, no = ([p for p, answer in zip(read, answers, strict=True) if answer == which] for which in (True, False))
        found[kind] = fmean((a > b) + (a == b) / 2 for a in yes for b in no)
    return found


def rows(number: int, seed: int, test: bool = False, checklist: Sequence[str] = (NAMED,)) -> list[dict[str, Any]]:
    """Rows of a data set: the prompt, the image, the checklist and, for gold, the drawing."""
    rng = random.Random(seed)
    return [
        {
            "prompt": [{"role": "user", "content": ASKED}],
            "image": world.picture(drawing, rng),
            "checklist": [*checklist],
            "drawing": json.dumps(drawing),
        }
        for drawing in (world.draw(rng, test) for _ in range(number))
    ]


def gold(completions: list[Any], drawing: list[str], **columns: Any) -> list[float]:
    """Gold of completions. As a reward it is logged only."""
    texts = (str(completion[-1]["content"]) for completion in completions)
    cells = (tuple(cell and (cell[0], cell[1]) for cell in json.loads(one)) for one in drawing)
    return [world.gold(one, text) for one, text in zip(cells, texts, strict=True)]


def evaluate(model: Path, number: int = 100) -> float:
    """Gold of sampled descriptions of held-out drawings."""
    tested = rows(number, seed=2, test=True)
    images = [image_of(row["image"]) for row in tested]  # a mark stands for an image that is in memory
    chats = [[{"role": "user", "content": f"{image.mark}{ASKED}"}] for image in images]
    sampling = Sampling(max_tokens=LENGTH, temperature=1.0, n=4, seed=0)
    replies = load_backend(str(model), "transformers").generate(chats, sampling)
    if lost := [reply.unanswered for group in replies for reply in group if reply.text is None]:
        raise RuntimeError(f"{len(lost)} replies are missing: {lost[0]}")
    said = [[{"content": reply.text}] for group in replies for reply in group]
    golds = gold(said, [row["drawing"] for row in tested for _ in range(4)])
    return fmean(golds)


def grpo(model: Path, output: Path, steps: int, checklist: Sequence[str]) -> dict[str, Any]:
    """Train the policy and save it in `output/policy`. Returns figures of the steps and of the reads."""
    output.mkdir(parents=True, exist_ok=True)
    log, scorer = output / "rewards.jsonl", judge(model)
    log.unlink(missing_ok=True)
    config = GRPOConfig(
        output_dir=str(output / "trainer"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=GROUPS * N,
        num_generations=N,
        max_completion_length=LENGTH,
        beta=0.0,
        learning_rate=1e-4,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=2,
        max_steps=steps,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        reward_weights=[1.0, 0.0],
        multi_objective_aggregation="normalize_then_sum",
        seed=0,
    )
    trainer = GRPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(model, dtype="float32"),
        args=config,
        train_dataset=Dataset.from_list(rows(GROUPS * steps, seed=3, checklist=checklist)),
        processing_class=AutoProcessor.from_pretrained(model),
        reward_funcs=[ChecklistReward(scorer, log=log), gold],
    )
    trainer.train()
    trainer.save_model(str(output / "policy"))
    trainer.processing_class.save_pretrained(str(output / "policy"))
    logged = [entry for entry in trainer.state.log_history if "step_time" in entry]
    counts = ("reads", "asked", "unanswered", "prompt_tokens", "computed_tokens", "floor_tokens", "engine_seconds")
    return {
        "step seconds": fmean(step["step_time"] for step in logged[1:]),
        "reward": [step["rewards/checklist_reward/mean"] for step in logged],
        "gold": [step["rewards/gold/mean"] for step in logged],
    } | {name: getattr(scorer.receipt, name) for name in counts}


def main(output: Path) -> dict[str, Any]:
    """Train, measure, and write `figures.json`."""
    started, model = time.perf_counter(), output / "model"
    if not model.exists():
        train(model)
    figures: dict[str, Any] = {"training seconds": time.perf_counter() - started}
    figures |= {"AUC": measure(judge(model)), "before": evaluate(model)}
    figures |= {"GRPO": grpo(model, output, STEPS, [NAMED]), "eight": grpo(model, output / "eight", 4, EIGHT)}
    figures |= {"after": evaluate(output / "policy"), "seconds": time.perf_counter() - started}
    figures["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    (output / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/drawings"))
    print(json.dumps(main(parser.parse_args().output), indent=2))
