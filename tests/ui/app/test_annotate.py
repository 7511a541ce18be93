"""Annotations: the queue is blind, answers are plain lines, and the labels file feeds the other commands."""

import json

import krippendorff
import pytest
from PIL import Image as pillow

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist
from checklist_rewards.distill.labels import read_labels
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.labels import Labels
from checklist_rewards.evaluation.scored import read_scored
from checklist_rewards.files.rows import write_rows
from checklist_rewards.judges import LogprobJudge, PanelJudge
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.ui.annotations import annotators, label_sample, ordered, quoted, read_tasks
from checklist_rewards.ui.project import Project
from tests.cli.test_output_full_disk import no_file_over
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl
from tests.ui.app.conftest import QUESTIONS, TEXTS, colours, error_of, scored_rows
from tests.ui.files import write

FILE = {"file": "scored.jsonl"}


def shown(client, place=0, annotator="ann", file="scored.jsonl") -> dict:
    """A task, as the page shows it to an annotator."""
    asked = {"file": file, "annotator": annotator, "place": place}
    return client.get("/api/annotate/task", params=asked).json()


def answer(client, place, item, label, annotator="ann", file="scored.jsonl", **more):
    task = shown(client, place, annotator, file)
    about = {"file": file, "annotator": annotator, "row": task["id"], "text": task["text"]}
    body = {**about, "item": task["items"][item]["key"], "label": label, **more}
    return client.post("/api/annotate/answer", json=body)


def queue(client, file="scored.jsonl", **more):
    return client.get("/api/annotate/queue", params={"file": file, "annotator": "ann", **more})


def test_a_task_shows_neither_the_judge_nor_others(client):
    answer(client, 0, 0, "yes", "bob", note="bob's note")
    task = shown(client)
    answers = {"labels": ["yes", "no"], "abstention": "cannot_assess", "yes_no": True}
    items = Checklist.parse(QUESTIONS).items
    expected = [{"key": item.id, "question": item.question, "category": None, **answers} for item in items]
    assert task.pop("text") and task.pop("items") == expected
    assert task == {"id": "r1", "prompt": "Name a colour.", "target": "a red thing", "mine": {}}
    assert "note" not in queue(client).text and "probabilities" not in queue(client).text
    rows = queue(client, "rows.jsonl").json()  # without scores
    assert rows["items"] == 10 and sorted(row["id"] for row in rows["rows"]) == ["1", "2", "3", "4", "5"]


@pytest.mark.usefixtures("locks")
def test_answers_are_lines_of_a_file_and_the_last_one_counts(client, folder):
    answer(client, 0, 0, "yes")
    answer(client, 0, 0, "no", note="it is not", spans=[{"start": 2, "end": 5}])
    answer(client, 0, 1, "yes")
    progress = answer(client, 0, 1, None).json()
    assert progress["annotators"] == [{"name": "ann", "answered": 1, "rows": 1, "outdated": 0}]
    lines = read_jsonl(folder / "annotations" / "ann.jsonl")
    assert [line["label"] for line in lines] == ["yes", "no", "yes", None]
    assert lines[1]["row"] == "r1" and lines[1]["question"] == "Is it red?" and lines[1]["file"] == "scored.jsonl"
    assert lines[1]["spans"] == [{"start": 2, "end": 5, "text": "red"}]
    assert [mine["label"] for mine in shown(client)["mine"].values()] == ["no"]


def test_of_lines_that_a_crash_cut_off_or_somebody_edited_the_others_are_used(client, folder, caplog):
    answer(client, 0, 0, "yes")
    path = folder / "annotations" / "ann.jsonl"
    damaged = json.loads(path.read_text()) | {"label": 3}
    with path.open("a") as file:
        file.write(json.dumps(damaged) + '\n{"file": "scored.jsonl", "row": "r1", "lab')
    assert answer(client, 1, 0, "no").json()["annotators"][0]["answered"] == 2
    assert len(path.read_text().splitlines()) == 4
    answer(client, 1, 1, "no")
    assert [record.message for record in caplog.records if "line 3" in record.message] == [
        f"{path}, line 3: not valid JSON, so this answer is not used."
    ]


