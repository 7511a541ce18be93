"""`recipes/dpo.py`: the pairs of the command line in, a trained policy out."""

import json

import pytest
from datasets import Dataset

from checklist_rewards.errors import SampleError
from tests.conftest import REPO

pytestmark = pytest.mark.slow

ON_CPU = REPO / "recipes" / "pocket" / "dpo" / "config_cpu.yaml"
PAIR = {"prompt": [{"role": "user", "content": "End with a question mark."}], "checklist": ["Is it a question?"]}
TEXTS = {"chosen": "the old lamo sees a bako?", "rejected": "a deko is small."}
ROW = PAIR | {name: [{"role": "assistant", "content": text}] for name, text in TEXTS.items()}


def run(tmp_path, rows, *more: str):
    from dpo import main, parse

    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = ["--dataset_name", str(data), "--output_dir", str(tmp_path / "out")]
    return main(*parse(["--config", str(ON_CPU), *files, *more]))


def test_the_policy_comes_to_prefer_what_was_chosen(tmp_path):
    small = "--max_steps 4 --per_device_train_batch_size 4 --learning_rate 1e-4 --warmup_steps 0"
    trainer = run(tmp_path, [ROW] * 4, *small.split())
    margins = [line["rewards/margins"] for line in trainer.state.log_history if "rewards/margins" in line]
    assert len(margins) == 4 and margins[0] == pytest.approx(0, abs=1e-4) and margins[-1] > 0
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_the_columns_that_are_rendered_with_the_prompt_are_kept():
    from dpo import preferences

    parts = {"tools": [{"name": "f"}], "chat_template_kwargs": {"enable_thinking": False}, "image": "red.png"}
    assert preferences(Dataset.from_list([ROW | parts]), "rows")[0].keys() == {*TEXTS, "prompt", *parts}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "pairs.jsonl cannot be read as a dataset: it has no rows"),
        ([PAIR], r"pairs.jsonl \(train\): column not found: 'chosen', 'rejected'; the columns are prompt, checklist"),
        ([ROW, {**ROW, "rejected": None}], r"row 2: 'rejected' is null"),
        ([{**ROW, "rejected": ROW["chosen"]}], "row 1: chosen and rejected are the same"),
    ],
)
def test_bad_pairs_are_refused_before_the_policy_is_loaded(tmp_path, rows, words):
    with pytest.raises(SampleError, match=words):
        run(tmp_path, rows, "--model_name_or_path", "./no-policy")
    assert not (tmp_path / "out").exists()
