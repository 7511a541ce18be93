"""Generated checklists against people's."""

import pytest

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.items import category_figures, similarity


def lists(*questions):
    return [Checklist.parse(list(entry)) for entry in questions]


def test_equal_checklists_are_as_near_as_can_be():
    same = lists(["Does the poem mention the rain?", "Is it a haiku of three lines?"])
    near = similarity(same, same)
    assert near.bleu == pytest.approx(100)
    assert near.rouge == {"rouge1": 1, "rouge2": 1, "rougeL": 1}
    assert near.count_mae == 0


def test_counts_and_words_by_hand():
    near = similarity(lists(["is it red"], ["is it"]), lists(["is it blue", "is it big"], ["is it"]))
    assert near.count_mae == 0.5
    # first pair: 2 of 3 words are among the 6 of people's: P 2/3, R 2/6, F1 4/9; second: 1
    assert near.rouge["rouge1"] == pytest.approx((4 / 9 + 1) / 2)


def test_categories_one_against_the_rest():
    style, form = category_figures(["style", "style", None, "form"], ["style", "form", "style", "form"])
    assert (style.precision, style.recall, style.f1, style.support) == (0.5, 0.5, 0.5, 2)
    assert (form.precision, form.recall, form.f1) == (1, 0.5, pytest.approx(2 / 3))


def test_a_category_never_given_has_no_precision():
    assert [(line.precision, line.recall, line.f1) for line in category_figures([None], ["style"])] == [(None, 0, 0)]
    assert [(line.precision, line.recall) for line in category_figures(["x"], ["y"])] == [(None, 0), (0, None)]
    assert category_figures([], []) == []


def test_pairs_are_needed():
    for pair in (([], []), (lists(["a?"]), [])):
        with pytest.raises(SampleError, match="compared in pairs"):
            similarity(*pair)
    with pytest.raises(SampleError, match="1 tagged items and 2 labels"):
        category_figures(["a"], ["a", "b"])
