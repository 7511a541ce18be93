"""Rubrics as people have them: what is taken from each format, what is asked, and whose number the score is.

`python -m tests.datasets.test_importing_formats` writes the table of `docs/importing.md`.
"""

import csv
import json
import random
import re
from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.checks import parse_check
from checklist_rewards.datasets import import_checklists
from checklist_rewards.datasets.criteria import question_of
from checklist_rewards.datasets.formats import known_formats
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.datasets.pitfalls import polarity
from checklist_rewards.errors import ChecklistError, ChecklistRewardsError, SampleError
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.rows import Columns
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from checklist_rewards.scores.tally import tally
from tests.conftest import REPO
from tests.datasets.samples import ASK, SAMPLES, TURNS, Sample
from tests.jsonl import read_jsonl, write_jsonl
from tests.judges.fakes import Lettered

PAGE = REPO / "docs" / "importing.md"


def write(folder: Path, sample: Sample) -> Path:
    path = folder / sample.name
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, sample.rows[0])
            writer.writeheader()
            writer.writerows(sample.rows)
    elif path.suffix == ".jsonl":
        write_jsonl(path, *sample.rows)
    else:
        path.write_text(yaml.safe_dump(sample.rows) if path.suffix == ".yaml" else json.dumps(sample.rows))
    return path


def read(folder: Path, sample: Sample):
    imported = imported_rows(write(folder, sample), **sample.options)
    return imported, list(imported.rows)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_read_by_one_command(tmp_path, name):
    sample = SAMPLES[name]
    imported, [(row, checklist), *_] = read(tmp_path, sample)
    assert imported.format.name == sample.format
    assert len(checklist) == len(sample.items)
    for item, (ending, weight, category) in zip(checklist.items, sample.items, strict=True):
        assert item.question.endswith(ending) and item.category == category
        assert item.weight == pytest.approx(weight)
        assert (
            item.check or item.options or item.question.endswith("?") or item.question.startswith("Does this describe")
        )
    assert row.pop("prompt", None) == sample.prompt
    assert tuple(sorted(row)) == sample.columns


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.prompt is not None])
def test_all_output_formats_give_equal_scores(tmp_path, name):
    _, rows = read(tmp_path, SAMPLES[name])
    texts = {}
    for extension in (".jsonl", ".csv", ".parquet"):
        path = tmp_path / f"out{extension}"
        with write_rows(path) as out:
            for row, checklist in rows:
                out.write(
                    {
                        "prompt": row["prompt"],
                        "target": "Bamako.",
                        "checklist": [i.model_dump() for i in checklist.items],
                    }
                )
        backend = Lettered(
            lambda shown: {letter: label.count("e") + 1.0 for letter, label in shown.items()}, lambda *_: 0.75
        )
        read_back = list(read_rows(path))
        columns = Columns.of(read_back[0])
        samples = [columns.sample_of(r.data, r.where, columns.checklist_of(r.data, r.where)) for r in read_back]
        scores = ChecklistScorer(backend=backend, store=False).score_batch(samples)
        texts[extension] = [s.model_dump() for s in scores], sorted(backend.asked)
    assert texts[".jsonl"] == texts[".csv"] == texts[".parquet"]


# --- polarity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Recommends antibiotics.", "fault"),
        ("Fails to name the dose.", "fault"),
        ("Does not mention the dose.", "fault"),
        ("Omitting the unit.", "fault"),
        ("The response states that aspirin is safe.", "fault"),
        ("Incorrectly identifies the bone.", "fault"),
        ("The response should not omit the unit.", "avoided"),
        ("Avoids jargon.", "avoided"),
        ("Does not invent a dose.", "avoided"),
        ("The answer must not confuse mass and weight.", "avoided"),
        ("The response should avoid assuming a sphere.", "avoided"),
        ("Does not recommend surgery.", "unclear"),
        ("The response should mention the dose.", "unclear"),
        ("Die Antwort lässt die Einheit weg.", "unclear"),
    ],
)
def test_a_text_with_a_negative_weight_says_whether_it_is_a_fault(text, said):
    assert polarity(text) == said


