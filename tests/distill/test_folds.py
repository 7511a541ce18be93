"""Held-out figures against hand-worked numbers, and the model card that tells them."""

import pytest

from checklist_rewards.backends import ReadGroup
from checklist_rewards.distill.folds import (
    cross_validate,
    held_out_figures,
    model_card,
    no_better_than_chance,
    read_pairs,
)
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure
from checklist_rewards.judges.labels import Labelled
from tests.fakes import FakeBackend

PAIRS = [Labelled(f"t{n}", "q", label, f"g{n}") for n, label in enumerate((1.0, 0.75, 0.5, 0.0))]


def test_figures_by_hand():
    found = held_out_figures(PAIRS, [0.9, 0.4, 0.6, 0.1], Bootstrap(0))
    assert found["auc"].value == 0.75  # labels above one half are yes: of four pairs one is the wrong way round
    assert (found["accuracy"].value, found["kappa"].value) == (0.5, pytest.approx(0.0))
    assert found["rmse"].value == pytest.approx(((0.01 + 0.1225 + 0.01 + 0.01) / 4) ** 0.5)
    found = held_out_figures(PAIRS, [0.9, None, None, 0.1], Bootstrap(0))  # two could not be read
    assert found["auc"].value == found["accuracy"].value == 1.0


def test_every_pair_is_read_by_an_encoder_that_has_not_seen_its_group():
    pairs = [Labelled(f"t{n}", f"q{n}", 1.0, f"g{n // 2}") for n in range(8)]
    seen = {}

    def train(some, path):
        seen[str(path)] = {pair.group for pair in some}

    def load(path):
        def rule(prefix, tail):
            assert f"g{int(prefix[1:]) // 2}" not in seen[path]
            return int(tail[1:]) / 10

        return FakeBackend(rule)

    assert cross_validate(pairs, 2, train, load) == pytest.approx([n / 10 for n in range(8)])
    assert [len(groups) for groups in seen.values()] == [2, 2]


def test_pairs_of_one_text_are_read_together_and_put_back_in_order():
    def rule(prefix, tail):
        return None if tail == "long" else 0.9 if tail in prefix else 0.2

    engine, read = FakeBackend(rule, chunk_reads=2), []
    asked = (("red", "red"), ("blue", "red"), ("red", "long"), ("grey", "red"))
    pairs = [Labelled(*pair, 1.0, "g") for pair in asked]
    assert read_pairs(engine, pairs, read.append) == [pytest.approx(0.9), pytest.approx(0.2), None, pytest.approx(0.2)]
    red, blue, grey = (
        ReadGroup(None, text, tails)
        for text, tails in (("red", ("red", "long")), ("blue", ("red",)), ("grey", ("red",)))
    )
    assert engine.calls == [[red, blue], [grey]] and read == [2, 1, 1]  # in chunks; each text is reported
    engine.calls.clear()
    read_pairs(engine, [Labelled("red", "q", 1.0, "g", "paint", word) for word in ("blue", "", "blue")])
    assert [group for call in engine.calls for group in call] == [
        ReadGroup(None, "red", ("q", "q"), (("input", "paint"), ("reference", "blue"))),
        ReadGroup(None, "red", ("q",), (("input", "paint"),)),  # another reference: read apart
    ]


def figure(value, low=None):
    return Figure(value=value, low=low, high=None if low is None else 1.0)


@pytest.mark.parametrize(
    ("auc", "kappa", "learned"),
    [
        (figure(0.7, 0.6), figure(0.3, -0.1), True),
        (figure(0.7), figure(0.3), True),  # without intervals, by the values
        (Figure(value=1.0, refused="equal in all resamples"), figure(0.3), True),  # a judge without an error
        (Figure(value=0.7, refused="needs 15 groups, has 8"), figure(0.3), False),
        (figure(0.7, 0.5), figure(0.3), False),
        (figure(0.7, 0.6), figure(0.0), False),
        (figure(None), figure(None), False),  # labels of one kind only: nothing can be shown
    ],
)
def test_a_judge_has_learned_something_if_its_auc_and_kappa_say_so(auc, kappa, learned):
    warning = no_better_than_chance({"auc": auc, "kappa": kappa})
    assert (warning is None) == learned
    if not learned:
        assert warning == (
            "On held-out groups, this judge is not shown to be better than chance: "
            f"AUC {auc.shown()}, kappa {kappa.shown()}."
        )


RECORD = {
    "base": "all-MiniLM-L6-v2",
    "parameters": 22_713_601,
    "pairs": 1200,
    "targets": 100,
    "groups": 10,
    "context": {},
    "training": {"epochs": 2.0},
    "steps": 50,
    "seconds": 61.2,
    "loss": 0.4567,
}


def test_the_card_tells_data_folds_figures_and_what_the_judge_sees():
    figures = held_out_figures(PAIRS, [0.9, 0.4, 0.6, 0.1], Bootstrap(50))
    card = model_card(RECORD, data="votes.jsonl", folds=5, figures=figures, unread=3)
    assert "1,200 labelled pairs from `votes.jsonl`: 100 texts in 10 groups" in card
    assert "5-fold cross-validation by group" in card and f"| auc | {figures['auc'].shown()} |" in card
    assert "3 pairs were too long" in card
    assert "It sees the text and the question only, not the input, the reference or earlier turns." in card
    context = {"input": 1200, "reference": 80}
    unknown = model_card({**RECORD, "context": context}, data="votes.jsonl", folds=0, figures=None)
    assert "no labels were held out" in unknown
    assert "and the reference (80 of 1,200 pairs had one), but no earlier turns." in unknown
