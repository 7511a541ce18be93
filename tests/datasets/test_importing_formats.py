"""Rubrics as people have them: what is taken from each format, what is asked, and whose number the score is.

`python -m tests.datasets.test_importing_formats` writes the table of `docs/importing.md`.
"""

import csv
import json
import re
from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from checklist_rewards import Checklist
from checklist_rewards.checks import parse_check
from checklist_rewards.datasets.criteria import question_of
from checklist_rewards.datasets.formats import known_formats
from checklist_rewards.datasets.importing import imported_rows
from checklist_rewards.datasets.pitfalls import polarity
from checklist_rewards.errors import ChecklistError, ChecklistRewardsError, SampleError
from checklist_rewards.scores import Aggregation, Verdict, score_checklist
from checklist_rewards.scores.tally import tally
from tests.conftest import REPO
from tests.datasets.samples import ASK, FILES, INSTRUCTIONS, SAMPLES
from tests.jsonl import read_jsonl, write_jsonl

PAGE = REPO / "docs" / "importing.md"


def write(folder: Path, name: str) -> Path:
    path, rows = folder / SAMPLES[name].name, FILES[name]
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        write_jsonl(path, rows)
    else:
        path.write_text(yaml.safe_dump(rows) if path.suffix == ".yaml" else json.dumps(rows))
    return path


def read(folder: Path, name: str):
    imported = imported_rows(write(folder, name))
    return imported, list(imported.rows)


def imported(path: Path, row: dict, **options):
    """What becomes of a file with this row, and its checklist."""
    found = imported_rows(write_jsonl(path, row), **options)
    [(_, checklist)] = found.rows
    return found, checklist


def scored(checklist: Checklist, met: list[bool], metric: str = "weighted"):
    answers = [Verdict(answer="yes" if m else "no") for m in met]
    return score_checklist(checklist, answers, Aggregation(primary_metric=metric))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_read_by_one_command(tmp_path, name):
    sample = SAMPLES[name]
    found, rows = read(tmp_path, name)
    assert found.format.name == sample.format
    assert list(imported_rows(tmp_path / sample.name, format=sample.format).rows) == rows  # named, or by its shape
    row, checklist = rows[0]
    for item, (ending, weight, category) in zip(checklist.items, sample.items, strict=True):
        assert item.question.endswith(ending) and item.category == category and item.weight == pytest.approx(weight)
        asks = item.question.endswith("?") or item.question.startswith("Does this describe")
        assert asks or item.check or item.options
    assert row.pop("prompt", None) == sample.prompt
    assert sorted(row) == sample.columns.split()


# --- polarity

POLARITY = {
    "fault": [
        *("Recommends antibiotics.", "Fails to name the dose.", "Does not mention the dose.", "Omitting the unit."),
        *("The response states that aspirin is safe.", "Incorrectly identifies the bone."),
    ],
    "avoided": [
        *("The response should not omit the unit.", "Avoids jargon.", "Does not invent a dose."),
        *("The answer must not confuse mass and weight.", "The response should avoid assuming a sphere."),
    ],
    "unclear": [
        *("Does not recommend surgery.", "The response should mention the dose."),
        "Die Antwort lässt die Einheit weg.",
    ],
}


@pytest.mark.parametrize("said", POLARITY)
def test_a_text_with_a_negative_weight_says_whether_it_is_a_fault(said):
    assert {text: polarity(text) for text in POLARITY[said]} == dict.fromkeys(POLARITY[said], said)


def rar(*pitfalls: str) -> dict:
    criteria = [("Essential Criteria: Names Bamako.", 3), *((f"Pitfall Criteria: {text}", -1) for text in pitfalls)]
    rubric = [{"title": "t", "description": text, "weight": weight} for text, weight in criteria]
    return {"question": ASK, "reference_answer": "Bamako.", "rubric": rubric}


def test_a_perfect_answer_gets_all_points_in_both_forms_of_pitfalls(tmp_path):
    """What a good response does is true of it, and no fault is."""
    row = rar("Recommends Timbuktu.", "The response should not omit the country.")
    found, checklist = imported(tmp_path / "rar.jsonl", row)
    assert [item.weight for item in checklist.items] == [3, -1, 1]
    assert scored(checklist, [True, False, True]).primary_score == 1
    assert scored(checklist, [True, True, False]).primary_score == 0.5
    said = "1 texts state a fault, 1 say what is avoided and got a positive weight, 0 do not say"
    assert said in "\n".join(found.taken())


