"""What a dataset says of itself, and datasets in files and folders."""

import pytest
from datasets import Dataset, concatenate_datasets, load_dataset, load_from_disk
from huggingface_hub import DatasetCard

from checklist_rewards import __version__
from checklist_rewards.datasets import CHECKLIST_COLUMNS, checklist_card, import_checklists, push_to_hub, save_dataset
from checklist_rewards.datasets.publishing import completed_card
from checklist_rewards.errors import SampleError
from tests.datasets.building import build
from tests.jsonl import write_jsonl


def test_the_card_says_what_is_in_it_and_how_to_train_with_it():
    rows = build(["a", "b", "c"])
    failed = Dataset.from_list([dict.fromkeys(rows.features) | {"prompt": "d"}], features=rows.features)
    card = checklist_card(concatenate_datasets([rows, failed]), "org/cities", split="test")
    assert card.data.to_dict() == {
        "pretty_name": "cities",
        "size_categories": ["n<1K"],
        "tags": ["checklist", "checklist-rewards", "reward-model", "trl"],
        "task_categories": ["text-generation"],
    }
    for line in (
        "| prompts | 3 |",
        "| questions | 6 (2.0 per prompt, from 2 to 2) |",
        f"| pipeline | `tick/{__version__}` |",
        '    train_dataset=load_dataset("org/cities", split="test"),',
    ):
        assert line in card.text
    assert all(f"- `{name}`: " in card.text for name in ("prompt", *CHECKLIST_COLUMNS))
    stream = build(Dataset.from_dict({"prompt": ["a"]}).to_iterable_dataset())
    with pytest.raises(SampleError, match=r"IterableDataset cannot report; call its own push_to_hub\(repo_id, num_sh"):
        push_to_hub(stream, "user/name")


def test_the_card_of_imported_checklists_names_no_model(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", {"prompt": "a", "checklist": ["Is it short?"], "n": 1})
    text = checklist_card(import_checklists(path), "org/cities").text
    assert "| written by | not recorded |" in text and "imported or found by rules; no model wrote" in text
    assert "- `n`: from the source" in text


def test_a_published_card_keeps_its_own_text_and_entries():
    ours = checklist_card(build(["a"]), "org/cities")
    fresh = DatasetCard("---\ndataset_info:\n  splits:\n  - name: train\n---\n")
    found = completed_card(fresh, ours)
    assert found.data.dataset_info == {"splits": [{"name": "train"}]} and found.data.tags == ours.data.tags
    assert found.text.strip() == ours.text.strip()
    edited = completed_card(DatasetCard("---\nlicense: mit\ntags: [mine]\n---\n# By hand\n"), ours)
    assert (edited.text.strip(), edited.data.license, edited.data.tags) == ("# By hand", "mit", ["mine"])


@pytest.mark.parametrize("name", ["saved", "saved.parquet", "saved.jsonl", "saved.csv"])
def test_a_dataset_is_saved_by_extension_and_replaces_what_was_saved(tmp_path, name):
    path = tmp_path / "new" / name
    save_dataset(build(["old"]), path)
    dataset = build([{"prompt": "a", "n": 1}])
    save_dataset(dataset, path)
    assert [p.name for p in path.parent.iterdir()] == [name]
    kind = {".parquet": "parquet", ".jsonl": "json"}.get(path.suffix)
    settings = {"split": "train", "features": dataset.features, "cache_dir": tmp_path / "cache"}
    readers = {".csv": import_checklists, "": load_from_disk}
    back = load_dataset(kind, data_files=str(path), **settings) if kind else readers[path.suffix](path)
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
