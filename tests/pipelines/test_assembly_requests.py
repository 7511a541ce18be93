"""Rows as requests and samples: answers are read, and what a person wrote is not changed."""

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.generators import Request
from checklist_rewards.pipelines.assembly import a_few, samples_of
from checklist_rewards.rows import Columns, Sample, fields_of

WRITTEN = ["Open with <think>.", "<think>2 + 2</think>4", "a\n</think>\nb", "<response>Four</response>", "finalFour"]


@pytest.mark.parametrize("text", WRITTEN)
def test_texts_of_a_row_are_not_cut(text):
    names = ("reference", "history", "context", "chosen", "rejected")
    assert fields_of(dict.fromkeys(names, text), "row 1") == dict.fromkeys(names, text)


def test_of_messages_the_answer_is_used():
    message = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    assert fields_of({"reference": [message], "chosen": None, "context": ""}, "row 1") == {
        "reference": "4",
        "chosen": None,
        "context": None,
    }
    with pytest.raises(
        SampleError, match="row 1: 'reference' must be a string or chat messages with roles, got int 7"
    ):
        fields_of({"reference": 7}, "row 1")


def test_the_answer_in_a_target_is_scored():
    row = {"input": "Open with <think>.", "target": "<think>2 + 2</think>4", "reference": "<think>2</think>4"}
    sample = Columns.of(row, reference="reference").sample_of(row, "row 1", ["Is it?"])
    assert sample == Sample(["Is it?"], "4", "Open with <think>.", "<think>2</think>4")
    cut, empty = {"target": "<think>2"}, {"target": ""}
    assert Columns.of(cut).sample_of(cut, "row 1", ()).target_state == "cut_in_thought"
    assert Columns.of(empty).sample_of(empty, "row 1", ()).target_state == "empty"


def test_refiners_test_checklists_on_answers():
    request = Request("x", candidates=("<think>2</think>4", "4", "<think>2"), chosen="5", rejected="")
    assert [sample.target for sample in samples_of(request, ())] == ["4", "5"]
    without = [Sample((), "", state="cut_in_thought"), Sample((), "4"), Sample((), "")]
    assert a_few(without) == without[1:2] and a_few(without[:1]) == without[:1]
