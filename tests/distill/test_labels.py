"""Labels: where they come from, what is refused, and folds that keep groups whole."""

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.distill.labels import by_target, folds_of, read_labels
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import write_rows
from checklist_rewards.judges.labels import Labelled
from tests.fakes import FakeBackend
from tests.jsonl import write_jsonl

ROW = {"target": "a red cat", "question": "Is it red?", "label": 0.75, "group": "animals"}


def test_labels_may_be_words_and_rows_may_have_an_input_and_a_reference(tmp_path):
    path, chat = tmp_path / "l.jsonl", [{"role": "user", "content": "Describe the cat."}]
    rows = [
        ROW | {"label": "Yes", "input": "Describe the cat.", "reference": "It is red."},
        ROW | {"label": "no", "input": None, "reference": ""},
        ROW | {"label": "0.5", "input": chat},
    ]
    write_jsonl(path, *rows)
    pairs = read_labels(path)
    assert [(pair.label, pair.group) for pair in pairs] == [(1.0, "animals"), (0.0, "animals"), (0.5, "animals")]
    assert [pair.input for pair in pairs] == ["Describe the cat.", None, "Describe the cat."]
    assert [pair.reference for pair in pairs] == ["It is red.", None, None]
    assert list(by_target([*pairs, pairs[0]]).values()) == [[0, 3], [1], [2]]
    first = {"completion": "a", "ask": "Is it?", "votes": 1}  # without a group, the text is one
    write_jsonl(path, first, first | {"completion": "b", "votes": True})
    pairs = read_labels(path, question_key="ask", label_key="votes")
    assert pairs == [Labelled("a", "Is it?", 1.0, "a"), Labelled("b", "Is it?", 1.0, "b")]


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.csv"])
def test_the_answer_of_a_target_is_what_is_learned(tmp_path, name):
    chat = [{"role": "assistant", "content": "a red cat", "reasoning_content": "blue?"}]
    targets = ["a red cat", "<think>blue?</think>a red cat", chat]
    with write_rows(tmp_path / name) as rows:
        for target in targets:
            rows.write({**ROW, "target": target})
    assert {pair.target for pair in read_labels(tmp_path / name)} == {"a red cat"}


def test_a_scored_file_labels_by_the_probabilities_of_its_judge(tmp_path):
    def rule(prefix, tail):
        return None if "lost" in tail else 0.9 if "red" in tail else 0.2

    scorer = ChecklistScorer(backend=FakeBackend(rule), store=False)
    score = scorer.score(["Is it red?", "Is it lost?", "Is it blue?"], target="a cat").model_dump()
    first = {"completion": "a cat", "page": 3, "checklist_score": score}
    rows = [first, {"completion": "b", "page": 4, "checklist_score": None}]
    write_jsonl(tmp_path / "scored.jsonl", *rows)
    pairs = read_labels(tmp_path / "scored.jsonl", group_key="page")
    assert [(pair.question, round(pair.label, 6), pair.group) for pair in pairs] == [
        ("Is it red?", 0.9, "3"),  # what was left unanswered teaches nothing
        ("Is it blue?", 0.2, "3"),
    ]
    with write_rows(tmp_path / "scored.csv") as csv:
        csv.write(rows[0])
    assert read_labels(tmp_path / "scored.csv", group_key="page") == pairs


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (None, "has no labels"),
        (ROW | {"label": 1.5}, "line 1: 'label' is 1.5; a label must be yes, no, or a number from 0"),
        (ROW | {"target": None}, "line 1: 'target' must be a string or chat messages, got NoneType"),
        (ROW | {"reference": 7}, "line 1: 'reference' must be a string or chat messages with roles, got int"),
        (
            {"target": "a", "label": 1},
            "line 1: column 'question' not found; the row has 'target', 'label' \\(set it with --question-key",
        ),
        ({"target": "a", "question": "b"}, "line 1: column 'label' not found"),
        (ROW | {"group": ""}, "line 1: the group 'group' is missing or empty"),
        ({"target": "a", "checklist": ["Is it red?"], "labels": "[yes"}, "line 1: 'labels' is not JSON"),
    ],
)
def test_a_row_that_labels_nothing_is_named(tmp_path, row, said):
    write_jsonl(tmp_path / "l.jsonl", *([row] if row else []))
    with pytest.raises(SampleError, match=said):
        read_labels(tmp_path / "l.jsonl")


def test_a_group_is_in_one_fold_and_the_folds_are_about_equally_large():
    pairs = [Labelled(f"t{n}", "q", 1.0, f"g{n // size}") for size in (3,) for n in range(30)]
    fold_of = folds_of(pairs, 5)
    assert sorted(fold_of.count(fold) for fold in range(5)) == [6] * 5
    assert len({(pair.group, fold) for pair, fold in zip(pairs, fold_of, strict=True)}) == 10
    assert folds_of(pairs, 5) == fold_of and folds_of(pairs, 5, seed=1) != fold_of
    with pytest.raises(SampleError, match="10 groups for 11 folds"):
        folds_of(pairs, 11)
