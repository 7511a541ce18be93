"""`agree`, `calibrate` and `cascade` as a user meets them, and scores that no scorer writes."""

import copy
import json
import random
from pathlib import Path

import pytest

from checklist_rewards.judges.calibration import Calibration
from tests.evaluation.files import LOST, scored_file
from tests.jsonl import read_jsonl, write_jsonl

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


def test_two_judges_against_the_labels_of_another_file_are_tested_against_each_other(run):
    judged("one.jsonl")
    judged("other.jsonl", judge="other", said=(0.9, LOST))
    write_jsonl("gold.jsonl", *({"id": f"r{n}", "labels": [True, False]} for n in (5, 0, 9)))
    record, shown = agree(run, "one.jsonl other.jsonl --labels gold.jsonl --bootstrap 50")
    assert "1 rows in one file only" in shown and "one.jsonl against other.jsonl" in shown and "McNemar" in shown
    first, second = record["comparisons"]
    assert first["unmatched_rows"] == 1 and first["units"] == 4  # r9 was not scored
    assert first["items"]["yes/no"]["figures"]["accuracy"]["value"] == 1.0
    assert [first["coverage"]["value"], second["coverage"]["value"]] == [1.0, 0.5]
    [test] = record["tests"]
    assert (test["units"], test["only_one_right"], test["mcnemar_p"]) == (2, 0, None)


def test_judges_without_labels_are_compared_with_each_other(run):
    for name, said in (("one", (0.9, 0.2)), ("other", (0.9, 0.8)), ("third", (0.9, 0.2))):
        judged(f"{name}.jsonl", judge=name, said=said)
    record, shown = agree(run, "one.jsonl other.jsonl third.jsonl --bootstrap 50")
    assert "3 judges" in shown and "Fleiss' kappa" in shown
    assert [c["items"]["yes/no"]["figures"]["accuracy"]["value"] for c in record["comparisons"]] == [0.5, 1.0, 0.5]
    assert record["judges_among_each_other"]["yes/no"]["units"] == 12


@pytest.mark.parametrize("unlabelled", [None, [None, None]])
@pytest.mark.parametrize(("sampled", "corrected"), [(False, 1 / 2), (True, 1 / 3)])
def test_rates_are_corrected_if_only_some_rows_have_labels(run, sampled, corrected, unlabelled):
    """Labels of a sample count by their probabilities: 2.5 for every yes, 5 for every no."""
    labels = [[n % 2 == 0] * 2 if n < 60 else unlabelled for n in range(120)]
    rows = [{"checklist": ITEMS, "said": [0.8, 0.8], "labels": label} for label in labels]
    if sampled:
        rows = [row | {"label_probability": 0.2 if n % 2 else 0.4} for n, row in enumerate(rows)]
    scored_file("scored.jsonl", *rows)
    record, shown = agree(run, "scored.jsonl --label-key labels --bootstrap 0")
    [rates] = record["rates"].values()
    assert "rates of scored.jsonl" in shown and [rate["name"] for rate in rates] == ["all items", *ITEMS]
    assert rates[1]["judged"]["value"] == pytest.approx(0.8) and rates[1]["labelled_units"] == 60
    assert rates[0]["corrected"]["value"] == pytest.approx(corrected)
    scored_file("bad.jsonl", *(row | {"label_probability": 1.5} for row in rows))
    words = "bad.jsonl, line 1: 'label_probability' must be above 0 and at most 1"
    run("agree bad.jsonl --label-key labels", refused=words)


@pytest.mark.parametrize("command", ["agree", "agree --labels gold.jsonl", "cascade"])
def test_judges_of_different_texts_are_refused(run, command):
    for name in ("one", "other"):
        rows = [{"id": f"r{n}", "target": "same" if n < 3 else f"{name} {n}", "checklist": ITEMS} for n in range(5)]
        scored_file(f"{name}.jsonl", *({**row, "said": [0.9, 0.2]} for row in rows))
    write_jsonl("gold.jsonl", *({"id": f"r{n}", "labels": [True, False]} for n in range(5)))
    words = "one.jsonl, line 4 and other.jsonl, line 4 have the same id 'r3', but their texts differ: 'one 3' and 'oth"
    run(f"{command} one.jsonl other.jsonl", refused=words)


