"""One parser of labels: every form of a label, in every command, by the whole column."""

import csv
import json
from itertools import permutations, product
from pathlib import Path

import pytest

from checklist_rewards.checklists import Checklist, ChecklistItem, Option
from checklist_rewards.cli.improving import _labelled_rows
from checklist_rewards.cli.options import Keys
from checklist_rewards.distill.labels import read_labels
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.labels import Labels
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.judges.labels import LabelCell, label_of, read_column
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.ui.report import report_data
from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_images import PILLOWS, RED, asks_by

PLAIN = ChecklistItem(question="Is it red?")
GRADED = ChecklistItem(question="How clear?", options=(Option(label="poor", value=0), Option(label="fine", value=1)))
YES = [True, 1, 1.0, "yes", "Yes", "true", "TRUE"]
NO = [False, 0, 0.0, "no", "No", "false"]
FORMS = [(value, "yes") for value in YES] + [(value, "no") for value in NO]


def column(values, items=(), **options):
    return read_column([LabelCell(f"row {n}", value, items) for n, value in enumerate(values, 1)], "l", **options)


@pytest.mark.parametrize(("value", "name"), FORMS, ids=repr)
def test_every_form_of_yes_and_no_says_the_same_everywhere(tmp_path, value, name):
    assert label_of(PLAIN, value) == name
    text = float(name == "yes")
    assert column([value]) == column([json.dumps(value)]) == [text]  # of a whole text, and in a CSV cell
    both = [value, "fine"]
    mapping = {PLAIN.id: value, GRADED.id: "fine"}
    for cell in (both, json.dumps(both), mapping, json.dumps(mapping), str(both)):
        assert column([cell], (PLAIN, GRADED)) == [[name, "fine"]]

    rows = {"target": "a", "checklist": ["Is it red?", "Is it big?"], "labels": [value, None]}
    for labels in ([value, None], json.dumps([value, None]), {PLAIN.id: value}):
        write_jsonl(tmp_path / "l.jsonl", rows | {"labels": labels})
        assert [(pair.question, pair.label) for pair in read_labels(tmp_path / "l.jsonl")] == [("Is it red?", text)]
        [shot] = FewShot.load(tmp_path / "l.jsonl").examples
        assert FewShot([shot]).chosen(PLAIN, "another")[0][0] == name
    write_jsonl(tmp_path / "q.jsonl", {"target": "a", "question": "Is it red?", "label": value})
    assert [pair.label for pair in read_labels(tmp_path / "q.jsonl")] == [text]

    path = scored_file(tmp_path / "s.jsonl", {"checklist": ["Is it red?", "Is it big?"], "said": [0.9, 0.1]} | rows)
    labels = Labels()
    [text_with_labels] = labels.of(labels.read(path))[0]
    answer, none = text_with_labels.labels
    assert (answer.label, none) == (name, None)


@pytest.mark.parametrize("images", [{"image": "red.png"}, {"target": asks_by("url", RED.url, "A flag.")}])
def test_texts_with_images_are_not_read_as_texts_alone(tmp_path, images):
    PILLOWS["red"].save(tmp_path / "red.png")
    row = {"prompt": "What?", "target": "a", "question": "Is it red?", "label": 1} | images
    write_jsonl(tmp_path / "l.jsonl", row)
    for read in (read_labels, FewShot.load):
        with pytest.raises(SampleError, match="l.jsonl, line 1: the row has an image, but labelled texts are read"):
            read(tmp_path / "l.jsonl")


def written(path, *rows):
    with write_rows(path) as out:
        for row in rows:
            out.write(row)
    return path


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(("value", "name"), FORMS, ids=repr)
def test_a_column_says_the_same_to_all_of_its_readers_in_every_format(tmp_path, value, name, ending):
    number = float(name == "yes")
    row = {"id": "1", "prompt": "Go.", "target": "a", "question": "Is it red?", "label": value}
    flat = written(tmp_path / f"q.{ending}", row)
    assert [pair.label for pair in read_labels(flat)] == [number]
    assert FewShot.load(flat).chosen(PLAIN, "another")[0][0] == name
    rows, _ = _labelled_rows(flat, "label", None, False, Keys(), None, Checklist.parse(["Is it red?"]))
    assert [one.labels for one in rows] == [number]

    for cell in ([value, None], {PLAIN.id: value}):
        row = {"target": "a", "checklist": ["Is it red?", "Is it big?"], "labels": cell}
        listed = written(tmp_path / f"l.{ending}", row)
        assert [(pair.question, pair.label) for pair in read_labels(listed)] == [("Is it red?", number)]
        assert FewShot.load(listed).chosen(PLAIN, "another")[0][0] == name
        path = scored_file(tmp_path / "s.jsonl", row | {"said": [0.9, 0.1]})
        with write_rows(tmp_path / f"s.{ending}") as out:
            for each in read_rows(path):
                out.write(each.data)
        labels = Labels()
        [text] = labels.of(labels.read(tmp_path / f"s.{ending}"))[0]
        answer, none = text.labels
        assert (answer.label, none) == (name, None)