def rar(*pitfalls: str) -> dict:
    essential = {"title": "t", "description": "Essential Criteria: Names Bamako.", "weight": 3}
    rubric = [
        essential,
        *({"title": "t", "description": f"Pitfall Criteria: {text}", "weight": -1} for text in pitfalls),
    ]
    return {"question": ASK, "reference_answer": "Bamako.", "rubric": rubric}


def perfect(checklist: Checklist) -> float | None:
    """The score of a response that is good in every way: all that a good response does is true, no fault is."""
    good = [
        Verdict(answer="no" if polarity(item.question.split("\n")[-1]) == "fault" else "yes")
        for item in checklist.items
    ]
    good[0] = Verdict(answer="yes")
    return score_checklist(checklist, good, Aggregation(primary_metric="weighted")).primary_score


def test_a_perfect_answer_gets_all_points_in_both_forms_of_pitfalls(tmp_path):
    path = write_jsonl(
        tmp_path / "rar.jsonl", rar("Recommends Timbuktu.", "The response should not omit the country.")
    )
    imported = imported_rows(path)
    [(_, checklist)] = imported.rows
    assert [item.weight for item in checklist.items] == [3, -1, 1] and perfect(checklist) == 1
    faulty = [Verdict(answer="yes"), Verdict(answer="yes"), Verdict(answer="no")]
    assert score_checklist(checklist, faulty, Aggregation(primary_metric="weighted")).primary_score == 0.5
    assert "1 texts state a fault, 1 say what is avoided and got a positive weight, 0 do not say" in "\n".join(
        imported.taken()
    )


def test_a_text_that_does_not_say_is_asked_about(tmp_path):
    path = write_jsonl(tmp_path / "rar.jsonl", rar("Recommends Timbuktu."), rar("Does not recommend surgery."))
    with pytest.raises(
        SampleError,
        match=r"line 2, item 2: 'Does not recommend.*1 of 2 such texts \(1 state a fault.*--pitfalls fault",
    ):
        list(imported_rows(path).rows)
    for pitfalls, weight in (("fault", -1), ("avoided", 1)):
        [(_, sure), (_, asked)] = imported_rows(path, pitfalls=pitfalls).rows
        assert (sure.items[1].weight, asked.items[1].weight) == (-1, weight)


# --- nothing that makes the score is lost ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra",
    [
        {"penalty": -2},
        {"annotations": {"x_weight": 1}},
        {"importance_class": "high"},
        {"max_points": 3},
        {"pass_criteria_v2": "NO"},
    ],
)
def test_a_key_that_may_be_part_of_the_score_is_not_dropped(tmp_path, extra):
    [key] = extra
    path = write_jsonl(
        tmp_path / "a.jsonl", {"prompt": ASK, "rubric": [{"criterion": "Names Bamako.", "weight": 2, **extra}]}
    )
    with pytest.raises(ChecklistError, match=rf"line 1, item 1: '{key}' may be part of the score.*--drop {key}"):
        list(imported_rows(path).rows)
    imported = imported_rows(path, drop=[key])
    assert [c.items[0].weight for _, c in imported.rows] == [2] and imported.left_out == {key: 1}


@pytest.mark.parametrize(
    ("given", "weight"), [("5", 5), ("+3", 3), ("90/100", 90), ("40%", 40), ("Critical", 4), ("important", 0.7)]
)
def test_weights_are_numbers_in_text_or_words_of_a_table(tmp_path, given, weight):
    path = write_jsonl(
        tmp_path / "a.jsonl", {"prompt": ASK, "rubric": [{"criterion": "Names Bamako.", "weight": given}]}
    )
    imported = imported_rows(path)
    assert [c.items[0].weight for _, c in imported.rows] == [weight]
    assert any(line == f"weights: {given} = {weight:g}" for line in imported.taken()) == given.isalpha()