def test_a_text_that_does_not_say_is_asked_about(tmp_path):
    path = write_jsonl(tmp_path / "rar.jsonl", rar("Recommends Timbuktu."), rar("Does not recommend surgery."))
    message = r"line 2, item 2: 'Does not recommend.*1 of 2 such texts \(1 state a fault.*--pitfalls fault"
    with pytest.raises(SampleError, match=message):
        list(imported_rows(path).rows)
    for pitfalls, weight in (("fault", -1), ("avoided", 1)):
        [(_, sure), (_, asked)] = imported_rows(path, pitfalls=pitfalls).rows
        assert (sure.items[1].weight, asked.items[1].weight) == (-1, weight)


# --- nothing that makes the score is lost


def criterion(**of_item) -> dict:
    return {"prompt": ASK, "rubric": [{"criterion": "Names Bamako.", **of_item}]}


UNKNOWN = {"penalty": -2, "annotations": {"x_weight": 1}, "importance_class": "high", "max_points": 3}


@pytest.mark.parametrize(("key", "value"), [*UNKNOWN.items(), ("pass_criteria_v2", "NO")])
def test_a_key_that_may_be_part_of_the_score_is_not_dropped(tmp_path, key, value):
    row = criterion(weight=2, **{key: value})
    with pytest.raises(ChecklistError, match=rf"line 1, item 1: '{key}' may be part of the score.*--drop {key}"):
        imported(tmp_path / "a.jsonl", row)
    found, checklist = imported(tmp_path / "a.jsonl", row, drop=[key])
    assert checklist.items[0].weight == 2 and found.left_out == {key: 1}


NUMBERS = {"5": 5, "+3": 3, "90/100": 90, "40%": 40, "Critical": 4, "important": 0.7}


@pytest.mark.parametrize(("given", "weight"), NUMBERS.items())
def test_weights_are_numbers_in_text_or_words_of_a_table(tmp_path, given, weight):
    found, checklist = imported(tmp_path / "a.jsonl", criterion(weight=given))
    assert checklist.items[0].weight == weight
    assert any(line == f"weights: {given} = {weight:g}" for line in found.taken()) == given.isalpha()


def test_other_words_are_refused_until_they_have_numbers(tmp_path):
    with pytest.raises(ChecklistError, match="item 1: weight: .* got 'huge'; give words their numbers with --weights"):
        imported(tmp_path / "a.jsonl", criterion(weight="huge"))
    _, checklist = imported(tmp_path / "a.jsonl", criterion(weight="huge"), weights={"Huge": 9})
    assert checklist.items[0].weight == 9


def test_a_statement_is_asked_in_one_way_whatever_names_its_key(tmp_path):
    mine = {"checklist_key": "mine", "item_keys": {"question": "text"}}
    forms = [
        ({"prompt": ASK, "rubrics": [{"criterion": "Names Bamako.", "points": 1}]}, {}),
        ({"prompt": ASK, "mine": [{"text": "Names Bamako.", "n": 1}]}, mine),
        ({"prompt": ASK, "checklist": ["Names Bamako."]}, {}),
        ({"question": ASK, "rubric": [{"title": "x", "description": "Names Bamako.", "weight": 1}]}, {}),
    ]
    found = [imported(tmp_path / f"{n}.jsonl", row, **options) for n, (row, options) in enumerate(forms)]
    assert len({checklist.items[0].id for _, checklist in found}) == 1


def test_a_question_is_kept_even_without_its_mark():
    questions = ["Is it short?", 'Are the columns separated by "|"']
    statements = ["Is short.", "Does not mention the dose.", "Is the capital of Mali.", "Names Bamako"]
    assert [text for text in questions + statements if question_of(text) == text] == questions


# --- instructions


def test_names_of_machines_are_checks_or_refused(tmp_path):
    _, [(_, checklist)] = read(tmp_path, "IFEval, IFBench")
    comma, words = (parse_check(item.check, "item") for item in checklist.items)
    assert [comma.holds(text) for text in ("No comma", "A, b")] == [True, False]
    assert [words.holds("word " * count) for count in (30, 1)] == [True, False]
    unknown = {"prompt": ASK, "rubric": [{"criterion": "ratio:sentence_palindrome", "weight": 1}]}
    with pytest.raises(ChecklistError, match="line 1, item 1: .*'ratio:sentence_palindrome'"):
        imported(tmp_path / "b.jsonl", unknown)
    row = {"prompt": ASK, "instruction_id_list": ["punctuation:no_comma", "CommaChecker"], "kwargs": [{}, {}]}
    with pytest.raises(ChecklistError, match="line 1, .*unknown IFEval instruction 'CommaChecker'; the nearest are "):
        imported(tmp_path / "b.jsonl", row)


@pytest.mark.parametrize("kwargs", [None, [{}, {"relation": "at least"}], "x"])
def test_arguments_that_are_missing_are_named(tmp_path, kwargs):
    message = "line 1.*(argument 'num_words'|argument 'relation'|'kwargs' must have one entry)"
    with pytest.raises(ChecklistError, match=message):
        imported(tmp_path / "a.jsonl", {"prompt": ASK, **INSTRUCTIONS, "kwargs": kwargs})


