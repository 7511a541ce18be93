"""What a command may spend, and what it says at its end."""

import json
from dataclasses import replace
from pathlib import Path

from checklist_rewards import ChecklistScorer
from checklist_rewards.cli.output import RunReport
from checklist_rewards.judges import PanelJudge
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl, write_jsonl
from tests.judges.voters import DEAD, Voter, sure

PRICED = [{"prompt": "p", "target": f"text {number}", "checklist": ["Is it?"]} for number in range(300)]
PRICE = "pocket=0,1000000"  # a dollar per label


def score(run, more, **expected):
    return run(f"score rows.jsonl -o out.jsonl --store s.sqlite --price {PRICE} {more}", **expected)


def test_a_run_stops_and_goes_on(run, engine):
    write_jsonl("rows.jsonl", *PRICED)
    fake = engine(lambda prefix, tail: 0.9)
    run("score rows.jsonl -o o.jsonl --budget 1 --no-store --dry-run")  # which needs no prices
    done = score(run, "--budget 100", code=1)
    assert "over the budget" not in done.output
    answered = [row["checklist_score"]["answered"] for row in read_jsonl("out.jsonl")]
    assert sum(answered) == len(fake.asked) == 100  # not one more than can be paid
    assert "per read asked" not in done.output  # what was refused is no read that was paid
    assert "budget" in done.output and "rerun the command with a larger budget" in done.output
    done = score(run, "--budget 1000")
    assert "per read asked" in done.output and len(fake.asked) == 300


def test_an_overshoot_is_reported(run, engine):
    class Dear(FakeBackend):
        def read(self, groups, labels):
            answers, usage = super().read(groups, labels)
            return answers, replace(usage, completion_tokens=10 * len(groups))

    write_jsonl("rows.jsonl", *PRICED[:5])
    engine(backend=Dear(lambda prefix, tail: 0.9))
    done = score(run, "--budget 5 --summary sum.json", code=1)
    summary = json.loads(Path("sum.json").read_text())
    # The first read of a new store is asked by itself; it cost ten times its bound, and the others are not asked.
    assert (summary["US_dollars"], summary["US_dollars_over_the_budget"]) == (10, 5)
    assert "US dollars over the budget" in done.output


def test_the_judges_of_a_file_share_it(run, engine):
    write_jsonl("rows.jsonl", *PRICED)
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


def test_judges_of_a_panel_that_did_not_answer_are_told_though_every_item_is_answered(tmp_path, capsys):
    judges = [Voter(sure(0.9, judge="one")), Voter(sure(0.8, judge="two")), Voter(replace(DEAD, judge="three"))]
    report = RunReport("score")
    report.add(1, ChecklistScorer(judge=PanelJudge(judges)).score(["Is it short?", "Is it kind?"], "text"))
    assert report.finish(tmp_path / "out.jsonl", None, tmp_path / "sum.json") == 0
    assert "2 of 2 unanswered" in capsys.readouterr().err
    assert json.loads((tmp_path / "sum.json").read_text())["silent_votes"] == {"three": 2}


def test_a_command_whose_stderr_is_no_terminal_reports_progress_in_lines(run, engine):
    engine()
    write_jsonl("rows.jsonl", {"target": "a", "checklist": ["Is it red?", "Is it big?"]})
    assert "reads: 2 of 2 (100%), took" in run("score rows.jsonl -o s.jsonl --no-store").stderr
    write_jsonl("labels.jsonl", *[{"labels": [True, False]}, {"labels": [False, False]}] * 8)
    write_jsonl("s.jsonl", *read_jsonl("s.jsonl") * 16)
    assert "bootstrap draws: " in run("agree s.jsonl --labels labels.jsonl --bootstrap 20").stderr
