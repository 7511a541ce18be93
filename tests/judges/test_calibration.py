"""Calibration as pure arithmetic: each map by hand, what stays as it is, and the file."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.calibration import (
    Calibration,
    CalibrationMap,
    calibrated_probabilities,
    kind_of,
    reliability,
)
from checklist_rewards.scores import Verdict, rescore, score_checklist

RED = ChecklistItem(question="Is it red?")
GRADED = ChecklistItem(question="How?", options=[{"label": label, "value": i / 2} for i, label in enumerate("abc")])
HOT = CalibrationMap(method="temperature", temperature=2, reads=10)
KNOTS = ((-1.0, 0.2), (1.0, 0.6), (3.0, 0.9))


def yes(p: float, **more) -> Verdict:
    return Verdict({"yes": p, "no": 1 - p}, mass=0.7, judge="j", method="logprobs", **more)


def calibration(map=HOT, **more) -> Calibration:
    return Calibration(judge="j", read_by="logprobs", maps={"yes/no": map}, **more)


def p_yes(map: CalibrationMap, p: float, empty: float | None = None) -> float:
    bias = None if empty is None else {"yes": empty, "no": 1 - empty}
    return calibrated_probabilities(map, {"yes": p, "no": 1 - p}, bias)["yes"]


def test_temperature_divides_the_log_odds():
    assert p_yes(HOT, 0.9) == pytest.approx(3 / (3 + 1))  # odds 9 become their square root
    cold = CalibrationMap(method="temperature", temperature=0.5, reads=1)
    assert p_yes(cold, 0.75) == pytest.approx(9 / 10)  # odds 3 become 9
    assert p_yes(cold, 0.5) == 0.5


def test_platt_moves_and_stretches_the_log_odds():
    moved = CalibrationMap(method="platt", slope=1, intercept=math.log(3), reads=1)
    assert p_yes(moved, 0.5) == pytest.approx(0.75) and p_yes(moved, 0.25) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("odds", "expected"), [(-9, 0.2), (-1, 0.2), (0, 0.4), (1, 0.6), (2, 0.75), (3, 0.9), (9, 0.9)]
)
def test_isotonic_goes_through_its_knots_and_is_flat_beyond(odds, expected):
    map = CalibrationMap(method="isotonic", knots=KNOTS, reads=1)
    assert p_yes(map, 1 / (1 + math.exp(-odds))) == pytest.approx(expected)


def test_options_are_tempered_together():
    raw = {"a": 0.64, "b": 0.32, "c": 0.04}
    roots = 0.8 + math.sqrt(0.32) + 0.2
    expected = {"a": 0.8 / roots, "b": math.sqrt(0.32) / roots, "c": 0.2 / roots}
    assert calibrated_probabilities(HOT, raw) == pytest.approx(expected)


def test_the_empty_target_is_taken_away():
    same = CalibrationMap(method="temperature", temperature=1, reads=1)
    assert p_yes(same, 0.75, empty=0.75) == pytest.approx(0.5)  # it says what it says of nothing
    assert p_yes(same, 0.75, empty=0.25) == pytest.approx(0.9)  # odds 3 over odds 1/3
    # Zhao et al.: p / p_empty, renormalised: 3 : 1 : 1.
    found = calibrated_probabilities(same, {"a": 0.6, "b": 0.2, "c": 0.2}, {"a": 0.2, "b": 0.2, "c": 0.2})
    assert found == pytest.approx({"a": 0.6, "b": 0.2, "c": 0.2})
    found = calibrated_probabilities(same, {"a": 0.6, "b": 0.2, "c": 0.2}, {"a": 0.6, "b": 0.2, "c": 0.2})
    assert found == pytest.approx(dict.fromkeys("abc", 1 / 3))


PROBABILITIES = st.floats(0, 1)
MAPS = st.one_of(
    st.builds(CalibrationMap, method=st.just("temperature"), temperature=st.floats(0.05, 20), reads=st.just(1)),
    st.builds(
        CalibrationMap,
        method=st.just("platt"),
        slope=st.floats(0.01, 50),
        intercept=st.floats(-20, 20),
        reads=st.just(1),
    ),
    st.just(CalibrationMap(method="isotonic", knots=KNOTS, reads=1)),
)


@given(MAPS, PROBABILITIES, PROBABILITIES, PROBABILITIES)
def test_no_map_turns_an_order_around_and_all_give_probabilities(map, one, other, empty):
    bias = {"yes": empty, "no": 1 - empty}
    low, high = (calibrated_probabilities(map, {"yes": p, "no": 1 - p}, bias) for p in sorted((one, other)))
    assert low["yes"] <= high["yes"] + 1e-12
    assert all(0 <= p <= 1 for p in low.values()) and sum(low.values()) == pytest.approx(1)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certainty_stays_finite(p):
    for map in (HOT, CalibrationMap(method="platt", slope=40, intercept=9, reads=1)):
        assert 0 <= p_yes(map, p, empty=0.5) <= 1


def test_only_probabilities_change_and_the_raw_ones_are_kept():
    done = calibration().apply(RED, yes(0.9))
    assert done.probabilities["yes"] == pytest.approx(0.75) and done.uncalibrated == {
        "yes": 0.9,
        "no": pytest.approx(0.1),
    }
    assert (done.mass, done.judge, done.method) == (0.7, "j", "logprobs")


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(unanswered="backend_error: gone", judge="j", method="logprobs"),
        yes(0.9, unanswered="off_label"),
        Verdict(answer="yes", judge="j", method="word"),
        Verdict({"yes": 2 / 3, "no": 1 / 3}, answer="yes", judge="j", method="votes"),
    ],
)
def test_what_was_not_answered_or_not_read_this_way_stays_as_it_is(verdict):
    assert calibration().apply(RED, verdict) is verdict


def test_without_the_empty_target_there_is_no_answer_rather_than_a_biased_one():
    lost = Verdict(unanswered="too_long", judge="j", method="logprobs")
    done = calibration(contextual=True).apply(RED, yes(0.9), lost)
    assert done.unanswered == "uncalibrated: the empty target has no probabilities (too_long)"
    assert done.probabilities is None and done.uncalibrated["yes"] == 0.9
    off_label = yes(0.9, unanswered="off_label")  # its labels can be compared all the same
    assert calibration(contextual=True).apply(RED, yes(0.9), off_label).probabilities["yes"] == pytest.approx(0.5)


def test_a_score_keeps_the_raw_probabilities_through_scoring_again():
    checklist = Checklist(items=(RED,))
    score = score_checklist(checklist, [calibration().apply(RED, yes(0.9))])
    assert score.items[0].confidence == pytest.approx(0.75) and score.items[0].uncalibrated["yes"] == 0.9
    assert rescore(checklist, score).items[0] == score.items[0]


def test_the_file_gives_back_what_was_saved(tmp_path):
    saved = Calibration(
        judge="org/judge",
        read_by="logprobs",
        contextual=True,
        maps={
            "yes/no": CalibrationMap(method="isotonic", knots=KNOTS, threshold=0.4, reads=30),
            "3 options": CalibrationMap(method="temperature", temperature=1.5, reads=12),
        },
        figures={"yes/no": {"reads": 30}},
    )
    saved.save(tmp_path / "map.json")
    assert Calibration.load(tmp_path / "map.json") == saved
    assert saved.threshold == 0.4 and [kind_of(item) for item in (RED, GRADED)] == ["yes/no", "3 options"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Invalid JSON"),
        ('{"judge": "j", "maps": {}}', "maps: "),
        (
            '{"judge": "j", "maps": {"yes/no": {"method": "platt", "slope": 1, "reads": 1}}}',
            "a platt map requires intercept",
        ),
        ('{"judge": "j", "maps": {"yes/no": {"method": "platt", "slope": -1, "intercept": 0, "reads": 1}}}', "slope"),
        (
            '{"judge": "j", "maps": {"yes/no": {"method": "isotonic", "knots": [[1, 0.5], [2, 0.4]], "reads": 1}}}',
            "the knots of an isotonic map must increase",
        ),
        ('{"judge": "j", "format": "calibration-9", "maps": {}}', "format"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path, text, words):
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(SampleError, match=rf"map.json is not a calibration file: .*{re.escape(words)}"):
        Calibration.load(tmp_path / "map.json")


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    text = '{"judge": "é", "maps": {"yes/no": {"method": "temperature", "temperature": 1, "reads": 1}}}'
    (tmp_path / "map.json").write_text(text, "utf-8-sig")
    assert Calibration.load(tmp_path / "map.json").judge == "é"


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SampleError, match="nowhere.json: cannot be read"):
        Calibration.load(tmp_path / "nowhere.json")


def test_reliability_in_ten_bins():
    bins = reliability([0.05, 0.95, 1.0, 0.5], [0, 1, 0, 1])
    assert [bin.count for bin in bins] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert (bins[9].confidence, bins[9].frequency) == (pytest.approx(0.975), 0.5)


def test_saving_where_no_file_can_be_written_is_one_sentence(tmp_path):
    with pytest.raises(SampleError, match="cannot be written, it is a folder"):
        Calibration(judge="j", maps={"yes/no": {"method": "temperature", "temperature": 1, "reads": 1}}).save(tmp_path)