# --- sources


def test_a_folder_a_pattern_and_a_dataset_are_read_like_a_file(tmp_path):
    rows = [{"prompt": f"{ASK} {n}", "rubrics": [{"criterion": "Names Bamako.", "points": n + 1}]} for n in range(4)]
    folder = tmp_path / "shards"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", *rows[:2])
    Dataset.from_list(rows[2:]).to_parquet(folder / "b.parquet")
    (folder / "dataset_infos.json").write_text("{}")
    (folder / ".ipynb_checkpoints").mkdir()
    write_jsonl(folder / ".ipynb_checkpoints" / "a-checkpoint.jsonl", *rows[:2])
    (tmp_path / "whole.json").write_text(json.dumps(rows))
    expected = list(imported_rows(write_jsonl(tmp_path / "whole.jsonl", *rows)).rows)
    for source in (folder, str(folder / "[ab].*"), tmp_path / "whole.json", Dataset.from_list(rows)):
        assert list(imported_rows(source).rows) == expected


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


def test_a_grade_becomes_the_label_of_its_level(tmp_path):
    _, [(row, checklist)] = read(tmp_path, "BiGGen-Bench")
    assert row["labels"] == ["Politeness of level 4."]
    assert checklist.items[0].values == {f"Politeness of level {n}.": (n - 1) / 4 for n in range(1, 6)}


def test_the_command_shows_what_it_took_and_two_rows(run):
    write_jsonl("rar.jsonl", rar("Recommends Timbuktu."), rar("Avoids the answer."), rar("States a lie."))
    shown = run("checklists import rar.jsonl -o rows.jsonl").output
    assert "rar: 3 rows with 6 items in rows.jsonl" in shown and "(weight -1, yes/no, pitfall)" in shown
    assert all(line in shown for line in ("question: description", "reference: reference_answer", "--metric weighted"))
    assert shown.count(f"prompt: {ASK}") == 2
    assert [item["weight"] for item in read_jsonl("rows.jsonl")[1]["checklist"]] == [3, 1]


def test_net_is_healthbenchs_score(tmp_path):
    """The mean over rows is clipped to [0, 1], and no row is."""
    rubrics = [{"criterion": f"Names town {n}.", "points": points} for n, points in enumerate((7, -9, 3))]
    [(_, checklist)] = imported_rows(write_jsonl(tmp_path / "h.jsonl", {"prompt": ASK, "rubrics": rubrics})).rows
    ours = [scored(checklist, met, "net") for met in ([True, False, False], [False, True, False])]
    assert [score.primary_score for score in ours] == pytest.approx([7 / 10, -9 / 10])
    assert [score.weighted_score for score in ours] == pytest.approx([7 / 10, 0])
    assert tally(ours).mean == 0 and tally(ours[:1]).mean == pytest.approx(7 / 10)


# --- the page


def table(folder: Path) -> str:
    lines = ["| data | what is asked | prompt | weights | own score |", "|---|---|---|---|---|"]
    for name, sample in SAMPLES.items():
        where = folder / re.sub(r"\W", "_", name)
        where.mkdir()
        found, [(row, checklist), *_] = read(where, name)
        kinds = {
            "code checks": sum(bool(i.check) for i in checklist.items),
            "options": sum(i.options is not None and not i.yes_no for i in checklist.items),
        }
        asked = ", ".join(kind for kind, count in kinds.items() if count) or "yes/no"
        asked = f"yes/no, {asked}" if 0 < sum(kinds.values()) < len(checklist) else asked
        prompt = "none" if sample.prompt is None else "messages" if isinstance(row["prompt"], list) else "text"
        weights = {f"{item.weight:g}" for item in checklist.items}
        metric = found.format.metric or sample.metric
        cells = (name, asked, prompt, ", ".join(sorted(weights, key=float)), f"`{metric}`" if metric else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- formats: python -m tests.datasets.test_importing_formats -->\n", "<!-- end of formats -->\n"


def test_the_page_has_this_table(tmp_path):
    page = PAGE.read_text()
    assert page[page.index(BEGIN) + len(BEGIN) : page.index(END)] == table(tmp_path)


def test_every_packaged_format_has_a_sample():
    shown = {sample.format for sample in SAMPLES.values()}
    assert known_formats().keys() - shown <= {"autorubric", "rubric"}  # tests/datasets/test_importing.py
    assert all(format.about for format in known_formats().values())


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        text = PAGE.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        PAGE.write_text(text[:begin] + table(Path(temporary)) + text[end:])
