"""Weights fitted to labels whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from checklist_rewards import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.fitting import fit_weights, labelled_scores
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.judges.weights import Weights
from checklist_rewards.scores import rescore
from tests.evaluation.files import score_of

QUESTIONS = [f"Is it {word}?" for word in ("true", "kind", "red", "old", "rude")]
CHECKLIST = Checklist.parse(
    [{"question": question, "weight": -1 if "rude" in question else 1} for question in QUESTIONS]
)
TRUE = np.array([3, 1, 0, 0, -2])
INTERVALS = Bootstrap(40)


def scored(answers, labels=None, checklist=CHECKLIST, group=lambda number: number):
    """One row per line of P(yes); None is unanswered."""
    rows = []
    for number, line in enumerate(answers):
        label, where = None if labels is None else labels[number], f"rows.jsonl, row {number + 1}"
        rows.append(ScoredText(str(number), where, score_of(checklist, *line), str(group(number)), labels=label))
    return rows


def drawn(count, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    answers = rng.beta(0.5, 0.5, (count, len(QUESTIONS)))
    return answers, (answers @ TRUE + noise * rng.standard_normal(count)).tolist()


def test_the_weights_that_the_labels_have_are_found_and_signs_stay():
    answers, labels = drawn(300)
    fit = fit_weights(labelled_scores(scored(answers, labels)), INTERVALS)
    assert (fit.by, fit.measure, fit.labels, fit.groups) == ("item", "correlation", 300, 300)
    ratios = np.array([line.weight for line in fit.weights]) / fit.weights[0].weight * 3
    assert ratios == pytest.approx(TRUE, abs=0.4)
    assert sum(abs(line.weight) for line in fit.weights) == pytest.approx(5)
    assert all(line.low - 1e-9 <= line.weight <= line.high + 1e-9 for line in fit.weights)
    adds = [line.adds for line in fit.weights]
    assert adds[0] > adds[4] > adds[1] > 0.01 > abs(adds[2])
    figures = fit.figures
    assert figures["gain"].low > 0 and figures["fitted"].value > 0.9 and fit.needed is None
    assert figures["gain"].value == pytest.approx(figures["fitted"].value - figures["present"].value)


def test_the_file_changes_the_score_as_the_fit_says():
    answers, labels = drawn(200)
    rows = scored(answers, labels)
    labelled = labelled_scores(rows)
    fit = fit_weights(labelled, Bootstrap(0))
    weighted = Weights.load(fit.dumped()).of(CHECKLIST)
    again = [rescore(weighted, row.score).expected_score for row in rows]
    weights = np.array([abs(line.weight) for line in fit.weights])
    assert labelled.scores(weights) == pytest.approx(again)
    assert labelled.scores(labelled.present) == pytest.approx([row.score.expected_score for row in rows])
    assert np.corrcoef(again, labels)[0, 1] == pytest.approx(fit.figures["train"].value)


def test_held_out_groups_are_not_seen_in_training():
    """Random labels of random texts: with copies of each text in all folds, they look learnable."""
    rng = np.random.default_rng(3)
    answers, labels = np.repeat(rng.random((30, 5)), 10, axis=0), np.repeat(rng.random(30), 10).tolist()
    alone = labelled_scores(scored(answers, labels))
    together = labelled_scores(scored(answers, labels, group=lambda number: number // 10))
    assert fit_weights(alone, INTERVALS).figures["fitted"].low > 0
    with pytest.raises(SampleError, match="nothing can be learned from 300 labels"):
        fit_weights(together, INTERVALS)


def test_preferences():
    answers, labels = drawn(300)
    pairs = [(n, n + 1) if labels[n] > labels[n + 1] else (n + 1, n) for n in range(0, 300, 2)]
    labelled = labelled_scores(scored(answers, group=lambda n: n // 2), pairs=pairs)
    fit = fit_weights(labelled, INTERVALS)
    assert (fit.measure, fit.labels, fit.groups) == ("in order", 150, 150)
    assert fit.figures["fitted"].value > 0.85 > fit.figures["present"].value
    assert fit.weights[0].weight > 2 * abs(fit.weights[2].weight) and fit.weights[4].weight < -1


def test_pairs_that_share_a_text_are_held_out_together():
    """Each text is in two pairs, once chosen and once rejected, and is a group of its own: a chain per prompt."""
    answers, _ = drawn(120)
    pairs = [(n, n + 1) for n in range(119) if n % 4 != 3]
    labelled = labelled_scores(scored(answers), pairs=pairs)
    assert len(labelled.groups) == 90 and len(set(labelled.groups)) == 30
    of_text = {}
    for group, pair in zip(labelled.groups, pairs, strict=True):
        for text in pair:
            assert of_text.setdefault(text, group) == group
    with pytest.raises(SampleError, match="has 119 pairs in 1 groups; fitting weights needs at least 20 in 5"):
        labelled_scores(scored(answers), pairs=[(n, n + 1) for n in range(119)])  # a single chain


def test_categories_where_items_do_not_repeat():
    rng = np.random.default_rng(2)
    rows = []
    for number in range(200):
        kinds = ["content"] * rng.integers(1, 4) + ["form"] * rng.integers(1, 4) + [None]
        items = [{"question": f"Is {number} {n}?", "category": kind} for n, kind in enumerate(kinds)]
        answers = rng.random(len(items))
        content = np.array([kind == "content" for kind in kinds])
        label = float(answers[content].mean() + 0.1 * rng.standard_normal())
        rows += scored([answers], [label], Checklist.parse(items), group=lambda _, number=number: number)
    fit = fit_weights(labelled_scores(rows), INTERVALS)
    assert fit.by == "category" and [line.name for line in fit.weights] == ["content", "form"]
    content, form = (line.weight for line in fit.weights)
    assert content > 2 * form > 0
    with pytest.raises(SampleError, match="weights by item need two that occur in 10 labelled texts"):
        labelled_scores(rows, by="item")
    bare = [scored([[0.5, 0.5]], [float(n)], Checklist.parse([f"Is {n} a?", f"Is {n} b?"]))[0] for n in range(40)]
    with pytest.raises(SampleError, match="tag the items with the refiner `tagger`"):
        labelled_scores(bare)


def test_unanswered_items_and_texts_without_a_score_or_that_failed_a_required_item_are_left_out():
    answers, labels = drawn(200)
    holes = [[None if (n + k) % 5 == 0 else p for k, p in enumerate(line)] for n, line in enumerate(answers.tolist())]
    holes[0] = [None] * 5
    rows = scored(holes, labels)
    labelled = labelled_scores(rows)
    known = [row.score.primary_score for row in rows if row.score.primary_score is not None]
    assert len(known) == 159, "40 have an unanswered penalty"
    assert labelled.scores(labelled.present) == pytest.approx(known)
    passing = [replace(row, score=row.judged.under("pass")) for row in rows]  # of which each has a pass rate
    assert labelled_scores(passing).labels.tolist() == labelled.labels.tolist()
    assert fit_weights(labelled, INTERVALS).figures["gain"].low > 0
    gate = Checklist.parse([item.model_dump() | {"required": not place} for place, item in enumerate(CHECKLIST.items)])
    rows = scored(answers, labels, gate)
    labelled = labelled_scores(rows)
    passed = [row.score for row in rows if row.score.items[0].answer == "yes"]
    assert len(labelled.labels) == len(passed) < 150
    assert labelled.scores(labelled.present) == pytest.approx([score.primary_score for score in passed])


@pytest.mark.parametrize(
    ("count", "labels", "words"),
    [
        (19, None, "rows.jsonl has 19 labelled texts in 19 groups; fitting weights needs at least 20 in 5 groups"),
        (40, [1.0] * 40, "all 40 labels are 1; nothing can be learned"),
        (40, [["yes"] * 5] * 40, "rows.jsonl, row 1: the label has one value per item"),
    ],
)
def test_labels_that_cannot_be_used(count, labels, words):
    answers, numbers = drawn(count)
    with pytest.raises(SampleError, match=words):
        labelled_scores(scored(answers, numbers if labels is None else labels))


def test_what_cannot_be_learned_or_tested_is_refused_with_the_number_of_labels():
    answers, labels = drawn(60)
    weak = (answers @ TRUE + 8 * np.random.default_rng(3).standard_normal(60)).tolist()
    equal = [row.score.expected_score for row in scored(answers)]
    for some, groups, words in (
        (labels, lambda n: n % 10, "tested with 60 labels in 10 groups: an interval needs 15 groups, has 10"),
        (equal, lambda n: n // 3, "at least 50 groups are needed, about 150 labels"),
        (equal, lambda n: n, "no better weights can be learned from 60 labels"),
        (weak, lambda n: n, r"nothing can be learned from 60 labels: .* about [\d,]+ labels would be"),
    ):
        with pytest.raises(SampleError, match=words):
            fit_weights(labelled_scores(scored(answers, some, group=groups)), INTERVALS)
    few = labelled_scores(scored(answers, labels, group=lambda n: n % 10))
    assert fit_weights(few, Bootstrap(0)).groups == 10  # no test was asked for
    fit = fit_weights(labelled_scores(scored(answers, labels, group=lambda n: n // 3)), INTERVALS)
    assert fit.figures["gain"].refused == "needs 50 groups, has 20" and fit.needed is None
