"""`fit` as a user meets it: scored and labelled rows in, weights out, which `score` and `replay` take."""

import json
import random
from pathlib import Path

import pytest

from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl

CHECKLIST = [f"Is it {word}?" for word in ("red", "big", "old", "new")]


def rated(count=120, path="scored.jsonl"):
    """Stars that follow the first question, with noise."""
    rng = random.Random(0)
    rows = []
    for n in range(count):
        said = [rng.random() for _ in CHECKLIST]
        stars = 1 + 4 * said[0] + rng.gauss(0, 0.3)
        rows.append({"doc": n // 2, "prompt": "Write.", "target": f"text {n}", "checklist": CHECKLIST, "said": said,
                     "stars": stars})  # fmt: skip
    scored_file(path, *rows)
    return rows


def test_weights_are_fitted_and_taken_by_replay(run):
    rows = rated()
    done = run("fit scored.jsonl --label-key stars --group-key doc -o w.json --bootstrap 40")
    assert "weights by item, 120 labels in 60 groups" in done.stdout and "on held-out groups" in done.stdout
    saved = json.loads(Path("w.json").read_text())
    assert saved["figures"]["gain"]["low"] > 0 and saved["items"][0]["question"] == CHECKLIST[0]
    weights = list(saved["weights"].values())
    assert weights[0] > 2 > 0.7 > max(weights[1:])
    run("replay scored.jsonl -o again.jsonl --weights w.json")
    for row, rated_row in zip(read_jsonl("again.jsonl"), rows, strict=True):
        expected = sum(w * p for w, p in zip(weights, rated_row["said"], strict=True)) / sum(weights)
        assert row["checklist_score"]["expected_score"] == pytest.approx(expected)


def test_a_gain_without_an_interval_is_a_warning_with_the_reason(run):
    rated(40)
    asked = ("fit", "scored.jsonl", "--label-key", "stars", "--group-key", "doc", "-o", "w.json")
    done = run(*asked, "--bootstrap", 40)
    warned = " ".join(done.stderr.split())
    assert "The gain is not shown: it has no interval (needs 50 groups, has 20)." in warned
    assert "not shown" not in run(*asked, "--bootstrap", 0).stderr


def test_preferences_by_id_or_text(run):
    rows = rated()
    pairs = []
    for number, (one, other) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        texts = [one["target"], other["target"]] if one["stars"] > other["stars"] else [other["target"], one["target"]]
        ids = [str(int(text.split()[1]) + 1) for text in texts]
        pairs.append(dict(zip(("chosen", "rejected"), ids if number % 2 else texts, strict=True)))
    write_jsonl("pairs.jsonl", *pairs)
    run("fit scored.jsonl --pairs pairs.jsonl -o w.json --bootstrap 40")
    saved = json.loads(Path("w.json").read_text())
    assert saved["measure"] == "in order" and saved["labels"] == 60


def test_nothing_is_written_if_nothing_can_be_learned(run):
    rows = rated()
    random.Random(2).shuffle(rows)
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        row["noise"] = other["said"][0]
    scored_file("scored.jsonl", *rows)
    words = "nothing can be learned from 120 labels"
    run("fit scored.jsonl --label-key noise -o w.json --bootstrap 40", refused=words)


def test_score_takes_the_weights(run, engine):
    engine(lambda prefix, tail: 0.9 if "red" in tail else 0.2)
    Path("w.yaml").write_text("'Is it red?': 3\n")
    write_jsonl("rows.jsonl", {"prompt": "Write.", "target": "a text", "checklist": CHECKLIST[:2]})
    run("score rows.jsonl -o out.jsonl --weights w.yaml --no-store")
    assert read_jsonl("out.jsonl")[0]["checklist_score"]["expected_score"] == pytest.approx((3 * 0.9 + 0.2) / 4)
