"""Variants of a question: the same item asked in other words, with its labels in another order, or sampled again."""

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import open_store
from checklist_rewards.judges import FewShot, Labelled, LogprobJudge, Member, PanelJudge, ReasonedJudge
from checklist_rewards.judges.calibration import Calibration, CalibrationMap
from checklist_rewards.judges.variants import MOST_REPEATS, how_repeated, variant_of
from tests.fakes import FakeBackend
from tests.judges.fakes import Lettered, Script, options

POLITE = ChecklistItem(question="Is it polite?", weight=-2, category="tone", required=True)
GRADED = ChecklistItem(question="How polite is it?", options=options(**{"0": 0, "1": 0.5, "2": 1}))
SCALE = ChecklistItem(question="How polite is it?", options=options(rude=0, neutral=0.5, polite=1))


def one_token(backend=None, **settings):
    return LogprobJudge(Engine("fake", backend or FakeBackend()), **settings)


def turned(prefix, tail):
    """P(yes) is 0.9 where the labels are turned around, and 0.2 otherwise."""
    return 0.9 if "No or yes" in tail else 0.2


def asked_again(judge, number, item=POLITE):
    """The answer of a judge to an item in the repeat `number`."""
    [line] = ChecklistScorer(judge=judge).repeated(number).score([item], "Thank you.").items
    return line


def test_every_variant_is_another_question_with_the_same_meaning_for_the_score():
    variants = [variant_of(POLITE, number) for number in range(MOST_REPEATS)]
    assert variants[0] is POLITE
    assert len({variant.question for variant in variants}) == MOST_REPEATS
    for variant in variants:
        assert POLITE.question in variant.question
        assert variant.model_dump(exclude={"question"}) == POLITE.model_dump(exclude={"question"})
    assert ["No or yes" in variant.question for variant in variants[:4]] == [False, True, False, True]
    assert [list(variant_of(GRADED, number).values) for number in (1, 2)] == [["2", "1", "0"], ["0", "1", "2"]]
    assert "Is {question} in it?" in variant_of(ChecklistItem(question="Is {question} in it?"), 3).question
    checked = ChecklistItem(question="Short?", check='{"kind": "max_words", "value": 3}')
    assert variant_of(checked, 5) is checked  # a code check is not reworded


def test_an_unknown_variant_is_refused():
    for number in (-1, MOST_REPEATS, 1.5):
        with pytest.raises(SampleError, match="allowed: 0 to 7"):
            variant_of(POLITE, number)


def test_the_judge_reads_the_variant_and_answers_for_the_item(tmp_path):
    engine = FakeBackend(turned)
    judge = one_token(engine, store=open_store(tmp_path / "store.sqlite"))
    lines = [asked_again(judge, number) for number in (0, 1, 2, 1)]
    assert [line.probabilities["yes"] for line in lines] == pytest.approx([0.2, 0.9, 0.2, 0.9])
    assert len(engine.asked) == 3  # every variant has a key of its own, and repeat 0 that of the plain read
    line = lines[1]
    assert (line.id, line.question, line.weight, line.answer) == (POLITE.id, POLITE.question, -2, "yes")


def test_probabilities_come_back_in_the_order_of_the_item():
    judge = one_token(Lettered(lambda shown: {k: 0.8 if v == "polite" else 0.1 for k, v in shown.items()}))
    verdict = asked_again(judge, 1, SCALE)
    assert list(verdict.probabilities) == ["rude", "neutral", "polite"]
    assert verdict.probabilities["polite"] == pytest.approx(0.8)


def test_a_judge_that_samples_is_repeated_with_another_seed_and_others_are_reworded():
    engine = Script(lambda messages: "yes")
    judge = ReasonedJudge(Engine("fake", engine), reasoning=False, temperature=0.7)
    assert how_repeated(judge) == "resampled"
    scorer = ChecklistScorer(judge=judge)
    for number in range(3):
        scorer.repeated(number).score([POLITE], "Thank you.")
    assert len({sampling.seed for sampling in engine.samplings}) == 3
    assert len({str(prompt) for prompt in engine.prompts}) == 1
    assert scorer.receipt.asked == 3
    greedy = ReasonedJudge(Engine("fake", Script(["no"])), reasoning=False)
    assert how_repeated(greedy) == how_repeated(PanelJudge([greedy, one_token()])) == "reworded"


def test_calibration_applies_to_every_repeat():
    cold = CalibrationMap(method="temperature", temperature=1e-3, reads=9)
    calibration = Calibration(judge="fake", read_by="logprobs", maps={"yes/no": cold})
    again = asked_again(Member(one_token(FakeBackend(turned)), calibration), 1)
    assert again.probabilities["yes"] == pytest.approx(1) and again.uncalibrated["yes"] == pytest.approx(0.9)


def test_a_judge_with_examples_is_not_reworded():
    shown = FewShot([Labelled(target="Thanks.", label="yes", question="Is it polite?", where="here")])
    judge = one_token(examples=shown)
    assert ChecklistScorer(judge=judge).repeated(0).judge is judge
    for each in (judge, PanelJudge([one_token(), PanelJudge([one_token(), judge])])):
        with pytest.raises(SampleError, match="omit `examples`"):
            ChecklistScorer(judge=each).repeated(1)