def test_other_words_are_refused_until_they_have_numbers(tmp_path):
    path = write_jsonl(
        tmp_path / "a.jsonl", {"prompt": ASK, "rubric": [{"criterion": "Names Bamako.", "weight": "huge"}]}
    )
    with pytest.raises(
        ChecklistError, match="line 1, item 1: weight: .* got 'huge'; give words their numbers with --weights"
    ):
        list(imported_rows(path).rows)
    assert [c.items[0].weight for _, c in imported_rows(path, weights={"Huge": 9}).rows] == [9]


def test_an_expected_no_earns_the_point(tmp_path):
    _, [(_, checklist)] = read(tmp_path, SAMPLES["NeMo Gym multichallenge"])
    good = [Verdict(answer="yes"), Verdict(answer="no")]
    assert score_checklist(checklist, good, Aggregation(primary_metric="weighted")).primary_score == 1


def test_what_changes_the_score_is_said(tmp_path):
    items = [{"criterion": "Names Bamako.", "weight": 1, "required": True}]
    imported = imported_rows(write_jsonl(tmp_path / "a.jsonl", {"prompt": ASK, "rubric": items}))
    [(_, checklist)] = imported.rows
    assert checklist.items[0].required and {"weight: weight", "gates: 1"} <= set(imported.taken())


def test_a_statement_is_asked_in_one_way_whatever_names_its_key(tmp_path):
    forms = [
        ({"prompt": ASK, "rubrics": [{"criterion": "Names Bamako.", "points": 1}]}, {}),
        (
            {"prompt": ASK, "mine": [{"text": "Names Bamako.", "n": 1}]},
            {"checklist_key": "mine", "item_keys": {"question": "text"}},
        ),
        ({"prompt": ASK, "checklist": ["Names Bamako."]}, {}),
        ({"question": ASK, "rubric": [{"title": "x", "description": "Names Bamako.", "weight": 1}]}, {}),
    ]
    ids = set()
    for number, (row, options) in enumerate(forms):
        [(_, checklist)] = imported_rows(write_jsonl(tmp_path / f"{number}.jsonl", row), **options).rows
        ids.add(checklist.items[0].id)
    assert len(ids) == 1


# --- files that nobody named -----------------------------------------------------------------------------------------

TWO = [{"score": 0, "description": "Not at all"}, {"score": 5, "description": "Fully"}]
ODD = {
    "a mapping of texts": ({"rubric": {"facts": "Names Bamako.", "form": "Is short."}}, [(1, "facts"), (1, "form")]),
    "a mapping of objects": (
        {
            "rubric": {
                "facts": {"description": "Names Bamako.", "weight": 3},
                "form": {"description": "Is short.", "weight": 1},
            }
        },
        [(3, "facts"), (1, "form")],
    ),
    "weights beside the texts": (
        {"rubric": ["Names Bamako.", "Is short."], "weights": [3, -1]},
        [(3, None), (-1, None)],
    ),
    "a sign in words": (
        {
            "rubric": [
                {"criterion": "Names Bamako.", "weight": 3, "type": "positive"},
                {"criterion": "States a lie.", "weight": 2, "type": "negative"},
            ]
        },
        [(3, "positive"), (-2, "negative")],
    ),
    "a key that nobody knows": ({"rubric": [{"claim_to_check": "Names Bamako clearly.", "weight": 2}]}, [(2, None)]),
    "bullets": ({"rubric": "- Names Bamako\n- Is short"}, [(1, None), (1, None)]),
    "levels of each criterion": (
        {"rubric": [{"criterion": "How clear is it?", "weight": 2, "levels": TWO}]},
        [(2, None)],
    ),
    "far inside": ({"data": {"eval": {"my_rubric": [{"criterion": "Names Bamako.", "points": 2}]}}}, [(2, None)]),
}


