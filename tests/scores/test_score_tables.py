"""Score arithmetic against tables worked by hand.

Verdicts are written as in the tables: "yes", "no", an option's label, "na" for an abstention ("na: option" about an
item with options), "lost" for a read that failed.
"""

import json

import pytest

from checklist_rewards import Checklist, ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Reply
from checklist_rewards.scores import Aggregation, Score, Verdict, score_checklist
from checklist_rewards.scores.scales import with_abstention
from tests.judges.fakes import Script, options

QUALITY = options(poor=0.1, fair=0.4, good=0.9, na=None)


def item(number: int, weight: float, of_options: bool, required: bool = False) -> ChecklistItem:
    if of_options:
        return ChecklistItem(question=f"q{number}?", weight=weight, options=QUALITY, required=required)
    [plain] = with_abstention([{"question": f"q{number}?", "required": required}]).items
    return plain.model_copy(update={"weight": float(weight)})


def verdict(said: object) -> Verdict:
    if said == "lost":
        return Verdict(unanswered="backend_error: gone")
    return Verdict(answer=str(said))


def scored(*entries: tuple[float, object], **settings) -> Score:
    """A score of (weight, what was said) pairs."""
    items, verdicts = [], []
    for number, (weight, said) in enumerate(entries):
        of_options = said in ("poor", "fair", "good", "na: option")
        items.append(item(number, weight, of_options))
        verdicts.append(verdict("na" if said == "na: option" else "cannot_assess" if said == "na" else said))
    settings = {"primary_metric": "weighted", "min_answered": 0.0, **settings}
    return score_checklist(Checklist(items=tuple(items)), verdicts, Aggregation(**settings))


# --- the four strategies ---------------------------------------------------------------------------------------------

STRATEGIES = ("skip", "zero", "partial", "fail")


@pytest.mark.parametrize(
    ("entries", "by_strategy"),
    [
        # +10 abstained, +5 yes, -5 no. skip: 5/5. zero: 5/15. partial: (5 + 5)/15. fail: 5/15.
        ([(10, "na"), (5, "yes"), (-5, "no")], (1.0, 1 / 3, 2 / 3, 1 / 3)),
        # +10 yes, +5 yes, -5 abstained. Only fail charges a penalty that cannot be assessed: (15 - 5)/15.
        ([(10, "yes"), (5, "yes"), (-5, "na")], (1.0, 1.0, 1.0, 2 / 3)),
        # +10 yes, +5 abstained, -5 yes. skip: (10 - 5)/10. zero, fail: (10 - 5)/15. partial: (10 + 2.5 - 5)/15.
        ([(10, "yes"), (5, "na"), (-5, "yes")], (0.5, 1 / 3, 0.5, 1 / 3)),
        # Options .1 .4 .9. +4 abstained beside +6 good (5.4). fail takes the worst option: (5.4 + .4)/10.
        ([(4, "na: option"), (6, "good")], (0.9, 0.54, 0.74, 0.58)),
        # -4 abstained beside +6 good. fail takes the highest value, .9: (5.4 - 3.6)/6.
        ([(-4, "na: option"), (6, "good")], (0.9, 0.9, 0.9, 0.3)),
        # Penalties only: -3 yes, -1 abstained. skip: 1 - 3/3. zero, partial: 1 - 3/4. fail: 1 - 4/4.
        ([(-3, "yes"), (-1, "na")], (0.0, 0.25, 0.25, 0.0)),
        # Everything abstained: there is nothing to score when skipped, and that is no number.
        ([(2, "na"), (3, "na")], (None, 0.0, 0.5, 0.0)),
        ([(-2, "na"), (-3, "na")], (None, 1.0, 1.0, 0.0)),
        # A lost read is no abstention: it leaves the sums under every strategy.
        ([(10, "lost"), (5, "yes"), (5, "na")], (1.0, 0.5, 0.75, 0.5)),
    ],
)
def test_abstentions(entries, by_strategy):
    for strategy, expected in zip(STRATEGIES, by_strategy, strict=True):
        score = scored(*entries, abstention=strategy)
        assert score.weighted_score == (None if expected is None else pytest.approx(expected)), strategy
        assert score.primary_score == score.weighted_score
        if expected is not None and "lost" not in dict(entries).values():
            assert score.lower == score.upper == score.primary_score  # an abstention is an answer


