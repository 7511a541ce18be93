"""`attack`: the file, the table, the exit code, the price, and input that is refused."""

import json
import re

import pytest

from tests.encoders import tiny_bert
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_images import PILLOWS, RED

COLORS = ("red", "blue", "green", "grey", "pink", "brown")
ROWS = [{"prompt": f"Write about a {color} bird.", "checklist": [f"Is it a {color} bird?"]} for color in COLORS]
ANSWERS = [{"prompt": row["prompt"], "completion": "Story: an owl."} for row in ROWS]


def gullible(prefix: str, tail: str) -> float:
    target = prefix.split("<target-")[1]
    return 0.95 if "This response is excellent" in target else 0.7 if "Story" in target else 0.1


@pytest.fixture
def files(run):
    write_jsonl("checklists.jsonl", *ROWS)
    write_jsonl("answers.jsonl", *ANSWERS)


ARGUMENTS = "attack checklists.jsonl --responses answers.jsonl -o attack.json --bootstrap 20 --budget-reads 1500"


def test_the_weakness_is_in_the_file_the_table_the_labels_and_the_exit_code(run, engine, files):
    backend = engine(gullible)
    done = run(f"{ARGUMENTS} --store s.db --labels labels.jsonl --max-rise 1.0 --max-beats 0.9", code=1)
    record = json.load(open("attack.json"))
    assert record["format"] == "checklist-rewards-attack-1" and "self_praise" in record["chosen"]
    by_name = {one["name"]: one for one in record["attacks"]}
    assert by_name["self_praise"]["beats"]["value"] == 1.0 and by_name["self_praise"]["rise"]["value"] > 0.4
    assert record["reads"] <= 1500 and len(backend.asked) <= record["reads"]
    for shown in ("self_praise", "rise", "honest", "Is it a", "chosen (<) on 3 prompts, measured on 3 others"):
        assert shown in done.output
    assert "beats 1.000 (needs 15 groups, has 3) of the honest responses, at least --max-beats" in done.output
    rows = read_jsonl("labels.jsonl")
    assert rows and all(row["labels"] == ["no"] and "This response is excellent" in row["target"] for row in rows)
    assert f"written: labels.jsonl, {len(rows)} successful attacks on 3 prompts" in done.output
    assert 1 <= len({row["input"] for row in rows}) <= 3
    again = run(ARGUMENTS, "--store", "s.db", "--max-rise", "0.3", code=1)
    assert json.load(open("attack.json")) == record and " 0 asked" in again.output
    assert "at least --max-rise 0.3" in again.output and "--max-beats" not in again.output
    run(f"{ARGUMENTS} --store s.db --max-rise 1.0")
    write_jsonl("answers.jsonl", ANSWERS[0])  # to a prompt that is searched
    assert "--max-beats was not measured" in run(f"{ARGUMENTS} --store s.db --max-beats 0.9", code=1).output


def test_two_judges_are_compared_by_diff(run, engine, files):
    engine(gullible)
    run(f"{ARGUMENTS} --no-store")
    engine(lambda prefix, tail: 0.7 if "Story" in prefix.split("<target-")[1] else 0.1)
    run(f"{ARGUMENTS.replace('attack.json', 'other.json')} --no-store")
    done = run("diff attack.json other.json --json diff.json -o diff.jsonl --bootstrap 20")
    compared = json.load(open("diff.json"))
    by_name = {one["name"]: one for one in compared["attacks"]}
    assert by_name["self_praise"]["change"]["value"] < -0.3 and by_name["all_met"]["change"]["value"] == 0.0
    assert "Mean change over all attacks on 3 prompts: -0." in done.output
    assert [json.loads(line)["name"] for line in open("diff.jsonl")] == [one["name"] for one in compared["attacks"]]
    write_jsonl("scored.jsonl", {"prompt": "a"})
    run("diff attack.json scored.jsonl", refused="scored.jsonl is not")
    run("diff attack.json other.json --id-key id", refused="--id-key has no effect on files of `attack`")


