"""Labels by code."""

import re

from pocket.labelled import labelled_rows
from pocket.world import parse_question


def test_labels_are_the_truth_by_code():
    rows = list(labelled_rows(5, seed=1))
    assert len(rows) == 15 and {row["task"] for row in rows} == {"0", "1", "2", "3", "4"}
    for row in rows:
        assert row["labels"] == [parse_question(question).holds(row["target"]) for question in row["checklist"]]
    assert rows == list(labelled_rows(5, seed=1)) != list(labelled_rows(5, seed=2))
    assert not re.search("None", str(rows))
