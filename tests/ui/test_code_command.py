"""`report`: the command, and that its figures equal those of `score`, `agree`, `calibrate` and `inspect`."""

import json
from pathlib import Path

import pytest

from tests.jsonl import read_jsonl, write_jsonl
from tests.ui.files import page_data, scored_rows, write


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    one = write(tmp_path / "one.jsonl", scored_rows(30))
    return one, write(tmp_path / "two.jsonl", scored_rows(30, "two", seed=5))


def page() -> dict:
    return page_data(Path("report.html"))


def test_one_file_and_the_default_output(run, files):
    done = run("report one.jsonl --max-rows 10")
    assert "one.jsonl: 30 rows, a sample of 10 on the page" in done.stderr and "written: report.html" in done.stderr
    assert page()["title"] == "one.jsonl"


def test_the_figures_of_agree_calibrate_and_inspect_are_on_the_page(run, files):
    few = ["--bootstrap", "30"]
    run("agree one.jsonl two.jsonl --label-key labels --json labels.json", *few)
    run("agree one.jsonl two.jsonl --json judges.json", *few)
    run("calibrate one.jsonl --label-key labels -o map.json --json calibrated.json", *few)
    run("inspect one.jsonl --json items.json --no-embed")
    documents = ["labels.json", "judges.json", "calibrated.json", "items.json"]
    run("report one.jsonl two.jsonl", *documents, "--label-key", "labels", *few)
    data = page()
    labels, judges, calibrated, _ = (json.loads(Path(name).read_text()) for name in documents)
    assert [data["trust"][name]["comparison"] for name in ("one.jsonl", "two.jsonl")] == labels["comparisons"]
    assert [one["comparison"] for one in data["comparisons"]] == judges["comparisons"]
    shown = data["trust"]["one.jsonl"]["sections"]["calibration"]
    before = [list(part["before"].values()) for part in calibrated["kinds"].values()]
    assert [[figure for _, figure in section["rows"]] for section in shown] == before
    assert [document["kind"] for document in data["documents"]] == ["agree", "agree", "calibrate", "inspect"]
    analysis, inspected = data["files"][0]["analysis"], data["documents"][3]
    assert analysis["sections"][0]["rows"] == inspected["sections"][0]["rows"]
    cells, answers = data["files"][0]["table"]["cells"], data["files"][0]["table"]["answers"]
    given = [row["labels"] for row in read_jsonl("one.jsonl")]
    assert [answers[place] for place in cells["label"]] == [label for row in given for label in row]


def test_labels_in_another_file_and_other_columns(run, files):
    rows = read_jsonl("one.jsonl")
    write_jsonl("people.jsonl", *({"key": row["id"], "truth": row["labels"]} for row in rows[:5]))
    kept = [{"checklist": row["checklist"], "checklist_score": row["checklist_score"]} for row in rows]
    names = [{"key": row["id"], "question": row["prompt"], "reply": row["target"]} for row in rows]
    write_jsonl("renamed.jsonl", *(name | rest for name, rest in zip(names, kept, strict=True)))
    keys = "--label-key truth --id-key key --input-key question --target-key reply"
    run(f"report renamed.jsonl --labels people.jsonl {keys} --bootstrap 0")
    data = page()
    table = data["files"][0]["table"]
    assert data["texts"][table["rows"]["target"][0]] == rows[0]["target"]
    assert data["texts"][table["rows"]["prompt"][0]] == rows[0]["prompt"]
    [rates] = data["trust"]["renamed.jsonl"]["sections"]["rates"]
    assert rates["heads"][2] == ["labels", "n"] and rates["rows"][0][2] == 25
    assert sum(label >= 0 for label in table["cells"]["label"]) == 25
    assert data["trust"]["renamed.jsonl"]["comparison"]["units"] == 25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.jsonl", "one.jsonl"], "each file may be given only once"),
        (["missing.jsonl"], "missing.jsonl: cannot be read"),
        (["one.jsonl", "--target-key", "text"], "column 'text' not found"),
        (["one.jsonl", "--label-key", "truth"], "column 'truth' not found"),
    ],
)
def test_bad_arguments_are_one_sentence(run, files, arguments, message):
    done = run("report", *arguments, refused=message)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not Path("report.html").exists()
