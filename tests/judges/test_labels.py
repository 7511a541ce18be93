"""One parser of labels: every form of a label, in every command, by the whole column."""

import json
from itertools import permutations, product

import pytest

from checklist_rewards.checklists import Checklist, ChecklistItem
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
from tests.jsonl import write_jsonl
from tests.judges.fakes import options
from tests.test_images import PILLOWS, RED, asks_by

PLAIN = ChecklistItem(question="Is it red?")
GRADED = ChecklistItem(question="How clear?", options=options(poor=0, fine=1))
RED_AND_BIG = ["Is it red?", "Is it big?"]
YES = [True, 1, 1.0, "yes", "Yes", "true", "TRUE"]
NO = [False, 0, 0.0, "no", "No", "false"]
FORMS = [(value, "yes") for value in YES] + [(value, "no") for value in NO]


def column(values, items=(), **settings):
    return read_column([LabelCell(f"row {n}", value, items) for n, value in enumerate(values, 1)], "l", **settings)


@pytest.mark.parametrize(("value", "name"), FORMS, ids=repr)
def test_every_form_of_yes_and_no_says_the_same_in_every_cell(value, name):
    assert label_of(PLAIN, value) == name
    assert column([value]) == column([json.dumps(value)]) == [float(name == "yes")]  # of a whole text, in a CSV cell
    assert column([value, None, "1"], [PLAIN]) == [[name], None, ["yes"]]  # of its only question
    both, mapping = [value, "fine"], {PLAIN.id: value, GRADED.id: "fine"}
    for cell in (both, json.dumps(both), mapping, json.dumps(mapping), str(both)):
        assert column([cell], (PLAIN, GRADED)) == [[name, "fine"]]


def written(path, *rows):
    with write_rows(path) as out:
        for row in rows:
            out.write(row)
    return path


def of_command_line(path):
    rows, _ = _labelled_rows(path, "label", None, False, Keys(), None, Checklist.parse(["Is it red?"]))
    return [row.labels for row in rows]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(("value", "name"), FORMS, ids=repr)
def test_a_column_says_the_same_to_all_of_its_readers_in_every_format(tmp_path, value, name, ending):
    number = float(name == "yes")
    row = {"id": "1", "prompt": "Go.", "target": "a", "question": "Is it red?", "label": value}
    flat = written(tmp_path / f"q.{ending}", row)
    assert [pair.label for pair in read_labels(flat)] == of_command_line(flat) == [number]
    assert FewShot.load(flat).chosen(PLAIN, "another")[0][0] == name

    for cell in ([value, None], {PLAIN.id: value}, json.dumps([value, None])):
        row = {"target": "a", "checklist": RED_AND_BIG, "labels": cell}
        listed = written(tmp_path / f"l.{ending}", row)
        assert [(pair.question, pair.label) for pair in read_labels(listed)] == [("Is it red?", number)]
        assert FewShot.load(listed).chosen(PLAIN, "another")[0][0] == name
        scored = scored_file(tmp_path / "s.jsonl", row | {"said": [0.9, 0.1]})
        labels = Labels()
        copy = written(tmp_path / f"s_.{ending}", *(each.data for each in read_rows(scored)))
        [text] = labels.of(labels.read(copy))[0]
        answer, none = text.labels
        assert (answer.label, none) == (name, None)


def of_annotators(*answers):
    """Columns of Argilla: argilla/src/argilla/records/_io/_generic.py of argilla-io/argilla."""
    values, states = zip(*answers, strict=True)
    users = [f"u{n}" for n in range(len(answers))]
    return {"label": list(values), "label.users": users, "label.status": list(states)}


TOOLS = {  # prettify_result in label_studio_converter/utils.py of HumanSignal/label-studio-converter
    "Label Studio, rating": ({"label": [{"rating": 1}]}, 1.0),
    "Label Studio, number": ({"label": [{"number": 0.5}]}, 0.5),
    "Argilla": (of_annotators((1, "submitted")), 1.0),
    "Argilla, others discarded": (of_annotators((0, "discarded"), (1, "submitted"), (0, "draft")), 1.0),
}


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("name", TOOLS)
def test_a_label_that_a_tool_has_put_into_a_list_is_of_the_whole_text(tmp_path, name, ending):
    columns, number = TOOLS[name]
    row = {"id": "1", "prompt": "Go.", "target": "a", "question": "Is it red?"}
    flat = written(tmp_path / f"q.{ending}", row | columns, row | columns | {"id": "2", "target": "b"})
    assert [pair.label for pair in read_labels(flat)] == of_command_line(flat) == [number, number]
    labels = Labels(key="label", path=flat)
    scored = scored_file(
        tmp_path / "s.jsonl", {"id": "1", "target": "a", "checklist": RED_AND_BIG, "said": [0.9, 0.1]}
    )
    [text] = labels.of(labels.read(scored))[0]
    assert text.labels == number


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_the_answers_of_two_annotators_are_not_those_to_two_items(tmp_path, ending):
    row = {"id": "1", "target": "a", "question": "Is it red?"} | of_annotators((1, "submitted"), (0, "submitted"))
    flat = written(tmp_path / f"q.{ending}", row)
    scored = scored_file(
        tmp_path / "s.jsonl", {"id": "1", "target": "a", "checklist": RED_AND_BIG, "said": [0.9, 0.1]}
    )
    labels = Labels(key="label", path=flat)
    for read in (lambda: labels.of(labels.read(scored)), lambda: read_labels(flat), lambda: of_command_line(flat)):
        with pytest.raises(SampleError, match="'label' has answers of 2 annotators; write one label per row"):
            read()