@pytest.mark.parametrize("name", ODD)
def test_files_that_nobody_named_are_read(tmp_path, name):
    row, expected = ODD[name]
    [(_, checklist)] = imported_rows(write_jsonl(tmp_path / "a.jsonl", {"prompt": ASK, **row})).rows
    assert [(item.weight, item.category) for item in checklist.items] == expected
    assert name != "levels of each criterion" or checklist.items[0].values == {"Not at all": 0, "Fully": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"rubric": "Give 5 if it is right, 3 if nearly, else 1."}, "no criteria found"),
        ({"criterion": "Names Bamako.", "weight": 3}, "no criteria found"),
        (
            {"rubric": ["Names Bamako."], "negative_rubric": ["Names Timbuktu."]},
            "could be the criteria: rubric, negative_rubric",
        ),
        (
            {"rubric": [{"criterion": "Names Timbuktu.", "weight": 3, "is_negative": True}]},
            "'is_negative' may be part of the score",
        ),
        ({"rubric": [{"criterion": "Names Bamako.", "value": 3}]}, "'value' may be part of the score"),
        ({"rubric": [{"criterion": "Names Bamako.", "priority": 3}]}, "'priority' may be part of the score"),
        (
            {"rubric": [{"criterion": "How clear is it?", "weight": 1, "levels": ["bad", "good"]}]},
            "'levels' may be part of the score",
        ),
        ({"rubric": []}, "no criteria found"),
    ],
)
def test_files_that_could_be_read_wrongly_are_refused(tmp_path, row, message):
    with pytest.raises(ChecklistRewardsError, match=f"line 1.*{message}"):
        list(imported_rows(write_jsonl(tmp_path / "a.jsonl", {"prompt": ASK, **row})).rows)


def test_a_mapping_of_rows_has_a_row_for_each(tmp_path):
    rows = {"q1": {"question": ASK, "rubric": ["Names Bamako."]}, "q2": {"question": ASK, "rubric": ["Is short."]}}
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert [row for row, _ in imported_rows(tmp_path / "a.json").rows] == [
        {"prompt": ASK, "id": "q1"},
        {"prompt": ASK, "id": "q2"},
    ]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Is it short?", True),
        ('Are the columns separated by "|"', True),
        ("Is short.", False),
        ("Does not mention the dose.", False),
        ("Is the capital of Mali.", False),
        ("Names Bamako", False),
    ],
)
def test_a_question_is_kept_even_without_its_mark(text, asked):
    assert (question_of(text) == text) == asked


# --- instructions ----------------------------------------------------------------------------------------------------


def test_names_of_machines_are_checks_or_refused(tmp_path):
    _, [(_, checklist)] = read(tmp_path, SAMPLES["IFEval, IFBench"])
    comma, words = (parse_check(item.check, "item") for item in checklist.items)
    assert (
        comma.holds("No comma") and not comma.holds("A, b") and words.holds("word " * 30) and not words.holds("word")
    )
    unknown = {"prompt": ASK, "rubric": [{"criterion": "ratio:sentence_palindrome", "weight": 1}]}
    with pytest.raises(ChecklistError, match="line 1, item 1: .*'ratio:sentence_palindrome'"):
        list(imported_rows(write_jsonl(tmp_path / "b.jsonl", unknown)).rows)


@pytest.mark.parametrize("name", ["CommaChecker", "no commas, please"])
def test_a_name_of_no_instruction_does_not_become_a_question(tmp_path, name):
    row = {"prompt": ASK, "instruction_id_list": ["punctuation:no_comma", name], "kwargs": [{}, {}]}
    with pytest.raises(ChecklistError, match=f"line 1, .*unknown IFEval instruction '{name}'; the nearest are "):
        list(imported_rows(write_jsonl(tmp_path / "a.jsonl", row)).rows)


