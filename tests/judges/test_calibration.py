"""Calibration as pure arithmetic: each map by hand, what stays as it is, and the file."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine, is_transient
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, ModelError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import LogprobJudge, Member
from checklist_rewards.judges.calibration import (
    Calibration,
    CalibrationMap,
    calibrated_probabilities,
    kind_of,
    reliability,
)
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.scores import Verdict, rescore, score_checklist
from tests.fakes import FakeBackend
from tests.judges.voters import Voter, sure

RED = ChecklistItem(question="Is it red?")
GRADED = ChecklistItem(question="How?", options=[{"label": label, "value": i / 2} for i, label in enumerate("abc")])
HOT = CalibrationMap(method="temperature", temperature=2, reads=10, threshold=0.3)
SAME = CalibrationMap(method="temperature", temperature=1, reads=1)
MOVED = CalibrationMap(method="platt", slope=1, intercept=math.log(3), reads=1)
KNOTS = ((-1.0, 0.2), (1.0, 0.6), (3.0, 0.9))
ISOTONIC = CalibrationMap(method="isotonic", knots=KNOTS, reads=1)


def yes(p: float, **more) -> Verdict:
    return Verdict({"yes": p, "no": 1 - p}, mass=0.7, judge="fake", method="logprobs", **more)


def calibration(map=HOT, judge="fake", read_by="logprobs", **more) -> Calibration:
    return Calibration(judge=judge, read_by=read_by, maps={"yes/no": map}, **more)


def p_yes(map: CalibrationMap, p: float, empty: float | None = None) -> float:
    bias = None if empty is None else {"yes": empty, "no": 1 - empty}
    return calibrated_probabilities(map, {"yes": p, "no": 1 - p}, bias)["yes"]


@pytest.mark.parametrize(
    ("map", "p", "empty", "expected"),
    [
        (HOT, 0.9, None, 0.75),  # odds 9 become their square root
        (MOVED, 0.25, None, 0.5),
        (SAME, 0.75, 0.75, 0.5),  # it says what it says of nothing
        (SAME, 0.75, 0.25, 0.9),  # odds 3 over odds 1/3
    ],
)
def test_maps_change_the_log_odds_and_the_empty_target_is_taken_away(map, p, empty, expected):
    assert p_yes(map, p, empty) == pytest.approx(expected)


@pytest.mark.parametrize(("odds", "expected"), [(-9, 0.2), (0, 0.4), (1, 0.6), (2, 0.75), (9, 0.9)])
def test_isotonic_goes_through_its_knots_and_is_flat_beyond(odds, expected):
    assert p_yes(ISOTONIC, 1 / (1 + math.exp(-odds))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("map", "raw", "empty", "expected"),
    [
        (HOT, (0.64, 0.32, 0.04), None, (0.51096, 0.3613, 0.12774)),  # square roots, renormalised
        (SAME, (0.6, 0.2, 0.2), (0.6, 0.3, 0.1), (3 / 11, 2 / 11, 6 / 11)),  # Zhao et al.: p / p_empty, renormalised
    ],
)
def test_options_are_calibrated_together(map, raw, empty, expected):
    bias = empty and dict(zip("abc", empty, strict=True))
    found = calibrated_probabilities(map, dict(zip("abc", raw, strict=True)), bias)
    assert tuple(found.values()) == pytest.approx(expected, abs=1e-4)


MAPS = st.sampled_from([HOT, MOVED, ISOTONIC]) | st.builds(
    CalibrationMap, method=st.just("platt"), slope=st.floats(0.01, 50), intercept=st.floats(-20, 20), reads=st.just(1)
)
MAPS |= st.builds(CalibrationMap, method=st.just("temperature"), temperature=st.floats(0.05, 20), reads=st.just(1))


@given(MAPS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_no_map_turns_an_order_around_and_all_give_probabilities(map, one, other, empty):
    bias = {"yes": empty, "no": 1 - empty}
    low, high = (calibrated_probabilities(map, {"yes": p, "no": 1 - p}, bias) for p in sorted((one, other)))
    assert low["yes"] <= high["yes"] + 1e-12
    assert all(0 <= p <= 1 for p in low.values()) and sum(low.values()) == pytest.approx(1)


def test_only_probabilities_change_and_the_raw_ones_are_kept_through_scoring_again():
    done = calibration().apply(RED, yes(0.9))
    assert done.probabilities["yes"] == pytest.approx(0.75)
    assert done.uncalibrated == {"yes": 0.9, "no": pytest.approx(0.1)}
    assert (done.mass, done.judge, done.method) == (0.7, "fake", "logprobs")
    checklist = Checklist(items=(RED,))
    score = score_checklist(checklist, [done])
    assert score.items[0].confidence == pytest.approx(0.75) and score.items[0].uncalibrated["yes"] == 0.9
    assert rescore(checklist, score).items[0] == score.items[0]


@pytest.mark.parametrize(
    "verdict",
    [
        yes(0.9, unanswered="off_label"),
        Verdict(answer="yes", judge="fake", method="word"),
        Verdict({"yes": 2 / 3, "no": 1 / 3}, answer="yes", judge="fake", method="votes"),
    ],
)
def test_what_was_not_answered_or_not_read_this_way_stays_as_it_is(verdict):
    assert calibration().apply(RED, verdict) is verdict


def test_probabilities_of_a_server_are_calibrated_alike():
    served = Verdict({"yes": 0.9, "no": 0.1}, judge="fake", method="top_logprobs")
    assert calibration().apply(RED, served).probabilities["yes"] == pytest.approx(0.75)


def test_without_the_empty_target_there_is_no_answer_rather_than_a_biased_one():
    lost = Verdict(unanswered="too_long", judge="fake", method="logprobs")
    done = calibration(contextual=True).apply(RED, yes(0.9), lost)
    assert done.unanswered == "uncalibrated: the empty target has no probabilities (too_long)"
    assert done.probabilities is None and done.uncalibrated["yes"] == 0.9
    off_label = yes(0.9, unanswered="off_label")  # its labels can be compared all the same
    assert calibration(contextual=True).apply(RED, yes(0.9), off_label).probabilities["yes"] == pytest.approx(0.5)


def test_the_file_gives_back_what_was_saved(tmp_path):
    isotonic = CalibrationMap(method="isotonic", knots=KNOTS, threshold=0.4, reads=30)
    maps, figures = {"yes/no": isotonic, "3 options": HOT}, {"yes/no": {"reads": 30}}
    saved = Calibration(judge="org/judgé", read_by="logprobs", contextual=True, maps=maps, figures=figures)
    saved.save(tmp_path / "map.json")
    assert Calibration.load(tmp_path / "map.json") == saved
    assert saved.threshold == 0.4 and [kind_of(item) for item in (RED, GRADED)] == ["yes/no", "3 options"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Invalid JSON"),
        ('{"judge": "j", "format": "calibration-9", "maps": {}}', "format"),
        ({"method": "platt", "slope": 1}, "a platt map requires intercept"),
        ({"method": "platt", "slope": -1, "intercept": 0}, "slope"),
        ({"method": "isotonic", "knots": [[1, 0.5], [2, 0.4]]}, "the knots of an isotonic map must increase"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path, text, words):
    if isinstance(text, dict):
        text = json.dumps({"judge": "j", "maps": {"yes/no": text | {"reads": 1}}})
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(SampleError, match=rf"map.json is not a calibration file: .*{re.escape(words)}"):
        Calibration.load(tmp_path / "map.json")
    with pytest.raises(SampleError, match="nowhere.json: cannot be read"):
        Calibration.load(tmp_path / "nowhere.json")


def test_reliability_in_ten_bins():
    bins = reliability([0.05, 0.95, 1.0, 0.5], [0, 1, 0, 1])
    assert [bin.count for bin in bins] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert (bins[9].confidence, bins[9].frequency) == (pytest.approx(0.975), 0.5)


# --- a judge with a calibration: what is asked, and what comes out ---------------------------------------------------


def says(prefix: str, tail: str) -> float:
    """Of a rose 0.9, of nothing 0.75."""
    return 0.9 if "rose" in prefix else 0.75


def fake() -> LogprobJudge:
    return LogprobJudge(Engine("fake", FakeBackend(says)))


ROSE = Sample([RED.question], "a rose")
TWO_OPTIONS = {"question": "How?", "options": [{"label": label, "value": i} for i, label in enumerate("ab")]}


def scorer(engine=None, store=False, **options) -> ChecklistScorer:
    return ChecklistScorer("fake", backend=engine or FakeBackend(says), store=store, **options)


def test_another_calibration_asks_nothing_again_and_that_of_another_judge_nothing_at_all(tmp_path):
    engine, store = FakeBackend(says), Store(tmp_path / "store.sqlite")
    for each in (None, calibration(), calibration(SAME)):
        scorer(engine, store=store, calibration=each).score_batch([ROSE])
    with pytest.raises(ModelError, match="fitted on reads of 'org/other', but the judge is 'fake'"):
        scorer(engine, calibration=calibration(judge="org/other")).score_batch([ROSE])
    assert len(engine.asked) == 1


def test_a_panel_checks_and_keeps_the_calibrations_of_its_judges():
    def scored(checklist, **settings):
        other = LogprobJudge(Engine("other", FakeBackend(says)))
        scorer = ChecklistScorer(judge=PanelJudge([other, Member(fake(), calibration(**settings))]))
        return scorer.score(checklist, "a rose"), scorer.receipt

    score, receipt = scored(["Is it red?"])
    assert score.expected_score == pytest.approx((0.9 + 0.75) / 2) and receipt.asked == 2
    assert [vote.uncalibrated for vote in score.items[0].votes] == [None, pytest.approx({"yes": 0.9, "no": 0.1})]
    assert scored(["Is it red?"], contextual=True)[1].asked == 3  # with the empty target
    with pytest.raises(ModelError, match="fitted on reads of 'org/other', but the judge is 'fake'"):
        scored(["Is it red?"], judge="org/other")
    with pytest.raises(ChecklistError, match="no map for 2 options items; it has yes/no"):
        scored([TWO_OPTIONS])


def test_the_fitted_threshold_stands_unless_another_is_given(tmp_path):
    calibration().save(tmp_path / "map.json")
    assert scorer(calibration=tmp_path / "map.json").aggregation.threshold == 0.3
    assert scorer(calibration=tmp_path / "map.json", threshold=0.8).aggregation.threshold == 0.8
    assert scorer(calibration=calibration(SAME)).aggregation.threshold == 0.6 == scorer().aggregation.threshold


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "batch"}, "needs mode='item'"),
        ({"capture_reasoning": True}, "read by logprobs, and these are read by votes"),
        ({"judge": Member(fake(), calibration())}, "cannot be combined with a judge that has a calibration"),
    ],
)
def test_a_calibration_of_answers_read_in_another_way_is_refused(settings, words):
    with pytest.raises(SampleError, match=words):
        ChecklistScorer(calibration=calibration(), **settings)


def test_an_item_without_a_map_is_refused_and_a_code_check_needs_none():
    with pytest.raises(ChecklistError, match="no map for 2 options items; it has yes/no"):
        scorer(calibration=calibration()).score([TWO_OPTIONS], "a rose")
    item = {"question": "Is it short?", "check": '{"type": "words", "at_most": 3}'}
    score = scorer(calibration=calibration()).score([item, "Is it red?"], "a rose")
    assert score.items[0].uncalibrated is None and score.items[1].uncalibrated is not None


def test_the_empty_target_is_read_once_for_all_targets_of_an_input():
    engine, done = FakeBackend(says), []
    scorer = ChecklistScorer(judge=Member(LogprobJudge(Engine("fake", engine)), calibration(SAME, contextual=True)))
    samples = [Sample([RED.question], f"rose {n}", "Describe it.") for n in range(3)]
    scores = scorer.score_batch(samples, progress=done.append)
    assert [score.items[0].probabilities["yes"] for score in scores] == [pytest.approx(0.75)] * 3  # odds 9 over odds 3
    assert len(engine.asked) == 4 and scorer.receipt.asked == 4 and sum(done) == 3  # progress counts no empty targets


@pytest.mark.parametrize(("empty", "transient"), [("backend_error: gone", True), ("refused", False)])
def test_what_the_engine_lost_of_the_empty_target_is_asked_for_again(empty, transient):
    judge = Voter(lambda read: sure(0.9) if read.target else Verdict(unanswered=empty), "fake")
    scorer = ChecklistScorer(judge=Member(judge, calibration(SAME, contextual=True)))
    [line] = scorer.score_batch([ROSE], retries=1)[0].items
    assert len(judge.asked) == (3 if transient else 2)
    reason = f"{empty.partition(':')[0]}: " if transient else ""
    assert line.unanswered == f"uncalibrated: {reason}the empty target has no probabilities ({empty})"
    assert is_transient(line.unanswered) == transient


def test_a_pipeline_config_has_a_place_for_it(tmp_path):
    calibration(judge="org/judge").save(tmp_path / "map.json")
    (tmp_path / "config.yaml").write_text("scorer: {calibration: map.json}\n")
    config = PipelineConfig.load(tmp_path / "config.yaml")  # whose judge it is not, is not known yet
    assert config.scorer.settings() == {"calibration": str(tmp_path / "map.json")}
