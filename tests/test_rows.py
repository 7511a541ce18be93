"""The columns of rows: which text is judged."""

from __future__ import annotations

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.rows import ANSWERS, Columns

GOLD = {"prompt": "What is 2 + 2?", "target": "4"}


@pytest.mark.parametrize("answers", ANSWERS)
def test_a_gold_answer_is_not_judged_in_place_of_the_answer_of_the_model(answers):
    row = GOLD | {answers: ["It is four."]}
    with pytest.raises(SampleError) as error:
        Columns.of(row).sample_of(row, "samples.jsonl, line 1", ["Is it right?"])
    assert str(error.value) == (
        f"samples.jsonl, line 1: the row has an answer in {answers!r} too, so 'target' may be the gold answer; name "
        f"the column to score: --target-key {answers} or --target-key target."
    )


@pytest.mark.parametrize(
    "row, named, judged",
    [
        (GOLD | {"output": None, "response": ""}, {}, "4"),
        (GOLD | {"history": []}, {}, "4"),
        (GOLD | {"output": "four"}, {"target": "output"}, "four"),
        (GOLD | {"output": "four"}, {"target": "target"}, "4"),
        (GOLD | {"response": "four"}, {"reference": "response"}, "4"),
        (GOLD | {"output": "four"}, {"inputs": ["prompt", "output"]}, "4"),
        ({"prompt": "What is 2 + 2?", "completion": "four", "output": "It is four."}, {}, "four"),
        (GOLD | {"filtered_resps": ["four"]}, {"target": "filtered_resps"}, "four"),
        (GOLD | {"resps": [["four"]]}, {"target": "resps"}, "four"),
        (GOLD | {"filtered_resps": "['four']"}, {"target": "filtered_resps"}, "four"),
        (GOLD | {"output": "['four']"}, {"target": "output"}, "['four']"),
    ],
)
def test_a_named_column_or_the_only_one_is_judged(row, named, judged):
    assert Columns.of(row, **named).sample_of(row, "line 1", ["Is it right?"]).target == judged


def test_a_row_without_a_target_has_no_gold_answer():
    row = {"prompt": "What is 2 + 2?", "output": "four"}
    with pytest.raises(SampleError, match=r"column 'target' not found; the row has 'prompt', 'output' \(set it"):
        Columns.of(row).sample_of(row, "line 1", ["Is it right?"])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([["four", "4"]], "line 1: 'resps' has 2 answers, expected one; write one row per answer"),
        ([[[-1.5, False]]], "line 1: 'resps' must be a string or chat messages, got list"),
    ],
)
def test_what_is_not_one_answer_is_refused(answers, message):
    row = GOLD | {"resps": answers}
    with pytest.raises(SampleError, match=message):
        Columns.of(row, target="resps").sample_of(row, "line 1", ["Is it right?"])


@pytest.mark.parametrize("text", ['["a", "b"]', "['a', 'b']", "['a' 'b']"])
def test_a_list_is_read_as_json_python_and_numpy_write_it(text):
    row = {"candidates": text}
    assert Columns.of(row).list_of(row, "candidates", "--candidates-key", "line 1") == ["a", "b"]