@pytest.mark.parametrize("kwargs", [None, [None, None], [{}, {"relation": "at least"}], "x", [{}]])
def test_arguments_that_are_missing_are_named(tmp_path, kwargs):
    row = {
        "prompt": ASK,
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": kwargs,
    }
    with pytest.raises(
        ChecklistError, match="line 1.*(argument 'num_words'|argument 'relation'|'kwargs' must have one entry)"
    ):
        list(imported_rows(write_jsonl(tmp_path / "a.jsonl", row)).rows)


# --- sources ---------------------------------------------------------------------------------------------------------


def test_a_folder_a_pattern_and_a_dataset_are_read_like_a_file(tmp_path):
    rows = [{"prompt": f"{ASK} {n}", "rubrics": [{"criterion": "Names Bamako.", "points": n + 1}]} for n in range(4)]
    folder = tmp_path / "shards"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", *rows[:2])
    Dataset.from_list(rows[2:]).to_parquet(folder / "b.parquet")
    (folder / "dataset_infos.json").write_text("{}")
    whole = write_jsonl(tmp_path / "whole.jsonl", *rows)
    (tmp_path / "whole.json").write_text(json.dumps(rows))
    expected = list(imported_rows(whole).rows)
    for source in (folder, str(folder / "[ab].*"), tmp_path / "whole.json", Dataset.from_list(rows)):
        assert list(imported_rows(source).rows) == expected


def test_json_lists_are_read_in_pieces(tmp_path, monkeypatch):
    from checklist_rewards.datasets import sources

    rows = [
        {"prompt": f"{ASK} {n} ]}},", "rubrics": [{"criterion": 'Names "Bamako".', "points": n + 0.5}]}
        for n in range(50)
    ]
    path = tmp_path / "a.json"
    path.write_text("\ufeff\n" + json.dumps(rows, indent=1), encoding="utf-8")
    expected = [row.data for row in sources.read_source(path).rows]
    assert expected == rows
    for chunk in (1, 7, 100):
        monkeypatch.setattr(sources, "_CHUNK", chunk)
        assert [row.data for row in sources.read_source(path).rows] == rows
    path.write_text(json.dumps(rows)[:-20])
    with pytest.raises(SampleError, match=r"a.json: not valid JSON"):
        list(sources.read_source(path).rows)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing/", "the file name has no extension; allowed: .jsonl, "),
        ("data/*.jsonl", "no file has such a name"),
        ("some-org/some-rubrics", "there is no such file, and the hub gives no dataset of this name"),
    ],
)
def test_a_source_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChecklistRewardsError, match=message) as refused:
        list(imported_rows(source).rows)
    assert "\n" not in str(refused.value)


def test_a_format_of_ones_own_is_a_small_file(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nprompt: [task.text]\nchecklist: task.grading\nwords: {must: 3, nice: 1}\n"
        "item: {question: claim, weight: how, category: kind}\n"
    )
    row = {"task": {"text": ASK, "grading": [{"claim": "Names Bamako.", "how": "must", "kind": "facts"}], "id": 7}}
    [(columns, checklist)] = imported_rows(write_jsonl(tmp_path / "a.jsonl", row), format=tmp_path / "mine.yaml").rows
    assert columns == {"prompt": ASK, "task": {"id": 7}} and checklist.source == "mine"
    assert [(item.weight, item.category) for item in checklist.items] == [(3, "facts")]


def test_what_could_be_meant_twice_is_named(tmp_path):
    row = {"prompt": ASK, "rubric": [{"criterion": "A.", "weight": 1}], "criteria": [{"criterion": "B.", "weight": 1}]}
    path = write_jsonl(tmp_path / "a.jsonl", row)
    with pytest.raises(
        SampleError, match="several values could be the criteria: rubric, criteria. Name one with --checklist-key"
    ):
        imported_rows(path)
    [(_, checklist)] = imported_rows(path, checklist_key="criteria").rows
    assert checklist.items[0].question.endswith("B.")


