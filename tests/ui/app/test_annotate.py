"""Annotations: the queue is blind, answers are plain lines, and the labels file feeds the other commands."""

import json

import krippendorff
import pytest

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
from checklist_rewards.ui.annotations import Evidence, annotators, label_sample, ordered, read_tasks
from checklist_rewards.ui.project import Project
from tests.cli.test_output_full_disk import no_file_over
from tests.fakes import FakeBackend
from tests.ui.app.conftest import QUESTIONS, TEXTS, colours, scored_rows, write_jsonl

FILE = {"file": "scored.jsonl"}


def answer(client, place, item, label, annotator="ann", **more):
    task = client.get("/api/annotate/task", params={**FILE, "annotator": annotator, "place": place}).json()
    body = {
        **FILE,
        "annotator": annotator,
        "row": task["id"],
        "item": task["items"][item]["key"],
        "text": task["text"],
    }
    return client.post("/api/annotate/answer", json={**body, "label": label, **more})


def test_a_task_shows_neither_the_judge_nor_others(client):
    answer(client, 0, 0, "yes", "bob", note="bob's note")
    task = client.get("/api/annotate/task", params={**FILE, "annotator": "ann", "place": 0})
    assert task.json() == {
        "id": "r1",
        "prompt": "Name a colour.",
        "target": "a red thing",
        "text": task.json()["text"],
        "items": [
            {
                "key": item.id,
                "question": item.question,
                "category": None,
                "labels": ["yes", "no"],
                "abstention": "cannot_assess",
                "yes_no": True,
            }
            for item in Checklist.parse(QUESTIONS).items
        ],
        "mine": {},
    }
    queue = client.get("/api/annotate/queue", params={**FILE, "annotator": "ann"}).text
    assert "note" not in queue and "probabilities" not in queue


