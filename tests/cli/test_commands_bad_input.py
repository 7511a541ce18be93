"""What bad input gets: one sentence with the place and what is allowed, exit code 2, nothing written or loaded."""

from pathlib import Path

import pytest

from checklist_rewards.files.rows import write_rows
from tests.jsonl import write_jsonl

GOOD = '{"input": "Say hi.", "target": "hi", "checklist": ["Is it short?"]}\n'

BAD_ROWS = {
    "malformed JSON": (GOOD + '{"target": "hi"', ["rows.jsonl, line 2", "not valid JSON"]),
    "no object": (GOOD + "[1]\n", ["rows.jsonl, line 2", "JSON object", "list [1]"]),
    "missing target": (
        '{"text": "hi", "checklist": ["a?"]}\n',
        ["line 1", "'target'", "'text', 'checklist'", "--target-key"],
    ),
    "missing checklist": ('{"target": "hi"}\n', ["line 1", "'checklist'", "--checklist-key"]),
    "missing input later": (GOOD + '{"target": "hi", "checklist": ["a?"]}\n', ["line 2", "'input'", "--input-key"]),
    "no input before": (
        '{"target": "hi", "checklist": ["a?"]}\n' + GOOD,
        ["line 2", "the row has an input in 'input', but the first row has no such column", "--input-key"],
    ),
    "unknown role": (
        GOOD + '{"input": "", "target": [{"role": "narrator", "content": "hi"}], "checklist": ["a?"]}\n',
        ["line 2, 'target'", "message 1", "unknown role 'narrator'", "user, human"],
    ),
    "an image": (
        '{"input": [{"role": "user", "content": [{"type": "image"}]}], "target": "", "checklist": ["a?"]}\n',
        ["line 1, 'input'", "1 image parts without an image", "0 images in the column"],
    ),
    "images beside the prompt": (
        '{"prompt": "What is it?", "images": ["a.png"], "target": "", "checklist": ["a?"]}\n',
        ["line 1, 'images'", "a.png' cannot be read"],
    ),
    "the input in the other column": (
        GOOD + '{"input": null, "prompt": "Say hi.", "target": "hi", "checklist": ["a?"]}\n',
        ["line 2", "an input in 'prompt', but none in 'input'", "--input-key input --input-key prompt"],
    ),
    "a column in another spelling": (
        '{" Prompt": "Say hi.", "target": "hi", "checklist": ["a?"]}\n',
        ["line 1", "would not see the column ' Prompt'", "rename it to 'prompt'", "--input-key"],
    ),
    "commas between objects": ('{"target": "a"},\n{"target": "b"}\n', ["line 1, column 16", "without commas"]),
    "target is a number": ('{"target": 7, "checklist": ["a?"]}\n', ["line 1", "'target'", "string", "int 7"]),
    "target is null": ('{"target": null, "checklist": ["a?"]}\n', ["line 1", "'target'", "NoneType"]),
    "input is a mapping": ('{"input": {"a": 1}, "target": "", "checklist": ["a?"]}\n', ["line 1", "'input'", "dict"]),
    "empty checklist": (GOOD + '{"input": "", "target": "hi", "checklist": []}\n', ["line 2", "empty"]),
    "checklist is a number": ('{"target": "hi", "checklist": 3}\n', ["line 1", "list of questions", "3"]),
    "blank question": ('{"target": "hi", "checklist": ["a?", " "]}\n', ["line 1", "item 2", "blank"]),
    "NaN weight": (
        '{"target": "hi", "checklist": [{"question": "a?", "weight": NaN}]}\n',
        ["line 1", "item 1", "nan"],
    ),
    "infinite weight": ('{"target": "", "checklist": [{"question": "a?", "weight": 1e999}]}\n', ["item 1", "inf"]),
    "unknown field": (
        '{"target": "", "checklist": [{"question": "a?", "wieght": 2}]}\n',
        ["wieght", "weight", "allowed"],
    ),
    "options": (
        '{"target": "", "checklist": [{"question": "a?", "options": [{"label": "low", "value": 0}, {"label": "low", '
        '"value": 1}]}]}\n',
        ["line 1", "have the same label"],
    ),
    "a code check": ('{"target": "", "checklist": [{"question": "a?", "check": "{}"}]}\n', ["line 1", "code check"]),
    "no rows": ("\n", ["rows.jsonl", "no rows"]),
    "not UTF-8": (b'{"target": "\xff"}\n', ["line 1", "UTF-8"]),
}


