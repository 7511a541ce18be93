"""Stored rows scored again, in Python."""

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Score
from checklist_rewards.backends import Engine
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.evaluation.replay import Replay, StoredRow, Weights, stored_checklist
from checklist_rewards.judges import LogprobJudge, ReasonedJudge
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from tests.fakes import FakeBackend
from tests.judges.fakes import Script

CHECKLIST = Checklist.parse(
    [{"question": "Is it red?", "weight": 3}, {"question": "Is it short?", "category": "form"}]
)


def row(*yes: float, rules: Aggregation | None = None, checklist: Checklist = CHECKLIST) -> StoredRow:
    verdicts = [Verdict({"yes": p, "no": 1 - p}, judge="old", method="logprobs") for p in yes]
    return StoredRow(Sample(checklist, "red"), score_checklist(checklist, verdicts, rules), "here")


def test_the_rules_of_the_stored_score_stay_unless_they_are_changed():
    stored = row(0.9, 0.3, rules=Aggregation(primary_metric="weighted", threshold=0.2))
    assert Replay().scores([stored]) == [(stored.score,)]
    [(score,)] = Replay(aggregation={"threshold": 0.5}).scores([stored])
    assert score.aggregation == Aggregation(primary_metric="weighted", threshold=0.5)
    assert score.primary_score == 0.75
    judge = LogprobJudge(Engine("fake", FakeBackend(lambda prefix, tail: 0.3)))
    [(score,)] = Replay(ChecklistScorer(judge=judge)).scores([stored])
    assert score.primary_score == 1.0 and score.aggregation == stored.score.aggregation


def test_a_row_without_answers_requires_a_judge():
    with pytest.raises(SampleError, match="here: the row has no stored answers; set --model"):
        Replay().check(StoredRow(Sample(CHECKLIST, "red"), None, "here"))


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


def test_weights_by_id_question_or_category():
    item = CHECKLIST.items[0]
    weights = Weights({item.id: 5, "Is it red?": 1, "form": 0.5, "tone": 2})
    assert [each.weight for each in weights.of(CHECKLIST, "here").items] == [5, 0.5]
    assert weights.unused == {"Is it red?", "tone"}
    with pytest.raises(SampleError, match="the weight of 'form' is 'high'; it must be a number"):
        Weights({"form": "high"})
    with pytest.raises(ChecklistError, match="every weight is 0"):
        Weights({"form": 0, item.id: 0}).of(CHECKLIST, "here")


def test_a_checklist_is_rebuilt_from_a_score_with_its_weights_and_gates():
    checklist = Checklist.parse([{"question": "Is it red?", "weight": -2, "required": True, "category": "colour"}])
    score = row(0.9, checklist=checklist).score
    assert stored_checklist(Score.model_validate(score.model_dump()), None, "here") == checklist


def test_options_of_unknown_values_are_refused():
    options = [{"label": "bad", "value": 0}, {"label": "good", "value": 1}]
    checklist = Checklist.parse([{"question": "How?", "options": options}])
    score = score_checklist(checklist, [Verdict({"bad": 0.2, "good": 0.8})])
    assert stored_checklist(score, checklist, "here") is checklist
    with pytest.raises(SampleError, match="here: item .* pass the checklist"):
        stored_checklist(score, None, "here")
