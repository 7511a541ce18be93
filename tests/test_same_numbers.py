"""One text, one checklist, one number: whoever asks. The texts are what GRPOTrainer sampled from the pocket policy."""

import json
import math

import pandas as pd
import pytest
from datasets import Dataset
from pocket.world import tasks
from typer.testing import CliRunner

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.cli import app
from checklist_rewards.rerank import Pool, rerank_batch
from checklist_rewards.rewards.trl import ChecklistReward

pytestmark = pytest.mark.slow

GENERATIONS = 4
NOISE = 1e-5
"""Batches are padded differently, so float32 sums end differently; a reward also passes through a float32 tensor."""


@pytest.fixture(scope="module")
def trained(pocket, tmp_path_factory) -> list[dict]:
    """Prompt, completion, checklist and reward of every completion of one GRPO step."""
    from trl import GRPOConfig, GRPOTrainer

    folder = tmp_path_factory.mktemp("grpo")
    rows = [
        {
            "prompt": [{"role": "user", "content": task.instruction}],
            "checklist": [{"question": c.question(), "weight": 1.0 + n} for n, c in enumerate(task.constraints)],
        }
        for task in tasks(4, seed=7, split="test")
    ]
    trainer = GRPOTrainer(
        model=str(pocket_dir()),
        reward_funcs=ChecklistReward(ChecklistScorer("pocket", backend="transformers", store=False)),
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
            bf16=False,  # slow on a CPU, and the numbers compared are the judge's
            save_strategy="no",  # no checkpoint is read
            per_device_train_batch_size=4 * GENERATIONS,
            num_generations=GENERATIONS,
            max_completion_length=64,
            max_steps=1,
            logging_steps=1,
            log_completions=True,
            num_completions_to_print=0,
            seed=0,
        ),
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    assert trainer.state.global_step == 1
    [table] = [pd.read_parquet(path) for path in (folder / "completions").glob("*.parquet")]
    checklists = {row["prompt"][0]["content"]: row["checklist"] for row in rows}
    prompts, texts = ([messages[-1]["content"] for messages in table[key]] for key in ("prompt", "completion"))
    return [
        {"prompt": prompt, "completion": text, "checklist": checklists[prompt], "reward": known(reward)}
        for prompt, text, reward in zip(prompts, texts, table["checklist_reward"], strict=True)
    ]


def known(reward: float) -> float | None:
    return None if math.isnan(reward) else reward


def same(rows: list[dict]) -> list:
    """The rewards of the trainer, as something that equals them up to noise."""
    return [None if row["reward"] is None else pytest.approx(row["reward"], abs=NOISE) for row in rows]


def test_the_rewards_are_numbers_that_differ(trained):
    rewards = [row["reward"] for row in trained if row["reward"] is not None]
    assert len(trained) == 4 * GENERATIONS and len(rewards) > 2 * GENERATIONS
    assert all(0 <= reward <= 1 for reward in rewards) and len(set(rewards)) > 4


def test_score_batch_gives_the_rewards_of_the_trainer(trained, scorer):
    scores = scorer.score_batch([Sample(row["checklist"], row["completion"], row["prompt"]) for row in trained])
    assert [score.primary_score for score in scores] == same(trained)


def test_rerank_gives_the_rewards_of_the_trainer(trained, scorer):
    groups = [trained[start : start + GENERATIONS] for start in range(0, len(trained), GENERATIONS)]
    pools = [Pool(group[0]["checklist"], [row["completion"] for row in group], group[0]["prompt"]) for group in groups]
    for ranking, group in zip(rerank_batch(scorer, pools), groups, strict=True):
        assert [score.primary_score for score in ranking.scores] == same(group)
        best = max((row["reward"] for row in group if row["reward"] is not None), default=None)
        assert all(group[position]["reward"] == pytest.approx(best, abs=NOISE) for position in ranking.picked)


@pytest.mark.parametrize("chat", [False, True], ids=["strings", "messages"])
def test_the_command_line_gives_the_rewards_of_the_trainer(trained, tmp_path, chat):
    source, scored = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    with source.open("w") as file:
        for row in trained:
            texts = {"prompt": ("user", row["prompt"]), "completion": ("assistant", row["completion"])}
            shown = {key: [{"role": role, "content": text}] if chat else text for key, (role, text) in texts.items()}
            file.write(json.dumps({**shown, "checklist": row["checklist"]}) + "\n")
    command = ["score", str(source), "--output", str(scored), "--model", "pocket", "--no-store"]
    command += ["--backend", "transformers"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code in (0, 1), done.output
    scores = [json.loads(line)["checklist_score"]["primary_score"] for line in scored.read_text().splitlines()]
    assert scores == same(trained)
