"""Stored rows scored again, in Python."""

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Score
from checklist_rewards.backends import Engine
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.replay import Replay
from checklist_rewards.evaluation.scored import ScoredText, stored_checklist
from checklist_rewards.judges import LogprobJudge, ReasonedJudge
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from checklist_rewards.scores.scales import on_scale, ordinal_scale
from tests.evaluation.files import score_of
from tests.fakes import FakeBackend
from tests.judges.fakes import Script

CHECKLIST = Checklist.parse(
    [{"question": "Is it red?", "weight": 3}, {"question": "Is it short?", "category": "form"}]
)


def stored_text(sample: Sample, score: Score | None = None) -> ScoredText:
    return ScoredText("1", "here", score, sample=sample)


def row(*yes: float, checklist: Checklist = CHECKLIST, **rules: object) -> ScoredText:
    return stored_text(Sample(checklist, "red"), score_of(checklist, *yes, judge="old", **rules))


def test_the_rules_of_the_stored_score_stay_unless_they_are_changed():
    stored = row(0.9, 0.3, primary_metric="weighted", threshold=0.2)
    assert Replay().scores([stored]) == [(stored.score,)]
    [(score,)] = Replay(aggregation={"threshold": 0.5}).scores([stored])
    assert score.aggregation == Aggregation(primary_metric="weighted", threshold=0.5)
    assert score.primary_score == 0.75
    judge = LogprobJudge(Engine("fake", FakeBackend(lambda prefix, tail: 0.3)))
    [(score,)] = Replay(ChecklistScorer(judge=judge)).scores([stored])
    assert score.primary_score == 1.0 and score.aggregation == stored.score.aggregation


def test_a_row_without_answers_requires_a_judge():
    with pytest.raises(SampleError, match="here: the row has no stored answers; set --model"):
        Replay().check(stored_text(Sample(CHECKLIST, "red")))


@pytest.mark.parametrize(
    ("calibration", "complaint"),
    [
        ({"judge": "new"}, "the answers are those of 'old', but the calibration was fitted on 'new'"),
        (
            {"judge": "old", "read_by": "votes"},
            "the answers were read by logprobs, .* fitted on answers read by votes",
        ),
        ({"judge": "old", "contextual": True}, "contextual calibration requires a judge"),
        ({"judge": "old", "maps": {"3 options": None}}, "the calibration has no map for yes/no items"),
    ],
)
def test_a_calibration_that_does_not_fit_is_refused(calibration, complaint):
    cold = CalibrationMap(method="temperature", temperature=2, reads=9)
    maps = dict.fromkeys(calibration.pop("maps", {"yes/no": None}), cold)
    with pytest.raises(SampleError, match=complaint):
        Replay(calibration=Calibration(maps=maps, **({"read_by": "logprobs"} | calibration))).check(row(0.9, 0.3))


def test_a_sampled_judge_is_sampled_again_and_all_repeats_are_paid():
    engine = Script(lambda messages: "yes")
    judge = ReasonedJudge(Engine("fake", engine), reasoning=False, temperature=1.0)
    replay = Replay(ChecklistScorer(judge=judge), repeats=3)
    [scores] = replay.scores([row(0.1, 0.1)])
    assert [score.primary_score for score in scores] == [1, 1, 1]
    assert replay.receipt.asked == 6 and len({sampling.seed for sampling in engine.samplings}) == 3


def test_a_checklist_is_rebuilt_from_a_score_with_its_weights_gates_and_scale():
    checklist = Checklist.parse([{"question": "Is it red?", "weight": -2, "required": True, "category": "colour"}])
    score = row(0.9, checklist=checklist).score
    assert stored_checklist(Score.model_validate(score.model_dump()), None, "here") == checklist
    options = [{"label": "bad", "value": 0}, {"label": "good", "value": 1}]
    checklist = Checklist.parse([{"question": "Good?", "options": options}])
    score = score_checklist(checklist, [Verdict({"bad": 0.2, "good": 0.8})])
    assert stored_checklist(score, checklist, "here") == checklist
    with pytest.raises(SampleError, match="here: item .* pass the checklist"):
        stored_checklist(score, None, "here")
    plain = Checklist.parse(["Good?", "Good?"])
    scaled = on_scale(plain, ordinal_scale(3))
    even = {option.label: 1 / 3 for option in ordinal_scale(3)}
    assert stored_checklist(score_checklist(scaled, [Verdict(even)] * 2), plain, "here") == scaled


