"""Two files of the same texts in the app: compared as `report a b` does, with labels that belong to the texts."""

import json

import pytest

from tests.ui.app.conftest import QUESTIONS, TEXTS, scored_rows, write_jsonl

LABELS = [["yes", "no"], ["yes", "yes"], ["no", "no"], ["no", "yes"], ["yes", "no"]]


@pytest.fixture
def labels(folder):
    """A second judge's file of the same texts, and labels that were exported for the first one."""
    write_jsonl(folder / "other.jsonl", scored_rows(lambda prefix, tail: 0.9))
    (folder / "labels").mkdir()
    rows = zip(scored_rows(), LABELS, strict=True)
    write_jsonl(
        folder / "labels" / "scored.jsonl",
        [{name: row[name] for name in ("id", "prompt", "target")} | {"labels": given} for row, given in rows],
    )
    return folder / "labels" / "scored.jsonl"


def report(client, **asked):
    answer = client.get("/api/report", params=asked)
    return answer.json() if answer.status_code == 200 else answer.json()["error"]


def test_two_files_are_compared_and_labels_of_one_are_labels_of_the_other(client, labels):
    found = report(client, file="scored.jsonl", other="other.jsonl")
    assert [file["name"] for file in found["files"]] == ["scored.jsonl", "other.jsonl"]
    assert set(found["trust"]) == {"scored.jsonl", "other.jsonl"}
    [compared] = found["comparisons"]
    assert compared["comparison"]["units"] == 10
    assert "on 10 labelled items that both answered, only scored.jsonl is right on 5" in compared["people"]
    answer = client.get("/api/report", params={"file": "other.jsonl"})
    assert set(answer.json()["trust"]) == {"other.jsonl"}, "the labels carry over"
    assert "--labels%3Dlabels/scored.jsonl" in answer.headers["x-command"]


def test_one_text_is_one_group_and_has_no_test(client, labels, folder):
    for path in (labels, folder / "scored.jsonl", folder / "other.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        write_jsonl(path, rows[1:2])
    [compared] = report(client, file="scored.jsonl", other="other.jsonl")["comparisons"]
    assert (
        compared["people"].startswith("Neither") and "(all are in one group; a test needs two)" in compared["people"]
    )


def test_labels_are_not_those_of_another_text_with_the_same_id(client, labels, folder):
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    write_jsonl(labels, [{**row, "target": f"not {row['target']}"} for row in rows])
    assert report(client, file="other.jsonl")["trust"] == {}


def test_a_column_of_one_file_is_used_for_both(client, labels, folder):
    rows = [{**row, "human": given} for row, given in zip(scored_rows(), LABELS, strict=True)]
    write_jsonl(folder / "labelled.jsonl", rows)
    answer = client.get("/api/report", params={"file": "other.jsonl", "other": "labelled.jsonl", "labels": "human"})
    assert set(answer.json()["trust"]) == {"other.jsonl", "labelled.jsonl"}
    assert answer.headers["x-command"].endswith("--labels%3Dlabelled.jsonl%20--label-key%3Dhuman")
    assert (
        "agrees" in answer.json()["comparisons"][0]["people"] or "Neither" in answer.json()["comparisons"][0]["people"]
    )


def test_a_change_of_either_file_is_noticed_without_a_report(client, labels, folder):
    asked = {"file": "scored.jsonl", "other": "other.jsonl"}
    stamp = client.get("/api/report", params=asked).headers["x-stamp"]
    assert client.get("/api/report", params={**asked, "known": stamp, "peek": 1}).status_code == 204
    write_jsonl(folder / "other.jsonl", scored_rows(lambda prefix, tail: 0.8))
    assert set(client.get("/api/report", params={**asked, "known": stamp, "peek": 1}).json()) == {"stamp"}


def test_the_rows_are_those_of_the_head_that_the_page_has(client, folder):
    """Of a log that grows between the two requests."""
    path, text = folder / "scored.jsonl", (folder / "scored.jsonl").read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:3]))
    head = client.get("/api/report", params={"file": "scored.jsonl"})
    path.write_text(text)
    asked = {"file": "scored.jsonl", "rows": head.headers["x-stamp"]}
    assert client.get("/api/report", params=asked).json()["tables"][0]["rows"]["counts"]["length"] == 3
    now = client.get("/api/report", params={"file": "scored.jsonl"})
    assert now.json()["files"][0]["shown"] == 5
    gone = client.get("/api/report", params=asked)
    assert gone.status_code == 400 and "scored.jsonl has changed while it was read" in gone.json()["error"]
    rows = client.get("/api/report", params={**asked, "rows": now.headers["x-stamp"]}).json()
    assert rows["tables"][0]["rows"]["counts"]["length"] == 5


def test_two_files_of_one_name_are_refused(client, folder):
    (folder / "again").mkdir()
    write_jsonl(folder / "again" / "scored.jsonl", scored_rows())
    assert "both files are named scored.jsonl" in report(client, file="scored.jsonl", other="again/scored.jsonl")


@pytest.mark.parametrize(
    ("row", "texts"),
    [
        ({"prompt": "Why?", "candidates": TEXTS[:3], "checklist": QUESTIONS}, TEXTS[:3]),
        ({"prompt": "Why?", "chosen": TEXTS[0], "rejected": TEXTS[1], "checklist": QUESTIONS}, TEXTS[:2]),
    ],
)
def test_the_texts_of_a_row_are_compared(client, folder, row, texts):
    write_jsonl(folder / "several.jsonl", [{"prompt": "Who?", "candidates": ["a"]}, row])
    found = client.get("/api/candidates", params={"file": "several.jsonl", "row": "2"}).json()
    assert found == {"input": "Why?", "texts": texts, "checklist": QUESTIONS}
    for number, sentence in (("1", "the row has no two texts"), ("3", "has no row 3"), ("x", "whole number")):
        refused = client.get("/api/candidates", params={"file": "several.jsonl", "row": number})
        assert refused.status_code == 400 and sentence in refused.json()["error"]
