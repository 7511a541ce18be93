"""The benchmarks of published work: rubrics with people's labels, coverage, and pairs by subset."""

import json

import pytest
from studies import published

from checklist_rewards.errors import SampleError
from tests.cli.conftest import write_jsonl

TALKS = [("Ask how many keno there are.", "Are there 3 keno?"), ("Say that a lamo is small.", "a lamo is small")]
CRITERIA = [
    {"name": "asks", "weight": 2.0, "requirement": "Does the response end with a question mark?"},
    {"name": "short", "weight": 1.0, "requirement": "Does the response contain exactly 2 sentences?"},
]


@pytest.fixture
def talks(tmp_path):
    path = tmp_path / "talks.json"
    items = [
        {
            "submission": json.dumps([{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]),
            "ground_truth": ["MET" if answer.endswith("?") else "UNMET", "UNMET"],
        }
        for ask, answer in TALKS
    ]
    path.write_text(json.dumps({"name": "talks", "prompt": "Grade.", "rubric": CRITERIA, "items": items}))
    return path


def test_criteria_with_labels(tmp_path, talks):
    found = published.main(
        ["rubrics", str(talks), "--judge", "pocket", "--output", str(tmp_path / "out"), "--resamples", "20"]
    )
    assert found["scores"]["talks"]["rows"] == 2 and found["scores"]["talks"]["unscored"] == 0
    assert found["scores"]["talks"]["score"]["value"] == pytest.approx(1 / 3)  # 2 of 3 points, and none
    asks = found["agreement"]["talks, asks"]
    assert (asks["n"], asks["accuracy"]["value"], asks["bias"]["value"]) == (2, 1.0, 0.0)
    assert found["agreement"]["all yes/no"]["n"] == 4
    assert "| talks, asks | 2 | 1.000" in (tmp_path / "out" / "tables.md").read_text()


def test_files_without_labels_have_scores_only_and_need_texts(tmp_path, talks):
    document = json.loads(talks.read_text())
    for item in document["items"]:
        del item["ground_truth"]
    talks.write_text(json.dumps(document))
    output = ["--judge", "pocket", "--output", str(tmp_path / "out"), "--resamples", "0"]
    found = published.main(["rubrics", str(talks), *output])
    assert found["agreement"] == {} and found["scores"]["talks"]["rows"] == 2
    talks.write_text(json.dumps([{"id": 1, "question": "Who?", "rubric": [{"point": "Names it.", "weight": 1}]}]))
    with pytest.raises(SampleError, match="talks.json, row 1: there is no text to score; the keys are prompt, id"):
        published.main(["rubrics", str(talks), *output])


def test_pairs_by_subset(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = {
        "prompt": "Ask how many keno there are.",
        "chosen": "Are there 3 keno?",
        "rejected": "there are 3 keno",
        "subset": "asks",
        "checklist": ["Does the response end with a question mark?"],
    }
    rows = [row, row | {"chosen": row["rejected"], "rejected": row["chosen"], "subset": "told"}, row]
    write_jsonl(path, *rows)
    output = ["--judge", "pocket", "--output", str(tmp_path / "out"), "--resamples", "0"]
    found = published.main(["pairs", str(path), *output])
    wins = {name: (one["n"], one["wins"]["value"]) for name, one in found["subsets"].items()}
    assert wins == {"asks": (2, 1.0), "told": (1, 0.0)} and found["mean_of_subsets"] == 0.5
    write_jsonl(path, row, {key: value for key, value in row.items() if key != "rejected"})
    with pytest.raises(SampleError, match="pairs.jsonl, line 2: 'rejected' is missing"):
        published.main(["pairs", str(path), *output])
