"""Code checks flatter no judge: every figure of a judge is the same with them and without them."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import app
from checklist_rewards.evaluation.agreement import (
    compare,
    compare_judges,
    compare_raters,
    units_against_labels,
    units_of_judges,
)
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.cascade_replay import replay
from checklist_rewards.evaluation.labels import Labels, pairs_of
from checklist_rewards.evaluation.scored import read_scored
from checklist_rewards.monitor.seen import seen_of
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.ui.report import report_data

LOGGED = {"prompt": "p", "completion": "red"}
CHECK = {"question": "Is it short?", "check": {"type": "words", "at_most": 9}}
JUDGED = ["Is it red?", "Is it kind?"]
NONE = Bootstrap(0)
P = [(0.9, 0.8), (0.7, 0.1), (0.2, 0.9), (0.1, 0.3)]
OTHER = [(0.8, 0.2), (0.9, 0.3), (0.4, 0.7), (0.7, 0.1)]
LABELS = [[1, 0], [1, 0], [0, 1], [1, 1]]
WAYS = {
    "the check alone": Verdict(answer="yes", judge="code", method="check"),
    "the mean of both": Verdict({"yes": 0.9, "no": 0.1}, judge="code+m", method="check"),
    "no file of methods": Verdict(answer="yes", judge="code"),
    "a check that failed": Verdict(unanswered="check_error: no", judge="code", method="check"),
}


def rows_of(path, reads, code=None, place=0):
    """A scored file of these P(yes), with the answer of a code check at a place of every row."""
    with path.open("w") as file:
        for number, (pair, labels) in enumerate(zip(reads, LABELS, strict=True)):
            entries, labels = list(JUDGED), list(labels)
            verdicts = [Verdict({"yes": p, "no": 1 - p}, judge="m", method="logprobs") for p in pair]
            if code is not None:
                for some, one in ((entries, CHECK), (verdicts, code), (labels, 1)):
                    some.insert(place, one)
            score = score_checklist(Checklist.parse(entries), verdicts).model_dump(mode="json")
            row = {"id": str(number), "target": f"text {number}", "checklist": entries, "labels": labels}
            file.write(json.dumps(row | {"checklist_score": score}) + "\n")
    return read_scored(path)


def labelled(rows):
    units, targets = units_against_labels(Labels().of(rows)[0])
    return units, compare(("judge", "labels"), units, targets, NONE, against_labels=True)


@pytest.mark.parametrize(("way", "place"), [(way, number % 3) for number, way in enumerate(WAYS)], ids=str)
def test_figures_of_items_are_over_the_answers_of_judges(tmp_path, way, place):
    code = WAYS[way]
    plain = [rows_of(tmp_path / f"{n}.jsonl", reads) for n, reads in enumerate((P, OTHER))]
    mixed = [rows_of(tmp_path / f"{n}c.jsonl", reads, code, place) for n, reads in enumerate((P, OTHER))]
    answered = 0 if code.unanswered else 4

    before, after = (labelled(files[0])[1] for files in (plain, mixed))
    assert (after.items, after.coverage, after.units) == (before.items, before.coverage, before.units)
    assert (before.code_checks, after.code_checks, after.code_checks_equal) == (0, answered, answered)

    before, after = (
        compare(("a", "b"), *units_of_judges(pairs_of(*files, ("a", "b"))[0])[:2], NONE, against_labels=False)
        for files in (plain, mixed)
    )
    assert (after.items, after.coverage) == (before.items, before.coverage)
    assert (after.code_checks, after.code_checks_equal) == (answered, answered)

    tests = [compare_judges(("a", "b"), *(labelled(rows)[0] for rows in files), NONE) for files in (plain, mixed)]
    assert tests[0] == tests[1]
    assert compare_raters(mixed, NONE) == compare_raters(plain, NONE)

    curves = [replay(list(zip(*files, strict=True)), margins=[0, 0.3, 1]) for files in (plain, mixed)]
    assert curves[0] == curves[1]

    shadows = [
        [
            seen_of(replace(row, kind="rewards", data=LOGGED | {"shadow": other.score})).shadow.agreement
            for row, other in zip(*files, strict=True)
        ]
        for files in (plain, mixed)
    ]
    assert shadows[0] == shadows[1]


def test_the_report_shows_the_same_figures(tmp_path):
    found = []
    for code in (None, WAYS["the check alone"]):
        names = [tmp_path / f"{n}.jsonl" for n in (0, 1)]
        for name, reads in zip(names, (P, OTHER), strict=True):
            rows_of(name, reads, code)
        found.append(report_data(names, labels=Labels(), intervals=NONE))
    before, after = found
    assert after["comparisons"][0]["comparison"]["items"] == before["comparisons"][0]["comparison"]["items"]
    for name in ("0.jsonl", "1.jsonl"):
        now, then = after["trust"][name], before["trust"][name]
        assert now["reliability"] == then["reliability"]
        assert now["sections"]["calibration"] == then["sections"]["calibration"]
        assert now["comparison"]["items"] == then["comparison"]["items"]
    questions = [question for question, *_ in after["comparisons"][0]["sections"]["items"]["rows"]]
    assert sorted(questions) == ["Is it kind?", "Is it red?", "Is it short? (code check)"]


def test_agree_tells_the_code_checks_apart(tmp_path):
    rows_of(tmp_path / "s.jsonl", P, WAYS["the check alone"])
    done = CliRunner().invoke(app, ["agree", str(tmp_path / "s.jsonl"), "--label-key", "labels", "--bootstrap", "0"])
    assert done.exit_code == 0, done.output
    assert "code checks: 4 of 4 agree (they count in target scores only)" in " ".join(done.output.split())
