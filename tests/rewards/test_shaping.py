"""Shaping: examples of every formula, then what holds for all numbers: None stays None, a failure moves nothing."""

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


def earned(checklist, credits, categories=None):
    return Earned(categories=categories or {}).earned(checklist, credits)


def gate(value, checklist, credits, how="multiply", floor=0.0):
    return GateStep(how=how, floor=floor).reduced(value, checklist, credits)


def clipped(value):
    return None if value is None else Clipped().value(value, None, None)


# --- examples -------------------------------------------------------------------------------------------------------


def test_credits_are_soft_or_hard_and_none_where_nothing_was_answered():
    score = score_checklist(MIXED, [p(0.9), LOST, p(0.2)])
    assert item_credits(MIXED, score) == [pytest.approx(0.9), None, pytest.approx(0.8)]
    assert item_credits(MIXED, score, "hard") == [1.0, None, 1.0]


def test_credits_of_options_and_abstentions():
    options = [{"label": "good", "value": 1}, {"label": "fair", "value": 0.5}, {"label": "n/a", "na": True}]
    checklist = Checklist.parse([{"question": "How?", "options": options}, {"question": "And?", "options": options}])
    fair = Verdict({"good": 0.2, "fair": 0.7, "n/a": 0.1})
    absent = Verdict({"good": 0.1, "fair": 0.1, "n/a": 0.8})
    score = score_checklist(checklist, [fair, absent])
    assert item_credits(checklist, score, "hard") == [0.5, None]
    assert item_credits(checklist, score) == [pytest.approx(score.expected_score), None]


def test_soft_credits_count_an_abstention_as_the_score_did():
    options = [{"label": "good", "value": 1}, {"label": "bad", "value": 0}, {"label": "n/a", "na": True}]
    checklist = Checklist.parse([{"question": "How?", "options": options}])
    half_absent = Verdict({"good": 0.4, "bad": 0.1, "n/a": 0.5})
    for abstention, credit in (("skip", None), ("zero", 0.4), ("partial", 0.65), ("fail", 0.4)):
        score = score_checklist(checklist, [half_absent], Aggregation(abstention=abstention))
        expected = None if credit is None else pytest.approx(credit)
        assert item_credits(checklist, score) == [expected] and score.expected_score == expected


def test_credits_are_refused_with_another_checklist():
    score = score_checklist(Checklist.parse(["a?"]), [p(1)])
    with pytest.raises(SampleError, match="but the checklist has"):
        item_credits(Checklist.parse(["b?"]), score)


def test_earned_and_penalties_share_their_scale():
    assert earned(MIXED, [1.0, 0.5, 1.0]) == pytest.approx((1 + 1.5) / 4)
    assert earned(MIXED, [1.0, 0.5, 0.25]) == pytest.approx((1 + 1.5 - 2 * 0.75) / 4)
    assert earned(MIXED, [1.0, None, 0.0]) == 1 - 2.0
    assert earned(MIXED, [None, None, 1.0]) is earned(MIXED, [None, None, 0.0]) is None


def test_categories_weigh_more_or_nothing():
    assert earned(MIXED, [1.0, 0.0, 1.0], {"tone": 3}) == pytest.approx(3 / 6)
    assert earned(MIXED, [1.0, 0.0, 0.0], {"tone": 3}) == pytest.approx((3 - 6) / 6)
    assert earned(MIXED, [1.0, 0.0, 1.0], {"form": 0, "unheard of": 7}) == 1.0


def test_gates_multiply_or_floor():
    assert gate(0.8, MIXED, [0.5, 1, 1]) == pytest.approx(0.4)
    assert gate(0.8, MIXED, [0.5, 1, 1], "floor") == 0.8
    assert gate(0.8, MIXED, [0.4, 1, 1], "floor", floor=0.1) == 0.1
    assert gate(0.05, MIXED, [0.4, 1, 1], "floor", floor=0.1) == 0.05
    assert gate(0.8, MIXED, [None, 0, 0]) == 0.8, "a gate that was not read is neither open nor closed"


def test_a_failed_gate_lowers_a_value_below_zero_too():
    assert gate(-0.5, MIXED, [1, 1, 1]) == -0.5
    assert gate(-0.5, MIXED, [0.5, 1, 1]) == pytest.approx(-0.75)
    assert gate(-0.5, MIXED, [0, 1, 1]) == -1.0
    assert gate(-0.5, MIXED, [0.4, 1, 1], "floor", floor=0.1) == -0.5


def test_autorubrics_length_curve():
    assert [LengthPenalty().penalty(n) for n in (0, 6000, 8000, 10**6)] == [0, 0, 0.5, 0.5]
    assert LengthPenalty().penalty(7000) == pytest.approx(0.5 * 0.5**1.6)
    assert LengthPenalty(free=10, cap=20, at_cap=1, exponent=1).penalty(15) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="free=9.0, cap=9.0.*free < cap"):
        LengthPenalty(free=9, cap=9)


def test_length_in_two_units():
    words, characters = LengthPenalty(), LengthPenalty(unit="characters")
    assert (words.bounds("ab c\n d"), characters.bounds("ab c\n d")) == ((3, 3), (7, 7))
    assert words.bounds("今天下雨，" * 60) == (240, 240) and words.bounds("don't go — now") == (3, 3)
    assert words.bounds("ไทย") == (1, 3)


def test_a_format_gate_takes_a_pattern():
    def format_gate(value, text, otherwise=0.0):
        step = FormatGate(form=r"<answer>.*</answer>", otherwise=otherwise)
        return step.value(value, Sample(MIXED, text), None)

    assert format_gate(0.7, "<answer>a\nb</answer>") == 0.7
    assert format_gate(0.7, "a") == 0.0 and format_gate(-0.7, "a") == -0.7
    assert format_gate(0.7, "a", otherwise=0.2) == 0.2


