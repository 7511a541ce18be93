"""The splits that a training script loads."""

import pytest
from datasets import Dataset, DatasetDict

from checklist_rewards.datasets.splits import DataArguments, load_splits
from checklist_rewards.errors import SampleError

ROWS = [{"prompt": "a"}, {"prompt": "b"}]


@pytest.mark.parametrize("kind", ["jsonl", "folder", "saved", "saved splits"])
def test_without_a_test_split_only_a_run_without_evaluation_starts(tmp_path, kind):
    data, rows = tmp_path / "data", Dataset.from_list(ROWS)
    if kind == "saved":
        rows.save_to_disk(data)
    elif kind == "saved splits":
        DatasetDict(train=rows).save_to_disk(data)
    else:
        rows.to_json(data / "train.jsonl")
        data = data / "train.jsonl" if kind == "jsonl" else data
    train, test = load_splits(DataArguments(str(data)), evaluates=False)
    assert train.to_list() == ROWS and test is None
    words = "has no split 'test'; the splits are train. Set dataset_test_split, or eval_strategy='no'.$"
    with pytest.raises(SampleError, match=words):
        load_splits(DataArguments(str(data)), evaluates=True)


def test_both_splits_are_loaded_by_name(tmp_path):
    DatasetDict(some=Dataset.from_list(ROWS), more=Dataset.from_list(ROWS[:1])).save_to_disk(tmp_path / "data")
    data = DataArguments(str(tmp_path / "data"), dataset_train_split="some", dataset_test_split="more")
    train, test = load_splits(data, evaluates=True)
    assert (train.to_list(), test.to_list()) == (ROWS, ROWS[:1])
    words = "has no split 'train'; the splits are some, more. Set dataset_train_split.$"
    with pytest.raises(SampleError, match=words):
        load_splits(DataArguments(str(tmp_path / "data")), evaluates=False)


def test_a_type_that_comes_late_in_a_json_file_is_a_sentence_with_advice(tmp_path):
    early, late = '{"check": null, "text": "' + "x" * 10**7 + '"}', '{"check": "words", "text": ""}'
    (tmp_path / "rows.jsonl").write_text(f"{early}\n{early}\n{late}\n")
    with pytest.raises(SampleError, match=r"rows.jsonl cannot be read .* to null; its first rows .* write .parquet"):
        load_splits(DataArguments(str(tmp_path / "rows.jsonl")), evaluates=False)
