"""Rubrics of other projects: what is read of each, what is refused, and that they can be scored. The files in
`tests/data` are our own, in the others' forms."""

import json
from pathlib import Path

import pytest
import yaml

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.datasets import checklist_features, import_checklists
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.rows import write_rows
from checklist_rewards.judges.questions import FewShot
from tests.jsonl import write_jsonl
from tests.judges.fakes import Lettered

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "autorubric.json": "autorubric",
    "rubric.yaml": "rubric",
    "healthbench.jsonl": "healthbench",
    "rar.jsonl": "rar",
    "autochecklist.json": "autochecklist",
    "autochecklist.jsonl": "autochecklist",
}


def read(name, **settings):
    imported = imported_rows(DATA / name if isinstance(name, str) else name, **settings)
    rows = list(imported.rows)
    return rows, dict(imported.left_out)


@pytest.mark.parametrize(("name", "format"), FILES.items())
def test_the_format_is_seen_or_named_and_gives_the_same(name, format):
    assert imported_rows(DATA / name).format.name == format
    assert read(name) == read(name, format=format)


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
    rows, left_out = read("autorubric.json")
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
        ({"answer": "a JSON text"}, "p", None),
    ):
        submission = json.dumps(value)
        [(row, _)], left_out = read(write_jsonl(tmp_path / "a.json", dataset_of(items=[{"submission": submission}])))
        assert (row["prompt"], row["target"]) == (prompt, submission if target is None else target)
        assert left_out.get("prompt", 0) == (target is not None)  # it says what the grader does


def test_a_rubric_file_has_sections_weights_and_penalties_and_no_prompt():
    [(row, checklist)], left_out = read("rubric.yaml")
    assert row == {}
    assert [(item.weight, item.category) for item in checklist.items] == [(3, "facts"), (-2, "facts"), (1, "form")]
    assert checklist.items[2].question == "Does the response end with a question mark?"  # a question stays one
    assert left_out == {"section.owner": 1, "name": 1}
    with pytest.raises(SampleError, match="rubric.yaml: the checklist has no prompt"):
        import_checklists(DATA / "rubric.yaml")


def test_rows_of_healthbench():
    rows, left_out = read("healthbench.jsonl")
    (first, knee), (_, water) = rows
    assert [(item.weight, item.category) for item in knee.items] == [(7, "context_awareness"), (-9, "accuracy")]
    assert knee.items[1].question == "Does this describe the response?\nTells the user to keep running."
    assert (first["prompt"][-1]["content"], first["prompt_id"]) == ("Since my run yesterday.", "p1")
    assert first["example_tags"] == ["theme:context_seeking"]
    assert [item.category for item in water.items] == [None]
    assert left_out == {"tags": 1}  # level:example


def test_rows_of_rubrics_as_rewards():
    [(row, checklist)], left_out = read("rar.jsonl")
    assert (row["prompt"], row["reference"]) == ("Why is the sky blue?", "Short waves are scattered more.")
    assert (row["question_source"], row["rubric_count"]) == ("ours", 3)
    found = [(item.weight, item.category) for item in checklist.items]
    assert found == [(5, "essential"), (1, "optional"), (-2, "pitfall")]
    assert checklist.items[2].question.endswith("\nSays that the sky mirrors the sea.")
    assert left_out == {"title": 3}


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


@pytest.mark.parametrize("name", [name for name in FILES if name != "rubric.yaml"])
def test_a_dataset_of_any_of_them_has_the_declared_columns(name):
    dataset = import_checklists(DATA / name)
    declared = checklist_features("messages" if name == "healthbench.jsonl" else "text")
    assert {column: dataset.features[column] for column in declared} == dict(declared)
    checklists = [checklist for _, checklist in read(name)[0]]
    assert [Checklist.parse(row["checklist"]).items for row in dataset] == [c.items for c in checklists]


def test_every_question_may_abstain_on_request_and_a_source_may_be_named():
    rows, _ = read("healthbench.jsonl", may_abstain=True, source="knees")
    assert {list(item.values)[-1] for _, checklist in rows for item in checklist.items} == {"cannot_assess"}
    assert {checklist.source for _, checklist in rows} == {"knees"}


