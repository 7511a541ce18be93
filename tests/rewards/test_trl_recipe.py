"""`recipes/grpo.py`: a config file and a dataset with checklists in, a trained policy out."""

import json

import pytest
import yaml

from checklist_rewards.errors import ChecklistError, ModelError, SampleError
from checklist_rewards.rewards.settings import RewardConfig
from tests.conftest import REPO
from tests.jsonl import write_jsonl

pytestmark = pytest.mark.slow

CONFIGS = sorted((REPO / "recipes").glob("*/grpo/config_*.yaml"))
ON_CPU = REPO / "recipes" / "pocket" / "grpo" / "config_cpu.yaml"
ROWS = [{"prompt": [{"role": "user", "content": f"Write {n}."}], "checklist": ["Is it short?"]} for n in range(4)]


@pytest.fixture
def run(tmp_path):
    """`run(rows, reward, ...)` trains for a step with the pocket config, or with `config`."""
    from grpo import main, parse

    sizes = "--per_device_train_batch_size 8 --num_generations 4 --max_completion_length 8"
    small = f"--config {ON_CPU} --max_steps 1 --seed 1 {sizes}"

    def trained(rows, reward, *more, config=small):
        data = write_jsonl(tmp_path / "data.jsonl", *rows)
        files = ["--dataset_name", str(data), "--output_dir", str(tmp_path / "out")]
        return main(*parse([*config.split(), *files, "--reward", json.dumps(reward), *more]))

    return trained


def test_with_the_defaults_of_trl(run, tmp_path):
    # Without a GPU, TRL refuses its own default, bf16; the default is three epochs.
    defaults = "--model_name_or_path pocket --use_cpu True --max_steps 1"
    trainer = run(ROWS, {"model": "pocket", "store": False}, config=defaults)
    assert trainer.args.bf16 and trainer.args.gradient_checkpointing
    last = trainer.state.log_history[-1]
    assert 0 <= last["reward"] <= 1 and last["checklist_reward/unscored"] == 0
    for folder in ("out", "out/checkpoint-1"):
        assert (tmp_path / folder / "model.safetensors").is_file()


def test_the_pocket_config_trains_with_a_split_reward_that_is_watched(run, tmp_path):
    """Other kinds of datasets are in `tests/datasets/test_splits.py`."""
    checklist = [{"question": "Is it short?", "category": "form", "weight": 3}, "Does it end with a question mark?"]
    more = ["--split", "category", "--monitor", "{}", "--multi_objective_aggregation", "normalize_then_sum"]
    trainer = run([{**row, "checklist": checklist} for row in ROWS], {"model": "pocket", "store": False}, *more)
    assert trainer.reward_func_names == ["checklist_reward/form", "checklist_reward/other"]
    assert trainer.reward_weights.tolist() == [3.0, 1.0]
    assert "checklist_reward/monitor/alarms" in trainer.state.log_history[0]
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("rows", "reward", "error", "words"),
    [
        (
            [{"prompt": "Hi"}] * 4,
            {},
            SampleError,
            r"data.jsonl \(train\): column 'checklist' not found; the columns are prompt",
        ),
        (ROWS[:3] + [{**ROWS[3], "checklist": []}], {}, ChecklistError, r"data.jsonl \(train\), row 4: .*empty"),
        (ROWS[:1], {}, SampleError, r"data.jsonl \(train\) has 1 rows, but a batch needs 2"),
        (ROWS, {"model": "./nowhere"}, ModelError, "model not found: './nowhere'"),
    ],
    ids=["no column", "an empty checklist", "too few prompts", "no judge"],
)
def test_bad_data_and_settings_are_refused_before_the_policy_is_loaded(run, tmp_path, rows, reward, error, words):
    with pytest.raises(error, match=words):
        run(rows, {"model": "pocket"} | reward, "--model_name_or_path", "./no-policy")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parts[-3])
def test_every_config_has_only_settings_that_exist(path):
    from grpo import parse

    script, _, _ = parse(["--config", str(path), "--dataset_name", "x", "--use_cpu", "True", "--bf16", "False"])
    assert set(script.reward) <= set(RewardConfig.model_fields)
    assert yaml.safe_load(path.read_text())["reward"]["model"]
