"""The formulas of the steps that shape one completion: None stays None, and a failure moves nothing."""

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards import group_shaping, shaping
from checklist_rewards.rewards.shaping import Clipped, Earned, FormatGate, GateStep, LengthPenalty, centred
from checklist_rewards.rows import Sample
from checklist_rewards.scores import Aggregation, Verdict, item_credits, score_checklist

LOST = Verdict(unanswered="backend_error: gone")
MIXED = Checklist.parse(
    [
        {"question": "Polite?", "required": True, "category": "tone"},
        {"question": "Short?", "weight": 3, "category": "form"},
        {"question": "Rude?", "weight": -2, "category": "tone"},
    ]
)


def p(yes: float) -> Verdict:
    return Verdict({"yes": yes, "no": 1 - yes}, mass=1.0)


def earned(credits, checklist=MIXED, **categories):
    return Earned(categories=categories).earned(checklist, credits)


def gate(value, credits, checklist=MIXED, how="multiply", floor=0.0):
    return GateStep(how=how, floor=floor).reduced(value, checklist, credits)


def test_credits_are_soft_or_hard_and_none_where_nothing_was_answered():
    score = score_checklist(MIXED, [p(0.9), LOST, p(0.2)])
    assert item_credits(MIXED, score) == [pytest.approx(0.9), None, pytest.approx(0.8)]
    assert item_credits(MIXED, score, "hard") == [1.0, None, 1.0]
    turned = Checklist(items=tuple(item.model_copy(update={"weight": -item.weight}) for item in MIXED.items))
    assert item_credits(turned, score) == [pytest.approx(0.1), None, pytest.approx(0.2)]  # the checklist's weights
    with pytest.raises(SampleError, match="but the checklist has"):
        item_credits(Checklist.parse(["b?"]), score)
    with pytest.raises(SampleError, match="fuzzy"):
        item_credits(MIXED, score, "fuzzy")


@pytest.mark.parametrize(("abstention", "credit"), [("skip", None), ("zero", 0.4), ("partial", 0.65), ("fail", 0.4)])
def test_credits_of_options_count_an_abstention_as_the_score_did(abstention, credit):
    options = [{"label": "good", "value": 1}, {"label": "bad", "value": 0}, {"label": "n/a", "na": True}]
    checklist = Checklist.parse([{"question": "How?", "options": options}])
    half_absent = Verdict({"good": 0.4, "bad": 0.1, "n/a": 0.5})
    score = score_checklist(checklist, [half_absent], Aggregation(abstention=abstention))
    expected = None if credit is None else pytest.approx(credit)
    assert item_credits(checklist, score) == [expected] and score.expected_score == expected


@pytest.mark.parametrize(
    ("credits", "categories", "expected"),
    [
        ([1.0, 0.5, 1.0], {}, (1 + 1.5) / 4),
        ([1.0, 0.5, 0.25], {}, (1 + 1.5 - 2 * 0.75) / 4),  # the penalty has the scale of what is earned
        ([1.0, None, 0.0], {}, 1 - 2.0),
        ([None, None, 1.0], {}, None),
        ([1.0, 0.0, 0.0], {"tone": 3}, (3 - 6) / 6),
        ([1.0, 0.0, 1.0], {"form": 0, "unheard_of": 7}, 1.0),
    ],
)
def test_earned_is_what_the_items_give_less_their_penalties(credits, categories, expected):
    assert earned(credits, **categories) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("value", "required", "how", "floor", "expected"),
    [
        (0.8, 0.5, "multiply", 0.0, 0.4),
        (0.8, 0.5, "floor", 0.0, 0.8),
        (0.8, 0.4, "floor", 0.1, 0.1),
        (0.05, 0.4, "floor", 0.1, 0.05),
        (0.8, None, "multiply", 0.0, 0.8),  # a gate that was not read is neither open nor closed
        (-0.5, 1, "multiply", 0.0, -0.5),
        (-0.5, 0, "multiply", 0.0, -1.0),
        (-0.5, 0.4, "floor", 0.1, -0.5),
        (-0.5, 0.5, "multiply", 0.0, -0.75),  # a failed gate lowers a value below zero too
    ],
)
def test_gates_multiply_or_floor(value, required, how, floor, expected):
    assert gate(value, [required, 1, 1], how=how, floor=floor) == pytest.approx(expected)