def test_answers_are_lines_of_a_file_and_the_last_one_counts(client, folder):
    answer(client, 0, 0, "yes")
    answer(client, 0, 0, "no", note="it is not", spans=[{"start": 2, "end": 5}])
    answer(client, 0, 1, "yes")
    progress = answer(client, 0, 1, None).json()
    assert progress["annotators"] == [{"name": "ann", "answered": 1, "rows": 1, "outdated": 0}]
    lines = [json.loads(line) for line in (folder / "annotations" / "ann.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == ["yes", "no", "yes", None]
    assert lines[1]["row"] == "r1" and lines[1]["question"] == "Is it red?" and lines[1]["file"] == "scored.jsonl"
    assert lines[1]["spans"] == [{"start": 2, "end": 5, "text": "red"}]
    task = client.get("/api/annotate/task", params={**FILE, "annotator": "ann", "place": 0}).json()
    assert [mine["label"] for mine in task["mine"].values()] == ["no"]


def test_a_line_that_a_crash_cut_off_is_skipped_and_the_next_is_whole(client, folder, caplog):
    answer(client, 0, 0, "yes")
    path = folder / "annotations" / "ann.jsonl"
    with path.open("a") as file:
        file.write('{"file": "scored.jsonl", "row": "r1", "lab')
    assert answer(client, 1, 0, "no").json()["annotators"][0]["answered"] == 2
    assert len(path.read_text().splitlines()) == 3
    answer(client, 1, 1, "no")
    assert [record.message for record in caplog.records if "line 2" in record.message] == [
        f"{path}, line 2: not valid JSON, so this answer is not used."
    ]


def test_an_answer_that_the_disk_does_not_take_is_not_refused_but_may_be_sent_again(client, folder):
    answer(client, 0, 0, "yes")
    with no_file_over((folder / "annotations" / "ann.jsonl").stat().st_size + 20):
        failed = answer(client, 0, 1, "yes")
    assert failed.status_code == 507 and "ann.jsonl: the answer cannot be written" in failed.json()["error"]
    sent = answer(client, 0, 1, "yes").json()["annotators"]
    assert [person["answered"] for person in sent] == [2]


def test_a_damaged_line_leaves_the_earlier_answer(client, folder):
    answer(client, 0, 0, "yes")
    path = folder / "annotations" / "ann.jsonl"
    damaged = json.loads(path.read_text()) | {"label": 3}
    path.write_text(path.read_text() + json.dumps(damaged) + "\n")
    assert answer(client, 1, 0, "no").json()["annotators"][0]["answered"] == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"label": "maybe"}, "'maybe' is not an answer to 'Is it red?'; allowed: yes, no, cannot_assess."),
        ({"item": "none"}, "row 'r1' has no item none."),
        ({"text": "old"}, "row 'r1' of scored.jsonl has changed since it was shown; reload the page."),
        ({"row": "r9"}, "scored.jsonl has no row 'r9'."),
        ({"spans": [{"start": 0, "end": 99}]}, "is not a part of the response"),
        ({"spans": [{"start": True, "end": 2}]}, "is not a part of the response"),
        ({"note": 3}, "a note must be a text"),
        ({"annotator": "../ann"}, "is not a name for an annotator"),
        ({"annotator": ""}, "is not a name for an annotator"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_sentence(client, folder, change, sentence):
    task = client.get("/api/annotate/task", params={**FILE, "annotator": "ann", "place": 0}).json()
    body = {
        **FILE,
        "annotator": "ann",
        "row": "r1",
        "item": task["items"][0]["key"],
        "text": task["text"],
        "label": "yes",
    }
    found = client.post("/api/annotate/answer", json=body | change)
    assert found.status_code == 400 and sentence in found.json()["error"].replace("'none'", "none")
    assert not (folder / "annotations").exists()


def test_answers_about_another_text_are_not_used(client, folder):
    answer(client, 0, 0, "yes")
    answer(client, 1, 0, "yes")
    rows = scored_rows()
    rows[0]["target"] = "something else"
    write_jsonl(folder / "scored.jsonl", rows)
    tasks = read_tasks(folder / "scored.jsonl")
    [ann] = annotators(Project.at(folder), "scored.jsonl", tasks)
    assert [row for row, _ in ann.answers] == ["r2"] and ann.outdated == 1


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


def test_orders(folder):
    tasks = read_tasks(folder / "scored.jsonl")
    first = ordered(tasks, "random", 1)
    assert sorted(first) == [0, 1, 2, 3, 4] and first == ordered(tasks, "random", 1) != ordered(tasks, "random", 2)
    assert ordered(tasks, "uncertain", 0)[0] == 1  # "red and blue"
    write_jsonl(
        folder / "other.jsonl",
        scored_rows(lambda prefix, tail: 1 - colours(prefix, tail) if "grey" in prefix else colours(prefix, tail)),
    )
    assert ordered(tasks, "differ", 0, read_tasks(folder / "other.jsonl"))[0] == 2


def test_the_order_is_that_of_the_margins_and_of_the_differences(folder):
    """On files of a scorer: margins from the file's own threshold, flips between files, and votes of a panel."""

    def rows_of(**options):
        scores = ChecklistScorer(store=False, **options).score_batch([Sample(QUESTIONS, t, "p") for t in TEXTS])
        return [
            row | {"checklist_score": one.model_dump(mode="json")}
            for row, one in zip(scored_rows(), scores, strict=True)
        ]

    def tasks(**options):
        write_jsonl(folder / "other.jsonl", rows_of(**options))
        return read_tasks(folder / "other.jsonl")

    def swapped(prefix, tail):
        return 1 - colours(prefix, tail) if "blue" in prefix else colours(prefix, tail)

    def certainties(order, found, threshold):
        return [
            min(abs(line.probabilities["yes"] - threshold) for line in found[place].score.items) for place in order
        ]

    for threshold in (0.6, 0.95):
        found = tasks(backend=FakeBackend(colours), threshold=threshold)
        margins = certainties(ordered(found, "uncertain", 3), found, threshold)
        assert margins == sorted(margins) and margins[0] < margins[-1]
    assert ordered(found, "uncertain", 0)[-1] != 1  # "red and blue", P(yes) 0.55, is far from 0.95
    one, other = tasks(backend=FakeBackend(colours)), tasks(backend=FakeBackend(swapped))
    flips = [
        sum(a.answer != b.answer for a, b in zip(x.score.items, y.score.items, strict=True))
        for x, y in zip(one, other, strict=True)
    ]
    assert [flips[place] for place in ordered(one, "differ", 0, other)] == sorted(flips, reverse=True) != [0] * 5
    panel = PanelJudge([LogprobJudge(Engine(n, FakeBackend(r))) for n, r in (("a", colours), ("b", swapped))])
    voted = tasks(judge=panel)
    assert [flips[place] for place in ordered(voted, "differ", 0)] == sorted(flips, reverse=True)


def test_an_order_that_needs_scores_says_so(client):
    for order, file, sentence in (
        ("uncertain", "rows.jsonl", "requires a scored file"),
        ("differ", "scored.jsonl", "requires a second scored file"),
        ("best", "scored.jsonl", "allowed: random, sample, uncertain, differ"),
    ):
        found = client.get("/api/annotate/queue", params={"file": file, "annotator": "ann", "order": order})
        assert found.status_code == 400 and sentence in found.json()["error"]


def test_rows_without_scores_are_annotated_too(client):
    queue = client.get("/api/annotate/queue", params={"file": "rows.jsonl", "annotator": "ann"}).json()
    assert queue["items"] == 10 and sorted(row["id"] for row in queue["rows"]) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("scored", [True, False], ids=["scored", "rows"])
def test_images_of_prompt_and_response_are_shown_and_their_labels_are_no_training_data(client, folder, scored):
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (8, 8), "red").save(folder / "red.png")
    parts = [{"type": "text", "text": "See "}, {"type": "image", "image": "red.png"}, {"type": "text", "text": "."}]
    [row, *_] = scored_rows()
    row |= {"image": "red.png", "target": [{"role": "assistant", "content": parts}]}
    if not scored:
        del row["checklist_score"]
    write_jsonl(folder / "seen.jsonl", [row])
    about = {"file": "seen.jsonl", "annotator": "ann", "place": 0}
    task = client.get("/api/annotate/task", params=about).json()
    assert (task["prompt"], task["target"]) == ("[image]Name a colour.", "See [image].")
    prompt, response = task["images"]
    assert prompt.startswith("data:image/jpeg;base64,") and "must be a data URL; got 'red.png'" in response
    body = {**about, "row": task["id"], "item": task["items"][0]["key"], "text": task["text"], "label": "yes"}
    assert client.post("/api/annotate/answer", json=body).status_code == 200
    done = client.post("/api/annotate/export", json={"file": "seen.jsonl"}).json()
    assert [command.split()[1] for command in done["commands"]][-2:] in (
        ["calibrate", "score"],
        ["agree", "calibrate"],
    )
    with pytest.raises(SampleError, match="logged without a path"):
        read_labels(folder / done["name"])
    if scored:
        Labels(folder / done["name"]).of(read_scored(folder / "seen.jsonl"))  # what agree compares
    row["image"] = "blue.png"
    write_jsonl(folder / "seen.jsonl", [row])
    assert client.get("/api/annotate/task", params=about).json()["mine"] == {}, "about another image"


