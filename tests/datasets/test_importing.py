"""Checklists that somebody else wrote, out of files."""

import io
import json

import pytest
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pillow

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.datasets import (
    CHECKLIST_COLUMNS,
    checklist_columns,
    checklist_features,
    import_checklists,
    save_dataset,
)
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.rows import Columns
from tests.datasets.building import build
from tests.fakes import FakeBackend
from tests.jsonl import write_jsonl


@pytest.mark.parametrize(
    "checklist",
    [
        ["Is it short?", "Is it rude?"],
        [{"question": "Is it short?"}, {"question": "Is it rude?", "weight": None}],
        '["Is it short?", {"question": "Is it rude?"}]',
    ],
)
def test_checklists_of_every_shape_are_imported(tmp_path, checklist):
    dataset = import_checklists(write_jsonl(tmp_path / "a.jsonl", {"prompt": "a", "checklist": checklist}))
    assert dataset.features == checklist_features()
    assert dataset[0]["checklist"] == checklist_columns(Checklist.parse(["Is it short?", "Is it rude?"]))["checklist"]


def test_fields_with_other_names_are_found_in_the_items_or_beside_them(tmp_path):
    inside = {"prompt": "a", "rubric": [{"criterion": "Is it short?", "points": 5, "tags": ["x"]}]}
    names = {"question": "criterion", "weight": "points"}
    path = write_jsonl(tmp_path / "inside.jsonl", inside)
    [item] = import_checklists(path, checklist_key="rubric", item_keys=names)[0]["checklist"]
    assert (item["question"], item["weight"]) == ("Is it short?", 5.0)

    beside = {"prompt": "a", "questions": ["Is it A?", "Is it B?"], "w": [1, -2], "kind": [["form", "tone"], "form"]}
    path = write_jsonl(tmp_path / "beside.jsonl", beside)
    dataset = import_checklists(path, checklist_key="questions", item_keys={"weight": "w", "category": "kind"})
    assert [(i["weight"], i["category"]) for i in dataset[0]["checklist"]] == [(1.0, "form, tone"), (-2.0, "form")]
    assert dataset[0]["w"] == [1, -2]


def test_where_a_checklist_comes_from_is_kept_or_named(tmp_path):
    save_dataset(build(["a"]), tmp_path / "a.jsonl")
    assert import_checklists(tmp_path / "a.jsonl").to_list() == build(["a"]).to_list()
    named = import_checklists(tmp_path / "a.jsonl", source="by hand")[0]
    assert (named["checklist_source"], named["checklist_model"]) == ("by hand", "fake")


BESIDE = {"prompt": "a", "checklist": ["b?"]}
PENALTY = "line 1, item 1: 'penalty_if' may be part of the score .it is 'never'.*--drop penalty_if"


@pytest.mark.parametrize(
    ("row", "settings", "error", "message"),
    [
        (None, {}, SampleError, "a.jsonl: the file has no rows"),
        ({"prompt": "a"}, {}, SampleError, "line 1: no criteria found. The keys are prompt"),
        (BESIDE | {"checklist": []}, {}, ChecklistError, "line 1: the checklist is empty"),
        (BESIDE | {"checklist": None}, {}, ChecklistError, "line 1: expected a list of questions"),
        (BESIDE | {"checklist": [{"question": "b?", "weight": float("nan")}]}, {}, ChecklistError, "item 1: weight"),
        (
            BESIDE | {"checklist": [{"question": "b?", "weight": 1, "penalty_if": "never"}]},
            {},
            ChecklistError,
            PENALTY,
        ),
        (BESIDE | {"prompt": ""}, {}, SampleError, "line 1: the input .prompt. is blank"),
        (BESIDE | {"text": "a"}, {"prompt_key": "text"}, SampleError, "would be renamed to 'prompt'"),
        (BESIDE, {"target_key": "out"}, SampleError, "key 'out' not found"),
        (BESIDE | {"w": [1, 2]}, {"item_keys": {"weight": "w"}}, ChecklistError, "list of 1 values"),
        (BESIDE, {"item_keys": {"points": "w"}}, SampleError, "'points' is not a field"),
    ],
)
def test_a_row_that_cannot_be_imported_is_named(tmp_path, row, settings, error, message):
    with pytest.raises(error, match=message):
        import_checklists(write_jsonl(tmp_path / "a.jsonl", *([] if row is None else [row])), **settings)


