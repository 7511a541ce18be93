"""`agree` as a user meets it: scored files and labels in, tables, JSON and pictures out."""

import json
from pathlib import Path

import pytest

from tests.evaluation.files import LOST, scored_file
from tests.jsonl import write_jsonl

ITEMS = ["Is it red?", "Is it big?"]


def judged(path="scored.jsonl", judge="fake", said=(0.9, 0.2), **more):
    row = {"checklist": ITEMS, "said": list(said), **more}
    own = ({"id": f"r{n}", "doc": f"d{n // 2}", "labels": [True, n % 2 == 0]} for n in range(6))
    return scored_file(path, *(row | of_row for of_row in own), judge=judge)


def agree(run, words, *arguments):
    """What `agree` writes as figures, and what it shows."""
    done = run(f"agree {words} --json a.json", *arguments)
    return json.loads(Path("a.json").read_text()), done.stdout


def test_a_judge_against_labels(run):
    judged()
    record, shown = agree(run, "scored.jsonl --label-key labels --group-key doc")
    # All first items are right; of the second the judge says no, which is right in every other row.
    assert "accuracy" in shown and "0.750" in shown and "coverage 1.000" in shown
    assert record["bootstrap"] == {"resamples": 1000, "seed": 0, "groups": "doc"}
    [comparison] = record["comparisons"]
    assert comparison["items"]["yes/no"]["confusion"] == [[6, 0], [3, 3]]
    refused = {"value": 0.75, "low": None, "high": None, "refused": "needs 15 groups, has 3"}
    assert comparison["items"]["yes/no"]["figures"]["accuracy"] == refused
    assert "It is unknown whether scored.jsonl agrees with labels better than chance on 12 yes/no items" in shown
    assert "no intervals: needs 15 groups, has 3" in shown  # once, not in every cell
    assert shown.count("needs 15 groups") == 3  # with the verdict and the coverage
    assert "by question, with the mean answers" in shown
    assert comparison["targets"]["units"] == 6 and comparison["preferences"] is None
    named, plain = (agree(run, f"scored.jsonl --bootstrap 0 {key}") for key in ("--label-key labels", ""))
    assert plain == named, "a single file is compared with its column of labels"


def test_labels_from_another_file_are_matched_by_id(run):
    judged()
    write_jsonl("gold.jsonl", *({"id": f"r{n}", "labels": [True, False]} for n in (5, 0, 9)))
    record, shown = agree(run, "scored.jsonl --labels gold.jsonl --bootstrap 0")
    [comparison] = record["comparisons"]
    assert comparison["unmatched_rows"] == 1 and "1 rows in one file only" in shown  # r9 was not scored
    assert comparison["units"] == 4 and comparison["items"]["yes/no"]["figures"]["accuracy"]["value"] == 1.0


def test_two_judges_against_labels_are_tested_against_each_other(run):
    judged("one.jsonl")
    judged("other.jsonl", judge="other", said=(0.9, LOST))
    record, shown = agree(run, "one.jsonl other.jsonl --label-key labels --bootstrap 50")
    assert "one.jsonl against other.jsonl" in shown and "McNemar" in shown
    assert [c["coverage"]["value"] for c in record["comparisons"]] == [1.0, 0.5]
    [test] = record["tests"]
    assert (test["units"], test["only_one_right"], test["mcnemar_p"]) == (6, 0, None)


def test_judges_without_labels_are_compared_with_each_other(run):
    for name, said in (("one", (0.9, 0.2)), ("other", (0.9, 0.8)), ("third", (0.9, 0.2))):
        judged(f"{name}.jsonl", judge=name, said=said)
    record, shown = agree(run, "one.jsonl other.jsonl third.jsonl --bootstrap 50")
    assert "3 judges" in shown and "Fleiss' kappa" in shown
    assert [c["items"]["yes/no"]["figures"]["accuracy"]["value"] for c in record["comparisons"]] == [0.5, 1.0, 0.5]
    assert record["judges_among_each_other"]["yes/no"]["units"] == 12


def test_numbers_per_row_and_preferences_of_candidates(run):
    row = {"prompt_id": "p", "checklist": ITEMS}
    scored_file("s.jsonl", *(row | {"said": [p, p], "stars": n} for p, n in ((0.9, 5), (0.5, 3), (0.1, 4))))
    record, _ = agree(run, "s.jsonl --label-key stars --label-range 1,5 --input-key prompt_id")
    [comparison] = record["comparisons"]
    assert comparison["items"] == {} and comparison["targets"]["units"] == 3
    assert comparison["targets"]["figures"]["bias"]["value"] == pytest.approx((0.9 + 0.5 + 0.1 - 1 - 0.5 - 0.75) / 3)
    figures = comparison["preferences"]["figures"]
    assert figures["wins"]["value"] == pytest.approx(2 / 3) and figures["pld_2"]["value"] == pytest.approx(1 / 3)