def test_the_labels_file_is_that_of_a_majority(client, folder):
    for name, labels in {
        "ann": ["yes", "no", "yes"],
        "bob": ["yes", "no", "no"],
        "cy": ["no", "cannot_assess", None],
    }.items():
        for place, label in enumerate(labels):
            answer(client, place, 0, label, name, note=f"{name} says {label}")
    done = client.post("/api/annotate/export", json=FILE).json()
    assert done.pop("commands")[0] == "checklist-rewards agree scored.jsonl --labels labels/scored.jsonl"
    assert done == {
        "name": "labels/scored.jsonl",
        "rows": 2,
        "labels": 2,
        "ties": 1,
        "cannot_assess": 1,
        "sampled": 0,
        "annotators": ["ann", "bob", "cy"],
    }
    rows = [json.loads(line) for line in (folder / "labels" / "scored.jsonl").read_text().splitlines()]
    assert [(row["id"], row["labels"], row["reasons"]) for row in rows] == [
        ("r1", ["yes", None], ["ann says yes", None]),
        ("r2", ["no", None], ["ann says no", None]),
    ]
    path = folder / "labels" / "scored.jsonl"
    assert [(pair.target, pair.question, pair.label) for pair in read_labels(path)] == [
        (TEXTS[0], "Is it red?", 1.0),
        (TEXTS[1], "Is it red?", 0.0),
    ]
    examples = FewShot.load(path, reasons=True).examples
    assert [(one.target, one.label, one.reason) for one in examples] == [
        (TEXTS[0], "yes", "ann says yes"),
        (TEXTS[1], "no", "ann says no"),
    ]


def labelled(client, file, label):
    """Answer the first item of every row of a file, and export the labels; gives the export."""
    queue = client.get("/api/annotate/queue", params={"file": file, "annotator": "ann"}).json()
    for place in range(len(queue["rows"])):
        task = client.get("/api/annotate/task", params={"file": file, "annotator": "ann", "place": place}).json()
        body = {"file": file, "annotator": "ann", "row": task["id"], "item": task["items"][0]["key"]}
        assert client.post("/api/annotate/answer", json=body | {"text": task["text"], "label": label}).is_success
    return client.post("/api/annotate/export", json={"file": file}).json()


