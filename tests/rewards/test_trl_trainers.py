"""The reward inside TRL's own trainers, with the pocket model as the policy.

Where a test is about what a trainer makes of a reward, a fake engine answers instead of the judge, so that the numbers
are known.
"""

import hashlib
import json
import math
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset
from pocket.world import tasks

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import CONFIG_VARIABLE
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.ranks import on_two_ranks, run

pytestmark = pytest.mark.slow

ON_CPU = dict(
    use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
    bf16=False,  # slow on a CPU; `test_with_the_defaults_of_trl` keeps it
    beta=0.0,  # RLOO's default loads a second model
    save_strategy="no",  # no test here reads a checkpoint
    logging_steps=1,  # every step is compared
    seed=0,
)
SMALL = dict(  # the least that has two groups and two steps
    per_device_train_batch_size=8, num_generations=4, max_completion_length=24, max_steps=2
)


def rows(*, conversational: bool, n: int = 4) -> list[dict]:
    """Pocket prompts, each with a question per constraint; the family is the item's category."""
    return [
        {
            "prompt": [{"role": "user", "content": task.instruction}] if conversational else task.instruction,
            "checklist": [{"question": c.question(), "category": c.family} for c in task.constraints],
        }
        for task in tasks(n, seed=1, split="train")
    ]


class Recorded(ChecklistReward):
    """Keeps what it was asked and what it gave."""

    def __call__(self, prompts, completions, **columns):
        rewards = super().__call__(prompts, completions, **columns)
        self.calls = [*getattr(self, "calls", []), (prompts, completions, columns["checklist"], rewards)]
        return rewards


def train(reward_funcs, folder: Path, *, algorithm="GRPO", data=None, conversational=True, **options):
    """A trainer after `max_steps` steps."""
    import trl

    trainer = getattr(trl, f"{algorithm}Trainer")(
        model=str(pocket_dir()),
        reward_funcs=reward_funcs,
        args=getattr(trl, f"{algorithm}Config")(
            output_dir=str(folder), log_completions=True, num_completions_to_print=0, **ON_CPU, **{**SMALL, **options}
        ),
        train_dataset=Dataset.from_list(data or rows(conversational=conversational)),
    )
    trainer.train()
    return trainer


def completions(folder: Path) -> pd.DataFrame:
    """The table that GRPOTrainer writes, all steps."""
    return pd.concat([pd.read_parquet(path) for path in sorted((folder / "completions").glob("*.parquet"))])


def text_of(messages_or_text) -> str:
    return messages_or_text if isinstance(messages_or_text, str) else messages_or_text[-1]["content"]


def by_hash(prefix: str, tail: str) -> float:
    return int(hashlib.sha256((prefix + tail).encode()).hexdigest()[:6], 16) / 16**6


@pytest.mark.parametrize(("algorithm", "conversational"), [("GRPO", True), ("RLOO", False)])
def test_trainers_train_on_what_the_scorer_gives_for_the_texts_they_sampled(
    scorer, tmp_path, algorithm, conversational
):
    reward = Recorded(scorer, categories=["mention", "avoid", "question"])
    trainer = train(reward, tmp_path, algorithm=algorithm, conversational=conversational)
    assert trainer.state.global_step == len(reward.calls) == 2
    steps = [entry for entry in trainer.state.log_history if "rewards/checklist_reward/mean" in entry]
    for step, (prompts, texts, checklists, rewards) in zip(steps, reward.calls, strict=True):
        samples = [
            Sample(checklist, text_of(text), text_of(prompt))
            for prompt, text, checklist in zip(prompts, texts, checklists, strict=True)
        ]
        again = [score.primary_score for score in scorer.score_batch(samples)]
        assert rewards == [None if value is None else pytest.approx(value, abs=1e-6) for value in again]
        scored = [value for value in again if value is not None]
        assert len(again) == 8 and len(scored) > 4
        mean = pytest.approx(sum(scored) / len(scored), abs=1e-6)
        assert [step["rewards/checklist_reward/mean"], step["checklist_reward/score"]] == [mean, mean]
        assert step["checklist_reward/unscored"] == 1 - len(scored) / 8
    names = {key for step in steps for key in step if key.startswith("checklist_reward/")}
    assert {f"checklist_reward/{name}" for name in ("pass_rate", "mass", "judge_seconds")} < names
    assert names <= set(reward.metric_names)


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO", "OnlineDPO"])
def test_with_the_defaults_of_trl(scorer, tmp_path, caplog, algorithm):
    """bf16, gradient checkpointing, a checkpoint at the end: the judge answers in its own precision."""
    import trl
    from transformers import AutoTokenizer
    from trl.experimental.online_dpo import OnlineDPOConfig

    from checklist_rewards.rewards.online_dpo import ChecklistOnlineDPOTrainer

    kinds = {name: (getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config")) for name in ("GRPO", "RLOO")}
    kinds["OnlineDPO"] = ChecklistOnlineDPOTrainer, OnlineDPOConfig
    kind, config = kinds[algorithm]
    args = config(
        output_dir=str(tmp_path),
        use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
        max_steps=1,  # the default is three epochs
        **({"per_device_train_batch_size": 2} if algorithm == "OnlineDPO" else {}),  # 8 pairs take half a minute
    )
    assert args.bf16 and args.gradient_checkpointing and args.save_strategy == "steps"
    reward = Recorded(scorer)
    trainer = kind(
        model=str(pocket_dir()),
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),  # OnlineDPO does not load it
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows(conversational=True, n=8)),
        args=args,
    )
    trainer.train()
    [(prompts, texts, checklists, rewards)] = reward.calls
    again = scorer.score_batch(
        [
            Sample(checklist, text_of(text), text_of(prompt))
            for prompt, text, checklist in zip(prompts, texts, checklists, strict=True)
        ]
    )
    assert rewards == [pytest.approx(score.primary_score, abs=1e-6) for score in again]
    assert len(set(rewards)) > 2
    if algorithm != "OnlineDPO":  # it passes no hooks for metrics
        mean = pytest.approx(sum(rewards) / len(rewards), abs=1e-6)
        assert trainer.state.log_history[-1]["checklist_reward/score"] == mean
    assert (tmp_path / "checkpoint-1" / "trainer_state.json").is_file()
    assert not [record for record in caplog.records if record.name.startswith("checklist_rewards")]