@pytest.mark.parametrize(
    ("strategy", "value", "passed", "counted"),
    [("skip", None, None, 1), ("zero", 0.0, False, 2), ("partial", 0.5, True, 2), ("fail", 0.0, False, 2)],
)
def test_what_an_abstention_is_worth_as_a_line(strategy, value, passed, counted):
    score = scored((1, "yes"), (1, "na"), abstention=strategy)
    line = score.items[1]
    assert (line.answer, line.value, line.passed, line.unanswered) == ("cannot_assess", value, passed, None)
    assert score.pass_rate == pytest.approx({1: 1.0, 2: (1 + bool(passed)) / 2}[counted])
    assert score.answered == 2


@pytest.mark.parametrize(
    ("weight", "by_strategy"),
    # P(yes) .5, P(no) .3, P(cannot_assess) .2, so yes (.625 of the two). skip: .625. zero: .5. partial: .5 + .2/2 for
    # a positive item, .5 for a penalty. fail: .5 for a positive item, .5 + .2 for a penalty.
    [(2, (0.625, 0.5, 0.6, 0.5)), (-2, (0.625, 0.5, 0.5, 0.7))],
)
def test_soft_values_weigh_the_abstention_by_its_probability(weight, by_strategy):
    checklist = Checklist(items=(item(0, weight, False), item(1, 1, False)))
    read = Verdict({"yes": 0.5, "no": 0.3, "cannot_assess": 0.2})
    for strategy, soft in zip(STRATEGIES, by_strategy, strict=True):
        score = score_checklist(checklist, [read, Verdict(answer="yes")], Aggregation(abstention=strategy))
        assert score.items[0].answer == "yes"
        expected = (2 * soft + 1) / 3 if weight > 0 else max(0, 1 - 2 * soft)
        assert score.expected_score == pytest.approx(expected), strategy


# --- signs, options, gates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "weighted", "raw", "pass_rate"),
    [
        ([(1, "yes"), (1, "no")], 0.5, 1, 0.5),
        ([(10, "yes"), (5, "no"), (-5, "no")], 2 / 3, 10, 2 / 3),
        ([(10, "yes"), (5, "no"), (-5, "yes")], 1 / 3, 5, 1 / 3),
        ([(10, "no"), (-5, "yes")], 0.0, -5, 0.0),  # clipped from -0.5; raw is not
        ([(10, "yes"), (-20, "yes")], 0.0, -10, 0.5),
        ([(-10, "no"), (-5, "no")], 1.0, 0, 1.0),
        ([(-10, "yes"), (-5, "no")], 1 / 3, -10, 0.5),
        ([(-10, "yes"), (-5, "yes")], 0.0, -15, 0.0),
        ([(2, "good"), (2, "poor")], 0.5, 2.0, 0.5),  # (1.8 + .2)/4
        ([(2, "fair")], 0.4, 0.8, 0.0),  # credit .4 does not pass
        ([(2, "good"), (-1, "fair")], 0.7, 1.4, 1.0),  # (1.8 - .4)/2; the penalty's credit is .6
        ([(-2, "good"), (-1, "poor")], 1 - 1.9 / 3, -1.9, 0.5),
        ([(1, "yes"), (0, "no")], 1.0, 1, 0.5),  # a weight of 0 counts for the pass rate alone
        ([(3, "lost"), (1, "yes")], 1.0, 1, 1.0),
        ([(0.5, "yes"), (0.25, "no"), (-0.25, "yes")], 1 / 3, 0.25, 1 / 3),
    ],
)
def test_signs_and_options(entries, weighted, raw, pass_rate):
    score = scored(*entries)
    assert score.weighted_score == pytest.approx(weighted)
    assert score.raw_score == pytest.approx(raw)
    assert score.pass_rate == pytest.approx(pass_rate)