def test_rows_are_read_one_at_a_time():
    """The first rows decide the format; a row is given before those far behind it are read, and none is kept."""

    class Rows:
        read = 0

        def __iter__(self):
            for self.read in range(1, 1001):
                yield {"prompt": f"Prompt {self.read}.", "rubric": [{"criterion": "Is short.", "weight": 1}]}

    source = Rows()
    rows = imported_rows(source).rows
    for number, (row, _) in enumerate(rows, start=1):
        assert row["prompt"] == f"Prompt {number}." and source.read <= max(number, 16)
    assert number == 1000


def test_a_name_on_the_hub_is_its_dataset_split_by_split(monkeypatch):
    asked = []

    def load_dataset(name, *, split, streaming):
        asked.append((name, split, streaming))
        return Dataset.from_list([{"prompt": "a", "rubric": [{"criterion": "Is short.", "points": 2}]}])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    for name in ("some-org/some-rubrics", "some-org/some-rubrics:test"):
        [(row, checklist)] = imported_rows(name).rows
        assert (row, checklist.items[0].weight) == ({"prompt": "a"}, 2)
    assert asked == [("some-org/some-rubrics", "train", True), ("some-org/some-rubrics", "test", True)]


def test_options_gates_and_checks_of_a_file_are_said(tmp_path):
    options = [{"label": "not", "value": 0}, {"label": "very", "value": 1}]
    items = [
        {"criterion": "How clear?", "weight": 1, "options": options},
        {"criterion": "Is it short?", "weight": 1, "check": {"type": "words", "at_most": 9}, "required": True},
    ]
    imported = imported_rows(write_jsonl(tmp_path / "a.jsonl", {"prompt": "a", "rubric": items}))
    list(imported.rows)
    said = imported.taken()
    assert {"gates: 1", "items with options: 1", "items with code checks: 1"} <= set(said)
    assert {"weight: weight", "required: required", "options: options", "check: check"} <= set(said)


def test_a_shard_may_have_a_column_more(tmp_path):
    (tmp_path / "shards").mkdir()
    row = {"prompt": "a", "rubric": [{"criterion": "Is short.", "weight": 1}]}
    write_jsonl(tmp_path / "shards" / "1.jsonl", row)
    write_jsonl(tmp_path / "shards" / "2.jsonl", row | {"level": 3})
    found = [columns for columns, _ in imported_rows(tmp_path / "shards").rows]
    assert found == [{"prompt": "a"}, {"prompt": "a", "level": 3}]


@pytest.mark.parametrize(
    "prompt", ["[1] Who wrote this?", '["a", "b"]', '[{"role": "user"}]', "[{'a': 1}]", "[]", '"[]"']
)
def test_a_prompt_that_only_looks_like_messages_stays_a_text(tmp_path, prompt):
    path = write_jsonl(tmp_path / "a.jsonl", {"prompt": prompt, "checklist": ["Is it short?"]})
    [(row, _)] = imported_rows(path).rows
    assert row["prompt"] == prompt
    assert Columns.of(row).input_of(row, "row 1") == (prompt, None)


