"""Datasets in files and folders."""

import pytest
from datasets import load_dataset, load_from_disk

from checklist_rewards.datasets import import_checklists, save_dataset
from checklist_rewards.errors import SampleError
from tests.datasets.building import build


@pytest.mark.parametrize("name", ["saved", "saved.parquet", "saved.jsonl", "saved.csv"])
def test_a_dataset_is_saved_by_extension_and_replaces_what_was_saved(tmp_path, name):
    path = tmp_path / "new" / name
    save_dataset(build(["old"]), path)
    dataset = build([{"prompt": "a", "n": 1}])
    save_dataset(dataset, path)
    assert [p.name for p in path.parent.iterdir()] == [name]
    if path.suffix == ".csv":
        back = import_checklists(path)
    elif path.suffix:
        kind = {".parquet": "parquet", ".jsonl": "json"}[path.suffix]
        features = dataset.features
        back = load_dataset(kind, data_files=str(path), split="train", features=features, cache_dir=tmp_path / "cache")
    else:
        back = load_from_disk(path)
    assert [row | {"n": int(row["n"])} for row in back.to_list()] == dataset.to_list()


def test_a_dataset_may_replace_the_folder_it_was_read_from(tmp_path):
    save_dataset(build(["a", "b"]), tmp_path / "saved")
    save_dataset(load_from_disk(tmp_path / "saved").select([1]), tmp_path / "saved")
    assert load_from_disk(tmp_path / "saved")["prompt"] == ["b"]


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SampleError, match="it exists and is not a saved dataset"):
        save_dataset(build(["a"]), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(SampleError, match="unknown extension '.txt'"):
        save_dataset(build(["a"]), tmp_path / "data.txt")