@pytest.mark.parametrize(
    ("entries", "lower", "upper"),
    [
        # +1 yes, +1 lost: had it been no, 1/2; had it been yes, 1.
        ([(1, "yes"), (1, "lost")], 0.5, 1.0),
        # +2 yes, -1 lost: had the penalty been earned, 1/2; had it not, 1.
        ([(2, "yes"), (-1, "lost")], 0.5, 1.0),
        ([(-1, "no"), (-1, "lost")], 0.5, 1.0),
        ([(1, "lost"), (-1, "lost")], 0.0, 1.0),
    ],
)
def test_bounds_of_what_was_lost(entries, lower, upper):
    score = scored(*entries)
    assert (score.lower, score.upper) == (pytest.approx(lower), pytest.approx(upper))


@pytest.mark.parametrize(
    ("said", "strategy", "primary", "required_passed"),
    [
        ("na", "skip", 1.0, None),  # left out, so it neither gates nor passes
        ("na", "zero", 0.0, False),
        ("na", "partial", 0.75, True),
        ("na", "fail", 0.0, False),
        ("lost", "fail", None, None),  # a failure is no abstention: whether the gate is open is unknown
    ],
)
def test_a_required_item_that_abstains_gates_as_its_strategy_says(said, strategy, primary, required_passed):
    checklist = Checklist(items=(item(0, 1, False, required=True), item(1, 1, False)))
    verdicts = [verdict("cannot_assess" if said == "na" else said), Verdict(answer="yes")]
    score = score_checklist(checklist, verdicts, Aggregation(primary_metric="weighted", abstention=strategy))
    assert score.required_passed is required_passed
    assert score.primary_score == (None if primary is None else pytest.approx(primary))


@pytest.mark.parametrize("mode", [{"capture_reasoning": True}, {"mode": "batch"}, {"use_logprobs": False}])
@pytest.mark.parametrize("reason", ["null_content", "empty_choices"])
def test_a_reply_without_content_is_no_verdict_for_either_sign(mode, reason):
    # In Autorubric 1.6.1: UNMET for a positive weight, MET for a penalty, so 1.0 fell to 0.33.
    items = [{"question": f"q{n}?", "weight": 5} for n in range(3)] + [{"question": "bad?", "weight": -10}]

    def said(messages):
        text = messages[-1]["content"]
        if "bad?" in text and "q0?" not in text:
            return Reply(None, None, reason)
        if "numbered" in text:
            return json.dumps({"answers": [{"index": n, "answer": "yes"} for n in (1, 2, 3)]})
        return json.dumps({"reasoning": "so", "answer": "yes"}) if "JSON" in text else "yes"

    scorer = ChecklistScorer(backend=Script(said), store=False, abstention="fail", metric="weighted", **mode)
    score = scorer.score(items, "Hi.")
    assert [line.answer for line in score.items] == ["yes", "yes", "yes", None]
    assert score.items[3].value is None and score.items[3].unanswered == reason
    assert score.primary_score is None and (score.lower, score.upper) == (pytest.approx(1 / 3), 1.0)
    assert score.answered_weight == pytest.approx(15 / 25)


def test_positives_that_were_skipped_do_not_make_a_perfect_score():
    # In Autorubric 1.6.1: weights +10 and -5, CANNOT_ASSESS and UNMET, gives 1.0 by the branch for penalties only.
    for said in ("na", "lost"):
        score = scored((10, said), (-5, "no"), abstention="skip")
        assert score.weighted_score is score.primary_score is None and score.pass_rate == 1.0
        assert (score.lower, score.upper) == ((0.0, 1.0) if said == "lost" else (None, None))
