"""`replay`: score a reward log or a scored file again, with another judge or from its stored answers."""

import json
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.datasets.table import BatchScore
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl
from tests.judges.fakes import Labels

CHECKLIST = [{"question": "Is it red?", "weight": 3, "category": "colour"}, {"question": "Is it short?"}]
WORDS = ["red", "blue", "red and long", "green"]
ROWS = [{"id": word, "prompt": "Name a colour.", "target": word, "checklist": CHECKLIST} for word in WORDS]


def red(prefix, tail):
    return 0.9 if ("\nred" in prefix) == ("red?" in tail) else 0.2


class Step:
    global_step = 7


@pytest.fixture
def log(run):
    """A reward log of four completions, one of them without a checklist."""
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(red), store=False), log="rewards.jsonl")
    columns = {"completions": [*WORDS, "red"], "checklist": [CHECKLIST] * 4 + [None]}
    reward(prompts=["Name a colour."] * 5, **columns, trainer_state=Step())
    return read_jsonl("rewards.jsonl")


@pytest.fixture
def scored(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    engine(red)
    run("score rows.jsonl -o scored.jsonl --no-store")
    return read_jsonl("scored.jsonl")


@pytest.mark.parametrize(("options", "target"), [({}, "red"), ({"keep_thinking": True}, "<think>blue</think>red")])
def test_a_log_is_replayed_with_the_texts_and_states_that_were_judged(run, engine, options, target):
    scorer = ChecklistScorer(backend=FakeBackend(red), store=False)
    reward = ChecklistReward(scorer, log="rewards.jsonl", **options)
    completions = ["<think>blue</think>red", ""]
    reward(prompts=["Name it."] * 2, completions=completions, checklist=[CHECKLIST] * 2, trainer_state=Step())
    fake = engine(red)
    done = run("replay rewards.jsonl -o again.jsonl --model pocket --no-store")
    assert "1 of 2 targets (1 empty); scored as the lowest" in done.stderr, done.output
    before, again = read_jsonl("rewards.jsonl"), read_jsonl("again.jsonl")
    for name in ("completion", "state", "reward"):
        assert [row[name] for row in again] == [row[name] for row in before], name
    assert [row["score"]["state"] for row in again] == ["answered", "empty"]
    assert len(fake.asked) == 2 and all(f"\n{target}\n</target" in prefix for prefix, _ in fake.asked)


def test_the_log_of_a_reward_that_ignored_images_is_replayed(run, engine):
    scorer = ChecklistScorer(backend=FakeBackend(red), store=False)
    reward = ChecklistReward(scorer, log="rewards.jsonl", images="ignore")
    prompt = [{"role": "user", "content": [{"type": "image", "image": b"GIF89a"}, {"type": "text", "text": "What?"}]}]
    reward(prompts=[prompt], completions=["red"], checklist=[CHECKLIST], trainer_state=Step())
    engine(red)
    run("replay rewards.jsonl -o again.jsonl --model pocket --no-store")
    [before], [again] = read_jsonl("rewards.jsonl"), read_jsonl("again.jsonl")
    assert again["reward"] == before["reward"] and again["prompt"] == before["prompt"]


def test_the_same_judge_gives_the_same_log(run, log, engine):
    engine(red)
    run("replay rewards.jsonl -o again.jsonl --model pocket --no-store", code=1)
    again = read_jsonl("again.jsonl")
    assert [row.keys() for row in again] == [row.keys() for row in log]
    for row, before in zip(again, log, strict=True):
        assert row == before or row["score"]["primary_score"] == pytest.approx(before["score"]["primary_score"])


def test_another_judge_answers_again_and_a_second_run_asks_for_nothing(run, log, engine):
    other = engine(lambda prefix, tail: 0.75)
    again = "replay rewards.jsonl -o again.jsonl --model pocket --store store.sqlite"
    run(again, code=1)  # the row without a checklist is reported
    rows = read_jsonl("again.jsonl")
    assert [row["reward"] for row in rows] == [pytest.approx(0.75)] * 4 + [None]
    found = [(row["step"], row["prompt"], row["completion"]) for row in rows[:4]]
    assert found == [(7, "Name a colour.", word) for word in WORDS]
    assert len(other.asked) == 8
    run(again, code=1)
    assert len(other.asked) == 8 and read_jsonl("again.jsonl") == rows


def test_other_rules_and_weights_use_no_engine(run, scored, no_engine):
    Path("weights.yaml").write_text("colour: 0\n'Is it short?': -1\n")
    run("replay scored.jsonl -o again.jsonl --metric weighted --threshold 0.95 --weights weights.yaml")
    [first, *_] = read_jsonl("again.jsonl")
    score = first["checklist_score"]
    assert score["primary_metric"] == "weighted" and score["aggregation"]["threshold"] == 0.95
    assert [item["weight"] for item in score["items"]] == [item["weight"] for item in first["checklist"]] == [0, -1]
    assert [item["answer"] for item in score["items"]] == ["no", "no"]
    assert score["primary_score"] == 1.0  # a penalty that is not earned
    before = scored[0]["checklist_score"]["items"]
    assert [item["probabilities"] for item in score["items"]] == [item["probabilities"] for item in before]


def test_stored_answers_are_calibrated_without_an_engine(run, log, no_engine):
    judge = log[0]["score"]["items"][0]["judge"]
    cold = CalibrationMap(method="temperature", temperature=1e-3, reads=9)
    Calibration(judge=judge, read_by="logprobs", maps={"yes/no": cold}).save("cold.json")
    run("replay rewards.jsonl -o cold.jsonl --calibration cold.json", code=1)
    [first, *_] = read_jsonl("cold.jsonl")
    assert [item["probabilities"]["yes"] for item in first["score"]["items"]] == pytest.approx([1, 0])
    assert first["score"]["items"][0]["uncalibrated"]["yes"] == pytest.approx(0.9)
    run("replay cold.jsonl -o twice.jsonl --calibration cold.json", code=1)
    assert read_jsonl("twice.jsonl")[0] == first  # calibrated from the judge's own probabilities again


def test_an_edited_checklist_is_scored_by_the_answers_that_exist(run, scored, no_engine):
    for row in scored:
        row["checklist"] = [row["checklist"][0], {"question": "Is it loud?"}]
    write_jsonl("edited.jsonl", *scored)
    done = run("replay edited.jsonl -o again.jsonl", code=1)
    assert "not_read" in done.output
    items = read_jsonl("again.jsonl")[0]["checklist_score"]["items"]
    assert [item["question"] for item in items] == ["Is it red?", "Is it loud?"]
    assert items[0]["answer"] == "yes" and items[1]["unanswered"] == "not_read"


def test_code_checks_of_a_log_keep_their_answers(run, engine):
    checked = [{"question": "Short?", "check": {"type": "words", "at_most": 1}}, "Is it red?"]
    reward = ChecklistReward(ChecklistScorer(backend=FakeBackend(red), store=False), log="rewards.jsonl")
    reward(prompts=["x", "x"], completions=["red", "red and long"], checklist=[checked, checked])
    other = engine(lambda prefix, tail: 0.7)
    run("replay rewards.jsonl -o again.jsonl --model pocket --no-store")
    rows = read_jsonl("again.jsonl")
    assert [[item["method"] for item in row["score"]["items"]] for row in rows] == [["check", "logprobs"]] * 2
    assert [row["score"]["items"][0]["answer"] for row in rows] == ["yes", "no"]
    assert len(other.asked) == 2


def test_a_scaled_file_is_replayed_on_its_scale(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    engine(backend=Labels({"0": 0.2, "1": 0.3, "2": 0.5}))
    run("score rows.jsonl -o scaled.jsonl --scale 3 --no-store")
    run("replay scaled.jsonl -o again.jsonl --metric weighted")
    assert read_jsonl("again.jsonl")[0]["checklist_score"]["primary_score"] == 1.0


def test_the_rewards_of_a_shaped_log_are_not_guessed(run, log, no_engine):
    write_jsonl("shaped.jsonl", *(row | {"reward": (row["reward"] or 0) - 0.5, "shaping": [["x", 1]]} for row in log))
    done = run("replay shaped.jsonl -o again.jsonl --metric pass", code=1)
    rows = read_jsonl("again.jsonl")
    assert {row["reward"] for row in rows} == {None} and "shaping" not in rows[0]
    assert rows[0]["score"]["primary_score"] == 0.5 and "differ from its scores" in done.output.replace("\n", " ")


def test_the_files_of_all_ranks_are_one_log(run, log, no_engine):
    write_jsonl("rewards.rank1.jsonl", *log[:2])
    run("replay rewards.jsonl -o again.jsonl", code=1)
    assert len(read_jsonl("again.jsonl")) == 7


def test_scored_files_of_other_formats(run, scored, no_engine):
    expected = [score.pass_rate for score in BatchScore.from_jsonl("scored.jsonl").scores]
    for extension in ("parquet", "csv"):
        run(f"replay scored.jsonl -o scored.{extension}")
        run(f"replay scored.{extension} -o again.jsonl --metric pass")
        assert [score.primary_score for score in BatchScore.from_jsonl("again.jsonl").scores] == expected


def test_repeats_separate_the_judge_from_the_texts(run, log, engine):
    # The wording shifts the answer about red texts; the texts differ by more.
    other = engine(lambda prefix, tail: red(prefix, tail) - (0.1 if "No or yes" in tail and "\nred" in prefix else 0))
    repeats = "--repeat 4 --json variance.json --bootstrap 50"
    done = run(f"replay rewards.jsonl -o again.jsonl --model pocket --no-store {repeats}", code=1)
    assert "Traceback" not in done.output, done.output
    record = json.loads(Path("variance.json").read_text())
    assert record["how"] == "reworded" and record["rows"] == 4 and record["incomplete"] == 0
    figures = {name: figure["value"] for name, figure in record["scores"]["figures"].items()}
    assert figures["text"] > 10 * figures["judge"] > 0
    assert record["needed"] == -(-figures["judge"] // 0.02**2)
    assert len(other.asked) == 4 * 8 and "needs" in done.output
    assert read_jsonl("again.jsonl")[0]["reward"] == pytest.approx(log[0]["reward"])  # repeat 0 is the plain read
