"""A label is of one text: labels in a file of their own are matched by id and text, in every command."""

import json
from itertools import product
from pathlib import Path

import pytest

from checklist_rewards.evaluation.labels import same_text
from checklist_rewards.ui.annotations import name_of
from tests.evaluation.files import copied, scored_file
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_images import RED

CHECKLIST = ["Is it red?", "Is it big?"]
PER_ITEM = ("labels", lambda n: [int(n > 10 or n % 5 == 2), int(n * 5 % 24 < 12 or n % 7 == 3)])
PER_TEXT = ("human", lambda n: n / 24)
COMMANDS = {
    "agree scored.jsonl --labels gold.jsonl --bootstrap 0": PER_ITEM,
    "calibrate scored.jsonl --labels gold.jsonl --bootstrap 0 -o out.json": PER_ITEM,
    "fit scored.jsonl --labels gold.jsonl --label-key human --bootstrap 0 -o out.json": PER_TEXT,
    "report scored.jsonl --labels gold.jsonl -o out.html --bootstrap 0": PER_ITEM,
}
THINKING = "<think>Red?</think>"


def scored(ids=str, **more):
    rows = [
        {"id": ids(n), "target": f"text {n}", "prompt": "Go on.", "checklist": CHECKLIST, **more}
        | {"said": [0.1 + 0.03 * n, 0.9 - 0.02 * (n * 5 % 24)]}
        for n in range(24)
    ]
    scored_file("scored.jsonl", *rows)


def gold(of, ids=str, **columns):
    key, label = of
    write_jsonl(
        "gold.jsonl",
        *({"id": ids(n), key: label(n)} | {name: make(n) for name, make in columns.items()} for n in range(24)),
    )


AGREE, CALIBRATE, FIT, REPORT = COMMANDS
OTHER_TEXT = "line 1: the label with the id '0' is about another text than scored.jsonl"


@pytest.mark.parametrize(
    ("command", "same_id", "text", "refusal"),
    [
        *((command, True, {"target": "another {}"}, OTHER_TEXT) for command in COMMANDS),
        (AGREE, True, {"completion": "text {}"}, None),
        (
            CALIBRATE,
            True,
            {"target": "text {}", "prompt": "Stop."},
            "line 1: the label with the id '0' is about anothe",
        ),
        (FIT, False, {"target": "text {}"}, "gold.jsonl has labels for none of the scored rows"),
        (REPORT, True, {}, None),
    ],
    ids=str,
)
def test_labels_are_matched_by_id_and_text(run, caplog, command, same_id, text, refusal):
    scored()
    columns = {name: (lambda n, words=words: words.format(n)) for name, words in text.items()}
    gold(COMMANDS[command], str if same_id else lambda n: f"x{n}", **columns)
    run(command, refused=refusal)
    said = [message for message in caplog.messages if "matched by id alone" in message]
    assert len(said) == (not text) and all("because one of the two has no text in" in message for message in said)


def test_labels_of_no_row_are_warned_of(run, caplog):
    """Spreadsheets drop the zeros of "007", so that only the longer ids still match."""
    scored()
    gold(PER_ITEM, target="text {}".format)
    with open("gold.jsonl", "a") as file:
        file.write("".join(json.dumps({"id": f"0{n}", "labels": [1, 0]}) + "\n" for n in range(3)))
    run(AGREE)
    [said] = [message for message in caplog.messages if "labels are not used" in message]
    assert said.startswith("gold.jsonl: 3 of 27 labels") and "'00'" in said and "'0'" in said


@pytest.mark.parametrize(("command", "column"), [(FIT, "target"), (AGREE, "reply")])
def test_texts_in_a_named_column_are_compared(run, caplog, command, column):
    """The app exports labels with a column `target`, whatever the column of the scored file."""
    scored(reply="an answer", target=None)
    for text, code in (("an answer", 0), ("another", 2)):
        gold(COMMANDS[command], **{column: lambda n, text=text: text})
        done = run(command, "--target-key", "reply", code=code)
        assert not code or "is about another text than scored.jsonl" in done.output
    assert not [message for message in caplog.messages if "matched by" in message]


def test_a_gold_answer_is_not_compared_as_the_text(run, caplog, monkeypatch):
    """Rows of lm-evaluation-harness have the same `target` for all models."""
    monkeypatch.setattr("checklist_rewards.errors._warned", set())
    scored(response="an answer", target="gold")
    gold(PER_ITEM, target=lambda n: "gold", response=lambda n: "another")
    run(AGREE)
    assert [message for message in caplog.messages if "are matched by id alone" in message]
    run(AGREE + " --target-key response", refused="is about another text than scored.jsonl")


def test_an_error_about_a_label_names_its_own_line(run):
    scored()
    gold(PER_ITEM, target=lambda n: "another" if n == 17 else f"text {n}")
    done = run("agree scored.jsonl --labels gold.jsonl", refused="gold.jsonl, line 18: the label with the id '17'")
    assert "'another' and 'text 17'" in done.output
    gold(("labels", lambda n: [1, "perhaps" if n == 3 else 0]), target=lambda n: f"text {n}")
    write_jsonl("gold.jsonl", *reversed(read_jsonl("gold.jsonl")))
    run("agree scored.jsonl --labels gold.jsonl --bootstrap 0", refused=["gold.jsonl, line 21, item 2", "'perhaps'"])