def without_answer(state="cut_in_thought", rule="lowest", stored: Aggregation | None = None) -> ScoredText:
    rules = stored or Aggregation(no_answer=rule)
    score = score_checklist(CHECKLIST, [Verdict(unanswered=f"no_answer: {state}")] * 2, rules, state=state)
    return stored_text(Sample(CHECKLIST, ""), Score.model_validate(score.model_dump()))


def asking(p=0.9, **settings):
    backend = FakeBackend(lambda prefix, tail: p)
    return backend, ChecklistScorer(judge=LogprobJudge(Engine("fake", backend)), **settings)


@pytest.mark.parametrize(("state", "repeats"), [("empty", 1), ("cut_in_thought", 2)])
def test_a_text_without_an_answer_is_not_sent_to_another_judge(state, repeats):
    backend, scorer = asking()
    stored = without_answer(state)
    again = Replay(scorer, repeats=repeats)
    assert again.check(stored) == 0 and again.check(row(0.9, 0.9)) == 2 * repeats
    none, judged = again.scores([stored, row(0.1, 0.1)])
    assert none == (stored.score,) * repeats and none[0].primary_score == 0 and none[0].state == state
    assert judged[0].primary_score == pytest.approx(0.9) and len(backend.asked) == 2 * repeats
    assert Replay().scores([stored]) == [(stored.score,)]


def test_what_no_answer_is_worth_can_be_changed():
    stored = without_answer()
    for replay in (Replay, lambda **changes: Replay(asking()[1], **changes)):
        [(score,)] = replay(aggregation={"no_answer": "unscored"}).scores([stored])
        assert score.primary_score is None and score.state == "cut_in_thought" and score.no_answer
    with pytest.raises(SampleError, match="here: no judge has read this text, because it has no answer .cut_in"):
        Replay(aggregation={"no_answer": "judge"}).check(stored)
    backend, scorer = asking(0.7)
    for row_of, changes in ((stored, {"no_answer": "judge"}), (without_answer(rule="judge"), {})):
        [(score,)] = Replay(scorer, changes).scores([row_of])
        assert score.primary_score == pytest.approx(0.7) and score.state == "cut_in_thought"
    assert len(backend.asked) == 4


def test_an_empty_text_that_a_judge_has_read_keeps_its_score_unless_that_is_changed():
    stored = stored_text(Sample(CHECKLIST, ""), row(0.9, 0.9).score)  # written before states were recorded
    old = Score.model_validate({k: v for k, v in stored.score.model_dump().items() if k != "state"})
    stored = stored_text(Sample(CHECKLIST, ""), old)
    [(score,)] = Replay().scores([stored])
    assert score.primary_score == old.primary_score == pytest.approx(0.9) and score.state == "empty"
    [(score,)] = Replay(aggregation={"no_answer": "lowest"}).scores([stored])
    assert score.primary_score == 0 and score.no_answer
    backend, scorer = asking()
    [(score,)] = Replay(scorer).scores([stored])
    assert score.primary_score == 0 and not backend.asked


def test_the_recorded_state_counts_and_a_text_without_an_answer_keeps_its_lowest_grade():
    stored = without_answer(stored=Aggregation(primary_metric="quality"))
    assert stored.score.quality == 1 and stored.score.primary_score == 0
    assert Replay().scores([stored]) == [(stored.score,)]
    answered = score_checklist(CHECKLIST, [Verdict({"yes": 0.9, "no": 0.1})] * 2)
    assert stored_text(Sample(CHECKLIST, "red", state="cut_in_thought"), answered).sample.state == "answered"
    assert stored_text(Sample(CHECKLIST, "red", state="cut")).sample.state == "cut"


def test_a_repeated_question_keeps_both_of_its_answers_and_only_the_others_are_asked():
    stored = row(0.9, 0.3, 0.2, checklist=Checklist.parse(["Is it red?", "Is it short?", "Is it red?"]))
    assert Replay().scores([stored]) == [(stored.score,)]
    checked = {"question": "Short?", "id": "s"}  # its check was lost
    checklist = Checklist.parse([checked, "Is it red?", checked])
    answers = [Verdict(answer="yes", method="check"), Verdict(answer="no"), Verdict(answer="no", method="check")]
    replay = Replay(asking(store=False)[1])
    stored = stored_text(Sample(checklist, "red"), score_checklist(checklist, answers))
    assert replay.check(stored) == 1
    [(score,)] = replay.scores([stored])
    assert [line.answer for line in score.items] == ["yes", "yes", "no"]