def test_net_as_a_reward_orders_what_is_below_zero(tmp_path):
    """HealthBench clips after the mean; a reward that is clipped per row cannot tell a bad answer from a worse one."""
    points = {"Is kind.": 2, "Lies.": -3, "Rants.": -5}
    rubrics = [{"criterion": text, "points": points[text]} for text in points]
    [(_, checklist)] = imported_rows(write_jsonl(tmp_path / "a.jsonl", {"prompt": "p", "rubrics": rubrics})).rows
    backend = FakeBackend(lambda prefix, tail: float(("Lies" in tail and "bad" in prefix) or "worse" in prefix))
    rewards = {}
    for metric in ("net", "weighted"):
        scorer = ChecklistScorer(backend=backend, store=False, metric=metric)
        rewards[metric] = ChecklistReward(scorer)(["p", "p"], ["bad", "worse"], checklist=[checklist, checklist])
    assert rewards == {"net": [-1.5, -3.0], "weighted": [0.0, 0.0]}


def test_the_columns_have_every_field_of_an_item():
    checklist = Checklist.parse(["Is it short?"])
    [item] = checklist_columns(checklist)["checklist"]
    assert item == checklist.items[0].model_dump(exclude={"sources"})
    assert checklist_features()["checklist"].feature.keys() == item.keys()


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


def jpeg() -> bytes:
    """A file of which another encoding would have other pixels."""
    file = io.BytesIO()
    Pillow.effect_noise((16, 16), 50).save(file, "JPEG")
    return file.getvalue()


FILES = [jpeg() for _ in range(3)]
PICTURED = Features({"prompt": Value("string"), "checklist": List(Value("string"))})
PICTURED |= Features({"image": Image(), "images": List(Image()), "seen": {"first": Image()}})
PICTURED_ROWS = Dataset.from_list(
    [
        {
            "prompt": f"p{number}",
            "checklist": ["Is it?"],
            "image": {"bytes": file, "path": f"{number}.jpg"},
            "images": [{"bytes": file, "path": None}] * 2,
            "seen": {"first": {"bytes": file, "path": None}},
        }
        for number, file in enumerate(FILES)
    ],
    features=PICTURED,
)


@pytest.mark.parametrize("kind", ["dataset", "formatted", "stream", "saved", "folder", "parquet"])
def test_images_keep_their_bytes_and_their_type(tmp_path, kind):
    if kind == "saved":
        PICTURED_ROWS.save_to_disk(str(tmp_path))
    elif kind in ("folder", "parquet"):
        PICTURED_ROWS.to_parquet(str(tmp_path / "a.parquet"))
    made = {"dataset": PICTURED_ROWS, "formatted": PICTURED_ROWS.with_format("torch")}
    made |= {"stream": PICTURED_ROWS.to_iterable_dataset(), "parquet": tmp_path / "a.parquet"}
    dataset = import_checklists(made.get(kind, tmp_path))
    assert all(dataset.features[name] == PICTURED[name] for name in ("image", "images", "seen"))
    rows = dataset.with_format("arrow")[:].to_pylist()
    assert [row["image"] for row in rows] == [{"bytes": f, "path": f"{n}.jpg"} for n, f in enumerate(FILES)]
    assert [image["bytes"] for row in rows for image in (*row["images"], row["seen"]["first"])] == [
        file for file in FILES for _ in range(3)
    ]
    assert [row["prompt"] for row in rows] == ["p0", "p1", "p2"]


def test_a_row_of_a_dataset_is_named_in_errors():
    rows = Dataset.from_list([{"prompt": "a", "checklist": ["Is it?"]}, {"prompt": "b", "checklist": [""]}])
    for dataset in (rows, rows.to_iterable_dataset()):
        with pytest.raises(ChecklistError, match="the dataset, row 2"):
            import_checklists(dataset)


def test_a_dataset_is_read_as_its_transform_makes_it():
    dataset = Dataset.from_list([{"asked": "Hello.", "checklist": ["Is it red?"]}])
    dataset.set_transform(lambda rows: {"prompt": [f"Say: {asked}" for asked in rows["asked"]], **rows})
    assert import_checklists(dataset)["prompt"][:] == ["Say: Hello."]