def test_a_json_list_of_rows_and_the_key_of_a_target(tmp_path):
    rows = [json.loads(line) | {"answer": "Rest."} for line in (DATA / "healthbench.jsonl").read_text().splitlines()]
    found, _ = read(write_jsonl(tmp_path / "h.json", rows), target_key="answer")
    assert [row["target"] for row, _ in found] == ["Rest.", "Rest."] and "answer" not in found[0][0]


# --- what is refused -------------------------------------------------------------------------------------------------

CRITERION = {"weight": 1, "requirement": "Is short."}
ITEM = {"submission": "Hi.", "description": "d"}


def dataset_of(**changes):
    return {"prompt": "p", "rubric": [CRITERION], "items": [ITEM]} | changes


def options(*of_item):
    return dataset_of(rubric=[CRITERION | {"options": [{"label": "a", "value": 1}, *of_item]}])


POINT = [{"criterion": "x", "points": 1}]
REFUSED = {
    "a.json": [
        (dataset_of(items=[{}]), "item 1: 'submission' must be a string, got None"),
        (dataset_of(items=["x"]), "item 1: expected a mapping, got str 'x'"),
        (dataset_of(items=[{"submission": "Hi.", "prompt": " "}]), "the input .prompt. is blank"),
        (
            dataset_of(items=[{"submission": "Hi.", "target": "x"}]),
            "'submission' would be renamed to 'target', but that column exists",
        ),
        (dataset_of(prompt=None), "item 1: the item or the file needs a 'prompt'"),
        (dataset_of(rubric=None), "item 1: 'rubric' is missing in both the item and the file"),
        (dataset_of(rubric=[{"weight": 1}]), "rubric, item 1: 'requirement' must be a nonblank string, got None"),
        (dataset_of(rubric=[CRITERION | {"weight": "high"}]), "rubric, item 1: weight: .*'high'.*--weights"),
        (dataset_of(rubric=[CRITERION | {"weight": float("nan")}]), "rubric, item 1: weight: .* got nan"),
        (dataset_of(rubric=[]), "rubric: the checklist is empty"),
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
        ({"something": 1}, "no criteria found. The keys are something. Name the key of the crit"),
    ],
    "rows.jsonl": [
        (
            {"prompt": "p", "rubrics": [{"criterion": "x", "points": None}]},
            "line 1, item 1: 'points' must be a number; the keys are criterion, points",
        ),
        ({"prompt": "", "rubrics": POINT}, "line 1: the input .prompt. is blank"),
        ({"prompt": "p", "checklist_id": 3, "rubrics": POINT}, "'checklist_id' is"),
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


def test_an_imported_rubric_with_options_penalties_and_abstentions_is_scored():
    rows, _ = read("autorubric.json")
    row, checklist = rows[1]
    said = {"cannot_assess": 1.0, "Lukewarm": 1.0}
    letters = lambda shown: {letter: said.get(label, 0.0) for letter, label in shown.items()}  # noqa: E731
    backend = Lettered(letters, lambda prefix, tail: 1.0)
    scorer = ChecklistScorer(backend=backend, store=False, abstention="fail", metric="weighted")
    score = scorer.score(checklist, row["target"], row["prompt"])
    assert [item.answer for item in score.items] == ["yes", "cannot_assess", "Lukewarm"]
    # 4 x 1 - 6 x 1 + 5 x .4 = 0, of 9
    assert score.raw_score == pytest.approx(0) and score.primary_score == pytest.approx(0)
    skipped = ChecklistScorer(backend=backend, store=False, metric="weighted").score(checklist, "x")
    assert skipped.primary_score == pytest.approx((4 + 2) / 9)


def test_imported_labels_are_few_shot_examples(tmp_path):
    path = tmp_path / "labelled.jsonl"
    rows, _ = read("autorubric.json")
    with write_rows(path) as out:
        for row, checklist in rows[:2]:
            out.write(row | {"checklist": [item.model_dump() for item in checklist.items]})
    few_shot = FewShot.load(path, reasons=True)
    shown = few_shot.chosen(rows[0][1].items[2], "another note")
    assert sorted((label, example.reason) for label, example in shown) == [("Cold", None), ("Warm", "It offers help.")]