SCALES = {
    "yes and no": [True, "no", "yes", 1],
    "fractions": [0.5, 0.25, 1, 0],
    "stars": [1, 5, 3, 4],
    "ten points": [7.5, 0.5, 9.25, 3],
    "standardised": [-1.5, 0.5, 2.25, 0.0],
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("empty", [None, ""])
def test_a_column_on_one_scale_is_read_in_any_order(scale, empty):
    for order in permutations(SCALES[scale]):
        found = column([empty, *order])
        assert found[0] is None and all(isinstance(number, float) for number in found[1:])


MIXED = [(low, high) for low, high in product([True, "yes", "no", False, 0.5, 0.01], [2, 3, 5, 4.0, 10])]


@pytest.mark.parametrize(("low", "high"), MIXED, ids=repr)
def test_a_mixed_column_is_refused_with_row_and_value(tmp_path, low, high):
    for order in ([low, high], [high, low], [1, None, low, high], [high, 1, low]):
        place = order.index(high) + 1
        with pytest.raises(SampleError, match=rf"row {place}: the label {high:g} in 'l' is not on the scale of row"):
            column(order)
    data = [{"target": str(n), "question": "Is it red?", "label": value} for n, value in enumerate((low, high))]
    write_jsonl(tmp_path / "q.jsonl", *data)
    with pytest.raises(SampleError, match=f"line 2: the label {high:g} in 'label' is not on the scale of"):
        read_labels(tmp_path / "q.jsonl")
    with pytest.raises(SampleError, match=f"line 2: the label {high:g} in 'label' is not on the scale of"):
        _labelled_rows(tmp_path / "q.jsonl", "label", None, False, Keys(), None, Checklist.parse(["Is it red?"]))
    names = [
        {"id": str(n), "human": v, "checklist": ["a?", "b?"], "said": [0.9, 0.2]} for n, v in enumerate((low, high))
    ]
    path = scored_file(tmp_path / "s.jsonl", *names)
    with pytest.raises(SampleError, match=f"line 2: the label {high:g} in 'human' is not on the scale of"):
        report_data([path], labels=Labels(key="human"), intervals=Bootstrap(0))


@pytest.mark.parametrize("other", [3, 0.5, 1, True, "yes", "fine"])
def test_labels_of_items_and_of_texts_are_not_mixed(other):
    for order in ([["yes", "fine"], other], [other, ["yes", "fine"]]):
        with pytest.raises(SampleError, match=rf"row {order.index(other) + 1}: "):
            column(order, (PLAIN, GRADED))


def test_half_points_on_a_scale_that_the_user_named_are_not_mixed():
    assert column([0.5, 4], any_scale=True) == [0.5, 4.0]
    with pytest.raises(SampleError, match="row 1: the label 'yes' in 'l' is not a number on the scale"):
        column(["yes", 1], any_scale=True)


def test_fractions_label_items_only_where_labels_may_be_soft():
    assert column([[0.7, "fine"]], (PLAIN, GRADED), soft=True) == [[0.7, "fine"]]
    with pytest.raises(SampleError, match=r"row 1, item 1 .*: the label 0.7 is not an answer of this item"):
        column([[0.7, "fine"]], (PLAIN, GRADED))
    with pytest.raises(SampleError, match=r"row 2, item 1 .*: the label 4 is not an answer of this item"):
        column([[1, "fine"], [4, "fine"]], (PLAIN, GRADED), soft=True)


STARS = [1, 2, 3, 4, 5, 1, 3, 5]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_the_report_ranks_by_all_stars_and_drops_none(tmp_path, ending):
    said = [0.1, 0.2, 0.5, 0.7, 0.9, 0.2, 0.4, 0.8]
    rows = [
        {"id": str(n), "stars": star, "checklist": ["a?"], "said": [p]}
        for n, (star, p) in enumerate(zip(STARS, said, strict=True))
    ]
    path = scored_file(tmp_path / "s.jsonl", *rows)
    if ending == "csv":
        lines = read_jsonl(path)
        path = Path(tmp_path / "s.csv")
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, lines[0].keys())
            writer.writeheader()
            writer.writerows(
                {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()} for row in lines
            )
    found = report_data([path], labels=Labels(key="stars"), intervals=Bootstrap(0))["trust"][path.name]
    targets = found["comparison"]["targets"]
    assert found["comparison"]["ranked"] and targets["units"] == len(STARS)
    assert set(targets["figures"]) == {"pearson", "spearman", "kendall"}
    assert targets["figures"]["spearman"]["value"] > 0.9


def test_there_is_no_rate_of_labels_on_another_scale(tmp_path):
    rows = [
        {"id": str(n), "stars": 1 + n % 5 if n < 40 else None, "checklist": ["a?"], "said": [0.1 + 0.02 * (n % 40)]}
        for n in range(60)
    ]
    path = scored_file(tmp_path / "s.jsonl", *rows)
    found = report_data([path], labels=Labels(key="stars"), intervals=Bootstrap(0))["trust"]["s.jsonl"]
    assert "targets" not in [rate["name"] for rate in found["rates"]]
    assert found["comparison"]["targets"]["units"] == 40
