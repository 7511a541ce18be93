"""Checklists: what is accepted, what is refused and in which words, and what an id depends on."""

import json

import pytest

from checklist_rewards import Checklist, ChecklistItem, Option
from checklist_rewards.errors import ChecklistError


def test_a_list_of_strings_a_list_of_dicts_and_json_give_the_same_checklist():
    strings = Checklist.parse(["Is it short?", "Is it polite?"])
    dicts = Checklist.parse([{"question": "Is it short?"}, {"question": "Is it polite?", "weight": 1}])
    text = Checklist.parse('["Is it short?", "Is it polite?"]')
    assert strings == dicts == text
    assert strings.id == dicts.id == text.id
    assert Checklist.parse(json.loads(strings.model_dump_json())) == strings


def test_none_stands_for_absent_as_arrow_gives_it_back():
    row = {"id": None, "question": "Is it short?", "weight": None, "category": None, "required": None, "options": None}
    item = Checklist.parse([row | {"check": None}]).items[0]
    assert (item.weight, item.required, item.options) == (1.0, False, None)


def test_an_items_id_is_what_determines_its_answer():
    item = ChecklistItem(question="Is it short?")
    assert item.id == ChecklistItem(question="Is it short?", weight=-3, category="style", required=True).id
    assert item.id != ChecklistItem(question="Is it short ?").id
    options = (Option(label="a", value=0), Option(label="b", value=1))
    other_values = (Option(label="a", value=0.5), Option(label="b", value=1))
    assert item.id != ChecklistItem(question="Is it short?", options=options).id
    assert (
        ChecklistItem(question="Is it short?", options=options).id
        == ChecklistItem(question="Is it short?", options=other_values).id
    )


def test_a_checklists_id_changes_with_any_weight_and_not_with_its_source():
    assert Checklist.parse(["a?"]).id != Checklist.parse([{"question": "a?", "weight": 2}]).id
    assert Checklist.parse({"items": ["a?"], "source": "tick"}).id == Checklist.parse(["a?"]).id


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], ["row 3", "empty"]),
        ([{"question": "a?", "weight": float("nan")}], ["row 3, item 1", "weight", "finite", "nan"]),
        ([{"question": "a?", "weight": float("-inf")}], ["row 3, item 1", "weight", "-inf"]),
        (["a?", {"question": "b?", "weight": "heavy"}], ["row 3, item 2", "weight", "'heavy'"]),
        ([{"question": "a?", "weight": True}], ["row 3, item 1", "weight", "True"]),
        ([{"question": "a?", "wieght": 2}], ["row 3, item 1", "wieght", "allowed", "weight"]),
        ([{"weight": 2}], ["row 3, item 1", "question"]),
        ([" "], ["row 3, item 1", "blank"]),
        ([7], ["row 3, item 1", "7"]),
        (7, ["row 3", "list of questions", "7"]),
        ("Is it short?", ["row 3", "JSON", "Is it short?"]),
        ({"question": "a?"}, ["row 3", "list of questions"]),
        ([{"question": "a?", "weight": 0}], ["row 3", "weight", "0"]),
        ([{"question": "a?", "options": [{"label": "x", "value": 2}]}], ["row 3, item 1", "options", "2"]),
        ([{"question": "a?", "options": [{"label": "x", "value": 1}]}], ["row 3, item 1", "at least two"]),
        (
            [{"question": "a?", "options": [{"label": "x", "value": 1}, {"label": "x", "value": 0}]}],
            ["row 3, item 1", "share a label"],
        ),
        ([{"question": "a?", "options": [{"label": "x"}, {"label": "y", "value": 0}]}], ["row 3, item 1", "na=true"]),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence_with_place_and_value(value, words):
    with pytest.raises(ChecklistError) as refused:
        Checklist.parse(value, "row 3")
    message = str(refused.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_zero_weight_item_may_stand_beside_one_that_counts():
    assert len(Checklist.parse([{"question": "a?", "weight": 0}, "b?"])) == 2
