"""Checklists that other projects or people wrote. The files in `tests/data` are our own, in the others' forms."""

import io
import json
from pathlib import Path

import pytest
import yaml
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pillow

from checklist_rewards import Checklist
from checklist_rewards.checks import check_of
from checklist_rewards.datasets import (
    checklist_columns,
    checklist_features,
    import_checklists,
    save_dataset,
)
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.datasets.promptfoo import criteria_of_asserts, promptfoo_rows
from checklist_rewards.errors import ChecklistError, ChecklistRewardsError, SampleError
from checklist_rewards.rows import Columns
from tests.datasets.building import build
from tests.jsonl import write_jsonl


def test_fields_with_other_names_are_found_in_the_items_or_beside_them(tmp_path):
    inside = {"prompt": "a", "rubric": [{"criterion": "Is it short?", "points": 5, "tags": ["x"]}]}
    names = {"question": "criterion", "weight": "points"}
    path = write_jsonl(tmp_path / "inside.jsonl", inside | {"input": "b"})
    [row] = import_checklists(path, prompt_key=("prompt", "input"), checklist_key="rubric", item_keys=names)
    [item] = row["checklist"]
    assert (row["prompt"], item["question"], item["weight"]) == ("a\n\nb", "Is it short?", 5.0)

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


@pytest.mark.parametrize(
    ("row", "settings", "error", "message"),
    [
        (None, {}, SampleError, "a.jsonl: the file has no rows"),
        ({"prompt": "a"}, {}, SampleError, "line 1: no criteria found. The keys are prompt"),
        (BESIDE | {"checklist": []}, {}, ChecklistError, "line 1: the checklist is empty"),
        (BESIDE | {"checklist": None}, {}, ChecklistError, "line 1: expected a list of questions"),
        (BESIDE | {"checklist": [{"question": "b?", "weight": float("nan")}]}, {}, ChecklistError, "item 1: weight"),
        (BESIDE | {"prompt": ""}, {}, SampleError, "line 1: the input .prompt. is blank"),
        (BESIDE | {"text": "a"}, {"prompt_key": "text"}, SampleError, "would be renamed to 'prompt'"),
        (BESIDE, {"target_key": "out"}, SampleError, "key 'out' not found"),
        (BESIDE | {"resps": [["x", "y"]]}, {"target_key": "resps"}, SampleError, "line 1: 'resps' has 2 answers"),
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


@pytest.mark.parametrize("prompt", ["[1] Who wrote this?", '["a", "b"]', '[{"role": "user"}]', "[]"])
def test_a_prompt_that_only_looks_like_messages_stays_a_text(tmp_path, prompt):
    path = write_jsonl(tmp_path / "a.jsonl", {"prompt": prompt, "checklist": ["Is it short?"]})
    [(row, _)] = imported_rows(path).rows
    assert row["prompt"] == prompt
    assert Columns.of(row).input_of(row, "row 1") == (prompt, None)


def test_the_columns_have_every_field_of_an_item():
    checklist = Checklist.parse(["Is it short?"])
    [item] = checklist_columns(checklist)["checklist"]
    assert item == checklist.items[0].model_dump(exclude={"sources"})
    assert checklist_features()["checklist"].feature.keys() == item.keys()


def jpeg() -> bytes:
    """A file of which another encoding would have other pixels."""
    file = io.BytesIO()
    Pillow.effect_noise((16, 16), 50).save(file, "JPEG")
    return file.getvalue()


JPEGS = [jpeg() for _ in range(2)]
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
        for number, file in enumerate(JPEGS)
    ],
    features=PICTURED,
)


@pytest.mark.parametrize("kind", ["formatted", "stream", "saved", "folder"])
def test_images_keep_their_bytes_and_their_type(tmp_path, kind):
    if kind == "saved":
        PICTURED_ROWS.save_to_disk(str(tmp_path))
    elif kind == "folder":
        PICTURED_ROWS.to_parquet(str(tmp_path / "a.parquet"))
    made = {"formatted": PICTURED_ROWS.with_format("torch"), "stream": PICTURED_ROWS.to_iterable_dataset()}
    dataset = import_checklists(made.get(kind, tmp_path))
    assert all(dataset.features[name] == PICTURED[name] for name in ("image", "images", "seen"))
    rows = dataset.with_format("arrow")[:].to_pylist()
    assert [row["image"] for row in rows] == [{"bytes": f, "path": f"{n}.jpg"} for n, f in enumerate(JPEGS)]
    assert [image["bytes"] for row in rows for image in (*row["images"], row["seen"]["first"])] == [
        file for file in JPEGS for _ in range(3)
    ]


