"""TRL trains on the rows that `preferences` writes: DPO, KTO, and a reward model with the margin in its loss."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.files.rows import write_rows
from checklist_rewards.preferences import ScoredPool, mine_pairs, rows_of
from tests.fakes import FakeBackend
from tests.rewards.test_trl_trainers import ON_CPU, by_hash, rows

pytestmark = pytest.mark.slow
CANDIDATES = ["Yes.", "A happy dog runs home.", "Is it 7 or 8?"]


def written(form: str, folder: Path, *, conversational: bool = True) -> Dataset:
    """Pairs of pocket prompts, written as `pairs --form` writes them, and read again."""
    scorer = ChecklistScorer(backend=FakeBackend(by_hash), store=False)
    pools = []
    for row in rows(conversational=conversational, n=4):
        checklist = Checklist.parse(row["checklist"])
        scores = scorer.score_batch([Sample(checklist, text, str(row["prompt"])) for text in CANDIDATES])
        pools.append(ScoredPool(row["prompt"], checklist, CANDIDATES, scores))
    mined = mine_pairs(pools)
    assert len(mined.pairs) == 4
    with write_rows(folder / f"{form}.jsonl") as out:
        for pair in mined.pairs:
            for line in rows_of(pair, form):
                out.write(line)
    return Dataset.from_json(str(folder / f"{form}.jsonl"), cache_dir=str(folder))


def trained(trainer):
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert trainer.state.global_step == 2
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and all(torch.isfinite(torch.tensor(losses)))
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    return trainer


def settings(folder, **options) -> dict:
    shared = {key: value for key, value in ON_CPU.items() if key != "beta"}
    sizes = dict(per_device_train_batch_size=2, max_steps=2, learning_rate=1e-3)
    return dict(output_dir=str(folder), max_length=256, **shared, **sizes, **options)


@pytest.mark.parametrize(
    ("form", "config", "trainer", "conversational"),
    [("dpo", DPOConfig, DPOTrainer, True), ("kto", KTOConfig, KTOTrainer, False)],
)
def test_preference_trainers_train_on_them(tmp_path, form, config, trainer, conversational):
    trained(
        trainer(
            model=AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32),
            args=config(**settings(tmp_path)),
            train_dataset=written(form, tmp_path, conversational=conversational),
            processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        )
    )


def reward_trainer(folder, data: Dataset, **options) -> RewardTrainer:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    model = AutoModelForSequenceClassification.from_pretrained(
        pocket_dir(), num_labels=1, pad_token_id=tokenizer.pad_token_id, dtype=torch.float32
    )
    args = RewardConfig(**settings(folder, **options))
    return RewardTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)


def test_a_reward_model_trains_on_them_and_its_loss_has_the_margin(tmp_path):
    data = written("reward", tmp_path)
    assert min(data["margin"]) > 0
    with_margin = trained(reward_trainer(tmp_path / "a", data))
    without = trained(reward_trainer(tmp_path / "b", data.remove_columns("margin")))
    first, plain = (trainer.state.log_history[0]["loss"] for trainer in (with_margin, without))
    assert first > plain, "the chosen one has to win by the margin"
