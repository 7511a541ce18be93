"""The REALSumm recipe: its figures against numbers worked by hand, and the data it reads."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from studies.judges import realsumm
from studies.judges.realsumm import (
    RealsummArguments,
    Unit,
    against_the_others,
    figures,
    gains,
    lexical_features,
    lexical_predictions,
    load_units,
    main,
    mean_log_odds,
    summary_correlations,
)

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap
from tests.encoders import WORDS, tiny_bert


def unit(document, system, criterion, present, total=4, fold=1):
    return Unit(document, system, f"summary of {system}", criterion, present, total, fold)


TWO_CRITERIA = [unit("d", s, c, votes) for s, pair in (("a", (4, 4)), ("b", (2, 4)), ("c", (0, 0))) for c, votes in
                zip("xy", pair, strict=True)]  # fmt: skip
"""Mean shares of votes: a 1, b 0.75, c 0."""


def test_summaries_are_compared_across_systems_by_the_means_over_their_criteria():
    predicted = [0.9, 0.7, 0.2, 0.2, 0.3, 0.5]  # means 0.8, 0.2, 0.4
    ours, theirs = np.array([0.8, 0.2, 0.4]), np.array([1, 0.75, 0])
    pearson = np.mean((ours - ours.mean()) * (theirs - theirs.mean())) / (ours.std() * theirs.std())
    [(r, rho)] = summary_correlations(TWO_CRITERIA, predicted).values()
    assert r == pytest.approx(pearson)
    assert rho == pytest.approx(0.5)  # ranks 3 1 2 against 3 2 1: 1 - 6 * 2 / 24


def test_equal_means_tie_in_whatever_order_they_are_added_up():
    thirds = [(1, 3, 2), (3, 2, 1), (0, 0, 0)]  # of three votes; floats of the first two add up differently
    systems = zip("abc", thirds, strict=True)
    units = [unit("d", s, c, votes, 3) for s, row in systems for c, votes in zip("xyz", row, strict=True)]
    predicted = [0.1, 0.2, 0.3, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0]
    assert summary_correlations(units, predicted)["d"] == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_document_whose_systems_do_not_differ_has_no_correlation_and_leaves_the_mean_alone():
    flat = [unit("flat", system, "x", 2) for system in "abc"]
    found = figures([*TWO_CRITERIA, *flat], [0.8, 0.8, 0.2, 0.2, 0.4, 0.4, 0.1, 0.5, 0.9], Bootstrap(0))
    assert summary_correlations(flat, [0.1, 0.5, 0.9]) == {"flat": (None, None)}
    assert found["spearman"].value == pytest.approx(0.5)


def test_two_judges_are_compared_document_by_document():
    right, turned = [0.9, 0.9, 0.5, 0.5, 0.1, 0.1], [0.1, 0.1, 0.5, 0.5, 0.9, 0.9]
    other = [replace(unit, document="e") for unit in TWO_CRITERIA]
    found = gains([*TWO_CRITERIA, *other], right + right, right + turned, Bootstrap(50))
    assert found["spearman"].value == pytest.approx(1.0)  # 0 on one document, 1 - (-1) on the other
    assert (found["spearman"].low, found["spearman"].high) == (pytest.approx(0.0), pytest.approx(2.0))


def test_criteria_are_compared_with_the_majority_and_a_tie_is_no():
    units = [unit("d", "a", "x", present) for present in (4, 3, 2, 0)]
    found = figures(units, [0.9, 0.4, 0.6, 0.1], Bootstrap(0))
    assert found["auc"].value == pytest.approx(
        0.75
    )  # of four pairs (0.9, 0.4) x (0.6, 0.1) one is the wrong way round
    assert found["accuracy"].value == 0.5
    assert found["kappa"].value == pytest.approx(0.0)


def test_intervals_are_of_whole_documents():
    units = [unit(document, system, "x", votes) for document in "pqr" for system, votes in (("a", 4), ("b", 0))]
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    found = figures(units, [*right, *right, *wrong], Bootstrap(200))
    assert found["accuracy"].value == pytest.approx(2 / 3)
    assert (found["accuracy"].low, found["accuracy"].high) == (0.0, 1.0)  # three documents: none or all may be wrong


def test_a_worker_is_compared_with_the_majority_of_the_others():
    # 3 of 3 agree with the other two; of 2 to 1 only the one in the minority faces a majority, and disagrees.
    units = [unit("d", "a", "x", 3, 3), unit("d", "a", "y", 2, 3)]
    assert against_the_others(units) == 3 / 4
    assert against_the_others(units, [0.9, 0.1]) == 3 / 4  # against yes: right on x, wrong on y
    assert against_the_others([unit("d", "a", "x", 2, 4)]) == 0.0  # each of 2 to 2 faces two to one


def test_lexical_features_by_hand():
    assert lexical_features("rose won 14 cups . he lives", "Rose won 15 cup games") == [
        2 / 5,  # rose, won
        2 / 5,
        2 / 5,  # "cups" does not begin with "cup" alone: beginnings are five letters
        0.0,  # 15
        1 / 4,  # (rose, won)
        2 / 5,
        5.0,
    ]
    assert lexical_features("", "Anything")[:2] == [0.0, 0.0]


def test_the_lexical_regression_learns_from_the_other_folds_only():
    features = np.array([[0.0], [1.0], [0.0], [1.0]] * 5)
    folds = np.array([1, 1, 2, 2] * 5)
    turned = np.where(folds == 1, features[:, 0] > 0.5, features[:, 0] < 0.5)
    found = lexical_predictions(features, turned, folds)
    assert ((found > 0.5) != turned).all()  # each fold is answered as the other one was labelled


def test_the_mean_of_log_odds():
    assert mean_log_odds(np.array([0.8]), np.array([0.2])) == pytest.approx([0.5])
    assert mean_log_odds(np.array([0.9]), np.array([0.9]), np.array([0.9])) == pytest.approx([0.9])


@pytest.mark.slow
@pytest.mark.study
def test_the_whole_recipe_on_a_small_world_and_a_second_run_trains_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "realsumm"
    folder.mkdir(parents=True)
    with gzip.open(folder / "votes.jsonl.gz", "wt") as lines:
        for document in range(6):
            for system in range(4):
                said = WORDS[document : document + 2 + system]
                for word in WORDS[document : document + 5]:
                    row = {"doc_id": f"d{document}", "system": f"s{system}", "response": " ".join(said),
                           "criterion": f"does it mention {word} ?", "votes_present": 3 * (word in said),
                           "votes_total": 3, "fold_by_example": 1 + document % 2}  # fmt: skip
                    lines.write(json.dumps(row) + "\n")
    arguments = RealsummArguments(
        data=str(tmp_path / "data"),
        output_dir=str(tmp_path / "runs"),
        base=tiny_bert(tmp_path / "base"),
        epochs=1,
        folds=[1, 2],
        bootstrap=20,
    )
    first = main(arguments)
    assert (first["units"], first["documents"]) == (120, 6)
    assert first["figures"]["word overlap"]["auc"]["value"] > 0.9
    assert first["figures"]["lexical regression"]["accuracy"]["value"] == 1.0
    assert {"encoder, packed", "encoder, matched", "judges together", "judges + lexical"} < first["figures"].keys()
    assert first["agrees_with_the_majority_of_other_workers"]["one worker"] == 1.0
    assert (tmp_path / "runs" / "figures.png").stat().st_size > 1000
    assert len((tmp_path / "runs" / "predictions.jsonl").read_text().splitlines()) == 120
    monkeypatch.setattr(realsumm, "train_encoder", None)
    (tmp_path / "runs" / "matched" / "fold2.json").unlink()  # its judge is there, and its reads are in the store
    assert main(arguments)["figures"] == first["figures"]
    arguments.epochs = 2
    with pytest.raises(SampleError, match="training1.json was trained with other settings"):
        main(arguments)
    adapter = replace(arguments, base="pocket", layouts=["adapter"], output_dir=str(tmp_path / "adapter"))
    assert {"SmolLM2 adapter", "judges + lexical"} < main(adapter)["figures"].keys()


def test_data_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SampleError, match=r"votes.jsonl.gz: file not found; set --data"):
        load_units(tmp_path)


def test_the_data_is_what_was_published(data_dir):
    units = load_units(data_dir)
    assert len(units) == 26_400 and len({unit.document for unit in units}) == 100
    assert against_the_others(units) == pytest.approx(0.909, abs=0.001)
    folds = {unit.document: unit.fold for unit in units}
    assert all(folds[unit.document] == unit.fold for unit in units)  # no document is in two folds
