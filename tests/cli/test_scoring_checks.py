"""Code checks on the command line: who answers, what is refused, what is allowed."""

import pytest

from tests.jsonl import read_jsonl, write_jsonl

SHORT = {"question": "Does the response have exactly 2 sentences?", "check": '{"type": "sentences", "exactly": 2}'}
CODE = {"question": "Does the code run?", "check": '{"type": "code"}'}


def rows(*checklists):
    write_jsonl("rows.jsonl", *({"prompt": "p", "target": "One. Two.", "checklist": items} for items in checklists))


def lines():
    return [item for row in read_jsonl("out.jsonl") for item in row["checklist_score"]["items"]]


def test_checks_are_answered_without_a_model(run, no_engine):
    rows([SHORT])
    run("score rows.jsonl -o out.jsonl")
    [line] = lines()
    assert (line["answer"], line["judge"], line["method"], line["confidence"]) == ("yes", "code", "check", None)


def test_the_mean_of_check_and_judge(run):
    rows([SHORT], [SHORT | {"check": '{"type": "sentences", "exactly": 3}'}])
    run("score rows.jsonl -o out.jsonl --checks mean")
    yes, no = lines()
    assert yes["probabilities"]["yes"] - no["probabilities"]["yes"] == pytest.approx(
        0.5
    )  # the judge said the same to both
    assert yes["judge"] == "code+pocket"


def test_code_runs_only_where_it_is_allowed(run, no_engine):
    rows([CODE])
    run("score rows.jsonl -o out.jsonl", refused="--allow-code")
    run("score rows.jsonl -o out.jsonl --allow-code")
    assert [line["answer"] for line in lines()] == ["no"]  # "One. Two." is no Python


def test_code_runs_in_a_plain_process_only_where_the_user_says_so(run, no_engine, monkeypatch):
    monkeypatch.setattr("checklist_rewards.checks.sandbox.unavailable", lambda: "wasmtime is not installed")
    rows([CODE])
    run("score rows.jsonl -o out.jsonl --allow-code", refused=["wasmtime is not installed", "--allow-unsafe-code"])
    run("score rows.jsonl -o out.jsonl --allow-unsafe-code")
    assert [line["answer"] for line in lines()] == ["no"]
