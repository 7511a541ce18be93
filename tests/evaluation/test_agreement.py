"""Two sides put together: coverage apart from agreement, a section for each kind of item, targets and preferences."""

import math

import numpy as np
import pytest
from scipy import stats

from checklist_rewards.evaluation.agreement import (
    ALL,
    by_item,
    compare,
    compare_judges,
    compare_raters,
    paired_test,
    permutation_p,
    units_against_labels,
    units_of_judges,
    verdict,
)
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.calibration import fit_calibration, labelled_reads
from checklist_rewards.evaluation.labels import pairs_of
from checklist_rewards.evaluation.scored import read_scored
from tests.evaluation.files import ABSTAINING, GRADED, LOST, NO_ANSWER, labelled, scored_file

NONE = Bootstrap(resamples=0)


def against_labels(path, bootstrap=NONE, key="labels", most=None, **options):
    units, targets = units_against_labels(labelled(read_scored(path), key)[:most])
    return compare(("judge", "labels"), units, targets, bootstrap, against_labels=True, **options)


def test_what_was_not_answered_is_in_the_coverage_and_nowhere_else(tmp_path):
    asked = {"checklist": ["Is it red?", "Is it big?"]}
    rows = [
        asked | {"said": [0.9, LOST], "labels": [True, True]},
        asked | {"said": [0.9, 0.1], "labels": [False, None]},
    ]
    found = against_labels(scored_file(tmp_path / "s.jsonl", *rows))
    section = found.items["yes/no"]
    assert (found.units, found.coverage.value) == (3, pytest.approx(2 / 3))  # the unlabelled item is no unit
    assert section.units == 2 and section.figures["accuracy"].value == 0.5
    assert section.confusion == ((1, 1), (0, 0)) and section.labels == ("yes", "no")
    outage = asked | {"said": [LOST, LOST], "labels": [True, True]}
    after = against_labels(scored_file(tmp_path / "b.jsonl", *rows, outage))
    assert (after.items, after.targets, after.coverage.value) == (found.items, found.targets, 2 / 5)


def test_checklists_that_differ_from_row_to_row_have_intervals(tmp_path):
    rows = [
        {"checklist": [f"Is it {word}?" for word in words], "said": [0.9] * len(words), "labels": labels}
        for words, labels in (("ab", [1, 0]), ("cde", [1, 1, 0]), ("f", [1]), ("gh", [0, 0])) * 4
    ]
    found = against_labels(scored_file(tmp_path / "s.jsonl", *rows), Bootstrap(100))
    for name in ("accuracy", "precision", "f1", "rmse", "bias"):
        figure = found.items["yes/no"].figures[name]
        assert figure.low < figure.value < figure.high


def test_every_kind_of_item_has_a_section_and_all_together_one_more(tmp_path):
    said = [0.9, {"poor": 0.8, "fine": 0.2}, {"poor": 0.1, "fine": 0.9}, {"yes": 0.1, "no": 0.9}]
    wrong = {"question": "Wrong?", "options": [{"label": "yes", "value": 0}, {"label": "no", "value": 1}]}
    checklist = ["Is it red?", GRADED, {**GRADED, "question": "How short?"}, wrong]
    row = {"checklist": checklist, "said": said, "labels": [True, "fine", "fine", "no"]}
    found = against_labels(scored_file(tmp_path / "s.jsonl", row))
    assert {kind: section.units for kind, section in found.items.items()} == {
        "yes/no": 1,
        "poor=0 | fine=1": 2,
        "yes=0 | no=1": 1,
        ALL: 4,
    }
    assert found.items[ALL].figures["accuracy"].value == pytest.approx(3 / 4)  # no item is left out of it
    assert found.items[ALL].figures["mae"].value == pytest.approx((0.1 + 0.8 + 0.1 + 0.1) / 4)
    assert "kappa" not in found.items[ALL].figures


