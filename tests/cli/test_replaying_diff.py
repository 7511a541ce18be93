"""`diff`: what changes between two scorings of the same texts."""

import json
import random
from pathlib import Path

import pytest

from checklist_rewards import Checklist
from checklist_rewards.files.rows import read_rows
from checklist_rewards.scores import Verdict, score_checklist
from tests.jsonl import write_jsonl

ITEMS = Checklist.parse(["Is it red?", "Is it short?"])


def line(prompt, completion, *yes, step=1):
    """A line of a reward log with these probabilities of yes; None is unanswered."""
    verdicts = [Verdict(unanswered="timeout") if p is None else Verdict({"yes": p, "no": 1 - p}) for p in yes]
    score = score_checklist(ITEMS, verdicts)
    return {
        "step": step,
        "prompt": prompt,
        "completion": completion,
        "reward": score.primary_score,
        "score": score.model_dump(),
    }


ONE = [
    line("A", "a", 0.9, 0.9),
    line("A", "b", 0.5, 0.5),
    line("A", "c", 0.1, 0.1),
    line("B", "a", 0.8, 0.8),
    line("B", "b", 0.7, 0.8),
]
OTHER = [
    line("A", "a", 0.1, 0.2),
    line("A", "b", 0.5, 0.5),
    line("A", "c", 0.9, 0.8),
    line("B", "a", 0.8, 0.8),
    line("B", "b", 0.7, None),
]


def difference(run, one, other, *arguments):
    write_jsonl("one.jsonl", *one)
    write_jsonl("other.jsonl", *other)
    done = run("diff one.jsonl other.jsonl --json diff.json --bootstrap 20", *arguments)
    return json.loads(Path("diff.json").read_text()), done.output


def test_the_number_of_a_row_without_an_id_is_not_the_id_of_another_row(run):
    def row(id, text, yes):
        score = score_checklist(ITEMS, [Verdict({"yes": yes, "no": 1 - yes})] * 2).model_dump()
        return {"id": id, "input": "A", "target": text, "checklist_score": score}

    one = [row("2", "first", 0.9), row(None, "second", 0.1)]
    other = [row("2", "first", 0.9), row("x", "another", 0.5), row(None, "second", 0.2)]
    found, _ = difference(run, one, other)
    assert found["rows"] == 2 and found["counts"]["changed"] == 1
    assert [found["only_one"]["rows"], found["only_other"]["rows"]] == [0, 1]


def test_a_file_and_itself_do_not_differ(run):
    found, _ = difference(run, ONE, ONE)
    assert found["rows"] == 5 and found["reads"] == []
    assert found["counts"] | {"flips": 0, "changed": 0, "reversed": 0, "other_pair": 0} == found["counts"]
    values = {name: figure["value"] for name, figure in found["figures"].items()}
    zero = dict.fromkeys(
        ["flips", "shift", "distance", "change", "size", "advantages_reversed", "other_pair", "reversed_pair"], 0
    )
    assert values == zero | {"kappa": 1, "kendall": 1}


def test_figures_by_hand(run):
    found, shown = difference(run, ONE, OTHER)
    counts, figures = found["counts"], {name: figure["value"] for name, figure in found["figures"].items()}
    assert counts["reads"] == 9 and counts["flips"] == 4  # a and c of prompt A, both items
    assert figures["flips"] == pytest.approx(4 / 9)
    assert figures["shift"] == pytest.approx((-0.8 - 0.7 + 0.8 + 0.7) / 9)
    assert figures["distance"] == pytest.approx(3 / 9)
    assert counts["scored"] == 5 and counts["changed"] == 3
    assert figures["kendall"] == pytest.approx((-1 + 1) / 2)  # A is turned around; B keeps its order
    assert counts["advantages"] == 5 and counts["reversed"] == 2
    assert (counts["pairs"], counts["other_pair"], counts["reversed_pair"]) == (2, 1, 1)
    assert [(read["completion"], read["one"], read["other"]) for read in found["reads"][:2]] == [
        ("c", "no", "yes"),
        ("a", "yes", "no"),
    ]
    [red, short] = sorted(found["items"], key=lambda item: item["question"])
    assert (red["reads"], red["flips"], red["only_one"], short["reads"], short["only_one"]) == (5, 2, 0, 4, 1)
    assert red["figures"]["kappa"]["value"] == pytest.approx(1 / 6)
    assert "answers flipped" in shown and "reads that differ most" in shown


