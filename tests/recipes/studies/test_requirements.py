"""The measurement of the rules on prompts with known instructions."""

import json

import pytest
from studies.checks import requirements

from checklist_rewards.errors import SampleError

ROWS = [
    {
        "key": 1,
        "prompt": 'Describe fog in at least 40 words. Do not use the words "grey" and "wet".',
        "instruction_id_list": ["length_constraints:number_words", "keywords:forbidden_words"],
        "kwargs": [{"relation": "at least", "num_words": 40}, {"forbidden_words": ["grey", "wet"]}],
    },
    {
        "key": 2,
        "prompt": "Describe fog. Use no commas and fewer than 5 sentences.",
        "instruction_id_list": ["length_constraints:number_sentences"],
        "kwargs": [{"relation": "less than", "num_sentences": 4}],
    },
]


def test_a_requirement_counts_only_with_its_exact_arguments():
    counts, differences = requirements.compare(ROWS)
    assert counts["length_constraints:number_words"] == {"found": 1}
    assert counts["keywords:forbidden_words"] == {"found": 2}
    assert counts["length_constraints:number_sentences"] == {"missed": 1}
    assert counts["(sentences)"] == {"false": 1} and counts["(letters)"] == {"false": 1}
    assert [row["evidence"] for row in differences] == [["no commas", "fewer than 5 sentences"]]


def test_a_part_of_a_list_may_be_missing():
    words = {"type": "keywords", "words": ["river", "mill"]}
    assert list(requirements.parts(words)) == [("keywords", "river"), ("keywords", "mill")]
    assert list(requirements.parts({"type": "words", "exactly": 3})) == [
        ("words", "{}", ">=", 3),
        ("words", "{}", "<=", 3),
    ]


def test_the_rules_find_four_of_five_on_prompts_they_were_not_made_for(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["requirements.py", "--data", str(data_dir), "--output_dir", str(tmp_path)])
    requirements.main()
    held_out = json.loads((tmp_path / "summary.json").read_text())["held out"]
    assert held_out["prompts"] == 271 and held_out["precision"] >= 0.97 and held_out["recall"] >= 0.8


def test_missing_data_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["requirements.py", "--data", str(tmp_path), "--output_dir", str(tmp_path)])
    with pytest.raises(SampleError, match="input_data.jsonl: file not found; set --data"):
        requirements.main()