def test_levels_in_the_own_words_of_each_rubric_are_the_same_answers(tmp_path):
    """Every task of BiGGen-Bench describes its levels: BiGGen-Bench/tasks/*/*/data.json of prometheus-eval."""

    def read(name, words):
        rows = []
        for n in range(40):
            labels = [words.format(task=n // 2, level=level) for level in range(1, 6)]
            options = [{"label": label, "value": level / 4} for level, label in enumerate(labels)]
            said = {label: 0.6 if level == n * 7 % 5 else 0.1 for level, label in enumerate(labels)}
            item = {"question": "How clear?", "options": options}
            rows.append({"checklist": [item], "said": [said], "labels": [labels[(n * 7 + n // 3) % 5]]})
        path = scored_file(tmp_path / name, *rows)
        texts = labelled(read_scored(path))
        calibration, reports = fit_calibration(labelled_reads(texts), bootstrap=NONE)
        return against_labels(path).items, compare_raters([texts, texts], NONE), calibration.maps, reports

    own = read("own.jsonl", "Task {task} at {level}")
    assert own == read("same.jsonl", "level {level}")
    assert [section.units for section in own[0].values()] == [40]


def test_targets_are_compared_with_the_score_that_their_labels_give(tmp_path):
    checklist = [{"question": "Is it red?", "weight": 3}, {"question": "Is it rude?", "weight": -1}]
    rows = [
        # Judge: (3 x .8 - 1 x .5) / 3; labels: (3 - 1) / 3.
        {"checklist": checklist, "said": [0.8, 0.5], "labels": [True, True]},
        {"checklist": checklist, "said": [0.2, 0.0], "labels": [False, None]},  # not all labelled: no true score
    ]
    path = scored_file(tmp_path / "s.jsonl", *rows)
    for weight in (3, 1):  # the column does not have the weights of `score --weights`
        path.write_text(
            path.read_text().replace(
                '"checklist": [{"question": "Is it red?", "weight": 3}',
                f'"checklist": [{{"question": "Is it red?", "weight": {weight}}}',
            )
        )
        assert read_scored(path)[0].checklist.items[0].weight == weight
        found = against_labels(path)
        assert found.targets.units == 1
        assert found.targets.figures["bias"].value == pytest.approx(1.9 / 3 - 2 / 3)


@pytest.mark.parametrize(("abstention", "score"), [("skip", 1.0), ("zero", 0.5), ("partial", 0.75), ("fail", 0.5)])
def test_labels_are_aggregated_by_the_rules_of_the_judges_score(tmp_path, abstention, score):
    said = {"said": ["yes", "cannot_assess"], "labels": ["yes", "cannot_assess"]}
    path = scored_file(
        tmp_path / "s.parquet", {"checklist": ["Is it red?", ABSTAINING], **said}, abstention=abstention
    )
    _, [target] = units_against_labels(labelled(read_scored(path), "labels"))
    # The judge gives every answer that the labels give, so both get the same score.
    assert (target.one, target.other) == (score, score)


def test_preferences_of_inputs_in_one_group_are_not_independent(tmp_path):
    """Every document with all its texts again under another input: the figures say no more than once."""
    rows = [
        {"checklist": ["Is it red?"], "said": [p], "labels": float((n * p) % 0.3 < 0.15), "doc": f"d{n}", "copy": copy}
        for n in range(30)
        for copy in "ab"
        for p in (0.1 + n / 50, 0.5, 0.9 - n / 40)
    ]
    found = []
    for some in (rows, [row for row in rows if row["copy"] == "a"]):
        texts = labelled(read_scored(scored_file(tmp_path / "s.jsonl", *some), group_key="doc"))
        inputs = [row["doc"] + row["copy"] for row in some]
        sides = ("judge", "labels"), *units_against_labels(texts)
        found.append(compare(*sides, Bootstrap(100), against_labels=True, inputs=inputs).preferences)
    twice, once = found
    assert (twice.units, once.units) == (180, 90) and once.figures["wins"].low is not None
    for name in ("pld_0", "wins", "difference"):
        assert twice.figures[name].model_dump() == pytest.approx(once.figures[name].model_dump())
    assert twice.figures["t_test_p"].value == pytest.approx(once.figures["t_test_p"].value)


def two_judges(tmp_path):
    checklist = ["Is it red?", "Is it big?", "Is it old?"]
    rows = [{"id": str(i), "checklist": checklist, "labels": [True, False, True]} for i in range(4)]
    one = [{**row, "said": [0.9, 0.1, 0.9]} for row in rows]
    other = [{**row, "said": [0.9, 0.8, LOST]} for row in rows[:3]]
    return scored_file(tmp_path / "one.jsonl", *one), scored_file(tmp_path / "other.jsonl", *other, judge="other")


def test_two_judges_are_matched_by_row_and_item(tmp_path):
    one, other = map(read_scored, two_judges(tmp_path))
    pairs, unmatched = pairs_of(one, other[::-1], ("one", "other"))  # the order of rows does not matter
    units, targets, unmatched_items = units_of_judges(pairs)
    found = compare(("one", "other"), units, targets, NONE, against_labels=False, unmatched_rows=unmatched)
    assert (unmatched, unmatched_items, found.units) == (1, 0, 9)
    assert found.coverage.value == pytest.approx(6 / 9)
    assert found.items["yes/no"].figures["accuracy"].value == 0.5
    assert "precision" not in found.items["yes/no"].figures  # neither judge is the truth
    assert found.items["yes/no"].figures["rmse"].value == pytest.approx((0.49 / 2) ** 0.5)
    sections = compare_raters([one, other, one], NONE)
    assert sections["yes/no"].units == 9 and sections["yes/no"].figures["fleiss_kappa"].value is not None
    # Three rows of two items each: both are right about the first item, only one judge about the second.
    tested = compare_judges(
        ("one", "other"), *(units_against_labels(labelled(rows, "labels"))[0] for rows in (one, other)), NONE
    )
    assert (tested.units, tested.only_one_right, tested.only_other_right) == (6, 3, 0)
    assert tested.permutation_p == pytest.approx(2 / 2**3)


def test_items_that_one_judge_was_not_asked_are_counted(tmp_path):
    row = {"id": "a", "said": [0.9, 0.9]}
    one = read_scored(scored_file(tmp_path / "1.jsonl", {**row, "checklist": ["Is it red?", "Is it big?"]}))
    other = read_scored(scored_file(tmp_path / "2.jsonl", {**row, "checklist": ["Is it red?", "Is it new?"]}))
    units, _, unmatched = units_of_judges(pairs_of(one, other, ("1", "2"))[0])
    assert (len(units), unmatched) == (1, 2)


def test_a_text_without_an_answer_changes_no_figure_of_the_judge(tmp_path):
    """A human and the rule for such texts agree that they are bad, which says nothing about the judge."""
    rows = [
        {"checklist": ["Is it red?", "Is it big?"], "said": said, "labels": labels, "stars": stars}
        for said, labels, stars in (([0.9, 0.3], [1, 1], 1), ([0.2, 0.9], [0, 1], 0.5), ([0.8, 0.1], [1, 0], 0))
    ]
    none = {**rows[0], "said": [NO_ANSWER, NO_ANSWER], "labels": [0, 0], "stars": 0}
    judged = scored_file(tmp_path / "a.jsonl", *rows)
    mixed = scored_file(tmp_path / "b.jsonl", *rows, none)
    for key in ("labels", "stars"):
        before = against_labels(judged, key=key, inputs=["x"] * 3)
        after = against_labels(mixed, key=key, inputs=["x"] * 4)
        assert (before.no_answer, after.no_answer) == (0, 1)
        assert after.model_copy(update={"no_answer": 0}) == before
    found = against_labels(scored_file(tmp_path / "c.jsonl", none))
    assert (found.units, found.no_answer, found.targets, found.coverage.value) == (0, 1, None, None)


def test_two_judges_that_were_not_asked_do_not_agree(tmp_path):
    row = {"checklist": ["Is it red?"]}
    one = scored_file(tmp_path / "1.jsonl", *({**row, "said": [p]} for p in (0.9, NO_ANSWER, NO_ANSWER)))
    other = scored_file(tmp_path / "2.jsonl", *({**row, "said": [p]} for p in (0.2, NO_ANSWER, 0.9)))  # judged once
    files = list(map(read_scored, (one, other)))
    units, targets, unmatched = units_of_judges(pairs_of(*files, ("1", "2"))[0])
    found = compare(("1", "2"), units, targets, NONE, against_labels=False)
    assert (found.units, found.targets.units, found.no_answer, unmatched) == (1, 1, 2, 0)
    assert found.coverage.value == 1 and found.items["yes/no"].figures["accuracy"].value == 0
    assert compare_raters(files, NONE)["yes/no"].units == 2  # one of them was read by a judge


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (lambda n: n % 2, "better than chance on 40 yes/no items: kappa 1.000"),
        (lambda n: 1 - n % 2, "worse than chance on 40 yes/no items: kappa -1.000"),
        (lambda n: n // 2 % 2, "no better than chance on 40 yes/no items: kappa 0.000 ["),
    ],
)
def test_one_sentence_says_whether_two_sides_agree_better_than_chance(tmp_path, said, words):
    rows = [{"checklist": ["Is it red?"], "said": [0.1 + 0.8 * said(n)], "labels": [n % 2]} for n in range(40)]
    path = scored_file(tmp_path / "s.jsonl", *rows)
    assert verdict(against_labels(path, Bootstrap(100))).startswith(f"judge agrees with labels {words}")
    few = verdict(against_labels(path, Bootstrap(100), most=10))
    assert few.startswith("It is unknown whether judge agrees with labels better than chance on 10 ")
    assert "needs 15 groups, has 10" in few


def test_agreement_by_question_lowest_first(tmp_path):
    asked, said = ["Is it red?", "Is it big?", "Is it old?"], [0.9] * 3
    labels = [[1, n % 2 if n < 5 else None, 1 if n < 4 else None] for n in range(8)]
    rows = [{"checklist": asked, "said": said, "labels": of} for of in labels]
    units, _ = units_against_labels(labelled(read_scored(scored_file(tmp_path / "s.jsonl", *rows)), "labels"))
    big, red = by_item(units)
    assert big == ("Is it big?", 5, 0.4, 1.0, 0.4) and red == ("Is it red?", 8, 1.0, 1.0, 1.0)


# --- tests between two judges, by hand


def paired(only_one, only_other, both=0, groups=None):
    one = [True] * only_one + [False] * only_other + [True] * both
    other = [False] * only_one + [True] * only_other + [True] * both
    groups = range(len(one)) if groups is None else groups
    return paired_test(("a", "b"), (one, other), groups)


def test_mcnemar_is_exact_for_few_differences_and_chi_squared_with_continuity_for_many():
    found = paired(10, 2, both=88)
    assert (found.only_one_right, found.only_other_right, found.units) == (10, 2, 100)
    assert found.mcnemar_p == pytest.approx(2 * (1 + 12 + 66) / 2**12)  # at most 2 of 12, both sides
    assert found.accuracy_difference == pytest.approx(0.08)
    assert paired(30, 10).mcnemar_p == pytest.approx(math.erfc(math.sqrt((30 - 10 - 1) ** 2 / 40 / 2)))
    shared = paired(12, 2, groups=[n // 2 for n in range(14)])
    assert shared.mcnemar_p is None and shared.permutation_p is not None
    equal = paired(0, 0, both=5)
    assert equal.mcnemar_p is None and equal.permutation_p == 1.0


@pytest.mark.parametrize(
    ("differences", "groups", "p"),
    [
        ([1, 1, 1, -1, 1], "abcde", 12 / 32),  # 12 ways to choose the signs have a sum of 3 or more on either side
        ([1] * 6, "abcdef", 2 / 64),
        ([1] * 6, "aaabbb", 2 / 4),  # whole groups are flipped: six items, but two groups
    ],
)
def test_a_permutation_by_hand(differences, groups, p):
    assert permutation_p(np.array(differences, float), groups) == pytest.approx(p)
    assert permutation_p(np.array(differences, float), "a" * len(differences)) is None


def test_many_groups_are_drawn_and_agree_with_the_exact_test():
    differences = np.random.default_rng(0).normal(0.4, 1, 16)
    exact = stats.permutation_test(
        (differences,), lambda flipped, axis: flipped.sum(axis), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    found = permutation_p(differences, list(range(16)))
    assert found == pytest.approx(exact, abs=0.02) and found == permutation_p(differences, list(range(16)))
