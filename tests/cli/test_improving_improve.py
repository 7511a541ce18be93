"""`fit` and `improve` as a user meets them: scored and labelled rows in, weights or a better checklist out."""

import json
import random
from pathlib import Path

import pytest

from checklist_rewards.backends import Reply
from tests.evaluation.files import scored_file
from tests.evolving.test_improve import REPLIES, finds, reading
from tests.jsonl import read_jsonl, write_jsonl


def opposed(count=240):
    """Stars that follow the first question, and fall with the last one."""
    rng = random.Random(0)
    rows = []
    for n in range(count):
        said = [rng.random() for _ in CHECKLIST]
        stars = 3 + 2 * said[0] + 2 * said[1] + said[2] - 2 * said[3] + rng.gauss(0, 0.1)
        row = {"doc": n // 2, "prompt": f"Write {n}.", "target": f"text {n}", "checklist": CHECKLIST}
        rows.append(row | {"said": said, "stars": stars})
    scored_file("scored.jsonl", *rows)
    Path("checklist.json").write_text(json.dumps(CHECKLIST))


def write_reading():
    rows = enumerate(zip(*reading(), strict=True))
    write_jsonl("rows.jsonl", *({"prompt": f"Write {n // 2}.", "target": t, "label": label} for n, (t, label) in rows))
    Path("checklist.json").write_text(json.dumps(["Is it red?", "Is it old?"]))


def test_an_item_is_turned_without_a_model_and_the_diff_is_shown(run, no_engine):
    opposed()
    arguments = "improve checklist.json --data scored.jsonl --label-key stars --group-key doc"
    done = run(f"{arguments} -o better.json --json steps.json --bootstrap 50")
    assert "disagrees" in done.stdout and "1. turn, kept: correlation with the labels -0." in done.stdout
    assert "   - Is it new? (weight 1)\n   + Is it new? (weight -1)" in done.stdout
    assert "agreement on 80 test rows: " in done.stdout
    assert next(item for item in items("better.json") if item["question"] == "Is it new?")["weight"] < 0
    steps = json.loads(Path("steps.json").read_text())
    assert steps["rows"] == {"choosing": 80, "confirming": 80, "test": 80} and steps["figures"]["gain"]["value"] > 0
    run("replay scored.jsonl -o again.jsonl --checklist better.json")


def test_preferences_between_rows_are_enough(run, no_engine):
    opposed(480)
    stars = [json.loads(line)["stars"] for line in Path("scored.jsonl").read_text().splitlines()]
    pairs = [(n, n + 1)[:: 1 if stars[n] > stars[n + 1] else -1] for n in range(0, 480, 2)]
    write_jsonl("pairs.jsonl", *({"chosen": f"text {one}", "rejected": f"text {other}"} for one, other in pairs))
    arguments = "improve checklist.json --data scored.jsonl --group-key doc -o better.json"
    done = run(arguments, "--pairs", "pairs.jsonl", "--bootstrap", 50)
    assert "1. turn, kept: correlation with the labels -0." in done.stdout
    assert "agreement on 80 test pairs: " in done.stdout
    write_jsonl("pairs.jsonl", {"chosen": "text 1", "rejected": "text x"})
    words = "'rejected' is 'text x', which is the id or text of no row of --data"
    run(arguments, "--pairs", "pairs.jsonl", refused=words)
    write_jsonl("pairs.jsonl", {"response_a": "text 1", "winner": "A"})
    words = "pairs.jsonl, line 1: 'chosen' is missing; the row has 'response_a', 'winner'"
    run(arguments, "--pairs", "pairs.jsonl", refused=words)


def test_a_writer_adds_an_item_and_a_rerun_asks_nothing(run, engine):
    write_reading()
    fake = engine(finds, replies=[json.dumps(REPLIES["new"])])
    arguments = "improve checklist.json --data rows.jsonl --store s.sqlite --bootstrap 50"
    run(f"{arguments} --model pocket -o same.json")
    assert [item["question"] for item in items("same.json")] == ["Is it red?", "Is it old?"]
    done = run(f"{arguments} --writer.model pocket -o better.json")
    assert "Is it big?" in [item["question"] for item in items("better.json")]
    assert "   + Is it big? (weight 1)" in done.stdout
    asked = len(fake.asked)
    run(f"{arguments} --writer.model pocket -o again.json")
    assert len(fake.asked) == asked and items("again.json") == items("better.json")


@pytest.mark.parametrize("dead", ["judge", "writer"])
def test_what_judge_and_writer_do_not_answer_is_counted_and_the_exit_code_is_1(run, engine, dead):
    write_reading()
    lost = "Is it big?" if dead == "judge" else "nothing"
    rule = lambda prefix, tail: None if lost in tail else finds(prefix, tail)  # noqa: E731
    fake = engine(rule, replies=[json.dumps(REPLIES["new"])])
    if dead == "writer":
        fake.generate = lambda prompts, sampling, arrived=None: [[Reply(None, unanswered="timeout")] for _ in prompts]
    arguments = "improve checklist.json --data rows.jsonl --no-store --bootstrap 50"
    done = run(f"{arguments} --writer.model pocket -o better.json", code=1)
    said = "reads unanswered" if dead == "judge" else "to the writer proposed nothing: "
    assert said in done.output and Path("better.json").exists()
    assert "Is it big?" not in [item["question"] for item in items("better.json")]


def items(path):
    return json.loads(Path(path).read_text())["items"]


CHECKLIST = [f"Is it {word}?" for word in ("red", "big", "old", "new")]


def rated(count=120, path="scored.jsonl"):
    """Stars that follow the first question, with noise."""
    rng = random.Random(0)
    rows = []
    for n in range(count):
        said = [rng.random() for _ in CHECKLIST]
        stars = 1 + 4 * said[0] + rng.gauss(0, 0.3)
        row = {"doc": n // 2, "prompt": "Write.", "target": f"text {n}", "checklist": CHECKLIST}
        rows.append(row | {"said": said, "stars": stars})
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


def test_nothing_is_written_if_nothing_can_be_learned(run):
    rows = rated()
    random.Random(2).shuffle(rows)
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        row["noise"] = other["said"][0]
    scored_file("scored.jsonl", *rows)
    words = "nothing can be learned from 120 labels"
    run("fit scored.jsonl --label-key noise -o w.json --bootstrap 40", refused=words)


def test_preferences_by_id_or_text(run):
    rows = rated()
    pairs = []
    for number in range(0, len(rows), 2):
        places = sorted((number, number + 1), key=lambda place: -rows[place]["stars"])
        names = [str(place + 1) if number % 4 else f"text {place}" for place in places]
        pairs.append(dict(zip(("chosen", "rejected"), names, strict=True)))
    write_jsonl("pairs.jsonl", *pairs)
    run("fit scored.jsonl --pairs pairs.jsonl -o w.json --bootstrap 40")
    saved = json.loads(Path("w.json").read_text())
    assert saved["measure"] == "in order" and saved["labels"] == 60


def test_a_gain_without_an_interval_is_a_warning_with_the_reason(run):
    rated(40)
    fit = "fit scored.jsonl --label-key stars --group-key doc -o w.json --bootstrap"
    done = run(fit, 40)
    warned = " ".join(done.stderr.split())
    assert "The gain is not shown: it has no interval (needs 50 groups, has 20)." in warned
    assert "not shown" not in run(fit, 0).stderr