def test_async_rewards_keep_their_names_and_values(tmp_path):
    scorer = ChecklistScorer(backend=FakeBackend(by_hash), store=False)
    rewards = [ChecklistReward(scorer, name="a").as_async(), ChecklistReward(scorer, name="b").as_async()]
    assert train(rewards, tmp_path, max_steps=1).state.global_step == 1
    table = completions(tmp_path)
    assert table["a"].tolist() == table["b"].tolist() and table["a"].nunique() > 1
    assert table["a/items"].tolist() == table["b/items"].tolist()


def test_a_judge_that_fails_at_random_leaves_the_siblings_advantages_as_if_the_row_were_not_there(tmp_path):
    def unlucky(prefix: str, tail: str = "") -> bool:
        return by_hash(prefix, "luck") < 0.3

    backend = FakeBackend(lambda prefix, tail: None if unlucky(prefix) else by_hash(prefix, tail))
    reward = ChecklistReward(ChecklistScorer(backend=backend, store=False))
    trainer = train(reward, tmp_path, per_device_train_batch_size=24, num_generations=6, max_steps=1)
    assert trainer.state.global_step == 1
    table = completions(tmp_path)
    assert 0 < table["checklist_reward"].isna().sum() < len(table)
    assert trainer.state.log_history[0]["checklist_reward/unscored"] == pytest.approx(
        table["checklist_reward"].isna().mean()
    )
    for start in range(0, 24, 6):
        group = table.iloc[start : start + 6]
        assert group["prompt"].map(text_of).nunique() == 1
        present = group["checklist_reward"].dropna()
        for value, advantage in zip(group["checklist_reward"], group["advantage"], strict=True):
            alone = len(present) < 2  # a group of one has no spread: TRL gives it no advantage either
            expected = 0.0 if math.isnan(value) or alone else (value - present.mean()) / (present.std() + 1e-4)
            assert advantage == pytest.approx(expected, abs=1e-3)


def test_a_trainer_that_drops_the_column_is_told_so(tmp_path):
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(by_hash), store=False))
    with pytest.raises(SampleError, match="remove_unused_columns=False"):
        train(reward, tmp_path, remove_unused_columns=True)


def test_checklists_of_different_shapes_survive_arrow(tmp_path):
    data = rows(conversational=True)
    data[1]["checklist"] = [{"question": "Is it short?", "weight": -0.5}]
    data[2]["checklist"] = None
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(by_hash), store=False))
    assert train(reward, tmp_path, data=data).state.global_step == 2
    table = completions(tmp_path)
    unscored = table[table["checklist_reward"].isna()]
    assert {text_of(prompt) for prompt in unscored["prompt"]} == {text_of(data[2]["prompt"])}


# --- in processes of their own


def test_two_ranks_share_a_group_and_one_of_them_may_have_nothing_to_log(tmp_path):
    log, _ = on_two_ranks("rewards/two_ranks.py", tmp_path)
    assert log["global_step"] == 2
    table = completions(tmp_path)
    steps = [entry for entry in log["history"] if "rewards/checklist_reward/mean" in entry]
    for number, step in enumerate(steps, start=1):
        group = table[table["step"] == number]
        assert group["prompt"].nunique() == 1 and len(group) == 4, "two completions of one prompt on each rank"
        assert group["checklist_reward"].isna().tolist() == [False, False, True, True]
        assert group["advantage"].tolist()[2:] == [0, 0]
        mean = pytest.approx(group["checklist_reward"].mean(), abs=1e-6)
        assert [step["rewards/checklist_reward/mean"], step["checklist_reward/score"]] == [mean, mean]
        assert step["checklist_reward/unscored"] == 0.5
        lines = group["checklist_reward/items"].tolist()
        assert [line.split("  ")[0] for line in lines[2:]] == ["0/0"] * 2
        assert all(line.count("Is it short?") == 1 for line in lines)


def test_trl_grpo_with_the_defaults_of_trl_takes_the_reward_from_the_module(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(conversational=True)))
    (tmp_path / "reward.yaml").write_text("model: pocket\nbackend: transformers\nstore: false\nname: words\n")
    (tmp_path / "grpo.yaml").write_text(
        f"""
        model_name_or_path: {pocket_dir()}
        dataset_name: {data}
        reward_funcs: [checklist_rewards.rewards.trl.reward]
        output_dir: {tmp_path / "out"}
        log_completions: true  # the table shows what the reward gave
        logging_steps: 1  # the table is written with the log, which 2 steps would not reach
        max_steps: 2  # the default is three epochs
        use_cpu: true  # without a GPU, TRL refuses its own default, bf16
        """
    )
    command = ["-m", "trl.scripts.grpo", "--config", str(tmp_path / "grpo.yaml")]  # what `trl grpo` launches
    run(command, **{CONFIG_VARIABLE: str(tmp_path / "reward.yaml")})
    table = completions(tmp_path / "out")
    assert set(table["step"]) == {1, 2} and table["words"].between(0, 1).all()
    assert (tmp_path / "out" / "model.safetensors").is_file()
