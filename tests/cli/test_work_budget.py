"""`--budget`: a run stops where the money ends, lists what is missing, and goes on with more."""

import json
from dataclasses import replace
from pathlib import Path

from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl

ROWS = [{"prompt": "p", "target": f"text {number}", "checklist": ["Is it?"]} for number in range(300)]
PRICE = "pocket=0,1000000"  # a dollar per label


def score(run, more, **expected):
    return run(f"score rows.jsonl -o out.jsonl --store s.sqlite --price {PRICE} {more}", **expected)


def test_a_run_stops_and_goes_on(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    fake = engine(lambda prefix, tail: 0.9)
    done = score(run, "--budget 100", code=1)
    assert "over the budget" not in done.output
    answered = [row["checklist_score"]["answered"] for row in read_jsonl("out.jsonl")]
    assert sum(answered) == len(fake.asked) == 100  # not one more than can be paid
    assert "per read asked" not in done.output  # what was refused is no read that was paid
    assert "budget" in done.output and "rerun the command with a larger budget" in done.output
    done = score(run, "--budget 1000")
    assert "per read asked" in done.output and len(fake.asked) == 300


def test_a_dry_run_needs_no_prices(run, no_engine):
    write_jsonl("rows.jsonl", *ROWS[:1])
    run("score rows.jsonl -o o.jsonl --budget 1 --no-store --dry-run")


def test_an_overshoot_is_reported(run, engine):
    class Dear(FakeBackend):
        def read(self, groups, labels):
            answers, usage = super().read(groups, labels)
            return answers, replace(usage, completion_tokens=10 * len(groups))

    write_jsonl("rows.jsonl", *ROWS[:5])
    engine().read = Dear(lambda prefix, tail: 0.9).read
    done = score(run, "--budget 5 --summary sum.json", code=1)
    summary = json.loads(Path("sum.json").read_text())
    # The first read of a new store is asked by itself; it cost ten times its bound, and the others are not asked.
    assert (summary["US_dollars"], summary["US_dollars_over_the_budget"]) == (10, 5)
    assert "US dollars over the budget" in done.output
    done = run(f"score rows.jsonl -o out.jsonl --no-store --price {PRICE} --budget 4", code=1)
    assert "over the budget" in done.output


def test_the_judges_of_a_file_share_it(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    fake = engine(lambda prefix, tail: 0.9)
    Path("judges.yaml").write_text(
        "panel: {rule: mean}\njudges: [pocket, {model: pocket, prompt: judges/rocketeval}]\n"
    )
    done = score(run, "--judge judges.yaml --budget 256", code=1)
    assert len(fake.asked) == 256 and "rerun the command with a larger budget" in done.output
    done = score(run, "--judge judges.yaml --budget 300", code=1)  # the first judge is through, the second is not
    assert len(fake.asked) == 556 and "44 of 600 unanswered" in done.output
    score(run, "--judge judges.yaml --budget 44.5")
    assert len(fake.asked) == 600
