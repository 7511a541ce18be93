"""Labels by code, the pocket judge, agreement and a calibration: the whole way, small."""

import re

import pytest
from pocket.labelled import labelled_rows
from pocket.world import parse_question

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.datasets.table import BatchScore
from checklist_rewards.evaluation.agreement import compare, units_against_labels
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.calibration import fit_calibration, labelled_reads
from checklist_rewards.evaluation.labels import labelled
from checklist_rewards.evaluation.scored import read_scored


def test_labels_are_the_truth_by_code():
    rows = list(labelled_rows(5, seed=1))
    assert len(rows) == 15 and {row["task"] for row in rows} == {"0", "1", "2", "3", "4"}
    for row in rows:
        assert row["labels"] == [parse_question(question).holds(row["target"]) for question in row["checklist"]]
    assert rows == list(labelled_rows(5, seed=1)) != list(labelled_rows(5, seed=2))
    assert not re.search("None", str(rows))


@pytest.mark.slow
@pytest.mark.study
def test_the_pocket_judge_is_measured_and_calibrated_on_tasks_it_was_not_fitted_on(scorer, tmp_path):
    rows = list(labelled_rows(25, seed=11))
    scores = scorer.score_batch([Sample(row["checklist"], row["target"], row["prompt"]) for row in rows])
    BatchScore(scores, rows).to_jsonl(tmp_path / "scored.jsonl")
    judged = labelled(read_scored(tmp_path / "scored.jsonl", group_key="task"), "labels")
    units, targets = units_against_labels(judged)
    agreed = compare(("pocket", "code"), units, targets, Bootstrap(100), against_labels=True)
    assert agreed.items["yes/no"].figures["accuracy"].value > 0.9 and agreed.items["yes/no"].figures["kappa"].low > 0.7
    calibration, [report] = fit_calibration(labelled_reads(judged), bootstrap=Bootstrap(100))
    assert report.groups == 25 and report.after[report.method]["brier"].value < report.before["brier"].value + 0.005
    again = ChecklistScorer("pocket", backend="transformers", store=False, calibration=calibration)
    after = again.score(rows[0]["checklist"], rows[0]["target"], rows[0]["prompt"])
    raw = [line.probabilities for line in scores[0].items]
    assert [line.uncalibrated for line in after.items] == [pytest.approx(each, abs=1e-5) for each in raw]
