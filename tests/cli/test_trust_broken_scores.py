"""Scores that no scorer writes: every command that reads scored files refuses them with file, row and field."""

import copy

import pytest

from checklist_rewards import Checklist
from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl

NAN = float("nan")
BROKEN = {
    "P(yes) is NaN": (("items", 0, "probabilities", "yes"), NAN, "items.0.probabilities.yes"),
    "P(yes) is 7": (("items", 0, "probabilities", "yes"), 7, "items.0.probabilities.yes"),
    "no P(no)": (("items", 0, "probabilities"), {"yes": 0.4}, "items.0.probabilities"),
    "other labels": (("items", 0, "probabilities"), {"good": 0.4, "bad": 0.6}, "good, bad"),
    "the answer is maybe": (("items", 0, "answer"), "maybe", "'maybe'"),
    "the weight is NaN": (("items", 0, "weight"), NAN, "items.0.weight"),
    "the mass is 5": (("items", 0, "mass"), 5, "items.0.mass"),
    "a vote is 2": (("items", 0, "votes"), [{"probabilities": {"yes": 2, "no": -1}}], "votes.0.probabilities.yes"),
    "the score is NaN": (("primary_score",), NAN, "primary_score"),
    "the score is 1.5": (("primary_score",), 1.5, "primary_score"),
    "an unknown metric": (("primary_metric",), "best", "primary_metric"),
    "a count below 0": (("total",), -1, "total"),
    "an unknown state": (("state",), "done", "state"),
}
COMMANDS = {
    "inspect": ["broken.jsonl"],
    "report": ["broken.jsonl", "-o", "page.html"],
    "diff": ["whole.jsonl", "broken.jsonl"],
    "replay": ["broken.jsonl", "-o", "again.jsonl", "--threshold", "0.4"],
    "cascade": ["broken.jsonl", "whole.jsonl"],
    "agree": ["broken.jsonl", "--label-key", "labels"],
    "calibrate": ["broken.jsonl", "--label-key", "labels", "-o", "map.json"],
}


@pytest.fixture
def whole(run):
    said = [0.05 * n for n in range(1, 13)]
    rows = [
        {"id": str(n), "target": "A rose.", "checklist": ["Is it red?"], "said": [p], "labels": [n % 2]}
        for n, p in enumerate(said)
    ]
    scored_file("whole.jsonl", *rows)
    return read_jsonl("whole.jsonl")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_score_is_refused_with_its_row_and_field(run, whole, case, command):
    place, value, named = BROKEN[case]
    rows = copy.deepcopy(whole)
    *steps, last = place
    part = rows[2]["checklist_score"]
    for step in steps:
        part = part[step]
    part[last] = value
    if case == "the answer is maybe" and command in ("agree", "cascade", "calibrate"):
        part["probabilities"] = None  # a judge that writes words
    write_jsonl("broken.jsonl", *rows)
    done = run(command, *COMMANDS[command], refused=["broken.jsonl", named])
    assert "line 3" in done.stderr or "row 3" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_whole_file_is_read(run, whole, command):
    write_jsonl("broken.jsonl", *whole)
    run(command, *COMMANDS[command])


@pytest.mark.parametrize("command", ["report", "audit", "diff", "replay"])
def test_a_reward_that_is_no_number_is_refused(run, whole, command):
    score = whole[0]["checklist_score"]
    row = {"step": 1, "prompt": "p", "completion": "c", "reward": 0.4, "score": score}
    write_jsonl("log.jsonl", row, row)
    write_jsonl("nan.jsonl", row, row | {"reward": NAN})
    replay = "-o again.jsonl --threshold 0.4"
    arguments = {"report": "-o page.html", "audit": "", "diff": "log.jsonl", "replay": replay}
    run(f"{command} nan.jsonl {arguments[command]}", refused="nan.jsonl, line 2: reward must be a finite number")


def test_numbers_that_somebody_has_rounded_are_read(run, whole):
    thirds = whole[0]["checklist_score"]["items"][0] | {"probabilities": {"yes": 0.333, "no": 0.666}, "answer": "no"}
    whole[0]["checklist_score"]["items"] = [thirds]
    write_jsonl("rounded.jsonl", *whole)
    run("inspect rounded.jsonl")
    assert Checklist.parse(whole[0]["checklist"])
