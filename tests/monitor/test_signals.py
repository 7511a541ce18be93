"""What each signal measures: literal completions in, literal sums out."""

import pytest

from checklist_rewards.monitor.seen import Retest, Shadowed
from checklist_rewards.monitor.signals import (
    SIGNALS,
    best,
    correlation,
    dominance,
    gained_by_length,
    held_out_gap,
    kappa,
    length_matched,
    within_groups,
)
from checklist_rewards.rewards.settings import MonitorConfig
from tests.monitor.fakes import line, observed, seen

BY_NAME = {signal.name: signal for signal in SIGNALS}


def now(name, *completions):
    signal = BY_NAME[name]
    sums = signal.measure(observed(*completions))
    return None if sums is None else signal.figure(sums)


def test_every_signal_has_a_threshold_and_every_threshold_a_signal():
    thresholds = {name.removeprefix("max_") for name in MonitorConfig.model_fields if name.startswith("max_")}
    assert {signal.name for signal in SIGNALS} | {"canary", "attack"} == thresholds


def test_an_unscored_completion_has_no_reward_to_measure_and_a_step_without_completions_nothing():
    assert {now(name) for name in BY_NAME} == {None}
    found = {name: now(name, seen(None, lines=[line(None)])) for name in BY_NAME}
    assert {name: value for name, value in found.items() if value is not None} == {
        "unanswered": 1.0,
        "mass_loss": 1.0,
        "steering": 0.0,
        "copied": 0.0,
        "repetition": 0.0,
        "length_change": 10.0,
    }


def test_a_held_out_item_without_an_answer_is_no_gap():
    gap = seen(lines=[line(0.9, id="a"), line(0.7, id="b"), line(0.2, id="c", held_out=True)])
    unanswered = seen(lines=[line(0.9, id="a"), line(None, id="c", held_out=True)])
    assert now("held_out_gap", gap, unanswered) == held_out_gap(gap) == pytest.approx(0.6)


def test_shadow_gap_and_kappa():
    one, other = Shadowed(0.9, 0.4, (2, 2, 0, 1)), Shadowed(0.5, 0.5, (1, 0, 1, 3))
    completions = [seen(shadow=one), seen(shadow=other), seen()]
    assert now("shadow_gap", *completions) == pytest.approx(0.25)
    # 10 items, agreement .7; the judge passes 5 of 10, the shadow judge 4: chance .5
    assert now("shadow_disagreement", *completions) == pytest.approx((0.7 - 0.5) / 0.5)
    assert kappa((5.0, 0.0, 0.0, 0.0)) is None and kappa((2.0, 0.0, 0.0, 2.0)) == 1


def test_reward_signals():
    flat, varied = [seen(0.5), seen(0.5)], [seen(0.0, group="h"), seen(1.0, group="h")]
    assert now("variance_loss", *flat, *varied) == 0.25 and now("flat_groups", *flat, *varied) == 0.5
    assert now("saturation", *flat, *varied) == 0.25 and now("reward_jump", *varied) == 0.5


def test_a_reward_or_a_gap_of_0_is_evidence_too():
    """After a fall of the rewards, all of them may be 0."""
    none = seen(
        0.0, lines=[line(0.5, id="a"), line(0.5, id="b", held_out=True)], shadow=Shadowed(0.5, 0.5, (0, 0, 0, 0))
    )
    for name in ("reward_jump", "held_out_gap", "shadow_gap"):
        assert [value for _, value in best([none], BY_NAME[name].evidence)] == [0.0]


def test_items_that_all_pass_or_fail_count_by_group_and_item():
    group = [seen(lines=[line(0.9, id="a"), line(0.1, id="b"), line(0.9, id="c")]) for _ in range(2)]
    group[1] = seen(lines=[line(0.8, id="a"), line(0.2, id="b"), line(0.1, id="c")])
    assert now("passed_by_all", *group) == now("failed_by_all", *group) == pytest.approx(1 / 3)
    assert now("passed_by_all", group[0], seen(group="h", lines=group[1].lines)) is None  # groups of one
    # A repeated question of one completion is not two completions.
    assert now("passed_by_all", seen(lines=[line(0.9, id="a"), line(0.8, id="a")])) is None


def test_dominance_is_the_largest_share_of_the_earned_weight():
    lines = [line(1.0, id="a", weight=6.0), line(1.0, id="b"), line(0.5, id="c", weight=2.0)]
    assert dominance(seen(lines=lines)) == pytest.approx(0.75)
    assert dominance(seen(lines=lines[:2])) is None
    assert dominance(seen(lines=[line(0.0, id=name) for name in "abc"])) is None


def test_signals_about_the_judge():
    flipped = Retest("a", "reworded", "yes", "no")
    steady, lost = Retest("a", "reordered", "yes", "yes"), Retest("a", "reordered", "yes", None)
    steers = Retest("q", "steering", None, "yes")
    one = seen(retests=(flipped, steady, lost, steers), lines=[line(0.9, mass=0.6), line(None, mass=None)])
    assert (now("flips", one), now("judged_steering", one, seen())) == (0.5, 1.0)
    assert (now("mass_loss", one), now("unanswered", one)) == (0.6, 0.5)


