"""Train a judge that sees, measure it, and train a policy that describes drawings with it, on a CPU.

    python recipes/drawings/run.py --output runs/drawings

The model is trained from scratch ([`train`]) unless `--output` has one. The judge is measured on held-out drawings, by
kind of question. Then TRL's `GRPOTrainer` trains the same model as a policy: of the descriptions that it has seen in
training, most had errors. Its only reward is `ChecklistReward` with eight items for every drawing; *gold* is computed
by code and logged with weight 0. Writes `figures.json`, the policy and the reward log.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawings import world
from drawings.train import train
from drawings.world import ASKED, ITEMS, KINDS, Drawing

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Sampling, load_backend
from checklist_rewards.images import image_of
from checklist_rewards.rewards.trl import ChecklistReward

PROMPT = Path(__file__).with_name("judge.md")
N, GROUPS, STEPS, LENGTH = 8, 8, 20, 20
"""Completions per prompt, prompts per step, steps, and tokens of a completion."""


def judge(model: Path) -> ChecklistScorer:
    """The scorer of the drawn judge. Nothing is stored, so that all reads are counted."""
    return ChecklistScorer(str(model), backend="transformers", prompt=PROMPT, store=False)


def area(answers: list[tuple[float, bool]]) -> float:
    """Area under the ROC curve: how often P(yes) is higher where the answer is yes; a tie counts half."""
    yes, no = ([p for p, true in answers if true == which] for which in (True, False))
    return fmean((a > b) + (a == b) / 2 for a in yes for b in no)


def measure(scorer: ChecklistScorer, number: int = 200, seed: int = 1) -> dict[str, float]:
    """AUC of P(yes) by kind of question, on held-out drawings, about descriptions that are right or wrong."""
    found = {}
    for kind, ask in KINDS.items():
        rng, samples, truth = random.Random(seed), [], []
        while len(samples) < number:
            drawing = world.draw(rng, test=True)
            pairs = world.shown(drawing) if rng.random() < 0.5 else world.wrong(drawing, rng)
            text = world.describe(pairs)
            if asked := ask(drawing, text, rng, len(samples) % 2 == 0):
                question, answer = asked
                samples.append(Sample([question], text, ASKED, images=[image_of(world.picture(drawing, rng))]))
                truth.append(answer)
        scores = scorer.score_batch(samples)
        found[kind] = area(
            [(score.items[0].probabilities["yes"], true) for score, true in zip(scores, truth, strict=True)]
        )
    return found


def prompts(number: int, seed: int, test: bool = False) -> list[dict[str, Any]]:
    """Rows of a data set: the question, the image, the checklist and, for gold, the drawing."""
    rng = random.Random(seed)
    drawings = [world.draw(rng, test) for _ in range(number)]
    return [
        {
            "prompt": [{"role": "user", "content": ASKED}],
            "image": world.picture(drawing, rng),
            "checklist": list(ITEMS),
            "drawing": json.dumps(drawing),
        }
        for drawing in drawings
    ]


def _drawing(text: str) -> Drawing:
    return tuple(None if cell is None else (cell[0], cell[1]) for cell in json.loads(text))


def gold(prompts: list[Any], completions: list[Any], drawing: list[str], **columns: Any) -> list[float]:
    """F1 of the shapes that a completion names. Logged only."""
    texts = [completion[-1]["content"] for completion in completions]
    return [
        world.gold(_drawing(one), text if isinstance(text, str) else text[0]["text"])
        for one, text in zip(drawing, texts, strict=True)
    ]


def evaluate(model: Path, number: int = 100) -> dict[str, float]:
    """Gold of sampled descriptions of held-out drawings, and the fraction of descriptions without an error."""
    rows = prompts(number, seed=2, test=True)
    images = [image_of(row["image"]) for row in rows]  # a mark stands for an image that is in memory
    chats = [[{"role": "user", "content": f"{image.mark}{ASKED}"}] for image in images]
    sampling = Sampling(max_tokens=LENGTH, temperature=1.0, n=4, seed=0)
    replies = load_backend(str(model), "transformers").generate(chats, sampling)
    golds = [
        world.gold(_drawing(row["drawing"]), reply.text or "")
        for row, group in zip(rows, replies, strict=True)
        for reply in group
    ]
    return {"gold": fmean(golds), "without an error": fmean(value == 1 for value in golds)}


class TimedReward(ChecklistReward):
    """The checklist reward, with its seconds."""

    def run(self, call: Any) -> Any:
        started = time.perf_counter()
        call = super().run(call)
        call.log_metric("reward_seconds", time.perf_counter() - started)
        return call


def grpo(model: Path, output: Path) -> dict[str, Any]:
    """Train the policy and save it in `output/policy`. Returns figures of the steps and of the reads."""
    log = output / "rewards.jsonl"
    log.unlink(missing_ok=True)
    scorer = judge(model)
    config = GRPOConfig(
        output_dir=str(output / "trainer"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=GROUPS * N,
        num_generations=N,
        max_completion_length=LENGTH,
        beta=0.0,
        learning_rate=1e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=2,
        max_steps=STEPS,
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
        train_dataset=Dataset.from_list(prompts(GROUPS * STEPS, seed=3)),
        processing_class=AutoProcessor.from_pretrained(model),
        reward_funcs=[TimedReward(scorer, log=log), gold],
    )
    trainer.train()
    trainer.save_model(str(output / "policy"))
    trainer.processing_class.save_pretrained(str(output / "policy"))
    steps = [entry for entry in trainer.state.log_history if "step_time" in entry]
    spent = scorer.receipt
    return {
        "step seconds": fmean(step["step_time"] for step in steps),
        "reward seconds": fmean(step["reward_seconds"] for step in steps),
        "reward": [round(step["reward"], 3) for step in steps],
        "gold": [round(step["rewards/gold/mean"], 3) for step in steps],
        "reads": spent.reads,
        "read once": spent.asked,
        "prompt tokens": spent.prompt_tokens,
        "computed tokens": spent.computed_tokens,
        "floor tokens": spent.floor_tokens,
        "unanswered": spent.unanswered,
    }


def main(output: Path) -> dict[str, Any]:
    """Train, measure, and write `figures.json`."""
    started, model = time.perf_counter(), output / "model"
    if not model.exists():
        train(model)
    trained = time.perf_counter()
    figures: dict[str, Any] = {"AUC": measure(judge(model)), "before": evaluate(model)}
    figures["GRPO"] = grpo(model, output)
    figures["after"] = evaluate(output / "policy")
    figures |= {
        "training seconds": trained - started,
        "seconds": time.perf_counter() - started,
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    (output / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/drawings"))
    print(json.dumps(main(parser.parse_args().output), indent=2))