def test_a_grade_becomes_the_label_of_its_level(tmp_path):
    _, [(row, checklist)] = read(tmp_path, SAMPLES["BiGGen-Bench"])
    assert row["labels"] == ["Politeness of level 4."]
    assert checklist.items[0].values == {f"Politeness of level {n}.": (n - 1) / 4 for n in range(1, 6)}


def test_the_command_shows_what_it_took_and_two_rows(run):
    write_jsonl("rar.jsonl", rar("Recommends Timbuktu."), rar("Avoids the answer."), rar("States a lie."))
    done = run("checklists import rar.jsonl -o rows.jsonl")
    for line in (
        "rar: 3 rows with 6 items in rows.jsonl",
        "question: description",
        "reference: reference_answer",
        "--metric weighted",
    ):
        assert line in done.output
    assert done.output.count(f"prompt: {ASK}") == 2 and "(weight -1, yes/no, pitfall)" in done.output
    assert [item["weight"] for item in read_jsonl("rows.jsonl")[1]["checklist"]] == [3, 1]


# --- the authors' formulas -------------------------------------------------------------------------------------------


def verdicts(checklist: Checklist, rng: random.Random) -> list[bool]:
    return [rng.random() < 0.5 for _ in checklist.items]


def scored(checklist: Checklist, met: list[bool], metric: str):
    return score_checklist(
        checklist, [Verdict(answer="yes" if m else "no") for m in met], Aggregation(primary_metric=metric)
    )


@pytest.mark.parametrize("seed", range(4))
def test_net_is_healthbenchs_score(tmp_path, seed):
    """Points of the criteria met over all positive points, not clipped; the mean over rows is clipped to [0, 1]."""
    rng = random.Random(seed)
    points = [[rng.choice([-9, -5, -2, 1, 3, 7, 10]) for _ in range(rng.randint(2, 9))] + [4] for _ in range(250)]
    rows = [
        {"prompt": ASK, "rubrics": [{"criterion": f"Names town {n}.", "points": p} for n, p in enumerate(ps)]}
        for ps in points
    ]
    ours, theirs = [], []
    for (_, checklist), ps in zip(imported_rows(write_jsonl(tmp_path / "h.jsonl", *rows)).rows, points, strict=True):
        met = verdicts(checklist, rng)
        ours.append(scored(checklist, met, "net"))
        theirs.append(sum(p for p, m in zip(ps, met, strict=True) if m) / sum(p for p in ps if p > 0))
        assert ours[-1].primary_score == pytest.approx(theirs[-1], abs=1e-9)
        assert ours[-1].weighted_score == pytest.approx(min(1, max(0, theirs[-1])), abs=1e-9)
    assert any(value < 0 for value in theirs)
    assert tally(ours).mean == pytest.approx(min(1, max(0, sum(theirs) / len(theirs))), abs=1e-9)


def test_weighted_is_the_explicit_sum_of_rubrics_as_rewards(tmp_path):
    """Weights of what is met over all weights, where pitfalls say what is avoided (RaR, section 3)."""
    rng = random.Random(0)
    for number in range(100):
        texts = ["The response should not omit the country.", "Avoids jargon."][: rng.randint(0, 2)]
        [(_, checklist)] = imported_rows(write_jsonl(tmp_path / f"{number}.jsonl", rar(*texts))).rows
        for _ in range(10):
            met = verdicts(checklist, rng)
            theirs = sum(w for w, m in zip([3, 1, 1], met, strict=False) if m) / (3 + len(texts))
            assert scored(checklist, met, "weighted").primary_score == pytest.approx(theirs, abs=1e-9)


