"""The three rewards of the study, trained on labels from the same weights, and their scores of completions.

- *judge*: all labels train the checklist judge.
- *calibrated*: four fifths of the labels train the judge; a Platt map of its P(yes) is fitted on the rest.
- *scalar*: all labels train a scalar reward model, with TRL's `RewardTrainer` on pairs.

All have LoRA matrices of the same rank on all layers. The scalar model has a new head of 192 weights in addition; the
judge answers with the output embeddings of the language model.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from datasets import Dataset
from studies.scalar.labels import Prompt, as_messages, item_labels, preferences
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.distill.adapter import AdapterTraining, train_adapter
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.calibration import LabelledRead, fit_map
from checklist_rewards.judges.calibration import YES_NO, Calibration
from checklist_rewards.judges.labels import Labelled

ARMS = ("judge", "calibrated", "scalar")
RANK = 64
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""Matrices with LoRA: those of `train_adapter`."""
LEARNING_RATES = {"judge": 1e-3, "calibrated": 1e-3, "scalar": 5e-4}
"""The best of three on another seed with 3,000 labels (`docs/studies/scalar.md`)."""
HELD_OUT = 1 / 5
"""Share of the labels of *calibrated* that its map is fitted on."""
_MAP = "calibration.json"
_PAIRS, _TEXTS = 16, 64


class Reward(Protocol):
    """A trained reward."""

    def scores(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        """The reward of every text of every prompt."""
        ...


def epochs(labels: int) -> float:
    """Passes over the labels: more over few. Every arm sees 100 labels 15 times and 3,000 labels 2.7 times."""
    return max(1.0, min(15.0, 150 / math.sqrt(labels)))


def train_reward(
    arm: str, start: Path, pool: Sequence[Prompt], budget: int, seed: int, folder: Path, rate: float | None = None
) -> dict[str, Any]:
    """Train the reward of an arm on `budget` labels, save it in `folder`, and return how it was trained."""
    rate = rate or LEARNING_RATES[arm]
    if arm == "scalar":
        return _train_scalar(start, preferences(pool, budget, seed), seed, folder, rate)
    labels = item_labels(pool, budget, seed)
    count = budget if arm == "judge" else budget - round(HELD_OUT * budget)
    training = AdapterTraining(epochs=epochs(count), learning_rate=rate, rank=RANK, frozen=0.0, seed=seed)
    record = train_adapter(labels[:count], folder, base=str(start), training=training)
    if arm == "calibrated":
        record["calibration"] = _calibrate(_scorer(start, folder), labels[count:], folder / _MAP)
    return {key: record.get(key) for key in ("parameters", "steps", "seconds", "loss", "calibration")}


def load_reward(arm: str, start: Path, folder: Path) -> Reward:
    """The reward of an arm that was trained in `folder`."""
    if arm == "scalar":
        return ScalarReward(folder)
    return JudgeReward(_scorer(start, folder, folder / _MAP if (folder / _MAP).is_file() else None))


def _scorer(start: Path, adapter: Path | None, calibration: Path | None = None) -> ChecklistScorer:
    """The judge without a floor of label mass: after few labels, it often is most sure of another token."""
    engine = {} if adapter is None else {"adapter": str(adapter)}
    settings = {"backend": "transformers", "engine_args": engine, "mass_floor": 0.0, "calibration": calibration}
    return ChecklistScorer(str(start), store=False, **settings)


class JudgeReward:
    """The checklist score of a judge: the mean P(yes) of its items."""

    def __init__(self, scorer: ChecklistScorer):
        self.scorer = scorer

    @classmethod
    def untrained(cls, start: Path) -> JudgeReward:
        """The judge before it has seen a label."""
        return cls(_scorer(start, None))

    def scores(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        samples = [Sample(list(p.questions), text, p.instruction) for p in prompts for text in p.texts]
        found = self.scorer.score_batch(samples)
        lost = sum(score.primary_score is None for score in found)
        if lost:
            raise SampleError(f"the judge gave {lost} of {len(found)} completions no score.")
        return _by_prompt(prompts, (score.primary_score for score in found))


def _calibrate(scorer: ChecklistScorer, labels: Sequence[Labelled], path: Path) -> dict[str, Any] | None:
    """Fit a Platt map. None if none can be fitted: all labels are alike, or the judge is worse than guessing."""
    scores = scorer.score_batch([Sample([pair.question], pair.target, pair.input) for pair in labels])
    reads = [
        LabelledRead(ChecklistItem(question=pair.question), item.probabilities, YES if pair.label else NO, pair.group)
        for pair, score in zip(labels, scores, strict=True)
        for item in score.items
        if item.probabilities is not None
    ]
    try:
        map = fit_map(reads, "platt")
    except SampleError:
        return None
    Calibration(judge=scorer.judge.name, read_by=scores[0].items[0].method, maps={YES_NO: map}).save(path)
    return {"slope": map.slope, "intercept": map.intercept, "labels": len(reads)}


class ScalarReward:
    """The output of a scalar reward model, for texts and as a reward function of TRL."""

    __name__ = "scalar"

    def __init__(self, folder: Path):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()

    def scores(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        chats = [as_messages(prompt.instruction, text) for prompt in prompts for text in prompt.texts]
        return _by_prompt(prompts, self._read(chats))

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        rewards = self._read([prompt + completion for prompt, completion in zip(prompts, completions, strict=True)])
        for reward in rewards:
            kwargs["log_metric"]("proxy", reward)
        return rewards

    @torch.no_grad()
    def _read(self, chats: Sequence[list[dict[str, str]]]) -> list[float]:
        values: list[float] = []
        for start in range(0, len(chats), _TEXTS):
            inputs = self.tokenizer.apply_chat_template(
                list(chats[start : start + _TEXTS]), padding=True, return_tensors="pt", return_dict=True
            )
            logits = self.model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
            values += logits[:, 0].tolist()
        return values


def _train_scalar(
    start: Path, pairs: Sequence[tuple[str, str, str]], seed: int, folder: Path, rate: float
) -> dict[str, Any]:
    from peft import LoraConfig
    from trl import RewardConfig, RewardTrainer

    rows = [
        {
            "prompt": as_messages(instruction, chosen)[:1],
            "chosen": as_messages(instruction, chosen)[1:],
            "rejected": as_messages(instruction, rejected)[1:],
        }
        for instruction, chosen, rejected in pairs
    ]
    trainer = RewardTrainer(
        model=str(start),
        args=RewardConfig(
            output_dir=str(folder / "trainer"),
            model_init_kwargs={"dtype": "float32"},
            num_train_epochs=epochs(len(pairs)),
            per_device_train_batch_size=_PAIRS,
            learning_rate=rate,
            warmup_steps=0.05,
            lr_scheduler_type="linear",
            # On a CPU, where bf16 is slow, and as the published figures were measured: without checkpoints.
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            seed=seed,
            save_strategy="no",
            logging_steps=10,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(start),
        peft_config=LoraConfig(
            r=RANK, lora_alpha=2 * RANK, target_modules=LAYERS, modules_to_save=["score"], task_type="SEQ_CLS"
        ),
    )
    record = trainer.train()
    parameters = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    trainer.model.merge_and_unload().save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)
    shutil.rmtree(folder / "trainer", ignore_errors=True)
    return {
        "parameters": parameters,
        "steps": trainer.state.global_step,
        "seconds": record.metrics["train_runtime"],
        "loss": record.training_loss,
    }


def _by_prompt(prompts: Sequence[Prompt], values: Iterable[Any]) -> list[list[float]]:
    rest = iter(values)
    return [[next(rest) for _ in prompt.texts] for prompt in prompts]
