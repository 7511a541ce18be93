"""TRL trains on the rows that `preferences` writes: DPO, KTO, and a reward model with the margin in its loss."""

import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer

from checklist_rewards import Checklist, Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.files.rows import write_rows
from checklist_rewards.preferences import ScoredPool, mine_pairs, rows_of
from tests.rewards.fakes import by_hash, scorer_by
from tests.rewards.test_trl_trainers import ON_CPU, rows

pytestmark = pytest.mark.slow
CANDIDATES = ["Yes.", "A happy dog runs home.", "Is it 7 or 8?"]
KINDS = {"dpo": (DPOTrainer, DPOConfig), "kto": (KTOTrainer, KTOConfig), "reward": (RewardTrainer, RewardConfig)}


def written(form: str, folder: Path, *, conversational: bool = True) -> Dataset:
    """Pairs of pocket prompts, written as `pairs --form` writes them, and read again."""
    pools = []
    for row in rows(conversational=conversational, n=4):
        checklist = Checklist.parse(row["checklist"])
        samples = [Sample(checklist, text, str(row["prompt"])) for text in CANDIDATES]
        pools.append(ScoredPool(row["prompt"], checklist, CANDIDATES, scorer_by(by_hash).score_batch(samples)))
    mined = mine_pairs(pools)
    assert len(mined.pairs) == 4
    with write_rows(folder / f"{form}.jsonl") as out:
        for pair in mined.pairs:
            for line in rows_of(pair, form):
                out.write(line)
    return Dataset.from_json(str(folder / f"{form}.jsonl"), cache_dir=str(folder))


def trained(form: str, data: Dataset, folder: Path) -> float:
    """The loss of a step that changes weights."""
    kind, config = KINDS[form]
    shared = {key: value for key, value in ON_CPU.items() if key != "beta"}
    sizes = dict(per_device_train_batch_size=2, max_steps=1, max_length=256, learning_rate=1e-3)
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    torch.manual_seed(0)
    if form == "reward":
        head = dict(num_labels=1, pad_token_id=tokenizer.pad_token_id)
        model = AutoModelForSequenceClassification.from_pretrained(pocket_dir(), dtype=torch.float32, **head)
    else:
        model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    args = config(output_dir=str(folder), **shared, **sizes)
    trainer = kind(model=model, args=args, train_dataset=data, processing_class=tokenizer)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert trainer.state.global_step == 1
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    [loss] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert math.isfinite(loss)
    return loss


@pytest.mark.parametrize(("form", "conversational"), [("dpo", True), ("kto", False)])
def test_preference_trainers_train_on_them(tmp_path, form, conversational):
    trained(form, written(form, tmp_path, conversational=conversational), tmp_path)


def test_a_reward_model_trains_on_them_and_its_loss_has_the_margin(tmp_path):
    data = written("reward", tmp_path)
    assert min(data["margin"]) > 0
    with_margin = trained("reward", data, tmp_path / "a")
    without = trained("reward", data.remove_columns("margin"), tmp_path / "b")
    assert with_margin > without, "the chosen one has to win by the margin"
