"""The arithmetic of scores: examples of every aggregate, then the properties that must hold for all of them."""

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards import Checklist, ChecklistItem
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
from tests.judges.fakes import options

LOST = Verdict(unanswered="backend_error: gone")


def p(yes: float) -> Verdict:
    return Verdict({"yes": yes, "no": 1 - yes}, mass=1.0)


def checklist_of(items: str) -> Checklist:
    """A checklist with these weights; "!" stands after those of required items."""
    rows = [{"weight": float(w.rstrip("!")), "required": w.endswith("!")} for w in items.split()]
    return Checklist.parse([{"question": f"question {n}?"} | row for n, row in enumerate(rows)])


def weights(*values: float) -> Checklist:
    return checklist_of(" ".join(map(str, values)))


def scored(items: str, *yes: float | None, **settings) -> Score:
    """The score of a checklist with these P(yes). None is a lost read."""
    verdicts = [LOST if each is None else p(each) for each in yes]
    return score_checklist(checklist_of(items), verdicts, Aggregation(**settings))


# --- examples -------------------------------------------------------------------------------------------------------


def test_every_aggregate_of_a_plain_checklist():
    score = scored("2 1 1", 0.9, 0.5, 0.6, primary_metric="weighted")
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


def test_too_little_answered_is_none_never_zero():
    assert scored("1 1 1", 1, None, None).primary_score is None
    assert scored("1 1 1", 1, None, None, min_answered=0.3).primary_score == 1.0
    nothing = scored("1 1", None, None, min_answered=0)
    assert nothing.primary_score is nothing.pass_rate is nothing.raw_score is nothing.expected_score is None
    assert (nothing.answered, nothing.answered_weight, nothing.lower, nothing.upper) == (0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("items", "yes", "primary", "passed", "expected"),
    [
        ("1 1! 1", (1, 0, 1), 0.0, False, 2 / 3),
        ("1 1! 1", (1, 1, 1), 1.0, True, 1.0),
        ("1 1! 1", (1, None, 1), None, None, 1.0),  # 1 would be the score of an open gate
        ("1! 1! 1", (0, None, 1), 0.0, False, 0.5),  # whatever the lost one is
        ("1! 1! 1", (1, None, 1), None, None, 1.0),
        ("1 -1!", (1, 1), 0.0, False, 0.0),  # a penalty fails when it is earned
        ("1 -1!", (1, 0), 1.0, True, 1.0),
    ],
)
def test_a_failed_required_item_makes_the_score_zero_and_a_lost_one_does_not(items, yes, primary, passed, expected):
    score = scored(items, *yes)
    assert (score.primary_score, score.required_passed, score.expected_score) == (primary, passed, expected)
    assert (score.lower, score.upper) == ((0.0, 1.0) if primary is None else (primary, primary))


@pytest.mark.parametrize("metric", ["weighted", "expected", "net"])
def test_a_lost_penalty_does_not_raise_the_score(metric):
    assert scored("1 1 1 -2", 1, 1, 0, 1, primary_metric=metric).primary_score == pytest.approx(0.0)
    assert scored("1 1 1 -2", 1, 1, 0, 0, primary_metric=metric).primary_score == pytest.approx(2 / 3)
    lost = scored("1 1 1 -2", 1, 1, 0, None, primary_metric=metric)
    assert lost.primary_score is lost.weighted_score is lost.expected_score is None
    assert (lost.lower, lost.upper) == (pytest.approx(0.0), pytest.approx(2 / 3))
    # Shares of items count a penalty like any other item, and a checklist of penalties is divided by those answered.
    assert lost.under("pass").primary_score == lost.under("normalized").primary_score == pytest.approx(2 / 3)
    assert scored("-1 -1 -1", 1, 0, None, primary_metric=metric).primary_score == pytest.approx(0.5)
    abstained = with_abstention([{"question": "a?"}, {"question": "bad?", "weight": -2}])
    said = [Verdict(answer="yes"), Verdict(answer="cannot_assess")]
    assert score_checklist(abstained, said, Aggregation(primary_metric=metric)).primary_score == 1.0  # an answer


def test_a_lost_penalty_that_could_change_nothing_leaves_the_score():
    lost = scored("1 1 -1", 0, 0, None)
    assert (lost.primary_score, lost.lower, lost.upper, lost.expected_score) == (0.0, 0.0, 0.0, None)
    assert lost.under("net").primary_score is None
    assert scored("1 1 -1", 0, 0, None, min_answered=0.9).primary_score is None
    unread = Verdict(unanswered=Reason.NOT_NEEDED)
    score = score_checklist(checklist_of("1 1! -1"), [unread, p(0.0), unread])
    assert score.primary_score == 0.0 and score.unanswered == {}
    counted = tally([score, score.model_copy(update={"primary_score": None})])
    assert (counted.reads, counted.not_needed, counted.unscored) == (2, 4, 0)


SCALE = options(bad=0.2, fair=0.5, good=1.0)
NA = options(bad=0.2, fair=0.5, good=1.0, cannot_assess=None)