@pytest.mark.parametrize("images", [{"image": "red.png"}, {"target": asks_by("url", RED.url, "A flag.")}])
def test_texts_with_images_are_not_read_as_texts_alone(tmp_path, images):
    PILLOWS["red"].save(tmp_path / "red.png")
    row = {"prompt": "What?", "target": "a", "question": "Is it red?", "label": 1} | images
    write_jsonl(tmp_path / "l.jsonl", row)
    for read in (read_labels, FewShot.load):
        with pytest.raises(SampleError, match="l.jsonl, line 1: the row has an image, but labelled texts are read"):
            read(tmp_path / "l.jsonl")


SCALES = [[True, "no", "yes", 1], [0.5, 0.25, 1, 0], [1, 5, 3, 4], [7.5, 0.5, 9.25, 3], [-1.5, 0.5, 2.25, 0.0]]


@pytest.mark.parametrize("scale", SCALES, ids=["yes and no", "fractions", "stars", "ten points", "standardised"])
def test_a_column_on_one_scale_is_read_in_any_order(scale):
    for order in permutations(scale):
        found = column([None, "", *order])
        assert found[:2] == [None, None] and all(isinstance(number, float) for number in found[2:])


MIXED = list(product([True, "no", 0.5], [2, 10.0]))


@pytest.mark.parametrize(("low", "high"), MIXED, ids=repr)
def test_a_mixed_column_is_refused_with_row_and_value(tmp_path, low, high):
    for order in ([low, high], [high, low], [1, None, low, high], [high, 1, low]):
        place = order.index(high) + 1
        with pytest.raises(SampleError, match=rf"row {place}: the label {high:g} in 'l' is not on the scale of row"):
            column(order)
    rows = [{"id": str(n), "target": str(n), "label": value} for n, value in enumerate((low, high))]
    flat = write_jsonl(tmp_path / "q.jsonl", *(row | {"question": "Is it red?"} for row in rows))
    scored = scored_file(tmp_path / "s.jsonl", *(row | {"checklist": RED_AND_BIG, "said": [0.9, 0.2]} for row in rows))
    for read in (
        lambda: read_labels(flat),
        lambda: of_command_line(flat),
        lambda: report_data([scored], labels=Labels(key="label"), intervals=Bootstrap(0)),
    ):
        with pytest.raises(SampleError, match=f"line 2: the label {high:g} in 'label' is not on the scale of"):
            read()


@pytest.mark.parametrize("other", [0.5, True, "fine"])
def test_labels_of_items_and_of_texts_are_not_mixed(other):
    for order in ([["yes", "fine"], other], [other, ["yes", "fine"]]):
        with pytest.raises(SampleError, match=rf"row {order.index(other) + 1}: "):
            column(order, (PLAIN, GRADED))


def test_numbers_that_may_be_on_a_scale_of_the_whole_text_are_so():
    for number, item in ((1, GRADED), (0, PLAIN.model_copy(update={"weight": -1.0})), (0.5, PLAIN), (4, PLAIN)):
        assert column([number, 1], [item]) == [number, 1.0]
    assert column([0, 1], [PLAIN], any_scale=True) == [0.0, 1.0]


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


def test_the_report_ranks_by_all_stars_and_has_no_rate_of_them(tmp_path):
    stars = [1 + n % 5 if n < 40 else None for n in range(60)]
    said = [0.1 + 0.15 * (n % 5) + n / 1000 for n in range(60)]
    rows = [
        {"id": str(n), "stars": star, "checklist": ["a?"], "said": [p]}
        for n, (star, p) in enumerate(zip(stars, said, strict=True))
    ]
    path = scored_file(tmp_path / "s.jsonl", *rows)
    found = report_data([path], labels=Labels(key="stars"), intervals=Bootstrap(0))["trust"][path.name]
    comparison = found["comparison"]
    assert comparison["ranked"] and comparison["targets"]["units"] == 40
    assert set(comparison["targets"]["figures"]) == {"pearson", "spearman", "kendall"}
    assert comparison["targets"]["figures"]["spearman"]["value"] > 0.9
    assert found["sections"]["rates"] == []
    assert "no item has both a label and probabilities" in found["sections"]["calibration"]