def test_autorubrics_length_curve():
    assert [LengthPenalty().penalty(n) for n in (0, 6000, 8000, 10**6)] == [0, 0, 0.5, 0.5]
    assert LengthPenalty().penalty(7000) == pytest.approx(0.5 * 0.5**1.6)
    assert LengthPenalty(free=10, cap=20, at_cap=1, exponent=1).penalty(15) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "text", "otherwise", "expected"),
    [(0.7, "<answer>a\nb</answer>", 0.0, 0.7), (-0.7, "a", 0.0, -0.7), (0.7, "a", 0.2, 0.2)],
)
def test_a_format_gate_limits_texts_that_do_not_match(value, text, otherwise, expected):
    step = FormatGate(form=r"<answer>.*</answer>", otherwise=otherwise)
    assert step.value(value, Sample(MIXED, text), None) == expected


@pytest.mark.parametrize("module", [shaping, group_shaping])
def test_the_example_of_the_module(module):
    assert doctest.testmod(module).failed == 0


unit = st.floats(0, 1)
maybe = st.one_of(st.none(), st.floats(-100, 100))
any_sign = st.floats(-10, 1)
weight = st.floats(-5, 5).filter(lambda w: abs(w) > 0.01)


@given(st.lists(st.tuples(weight, st.one_of(st.none(), unit)), min_size=1, max_size=6), unit)
def test_earned_less_penalties_is_the_score_and_an_unanswered_item_changes_nothing(pairs, value):
    checklist = Checklist.parse([{"question": f"{n}?", "weight": w} for n, (w, _) in enumerate(pairs)])
    score = score_checklist(checklist, [LOST if v is None else p(v) for _, v in pairs])
    credits = item_credits(checklist, score)
    more = Checklist(items=(*checklist.items, *Checklist.parse([{"question": "lost?", "required": True}]).items))
    for how in ("multiply", "floor"):
        assert gate(value, [*credits, None], more, how) == gate(value, credits, checklist, how)
    if not checklist.only_penalties:  # which branch it is, is the checklist's own
        assert earned([*credits, None], more) == earned(credits, checklist)
        if any(weight < 0 and value is None for weight, value in pairs):
            assert score.expected_score is score.weighted_score is None
            return
    for answers, expected in (("soft", score.expected_score), ("hard", score.weighted_score)):
        found = earned(item_credits(checklist, score, answers), checklist)
        if found is not None:
            found = Clipped().value(found, None, None)
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-9))


@given(any_sign, st.lists(unit, min_size=3, max_size=3))
def test_a_gate_never_raises_a_value(value, credits):
    for how in ("multiply", "floor"):
        gated = gate(value, credits, how=how, floor=0.5)
        assert gated <= value + 1e-12 and (value < 0 or gated >= 0)


@given(st.lists(any_sign, min_size=2, max_size=2), st.lists(unit, min_size=2, max_size=2), st.floats(-1, 1))
def test_a_better_answer_to_a_required_item_never_gives_a_worse_value(values, credits, floor):
    low, high = sorted(values)
    worse, better = sorted(credits)
    for how in ("multiply", "floor"):
        pairs = ((low, worse), (low, better), (high, better))
        outcomes = [gate(value, [credit, 1, 1], how=how, floor=floor) for value, credit in pairs]
        assert outcomes == pytest.approx(sorted(outcomes), abs=1e-12)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e4), st.floats(1, 1e4), unit, st.floats(0.1, 5))
def test_a_longer_text_never_costs_less(one, other, free, room, at_cap, exponent):
    step = LengthPenalty(free=free, cap=free + room, at_cap=at_cap, exponent=exponent)
    costs = [step.penalty(length) for length in sorted((one, other))]
    assert 0 <= costs[0] <= costs[1] <= at_cap


@given(st.lists(st.tuples(maybe, st.integers(0, 2)), max_size=12))
def test_centred_values_sum_to_zero_and_none_moves_no_one(pairs):
    values, groups = [value for value, _ in pairs], [group for _, group in pairs]
    result = centred(values, groups)
    assert [value is None for value in result] == [value is None for value in values]
    for group in set(groups):
        known = [value for value, g in zip(result, groups, strict=True) if g == group and value is not None]
        assert math.fsum(known) == pytest.approx(0, abs=1e-6)
    kept = [(value, group) for value, group in pairs if value is not None]
    alone = centred([value for value, _ in kept], [group for _, group in kept])
    assert alone == [value for value in result if value is not None]
