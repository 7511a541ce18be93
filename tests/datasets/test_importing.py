"""Checklists that somebody else wrote, out of files."""

import json

import pytest

from checklist_rewards import Checklist
from checklist_rewards.datasets import (
    CHECKLIST_COLUMNS,
    checklist_columns,
    checklist_features,
    import_checklists,
    save_dataset,
)
from checklist_rewards.errors import ChecklistError, SampleError
from tests.datasets.building import build, jsonl


@pytest.mark.parametrize(
    "checklist",
    [
        ["Is it short?", "Is it rude?"],
        [{"question": "Is it short?"}, {"question": "Is it rude?", "weight": None}],
        '["Is it short?", {"question": "Is it rude?"}]',
    ],
)
def test_checklists_of_every_shape_are_imported(tmp_path, checklist):
    dataset = import_checklists(jsonl(tmp_path / "a.jsonl", {"prompt": "a", "checklist": checklist}))
    assert dataset.features == checklist_features()
    assert dataset[0]["checklist"] == checklist_columns(Checklist.parse(["Is it short?", "Is it rude?"]))["checklist"]


def test_fields_with_other_names_are_found_in_the_items_or_beside_them(tmp_path):
    inside = {"prompt": "a", "rubric": [{"criterion": "Is it short?", "points": 5, "tags": ["x"]}]}
    names = {"question": "criterion", "weight": "points"}
    path = jsonl(tmp_path / "inside.jsonl", inside)
    [item] = import_checklists(path, checklist_key="rubric", item_keys=names)[0]["checklist"]
    assert (item["question"], item["weight"]) == ("Is it short?", 5.0)

    beside = {"prompt": "a", "questions": ["Is it A?", "Is it B?"], "w": [1, -2], "kind": [["form", "tone"], "form"]}
    path = jsonl(tmp_path / "beside.jsonl", beside)
    dataset = import_checklists(path, checklist_key="questions", item_keys={"weight": "w", "category": "kind"})
    assert [(i["weight"], i["category"]) for i in dataset[0]["checklist"]] == [(1.0, "form, tone"), (-2.0, "form")]
    assert dataset[0]["w"] == [1, -2]


def test_where_a_checklist_comes_from_is_kept_or_named(tmp_path):
    save_dataset(build(["a"]), tmp_path / "a.jsonl")
    assert import_checklists(tmp_path / "a.jsonl").to_list() == build(["a"]).to_list()
    named = import_checklists(tmp_path / "a.jsonl", source="by hand")[0]
    assert (named["checklist_source"], named["checklist_model"]) == ("by hand", "fake")


@pytest.mark.parametrize(
    ("row", "settings", "error", "message"),
    [
        ({"prompt": "a"}, {}, SampleError, "line 1: no criteria found. The keys are prompt"),
        ({"prompt": "a", "checklist": []}, {}, ChecklistError, "line 1: the checklist is empty"),
        ({"prompt": "a", "checklist": None}, {}, ChecklistError, "line 1: expected a list of questions"),
        (
            {"prompt": "a", "checklist": [{"question": "b?", "weight": float("nan")}]},
            {},
            ChecklistError,
            "item 1: weight",
        ),
        (
            {"prompt": "a", "checklist": [{"question": "b?", "weight": 1, "penalty_if": "never"}]},
            {},
            ChecklistError,
            "line 1, item 1: 'penalty_if' may be part of the score .it is 'never'.*--drop penalty_if",
        ),
        ({"prompt": "", "checklist": ["b?"]}, {}, SampleError, "line 1: the prompt has no instruction"),
        (
            {"text": "a", "prompt": "b", "checklist": ["c?"]},
            {"prompt_key": "text"},
            SampleError,
            "would be renamed to 'prompt'",
        ),
        ({"prompt": "a", "checklist": ["b?"]}, {"target_key": "out"}, SampleError, "key 'out' not found"),
        (
            {"prompt": "a", "checklist": ["b?"], "w": [1, 2]},
            {"item_keys": {"weight": "w"}},
            ChecklistError,
            "list of 1 values",
        ),
        ({"prompt": "a", "checklist": ["b?"]}, {"item_keys": {"points": "w"}}, SampleError, "'points' is not a field"),
    ],
)
def test_a_row_that_cannot_be_imported_is_named(tmp_path, row, settings, error, message):
    with pytest.raises(error, match=message):
        import_checklists(jsonl(tmp_path / "a.jsonl", row), **settings)


def test_a_file_without_rows_is_refused(tmp_path):
    with pytest.raises(SampleError, match="a.jsonl: the file has no rows"):
        import_checklists(jsonl(tmp_path / "a.jsonl"))


def test_infobench_is_imported_whole(data_dir):
    path = data_dir / "infobench" / "infobench_en_gpt4out_gpt4judge.jsonl"
    dataset = import_checklists(
        path,
        prompt_key=("instruction", "input"),
        checklist_key="decomposed_questions",
        target_key="output",
        item_keys={"category": "question_label"},
        source="infobench",
    )
    assert len(dataset) == 500
    assert sum(map(len, dataset["checklist"])) == 2250
    kept = ["category", "subset", "question_label", "eval", "id"]
    assert sorted(dataset.column_names) == sorted(["prompt", "target", *kept, *CHECKLIST_COLUMNS])
    first = json.loads(path.read_text().splitlines()[0])
    assert dataset[0]["prompt"] == f"{first['instruction']}\n\n{first['input']}"
    assert dataset[0]["target"] == first["output"]
    assert [item["category"] for item in dataset[0]["checklist"]] == ["Format", "Content", "Content"]
    assert len(set(dataset["prompt"])) == 500