def test_an_answer_that_the_disk_does_not_take_is_not_refused_but_may_be_sent_again(client, folder):
    answer(client, 0, 0, "yes")
    with no_file_over((folder / "annotations" / "ann.jsonl").stat().st_size + 20):
        failed = answer(client, 0, 1, "yes")
    assert failed.status_code == 507 and "ann.jsonl: the answer cannot be written" in failed.json()["error"]
    sent = answer(client, 0, 1, "yes").json()["annotators"]
    assert [person["answered"] for person in sent] == [2]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"label": "maybe"}, "'maybe' is not an answer to 'Is it red?'; allowed: yes, no, cannot_assess."),
        ({"item": "none"}, "row 'r1' has no item 'none'."),
        ({"text": "old"}, "row 'r1' of scored.jsonl has changed since it was shown; reload the page."),
        ({"question": "Is it green?"}, "row 'r1' of scored.jsonl has changed since it was shown; reload the page."),
        ({"row": "r9"}, "scored.jsonl has no row 'r9'."),
        ({"spans": [{"start": 0, "end": 99}]}, "is not a part of the response"),
        ({"note": 3}, "a note must be a text"),
        ({"spans": [{"start": True, "end": 2}]}, "is not a part of the response"),
        ({"annotator": ""}, "is not a name for an annotator"),
        ({"annotator": "../ann"}, "is not a name for an annotator"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_sentence(client, folder, change, sentence):
    change = {"annotator": "ann", **change}
    task = shown(client)
    body = {**FILE, "row": "r1", "item": task["items"][0]["key"], "text": task["text"], "label": "yes"}
    found = client.post("/api/annotate/answer", json=body | change)
    assert sentence in error_of(found)
    assert not (folder / "annotations").exists()


@pytest.mark.parametrize(
    "change", [{"target": "something else"}, {"checklist": [{"id": "red", "question": "Is it not red?"}]}]
)
def test_answers_about_another_text_or_question_are_not_used(client, folder, change):
    rows = [
        {"id": f"r{n}", "target": text, "checklist": [{"id": "red", "question": "Is it red?"}]}
        for n, text in enumerate(TEXTS)
    ]
    write(folder / "rows.jsonl", rows)
    answer(client, 0, 0, "yes", file="rows.jsonl")
    answer(client, 1, 0, "yes", file="rows.jsonl")
    write(folder / "rows.jsonl", [rows[0] | change, *rows[1:]])
    line = {"file": "rows.jsonl", "row": "gone", "item": "red", "label": "yes", "spans": []}
    (folder / "annotations" / "other.jsonl").write_text(json.dumps(line))
    tasks = read_tasks(folder / "rows.jsonl")
    ann, other = annotators(Project.at(folder), "rows.jsonl", tasks)
    assert [row for row, _ in ann.answers] == ["r1"] and ann.outdated == other.outdated == 1
    assert shown(client, file="rows.jsonl")["mine"] == {}


def test_two_windows_of_an_annotator_keep_what_the_other_has_changed(client, folder):
    task = shown(client)
    about = {**FILE, "annotator": "ann", "row": "r1", "item": task["items"][0]["key"], "text": task["text"]}
    for change in (
        {"label": "yes"},
        {"note": "sure"},
        {"spans": [{"start": 2, "end": 5}]},
        {"label": "no"},
        {"note": "sure"},
    ):
        assert client.post("/api/annotate/answer", json=about | change).is_success
    [mine] = shown(client)["mine"].values()
    assert mine == {"label": "no", "note": "sure", "spans": [{"start": 2, "end": 5, "text": "red"}]}
    assert len(read_jsonl(folder / "annotations" / "ann.jsonl")) == 4


def test_alpha_is_krippendorffs(client):
    given = {
        "ann": ["yes", "no", "no", "yes", "yes"],
        "bob": ["yes", "yes", "no", "yes", None],
        "cy": ["no", None, "no", "yes", "cannot_assess"],
    }
    for name, labels in given.items():
        for place, label in enumerate(labels):
            if label is not None:
                progress = answer(client, place, 0, label, name).json()
    codes = [[{"yes": 1.0, "no": 0.0}.get(label, float("nan")) for label in labels] for labels in given.values()]
    section = progress["agreement"]["yes/no"]
    assert section["figures"]["alpha"]["value"] == pytest.approx(
        krippendorff.alpha(codes, level_of_measurement="nominal")
    )
    assert section["units"] == 4


def test_the_order_is_random_or_that_of_the_margins_and_of_the_differences(folder):
    """On files of a scorer: margins from the file's own threshold, flips between files, and votes of a panel."""

    def tasks(**options):
        scores = ChecklistScorer(store=False, **options).score_batch([Sample(QUESTIONS, t, "p") for t in TEXTS])
        scored = [score.model_dump(mode="json") for score in scores]
        rows = [row | {"checklist_score": one} for row, one in zip(scored_rows(), scored, strict=True)]
        write(folder / "other.jsonl", rows)
        return read_tasks(folder / "other.jsonl")

    def swapped(prefix, tail):
        return 1 - colours(prefix, tail) if "blue" in prefix else colours(prefix, tail)

    found = tasks(backend=FakeBackend(colours))
    first = ordered(found, "random", 1)
    assert sorted(first) == [0, 1, 2, 3, 4] and first == ordered(found, "random", 1) != ordered(found, "random", 2)
    # P(yes) of "red and blue" is 0.55: near the threshold 0.6, and far from 0.95, as only the 0.1 of "grey" is more.
    assert ordered(found, "uncertain", 3)[0] == 1
    assert ordered(tasks(backend=FakeBackend(colours), threshold=0.95), "uncertain", 3)[-2:] == [1, 2]
    other = tasks(backend=FakeBackend(swapped))
    flips = [
        sum(a.answer != b.answer for a, b in zip(x.score.items, y.score.items, strict=True))
        for x, y in zip(found, other, strict=True)
    ]
    panel = PanelJudge([LogprobJudge(Engine(n, FakeBackend(r))) for n, r in (("a", colours), ("b", swapped))])
    for places in (ordered(found, "differ", 0, other), ordered(tasks(judge=panel), "differ", 0)):
        assert [flips[place] for place in places] == sorted(flips, reverse=True) != [0] * 5


def test_an_order_that_needs_scores_says_so(client):
    for order, file, sentence in (
        ("uncertain", "rows.jsonl", "requires a scored file"),
        ("differ", "scored.jsonl", "requires a second scored file"),
        ("best", "scored.jsonl", "allowed: random, sample, uncertain, differ"),
    ):
        assert sentence in error_of(queue(client, file, order=order))
    assert "no labels to export" in error_of(client.post("/api/annotate/export", json=FILE))


@pytest.mark.parametrize("scored", [True, False], ids=["scored", "rows"])
def test_images_of_prompt_and_response_are_shown_and_their_labels_are_no_training_data(client, folder, scored):
    pillow.new("RGB", (8, 8), "red").save(folder / "red.png")
    parts = [{"type": "text", "text": "See "}, {"type": "image", "image": "red.png"}, {"type": "text", "text": "."}]
    [row, *_] = scored_rows()
    row |= {"image": "red.png", "target": [{"role": "assistant", "content": parts}]}
    if not scored:
        del row["checklist_score"]
    write(folder / "seen.jsonl", [row])
    task = shown(client, file="seen.jsonl")
    assert (task["prompt"], task["target"]) == ("[image]Name a colour.", "See [image].")
    prompt, response = task["images"]
    assert prompt.startswith("data:image/jpeg;base64,") and "must be a data URL; got 'red.png'" in response
    assert answer(client, 0, 0, "yes", file="seen.jsonl").status_code == 200
    done = client.post("/api/annotate/export", json={"file": "seen.jsonl"}).json()
    commands = [command.split()[1] for command in done["commands"]][-2:]
    assert commands == ["calibrate", "score"]
    with pytest.raises(SampleError, match="logged without a path"):
        read_labels(folder / done["name"])
    if scored:
        Labels(folder / done["name"]).of(read_scored(folder / "seen.jsonl"))  # what agree compares
    write(folder / "seen.jsonl", [row | {"image": "blue.png"}])
    assert shown(client, file="seen.jsonl")["mine"] == {}, "about another image"


def test_the_labels_file_is_that_of_a_majority(client, folder):
    given = {"ann": ["no", "cannot_assess", None], "bob": ["yes", "no", "no"], "cy": ["yes", "no", "yes"]}
    for name, labels in given.items():
        for place, label in enumerate(labels):
            answer(client, place, 0, label, name, note=f"{name} says {label}")
    done = client.post("/api/annotate/export", json=FILE).json()
    assert done.pop("commands")[0] == "checklist-rewards agree scored.jsonl --labels labels/scored.jsonl"
    counts = {"rows": 2, "labels": 2, "ties": 1, "cannot_assess": 1, "sampled": 0}
    assert done == {"name": "labels/scored.jsonl", **counts, "annotators": ["ann", "bob", "cy"]}
    path = folder / "labels" / "scored.jsonl"
    assert [(row["id"], row["labels"], row["reasons"]) for row in read_jsonl(path)] == [
        ("r1", ["yes", None], ["bob says yes", None]),
        ("r2", ["no", None], ["bob says no", None]),
    ]
    pairs = [(pair.target, pair.question, pair.label) for pair in read_labels(path)]
    assert pairs == [(TEXTS[0], "Is it red?", 1.0), (TEXTS[1], "Is it red?", 0.0)]
    examples = [(one.target, one.label, one.reason) for one in FewShot.load(path, reasons=True).examples]
    assert examples == [(TEXTS[0], "yes", "bob says yes"), (TEXTS[1], "no", "bob says no")]


def labelled(client, file, label):
    """Answer the first item of every row of a file, and export the labels; gives the export."""
    for place in range(len(queue(client, file).json()["rows"])):
        assert answer(client, place, 0, label, file=file).is_success
    return client.post("/api/annotate/export", json={"file": file}).json()


def trust_of(client, file):
    """The labels of the first item that the report of a file compares with, as (yes, no)."""
    trust = client.get("/api/report", params={"file": file}).json()["trust"]
    if not trust:
        return None
    [found] = trust.values()
    table = found["comparison"]["items"]["yes/no"]["confusion"]
    return tuple(map(sum, zip(*table, strict=True)))


@pytest.mark.parametrize(
    ("files", "more"), [(("a/scored.jsonl", "b/scored.jsonl"), " again"), (("a/scored.jsonl", "a/scored.csv"), "")]
)
def test_every_file_has_its_own_labels(client, folder, files, more):
    first, second = files
    for file, added in ((first, ""), (second, more)):
        (folder / file).parent.mkdir(exist_ok=True)
        with write_rows(folder / file) as output:
            for row in scored_rows():
                output.write(row | {"target": row["target"] + added})
    name = labelled(client, first, "yes")["name"]
    kept = (folder / name).read_bytes()
    assert trust_of(client, first) == (5, 0)
    assert trust_of(client, second) == (None if more else (5, 0))  # labels belong to texts
    assert labelled(client, second, "no")["name"] != name
    assert (folder / name).read_bytes() == kept
    assert trust_of(client, first) == (5, 0) and trust_of(client, second) == (0, 5)


def test_labels_that_an_earlier_version_exported_are_used_for_their_texts(client, folder):
    rows = scored_rows()
    for name, more in (("a", ""), ("b", " again")):
        write(folder / name / "scored.jsonl", [row | {"target": row["target"] + more} for row in rows])
    old = [{"id": row["id"], "target": row["target"], "labels": ["yes", None]} for row in rows]
    write(folder / "labels" / "scored.jsonl", old)
    assert trust_of(client, "a/scored.jsonl") == (5, 0)
    assert trust_of(client, "b/scored.jsonl") is None


def test_labels_in_the_order_of_the_sample_get_their_probabilities(client, folder):
    tasks = read_tasks(folder / "scored.jsonl")
    order = ordered(tasks, "sample", 4)
    assert sorted(order) == [0, 1, 2, 3, 4]
    for place in (*order[:2], order[3]):  # the third one is left open
        for item in range(len(tasks[place].items)):
            answer(client, place, item, "yes")
    done = client.post("/api/annotate/export", json={**FILE, "order": "sample", "seed": "4"}).json()
    assert (done["rows"], done["sampled"]) == (3, 2)
    chances = {row["id"]: row["label_probability"] for row in read_jsonl(folder / "labels" / "scored.jsonl")}
    expected = label_sample(tasks, 4).probabilities(2)
    assert chances == {tasks[place].id: expected.get(place) for place in (*order[:2], order[3])}
    assert chances[tasks[order[3]].id] is None


@pytest.mark.parametrize(
    ("text", "reasoning", "quotes"),
    [
        ("a red thing, 3.5", 'It says "red", so "yes"; not "thin" or "3".', ["red"]),
        ("春天来了，花开了", "它说「春天」和“花开”。", ["春天", "花开"]),
        ("ฤดูใบไม้ผลิสวยงาม", 'มีคำว่า "ใบไม้"', ["ใบไม้"]),
        ("한국은 좋다", "'한국'이라고 했다", ["한국"]),
        ("Der Frühling ist da", "„Frühling“ und »ist«", ["Frühling", "ist"]),
    ],
)
def test_quotes_are_found_in_every_script(text, reasoning, quotes):
    assert [text[span["start"] : span["end"]] for span in quoted(text, [reasoning], ["yes", "no"])] == quotes