def test_options_are_worth_their_values_and_softly_their_expectation():
    checklist = Checklist(items=(ChecklistItem(question="How clear is it?", options=SCALE),))
    score = score_checklist(checklist, [Verdict({"bad": 0.1, "fair": 0.6, "good": 0.3})])
    item = score.items[0]
    assert (item.answer, item.value, item.passed, item.confidence, item.level) == ("fair", 0.5, True, 0.6, None)
    assert score.weighted_score == 0.5
    assert score.expected_score == pytest.approx(0.02 + 0.3 + 0.3)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict(answer="maybe"), "judge answered 'maybe' for item .* expected one of"),
        (Verdict({"Yes": 0.9, "No": 0.1}), "judge returned the probabilities .*'Yes': 0.9.* expected those of .'yes'"),
        (p(float("nan")), "judge returned the probabilities .*nan"),
        (Verdict({"yes": 0.45, "no": 0.05}), "judge returned the probabilities .*0.45.*, which sum to 1"),
        (Verdict({"yes": 2.5, "no": -1.5}), "judge returned the probabilities .*-1.5"),
    ],
)
def test_a_judge_that_answers_with_what_is_no_answer_is_an_error_not_a_no(verdict, words):
    with pytest.raises(ValueError, match=words):
        score_checklist(weights(1), [verdict])


def test_the_numbers_of_a_judge_may_be_those_of_numpy_and_are_floats_in_the_score():
    np = pytest.importorskip("numpy")
    vote = Verdict({"yes": np.float32(0.75), "no": np.float32(0.25)}, mass=np.float32(0.5))
    score = score_checklist(weights(1), [replace(vote, votes=(vote,), uncalibrated=vote.probabilities)])
    assert json.loads(json.dumps(score.model_dump()))["items"] == json.loads(score.model_dump_json())["items"]
    assert Score.model_validate_json(score.model_dump_json()) == score and score.primary_score == 0.75


def test_macro_micro_and_reasons_of_a_batch():
    totals = tally([scored("1", 1), scored("1 1 1", 0, 0, 1), scored("1 1", None, None)])
    assert totals.macro == pytest.approx((1 + 1 / 3) / 2)
    assert totals.micro == pytest.approx(2 / 4)
    assert (totals.scored, totals.unscored, totals.reads) == (2, 1, 6)
    assert totals.unanswered == {"backend_error": 2}
    assert tally([]).macro is tally([]).micro is tally([]).mean is None


def test_a_stored_score_is_scored_again_with_new_weights_and_no_judge():
    checklist = weights(1, 1, 1)
    verdicts = [p(0.9), p(0.1), Verdict({"yes": 0.2, "no": 0.8}, mass=0.1, unanswered="off_label")]
    score = score_checklist(checklist, verdicts)
    stored = Score.model_validate_json(score.model_dump_json())
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
        choices = draw(st.sampled_from([None, None, SCALE, NA]))
        weight, required = draw(finite), draw(st.integers(0, 4)) == 0
        items.append(ChecklistItem(question=f"q {n}?", weight=weight, required=required, options=choices))
        if draw(st.booleans()):
            verdicts.append(Verdict(answer=draw(st.sampled_from(list(items[-1].values)))))
        elif choices is None:
            verdicts.append(p(draw(probability)))
        else:
            labels = [option.label for option in choices]
            shares = draw(st.lists(st.floats(0.01, 1), min_size=len(labels), max_size=len(labels)))
            verdicts.append(Verdict({k: s / math.fsum(shares) for k, s in zip(labels, shares, strict=True)}))
    if all(item.weight == 0 for item in items):
        items[0] = items[0].model_copy(update={"weight": 1.0})
    return Checklist(items=tuple(items)), verdicts


metrics = st.sampled_from(PRIMARY_METRICS)
settings_of_a_scorer = st.fixed_dictionaries({"primary_metric": metrics, "abstention": st.sampled_from(ABSTENTIONS)})
lost_places = st.sets(st.integers(0, 7))


SHARES = ("primary_score", "pass_rate", "weighted_score", "expected_score", "normalized_score")


def without(lost, verdicts):
    """The verdicts, without those at these places."""
    return [LOST if n in lost else verdict for n, verdict in enumerate(verdicts)]


def numbers(score):
    return score.model_dump(exclude={"items"})


@given(cases(), settings_of_a_scorer, st.randoms(use_true_random=False))
def test_order_does_not_matter(case, settings, rng: random.Random):
    checklist, verdicts = case
    order = list(range(len(verdicts)))
    rng.shuffle(order)
    shuffled = Checklist(items=tuple(checklist.items[i] for i in order))
    one = score_checklist(shuffled, [verdicts[i] for i in order], Aggregation(**settings))
    other = score_checklist(checklist, verdicts, Aggregation(**settings))
    assert numbers(one) == numbers(other)


