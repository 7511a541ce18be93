"""`fit` as a user meets it: scored and labelled rows in, weights out, which `score` and `replay` take."""

import json
import random
from pathlib import Path

import pytest

from tests.cli.conftest import read_jsonl, write_jsonl
from tests.evaluation.agreement.files import scored_file

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
    done = run("fit", "scored.jsonl", "--label-key", "stars", "--group-key", "doc", "-o", "w.json", "--bootstrap", 40)
    assert done.exit_code == 0, done.output
    assert "weights by item, 120 labels in 60 groups" in done.stdout and "on held-out groups" in done.stdout
    saved = json.loads(Path("w.json").read_text())
    assert saved["figures"]["gain"]["low"] > 0 and saved["items"][0]["question"] == CHECKLIST[0]
    weights = list(saved["weights"].values())
    assert weights[0] > 2 > 0.7 > max(weights[1:])
    done = run("replay", "scored.jsonl", "-o", "again.jsonl", "--weights", "w.json")
    assert done.exit_code == 0, done.output
    for row, rated_row in zip(read_jsonl("again.jsonl"), rows, strict=True):
        expected = sum(w * p for w, p in zip(weights, rated_row["said"], strict=True)) / sum(weights)
        assert row["checklist_score"]["expected_score"] == pytest.approx(expected)


def test_a_gain_without_an_interval_is_a_warning_with_the_reason(run):
    rated(40)
    asked = ("fit", "scored.jsonl", "--label-key", "stars", "--group-key", "doc", "-o", "w.json")
    done = run(*asked, "--bootstrap", 40)
    assert done.exit_code == 0, done.output
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
    done = run("fit", "scored.jsonl", "--pairs", "pairs.jsonl", "-o", "w.json", "--bootstrap", 40)
    assert done.exit_code == 0, done.output
    saved = json.loads(Path("w.json").read_text())
    assert saved["measure"] == "in order" and saved["labels"] == 60
    write_jsonl("pairs.jsonl", {"chosen": "text 1", "rejected": "text 999"})
    done = run("fit", "scored.jsonl", "--pairs", "pairs.jsonl", "-o", "w.json")
    assert done.exit_code == 2 and "'rejected' is 'text 999', which is the id or text of no scored row" in done.stderr
    done = run("fit", "scored.jsonl", "--pairs", "pairs.jsonl", "--label-key", "stars", "-o", "w.json")
    assert done.exit_code == 2 and "two kinds of labels" in done.stderr


def test_nothing_is_written_if_nothing_can_be_learned(run):
    rows = rated()
    random.Random(2).shuffle(rows)
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        row["noise"] = other["said"][0]
    scored_file("scored.jsonl", *rows)
    done = run("fit", "scored.jsonl", "--label-key", "noise", "-o", "w.json", "--bootstrap", 40)
    assert done.exit_code == 2 and "nothing can be learned from 120 labels" in done.stderr
    assert not Path("w.json").exists()


def test_score_takes_the_weights(run, engine):
    engine(lambda prefix, tail: 0.9 if "red" in tail else 0.2)
    Path("w.yaml").write_text("'Is it red?': 3\n")
    write_jsonl("rows.jsonl", {"prompt": "Write.", "target": "a text", "checklist": CHECKLIST[:2]})
    done = run("score", "rows.jsonl", "-o", "out.jsonl", "--weights", "w.yaml", "--no-store")
    assert done.exit_code == 0, done.output
    assert read_jsonl("out.jsonl")[0]["checklist_score"]["expected_score"] == pytest.approx((3 * 0.9 + 0.2) / 4)
    Path("w.yaml").write_text("[1]")
    done = run("score", "rows.jsonl", "-o", "out.jsonl", "--weights", "w.yaml", "--no-store")
    assert done.exit_code == 2 and "must map item ids, questions or categories to weights" in done.stderr
