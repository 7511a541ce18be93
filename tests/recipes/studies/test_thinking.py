"""The recipe that measures thinking: figures of the pocket world and of a file, and what they cost."""

import gzip
import json

import pytest
from studies.judges.thinking import ThinkingArguments, labelled_reads, main

from checklist_rewards.errors import SampleError

ROWS = [
    {
        "target": f"the {word} lamo is old.",
        "question": "Does the response contain a digit?",
        "label": label,
        "group": word,
    }
    for word, label in (("3", 1.0), ("red", 0.0), ("7", 1.0), ("big", 0.0))
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in ROWS)
    return path


@pytest.mark.study
def test_it_compares_bare_labels_with_thoughts_about_the_same_reads(file, tmp_path, pocket):
    bare, thought = main(ThinkingArguments(data=str(file), rows=4, thinking=[0, 6], output_dir=str(tmp_path / "out")))
    assert (bare["reads"], bare["auc"]["value"], bare["generated_tokens_per_read"], bare["cut_off"]) == (
        4,
        1.0,
        1.0,
        0,
    )
    assert thought["generated_tokens_per_read"] > 1 and thought["auc_gain"]["value"] <= 0 == bare["auc_gain"]["value"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "reads.jsonl").read_text().splitlines()]
    assert [line["thinking"] for line in lines] == [0] * 4 + [6] * 4
    assert [line["thought"] is None for line in lines] == [True] * 4 + [False] * 4
    assert json.loads((tmp_path / "out" / "figures.json").read_text()) == [bare, thought]


def test_rows_are_drawn_with_a_seed_and_too_few_are_refused(file):
    assert [one.read.target for one in labelled_reads(file, 2, 1)] == [
        one.read.target for one in labelled_reads(file, 2, 1)
    ]
    assert [one.label for one in labelled_reads(file, 4, 0)] == [True, False, True, False]
    with pytest.raises(SampleError, match="it has 4 rows; --rows is 5"):
        labelled_reads(file, 5, 0)


@pytest.mark.study
def test_the_pocket_world_has_gold_labels(tmp_path, pocket):
    [figures] = main(ThinkingArguments(rows=60, thinking=[0], output_dir=str(tmp_path)))
    assert figures["reads"] == 60 and figures["auc"]["value"] > 0.9