def test_weighted_is_autorubrics_score(tmp_path):
    """clip(sum of weight x met over the sum of positive weights), as its `compute_score` does for binary criteria."""
    rng = random.Random(0)
    for number in range(100):
        weights = [rng.choice([-5.0, -1.0, 2.0, 10.0]) for _ in range(4)] + [3.0]
        path = tmp_path / f"{number}.json"
        path.write_text(
            json.dumps({"rubric": [{"requirement": f"Names town {n}.", "weight": w} for n, w in enumerate(weights)]})
        )
        [(_, checklist)] = imported_rows(path).rows
        for _ in range(10):
            met = verdicts(checklist, rng)
            theirs = sum(w for w, m in zip(weights, met, strict=True) if m) / sum(w for w in weights if w > 0)
            assert scored(checklist, met, "weighted").primary_score == pytest.approx(min(1, max(0, theirs)), abs=1e-9)


def test_weighted_is_paperbenchs_replication_score(tmp_path):
    """The weighted mean of the children at every node of the tree."""
    rng = random.Random(0)
    leaves: list[str] = []

    def tree(depth: int) -> dict:
        children = [tree(depth - 1) for _ in range(rng.randint(1, 3))] if depth else []
        node = {"requirements": f"Leaf {len(leaves)}.", "weight": rng.randint(1, 9), "sub_tasks": children}
        if not children:
            leaves.append(node["requirements"])
        return node

    def theirs(node: dict, met: dict[str, bool]) -> float:
        if not node["sub_tasks"]:
            return float(met[node["requirements"]])
        total = sum(child["weight"] for child in node["sub_tasks"])
        return sum(child["weight"] * theirs(child, met) for child in node["sub_tasks"]) / total

    for number in range(20):
        leaves.clear()
        root = tree(3) | {"requirements": "Root."}
        (tmp_path / f"{number}.json").write_text(json.dumps(root))
        [(_, checklist)] = imported_rows(tmp_path / f"{number}.json").rows
        assert sum(item.weight for item in checklist.items) == pytest.approx(1)
        for _ in range(50):
            met = verdicts(checklist, rng)
            by_leaf = {item.question.split("\n")[-1]: m for item, m in zip(checklist.items, met, strict=True)}
            assert scored(checklist, met, "weighted").primary_score == pytest.approx(theirs(root, by_leaf), abs=1e-9)


# --- the page --------------------------------------------------------------------------------------------------------


def table(folder: Path) -> str:
    lines = ["| data | what is asked | prompt | weights | own score |", "|---|---|---|---|---|"]
    for name, sample in SAMPLES.items():
        where = folder / re.sub(r"\W", "_", name)
        where.mkdir()
        imported, [(row, checklist), *_] = read(where, sample)
        kinds = {
            "code checks": sum(bool(i.check) for i in checklist.items),
            "options": sum(i.options is not None and not i.yes_no for i in checklist.items),
        }
        asked = ", ".join(kind for kind, count in kinds.items() if count) or "yes/no"
        asked = f"yes/no, {asked}" if 0 < sum(kinds.values()) < len(checklist) else asked
        prompt = "none" if sample.prompt is None else "messages" if isinstance(row["prompt"], list) else "text"
        weights = {f"{item.weight:g}" for item in checklist.items}
        metric = imported.format.metric or sample.metric
        cells = (name, asked, prompt, ", ".join(sorted(weights, key=float)), f"`{metric}`" if metric else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- formats: python -m tests.datasets.test_importing_formats -->\n", "<!-- end of formats -->\n"


def test_the_page_has_this_table(tmp_path):
    page = PAGE.read_text()
    assert page[page.index(BEGIN) + len(BEGIN) : page.index(END)] == table(tmp_path)


def test_every_packaged_format_has_a_sample():
    shown = {sample.format for sample in SAMPLES.values()}
    assert known_formats().keys() - shown <= {"autorubric", "rubric"}  # tests/datasets/test_rubrics.py
    assert all(format.about for format in known_formats().values())


def test_a_dataset_in_python_is_the_same(tmp_path):
    path = write(tmp_path, SAMPLES["HealthBench"])
    dataset = import_checklists(path)
    assert dataset[0]["prompt"] == TURNS and dataset[0]["checklist_source"] == "healthbench"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        text = PAGE.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        PAGE.write_text(text[:begin] + table(Path(temporary)) + text[end:])
