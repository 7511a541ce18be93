"""The splits that a training script loads."""

import pytest
from datasets import Dataset, DatasetDict

from checklist_rewards.datasets.splits import DataArguments, load_splits
from checklist_rewards.errors import SampleError

ROWS = [{"prompt": "a"}, {"prompt": "b"}]


@pytest.fixture(params=["jsonl", "parquet", "folder", "saved", "saved splits"])
def training_only(request, tmp_path):
    """Every kind of data with a training split and no other."""
    data, rows = tmp_path / "data", Dataset.from_list(ROWS)
    if request.param == "saved":
        rows.save_to_disk(data)
    elif request.param == "saved splits":
        DatasetDict(train=rows).save_to_disk(data)
    elif request.param == "parquet":
        data = tmp_path / "data.parquet"
        rows.to_parquet(data)
    else:
        rows.to_json(data / "train.jsonl")
        data = data / "train.jsonl" if request.param == "jsonl" else data
    return DataArguments(str(data))


def test_a_run_without_evaluation_needs_no_test_split(training_only):
    train, test = load_splits(training_only, evaluates=False)
    assert train.to_list() == ROWS and test is None


def test_an_evaluation_without_a_test_split_is_refused(training_only):
    words = "has no split 'test'; the splits are train. Set dataset_test_split, or eval_strategy='no'.$"
    with pytest.raises(SampleError, match=words):
        load_splits(training_only, evaluates=True)


def test_both_splits_are_loaded_by_name(tmp_path):
    DatasetDict(some=Dataset.from_list(ROWS), more=Dataset.from_list(ROWS[:1])).save_to_disk(tmp_path / "data")
    data = DataArguments(str(tmp_path / "data"), dataset_train_split="some", dataset_test_split="more")
    train, test = load_splits(data, evaluates=True)
    assert (train.to_list(), test.to_list()) == (ROWS, ROWS[:1])
    with pytest.raises(
        SampleError, match="has no split 'train'; the splits are some, more. Set dataset_train_split.$"
    ):
        load_splits(DataArguments(str(tmp_path / "data")), evaluates=False)
