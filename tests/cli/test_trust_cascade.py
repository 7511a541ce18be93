"""`cascade`: the margin of two judges, from what they have answered already."""

import json

import pytest

from tests.jsonl import read_jsonl, write_jsonl

ROWS = [
    {"id": name, "target": name, "checklist": ["Is it?"], "human": ["yes" if name < "c" else "no"]} for name in "abcd"
]
CHEAP = {"a": 0.99, "b": 0.55, "c": 0.02, "d": 0.65}
STRONG = {"a": 0.9, "b": 0.9, "c": 0.1, "d": 0.1}


@pytest.fixture
def files(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    for name, table in (("cheap.jsonl", CHEAP), ("strong.jsonl", STRONG)):
        engine(lambda prefix, tail, table=table: next(p for key, p in table.items() if f"\n{key}\n" in prefix))
        run(f"score rows.jsonl -o {name} --no-store")


def test_the_cheapest_margin_that_is_as_good(run, files):
    done = run("cascade cheap.jsonl strong.jsonl --label-key human --json curve.json --plot c.png")
    record = json.loads(open("curve.json").read())
    # b (margin .1) and d (margin .3) are the cheap judge's mistakes: sent on, all is right at half the price
    assert record["chosen"] == {"margin": 0.32, "escalated": 0.5, "cost": 0.5, "agreement": 1.0, "coverage": 1.0}
    assert record["curve"][0]["agreement"] == 0.5
    assert open("c.png", "rb").read(4) == b"\x89PNG"
    assert "margin: 0.32" in done.output


def test_rows_of_one_file_only_are_told(run, files):
    write_jsonl("fewer.jsonl", *read_jsonl("strong.jsonl")[:3])
    done = run("cascade cheap.jsonl fewer.jsonl")
    assert "1 rows are in one file only" in done.output
