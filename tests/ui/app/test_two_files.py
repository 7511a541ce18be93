"""Two files of the same texts in the app: compared as `report a b` does, with labels that belong to the texts."""

import pytest

from tests.jsonl import read_jsonl
from tests.ui.app.conftest import QUESTIONS, TEXTS, error_of, scored_rows
from tests.ui.files import write

LABELS = [["yes", "no"], ["yes", "yes"], ["no", "no"], ["no", "yes"], ["yes", "no"]]


@pytest.fixture
def labels(folder):
    """A second judge's file of the same texts, and labels that were exported for the first one."""
    write(folder / "other.jsonl", scored_rows(lambda prefix, tail: 0.9))
    rows = zip(scored_rows(), LABELS, strict=True)
    write(
        folder / "labels" / "scored.jsonl",
        [{name: row[name] for name in ("id", "prompt", "target")} | {"labels": given} for row, given in rows],
    )
    return folder / "labels" / "scored.jsonl"


def report(client, **asked):
    return client.get("/api/report", params=asked)


BOTH = {"file": "scored.jsonl", "other": "other.jsonl"}


def test_two_files_are_compared_and_labels_of_one_are_labels_of_the_other(client, labels, folder):
    found = report(client, **BOTH).json()
    assert [file["name"] for file in found["files"]] == ["scored.jsonl", "other.jsonl"]
    assert set(found["trust"]) == {"scored.jsonl", "other.jsonl"}
    [compared] = found["comparisons"]
    assert compared["comparison"]["units"] == 10
    neither = "Neither is shown to agree with people more often: on 10 labelled items that both answered"
    assert compared["people"].startswith(f"{neither}, only scored.jsonl is right on 5")
    answer = report(client, file="other.jsonl")
    assert set(answer.json()["trust"]) == {"other.jsonl"}, "the labels carry over"
    assert "--labels%3Dlabels/scored.jsonl" in answer.headers["x-command"]
    given = read_jsonl(labels)
    write(labels, [{**row, "target": f"not {row['target']}"} for row in given])
    assert report(client, file="other.jsonl").json()["trust"] == {}, "they are of other texts with the same ids"
    stamp = report(client, **BOTH).headers["x-stamp"]
    assert report(client, **BOTH, known=stamp).status_code == 204
    for path, rows in ((labels, given), *((folder / name, read_jsonl(folder / name)) for name in BOTH.values())):
        write(path, rows[1:2])
    assert set(report(client, **BOTH, known=stamp).json()) == {"stamp"}, "a change is noticed"
    [compared] = report(client, **BOTH).json()["comparisons"]
    people = compared["people"]  # one text is one group
    assert people.startswith("Neither") and "(all are in one group; a test needs two)" in people


def test_a_column_of_one_file_is_used_for_both(client, labels, folder):
    rows = [{**row, "human": given} for row, given in zip(scored_rows(), LABELS, strict=True)]
    write(folder / "labelled.jsonl", rows)
    answer = report(client, file="other.jsonl", other="labelled.jsonl", labels="human")
    assert set(answer.json()["trust"]) == {"other.jsonl", "labelled.jsonl"}
    assert answer.headers["x-command"].endswith("--labels%3Dlabelled.jsonl%20--label-key%3Dhuman")
    assert answer.json()["comparisons"][0]["people"].startswith("Neither is shown")


def test_the_rows_are_those_of_the_head_that_the_page_has(client, folder):
    """Of a log that grows between the two requests."""
    path, text = folder / "scored.jsonl", (folder / "scored.jsonl").read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:3]))

    def rows_of(head):
        return report(client, file="scored.jsonl", rows=head.headers["x-stamp"])

    def length(answer):
        return answer.json()["tables"][0]["rows"]["counts"]["length"]

    head = report(client, file="scored.jsonl")
    path.write_text(text)
    assert length(rows_of(head)) == 3
    now = report(client, file="scored.jsonl")
    assert now.json()["files"][0]["shown"] == 5
    assert "scored.jsonl has changed while it was read" in error_of(rows_of(head))
    assert length(rows_of(now)) == 5


def test_two_files_of_one_name_are_told_apart_by_their_folders(client, folder, labels):
    names = [f"{folder.name}/scored.jsonl", "again/scored.jsonl"]
    rows = [{**row, "human": given} for row, given in zip(scored_rows(), LABELS, strict=True)]
    write(folder / "scored.jsonl", rows)
    write(folder / "again" / "scored.jsonl", read_jsonl(folder / "other.jsonl"))
    found = report(client, file="scored.jsonl", other="again/scored.jsonl", labels="human").json()
    assert [file["name"] for file in found["files"]] == list(found["trust"]) == names
    both = report(client, file="scored.jsonl", other="other.jsonl", labels="human").json()
    for name, alone in zip(names, ("scored.jsonl", "other.jsonl"), strict=True):
        expected = both["trust"][alone]["comparison"]
        assert found["trust"][name]["comparison"] == {**expected, "one": name}
    [compared], [same] = found["comparisons"], both["comparisons"]
    assert compared["people"] == same["people"].replace("scored", names[0][:-6]).replace("other.jsonl", names[1])


def test_the_texts_of_a_row_are_compared(client, folder):
    row = {"prompt": "Why?", "checklist": QUESTIONS}
    pair = {**row, "chosen": TEXTS[0], "rejected": TEXTS[1]}
    write(folder / "several.jsonl", [{**row, "candidates": ["a"]}, {**row, "candidates": TEXTS[:3]}, pair])
    for number, texts in (("2", TEXTS[:3]), ("3", TEXTS[:2])):
        found = client.get("/api/candidates", params={"file": "several.jsonl", "row": number}).json()
        assert found == {"input": "Why?", "texts": texts, "checklist": QUESTIONS}
    for number, sentence in (("1", "the row has no two texts"), ("4", "has no row 4"), ("x", "whole number")):
        refused = client.get("/api/candidates", params={"file": "several.jsonl", "row": number})
        assert sentence in error_of(refused)
