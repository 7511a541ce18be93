"""`attack`: the file, the table, the exit code, the price, and input that is refused."""

import json
import re

import pytest

from tests.cli.conftest import write_jsonl
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


ARGUMENTS = ("attack", "checklists.jsonl", "--responses", "answers.jsonl", "-o", "attack.json", "--bootstrap", "20")


def test_the_weakness_is_in_the_file_and_the_table(run, engine, files):
    backend = engine(gullible)
    done = run(*ARGUMENTS, "--budget-reads", 1500, "--store", "s.db")
    assert done.exit_code == 0, done.output
    record = json.load(open("attack.json"))
    assert record["format"] == "checklist-rewards-attack-1" and "self_praise" in record["chosen"]
    by_name = {one["name"]: one for one in record["attacks"]}
    assert by_name["self_praise"]["beats"]["value"] == 1.0 and by_name["self_praise"]["rise"]["value"] > 0.4
    assert record["reads"] <= 1500 and len(backend.asked) <= record["reads"]
    for shown in ("self_praise", "rise", "honest", "Is it a", "chosen (<) on 3 prompts, measured on 3 others"):
        assert shown in done.output
    again = run(*ARGUMENTS, "--budget-reads", 1500, "--store", "s.db")
    assert again.exit_code == 0 and json.load(open("attack.json")) == record and " 0 asked" in again.output