SAME = ["a red thing", f"{THINKING}a red thing", "a red thing\r\n", [{"role": "assistant", "content": "a red thing"}]]
SAME += [json.dumps(SAME[3])]
OTHER = ["a blue thing", f"{THINKING}a blue thing", [{"role": "assistant", "content": "a blue thing"}]]
PROMPTS = ["Go on.", [{"role": "user", "content": "Go on."}], json.dumps([{"role": "user", "content": "Go on."}])]


def test_texts_and_prompts_are_compared_as_the_judge_saw_them():
    for one, other in product(SAME, SAME + OTHER):
        assert same_text({"target": one}, {"completion": other}) is (other in SAME)
        assert same_text({"target": one}, {"text": other}) is None
    for one, other in product(PROMPTS, [*PROMPTS, "Stop."]):
        assert same_text({"target": "a", "prompt": one}, {"target": "a", "prompt": other}) is (other != "Stop.")
        assert same_text({"target": "a", "prompt": one}, {"target": "a", "input": other})  # another column
    assert same_text({"target": 1}, {"target": "a"}) is None  # no text


@pytest.mark.parametrize(
    "part", [{"type": "image", "image": "gone.png"}, {"type": "image_url", "image_url": {"url": RED.url}}]
)
def test_answers_with_images_are_compared_by_their_texts(part):
    def row(text):
        return {"target": [{"role": "assistant", "content": [part, {"type": "text", "text": text}]}]}

    red = row("It is red.")
    assert same_text(red, red) and same_text(red, {"target": "[image]It is red."})
    assert same_text(red, row("It is blue.")) is False


def test_no_two_files_of_a_project_share_a_file_of_labels():
    names = ["a.jsonl", "a.csv", "a.jsonl.csv", "a/b.jsonl", "b/a.jsonl", "aa.jsonl", "b.jsonl", "a/b/a.jsonl"]
    assert len(set(map(name_of, names))) == len(names)
    assert all(name_of(name).startswith("labels/") and name_of(name).endswith(".jsonl") for name in names)


@pytest.mark.parametrize("command", ["inspect one.jsonl --repeat two.jsonl", "diff one.jsonl two.jsonl --bootstrap 0"])
@pytest.mark.parametrize("other", ["text 0", "another"])
def test_two_scorings_are_of_the_same_texts(run, command, other):
    row = {"id": "a", "checklist": CHECKLIST, "said": [0.9, 0.1]}
    scored_file("one.jsonl", row | {"target": "text 0"})
    scored_file("two.jsonl", row | {"target": other})
    done = run(command, code=0 if other == "text 0" else 2)
    assert ("about another text" in done.output) is (other == "another")


def test_labels_of_another_checklist_belong_to_their_questions(run):
    scored()
    gold(("labels", lambda n: [None, PER_ITEM[1](n)[1]]), target="text {}".format)
    run("agree scored.jsonl --labels gold.jsonl --bootstrap 0 --json plain.json")
    asked = [CHECKLIST[1], "Is it round?"]
    gold(("labels", lambda n: [PER_ITEM[1](n)[1], 1]), target="text {}".format, checklist=lambda n: asked)
    rows = read_jsonl("gold.jsonl")
    named = [{"id": "big", "question": f" {asked[0]}\n"}, {"id": "red", "question": asked[1]}]
    by_id = [
        row | {"checklist": named, "labels": dict(zip(("big", "red"), row["labels"], strict=True))} for row in rows
    ]
    write_jsonl("by_id.jsonl", *by_id)
    column = [
        one | {name: row[name] for name in ("checklist", "labels")}
        for one, row in zip(read_jsonl("scored.jsonl"), rows, strict=True)
    ]
    write_jsonl("column.jsonl", *column)  # what `score --checklist` writes of labelled rows
    write_jsonl("text.jsonl", *(row | {"checklist": "No JSON."} for row in column))
    Path("c.json").write_text(json.dumps(asked))  # that of all rows, in place of the column
    files = (Path("gold.jsonl"), copied(Path("gold.jsonl"), "gold.csv"), Path("by_id.jsonl"))
    columns = ("column.jsonl", "text.jsonl --checklist c.json")
    for scored_and_labels in (*columns, *(f"scored.jsonl --labels {file}" for file in files)):
        run(f"agree {scored_and_labels} --bootstrap 0 --json reordered.json")
        plain, reordered = (
            {**json.loads(Path(f"{name}.json").read_text())["comparisons"][0], "one": None}
            for name in ("plain", "reordered")
        )
        assert reordered == plain


@pytest.mark.parametrize("checklist", ["Is it big? Is it red?", [{"weight": 2}]], ids=repr)
def test_labels_of_a_checklist_that_cannot_be_read_belong_to_no_question(run, checklist):
    scored()
    gold(PER_ITEM, target="text {}".format, checklist=lambda n: checklist if n == 3 else CHECKLIST)
    done = run("agree scored.jsonl --labels gold.jsonl --bootstrap 0", refused="gold.jsonl, line 4, 'checklist'")
    assert "remove the column if 'labels' follows the scored items" in done.stderr
    assert repr(checklist) in done.stderr or "question" in done.stderr
