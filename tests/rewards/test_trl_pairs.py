"""TRL trains on the rows that `preferences` writes: DPO, KTO, and a reward model."""

import math

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


@pytest.mark.parametrize(
    ("form", "trainer", "config", "conversational"),
    [
        ("dpo", DPOTrainer, DPOConfig, True),
        ("kto", KTOTrainer, KTOConfig, False),
        ("reward", RewardTrainer, RewardConfig, True),
    ],
)
def test_preference_trainers_take_a_step_on_them(tmp_path, form, trainer, config, conversational):
    pools = []
    for row in rows(conversational=conversational):
        checklist = Checklist.parse(row["checklist"])
        samples = [Sample(checklist, text, str(row["prompt"])) for text in CANDIDATES]
        pools.append(ScoredPool(row["prompt"], checklist, CANDIDATES, scorer_by(by_hash).score_batch(samples)))
    with write_rows(tmp_path / f"{form}.jsonl") as out:  # as `pairs --form` does
        for pair in mine_pairs(pools).pairs:
            for line in rows_of(pair, form):
                out.write(line)
    data = Dataset.from_json(str(tmp_path / f"{form}.jsonl"), cache_dir=str(tmp_path))
    assert len(data) >= 4 and (form != "reward" or min(data["margin"]) > 0)

    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    if form == "reward":
        head = dict(num_labels=1, pad_token_id=tokenizer.pad_token_id)
        model = AutoModelForSequenceClassification.from_pretrained(pocket_dir(), dtype=torch.float32, **head)
    else:
        model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    settings = {key: value for key, value in ON_CPU.items() if key != "beta"}
    settings |= dict(per_device_train_batch_size=2, max_steps=1, max_length=256, learning_rate=1e-3)
    args = config(output_dir=str(tmp_path), **settings)
    made = trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    made.train()
    assert any(not torch.equal(value, before[name]) for name, value in made.model.state_dict().items())
    [loss] = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    assert math.isfinite(loss)