def test_a_row_of_a_dataset_is_named_in_errors():
    rows = Dataset.from_list([{"prompt": "a", "checklist": ["Is it?"]}, {"prompt": "b", "checklist": [""]}])
    for dataset in (rows, rows.to_iterable_dataset()):
        with pytest.raises(ChecklistError, match="the dataset, row 2"):
            import_checklists(dataset)


def test_a_dataset_is_read_as_its_transform_makes_it():
    dataset = Dataset.from_list([{"asked": "Hello.", "checklist": ["Is it red?"]}])
    dataset.set_transform(lambda rows: {"prompt": [f"Say: {asked}" for asked in rows["asked"]], **rows})
    assert import_checklists(dataset)["prompt"][:] == ["Say: Hello."]


DATA = Path(__file__).parents[1] / "data"


def read(name, **settings):
    imported = imported_rows(DATA / name if isinstance(name, str) else name, **settings)
    rows = list(imported.rows)
    return rows, dict(imported.left_out)


@pytest.mark.parametrize("name", ["autorubric.json", "rubric.yaml"])
def test_json_and_yaml_hold_the_same(tmp_path, name):
    value = yaml.safe_load((DATA / name).read_text())  # JSON is YAML
    (tmp_path / "as.json").write_text(json.dumps(value))
    (tmp_path / "as.yml").write_text(yaml.safe_dump(value))
    expected = [(row, checklist.items) for row, checklist in read(name)[0]]
    for other in ("as.json", "as.yml"):
        assert [(row, checklist.items) for row, checklist in read(tmp_path / other)[0]] == expected


