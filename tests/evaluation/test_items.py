"""Item analysis against figures worked by hand, and generated checklists against those of people."""

import numpy as np
import pytest

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.items import ItemAnalysis, category_figures, flagged, similarity
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from tests.evaluation.files import score_of

CHECKLIST = Checklist.parse(["a?", "b?", {"question": "c?", "weight": -1, "category": "penalty"}])


def scored(answers, checklist=CHECKLIST):
    """One score per string of answers: y, n, or - for unanswered."""
    answered = {"y": "yes", "n": "no", "-": None}
    return [score_of(checklist, *(answered[letter] for letter in row), min_answered=0) for row in answers]


def analysed(answers, checklist=CHECKLIST):
    analysis = ItemAnalysis()
    for score in scored(answers, checklist):
        analysis.add(score)
    return analysis


def test_rates_and_correlations_by_hand():
    a, b, c = analysed(["yyn", "yny", "yyn", "nny", "y-n"]).report()
    assert (a.answered, a.pass_rate, a.variance) == (5, 0.8, pytest.approx(0.16))
    assert (b.answered, b.unanswered, b.pass_rate) == (4, 1, 0.5)
    assert (c.pass_rate, c.category) == (0.6, "penalty")  # a penalty passes where the answer is no
    a, *_ = analysed(["yyn", "yyn", "yny", "nny", "nyy"]).report()
    # a passes 1 1 1 0 0; of the others pass 1, 1, 0, 0, .5 (c passes on "n")
    assert a.discrimination == pytest.approx(np.corrcoef([1, 1, 1, 0, 0], [1, 1, 0, 0, 0.5])[0, 1])
    assert analysed(["yyn", "nny", "yyn", "nny"]).report()[0].discrimination is None  # four targets
    assert analysed(["yyn"] * 8).report()[0].discrimination is None  # no variance


def test_the_item_with_the_same_answers():
    a, b, c = analysed(["yyy", "nny", "yyn", "nnn", "yyy", "nnn"]).report()
    assert (a.same_answers, a.phi) == ("b?", pytest.approx(1))
    assert (b.same_answers, b.phi) == ("a?", pytest.approx(1))
    assert "same_answers" in a.flags and "same_answers" not in c.flags


def test_flags():
    reports = {line.question: line for line in analysed(["yyn", "yny", "yyn", "yny", "yy-", "yn-"]).report()}
    assert "always_passes" in reports["a?"].flags
    assert reports["b?"].flags == ()
    assert "often_unanswered" in reports["c?"].flags
    assert [line.question for line in flagged(list(reports.values()))] == ["a?", "c?"]
    inverted = analysed(["yny", "yny", "nyn", "nyn", "yny", "nyn"]).report()[0]
    assert inverted.discrimination == pytest.approx(-1) and "inverted" in inverted.flags


def test_items_of_different_checklists_are_never_compared():
    analysis = analysed(["yyn", "nny"] * 4)
    for score in scored(["y", "n"] * 4, Checklist.parse(["d?"])):
        analysis.add(score)
    *_, d = analysis.report()
    assert (d.answered, d.phi, d.discrimination) == (8, None, None)


def test_stability_counts_answered_repeats():
    analysis = ItemAnalysis()
    first, again, third = scored(["yyn", "ynn", "y-y"])
    analysis.add(first)
    analysis.add_repeat(first, again)
    analysis.add_repeat(first, third)
    a, b, c = analysis.report()
    assert [(line.stability, line.repeats) for line in (a, b, c)] == [(1, 2), (0, 1), (0.5, 2)]
    assert "unstable" in b.flags and "unstable" not in a.flags
    with pytest.raises(SampleError, match="the repeated score has 1 items, but the first has 3"):
        analysis.add_repeat(first, scored(["y"], Checklist.parse(["a?"]))[0])