def overconfident(path="scored.jsonl", judge="org/judge"):
    """A judge that says .95 of what is true in seven of ten cases, and .05 of what is true in three."""
    rng = random.Random(0)
    rows = []
    for n in range(60):
        said = [rng.choice((0.95, 0.05)) for _ in range(4)]
        labels = [rng.random() < (0.7 if p > 0.5 else 0.3) for p in said]
        checklist = [f"Is it {word}?" for word in ("red", "big", "old", "new")]
        rows.append({"doc": n // 2, "prompt": "Write.", "checklist": checklist, "said": said, "labels": labels})
    return scored_file(path, *rows, judge=judge)


def test_a_map_is_fitted_measured_and_saved(run):
    overconfident()
    options = "--label-key labels --group-key doc --json c.json --plots plots --bootstrap 50"
    done = run(f"calibrate scored.jsonl -o map.json {options}")
    assert "brier" in done.stdout and "saved: " in done.stdout and "240 reads, 30 groups, held out" in done.stdout
    assert Path("plots/reliability_yes_no.png").read_bytes().startswith(b"\x89PNG")
    [kind] = json.loads(Path("c.json").read_text())["kinds"].values()
    assert set(kind["after"]) == {"temperature", "platt", "isotonic"}
    assert kind["after"][kind["method"]]["brier"]["value"] < kind["before"]["brier"]["value"] - 0.02
    saved = Calibration.load("map.json")
    assert (saved.judge, saved.read_by, saved.contextual, saved.threshold) == ("org/judge", "logprobs", False, None)
    assert saved.figures["yes/no"]["before"]["brier"] == kind["before"]["brier"]


def test_a_map_that_does_not_help_is_said_to_be_none(run):
    rows = [{"checklist": ["Is it red?"], "said": [0.5], "labels": [n % 2 == 0]} for n in range(40)]
    scored_file("scored.jsonl", *rows)
    options = "--method isotonic --fit-threshold cost --costs 9,1"
    done = run(f"calibrate scored.jsonl -o map.json --label-key labels {options}")
    assert "does not lower the Brier score" in done.stderr
    saved = Calibration.load("map.json").maps["yes/no"]
    assert saved.method == "isotonic" and saved.threshold > 0.5  # a wrong yes is dear: better never say it


def test_the_bias_of_a_judge_is_read_from_empty_targets(run, engine):
    def rule(prefix, tail):
        return 0.8 if "rose" not in prefix else 0.95 if "red" in tail else 0.6

    fake = engine(rule)
    row = {"checklist": ITEMS, "target": "a rose", "labels": [True, False]}
    write_jsonl("rows.jsonl", *(row | {"prompt": f"Write {n}."} for n in range(10)))
    run("score rows.jsonl -o s.jsonl --no-store")
    asked = len(fake.asked)
    run("calibrate s.jsonl -o map.json --label-key labels --contextual --no-store --bootstrap 0 --method temperature")
    assert len(fake.asked) - asked == 20  # two items of ten inputs, about nothing
    assert Calibration.load("map.json").contextual
    run("score rows.jsonl -o calibrated.jsonl --no-store --calibration map.json")
    red, big = read_jsonl("calibrated.jsonl")[0]["checklist_score"]["items"]
    assert (red["answer"], big["answer"]) == ("yes", "no")  # both above .5, and only one above what it says of nothing
    assert big["uncalibrated"]["yes"] == pytest.approx(0.6) and big["probabilities"]["yes"] < 0.5


def test_scores_of_a_map_of_another_judge_are_refused(run, no_engine):
    overconfident()
    run("calibrate scored.jsonl -o map.json --label-key labels --bootstrap 0")
    write_jsonl("rows.jsonl", {"prompt": "x", "target": "y", "checklist": ["Is it red?"]})
    words = "fitted on reads of 'org/judge', but the judge is 'pocket'"
    run("score rows.jsonl -o s.jsonl --calibration map.json", refused=words)


ROWS = [
    {"id": name, "target": name, "checklist": ["Is it?"], "human": ["yes" if name < "c" else "no"]} for name in "abcd"
]
CHEAP = {"a": 0.99, "b": 0.55, "c": 0.02, "d": 0.65}
STRONG = {"a": 0.9, "b": 0.9, "c": 0.1, "d": 0.1}


@pytest.fixture
def files(run, engine):
    write_jsonl("rows.jsonl", *ROWS)
    for name, table in (("cheap.jsonl", CHEAP), ("strong.jsonl", STRONG)):
        engine(lambda prefix, tail, table=table: next(p for key, p in table.items() if f"\n{key}\n" in prefix))
        run(f"score rows.jsonl -o {name} --no-store")


def test_the_cheapest_margin_that_is_as_good(run, files):
    done = run("cascade cheap.jsonl strong.jsonl --label-key human --json curve.json --plot c.png")
    record = json.loads(open("curve.json").read())
    # b (margin .1) and d (margin .3) are the cheap judge's mistakes: sent on, all is right at half the price
    assert record["chosen"] == {"margin": 0.32, "escalated": 0.5, "cost": 0.5, "agreement": 1.0, "coverage": 1.0}
    assert record["curve"][0]["agreement"] == 0.5
    assert open("c.png", "rb").read(4) == b"\x89PNG"
    assert "margin: 0.32" in done.output


NAN = float("nan")
BROKEN = {
    "P(yes) is NaN": (("items", 0, "probabilities", "yes"), NAN, "items.0.probabilities.yes"),
    "P(yes) is 7": (("items", 0, "probabilities", "yes"), 7, "items.0.probabilities.yes"),
    "no P(no)": (("items", 0, "probabilities"), {"yes": 0.4}, "items.0.probabilities"),
    "other labels": (("items", 0, "probabilities"), {"good": 0.4, "bad": 0.6}, "good, bad"),
    "the answer is maybe": (("items", 0, "answer"), "maybe", "'maybe'"),
    "the weight is NaN": (("items", 0, "weight"), NAN, "items.0.weight"),
    "the mass is 5": (("items", 0, "mass"), 5, "items.0.mass"),
    "a vote is 2": (("items", 0, "votes"), [{"probabilities": {"yes": 2, "no": -1}}], "votes.0.probabilities.yes"),
    "the score is NaN": (("primary_score",), NAN, "primary_score"),
    "the score is 1.5": (("primary_score",), 1.5, "primary_score"),
    "an unknown metric": (("primary_metric",), "best", "primary_metric"),
    "a count below 0": (("total",), -1, "total"),
    "an unknown state": (("state",), "done", "state"),
}
COMMANDS = {
    "inspect": "broken.jsonl",
    "report": "broken.jsonl -o page.html",
    "diff": "whole.jsonl broken.jsonl",
    "replay": "broken.jsonl -o again.jsonl --threshold 0.4",
    "cascade": "broken.jsonl whole.jsonl",
    "agree": "broken.jsonl --label-key labels",
    "calibrate": "broken.jsonl --label-key labels -o map.json",
}


@pytest.fixture
def whole(run):
    row = {"target": "A rose.", "checklist": ["Is it red?"]}
    own = ({"id": str(n), "said": [0.05 * (n + 1)], "labels": [n % 2]} for n in range(12))
    scored_file("whole.jsonl", *(row | of_row for of_row in own))
    return read_jsonl("whole.jsonl")


@pytest.mark.parametrize(
    ("command", "case"),
    [("inspect", case) for case in BROKEN] + [(command, "the answer is maybe") for command in COMMANDS],
)
def test_a_broken_score_is_refused_with_its_row_and_field(run, whole, case, command):
    place, value, named = BROKEN[case]
    rows = copy.deepcopy(whole)
    write_jsonl("broken.jsonl", *rows)
    run(f"{command} {COMMANDS[command]}")
    *steps, last = place
    part = rows[2]["checklist_score"]
    for step in steps:
        part = part[step]
    part[last] = value
    if case == "the answer is maybe" and command in ("agree", "cascade", "calibrate"):
        part["probabilities"] = None  # a judge that writes words
    write_jsonl("broken.jsonl", *rows)
    done = run(f"{command} {COMMANDS[command]}", refused=["broken.jsonl", named])
    assert "line 3" in done.stderr or "row 3" in done.stderr


def test_a_reward_that_is_no_number_is_refused_and_rounded_probabilities_are_read(run, whole):
    score = whole[0]["checklist_score"]
    score["items"][0] |= {"probabilities": {"yes": 0.333, "no": 0.666}, "answer": "no"}
    row = {"step": 1, "prompt": "p", "completion": "c", "reward": 0.4, "score": score}
    write_jsonl("log.jsonl", row, row)
    write_jsonl("nan.jsonl", row, row | {"reward": NAN})
    for words in ("report {} -o page.html", "audit {}", "diff {} log.jsonl", "replay {} -o o.jsonl --threshold 0.4"):
        run(words.format("nan.jsonl"), refused="nan.jsonl, line 2: reward must be a finite number")
    run("inspect log.jsonl")


def test_numbers_per_row_and_preferences_of_candidates(run):
    row = {"prompt_id": "p", "checklist": ITEMS}
    scored_file("s.jsonl", *(row | {"said": [p, p], "stars": n} for p, n in ((0.9, 5), (0.5, 3), (0.1, 4))))
    record, _ = agree(run, "s.jsonl --label-key stars --label-range 1,5 --input-key prompt_id")
    [comparison] = record["comparisons"]
    assert comparison["items"] == {} and comparison["targets"]["units"] == 3
    assert comparison["targets"]["figures"]["bias"]["value"] == pytest.approx((0.9 + 0.5 + 0.1 - 1 - 0.5 - 0.75) / 3)
    assert comparison["targets"]["figures"]["spearman"]["value"] == pytest.approx(0.5)  # ranks 3 2 1 and 3 1 2
    figures = comparison["preferences"]["figures"]
    assert figures["wins"]["value"] == pytest.approx(2 / 3) and figures["pld_2"]["value"] == pytest.approx(1 / 3)


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


def test_rows_of_one_file_only_are_told(run, files):
    write_jsonl("fewer.jsonl", *read_jsonl("strong.jsonl")[:3])
    done = run("cascade cheap.jsonl fewer.jsonl")
    assert "1 rows are in one file only" in done.output