def test_a_format_of_ones_own_names_the_answers_of_people(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nprompt: ask\nchecklist: rubric\ngrade: marks\ndefault_weight: 1\n")
    row, path = {"ask": "p", "rubric": ["Is it short?", "Is it kind?"]}, tmp_path / "rows.jsonl"
    [(first, _), (second, _)], _ = read(write_jsonl(path, row | {"marks": ["MET", "no"]}, row), format=mine)
    assert first == {"prompt": "p", "labels": ["yes", "no"]} and second == {"prompt": "p"}
    for marks, error in ((["MET"], "'marks' must be a list of 2"), (["MET", 3], "marks 2: 3 is not a verdict")):
        with pytest.raises(SampleError, match=f"line 1(: |, ){error}"):
            read(write_jsonl(path, row | {"marks": marks}), format=mine)


@pytest.mark.parametrize("name", ["rows.json", "rows.yaml"])
def test_a_list_is_rows_if_its_first_entry_is_one(tmp_path, name):
    row = {"prompt": "p", "checklist": ["Is it short?"]}
    for second, error in (
        (3, "row 2: expected a mapping, got 3"),
        ({"weight": 1}, "row 2: key 'checklist' not found"),
    ):
        (tmp_path / name).write_text(json.dumps([row, second]))  # JSON is YAML
        with pytest.raises(SampleError, match=f"{name}, {error}"):
            read(tmp_path / name)


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_rubric_dataset_of_autorubric():
    rows, left_out = read("autorubric.json", format="autorubric")  # named; the samples show that it is detected
    (friendly, checklist), (rude, shared), (poem, own) = rows
    assert checklist is shared and checklist.source == "autorubric"
    greets, threatens, warmth = checklist.items
    assert [item.weight for item in checklist.items] == [4.0, -6.0, 5.0]
    assert [item.category for item in checklist.items] == ["greets", "threatens", "warmth"]
    asked = "Does this describe the response?\nThe note greets the neighbour."
    assert greets.question == f"Judge the note alone, not the wish behind it.\n\n{asked}"
    assert warmth.question.endswith("\n\nHow warm is the note?")
    assert warmth.values == {"Cold": 0.0, "Lukewarm": 0.4, "Warm": 1.0, "Nothing to judge by": None}
    assert greets.options is None
    assert threatens.values == {"yes": 1.0, "no": 0.0, "cannot_assess": None}  # somebody could not assess it
    assert friendly == {
        "prompt": "Write a note to your neighbour about the hedge.",
        "target": "Dear Ana, shall we cut it together? Tom",
        "reference": "Dear Ana, could we cut the hedge on Friday? Best, Tom",
        "description": "friendly",
        "labels": ["yes", "no", "Warm"],
        "reasons": ["It says Dear Ana.", None, "It offers help."],
    }
    assert rude["labels"] == ["no", "cannot_assess", "Cold"] and rude["reference"] == "Please cut it."
    assert (poem["prompt"], poem["labels"]) == ("Write a poem about a hedge.", None)
    [line] = own.items
    assert (line.question, line.weight, line.required) == ("Does it have seven lines?", 1.0, True)
    assert left_out == {"scale_type": 1, "aggregation": 1, "dataset.name": 1}


def test_a_submission_that_is_a_conversation_is_judged_as_one(tmp_path):
    turns = [{"role": "user", "content": "Where is Mali?"}, {"role": "assistant", "content": "In Africa."}]
    for value, prompt, target in (
        (turns, turns[:1], "In Africa."),
        ({"question": "Where is Mali?", "response": "# In Africa"}, "Where is Mali?", "# In Africa"),
        ({"question": "Where?", "response": "Here.", "more": 1}, "p", None),
        (turns[:1], "p", None),
    ):
        submission = json.dumps(value)
        [(row, _)], left_out = read(write_jsonl(tmp_path / "a.json", dataset_of(items=[{"submission": submission}])))
        assert (row["prompt"], row["target"]) == (prompt, submission if target is None else target)
        assert left_out.get("prompt", 0) == (target is not None)  # it says what the grader does


def test_a_rubric_file_has_sections_weights_and_penalties_and_no_prompt():
    [(row, checklist)], left_out = found = read("rubric.yaml")
    assert row == {} and found == read("rubric.yaml", format="rubric")
    assert [(item.weight, item.category) for item in checklist.items] == [(3, "facts"), (-2, "facts"), (1, "form")]
    assert checklist.items[2].question == "Does the response end with a question mark?"  # a question stays one
    assert left_out == {"section.owner": 1, "name": 1}
    with pytest.raises(SampleError, match="rubric.yaml: the checklist has no prompt"):
        import_checklists(DATA / "rubric.yaml")


def test_guidelines_are_shown_with_the_criteria_of_sections(tmp_path):
    rubric = {"guidelines": "Judge the note alone.", "rubric": {"form": ["Is it short?"], "tone": ["Is it kind?"]}}
    [(_, checklist)], _ = read(write_jsonl(tmp_path / "a.jsonl", {"prompt": "p", "rubric": rubric}))
    assert [item.question for item in checklist.items] == [
        "Judge the note alone.\n\nIs it short?",
        "Judge the note alone.\n\nIs it kind?",
    ]


def test_a_checklist_and_the_rows_of_autochecklist():
    [(row, checklist)], left_out = read("autochecklist.json")
    assert row == {"prompt": "Ask how many keno there are."} and checklist.source == "tick"
    found = [(item.id, item.weight, item.category) for item in checklist.items]
    assert found == [("a1b2c3d4", 100, None), ("e5f60718", 40, "form")]
    assert left_out == {"metadata": 1, "rubric.metadata": 1}
    rows, left_out = read("autochecklist.jsonl")
    assert [(row["prompt"], row["target"]) for row, _ in rows] == [
        ("Ask how many keno there are.", "Are there 3 keno?"),
        ("Say that a lamo is small.", "a lamo is small"),
    ]
    assert rows[0][0]["score"] == {"total_score": 1.0}
    assert rows[1][1].items[0].weight == 100 and left_out == {}


@pytest.mark.parametrize("name", ["autorubric.json", "healthbench.jsonl", "autochecklist.json"])
def test_a_dataset_of_any_of_them_has_the_declared_columns(name):
    dataset = import_checklists(DATA / name)
    declared = checklist_features("messages" if name == "healthbench.jsonl" else "text")
    assert {column: dataset.features[column] for column in declared} == dict(declared)
    checklists = [checklist for _, checklist in read(name)[0]]
    assert [Checklist.parse(row["checklist"]).items for row in dataset] == [c.items for c in checklists]


def test_every_question_may_abstain_on_request():
    rows, _ = read("healthbench.jsonl", may_abstain=True)
    assert {list(item.values)[-1] for _, checklist in rows for item in checklist.items} == {"cannot_assess"}


# --- what is refused -------------------------------------------------------------------------------------------------

CRITERION = {"weight": 1, "requirement": "Is short."}
ITEM = {"submission": "Hi.", "description": "d"}


def dataset_of(**changes):
    return {"prompt": "p", "rubric": [CRITERION], "items": [ITEM]} | changes


def options(*of_item):
    return dataset_of(rubric=[CRITERION | {"options": [{"label": "a", "value": 1}, *of_item]}])


REFUSED = {
    "a.json": [
        (dataset_of(items=[{}]), "item 1: 'submission' must be a string, got None"),
        (dataset_of(items=["x"]), "item 1: expected a mapping, got str 'x'"),
        (
            dataset_of(items=[{"submission": "Hi.", "target": "x"}]),
            "'submission' would be renamed to 'target', but that column exists",
        ),
        (dataset_of(prompt=None), "item 1: the item or the file needs a 'prompt'"),
        (dataset_of(rubric=None), "item 1: 'rubric' is missing in both the item and the file"),
        (dataset_of(rubric=[{"weight": 1}]), "rubric, item 1: 'requirement' must be a nonblank string, got None"),
        (dataset_of(rubric=[CRITERION | {"weight": "high"}]), "rubric, item 1: weight: .*'high'.*--weights"),
        (dataset_of(rubric="x"), "rubric: expected a list of questions or criteria, got str 'x'"),
        (dataset_of(rubric={"criteria": [CRITERION], "guidelines": 3}), "'guidelines' must be a string, got 3"),
        (options({"label": "b", "value": 3}), "rubric, item 1: options.1.value: .*, got 3"),
        (options({"label": "b"}), "item 1: options.1: an option must have either a value"),
        (dataset_of(rubric=[CRITERION | {"options": "a or b"}]), "item 1: 'options' must be a list of mapp"),
        (
            dataset_of(items=[ITEM | {"ground_truth": ["MET", "MET"]}]),
            r"item 1: 'ground_truth' must be a list of 1, one per criterion; got \['MET', 'MET'\]",
        ),
        (
            dataset_of(items=[ITEM | {"ground_truth": ["GREAT"]}]),
            "item 1, ground_truth 1: 'GREAT' is not a verdict; allowed: MET, UNMET, CANNOT_ASSESS",
        ),
        ({"rubric": {"sections": [{"criteria": 3}]}}, "section 1: 'criteria' must be a list, got 3"),
        ({"rubric": {"weights": []}}, "a rubric needs criteria or sections; the keys are weights"),
    ],
    "rows.jsonl": [
        (
            {"prompt": "p", "rubrics": [{"criterion": "x", "points": None}]},
            "line 1, item 1: 'points' must be a number; the keys are criterion, points",
        ),
        ({"prompt": "p", "checklist_id": 3, "rubrics": [{"criterion": "x", "points": 1}]}, "'checklist_id' is"),
        (
            {"question": "q", "rubric": [{"description": 3, "weight": 1}]},
            "'description' must be a nonblank string, got 3",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "value", "message"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
def test_what_cannot_be_used_is_refused_with_file_row_and_item(tmp_path, name, value, message):
    with pytest.raises(ChecklistRewardsError, match=f"{name}.*{message}") as refused:
        read(write_jsonl(tmp_path / name, value))
    assert "\n" not in str(refused.value)


def test_a_later_row_in_another_form_is_named(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text((DATA / "healthbench.jsonl").read_text() + json.dumps({"prompt": "p", "rubric": []}) + "\n")
    with pytest.raises(SampleError, match="h.jsonl, line 3: key 'rubrics' not found; the keys are prompt, rubric"):
        read(path)


def test_formats_that_are_not_known_or_contradict_the_keys_are_refused(tmp_path):
    with pytest.raises(SampleError, match="unknown format 'rubrik' .did you mean 'rubric'"):
        read("rubric.yaml", format="rubrik")
    with pytest.raises(SampleError, match="format='rar' has fixed keys"):
        read("rar.jsonl", format="rar", checklist_key="rubric")
    with pytest.raises(SampleError, match="'autorubric' requires a .json, .yaml, .yml file"):
        read("rar.jsonl", format="autorubric")
    broken = tmp_path / "a.yaml"
    broken.write_text("rubric:\n  - weight: 1\n   requirement: x\n")
    with pytest.raises(ChecklistRewardsError, match="a.yaml:3: not valid YAML"):
        read(broken)


# --- scored ----------------------------------------------------------------------------------------------------------


FILE = Path("promptfooconfig.yaml")


def only_row(prompt, asserts, values, shared=None):
    document = {"prompts": [prompt], "tests": [{"vars": values, "assert": asserts}], "defaultTest": shared}
    return next(promptfoo_rows(document, FILE)).data


@pytest.mark.parametrize(
    ("kind", "value", "yes", "no"),
    [
        ("contains", "{{expected}}", "It is Bamako.", "It is {{expected}}."),
        ("icontains-any", ["{{ expected }}", "x9"], "bamako", "expected"),
        ("not-contains", "{{expected }}", "Paris", "Bamako"),
        ("starts-with", "The {{expected}}", "The Bamako", "The expected"),
        ("equals", "{{expected}}", "Bamako", "{{expected}}"),
        ("regex", "^{{expected}}$", "Bamako", "expected"),
        ("not-equals", "{{expected}}", "Paris", "Bamako"),
        # src/util/parseCommaSeparatedValues.ts of promptfoo/promptfoo: a text with several words
        ("contains-any", "Paris , {{expected}}", "It is Bamako.", "It is Ba."),
        ("contains-all", 'x, "a, b"', "x and a, b", "x, a and b"),
        ("not-icontains-any", "Paris,Bamako\n", "Timbuktu", "BAMAKO"),
    ],
)
def test_the_variables_of_a_test_are_filled_into_its_assertions(kind, value, yes, no):
    own = only_row("Name it.", [{"type": kind, "value": value}], {"expected": "Bamako"})
    shared = only_row("Name it.", [], {"expected": "Bamako"}, {"assert": [{"type": kind, "value": value}]})
    for row in (own, shared):
        (item,), _ = criteria_of_asserts(row["assert"], "here")
        check = check_of(item["check"])
        assert check.holds(yes) and not check.holds(no) and "{{" not in item["question"]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("Names {{a.b}}.", {"a": {"b": "Bamako"}}, "Names Bamako."),
        *(("{{a}}", {"a": value}, text) for value, text in ((5, "5"), (0.5, "0.5"), (True, "true"), (None, ""))),
        ("{{a}} {{b}}", {"a": "{{b}}", "b": "x"}, "{{b}} x"),
        ("{{prompt}} {{assert}}", {"prompt": "hi", "assert": "ho"}, "hi ho"),
    ],
)
def test_a_value_is_written_as_promptfoo_does(text, values, expected):
    row = only_row(f"Say {text}", [{"type": "llm-rubric", "value": text}], values)
    assert row["prompt"] == f"Say {expected}" and row["assert"] == [{"type": "llm-rubric", "value": expected}]


MALI = {"vars": {"c": "Mali"}, "assert": [{"type": "llm-rubric", "value": "Names {{c}}."}]}


@pytest.mark.parametrize("prompts", ["On {{c}}.", ["On {{c}}.", {"label": "b", "raw": "Tell {{c}}: e.g. a/b."}]])
def test_each_test_of_promptfoo_is_asked_with_each_prompt(tmp_path, prompts):
    """As in examples/getting-started of promptfoo/promptfoo. A test may do without the assertions of all tests."""
    alone = MALI | {"options": {"disableDefaultAsserts": True}}
    shared = {"assert": [{"type": "contains", "value": "x", "threshold": 1, "provider": "openai:gpt-4"}]}
    (tmp_path / "c.yaml").write_text(json.dumps({"prompts": prompts, "tests": [MALI, alone], "defaultTest": shared}))
    imported = imported_rows(tmp_path / "c.yaml")
    rows = [(row["prompt"], len(checklist)) for row, checklist in imported.rows]
    texts = ["On Mali."] if isinstance(prompts, str) else ["On Mali.", "Tell Mali: e.g. a/b."]
    assert rows == [(text, items) for items in (2, 1) for text in texts]
    assert imported.left_out == {"threshold": len(texts), "provider": len(texts)}


RESULT = {  # src/types/index.ts of promptfoo/promptfoo: EvaluateResult, a line of `promptfoo eval -o results.jsonl`
    "prompt": {"raw": "On Mali.", "label": "On {{c}}."},
    "vars": {"c": "Mali"},
    "response": {"output": "Bamako.", "cached": False},
    "success": True,
    "testCase": MALI | {"options": {}},
}


def test_results_of_promptfoo_are_rows_with_the_variables_of_their_test(tmp_path):
    keys = {"prompt_key": "prompt.raw", "target_key": "response.output", "checklist_key": "testCase.assert"}
    imported = imported_rows(write_jsonl(tmp_path / "results.jsonl", RESULT), **keys)
    [(row, checklist)] = imported.rows
    assert (row["prompt"], row["target"]) == ("On Mali.", "Bamako.") and row["success"]
    assert [item.question for item in checklist.items] == ["Does this describe the response?\nNames Mali."]
    assert imported.left_out == {"prompt.label": 1}


def asserted(**entry):
    return {"tests": [MALI | {"assert": [{"type": "llm-rubric", "value": "x"} | entry]}]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [  # the keys of src/types/index.ts of promptfoo/promptfoo
        *(({"prompts": [path]}, f"a list of texts, no files; got {[path]!r}") for path in ("a.txt", "p/*", "f.py:g")),
        *(({"tests": tests}, "must be a list with all tests") for tests in ("file://tests.csv", None)),
        ({"scenarios": [{"tests": [MALI]}]}, "must be a list with all tests, without 'scenarios'"),
        ({"defaultTest": "file://all.yaml"}, "'defaultTest' must be a mapping, got 'file://all.yaml'"),
        ({"tests": [MALI | {"vars": "file://v.yaml"}]}, "test 1: 'vars' must be a mapping, got 'file://v.yaml'"),
        ({"defaultTest": {"options": {"transform": "output.a"}}}, "the option 'transform' cannot be imported"),
        (
            asserted(value="file://rubric.txt"),
            "assertion 1: only variables such as {{name}} can be filled, no files; got 'file://rubric.txt'",
        ),
        (asserted(transform="output.a"), "item 1: the key 'transform' cannot be imported"),
        (
            {"tests": [MALI | {"assert": [{"$ref": "#/assertionTemplates/a"}]}]},
            "the assertion None cannot be imported",
        ),
        (asserted(type="is-json", value={"type": "object"}), "'is-json' with the value {'type': 'object'} cannot"),
        (asserted(type="equals", value={"a": 1}), "'equals' with the value {'a': 1} cannot be imported"),
        (asserted(type="contains", value=True), "'contains' with the value True cannot be imported"),
    ],
)
def test_what_a_configuration_of_promptfoo_has_elsewhere_or_changes_is_refused(tmp_path, changed, words):
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps({"prompts": ["On {{c}}."], "tests": [MALI]} | changed))
    with pytest.raises(ChecklistRewardsError) as refused:
        list(imported_rows(file).rows)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("prompt", "value", "variables", "words"),
    [
        ("{{a}}", "x", {}, "test 1: the variable {{a}} has no value; the variables are none."),
        ("a", "{{other}}", {"a": 1}, "test 1, assertion 1: the variable {{other}} has no value; the variables are a."),
        (
            "a",
            "{{a | upper}}",
            {"a": 1},
            "only variables such as {{name}} can be filled, no files; got '{{a | upper}}'",
        ),
        ("{% if a %}b{% endif %}", "x", {"a": 1}, "only variables such as {{name}} can be filled"),
        ("{{a}}", "x", {"a": ["b", "c"]}, "the variable {{a}} must be one value, got ['b', 'c']"),
        ("{{a.b}}", "x", {"a": {"b": ["c"]}}, "the variable {{a.b}} must be one value, got ['c']"),
        ("{{a}}", "x", {"a": "file://a.txt"}, "the variable {{a}} must be one value, got 'file://a.txt'"),
    ],
)
def test_what_cannot_be_filled_is_refused(prompt, value, variables, words):
    with pytest.raises(SampleError) as refused:
        only_row(prompt, [{"type": "contains", "value": value}], variables)
    assert words in str(refused.value)
