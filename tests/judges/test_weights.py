"""Weights from a file, applied to checklists."""

import pytest

from checklist_rewards import Checklist
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.judges.weights import Weights

CHECKLIST = Checklist.parse(
    [{"question": "Is it red?", "weight": 3}, {"question": "Is it short?", "category": "form"}]
)
MIXED = Checklist.parse(
    [
        {"question": "Is it safe?", "weight": 4, "category": "safety"},
        {"question": "Is it rude?", "weight": -2, "category": "safety"},
        {"question": "Is it short?", "category": "form"},
    ]
)


def test_weights_by_id_question_or_category():
    item = CHECKLIST.items[0]
    weights = Weights({item.id: 5, "Is it red?": 1, "form": 0.5, "tone": 2})
    assert [each.weight for each in weights.of(CHECKLIST, "here").items] == [5, 0.5]
    assert weights.unused == {"Is it red?", "tone"}
    with pytest.raises(SampleError, match="the weight of 'form' is 'high'; it must be a number"):
        Weights({"form": "high"})
    with pytest.raises(ChecklistError, match="every weight is 0"):
        Weights({"form": 0, item.id: 0}).of(CHECKLIST, "here")


def test_the_weight_of_a_category_keeps_the_signs_and_ratios_of_its_items():
    weights = Weights({"safety": 6})
    once = weights.of(MIXED)
    assert [item.weight for item in once.items] == [8, -4, 1]
    assert weights.of(once) == once and once.items[0].id == MIXED.items[0].id
    with pytest.raises(SampleError, match="the weight of the category 'safety' is -1; it must be 0 or above"):
        Weights({"safety": -1}).of(MIXED)


def test_a_file_is_a_mapping_or_has_one_under_weights(tmp_path):
    json_file, yaml_file = tmp_path / "weights.json", tmp_path / "weights.yaml"
    json_file.write_text('{"form": 2}')
    yaml_file.write_text("weights: {form: 2}\nby: category\n")
    for path in (json_file, yaml_file):
        assert [item.weight for item in Weights.load(path).of(CHECKLIST).items] == [3, 2]
    json_file.write_text('["form"]')
    with pytest.raises(SampleError, match="weights.json must map item ids, questions or categories to weights"):
        Weights.load(json_file)
    yaml_file.write_text("form: high")
    with pytest.raises(SampleError, match="weights.yaml: the weight of 'form' is 'high'"):
        Weights.load(str(yaml_file))
