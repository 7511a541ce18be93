"""Fitting: maps that can be worked by hand, thresholds, held-out figures, and what is refused."""

import math
import re

import numpy as np
import pytest

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.calibration import (
    LabelledRead,
    Probabilities,
    Reads,
    ThresholdChoice,
    fit_calibration,
    fit_map,
    labelled_reads,
    mapped,
)
from checklist_rewards.evaluation.scored import read_scored
from checklist_rewards.scores import Verdict
from tests.evaluation.files import LOST, NO_ANSWER, scored_file
from tests.evaluation.files import labelled as with_labels

RED = ChecklistItem(question="Is it red?")
GRADED = ChecklistItem(question="How?", options=[{"label": label, "value": i / 2} for i, label in enumerate("abc")])
NONE = Bootstrap(resamples=0)


def read(p: float, truth: bool, group: object = 0, empty: float | None = None) -> LabelledRead:
    about_nothing = None if empty is None else {"yes": empty, "no": 1 - empty}
    return LabelledRead(RED, {"yes": p, "no": 1 - p}, "yes" if truth else "no", str(group), about_nothing)


def overconfident(n: int = 400, sharpness: float = 3.0, seed: int = 0, shift: float = 0.0) -> list[LabelledRead]:
    """Reads whose log-odds are `sharpness` times what they should be, plus `shift`; ten to a group."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(0, 1.5, n)
    truths = rng.random(n) < 1 / (1 + np.exp(-odds))
    said = 1 / (1 + np.exp(-(sharpness * odds + shift)))
    return [read(float(p), bool(truth), i // 10) for i, (p, truth) in enumerate(zip(said, truths, strict=True))]


def test_temperatures_by_hand():
    # P(yes) .9 is right three times in four: the best temperature turns odds 9 into odds 3, and so is 2.
    reads = [read(0.9, True)] * 3 + [read(0.9, False)]
    map = fit_map(reads, "temperature")
    assert map.temperature == pytest.approx(2, rel=1e-3) and map.reads == 4
    assert mapped(map, reads[0])["yes"] == pytest.approx(0.75, abs=1e-3)
    # The label with P = .8 is right half of the time, the two with .1 a quarter each: 8^(1/T) = 2, so T = 3.
    reads = [LabelledRead(GRADED, {"a": 0.8, "b": 0.1, "c": 0.1}, label, "g") for label in "aabc"]
    assert fit_map(reads, "temperature").temperature == pytest.approx(3, rel=1e-3)
    # The judge says 0.9 of everything it knows nothing about, and the truth is even: the bias goes.
    reads = [read(0.9, i % 2 == 0, empty=0.9) for i in range(100)]
    assert mapped(fit_map(reads, "temperature"), reads[0])["yes"] == pytest.approx(0.5)


def test_platt_by_hand():
    # Two probabilities, so a line through two points: at odds 1 half are yes, at odds 9 nine tenths. Of many reads
    # Platt's smoothing leaves no trace.
    reads = [read(0.5, i % 2 == 0) for i in range(2000)] + [read(0.9, i % 10 > 0) for i in range(2000)]
    map = fit_map(reads, "platt")
    assert (map.slope, map.intercept) == (pytest.approx(1, abs=0.01), pytest.approx(0, abs=0.01))
    map = fit_map([read(0.9, True)] * 5 + [read(0.1, False)] * 5, "platt")  # finite where all reads are right
    assert 0 < map.slope < 10
    assert mapped(map, read(0.9, True))["yes"] == pytest.approx(6 / 7, abs=1e-3)  # (5 + 1) / (5 + 2), Platt's target


def test_isotonic_pools_what_is_out_of_order():
    # Truths by rising P(yes): 0 1 0 1; the middle two are out of order and become one half each.
    reads = [read(p, truth) for p, truth in ((0.2, False), (0.4, True), (0.6, False), (0.8, True))]
    map = fit_map(reads, "isotonic")
    assert [mapped(map, each)["yes"] for each in reads] == pytest.approx([0, 0.5, 0.5, 1])
    assert mapped(map, read(0.3, True))["yes"] == pytest.approx(0.25, abs=0.05)  # on the line between two knots


def test_a_threshold_for_f1_and_for_costs_by_hand():
    p, truth = np.array([0.1, 0.3, 0.5, 0.7, 0.9]), np.array([0.0, 1, 0, 1, 1])
    # F1 from .2 up: 3 of 4 are right, none missed, 6/7; from .6 up 4/5. From .2 to .3 is the middle .2.
    assert ThresholdChoice("f1").best(p, truth) == pytest.approx(0.2)
    # A wrong yes costs five: better to miss the yes at .3 than to take in the no at .5.
    assert ThresholdChoice("cost", 5, 1).best(p, truth) == pytest.approx(0.6)
    assert ThresholdChoice("cost", 1, 5).best(p, truth) == pytest.approx(0.2)
    assert ThresholdChoice("cost", 1, 1).best(np.array([0.2, 0.8]), np.array([0.0, 1])) == pytest.approx(0.5)
    assert ThresholdChoice("cost").best(np.array([0.2, 0.8]), np.array([0.0, 0])) == 1.0  # yes to nothing


def test_brier_ece_accuracy_and_f1_by_hand():
    p = [{"yes": each, "no": 1 - each} for each in (0.9, 0.8, 0.3, 0.1)]
    found = Probabilities(p, ["yes", "no", "no", "no"], [0.6] * 4).figures()
    assert found["brier"] == pytest.approx((0.01 + 0.64 + 0.09 + 0.01) / 4)
    assert found["ece"] == pytest.approx((0.1 + 0.8 + 0.3 + 0.1) / 4)  # each in a bin of its own
    assert (found["accuracy"], found["f1"]) == (0.75, pytest.approx(2 / 3))
    together = Probabilities([{"yes": 0.75, "no": 0.25}] * 4, ["yes", "yes", "yes", "no"], [0.6] * 4).figures()
    assert together["ece"] == pytest.approx(0)  # three in four, as it says
    found = Probabilities([{"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.1, "b": 0.1, "c": 0.8}], ["a", "b"]).figures()
    assert found["brier"] == pytest.approx(((0.25 + 0.09 + 0.04) + (0.01 + 0.81 + 0.64)) / 2 / 2)  # half
    assert found["ece"] == pytest.approx((0.5 + 0.8) / 2) and found["accuracy"] == 0.5 and "f1" not in found


def test_an_overconfident_judge_is_calibrated_on_groups_it_was_not_fitted_on():
    calibration, [report] = fit_calibration(Reads("j", "logprobs", tuple(overconfident())), bootstrap=Bootstrap(200))
    after = report.after[report.method]
    change = after["brier_change"]
    assert report.helped and change.value < -0.01 and change.refused == "needs 200 groups, has 40"
    assert after["ece"].value < report.before["ece"].value / 2
    assert report.after["temperature"]["brier"].value < report.before["brier"].value
    assert (report.reads, report.groups) == (400, 40)
    temperature = fit_map(overconfident(4000), "temperature").temperature
    assert temperature == pytest.approx(3, rel=0.1)  # what was put in
    assert calibration.figures["yes/no"]["after"]["brier"]["value"] == after["brier"].value
    _, [report] = fit_calibration(Reads("j", "logprobs", tuple(overconfident(400, 1.0))), bootstrap=NONE)
    assert abs(report.after["temperature"]["brier_change"].value) < 0.005  # nothing to calibrate


def test_figures_are_out_of_fold_and_a_group_is_never_on_both_sides():
    # Every group has a probability and a truth of its own: only who has seen the group can know it.
    reads = [read(0.5 + g / 1000, g % 2 == 0, g) for g in range(40) for _ in range(5)]
    _, [report] = fit_calibration(Reads("j", "logprobs", tuple(reads)), method="isotonic", bootstrap=NONE)
    assert report.after["isotonic"]["brier"].value > 0.2


def test_yes_no_and_options_have_maps_of_their_own_and_a_threshold_is_for_yes_and_no():
    rng = np.random.default_rng(6)
    options = []
    for i in range(60):
        raw = rng.dirichlet([1, 1, 1])
        label = str(rng.choice(list("abc"), p=raw))
        options.append(LabelledRead(GRADED, dict(zip("abc", raw.tolist(), strict=True)), label, str(i)))
    labelled = Reads("j", "logprobs", (*overconfident(), *options))
    calibration, reports = fit_calibration(labelled, method="platt", threshold=ThresholdChoice("f1"), bootstrap=NONE)
    assert {kind: map.method for kind, map in calibration.maps.items()} == {
        "yes/no": "platt",
        "3 options": "temperature",
    }
    assert 0 < calibration.threshold < 1 and calibration.maps["3 options"].threshold is None
    assert [set(report.after) for report in reports] == [{"platt"}, {"temperature"}]


@pytest.mark.parametrize(
    ("reads", "method", "words"),
    [
        (
            [read(0.9, True, g) for g in range(4)],
            None,
            "fitting a map needs labels of both yes and no, got only yes",
        ),
        ([read(0.9, True), read(0.2, False)], None, "all 2 labelled reads belong to one group"),
        ([read(0.1 if i % 2 else 0.9, i % 2 == 1, i) for i in range(40)], "platt", "is lower where the label is yes"),
    ],
)
def test_what_cannot_be_fitted_is_refused(reads, method, words):
    with pytest.raises(SampleError, match=re.escape(words)):
        fit_calibration(Reads("j", "logprobs", tuple(reads)), method=method, bootstrap=NONE)


@pytest.mark.parametrize("choice", [("accuracy", 1, 1), ("cost", 1, math.inf)])
def test_a_threshold_rule_that_makes_no_sense_is_refused(choice):
    with pytest.raises(SampleError):
        ThresholdChoice(*choice)


def labelled(path, empties=None):
    return labelled_reads(with_labels(read_scored(path), "labels"), empties)


def test_reads_come_from_scored_rows_and_those_without_probabilities_are_left_out(tmp_path):
    row = {"checklist": ["Is it red?", "Is it big?", "Is it old?"], "said": [0.9, LOST, "yes"], "labels": [1, 1, 1]}
    none = {"checklist": ["Is it red?"], "said": [NO_ANSWER], "labels": [True]}
    path = scored_file(tmp_path / "s.jsonl", row, none)
    found = labelled(path)
    assert (found.judge, found.read_by, found.left_out) == ("fake", "logprobs", 3)
    assert found.reads == (LabelledRead(found.reads[0].item, {"yes": 0.9, "no": pytest.approx(0.1)}, "yes", "1"),)
    path.write_text(path.read_text().replace('"uncalibrated": null', '"uncalibrated": {"yes": 0.99, "no": 0.01}', 1))
    assert labelled(path).reads[0].probabilities == {"yes": 0.99, "no": 0.01}  # raw ones


def test_a_read_whose_empty_target_was_not_read_is_left_out(tmp_path):
    path = scored_file(
        tmp_path / "s.jsonl", {"checklist": ["Is it red?", "Is it big?"], "said": [0.9, 0.9], "labels": [1, 1]}
    )
    red, big = read_scored(path)[0].keys
    empties = {("1", red): Verdict({"yes": 0.4, "no": 0.6}), ("1", big): Verdict(unanswered="too_long")}
    found = labelled(path, empties)
    assert [each.empty for each in found.reads] == [{"yes": 0.4, "no": 0.6}] and found.left_out == 1


def test_reads_of_two_judges_and_labels_without_any_probability_are_refused(tmp_path):
    row = {"checklist": ["Is it red?"], "said": [0.9], "labels": [1]}
    one, other = scored_file(tmp_path / "1.jsonl", row), scored_file(tmp_path / "2.jsonl", row, judge="other")
    (tmp_path / "both.jsonl").write_text(one.read_text() + other.read_text())
    with pytest.raises(SampleError, match="reads of 'fake' by logprobs .* and of 'other' by logprobs"):
        labelled(tmp_path / "both.jsonl")
    with pytest.raises(SampleError, match="no item has both a label and probabilities; 1 have only a label"):
        labelled(scored_file(tmp_path / "s.jsonl", row | {"said": ["yes"]}))