def trust_of(client, file):
    """The labels of the first item that the report of a file compares with, as (yes, no)."""
    trust = client.get("/api/report", params={"file": file}).json()["trust"]
    if not trust:
        return None
    [found] = trust.values()
    table = found["comparison"]["items"]["yes/no"]["confusion"]
    return tuple(map(sum, zip(*table, strict=True)))


PLACES = [("a/scored.jsonl", "b/scored.jsonl"), ("scored.jsonl", "a/scored.jsonl"), ("a/scored.jsonl", "a/scored.csv")]


@pytest.mark.parametrize("texts", ["the same", "other"])
@pytest.mark.parametrize("files", PLACES, ids=str)
def test_every_file_has_its_own_labels(client, folder, files, texts):
    rows = scored_rows()
    for number, file in enumerate(files):
        (folder / file).parent.mkdir(exist_ok=True)
        more = " again" if number and texts == "other" else ""
        with write_rows(folder / file) as output:
            for row in rows:
                output.write(row | {"target": row["target"] + more})
    first, second = files
    name = labelled(client, first, "yes")["name"]
    kept = (folder / name).read_bytes()
    assert trust_of(client, first) == (5, 0)
    assert trust_of(client, second) == ((5, 0) if texts == "the same" else None)  # labels belong to texts
    assert labelled(client, second, "no")["name"] != name
    assert (folder / name).read_bytes() == kept
    assert trust_of(client, first) == (5, 0) and trust_of(client, second) == (0, 5)


@pytest.mark.parametrize("with_texts", [True, False])
def test_labels_that_an_earlier_version_exported_are_used_for_their_texts(client, folder, with_texts):
    rows = scored_rows()
    for name, more in (("a", ""), ("b", " again")):
        (folder / name).mkdir()
        write_jsonl(folder / name / "scored.jsonl", [row | {"target": row["target"] + more} for row in rows])
    old = [{"id": row["id"], "labels": ["yes", None]} for row in rows]
    texts = [{"target": row["target"]} if with_texts else {} for row in rows]
    (folder / "labels").mkdir()
    write_jsonl(folder / "labels" / "scored.jsonl", [one | text for one, text in zip(old, texts, strict=True)])
    # Without texts, nothing tells whether the labels are of a, of b or of the file at the top.
    assert trust_of(client, "a/scored.jsonl") == ((5, 0) if with_texts else None)
    assert trust_of(client, "b/scored.jsonl") is None


def test_there_is_nothing_to_export_at_first(client):
    found = client.post("/api/annotate/export", json=FILE)
    assert found.status_code == 400 and "no labels to export" in found.json()["error"]


def test_labels_in_the_order_of_the_sample_get_their_probabilities(client, folder):
    tasks = read_tasks(folder / "scored.jsonl")
    order = ordered(tasks, "sample", 4)
    assert sorted(order) == [0, 1, 2, 3, 4]
    for place in (*order[:2], order[3]):  # the third one is left open
        for item in range(len(tasks[place].items)):
            answer(client, place, item, "yes")
    done = client.post("/api/annotate/export", json={**FILE, "order": "sample", "seed": "4"}).json()
    assert (done["rows"], done["sampled"]) == (3, 2)
    rows = [json.loads(line) for line in (folder / "labels" / "scored.jsonl").read_text().splitlines()]
    chances = {row["id"]: row["label_probability"] for row in rows}
    expected = label_sample(tasks, 4).probabilities(2)
    assert chances == {tasks[place].id: expected.get(place) for place in (*order[:2], order[3])}
    assert chances[tasks[order[3]].id] is None


def test_a_line_that_a_crash_cut_off_is_no_evidence_and_stops_no_report(tmp_path, caplog):
    path = tmp_path / "annotations" / "ann.jsonl"
    path.parent.mkdir()
    span = {"start": 0, "end": 3, "text": "red"}
    line = {"file": "s.jsonl", "row": "1", "item": "a", "label": "yes", "spans": [span]}
    path.write_text(json.dumps(line) + '\n{"file": "s.js')
    found = Evidence([path]).of(tmp_path / "s.jsonl")
    assert found == {("1", "a"): [{"by": "ann", "label": "yes", **span}]}
    assert "ann.jsonl, line 2: not valid JSON" in caplog.text
