"""`checklists import` in rows and as one checklist; labelled examples and abstentions from the command line."""

import re
from pathlib import Path

import pytest

from checklist_rewards import Checklist
from tests.jsonl import read_jsonl, write_jsonl
from tests.judges.fakes import Lettered

DATA = Path(__file__).parent.parent / "data"


def test_a_file_becomes_rows_and_says_what_was_left_out(run):
    done = run("checklists import", DATA / "autorubric.json", "-o", "rows.jsonl")
    assert "autorubric: 3 rows with 7 items in rows.jsonl" in done.output
    assert "Dropped fields that items cannot hold: aggregation (1), dataset.name (1), scale_type (1)" in done.output
    first = read_jsonl("rows.jsonl")[0]
    assert list(first)[0] == "prompt" and list(first)[-1] == "checklist_model"
    assert [item["weight"] for item in first["checklist"]] == [4.0, -6.0, 5.0]
    assert first["checklist_source"] == "autorubric" and first["labels"] == ["yes", "no", "Warm"]


def test_what_was_imported_is_scored(run):
    run("checklists import", DATA / "autochecklist.jsonl", "-o", "rows.jsonl")
    run("score rows.jsonl -o scored.jsonl --no-store --backend transformers")
    answers = [[item["answer"] for item in row["checklist_score"]["items"]] for row in read_jsonl("scored.jsonl")]
    assert answers == [["yes"], ["yes"]]


def test_a_rubric_without_a_prompt_becomes_one_checklist_for_all_rows(run, engine):
    done = run("checklists import", DATA / "rubric.yaml", "-o", "rubric.json")
    assert "rubric: one checklist with 3 items in rubric.json" in done.output
    assert [item.weight for item in Checklist.parse(Path("rubric.json").read_text()).items] == [3, -2, 1]
    engine(lambda prefix, tail: 0.9)
    write_jsonl("rows.jsonl", {"prompt": "Describe Ulm.", "target": "Ulm lies on the Danube."})
    run("score rows.jsonl -o s.jsonl --checklist rubric.json --no-store --metric weighted")
    assert read_jsonl("s.jsonl")[0]["checklist_score"]["primary_score"] == pytest.approx((3 - 2 + 1) / 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DATA / "rubric.yaml", "-o", "rows.jsonl"], "holds a single checklist without a prompt"),
        ([DATA / "healthbench.jsonl", "-o", "one.json"], "has 2 different checklists, but --output one.json holds"),
        (["none.jsonl", "-o", "rows.jsonl"], "none.jsonl: cannot be read"),
        ([DATA / "rar.jsonl", "-o", "rows.txt"], "unknown extension '.txt'"),
        ([DATA / "rar.jsonl", "-o", "rows.jsonl", "--format", "healthbench"], "line 1: key 'rubrics' not found"),
        ([DATA / "rar.jsonl", "-o", "rows.jsonl", "--item-key", "weight"], "--item-key 'weight': expected FIELD=KEY"),
        (["empty.jsonl", "-o", "rows.jsonl"], "empty.jsonl has no rows"),
        (["bad.jsonl", "-o", "rows.jsonl"], "bad.jsonl, line 2, item 1: points: .* got 'x'"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence_and_leaves_nothing(run, arguments, words):
    Path("empty.jsonl").write_text("")
    good = {"prompt": "p", "rubrics": [{"criterion": "c", "points": 1}]}
    write_jsonl("bad.jsonl", good, {"prompt": "p", "rubrics": [{"criterion": "c", "points": "x"}]})
    done = run("checklists import", *arguments, refused="")
    assert re.search(words, done.stderr), done.stderr


MINE = (
    "name: mine\nchecklist: task.grading\nprompt: task.text\nitem: {question: claim, weight: how}\nwords: {must: 3}\n"
)
TASK = {"task": {"text": "Name it.", "grading": [{"claim": "Names it.", "how": "must"}], "id": 7}}


def test_a_format_of_the_users_own(run):
    write_jsonl("rows.jsonl", TASK)
    Path("mine.yaml").write_text(MINE)
    done = run("checklists import rows.jsonl --format mine.yaml -o out.jsonl")
    assert "mine: 1 rows with 1 items in out.jsonl" in done.output and "weights: must = 3" in done.output
    [row] = read_jsonl("out.jsonl")
    assert (row["prompt"], row["task"], row["checklist_source"]) == ("Name it.", {"id": 7}, "mine")
    assert [item["weight"] for item in row["checklist"]] == [3.0]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("name: mine\n", [], "own.yaml:1: checklist is missing"),
        (
            MINE + "shpe: text\n",
            [],
            r"own.yaml:6: unknown key 'shpe' \(did you mean 'shape'\?\); allowed: name, about",
        ),
        (MINE + "shape: list\n", [], "own.yaml:6: shape: Input should be 'items', 'text', 'levels'.* got 'list'"),
        (MINE.replace("claim", "text"), [], "rows.jsonl, line 1, item 1: 'text' must be a nonblank string, got None"),
        (MINE.replace("question", "text"), [], "own.yaml:4: item: 'text' is not a part of an item; allowed: question"),
        (MINE.replace("must: 3", "must: high"), [], "own.yaml:5: words.must: .* got 'high'"),
        (MINE.replace("grading", "rubric"), [], "rows.jsonl, line 1: key 'task.rubric' not found; the keys are task"),
        (MINE.replace("mine", "draco", 1), [], "own.yaml: the name 'draco' is taken by a packaged format; choose"),
        (MINE.replace("mine", "rows", 1), [], "own.yaml: the name 'rows' is taken by a packaged format"),
        (MINE, ["--checklist-key", "x"], "format='own.yaml' has fixed keys; set checklist_key in that file"),
        ("name: [\n", [], "own.yaml:2: not valid YAML"),
        ("[1]\n", [], "own.yaml:1: expected a mapping, got"),
    ],
)
def test_a_wrong_format_of_ones_own_is_one_sentence(run, text, arguments, words):
    write_jsonl("rows.jsonl", TASK)
    Path("own.yaml").write_text(text)
    done = run("checklists import rows.jsonl --format own.yaml -o out.jsonl", *arguments, refused="")
    assert re.search(words, done.stderr), done.stderr