def test_the_order_of_the_rows_changes_nothing(run):
    rng = random.Random(1)
    one = [line(f"{n % 5}", f"text {n}", rng.random(), rng.random(), step=n % 2) for n in range(60)]
    other = [line(f"{n % 5}", f"text {n}", rng.random(), rng.random(), step=n % 2) for n in range(60)]
    found, _ = difference(run, one, other)
    rng.shuffle(one)
    rng.shuffle(other)
    again, _ = difference(run, one, other)
    for read in found["reads"] + again["reads"]:
        del read["row"]  # the place in the file
    assert again == found


def test_rows_of_one_file_are_counted_and_named(run):
    found, shown = difference(run, ONE, OTHER[1:])
    assert found["rows"] == 4 and found["only_other"]["rows"] == 0
    assert found["only_one"] == {"rows": 1, "first": ["one.jsonl, line 1"]}
    assert "one.jsonl: 1 rows are only in this file: one.jsonl, line 1" in shown


def test_equal_rows_are_paired_in_turn(run):
    found, _ = difference(run, [ONE[0], ONE[0], ONE[1]], [ONE[0], ONE[1]])
    assert found["rows"] == 2 and found["only_one"]["rows"] == 1


def test_scored_files_are_matched_by_id_in_any_order(run):
    one = [{"id": n, "prompt": "A", "target": f"{n}", "checklist_score": row["score"]} for n, row in enumerate(ONE)]
    found, _ = difference(run, one, one[::-1])
    assert found["rows"] == 5 and found["counts"]["flips"] == 0
    without = [{key: value for key, value in row.items() if key != "id"} for row in one]
    found, _ = difference(run, without, without[::-1])
    assert found["rows"] == 5 and found["counts"]["changed"] == 0


def test_rows_without_a_prompt_are_groups_of_their_own(run):
    one, other = (
        [{"target": row["prompt"] + row["completion"], "checklist_score": row["score"]} for row in rows]
        for rows in (ONE, OTHER)
    )
    found, _ = difference(run, one, other)
    assert found["rows"] == 5 and found["counts"]["groups"] == found["counts"]["pairs"] == 0
    assert found["figures"]["flips"]["refused"] == "needs 15 groups, has 5"


@pytest.mark.parametrize("extension", ["jsonl", "csv", "parquet"])
def test_the_output_has_a_row_per_text(run, extension):
    difference(run, ONE, OTHER, "-o", f"rows.{extension}")
    rows = {(row.data["prompt"], row.data["completion"]): row.data for row in read_rows(f"rows.{extension}")}
    assert len(rows) == 5
    first = rows["A", "a"]
    assert float(first["score_one"]) == pytest.approx(0.9) and float(first["change"]) == pytest.approx(-0.75)
    assert float(first["advantage_one"]) == pytest.approx(0.4) and int(first["flips"]) == 2
    items = json.loads(first["items"]) if extension == "csv" else first["items"]
    assert [(item["question"], item["one"], item["other"]) for item in items][0] == ("Is it red?", "yes", "no")


def test_half_a_surrogate_pair_in_a_question(run):
    row = line("A", "a \ud800", 0.9, 0.2)
    row["score"]["items"][0]["question"] = "Is it \ud800?"
    for name in ("one.jsonl", "other.jsonl"):
        Path(name).write_text(json.dumps(row) + "\n")
    run("diff one.jsonl other.jsonl --json diff.json -o diff.parquet")
    assert "Is it \\ud800?" in [item["question"] for item in json.loads(Path("diff.json").read_text())["items"]]
