"""The reward inside TRL's own trainers, with the pocket model as the policy.

Where a test is about what a trainer makes of a reward, a fake engine answers instead of the judge, so that the numbers
are known.
"""

from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset
from pocket.world import tasks

from checklist_rewards import Sample
from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.callback import ChecklistEvalCallback
from checklist_rewards.rewards.configured import CONFIG_VARIABLE
from tests.jsonl import read_jsonl, write_jsonl
from tests.ranks import on_two_ranks, run
from tests.rewards.fakes import Recorded, by_hash, reward_by, text_of

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


def trainer_of(reward_funcs, folder: Path, *, algorithm="GRPO", data=None, model=None, more=None, **options):
    """A trainer that has not trained yet. `more` has further arguments of it."""
    import trl

    settings = {"log_completions": True, "num_completions_to_print": 0, **ON_CPU, **SMALL, **options}
    return getattr(trl, f"{algorithm}Trainer")(
        model=model or str(pocket_dir()),
        reward_funcs=reward_funcs,
        args=getattr(trl, f"{algorithm}Config")(output_dir=str(folder), **settings),
        train_dataset=Dataset.from_list(data or rows(conversational=True)),
        **more or {},
    )


def train(reward_funcs, folder: Path, *, adapter=None, callbacks=(), resume=None, **options):
    """A trainer after `max_steps` steps. `callbacks` are made for the trainer."""
    trainer = trainer_of(reward_funcs, folder, more={"peft_config": adapter}, **options)
    for callback in callbacks:
        trainer.add_callback(callback(trainer))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def completions(folder: Path) -> pd.DataFrame:
    """The table that GRPOTrainer writes, all steps."""
    return pd.concat([pd.read_parquet(path) for path in sorted((folder / "completions").glob("*.parquet"))])


def scored_again(scorer, prompts, texts, checklists) -> list[float | None]:
    """The scores of a call by the scorer alone."""
    texts = zip(checklists, map(text_of, texts), map(text_of, prompts), strict=True)
    return [score.primary_score for score in scorer.score_batch([Sample(*row) for row in texts])]


def approx(values) -> list:
    return [None if value is None else pytest.approx(value, abs=1e-6) for value in values]


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO", "OnlineDPO"])
def test_with_the_defaults_of_trl(scorer, tmp_path, caplog, algorithm):
    """bf16, gradient checkpointing, a checkpoint at the end: the judge answers in its own precision, also about
    held-out prompts, and the policy goes on training after it has answered them."""
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
    reward = Recorded(scorer, categories=["mention", "avoid", "question"])
    trainer = kind(
        model=str(pocket_dir()),
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),  # OnlineDPO does not load it
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows(conversational=True, n=8)),
        args=args,
    )
    if algorithm == "GRPO":
        trainer.add_callback(ChecklistEvalCallback(trainer, scorer, rows(conversational=True, n=3), every=1))
    trainer.train()
    [(*texts, rewards)] = reward.calls
    assert rewards == approx(scored_again(scorer, *texts)) and len(set(rewards)) > 2
    history = trainer.state.log_history
    if algorithm != "OnlineDPO":  # it passes no hooks for metrics
        [step] = [entry for entry in history if "checklist_reward/score" in entry]
        mean = pytest.approx(sum(rewards) / len(rewards), abs=1e-6)
        assert [step["rewards/checklist_reward/mean"], step["checklist_reward/score"]] == [mean, mean]
        names = {key for key in step if key.startswith("checklist_reward/")}
        assert {f"checklist_reward/{name}" for name in ("pass_rate", "mass", "judge_seconds")} < names
    evaluated = [entry for entry in history if "checklist_eval/score" in entry]
    assert [entry["step"] for entry in evaluated] == ([0, 1] if algorithm == "GRPO" else [])
    for entry in evaluated:
        table = read_jsonl(tmp_path / "checklist_eval" / f"step_{entry['step']:05d}.jsonl")
        held_out = rows(conversational=True, n=3)
        columns = ([row["prompt"] for row in held_out], [line["completion"] for line in table])
        again = scored_again(scorer, *columns, [row["checklist"] for row in held_out])
        assert entry["checklist_eval/score"] == pytest.approx(sum(again) / 3, abs=1e-6)
    assert (tmp_path / "checkpoint-1" / "trainer_state.json").is_file()
    assert not [record for record in caplog.records if record.name.startswith("checklist_rewards")]


def test_async_and_shaped_rewards_of_checklists_that_differ_keep_their_names_and_values(tmp_path):
    data = rows(conversational=True)  # in Arrow, all have the same fields
    data[1]["checklist"] = [{"question": "Is it short?", "weight": -0.5}]
    data[2]["checklist"] = None
    sync = [reward_by(by_hash, name=name).as_async() for name in "ab"]
    shaped = reward_by(by_hash, name="c", shaping=["centred"])
    train([*sync, shaped], tmp_path, data=data, per_device_train_batch_size=16, max_steps=1)
    table = completions(tmp_path)
    assert table["a"].equals(table["b"]) and table["a"].nunique() > 8
    assert table["a/items"].tolist() == table["b/items"].tolist() == table["c/items"].tolist()
    for name in "ac":
        assert {text_of(prompt) for prompt in table["prompt"][table[name].isna()]} == {text_of(data[2]["prompt"])}
    centred = table["a"] - table["a"].groupby(table["prompt"].map(text_of)).transform("mean")
    assert table["c"].tolist() == pytest.approx(centred.tolist(), abs=1e-5, nan_ok=True)


def test_a_trainer_that_drops_the_column_is_told_so(tmp_path):
    with pytest.raises(SampleError, match="remove_unused_columns=False"):
        train(reward_by(by_hash), tmp_path, remove_unused_columns=True)


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
    (tmp_path / "data").mkdir()
    write_jsonl(tmp_path / "data" / "train.jsonl", *rows(conversational=True))
    (tmp_path / "reward.yaml").write_text("model: pocket\nbackend: transformers\nstore: false\nname: words\n")
    (tmp_path / "grpo.yaml").write_text(
        f"""
        model_name_or_path: {pocket_dir()}
        dataset_name: {tmp_path / "data"}
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
