"""`--dry-run` against the bill: what is printed as "at most" is at least what the server charges."""

import json
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer, Sample
from tests.cli.test_scoring_pipelines import table
from tests.jsonl import read_jsonl, write_jsonl

TEXTS = ("Short.", "A longer text of some words, with <b>markup</b>, <|im_end|> and 日本語.", "One more. " * 40)
ROWS = [{"prompt": "Write.", "target": text, "checklist": ["Is it fine (yes)?", "Is it red (no)?"]} for text in TEXTS]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A table whose cells are not wrapped."""
    monkeypatch.setenv("COLUMNS", "200")


def forecast_and_bill(run, model, url, *options, rows=ROWS):
    """Prompt and reply tokens: at most by the dry run, and as the run was billed."""
    write_jsonl("rows.jsonl", *rows)
    command = ["score", "rows.jsonl", "-o", "out.jsonl", "--model", model, "--base-url", url, "--no-store", *options]
    shown = run(*command, "--dry-run")
    [line] = table(shown.stdout)
    run(*command, "--summary", "sum.json", code=(0, 1))
    receipt = json.loads(Path("sum.json").read_text())["receipt"]
    at_most = tuple(int(cell.replace(",", "")) for cell in line[3:5])
    return at_most, (receipt["prompt_tokens"], receipt["completion_tokens"]), shown.stdout


@pytest.mark.parametrize("options", [(), ("--mode", "batch"), ("--judge.capture-reasoning",)])
def test_a_server_that_bills_a_token_per_byte_bills_no_more_than_was_forecast(run, fault_server, options):
    at_most, billed, shown = forecast_and_bill(run, "dense", fault_server, *options)
    assert at_most[0] >= billed[0] > 0 and at_most[1] >= billed[1] > 0
    assert "The tokenizer of dense is not on this machine" in shown and "one token per byte" in shown


def test_a_long_checklist_in_mode_batch_is_forecast_with_the_requests_it_takes(run, fault_server):
    long = [f"Is it fine {number} (yes)?" for number in range(60)]
    rows = [{"prompt": "Write.", "target": "A text.", "checklist": long}]
    at_most, billed, shown = forecast_and_bill(run, "dense", fault_server, "--mode", "batch", rows=rows)
    receipt = json.loads(Path("sum.json").read_text())["receipt"]
    assert at_most[0] >= billed[0] > 0 and at_most[1] >= billed[1] > 0
    assert (table(shown)[0][2], receipt["calls"], receipt["asked"]) == ("3", 3, 60)


@pytest.mark.parametrize("model", ["off_label", "logprobs_refused"])
def test_reads_that_take_a_second_request_were_forecast_with_it(run, fault_server, model):
    at_most, billed, shown = forecast_and_bill(run, model, fault_server)
    assert at_most[0] >= billed[0] > 0 and at_most[1] >= billed[1] > 0 and "counted as two requests" in shown


def test_the_tokenizer_of_a_model_on_this_machine_counts_the_prompts_exactly(run, no_engine, pocket):
    write_jsonl("rows.jsonl", *ROWS)
    shown = run("score rows.jsonl -o out.jsonl --backend transformers --no-store --dry-run")
    [line] = table(shown.stdout)
    scorer = ChecklistScorer("pocket", backend=pocket, store=False)
    scorer.score_batch([Sample(row["checklist"], row["target"], row["prompt"]) for row in ROWS])
    assert int(line[3].replace(",", "")) == scorer.receipt.prompt_tokens and line[4] == "6"
    assert "a token per byte" not in shown.stdout
    assert f"does: about {scorer.receipt.floor_tokens:,} prompt tokens are computed then." in shown.stdout


def test_code_checks_alone_are_forecast_without_a_model(run, no_engine):
    checked = {"question": "Is it short?", "check": {"type": "words", "at_most": 9}}
    write_jsonl("rows.jsonl", *[row | {"checklist": [checked]} for row in ROWS])
    shown = run("score rows.jsonl -o out.jsonl --no-store --dry-run", with_model=False)
    assert table(shown.stdout) == [] and "3 rows. Dry run: no request was sent" in shown.stdout
    write_jsonl("rows.jsonl", *[row | {"checklist": [checked, *row["checklist"]]} for row in ROWS])
    run("score rows.jsonl -o out.jsonl --no-store --dry-run", refused="no model is named", with_model=False)


@pytest.mark.parametrize(("per", "samples"), [("item", 3), ("target", 1)])
def test_thoughts_and_the_reads_after_them_are_forecast(run, pocket, per, samples):
    write_jsonl("rows.jsonl", *ROWS)
    options = (
        f"--backend transformers --no-store --judge.thinking 16 --judge.thinking-per {per} --judge.votes {samples}"
    )
    [line] = table(run(f"score rows.jsonl -o out.jsonl {options} --dry-run").stdout)
    run(f"score rows.jsonl -o out.jsonl {options} --summary sum.json", code=(0, 1))
    receipt = json.loads(Path("sum.json").read_text())["receipt"]
    calls, prompt_tokens, reply_tokens = (int(cell.replace(",", "")) for cell in line[2:5])
    assert calls >= receipt["calls"] and calls == {"item": 6 + 6 * samples, "target": 3 + 6 * samples}[per]
    assert prompt_tokens >= receipt["prompt_tokens"] > 0
    assert reply_tokens >= receipt["completion_tokens"] > 6
    [first, *_] = read_jsonl("out.jsonl")
    assert all(item["reasoning"] is not None for item in first["checklist_score"]["items"])


@pytest.mark.parametrize("command", ["score rows.jsonl", "attack rows.jsonl --prompts 4 --budget-reads 1000"])
def test_a_dry_run_needs_no_store_that_can_be_written(run, no_engine, command, monkeypatch):
    write_jsonl("rows.jsonl", *({**row, "prompt": f"Write {n}."} for n, row in enumerate(ROWS * 2)))
    Path("file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", "file")
    for store in ((), ("--store", "file/s.sqlite")):
        assert "no model loaded, no file written" in run(f"{command} -o out.jsonl --dry-run", *store).stdout
        run(f"{command} -o out.jsonl", *store, refused="cannot be opened")


def test_a_decision_is_one_request(run):
    write_jsonl("rows.jsonl", ROWS[0])
    command = "score rows.jsonl -o out.jsonl --model m --base-url http://localhost:1/v1 --dry-run"
    assert "two requests" in run(command).output
    assert "two requests" not in run(f"{command} --backend decisions").output
