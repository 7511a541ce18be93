"""A judge with a calibration in front of a fake engine: what is asked, and what comes out."""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import is_transient
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ChecklistError, ModelError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Judge, LogprobJudge, Member
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.scores import Verdict
from tests.fakes import FakeBackend
from tests.judges.voters import Voter

HOT = CalibrationMap(method="temperature", temperature=2, reads=10, threshold=0.3)
SAME = CalibrationMap(method="temperature", temperature=1, reads=10)
RED = ChecklistItem(question="Is it red?")


def calibration(map=HOT, judge="fake", read_by="logprobs", contextual=False) -> Calibration:
    return Calibration(judge=judge, read_by=read_by, contextual=contextual, maps={"yes/no": map})


def says(prefix: str, tail: str) -> float | None:
    """Of a rose 0.9, of nothing 0.5 or, about bigness, no answer at all."""
    if "rose" not in prefix:
        return None if "big" in tail else 0.75
    return 0.9


def fake() -> LogprobJudge:
    return LogprobJudge("fake", backend=FakeBackend(says))


def scorer(engine=None, **options) -> ChecklistScorer:
    return ChecklistScorer("fake", backend=engine or FakeBackend(says), store=False, **options)


def verdicts_of(judge: Judge, calibration: Calibration, texts, *, input=None, **options) -> list[Verdict]:
    """What a scorer with a judge and its calibration finds about a red text."""
    samples = [Sample([RED.question], text, input) for text in texts]
    scores = ChecklistScorer(judge=Member(judge, calibration)).score_batch(samples, **options)
    return [score.items[0].verdict() for score in scores]


def test_a_scorer_answers_with_calibrated_probabilities():
    score = scorer(calibration=calibration()).score(["Is it red?"], "a rose")
    assert score.expected_score == pytest.approx(0.75)  # odds 9, temperature 2
    assert score.items[0].uncalibrated == pytest.approx({"yes": 0.9, "no": 0.1}) and score.items[0].mass == 1.0


def test_the_fitted_threshold_stands_unless_another_is_given(tmp_path):
    calibration().save(tmp_path / "map.json")
    assert scorer(calibration=tmp_path / "map.json").aggregation.threshold == 0.3
    assert scorer(calibration=tmp_path / "map.json", threshold=0.8).aggregation.threshold == 0.8
    assert scorer(calibration=calibration(SAME)).aggregation.threshold == 0.6 == scorer().aggregation.threshold


def test_a_calibration_of_another_judge_is_refused_before_anything_is_asked():
    engine = FakeBackend(says)
    with pytest.raises(ModelError, match="fitted on reads of 'org/other', but the judge is 'fake'"):
        scorer(engine, calibration=calibration(judge="org/other")).score(["Is it red?"], "a rose")
    assert not engine.asked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "batch"}, "needs mode='item'"),
        ({"capture_reasoning": True}, "read by logprobs, and these are read by votes"),
    ],
)
def test_a_calibration_of_answers_read_in_another_way_is_refused(options, words):
    with pytest.raises(SampleError, match=words):
        scorer(calibration=calibration(), **options)


def test_an_item_without_a_map_is_refused():
    graded = {"question": "How?", "options": [{"label": label, "value": i} for i, label in enumerate("ab")]}
    with pytest.raises(ChecklistError, match="no map for 2 options items; it has yes/no"):
        scorer(calibration=calibration()).score([graded], "a rose")


def test_a_code_check_needs_no_map_and_is_not_calibrated():
    item = {"question": "Is it short?", "check": '{"type": "words", "at_most": 3}'}
    score = scorer(calibration=calibration()).score([item, "Is it red?"], "a rose")
    assert score.items[0].uncalibrated is None and score.items[1].uncalibrated is not None


