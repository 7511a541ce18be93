"""`distill` as a user meets it: labels in, a folder out that is a judge like any other."""

import json
import re
import sys
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer, Sample
from tests.encoders import compared, mentions, tiny_bert
from tests.jsonl import read_jsonl, write_jsonl


def write_labels(count=12):
    rows = [{"target": p.target, "question": p.question, "label": p.label, "group": p.group} for p in mentions(count)]
    write_jsonl("labels.jsonl", *rows)
    return rows


@pytest.mark.slow
def test_labels_become_a_judge_whose_card_tells_its_folds(run, tmp_path):
    rows = write_labels(16)
    base = tiny_bert(tmp_path / "base")
    how = "--folds 2 --epochs 8 --learning-rate 0.01 --bootstrap 20 --json out.json"
    done = run(f"distill labels.jsonl -o judge --base {base} {how}")
    # In a log every count is a line, with where training is.
    assert re.search(r"steps: 64 of 64 \(100%\), took .* s, all labels, epoch 8.00 of 8, loss 0\.\d{3}\n", done.stderr)
    assert "held-out pairs: 96 of 96 (100%)" in done.stderr and "bootstrap draws: 60, took" in done.stderr
    assert "96 pairs, 2 folds by group" in done.stdout and "auc" in done.stdout
    record = json.loads(Path("out.json").read_text())
    assert (record["pairs"], record["folds"], record["unread"], record["warning"]) == (96, 2, 0, None)
    kappa = record["held_out"]["kappa"]
    assert 0 < kappa["low"] <= kappa["value"] <= kappa["high"] <= 1
    card = Path("judge/README.md").read_text()
    assert "96 labelled pairs from `labels.jsonl`: 16 texts in 16 groups" in card
    assert "2-fold cross-validation by group" in card
    write_jsonl("rows.jsonl", {"target": rows[0]["target"], "checklist": [row["question"] for row in rows[:6]]})
    run("score rows.jsonl -o scored.jsonl --model judge --no-store")
    [row] = read_jsonl("scored.jsonl")
    assert row["checklist_score"]["answered"] == 6 and row["checklist_score"]["items"][0]["judge"] == "judge"
    # Its answers are labels in turn.
    run(f"distill scored.jsonl -o pupil --base {base} --folds 0 --epochs 1")
    assert "no labels were held out" in Path("pupil/README.md").read_text()


@pytest.mark.slow
def test_a_judge_that_learned_nothing_is_written_with_a_warning_and_exit_code_1(run, tmp_path):
    rows = write_labels()
    write_jsonl("labels.jsonl", *({**row, "label": number % 2} for number, row in enumerate(rows)))  # without a sense
    how = f"--base {tiny_bert(tmp_path / 'base')} --folds 2 --epochs 1 --bootstrap 20"
    done = run(f"distill labels.jsonl -o judge --json out.json {how}", code=1)
    warning = json.loads(Path("out.json").read_text())["warning"]
    assert re.fullmatch(r"On held-out groups, .* better than chance: AUC 0.*, kappa .*\.", warning)
    assert f"error: {warning} The judge was written to judge" in done.stderr
    assert f"**{warning}**" in Path("judge/README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("labels.jsonl -o labels.jsonl", "--output labels.jsonl exists but is not a model folder"),
        ("labels.jsonl -o judge --label-key votes", "line 1: column 'votes' not found"),
        ("labels.jsonl -o judge --folds 13", "12 groups for 13 folds"),
    ],
)
def test_what_cannot_be_distilled_is_one_sentence(run, arguments, said):
    write_labels()
    run(f"distill {arguments}", refused=said)
    assert not Path("judge").exists()


def test_a_library_of_the_held_out_figures_is_missed_before_the_training(run, monkeypatch):
    write_labels()
    monkeypatch.setitem(sys.modules, "krippendorff", None)
    words = "krippendorff: pip install 'checklist-rewards[encoder]'"
    run("distill labels.jsonl -o judge --base nowhere --folds 2", refused=words)
    assert not Path("judge").exists()


@pytest.mark.slow
def test_a_judge_trained_with_references_reads_those_of_the_rows_it_scores(run, tmp_path):
    names = ("target", "question", "label", "group", "input", "reference")
    write_jsonl("labels.jsonl", *({name: getattr(pair, name) for name in names} for pair in compared(100)))
    how = f"--base {tiny_bert(tmp_path / 'base')} --folds 0 --epochs 8 --learning-rate 0.005"
    run(f"distill labels.jsonl -o judge --json out.json {how}")
    assert json.loads(Path("out.json").read_text())["context"] == {"input": 100, "reference": 100}
    assert "the reference (100 of 100 pairs had one)" in Path("judge/README.md").read_text()
    question, target, references = "does it mention it ?", "red cat dog tree river", ["red", "blue", None]
    row = {"input": "lamp", "target": target, "checklist": [question]}
    write_jsonl("rows.jsonl", *({**row, "reference": reference} for reference in references))
    scorer = ChecklistScorer("judge", store=False)
    for options, read in (("--reference-key reference", references), ("", [None] * 3)):
        run(f"score rows.jsonl -o scored.jsonl --model judge --no-store {options}")
        found = [row["checklist_score"]["items"][0]["probabilities"]["yes"] for row in read_jsonl("scored.jsonl")]
        samples = [Sample([question], target, "lamp", reference) for reference in read]
        expected = [each.items[0].probabilities["yes"] for each in scorer.score_batch(samples)]
        assert found == pytest.approx(expected, abs=1e-6)
        assert [value > 0.5 for value in found] == [reference == "red" for reference in read]
