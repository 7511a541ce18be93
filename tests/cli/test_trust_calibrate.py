"""`calibrate` as a user meets it: scored and labelled rows in, a map and what it is worth out."""

import json
import random
from pathlib import Path

import pytest

from checklist_rewards.judges.calibration import Calibration
from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl


def overconfident(path="scored.jsonl", judge="org/judge"):
    """A judge that says .95 of what is true in seven of ten cases, and .05 of what is true in three."""
    rng = random.Random(0)
    rows = []
    for n in range(60):
        said = [rng.choice((0.95, 0.05)) for _ in range(4)]
        labels = [rng.random() < (0.7 if p > 0.5 else 0.3) for p in said]
        checklist = [f"Is it {word}?" for word in ("red", "big", "old", "new")]
        rows.append({"doc": n // 2, "prompt": "Write.", "checklist": checklist, "said": said, "labels": labels})
    return scored_file(path, *rows, judge=judge)


def test_a_map_is_fitted_measured_and_saved(run):
    overconfident()
    arguments = ("--label-key", "labels", "--group-key", "doc", "--json", "c.json", "--plots", "plots")
    done = run("calibrate scored.jsonl -o map.json", *arguments, "--bootstrap", 50)
    assert "brier" in done.stdout and "saved: " in done.stdout and "240 reads, 30 groups, held out" in done.stdout
    assert Path("plots/reliability_yes_no.png").read_bytes().startswith(b"\x89PNG")
    [kind] = json.loads(Path("c.json").read_text())["kinds"].values()
    assert set(kind["after"]) == {"temperature", "platt", "isotonic"}
    assert kind["after"][kind["method"]]["brier"]["value"] < kind["before"]["brier"]["value"] - 0.02
    saved = Calibration.load("map.json")
    assert (saved.judge, saved.read_by, saved.contextual, saved.threshold) == ("org/judge", "logprobs", False, None)
    assert saved.figures["yes/no"]["before"]["brier"] == kind["before"]["brier"]


def test_a_method_and_a_threshold_can_be_asked_for(run):
    overconfident()
    arguments = ("--label-key", "labels", "--method", "platt", "--fit-threshold", "cost", "--costs", "9,1")
    run("calibrate scored.jsonl -o map.json", *arguments, "--bootstrap", 0)
    saved = Calibration.load("map.json").maps["yes/no"]
    assert saved.method == "platt" and saved.threshold > 0.7  # a wrong yes is dear: better never say it


def test_a_map_that_does_not_help_is_said_to_be_none(run):
    rows = [{"checklist": ["Is it red?"], "said": [0.5], "labels": [n % 2 == 0]} for n in range(40)]
    scored_file("scored.jsonl", *rows)
    done = run("calibrate scored.jsonl -o map.json --label-key labels --method isotonic")
    assert "does not lower the Brier score" in done.stderr


def test_the_bias_of_a_judge_is_read_from_empty_targets(run, engine):
    def rule(prefix, tail):
        return 0.8 if "rose" not in prefix else 0.95 if "red" in tail else 0.6

    fake = engine(rule)
    rows = [
        {
            "prompt": f"Write {n}.",
            "checklist": ["Is it red?", "Is it big?"],
            "target": "a rose",
            "labels": [True, False],
        }
        for n in range(10)
    ]
    write_jsonl("rows.jsonl", *rows)
    run("score rows.jsonl -o s.jsonl --no-store")
    asked = len(fake.asked)
    arguments = ("--label-key", "labels", "--contextual", "--no-store", "--bootstrap", 0, "--method", "temperature")
    run("calibrate s.jsonl -o map.json", *arguments)
    assert len(fake.asked) - asked == 20  # two items of ten inputs, about nothing
    assert Calibration.load("map.json").contextual
    run("score rows.jsonl -o calibrated.jsonl --no-store --calibration map.json")
    red, big = read_jsonl("calibrated.jsonl")[0]["checklist_score"]["items"]
    assert (red["answer"], big["answer"]) == ("yes", "no")  # both above .5, and only one above what it says of nothing
    assert big["uncalibrated"]["yes"] == pytest.approx(0.6) and big["probabilities"]["yes"] < 0.5


def test_scores_of_a_map_of_another_judge_are_refused(run, no_engine):
    overconfident()
    run("calibrate scored.jsonl -o map.json --label-key labels --bootstrap 0")
    write_jsonl("rows.jsonl", {"prompt": "x", "target": "y", "checklist": ["Is it red?"]})
    words = "fitted on reads of 'org/judge', but the judge is 'pocket'"
    run("score rows.jsonl -o s.jsonl --calibration map.json", refused=words)
