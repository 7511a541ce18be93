"""What a command says at its end."""

import json
from dataclasses import replace

from checklist_rewards import ChecklistScorer
from checklist_rewards.cli.output import RunReport
from checklist_rewards.judges import PanelJudge
from tests.jsonl import read_jsonl, write_jsonl
from tests.judges.voters import DEAD, Voter, sure


def test_judges_of_a_panel_that_did_not_answer_are_told_though_every_item_is_answered(tmp_path, capsys):
    judges = [Voter(sure(0.9, judge="one")), Voter(sure(0.8, judge="two")), Voter(replace(DEAD, judge="three"))]
    report = RunReport("score")
    report.add(1, ChecklistScorer(judge=PanelJudge(judges)).score(["Is it short?", "Is it kind?"], "text"))
    assert report.finish(tmp_path / "out.jsonl", None, tmp_path / "sum.json") == 0
    assert "2 of 2 unanswered" in capsys.readouterr().err
    assert json.loads((tmp_path / "sum.json").read_text())["silent_votes"] == {"three": 2}


def test_a_command_whose_stderr_is_no_terminal_reports_progress_in_lines(run, engine):
    engine(lambda prefix, tail: 0.9 if "red" in tail else 0.2)
    write_jsonl("rows.jsonl", {"target": "a", "checklist": ["Is it red?", "Is it big?"]})
    assert "reads: 2 of 2 (100%), took" in run("score rows.jsonl -o s.jsonl --no-store").stderr
    labelled = ("s.jsonl", "--labels", "labels.jsonl", "--bootstrap", "20")
    write_jsonl("labels.jsonl", *[{"labels": [True, False]}, {"labels": [False, False]}] * 8)
    write_jsonl("s.jsonl", *read_jsonl("s.jsonl") * 16)
    assert "bootstrap draws: " in run("agree", *labelled).stderr
    assert "bootstrap draws: " in run("calibrate", *labelled, "-o", "map.json").stderr