def test_the_empty_target_is_read_once_for_all_targets_of_an_input():
    engine = FakeBackend(says)
    scorer = ChecklistScorer(judge=Member(LogprobJudge("fake", backend=engine), calibration(SAME, contextual=True)))
    scores = scorer.score_batch([Sample([RED.question], f"rose {n}", "Describe it.") for n in range(3)])
    verdicts = [score.items[0] for score in scores]
    assert [verdict.probabilities["yes"] for verdict in verdicts] == [pytest.approx(0.75)] * 3  # odds 9 over odds 3
    assert len(engine.asked) == 4 and scorer.receipt.asked == 4


@pytest.mark.parametrize(
    ("empty", "transient"), [("timeout", True), ("backend_error: gone", True), ("refused", False)]
)
def test_what_the_engine_lost_of_the_empty_target_is_asked_for_again(empty, transient):
    def rule(read):
        return Verdict({"yes": 0.9, "no": 0.1}, method="logprobs") if read.target else Verdict(unanswered=empty)

    judge = Voter(rule, "fake")
    [verdict] = verdicts_of(judge, calibration(SAME, contextual=True), ["a rose"], retries=1)
    assert len(judge.asked) == (3 if transient else 2)
    reason = f"{empty.partition(':')[0]}: " if transient else ""
    assert verdict.unanswered == f"uncalibrated: {reason}the empty target has no probabilities ({empty})"
    assert is_transient(verdict.unanswered) == transient


@pytest.mark.parametrize(("method", "p"), [("logprobs", 0.75), ("top_logprobs", 0.75), ("votes", 0.9)])
def test_a_calibration_holds_for_answers_that_were_read_alike(method, p):
    judge = Voter(Verdict({"yes": 0.9, "no": 0.1}, "yes", method=method), "fake")
    [verdict] = verdicts_of(judge, calibration(), ["a rose"])
    assert verdict.probabilities["yes"] == pytest.approx(p)


def test_where_the_empty_target_cannot_be_read_the_item_is_unanswered():
    score = scorer(calibration=calibration(SAME, contextual=True)).score(["Is it red?", "Is it big?"], "a rose")
    assert score.items[1].unanswered == "uncalibrated: the empty target has no probabilities (too_long)"
    assert score.primary_score == score.items[0].confidence == pytest.approx(0.75)


def test_progress_counts_reads_and_no_empty_targets():
    done = []
    verdicts_of(fake(), calibration(SAME, contextual=True), ["a rose", "another rose"], progress=done.append)
    assert sum(done) == 2


def test_another_calibration_asks_nothing_again(tmp_path):
    engine = FakeBackend(says)
    store = Store(tmp_path / "store.sqlite")
    for each in (None, calibration(), calibration(SAME)):
        one = ChecklistScorer("fake", backend=engine, store=store, calibration=each)
        one.score(["Is it red?"], "a rose")
    assert len(engine.asked) == 1


def test_a_panel_of_calibrated_judges_keeps_their_raw_probabilities():
    panel = PanelJudge([LogprobJudge("other", backend=FakeBackend(says)), Member(fake(), calibration())])
    score = ChecklistScorer(judge=panel).score(["Is it red?"], "a rose")
    assert score.expected_score == pytest.approx((0.9 + 0.75) / 2)
    assert [vote.uncalibrated for vote in score.items[0].votes] == [None, pytest.approx({"yes": 0.9, "no": 0.1})]


def test_two_calibrations_of_one_judge_are_refused():
    with pytest.raises(SampleError, match="cannot be combined with a judge that has a calibration"):
        ChecklistScorer(judge=Member(fake(), calibration()), calibration=calibration())


def test_a_pipeline_config_has_a_place_for_it(tmp_path):
    from checklist_rewards.pipelines import PipelineConfig

    calibration(judge="org/judge").save(tmp_path / "map.json")
    (tmp_path / "config.yaml").write_text("scorer: {calibration: map.json}\n")
    config = PipelineConfig.load(tmp_path / "config.yaml")  # whose judge it is not, is not known yet
    assert config.scorer.settings() == {"calibration": str(tmp_path / "map.json")}