def test_length_inside_groups_is_not_that_between_groups():
    # a longer group has lower rewards; inside each group, longer is better
    groups = [seen(0.1 * n + (0.5 if group == "a" else 0), group=group, words=10 * n + (0 if group == "a" else 100))
              for group in "ab" for n in range(4)]  # fmt: skip
    assert now("length_bias", *groups) == pytest.approx(1.0)
    assert correlation(within_groups(observed(seen(0.5), seen(0.5)))) is None
    start, recent = (
        within_groups(observed(*groups)),
        within_groups(observed(*[seen(one.reward + 0.3, group=one.group, words=one.words + 30) for one in groups])),
    )
    assert gained_by_length(start, recent) == pytest.approx(0.3)  # 0.01 per word x 30 words
    assert length_matched(start, recent) == pytest.approx(0.4)  # the mean reward of the start


def test_the_three_best_completions_are_different():
    completions = [seen(0.1 * n, text="same" if n > 7 else f"text {n}") for n in range(10)]
    assert [one.text for one, _ in best(completions, lambda one: one.reward)] == ["same", "text 7", "text 6"]
    assert best(completions, lambda one: None) == []


NONE = {"words": 0, "text": "", "lines": ()}


def test_the_share_of_completions_without_an_answer_and_of_cut_ones():
    states = ["answered", "cut", "cut_in_thought", "empty", "unfinished", None]
    completions = [seen(state=state, **({} if state in ("answered", "cut", None) else NONE)) for state in states]
    assert now("no_answer", *completions) == 3 / 5 and now("cut", *completions) == 1 / 5  # the last is not recorded
    assert now("no_answer", seen(), seen()) is None and now("cut", seen()) is None
    shown = [one.state for one, _ in best(completions, BY_NAME["cut"].evidence)]
    assert shown == ["cut"] and [one.state for one, _ in best(completions[:3], BY_NAME["no_answer"].evidence)] == [
        "cut_in_thought"
    ]
    step = observed(*completions, *[seen(state="cut_in_thought", **NONE)] * 2)
    assert BY_NAME["no_answer"].found(step) == (
        "5 of 7 completions of this step have no answer: 3 cut_in_thought, 1 empty, 1 unfinished."
    )
    assert BY_NAME["cut"].found(step) == "1 of 7 completions of this step were cut in their answer."
    assert BY_NAME["cut"].found(observed(seen())) == "0 of 0 completions of this step were cut in their answer."


def test_a_completion_without_an_answer_counts_in_no_signal_about_texts_items_or_the_judge():
    groups = [
        seen(0.1 * n, group=group, words=10 + n, repetition=0.4, copied=0.5, prompt_copied=0.3,
             lines=[line(0.9, id="a"), line(0.1 * n, id="b"), line(None, id="c", mass=None)], state="answered")
        for group in "gh" for n in range(1, 4)
    ]  # fmt: skip
    none = [seen(0.0, group=group, state=state, **NONE) for group in "gh" for state in ("empty", "cut_in_thought")]
    for name in BY_NAME.keys() - {"no_answer", "cut", "reward_jump", "variance_loss", "flat_groups"}:
        assert now(name, *groups, *none) == now(name, *groups), name
    for name in ("failed_by_all", "length_change", "length_bias", "repetition", "unanswered"):
        shown = best([*groups, *none], BY_NAME[name].evidence, count=20)
        assert shown and all(one.state == "answered" for one, _ in shown), name


def test_the_same_opening_is_looked_for_in_the_completions_of_other_prompts():
    def said(group, *texts):
        return [seen(group=group, text=text) for text in texts]

    alike, other = "Can I help you?", "A bridge is there."
    step = observed(*said("g", alike, alike), *said("h", "can I HELP me?", other), *said("i", other))
    # Shares of the others: g 1/3 and 1/3; h 2/3 and 1/3; i 1/4.
    assert BY_NAME["same_opening"].measure(step) == pytest.approx((1 / 3 + 1 / 3 + 2 / 3 + 1 / 3 + 1 / 4, 5))
    assert BY_NAME["same_opening"].found(step) == (
        "3 of 5 completions of this step, to 2 prompts, begin with 'can i help'."
    )
    assert now("same_opening", *said("g", alike, alike)) is None, "one prompt may well have one opening"
    assert now("same_opening", *said("g", alike), *said("h", other)) == 0
    assert BY_NAME["same_opening"].found(observed()) == "None of this step has an answer."


def test_the_completions_that_show_repetition_and_unanswered_reads():
    completions = [
        seen(text="some", repetition=0.2, lines=[line(None), line(0.5, id="b")]),
        seen(text="none", repetition=0.0, lines=[line(0.5)]),
        seen(text="most", repetition=0.7, lines=[line(None), line(None, id="b"), line(0.5, id="c")]),
    ]
    shown = {name: best(completions, BY_NAME[name].evidence) for name in ("repetition", "unanswered")}
    assert [(one.text, value) for one, value in shown["repetition"]] == [("most", 0.7), ("some", 0.2)]
    assert [(one.text, value) for one, value in shown["unanswered"]] == [("most", 2), ("some", 1)]