def test_centring_goes_by_group_not_by_position():
    assert centred([1.0, 5.0, 3.0, 5.0], ["a", "b", "a", "b"]) == [-1.0, 0.0, 1.0, 0.0]
    assert centred([1.0, None, 3.0, None], ["a", "a", "a", "b"], "std") == [-1.0, None, 1.0, None]
    assert centred([2.0, 2.0], [0, 0], "std") == [0.0, 0.0]
    with pytest.raises(SampleError, match="1 groups for 2 values"):
        centred([1.0, 2.0], ["a"])


def test_wrong_words_are_refused():
    score = score_checklist(MIXED, [p(1)] * 3)
    for call in (lambda: item_credits(MIXED, score, "fuzzy"), lambda: centred([1.0], ["a"], "max")):
        with pytest.raises(SampleError):
            call()
    for settings in ({"at_cap": math.inf}, {"cap": math.inf}, {"exponent": math.inf}):
        with pytest.raises(ValueError, match="finite number"):
            LengthPenalty(**settings)
    with pytest.raises(ValueError, match="shorter"):
        earned(MIXED, [1.0])


# --- what holds for all numbers -------------------------------------------------------------------------------------

unit = st.floats(0, 1)
weight = st.floats(-5, 5).filter(lambda w: abs(w) > 0.01)
verdicts = st.lists(st.tuples(weight, st.one_of(st.none(), unit)), min_size=1, max_size=6)
maybe = st.one_of(st.none(), st.floats(-100, 100))


def scored(pairs):
    checklist = Checklist.parse([{"question": f"{n}?", "weight": w} for n, (w, _) in enumerate(pairs)])
    return checklist, score_checklist(checklist, [LOST if v is None else p(v) for _, v in pairs])


def same(one, other):
    return one is other if one is None or other is None else math.isclose(one, other, abs_tol=1e-9)


@given(verdicts)
def test_earned_less_penalties_is_the_score(pairs):
    checklist, score = scored(pairs)
    if not checklist.only_penalties and any(weight < 0 and value is None for weight, value in pairs):
        assert score.expected_score is score.weighted_score is None
        return
    for answers, expected in (("soft", score.expected_score), ("hard", score.weighted_score)):
        assert same(clipped(earned(checklist, item_credits(checklist, score, answers))), expected)


@given(verdicts, unit)
def test_an_unanswered_item_changes_nothing(pairs, value):
    checklist, score = scored(pairs)
    credits = item_credits(checklist, score)
    more = Checklist(items=(*checklist.items, *Checklist.parse([{"question": "lost?", "required": True}]).items))
    if not checklist.only_penalties:  # which branch it is, is the checklist's own
        assert earned(more, [*credits, None]) == earned(checklist, credits)
    for how in ("multiply", "floor"):
        assert gate(value, more, [*credits, None], how) == gate(value, checklist, credits, how)


any_sign = st.floats(-10, 1)


@given(any_sign, st.lists(unit, min_size=3, max_size=3))
def test_a_gate_never_raises_a_value(value, credits):
    for how in ("multiply", "floor"):
        assert gate(value, MIXED, credits, how, 0.5) <= value + 1e-12
        assert value < 0 or gate(value, MIXED, credits, how, 0.5) >= 0


@given(st.lists(any_sign, min_size=2, max_size=2), st.lists(unit, min_size=2, max_size=2), st.floats(-1, 1))
def test_a_better_answer_to_a_required_item_never_gives_a_worse_value(values, credits, floor):
    low, high = sorted(values)
    worse, better = sorted(credits)
    for how in ("multiply", "floor"):
        outcomes = [
            gate(value, MIXED, [c, 1, 1], how, floor) for value, c in ((low, worse), (low, better), (high, better))
        ]
        assert outcomes == pytest.approx(sorted(outcomes), abs=1e-12)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e4), st.floats(1, 1e4), unit, st.floats(0.1, 5))
def test_a_longer_text_never_costs_less(one, other, free, room, at_cap, exponent):
    step = LengthPenalty(free=free, cap=free + room, at_cap=at_cap, exponent=exponent)
    costs = [step.penalty(length) for length in sorted((one, other))]
    assert 0 <= costs[0] <= costs[1] <= at_cap


def test_differences_of_rounding_are_none():
    assert centred([0.1 + 0.2, 0.3], ["g", "g"], "std") == pytest.approx([0, 0], abs=1e-12)
    assert centred([1e-6, 2e-6], ["g", "g"], "std") == pytest.approx([-1, 1])


@given(st.lists(st.tuples(maybe, st.integers(0, 2)), max_size=12), st.sampled_from(["none", "std"]))
def test_centred_values_sum_to_zero_and_none_moves_no_one(pairs, spread):
    values, groups = [value for value, _ in pairs], [group for _, group in pairs]
    result = centred(values, groups, spread)
    assert [value is None for value in result] == [value is None for value in values]
    for group in set(groups):
        known = [value for value, g in zip(result, groups, strict=True) if g == group and value is not None]
        assert math.fsum(known) == pytest.approx(0, abs=1e-6)
    kept = [(value, group) for value, group in pairs if value is not None]
    alone = centred([value for value, _ in kept], [group for _, group in kept], spread)
    assert alone == [value for value in result if value is not None]


@pytest.mark.parametrize("module", [shaping, group_shaping])
def test_the_example_of_the_module(module):
    import doctest

    assert doctest.testmod(module).failed == 0