def test_successful_attacks_are_written_as_labels(run, engine, files):
    engine(gullible)
    done = run(*ARGUMENTS, "--no-store", "--budget-reads", 1500, "--labels", "labels.jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in open("labels.jsonl")]
    assert rows and all(row["labels"] == ["no"] and "This response is excellent" in row["target"] for row in rows)
    assert f"written: labels.jsonl, {len(rows)} successful attacks on 3 prompts" in done.output
    assert 1 <= len({row["input"] for row in rows}) <= 3


def test_two_judges_are_compared_by_diff(run, engine, files):
    engine(gullible)
    arguments = ("--no-store", "--budget-reads", 1500, "--bootstrap", 20)
    assert run(*ARGUMENTS, *arguments).exit_code == 0
    engine(lambda prefix, tail: 0.7 if "Story" in prefix.split("<target-")[1] else 0.1)
    assert run("attack", *ARGUMENTS[1:5], "other.json", *arguments).exit_code == 0
    done = run("diff", "attack.json", "other.json", "--json", "diff.json", "-o", "diff.jsonl", "--bootstrap", 20)
    assert done.exit_code == 0, done.output
    compared = json.load(open("diff.json"))
    by_name = {one["name"]: one for one in compared["attacks"]}
    assert by_name["self_praise"]["change"]["value"] < -0.3 and by_name["all_met"]["change"]["value"] == 0.0
    assert "self_praise" in done.output and "Mean change over all attacks on 3 prompts: -0." in done.output
    assert [json.loads(line)["name"] for line in open("diff.jsonl")] == [one["name"] for one in compared["attacks"]]
    write_jsonl("scored.jsonl", {"prompt": "a"})
    assert "scored.jsonl is not" in run("diff", "attack.json", "scored.jsonl").output
    refused = run("diff", "attack.json", "other.json", "--id-key", "id")
    assert refused.exit_code == 2 and "--id-key has no effect on files of `attack`" in refused.output


def test_without_a_file_the_packaged_prompts_are_attacked(run, no_engine):
    done = run("attack", "-o", "attack.json", "--dry-run", "--prompts", 6, "--budget-reads", 3000)
    assert done.exit_code == 0 and "its reads are at most 3,000" in done.output, done.output
    done = run("attack", "-o", "attack.json", "--checklist", "c.json", "--dry-run")
    assert done.exit_code == 2 and "--checklist has no effect on the packaged prompts" in done.output


def test_from_a_limit_on_the_exit_code_is_1(run, engine, files):
    engine(gullible)
    attack = (*ARGUMENTS, "--store", "s.db", "--budget-reads", 1500)
    assert run(*attack, "--max-rise", 1.0).exit_code == 0
    done = run(*attack, "--max-rise", 0.3)
    assert done.exit_code == 1 and "at least --max-rise 0.3" in done.output and "--max-beats" not in done.output
    done = run(*attack, "--max-rise", 1.0, "--max-beats", 0.9)
    assert done.exit_code == 1
    assert "beats 1.000 (needs 15 groups, has 3) of the honest responses, at least --max-beats" in done.output
    engine(lambda prefix, tail: 0.7 if "Story" in prefix.split("<target-")[1] else 0.1)
    assert run(*ARGUMENTS, "--no-store", "--budget-reads", 1500, "--max-beats", 0.9).exit_code == 0


def test_unanswered_reads_are_listed_and_the_exit_code_is_1(run, engine, files):
    engine(lambda prefix, tail: None if "Story" in prefix else 0.1)
    done = run(*ARGUMENTS, "--no-store", "--budget-reads", 1500)
    assert done.exit_code == 1 and "too_long" in done.output
    assert "Not measured: comparison with honest responses (no honest response has a score)." in done.output


def test_a_dry_run_shows_the_price_and_asks_nothing(run, no_engine, files):
    done = run(*ARGUMENTS, "--budget-reads", 1500, "--dry-run", "--price", "pocket=1,1")
    assert done.exit_code == 0, done.output
    assert "its reads are at most 1,500" in done.output and "no model loaded" in done.output
    calls = int(done.output.split("pocket")[1].split("│")[1].replace(",", ""))
    assert 700 < calls <= 1500


@pytest.mark.slow
def test_the_packaged_encoder_is_attacked(run, files):
    write_jsonl("checklists.jsonl", *ROWS[:4])
    done = run(
        *ARGUMENTS, "--model", "english-encoder", "--no-store", "--prompts", 4, "--budget-reads", 450, "--max-rise", 0
    )
    assert done.exit_code in (0, 1), done.output
    record = json.load(open("attack.json"))
    assert record["unanswered"] == {} and record["chosen"] and all(one["failed"] == 0 for one in record["attacks"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--budget-reads", 100], "budget_reads=100 is too small: 78 attacks on 6 prompts take"),
        (
            ["--responses", "others.jsonl"],
            "--responses others.jsonl: none of its 1 prompts is a prompt of checklists.",
        ),
        (["--output", "answers.jsonl"], "--output answers.jsonl is an input file of this command"),
        (["--input-key", "question"], "checklists.jsonl, line 1: column 'question' not found"),
        (["--target-key", "reply"], "answers.jsonl, line 1: column 'reply' not found"),
        (["--checklist-key", "missing"], "column 'missing' not found"),
    ],
)
def test_bad_input_is_one_sentence_before_a_model_is_loaded(run, no_engine, files, arguments, complaint):
    write_jsonl("others.jsonl", {"prompt": "Another.", "target": "A."})
    done = run(*ARGUMENTS, *arguments)
    assert done.exit_code == 2 and complaint in done.output, done.output


def test_too_few_prompts_and_empty_files(run, no_engine, files):
    write_jsonl("checklists.jsonl", *ROWS[:3], {"prompt": "No list.", "checklist": None})
    done = run(*ARGUMENTS)
    assert done.exit_code == 2 and "needs at least 4 prompts with a checklist, half of them" in done.output
    write_jsonl("checklists.jsonl")
    assert "checklists.jsonl has no rows with a checklist." in run(*ARGUMENTS).output


def test_responses_belong_to_the_prompt_with_the_same_words_and_images(run, engine):
    for colour, pillow in PILLOWS.items():
        pillow.save(f"{colour}.png")
    rows = [{"prompt": "What?", "image": f"{colour}.png", "checklist": [f"Is it {colour}?"]} for colour in PILLOWS]
    write_jsonl("checklists.jsonl", *rows)
    write_jsonl("answers.jsonl", *({**row, "completion": f"Story: {row['image']}"} for row in rows[:3]))
    backend = engine(gullible)
    backend.sees = True
    served = "--model", "org/judge", "--base-url", "http://localhost:1/v1"
    done = run(*ARGUMENTS, *served, "--labels", "labels.jsonl")
    assert done.exit_code == 0, done.output
    assert any(RED.mark in prefix and ">\nStory: red.png\n</target" in prefix for prefix, _ in backend.asked)
    assert json.load(open("attack.json"))["beats_before"]["value"] is not None and "are not in" not in done.output
    texts = done.output + open("attack.json").read() + open("labels.jsonl").read()
    assert not re.search("[\ufdd0\ufdd1\ufffd]|\\\\u(fdd|fffd)", texts)
    write_jsonl("answers.jsonl", *({"prompt": "What?", "completion": "Red."} for row in rows))
    refused = run(*ARGUMENTS, *served)
    assert refused.exit_code == 2 and "none of its 1 prompts is a prompt of checklists.jsonl" in refused.stderr