@pytest.mark.parametrize(("content", "words"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_by_line(run, no_engine, content, words):
    Path("rows.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    run("score rows.jsonl -o out.jsonl", refused=words)


BAD_OPTIONS = {
    "no such file": (["missing.jsonl", "-o", "out.jsonl"], ["missing.jsonl", "No such file"]),
    "unknown extension": (["rows.txt", "-o", "out.jsonl"], ["rows.txt", ".jsonl, .csv, .parquet"]),
    "unknown output": (["rows.jsonl", "-o", "out.xlsx"], ["out.xlsx", ".jsonl, .csv, .parquet"]),
    "no such model": (["rows.jsonl", "-o", "out.jsonl", "--model", "./none"], ["'./none'", "pocket"]),
    "no such prompt": (
        ["rows.jsonl", "-o", "out.jsonl", "--judge.prompt", "mine"],
        ["error: prompt not found: 'mine'", "judges/item"],
    ),
    "a bad prompt": (
        ["rows.jsonl", "-o", "out.jsonl", "--judge.prompt", "bad.md"],
        ["bad.md:1", "{question}", "last"],
    ),
    "no such input key": (["rows.jsonl", "-o", "out.jsonl", "--input-key", "ask"], ["'ask'", "'input', 'target'"]),
    "no checklist file": (["rows.jsonl", "-o", "out.jsonl", "--checklist", "c.json"], ["c.json", "No such file"]),
    "a bad checklist file": (["rows.jsonl", "-o", "out.jsonl", "--checklist", "bad.json"], ["bad.json", "empty"]),
    "store twice": (["rows.jsonl", "-o", "out.jsonl", "--store", "s", "--no-store"], ["--store s", "--no-store"]),
    "a store that is none": (
        ["rows.jsonl", "-o", "out.jsonl", "--store", "rows.jsonl"],
        ["rows.jsonl", "cannot be opened"],
    ),
    "a server without address": (["rows.jsonl", "-o", "out.jsonl", "--base-url", "here"], ["'here'", "not a URL"]),
    "threshold": (["rows.jsonl", "-o", "out.jsonl", "--threshold", "1.5"], ["threshold", "1.5"]),
    "threshold nan": (["rows.jsonl", "-o", "out.jsonl", "--threshold", "nan"], ["threshold", "nan"]),
    "metric": (["rows.jsonl", "-o", "out.jsonl", "--metric", "best"], ["metric", "best", "expected"]),
}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("score rows.jsonl -o out.jsonl --target-key text", "'text'"),
        ("generate rows.jsonl -o out.jsonl --reference-key none", "'none'"),
        ("run rows.jsonl -o out.jsonl --pipeline checkeval", "--source FILE"),
        ("rerank rows.jsonl -o out.jsonl", "'candidates'"),
        ("pairs rows.jsonl -o out.jsonl", "'candidates'"),
        ("refine rows.jsonl -o out.jsonl --checklist-key none", "'none'"),
        ("replay rows.jsonl -o out.jsonl --model pocket", "checklist_score"),
        ("inspect rows.jsonl --meta --model pocket --no-embed", "checklist_score"),
        ("attack rows.jsonl -o out.json --input-key none", "'none'"),
        ("improve bad.json --data rows.jsonl -o out.json --model pocket", "empty"),
        ("serve --model ./none", "'./none'"),
    ],
)
def test_a_refusal_makes_no_store(run, no_engine, command, words):
    Path("rows.jsonl").write_text(GOOD)
    Path("bad.json").write_text("[]")
    run(f"{command} --store new/s.sqlite", refused=words)


@pytest.mark.parametrize(("arguments", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_refused(run, no_engine, arguments, words):
    Path("rows.jsonl").write_text(GOOD)
    Path("bad.md").write_text("{question} {target}\n")
    Path("bad.json").write_text("[]")
    run("score", *arguments, refused=words)


def test_what_the_output_cannot_hold_is_refused_before_the_first_row_is_scored(run, no_engine):
    rows = [{"target": "hi", "checklist": ["a?"], "image": data} for data in (None, b"\x89PNG")]
    with write_rows("rows.parquet") as out:
        for row in rows:
            out.write(row)
    run("score rows.parquet -o out.jsonl", refused=["row 2, 'image'", "bytes", "a .parquet file"])
    Path("rows.jsonl").write_text('{"target": "hi", "checklist": ["a?"], "\\ud800": 1}\n')
    run("score rows.jsonl -o out.parquet", refused=["line 1", "'\\ud800'", "an unpaired surrogate"])


def test_every_row_is_checked_before_the_first_is_scored(run, no_engine):
    Path("rows.jsonl").write_text(GOOD * 600 + '{"input": "", "target": 5, "checklist": ["a?"]}\n')
    run("score rows.jsonl -o out.jsonl", refused=["line 601", "int 5"])


@pytest.mark.parametrize(
    ("row", "arguments", "words"),
    [
        ({"question": "hi"}, [], ["line 1", "'prompt'", "--input-key"]),
        ({"input": "  "}, [], ["line 1", "blank"]),
        ({"input": "a", "prompt": "b"}, ["--input-key", "input"], ["line 1", "also has a column 'prompt'"]),
        ({"input": "a"}, ["--writer.max-items", "1"], ["max_items=1", "min_items"]),
        ({"input": "a"}, ["--writer.prompt", "judges/item"], ["item.md:", "{target}", "generator"]),
    ],
)
def test_generate_refuses_what_asks_for_nothing(run, no_engine, row, arguments, words):
    write_jsonl("rows.jsonl", row)
    run("generate rows.jsonl -o out.jsonl", *arguments, refused=words)


@pytest.mark.parametrize(
    ("row", "arguments", "words"),
    [
        ({}, [], ["line 1", "'candidates'", "--policy.model"]),
        ({"candidates": []}, [], ["line 1", "list of candidates is empty"]),
        ({"candidates": ["a", 1]}, [], ["line 1", "candidate 2", "int 1"]),
        ({"candidates": ["a", "b"], "gold": [1]}, ["--gold-key", "gold"], ["line 1", "2 numbers"]),
        (
            {"candidates": ["a"]},
            ["--gold-key", "gold", "--policy.model", "pocket"],
            ["--gold-key gold", "--policy.model"],
        ),
        ({"candidates": ["a"]}, ["--policy.model", "./none"], ["'./none'"]),
        ({"candidates": ["a"]}, ["--policy.base-url", "http://x"], ["--policy.base-url", "requires --policy.model"]),
    ],
)
def test_rerank_refuses_what_it_cannot_rank(run, no_engine, row, arguments, words):
    write_jsonl("rows.jsonl", {"input": "Say hi.", "checklist": ["Is it short?"], **row})
    run("rerank rows.jsonl -o out.jsonl", *arguments, refused=words)


def test_run_refuses_before_writing_a_single_checklist(run, no_engine):
    write_jsonl("rows.jsonl", {"input": "a", "target": "b"}, {"input": "a", "target": None})
    run("run rows.jsonl -o out.jsonl", refused=["line 2", "'target'", "NoneType"])
    run("run rows.jsonl -o out.jsonl --writer.model ./none", refused=["line 2"])


def test_a_row_of_a_sheet_with_nothing_but_its_number_is_no_answer(run, no_engine):
    Path("rows.csv").write_text('id,prompt,target,checklist\n1,Say hi.,hi,"[""a?""]"\n2, ,,"[""a?""]"\n')
    run("score rows.csv -o out.jsonl", refused=["rows.csv, line 3", "'prompt', 'target' are blank"])


def test_columns_that_the_user_names_are_all_that_the_judge_sees(run, engine):
    fake = engine()
    row = {"prompt": "What is it?", "images": ["a.png"], "input": "other", "target": "hi", "checklist": ["a?"]}
    write_jsonl("rows.jsonl", row)
    run("score rows.jsonl -o out.jsonl --model pocket --input-key prompt --no-store --images ignore")
    assert len(fake.asked) == 1
    [prefix] = {prefix for prefix, _ in fake.asked}
    assert "What is it?" in prefix and "other" not in prefix