def test_samples_of_one_judge_are_repeats_and_votes_of_several_are_not():
    def voted(*judges):
        votes = tuple(
            Verdict(answer=said, judge=judge) for said, judge in zip("yes yes no".split(), judges, strict=True)
        )
        return score_checklist(Checklist.parse(["a?"]), [Verdict(answer="yes", method="votes", votes=votes)])

    analysis = ItemAnalysis()
    analysis.add(voted("one", "one", "one"))
    analysis.add(voted("one", "two", "three"))
    alone = (Verdict(answer="yes", judge="one"), Verdict(unanswered="unparsable", judge="one"))
    analysis.add(score_checklist(Checklist.parse(["a?"]), [Verdict(answer="yes", method="votes", votes=alone)]))
    [a] = analysis.report()
    assert (a.stability, a.repeats) == (pytest.approx(2 / 3), 3)


def test_wordings_are_compared_where_they_could_be_the_same_question():
    def embed(texts):
        near = {"Is it polite?": (1, 0.1), "Is it courteous?": (1, 0), "Is it not polite?": (1, 0.1), "Rain?": (0, 1)}
        return [near[text] for text in texts]

    checklist = Checklist.parse(["Is it polite?", "Is it courteous?", "Is it not polite?", "Rain?"])
    polite, courteous, negated, rain = analysed(["yyny"], checklist).report(embed)
    assert (polite.same_words, courteous.same_words) == ("Is it courteous?", "Is it polite?")
    assert "same_words" in polite.flags
    assert negated.similarity is None  # no other question has its "not"
    assert rain.similarity < 0.2 and "same_words" not in rain.flags


def test_a_target_without_an_answer_says_nothing_about_an_item():
    missing = [Verdict(unanswered="no_answer: empty")] * 3
    answers = ["yyn", "yny", "nyn", "nny", "y-n", "yyy"]
    analysis = ItemAnalysis()
    for score in scored(answers):
        analysis.add(score)
        for rule in ("lowest", "unscored"):
            analysis.add(score_checklist(CHECKLIST, missing, Aggregation(no_answer=rule), state="empty"))
    assert analysis.report() == analysed(answers).report()
    assert (analysis.targets, analysis.no_answer) == (6, 12)
    analysis.add_repeat(scored(["yyn"])[0], score_checklist(CHECKLIST, missing, state="empty"))
    assert all(line.repeats == 0 for line in analysis.report())


def test_each_copy_of_a_repeated_question_is_an_item_of_its_own():
    first, other, copy = analysed(
        ["yyy", "nyn", "yny", "nnn", "yyy", "nny"], Checklist.parse(["a?", "b?", "a?"])
    ).report()
    assert (first.answered, copy.answered, copy.id) == (6, 6, f"{first.id}#2")
    assert (first.pass_rate, copy.pass_rate) == (0.5, pytest.approx(2 / 3))
    assert first.same_answers == "a?" and first.phi == pytest.approx(0.7071, abs=1e-4)


def lists(*questions):
    return [Checklist.parse(list(entry)) for entry in questions]


def test_generated_checklists_are_compared_with_those_of_people():
    same = lists(["Does the poem mention the rain?", "Is it a haiku of three lines?"])
    near = similarity(same, same)
    assert (near.bleu, near.count_mae) == (pytest.approx(100), 0)
    assert near.rouge == {"rouge1": 1, "rouge2": 1, "rougeL": 1}
    near = similarity(lists(["is it red"], ["is it"]), lists(["is it blue", "is it big"], ["is it"]))
    assert near.count_mae == 0.5
    # first pair: 2 of 3 words are among the 6 of people's: P 2/3, R 2/6, F1 4/9; second: 1
    assert near.rouge["rouge1"] == pytest.approx((4 / 9 + 1) / 2)
    for pair in (([], []), (lists(["a?"]), [])):
        with pytest.raises(SampleError, match="compared in pairs"):
            similarity(*pair)


def test_categories_one_against_the_rest():
    style, form = category_figures(["style", "style", None, "form"], ["style", "form", "style", "form"])
    assert (style.precision, style.recall, style.f1, style.support) == (0.5, 0.5, 0.5, 2)
    assert (form.precision, form.recall, form.f1) == (1, 0.5, pytest.approx(2 / 3))
    assert [(line.precision, line.recall) for line in category_figures(["x"], ["y"])] == [(None, 0), (0, None)]
    assert category_figures([], []) == []
    with pytest.raises(SampleError, match="1 tagged items and 2 labels"):
        category_figures(["a"], ["a", "b"])