def test_rows_under_other_names(run):
    write_jsonl("mine.jsonl", {"task": "t", "out": "o", "rubric": [{"criterion": "Is it red?", "points": -2, "n": 1}]})
    keys = "--prompt-key task --target-key out --checklist-key rubric"
    names = "--item-key question=criterion --item-key weight=points --source"
    done = run(f"checklists import mine.jsonl -o rows.jsonl {keys} {names}", "by hand")
    assert "Dropped fields that items cannot hold: n (1)" in done.output
    [row] = read_jsonl("rows.jsonl")
    assert (row["prompt"], row["target"], row["checklist_source"]) == ("t", "o", "by hand")
    assert (row["checklist"][0]["question"], row["checklist"][0]["weight"]) == ("Is it red?", -2.0)


def test_the_help_names_the_command_and_the_formats(run):
    assert "import" in run("checklists", code=2).output
    assert "healthbench" in run("checklists import --help").output


# --- examples and abstentions ----------------------------------------------------------------------------------------

EXAMPLES = [
    {"target": f"{label} {n}", "question": "Is it short?", "label": label, "reason": "Look."}
    for label in ("yes", "no")
    for n in range(5)
]


def test_labelled_examples_are_shown_with_their_question(run, engine):
    fake = engine(lambda prefix, tail: 0.9)
    write_jsonl("rows.jsonl", {"prompt": "p", "target": "Hi.", "checklist": ["Is it short?", "Is it red?"]})
    write_jsonl("examples.jsonl", *EXAMPLES)
    shown = "--judge.examples examples.jsonl --judge.shots 2 --judge.example-reasons"
    run(f"score rows.jsonl -o s.jsonl --no-store {shown}")
    short, red = [tail for _, tail in fake.asked]
    assert short.count("Answer: yes") == short.count("Answer: no") == 1 and short.count("Look.") == 2
    assert "Example" not in red


def test_a_config_names_a_file_of_examples_beside_it(run, engine):
    fake = engine(lambda prefix, tail: 0.9)
    write_jsonl("rows.jsonl", {"prompt": "p", "target": "Hi.", "checklist": ["Is it short?"]})
    Path("judges").mkdir()
    write_jsonl("judges/examples.jsonl", *EXAMPLES)
    Path("judges/judge.yaml").write_text("name: mine\nscorer: {examples: examples.jsonl, shots: 3}\n")
    run("score rows.jsonl -o s.jsonl --config judges/judge.yaml --no-store")
    assert fake.asked[0][1].count("Answer: ") == 3


@pytest.mark.parametrize(("abstention", "score"), [("skip", 1.0), ("zero", 0.5), ("partial", 0.75), ("fail", 0.5)])
def test_an_abstention_counts_as_the_option_says(run, engine, abstention, score):
    def letters(shown):
        return {letter: float(label == "cannot_assess") for letter, label in shown.items()}

    engine(backend=Lettered(letters, lambda prefix, tail: 1.0))
    options = [{"label": "yes", "value": 1}, {"label": "no", "value": 0}, {"label": "cannot_assess", "na": True}]
    checklist = ["Is it short?", {"question": "Is it right?", "options": options}]
    write_jsonl("rows.jsonl", {"prompt": "p", "target": "Hi.", "checklist": checklist})
    run(f"score rows.jsonl -o s.jsonl --no-store --abstention {abstention}")
    [row] = read_jsonl("s.jsonl")
    assert [item["answer"] for item in row["checklist_score"]["items"]] == ["yes", "cannot_assess"]
    assert row["checklist_score"]["primary_score"] == pytest.approx(score)
