"""The arithmetic of scores: examples of every aggregate, then the properties that must hold for all of them."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistItem, Option
from checklist_rewards.errors import SampleError
from checklist_rewards.scores import (
    ABSTENTIONS,
    PRIMARY_METRICS,
    Aggregation,
    Score,
    Verdict,
    item_keys,
    level,
    rescore,
    score_checklist,
)
from checklist_rewards.scores.reasons import Reason
from checklist_rewards.scores.scales import with_abstention
from checklist_rewards.scores.tally import tally

LOST = Verdict(unanswered="backend_error: gone")


def p(yes: float) -> Verdict:
    return Verdict({"yes": yes, "no": 1 - yes}, mass=1.0)


def weights(*values: float) -> Checklist:
    return Checklist.parse([{"question": f"question {n}?", "weight": w} for n, w in enumerate(values)])


# --- examples -------------------------------------------------------------------------------------------------------


def test_every_aggregate_of_a_plain_checklist():
    score = score_checklist(weights(2, 1, 1), [p(0.9), p(0.5), p(0.6)], Aggregation(primary_metric="weighted"))
    assert [item.answer for item in score.items] == ["yes", "no", "yes"]  # yes from 0.6 up: 0.5 is unsure, so no
    assert score.pass_rate == pytest.approx(2 / 3)
    assert score.weighted_score == score.primary_score == pytest.approx(3 / 4)
    assert score.expected_score == pytest.approx((2 * 0.9 + 0.5 + 0.6) / 4)
    assert score.normalized_score == pytest.approx((0.9 + 0.5 + 0.6) / 3)
    assert score.raw_score == pytest.approx(3)
    assert score.scaled_score_1_5 == pytest.approx(4 * 2 / 3 + 1)
    assert (score.answered, score.total, score.answered_weight) == (3, 3, 1.0)
    assert score.lower == score.upper == score.primary_score
    assert (score.quality, score.required_passed) == (None, None)


def test_a_penalty_takes_from_the_score_and_passes_when_it_is_not_earned():
    score = score_checklist(weights(4, -1), [p(1.0), p(0.75)], Aggregation(primary_metric="weighted"))
    assert score.weighted_score == pytest.approx((4 - 1) / 4)
    assert score.expected_score == pytest.approx((4 - 0.75) / 4)
    assert [item.passed for item in score.items] == [True, False]
    assert score.normalized_score == pytest.approx((1 + 0.25) / 2)
    assert score_checklist(weights(1, -5), [p(1.0), p(1.0)]).weighted_score == 0.0


def test_a_checklist_of_penalties_only_starts_at_one():
    score = score_checklist(weights(-1, -3), [p(1.0), p(0.0)])
    assert score.weighted_score == pytest.approx(1 - 1 / 4)
    assert score.raw_score == -1


def test_the_penalty_branch_is_chosen_by_the_checklist_not_by_what_was_answered():
    # +10 was lost and -5 answered no: a score by the answered items alone would be a perfect 1.
    score = score_checklist(weights(10, -5), [LOST, p(0.0)], Aggregation(min_answered=0))
    assert score.weighted_score is None
    assert score.primary_score is None
    assert (score.lower, score.upper) == (0.0, 1.0)
    assert score.pass_rate == 1.0


def test_unanswered_items_leave_numerator_and_denominator():
    score = score_checklist(weights(1, 1, 2), [p(1.0), LOST, p(0.0)], Aggregation(primary_metric="weighted"))
    assert score.weighted_score == pytest.approx(1 / 3)
    assert score.pass_rate == pytest.approx(1 / 2)
    assert score.answered_weight == pytest.approx(3 / 4)
    assert (score.lower, score.upper) == (pytest.approx(1 / 4), pytest.approx(2 / 4))
    assert score.items[1].answer is None and score.items[1].unanswered == "backend_error: gone"
    assert score.unanswered == {"backend_error": 1}


def test_too_little_answered_is_none_never_zero():
    verdicts = [p(1.0), LOST, LOST]
    assert score_checklist(weights(1, 1, 1), verdicts).primary_score is None
    assert score_checklist(weights(1, 1, 1), verdicts, Aggregation(min_answered=0.3)).primary_score == 1.0
    nothing = score_checklist(weights(1, 1), [LOST, LOST], Aggregation(min_answered=0))
    assert nothing.primary_score is nothing.pass_rate is nothing.raw_score is nothing.expected_score is None
    assert (nothing.answered, nothing.answered_weight, nothing.lower, nothing.upper) == (0, 0.0, 0.0, 1.0)


def test_a_failed_required_item_makes_the_score_zero_and_a_lost_one_does_not():
    checklist = Checklist.parse(["a?", {"question": "b?", "required": True}, "c?"])
    failed = score_checklist(checklist, [p(1.0), p(0.0), p(1.0)])
    assert (failed.primary_score, failed.required_passed) == (0.0, False)
    assert failed.expected_score == pytest.approx(2 / 3)
    lost = score_checklist(checklist, [p(1.0), LOST, p(1.0)])
    assert (lost.primary_score, lost.required_passed) == (None, None)  # 1 would be the score of an open gate
    assert (lost.expected_score, lost.lower, lost.upper) == (1.0, 0.0, 1.0)
    both = Checklist.parse([{"question": "a?", "required": True}, {"question": "b?", "required": True}, "c?"])
    fixed = score_checklist(both, [p(0.0), LOST, p(1.0)])
    assert (fixed.primary_score, fixed.required_passed) == (0.0, False)  # whatever the lost one is
    passed = score_checklist(checklist, [p(1.0), p(1.0), p(0.0)])
    assert passed.required_passed is True


@pytest.mark.parametrize("metric", ["weighted", "expected", "net"])
def test_a_lost_penalty_does_not_raise_the_score(metric):
    rules = Aggregation(primary_metric=metric)
    checklist = Checklist.parse(["a?", "b?", "c?", {"question": "bad?", "weight": -2}])
    said = [p(1.0), p(1.0), p(0.0)]
    assert score_checklist(checklist, [*said, p(1.0)], rules).primary_score == pytest.approx(0.0)
    assert score_checklist(checklist, [*said, p(0.0)], rules).primary_score == pytest.approx(2 / 3)
    lost = score_checklist(checklist, [*said, LOST], rules)
    assert lost.primary_score is lost.weighted_score is lost.expected_score is None
    assert (lost.lower, lost.upper) == (pytest.approx(0.0), pytest.approx(2 / 3))
    # Shares of items count a penalty like any other item, and a checklist of penalties is divided by those answered.
    assert lost.under("pass").primary_score == lost.under("normalized").primary_score == pytest.approx(2 / 3)
    only = Checklist.parse([{"question": q, "weight": -1} for q in ("x?", "y?", "z?")])
    assert score_checklist(only, [p(1.0), p(0.0), LOST], rules).primary_score == pytest.approx(0.5)
    abstained = with_abstention([{"question": "a?"}, {"question": "bad?", "weight": -2}])
    skipped = score_checklist(abstained, [Verdict(answer="yes"), Verdict(answer="cannot_assess")], rules)
    assert skipped.primary_score == 1.0  # not applicable is an answer


def test_a_lost_penalty_that_could_change_nothing_leaves_the_score():
    checklist = Checklist.parse(["a?", "b?", {"question": "bad?", "weight": -1}])
    lost = score_checklist(checklist, [p(0.0), p(0.0), LOST])
    assert (lost.primary_score, lost.lower, lost.upper, lost.expected_score) == (0.0, 0.0, 0.0, None)
    assert lost.under("net").primary_score is None
    few = score_checklist(checklist, [p(0.0), p(0.0), LOST], Aggregation(min_answered=0.9))
    assert few.primary_score is None


def test_a_penalty_that_was_not_needed_is_no_failure():
    checklist = Checklist.parse(["a?", {"question": "gate?", "required": True}, {"question": "bad?", "weight": -1}])
    unread = Verdict(unanswered=Reason.NOT_NEEDED)
    assert score_checklist(checklist, [unread, p(0.0), unread]).primary_score == 0.0
    assert score_checklist(checklist, [unread, p(0.0), unread]).unanswered == {}


def test_a_required_penalty_fails_when_it_is_earned():
    checklist = Checklist.parse(["a?", {"question": "b?", "weight": -1, "required": True}])
    assert score_checklist(checklist, [p(1.0), p(1.0)]).primary_score == 0.0
    assert score_checklist(checklist, [p(1.0), p(0.0)]).primary_score == 1.0


SCALE = (Option(label="bad", value=0.2), Option(label="fair", value=0.5), Option(label="good", value=1.0))
NA = (*SCALE, Option(label="cannot_assess", na=True))


def test_options_are_worth_their_values_and_softly_their_expectation():
    checklist = Checklist(items=(ChecklistItem(question="How clear is it?", options=SCALE),))
    score = score_checklist(checklist, [Verdict({"bad": 0.1, "fair": 0.6, "good": 0.3})])
    item = score.items[0]
    assert (item.answer, item.value, item.passed, item.confidence, item.level) == ("fair", 0.5, True, 0.6, None)
    assert score.weighted_score == 0.5
    assert score.expected_score == pytest.approx(0.02 + 0.3 + 0.3)


@pytest.mark.parametrize(
    ("abstention", "positive", "penalty"),
    # weights 1 (yes) and 1 or -1 (abstained); the abstained option's values run from 0.2 to 1
    [("skip", 1.0, 1.0), ("zero", 0.5, 1.0), ("partial", 0.75, 1.0), ("fail", 0.6, 0.0)],
)
def test_abstentions_follow_the_sign_of_the_item(abstention, positive, penalty):
    for weight, expected in ((1, positive), (-1, penalty)):
        checklist = Checklist(
            items=(ChecklistItem(question="a?"), ChecklistItem(question="b?", options=NA, weight=weight))
        )
        verdicts = [p(1.0), Verdict(answer="cannot_assess")]
        score = score_checklist(checklist, verdicts, Aggregation(primary_metric="weighted", abstention=abstention))
        assert score.primary_score == pytest.approx(expected)
        assert score.answered == 2  # an abstention is an answer
        assert score.lower == score.upper == score.primary_score


def test_answers_in_words_have_no_probabilities_and_normalized_is_the_pass_rate():
    score = score_checklist(
        weights(1, 1), [Verdict(answer="yes"), Verdict(answer="no")], Aggregation(primary_metric="normalized")
    )
    assert score.primary_score == score.pass_rate == score.expected_score == 0.5
    assert score.items[0].confidence is None


def test_the_normalized_score_of_an_item_does_not_depend_on_the_other_items():
    options = [{"label": "full", "value": 1}, {"label": "half", "value": 0.5}, {"label": "none", "value": 0}]
    checklist = Checklist.parse([{"question": "How?", "options": options}, "b?"])
    by_word, by_check, read = Verdict(answer="half"), Verdict(answer="yes", method="check"), p(1.0)
    for other in (by_check, read):
        assert score_checklist(checklist, [by_word, other]).normalized_score == 0.75
    lost = score_checklist(checklist, [by_word, LOST], Aggregation(primary_metric="normalized"))
    assert (lost.normalized_score, lost.lower, lost.upper) == (0.5, 0.25, 0.75)


def test_a_judge_that_answers_with_an_unknown_label_is_an_error_not_a_no():
    with pytest.raises(ValueError, match="judge answered 'maybe' for item .* expected one of"):
        score_checklist(weights(1), [Verdict(answer="maybe")])


def test_levels():
    assert [level(x) for x in (0.0, 0.2, 0.4, 0.6, 0.8)] == ["no_10", "no_30", "unsure", "yes_70", "yes_90"]


def test_macro_micro_and_reasons_of_a_batch():
    one = score_checklist(weights(1), [p(1.0)])
    three = score_checklist(weights(1, 1, 1), [p(0.0), p(0.0), p(1.0)])
    lost = score_checklist(weights(1, 1), [LOST, LOST])
    totals = tally([one, three, lost])
    assert totals.macro == pytest.approx((1 + 1 / 3) / 2)
    assert totals.micro == pytest.approx(2 / 4)
    assert (totals.scored, totals.unscored, totals.reads) == (2, 1, 6)
    assert totals.unanswered == {"backend_error": 2}
    assert tally([]).macro is tally([]).micro is tally([]).mean is None


def test_a_stored_score_is_scored_again_with_new_weights_and_no_judge():
    checklist = weights(1, 1, 1)
    verdicts = [p(0.9), p(0.1), Verdict({"yes": 0.2, "no": 0.8}, mass=0.1, unanswered="off_label")]
    stored = type(score_checklist(checklist, verdicts)).model_validate_json(
        score_checklist(checklist, verdicts).model_dump_json()
    )
    heavier = weights(3, 1, 1)
    assert rescore(heavier, stored) == score_checklist(heavier, verdicts)
    grown = Checklist.parse([*heavier.items, "new?"])
    assert rescore(grown, stored).items[-1].unanswered == "not_read"


# --- properties -----------------------------------------------------------------------------------------------------

finite = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
probability = st.floats(0, 1)


@st.composite
def cases(draw, min_size=1):
    """A checklist with all its verdicts answered, by probabilities or by words."""
    size = draw(st.integers(min_size, 8))
    items, verdicts = [], []
    for n in range(size):
        options = draw(st.sampled_from([None, None, SCALE, NA]))
        items.append(
            ChecklistItem(
                question=f"question {n}?", weight=draw(finite), required=draw(st.integers(0, 4)) == 0, options=options
            )
        )
        if draw(st.booleans()):
            verdicts.append(Verdict(answer=draw(st.sampled_from(list(items[-1].values)))))
        elif options is None:
            verdicts.append(p(draw(probability)))
        else:
            labels = [option.label for option in options]
            shares = draw(st.lists(st.floats(0.01, 1), min_size=len(labels), max_size=len(labels)))
            verdicts.append(Verdict({k: s / math.fsum(shares) for k, s in zip(labels, shares, strict=True)}))
    if all(item.weight == 0 for item in items):
        items[0] = items[0].model_copy(update={"weight": 1.0})
    return Checklist(items=tuple(items)), verdicts


settings_of_a_scorer = st.fixed_dictionaries(
    {"primary_metric": st.sampled_from(PRIMARY_METRICS), "abstention": st.sampled_from(ABSTENTIONS)}
)


def numbers(score):
    return score.model_dump(exclude={"items"})


@given(cases(), settings_of_a_scorer, st.randoms(use_true_random=False))
def test_order_does_not_matter(case, options, rng: random.Random):
    checklist, verdicts = case
    order = list(range(len(verdicts)))
    rng.shuffle(order)
    shuffled = Checklist(items=tuple(checklist.items[i] for i in order))
    assert numbers(score_checklist(shuffled, [verdicts[i] for i in order], Aggregation(**options))) == numbers(
        score_checklist(checklist, verdicts, Aggregation(**options))
    )


@given(cases(), settings_of_a_scorer, st.sets(st.integers(0, 7)))
def test_a_lost_read_moves_the_score_only_within_its_stated_bounds(case, options, lost):
    checklist, verdicts = case
    broken = [LOST if n in lost else verdict for n, verdict in enumerate(verdicts)]
    whole = score_checklist(checklist, verdicts, Aggregation(**options))
    partial = score_checklist(checklist, broken, Aggregation(min_answered=0, **options))
    if partial.lower is None or partial.upper is None:
        assert partial.primary_score is None
        return
    assert partial.lower <= partial.upper <= 1 and (partial.lower >= 0 or whole.primary_metric == "net")
    # With `net`, a positive item that is lost, or has the answer of an option without a value, leaves the denominator.
    skipped = any(line.value is None for n, line in enumerate(whole.items) if n in lost)
    for score in (whole, partial):
        if score.primary_score is not None:
            assert score.primary_score <= partial.upper + 1e-9
            if whole.primary_metric != "net" or (score is whole and not skipped):
                assert partial.lower - 1e-9 <= score.primary_score


@given(cases())
def test_the_normalized_score_is_the_mean_of_what_each_item_alone_would_get(case):
    checklist, verdicts = case
    alone = [
        score_checklist(Checklist(items=(item.model_copy(update={"weight": item.weight or 1.0}),)), [verdict])
        for item, verdict in zip(checklist.items, verdicts, strict=True)
    ]
    known = [score.normalized_score for score in alone if score.normalized_score is not None]
    together = score_checklist(checklist, verdicts).normalized_score
    assert together == (pytest.approx(math.fsum(known) / len(known)) if known else None)


@given(cases(), settings_of_a_scorer, st.floats(0.01, 100))
def test_weights_scale_out(case, options, factor):
    checklist, verdicts = case
    scaled = Checklist(items=tuple(i.model_copy(update={"weight": i.weight * factor}) for i in checklist.items))
    before, after = (score_checklist(c, verdicts, Aggregation(**options)).model_dump() for c in (checklist, scaled))
    for name in ("pass_rate", "weighted_score", "expected_score", "normalized_score", "primary_score"):
        assert after[name] == (None if before[name] is None else pytest.approx(before[name], abs=1e-6))


@given(cases(), settings_of_a_scorer, st.sets(st.integers(0, 7)))
def test_every_score_is_none_or_finite_in_the_unit_interval(case, options, lost):
    checklist, verdicts = case
    score = score_checklist(
        checklist, [LOST if n in lost else v for n, v in enumerate(verdicts)], Aggregation(**options)
    )
    for name in ("primary_score", "pass_rate", "weighted_score", "expected_score", "normalized_score"):
        value = getattr(score, name)
        below = score.primary_metric == "net" and name == "primary_score"
        assert value is None or (below or 0 <= value) and value <= 1
    assert 0 <= score.answered_weight <= 1


@given(cases(min_size=2), st.integers(0, 7))
def test_the_reason_of_a_failure_never_matters(case, index):
    checklist, verdicts = case
    index %= len(verdicts)
    scores = []
    for reason in ("too_long", "off_label", "backend_error: no route"):
        broken = [*verdicts]
        broken[index] = replace(LOST, unanswered=reason)
        scores.append(numbers(score_checklist(checklist, broken)))
    assert scores[0] == scores[1] == scores[2]


def test_a_majority_of_votes_is_no_matter_of_the_threshold():
    shares = {"yes": 4 / 7, "no": 3 / 7}
    voted = score_checklist(weights(1), [Verdict(shares, "yes", method="votes")], Aggregation(threshold=0.6))
    read = score_checklist(weights(1), [Verdict(shares, method="logprobs")], Aggregation(threshold=0.6))
    assert (voted.items[0].answer, read.items[0].answer) == ("yes", "no")
    assert voted.expected_score == read.expected_score == pytest.approx(4 / 7)


def test_a_grade_is_the_quality_and_may_be_the_primary_score():
    verdicts = [Verdict(answer="yes", quality=4), Verdict(answer="no", quality=4)]
    score = score_checklist(weights(1, 1), verdicts, Aggregation(primary_metric="quality"))
    assert (score.quality, score.primary_score, score.lower, score.upper) == (4, 0.75, 0.75, 0.75)
    unknown = score_checklist(weights(1), [Verdict(answer="yes")], Aggregation(primary_metric="quality"))
    assert (unknown.quality, unknown.primary_score, unknown.lower, unknown.upper) == (None, None, 0.0, 1.0)
    assert rescore(weights(1, 1), score, Aggregation(primary_metric="pass")).quality == 4


def test_pass_rates_by_category():
    checklist = Checklist.parse(
        [{"question": q, "category": c} for q, c in (("a?", "x"), ("b?", "x"), ("c?", "y"), ("d?", None))]
    )
    one = score_checklist(checklist, [p(1.0), p(0.0), LOST, p(1.0)])
    two = score_checklist(checklist, [p(1.0), LOST, p(0.0), p(1.0)])
    assert [item.category for item in one.items] == ["x", "x", "y", None]
    assert one.category_pass_rates == {"x": 0.5, "y": None}
    totals = tally([one, two]).by_category
    assert {name: (rate.macro, rate.micro, rate.counted) for name, rate in totals.items()} == {
        "x": (0.75, pytest.approx(2 / 3), 3),
        "y": (0.0, 0.0, 1),
    }


def test_confidence_is_the_probability_of_the_answer_and_the_level_is_of_yes():
    checklist = Checklist.parse(["Is it short?", "Is it kind?", "Is it new?", "Is it old?"])
    reads = [Verdict({"yes": p, "no": 1 - p}) for p in (0.002, 0.55, 0.9)]
    lines = score_checklist(checklist, [*reads, Verdict(unanswered="too_long")]).items
    assert [line.answer for line in lines] == ["no", "no", "yes", None]
    assert [line.confidence for line in lines] == [0.998, pytest.approx(0.45), 0.9, None]
    assert [line.level for line in lines] == ["no_10", "unsure", "yes_90", None]


def test_a_confidence_in_a_file_is_never_taken_over():
    verdicts = [Verdict(answer="yes"), Verdict({"yes": 0.6, "no": 0.4}), LOST]
    stored = score_checklist(Checklist.parse(["a?", "b?", "c?"]), verdicts).model_dump(mode="json")
    for item in stored["items"]:
        item["confidence"] = 0.7
    assert [line.confidence for line in Score.model_validate(stored).items] == [None, 0.6, None]


def test_the_spread_of_votes_needs_two_with_probabilities():
    def spread(*votes: Verdict, answer: str | None = "yes"):
        verdict = Verdict(answer=answer, votes=votes, unanswered=None if answer else "quorum")
        [line] = score_checklist(Checklist.parse(["Is it short?"]), [verdict]).items
        return line.spread

    one, other = Verdict({"yes": 0.8, "no": 0.2}), Verdict({"yes": 0.4, "no": 0.6})
    assert spread(one, other) == pytest.approx(0.2)
    assert spread(one, other, Verdict(answer="yes"), LOST) == pytest.approx(0.2)
    assert [spread(), spread(one), spread(one, Verdict(answer="no")), spread(one, LOST)] == [None] * 4
    assert spread(one, other, answer=None) is None


def test_a_file_that_has_p_yes_for_a_confidence_is_not_misread():
    score = score_checklist(Checklist.parse(["Is it short?"]), [Verdict({"yes": 0.002, "no": 0.998})])
    before = score.model_dump(mode="json")
    before["items"][0]["confidence"] = 0.002
    assert Score.model_validate(before) == score == Score.model_validate(score.model_dump())
    assert score.model_dump()["items"][0]["confidence"] == 0.998


@given(cases(), settings_of_a_scorer, st.sets(st.integers(0, 7)), st.sampled_from(PRIMARY_METRICS))
def test_another_metric_needs_no_checklist(case, options, lost, metric):
    checklist, verdicts = case
    broken = [LOST if n in lost else verdict for n, verdict in enumerate(verdicts)]
    score = score_checklist(checklist, broken, Aggregation(**options))
    stored = Score.model_validate_json(score.model_dump_json())
    assert stored.under(metric) == score_checklist(
        checklist, broken, Aggregation(**options | {"primary_metric": metric})
    )


def test_another_metric_of_a_score_from_before_weights_were_recorded_needs_the_checklist():
    score = score_checklist(weights(1), [p(1.0)])
    old = score.model_copy(update={"aggregation": None})
    assert old.under("expected") is old
    with pytest.raises(SampleError, match=r"use rescore\(checklist, score\)"):
        old.under("pass")


def test_every_item_has_its_own_key():
    keys = item_keys(Checklist.parse(["a?", "b?", "a?", "a?"]).items)
    a, b = Checklist.parse(["a?", "b?"]).items
    assert keys == (a.id, b.id, f"{a.id}#2", f"{a.id}#3")
    # An item whose own id has the form of such a key keeps it.
    named = [{"question": "a?", "id": "x"}, {"question": "b?", "id": "x#2"}, {"question": "a?", "id": "x"}]
    assert item_keys(Checklist.parse(named).items) == ("x", "x#2", "x#3")


def test_rescore_keeps_the_answer_of_every_copy_of_a_question():
    checklist = Checklist.parse(["a?", "b?", "a?"])
    score = score_checklist(checklist, [Verdict(answer="yes"), Verdict(answer="no"), Verdict(answer="no")])
    assert rescore(checklist, score) == score
