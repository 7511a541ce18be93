"""The evaluation recipe: agreement with gold answers, overall and by category."""

import json

import pytest
from studies.judges.gold import Agreement, check_gold, evaluate

from checklist_rewards import ChecklistScorer
from checklist_rewards.datasets import import_checklists
from checklist_rewards.errors import SampleError
from tests.cli.conftest import read_jsonl, write_jsonl
from tests.fakes import FakeBackend


def colours(prefix: str, tail: str) -> float | None:
    """Yes if the colour asked about is in the response; nothing about grey."""
    return None if "grey" in tail else 0.9 if tail.split()[1].rstrip("?") in prefix.split("## Response")[1] else 0.1


def dataset(folder, *rows):
    write_jsonl(folder / "rows.jsonl", *rows)
    return import_checklists(
        folder / "rows.jsonl",
        prompt_key=("ask", "with"),
        target_key="said",
        checklist_key="questions",
        item_keys={"category": "kinds"},
    )


ROWS = [
    {"ask": "Paint.", "with": "", "said": "red", "questions": ["Is red?", "Is blue?"], "kinds": [["Warm"], ["Cold"]]},
    {
        "ask": "Paint.",
        "with": "oil",
        "said": "blue",
        "questions": ["Is red?", "Is grey?"],
        "kinds": [["Warm"], ["Cold"]],
    },
]


def test_answers_are_compared_with_gold_ones_by_category(tmp_path):
    data = dataset(tmp_path, ROWS[0] | {"gold": [True, False]}, ROWS[1] | {"gold": [True, True]})
    scorer = ChecklistScorer(backend=FakeBackend(colours), store=False)
    summary = evaluate(data, scorer, "gold", tmp_path / "scored.jsonl")
    assert summary["agreement"]["compared"] == 3  # the unanswered one is compared with nothing
    assert summary["agreement"]["accuracy"] == pytest.approx(2 / 3)
    assert summary["by_category"]["Warm"] == {
        "items": 2, "answered": 2, "passed": 1, "compared": 2, "accuracy": 0.5, "kappa": 0.0,
    }  # fmt: skip
    assert summary["by_category"]["Cold"]["answered"] == 1
    assert summary["unanswered"] == {"too_long": 1} and summary["micro"] == pytest.approx(1 / 3)
    assert [row["checklist_score"]["answered"] for row in read_jsonl(tmp_path / "scored.jsonl")] == [2, 1]
    json.dumps(summary)


def test_scores_are_correlated_with_a_number_per_row(tmp_path):
    rows = [ROWS[0] | {"said": text, "gold": gold} for text, gold in (("red blue", 5), ("red", 3), ("none", 1))]
    scorer = ChecklistScorer(backend=FakeBackend(colours), store=False)
    summary = evaluate(dataset(tmp_path, *rows), scorer, "gold", tmp_path / "scored.jsonl")
    assert summary["pearson"] == pytest.approx(1.0) and summary["agreement"]["compared"] == 0


@pytest.mark.parametrize(
    ("pairs", "accuracy", "kappa"),
    [
        ({(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}, 0.7, 0.4),
        ({(True, True): 9, (True, False): 1}, 0.9, 0.0),
        ({(True, True): 3}, 1.0, None),
        ({}, None, None),
    ],
)
def test_kappa(pairs, accuracy, kappa):
    agreement = Agreement()
    agreement.pairs.update(pairs)
    assert agreement.accuracy == accuracy and agreement.kappa == (None if kappa is None else pytest.approx(kappa))


@pytest.mark.parametrize(("gold", "words"), [([True], "1 values for 2 items"), ("yes", "list of labels or a number")])
def test_gold_that_cannot_be_compared_is_refused(tmp_path, gold, words):
    with pytest.raises(SampleError, match=f"row 1: .*{words}"):
        check_gold(dataset(tmp_path, ROWS[0] | {"gold": gold}), "gold")
    with pytest.raises(SampleError, match="column 'truth' not found"):
        check_gold(dataset(tmp_path, ROWS[0]), "truth")