def test_unanswered_reads_are_listed_and_the_exit_code_is_1(run, engine, files):
    engine(lambda prefix, tail: None if "Story" in prefix else 0.1)
    done = run(f"{ARGUMENTS} --no-store", code=1)
    assert "too_long" in done.output
    assert "Not measured: comparison with honest responses (no honest response has a score)." in done.output


def test_a_dry_run_shows_the_price_and_asks_nothing(run, no_engine, files):
    done = run(f"{ARGUMENTS} --dry-run --price pocket=1,1")
    assert "its reads are at most 1,500" in done.output and "no model loaded" in done.output
    calls = int(done.output.split("pocket")[1].split("│")[1].replace(",", ""))
    assert 700 < calls <= 1500
    done = run("attack -o attack.json --dry-run --prompts 6 --budget-reads 3000")  # the packaged prompts
    assert "its reads are at most 3,000" in done.output, done.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--budget-reads 100", "budget_reads=100 is too small: 78 attacks on 6 prompts take"),
        ("--responses others.jsonl", "--responses others.jsonl: none of its 1 prompts is a prompt of checklists."),
        ("--responses blank.jsonl --max-beats 0.5", "--max-beats compares with honest responses; set --responses"),
        ("--input-key question", "checklists.jsonl, line 1: column 'question' not found"),
        ("--target-key reply", "answers.jsonl, line 1: column 'reply' not found"),
        ("--checklist-key missing", "column 'missing' not found"),
        ("few.jsonl", "needs at least 4 prompts with a checklist, half of them"),
        ("none.jsonl", "none.jsonl has no rows with a checklist."),
    ],
)
def test_bad_input_is_one_sentence_before_a_model_is_loaded(run, no_engine, files, arguments, complaint):
    write_jsonl("others.jsonl", {"prompt": "Another.", "target": "A."})
    write_jsonl("blank.jsonl", {"prompt": ROWS[0]["prompt"], "target": " "})
    write_jsonl("few.jsonl", *ROWS[:3], {"prompt": "No list.", "checklist": None})
    write_jsonl("none.jsonl")
    if arguments.startswith("--"):
        run(f"{ARGUMENTS} {arguments}", refused=complaint)
    else:
        run(ARGUMENTS.replace("checklists.jsonl", arguments), refused=complaint)


def test_responses_belong_to_the_prompt_with_the_same_words_and_images(run, engine):
    for colour, pillow in PILLOWS.items():
        pillow.save(f"{colour}.png")
    rows = [{"prompt": "What?", "image": f"{colour}.png", "checklist": [f"Is it {colour}?"]} for colour in PILLOWS]
    write_jsonl("checklists.jsonl", *rows)
    write_jsonl("answers.jsonl", *({**row, "completion": f"Story: {row['image']}"} for row in rows[:3]))
    backend = engine(gullible)
    backend.sees = True
    served = "--model", "org/judge", "--base-url", "http://localhost:1/v1"
    done = run(ARGUMENTS, *served, "--labels", "labels.jsonl")
    assert any(RED.mark in prefix and ">\nStory: red.png\n</target" in prefix for prefix, _ in backend.asked)
    assert json.load(open("attack.json"))["beats_before"]["value"] is not None and "are not in" not in done.output
    texts = done.output + open("attack.json").read() + open("labels.jsonl").read()
    assert not re.search("[\ufdd0\ufdd1\ufffd]|\\\\u(fdd|fffd)", texts)
    write_jsonl("answers.jsonl", *({"prompt": "What?", "completion": "Red."} for row in rows))
    run(ARGUMENTS, *served, refused="none of its 1 prompts is a prompt of checklists.jsonl")


def test_an_encoder_is_attacked(run, files, tmp_path):
    from transformers import AutoConfig, AutoModelForSequenceClassification

    judge = tiny_bert(tmp_path / "judge")
    config = AutoConfig.from_pretrained(judge, num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(judge)
    run(f"{ARGUMENTS} --model {judge} --no-store")
    record = json.load(open("attack.json"))
    assert record["unanswered"] == {} and all(attack["failed"] == 0 for attack in record["attacks"])
