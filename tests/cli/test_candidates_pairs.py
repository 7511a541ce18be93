"""`pairs` as a user meets it: candidates in, preference rows and a card out."""

import json
from pathlib import Path

import pytest

from checklist_rewards.files.rows import read_rows
from tests.cli.conftest import read_jsonl, write_jsonl


def likes(prefix: str, tail: str) -> float | None:
    if "lost" in prefix and "big" in tail:
        return None
    return 0.1 + 0.2 * prefix.count("red" if "red" in tail else "big")


ROWS = (
    {"prompt": "Paint.", "checklist": ["Is it red?"], "candidates": ["plain", "red", "redred"]},
    {"prompt": "Draw.", "checklist": ["Is it red?", "Is it big?"], "candidates": ["red big", "plain"]},
    {"prompt": "Tie.", "checklist": ["Is it red?"], "candidates": ["plain", "simple"]},
    {"prompt": "One.", "checklist": ["Is it red?"], "candidates": ["plain"]},
)


def test_pairs_of_the_best_and_the_worst_and_a_card(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", *ROWS)
    done = run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store", "--summary", "sum.json")
    assert done.exit_code == 0, done.output
    first, second = read_jsonl("out.jsonl")
    assert (first["prompt"], first["chosen"], first["rejected"]) == ("Paint.", "redred", "plain")
    assert first["score_chosen"] == pytest.approx(0.5) and "margin" not in first
    assert (second["chosen"], second["rejected"], second["flipped"]) == ("red big", "plain", [])
    summary = json.loads(Path("sum.json").read_text())
    assert (summary["pairs"], summary["dropped_tie"], summary["dropped_too_few"]) == (2, 1, 1)
    card = Path("out.md").read_text()
    assert "2 pairs from 4 prompts" in card and "| tie | 1 |" in card and "the best against the worst" in card


def test_the_answers_are_judged_and_the_full_texts_are_written(run, engine):
    """Judged with its thought, the first candidate would be the chosen one."""
    fake = engine(likes)
    candidates = ["<think>red red red</think>plain", "<think>plain</think>red"]
    write_jsonl("rows.jsonl", {**ROWS[0], "candidates": candidates})
    assert run("pairs", "rows.jsonl", "-o", "out.parquet", "--no-store").exit_code == 0
    [row] = [found.data for found in read_rows("out.parquet")]
    assert (row["chosen"], row["rejected"]) == (candidates[1], candidates[0])
    assert not any("red red red" in prefix for prefix, _ in fake.asked)


def test_a_candidate_without_an_answer_is_rejected_or_left_out(run, engine):
    fake = engine(likes)
    write_jsonl("rows.jsonl", {**ROWS[0], "candidates": ["<think>red red", "plain"]})
    done = run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store")
    assert done.exit_code == 0 and "1 of 2 targets (1 cut_in_thought); scored as the lowest" in done.stderr
    [row] = read_jsonl("out.jsonl")
    assert (row["chosen"], row["rejected"]) == ("plain", "<think>red red") and row["score_rejected"] == 0.0
    assert len(fake.asked) == 1
    assert run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store", "--no-answer", "unscored").exit_code == 1
    assert read_jsonl("out.jsonl") == [] and "| too_few | 1 |" in Path("out.md").read_text()


def test_rlcf_keeps_the_clearest_pair_of_the_whole_file(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", *ROWS)
    arguments = ("--select", "rlcf", "--top-fraction", "0.5", "--card", "card.md")
    done = run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store", *arguments)
    assert done.exit_code == 0 and [row["prompt"] for row in read_jsonl("out.jsonl")] == ["Paint."]
    assert "| not_top | 1 |" in Path("card.md").read_text() and not Path("out.md").exists()


@pytest.mark.parametrize(
    ("form", "keys", "count"),
    [("dpo", {"chosen", "rejected"}, 1), ("reward", {"chosen", "margin"}, 1), ("kto", {"completion", "label"}, 2)],
)
def test_every_form_is_read_back_from_parquet(run, engine, form, keys, count):
    from datasets import load_dataset

    engine(likes)
    message = [{"role": "user", "content": "Paint."}]
    write_jsonl("rows.jsonl", {**ROWS[0], "prompt": message})
    assert run("pairs", "rows.jsonl", "-o", "out.parquet", "--form", form, "--no-store").exit_code == 0
    data = load_dataset("parquet", data_files="out.parquet", split="train", cache_dir="cache")
    assert len(data) == count and keys <= set(data.column_names) and data[0]["prompt"] == message


def test_a_lost_read_decides_no_pair_and_the_exit_code_is_1(run, engine):
    engine(likes)
    rows = {"prompt": "Draw.", "checklist": ["Is it red?", "Is it big?"], "candidates": ["red lost", "red big"]}
    write_jsonl("rows.jsonl", rows)
    done = run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store")
    assert done.exit_code == 1 and "too_long" in done.stderr
    assert read_jsonl("out.jsonl") == [] and "| tie | 1 |" in Path("out.md").read_text()


def test_a_row_without_a_checklist_is_told(run, engine):
    engine(likes)
    write_jsonl("rows.jsonl", ROWS[0], {**ROWS[1], "checklist": None})
    done = run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store")
    assert done.exit_code == 1 and len(read_jsonl("out.jsonl")) == 1
    assert "| no_checklist | 1 |" in Path("out.md").read_text()


@pytest.mark.parametrize(
    ("row", "arguments", "words"),
    [
        ({"candidates": "red"}, (), "candidates"),
        ({"candidates": []}, (), "the list of candidates is empty"),
        ({"prompt": None}, (), "the input is empty"),
        ({}, ("--min-margin", "2"), "min_margin=2.0"),
        ({}, ("--top-fraction", "0.5"), "requires select='rlcf'"),
        ({}, ("--card", "out.jsonl"), "choose a different file name"),
        ({}, ("-o", "out.csv"), "allowed: .jsonl, .parquet"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(run, no_engine, row, arguments, words):
    write_jsonl("rows.jsonl", {**ROWS[0], **row})
    done = run("pairs", "rows.jsonl", "-o", "out.jsonl", *arguments)
    assert done.exit_code == 2 and words in done.stderr
    assert not Path("out.jsonl").exists() and not Path("out.md").exists()