def test_pictures_are_drawn_on_request(run):
    judged()
    run("agree scored.jsonl --label-key labels --plots plots --bootstrap 0")
    for name in ("confusion_yes_no.png", "reliability.png"):
        assert Path("plots", name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["agree", "cascade", "probe"])
def test_figures_have_one_option_and_no_second_name(run, command):
    """`-o` is the file that a command makes, `--summary` the totals of its rows."""
    assert "--json" in run(f"{command} --help").stdout
    for option in ("-o", "--output", "--summary"):
        run(f"{command} scored.jsonl {option} figures.json", refused="No such option")


def test_rates_are_corrected_if_only_some_rows_have_labels(run):
    labels = [[n % 3 > 0, n % 2 == 0] if n < 40 else None for n in range(120)]
    said = ({"said": [0.9 if n % 3 else 0.6, 0.2], "labels": labels[n]} for n in range(120))
    scored_file("scored.jsonl", *({"checklist": ITEMS} | row for row in said))
    record, shown = agree(run, "scored.jsonl --label-key labels --bootstrap 0")
    assert "rates of scored.jsonl" in shown
    [rates] = record["rates"].values()
    assert [rate["name"] for rate in rates] == ["all items", *ITEMS]
    first = rates[1]
    assert first["judged"]["value"] == pytest.approx(0.8) and first["labelled_units"] == 40
    assert first["corrected"]["value"] == pytest.approx(2 / 3, abs=0.01)


def test_labels_of_a_sample_count_by_their_probabilities(run):
    rows = [
        {"checklist": ITEMS, "said": [0.8, 0.8], "labels": [n % 2 == 0] * 2 if n < 60 else None} for n in range(120)
    ]
    chances = [{"label_probability": (0.2 if n % 2 else 0.4) if n < 60 else None} for n in range(120)]
    scored_file("scored.jsonl", *(row | chance for row, chance in zip(rows, chances, strict=True)))
    [[rate, *_]] = agree(run, "scored.jsonl --label-key labels --bootstrap 0")[0]["rates"].values()
    assert rate["corrected"]["value"] == pytest.approx(1 / 3)  # 2.5 for every yes, 5 for every no
    scored_file("bad.jsonl", *(row | {"label_probability": 1.5} for row in rows))
    words = "bad.jsonl, line 1: 'label_probability' must be above 0 and at most 1"
    run("agree bad.jsonl --label-key labels", refused=words)


def test_wins_of_one_file_over_another(run):
    for name, said in (("one", 0.9), ("other", 0.8)):
        labels = [[n % 4 > 0 if name == "one" else n % 2 == 0, True] if n < 40 else None for n in range(100)]
        row = {"checklist": ITEMS, "said": [said, 0.5]}
        scored_file(f"{name}.jsonl", *(row | {"target": f"{name} {n}", "labels": labels[n]} for n in range(100)))
    found, shown = agree(run, "one.jsonl other.jsonl --label-key labels --bootstrap 0")
    wins = found["rates"]["one.jsonl"][-1]
    assert wins["name"] == "wins of one.jsonl over other.jsonl" and wins["judged"]["value"] == 1
    assert wins["labelled"]["value"] == pytest.approx((0 + 1 + 0.5 + 1) / 4) and found["tests"] == []
    assert "wins of" in shown
    assert found["judges_among_each_other"] == {}  # they read different texts


def test_judges_of_different_texts_are_refused(run):
    for name in ("one", "other"):
        rows = [{"id": f"r{n}", "target": "same" if n < 3 else f"{name} {n}", "checklist": ITEMS} for n in range(5)]
        scored_file(f"{name}.jsonl", *({**row, "said": [0.9, 0.2]} for row in rows))
    write_jsonl("gold.jsonl", *({"id": f"r{n}", "labels": [True, False]} for n in range(5)))
    sentence = (
        "one.jsonl, line 4 and other.jsonl, line 4 have the same id 'r3', but their texts differ: 'one 3' and 'oth"
    )
    for command in ("agree", "agree --labels gold.jsonl", "cascade"):
        run(f"{command} one.jsonl other.jsonl", refused=sentence)