@given(cases(), settings_of_a_scorer, lost_places)
def test_a_lost_read_moves_the_score_only_within_its_stated_bounds(case, settings, lost):
    checklist, verdicts = case
    whole = score_checklist(checklist, verdicts, Aggregation(**settings))
    partial = score_checklist(checklist, without(lost, verdicts), Aggregation(min_answered=0, **settings))
    assert 0 <= partial.answered_weight <= 1
    for name in SHARES:  # none, or finite in the unit interval
        value = getattr(partial, name)
        below = whole.primary_metric == "net" and name == "primary_score"
        assert value is None or (below or 0 <= value) and value <= 1
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
def test_weights_scale_out(case, settings, factor):
    checklist, verdicts = case
    scaled = Checklist(items=tuple(i.model_copy(update={"weight": i.weight * factor}) for i in checklist.items))
    before, after = (score_checklist(c, verdicts, Aggregation(**settings)).model_dump() for c in (checklist, scaled))
    for name in SHARES:
        assert after[name] == (None if before[name] is None else pytest.approx(before[name], abs=1e-6))


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


def test_a_grade_is_the_quality_and_may_be_the_primary_score():
    verdicts = [Verdict(answer="yes", quality=4), Verdict(answer="no", quality=4)]
    score = score_checklist(weights(1, 1), verdicts, Aggregation(primary_metric="quality"))
    assert (score.quality, score.primary_score, score.lower, score.upper) == (4, 0.75, 0.75, 0.75)
    unknown = score_checklist(weights(1), [Verdict(answer="yes")], Aggregation(primary_metric="quality"))
    assert (unknown.quality, unknown.primary_score, unknown.lower, unknown.upper) == (None, None, 0.0, 1.0)
    assert rescore(weights(1, 1), score, Aggregation(primary_metric="pass")).quality == 4


def test_pass_rates_by_category():
    categories = {"a?": "x", "b?": "x", "c?": "y", "d?": None}
    checklist = Checklist.parse([{"question": q, "category": c} for q, c in categories.items()])
    one = score_checklist(checklist, [p(1.0), p(0.0), LOST, p(1.0)])
    two = score_checklist(checklist, [p(1.0), LOST, p(0.0), p(1.0)])
    assert [item.category for item in one.items] == ["x", "x", "y", None]
    assert one.category_pass_rates == {"x": 0.5, "y": None}
    totals = tally([one, two]).by_category
    found = {name: (rate.macro, rate.micro, rate.counted) for name, rate in totals.items()}
    assert found == {"x": (0.75, pytest.approx(2 / 3), 3), "y": (0.0, 0.0, 1)}


def test_confidence_is_the_probability_of_the_answer_and_the_level_is_of_yes():
    checklist = Checklist.parse(["Is it short?", "Is it kind?", "Is it new?", "Is it old?"])
    reads = [Verdict({"yes": p, "no": 1 - p}) for p in (0.002, 0.55, 0.9)]
    lines = score_checklist(checklist, [*reads, Verdict(unanswered="too_long")]).items
    assert [line.answer for line in lines] == ["no", "no", "yes", None]
    assert [line.confidence for line in lines] == [0.998, pytest.approx(0.45), 0.9, None]
    assert [line.level for line in lines] == ["no_10", "unsure", "yes_90", None]
    assert [level(x) for x in (0.0, 0.2, 0.4, 0.6, 0.8)] == ["no_10", "no_30", "unsure", "yes_70", "yes_90"]


def test_a_confidence_in_a_file_is_never_taken_over():
    verdicts = [Verdict(answer="yes"), Verdict({"yes": 0.002, "no": 0.998}), LOST]
    score = score_checklist(weights(1, 1, 1), verdicts)
    stored = score.model_dump(mode="json")
    assert [line["confidence"] for line in stored["items"]] == [None, 0.998, None]
    for item in stored["items"]:
        item["confidence"] = 0.002  # P(yes), in files of earlier versions
    assert Score.model_validate(stored) == score == Score.model_validate(score.model_dump())


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


@given(cases(), settings_of_a_scorer, lost_places, metrics)
def test_another_metric_needs_no_checklist(case, settings, lost, metric):
    checklist, verdicts = case
    score, other = (
        score_checklist(checklist, without(lost, verdicts), Aggregation(**settings | changed))
        for changed in ({}, {"primary_metric": metric})
    )
    assert Score.model_validate_json(score.model_dump_json()).under(metric) == other


def test_copies_of_a_question_have_keys_of_their_own_and_keep_their_answers():
    checklist = Checklist.parse(["a?", "b?", "a?"])
    a, b, _ = checklist.items
    assert item_keys(checklist.items) == (a.id, b.id, f"{a.id}#2")
    score = score_checklist(checklist, [Verdict(answer=answer) for answer in ("yes", "no", "no")])
    assert rescore(checklist, score) == score
    # An item whose own id has the form of such a key keeps it.
    named = [{"question": "a?", "id": "x"}, {"question": "b?", "id": "x#2"}, {"question": "a?", "id": "x"}]
    assert item_keys(Checklist.parse(named).items) == ("x", "x#2", "x#3")
