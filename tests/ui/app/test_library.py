"""The library: files are checked by the package's parsers and saved atomically."""

import json

import pytest

from checklist_rewards.checklists import Checklist
from checklist_rewards.ui.library import NEW
from tests.ui.app.conftest import QUESTIONS, error_of

CHECKLIST = json.dumps({"items": QUESTIONS})
PIPELINE = "name: mine\nscorer: {mode: item, metric: pass}\n"


def save(client, name, text, stamp=None):
    return client.post("/api/library/file", json={"name": name, "text": text, "stamp": stamp})


def check(client, name, text):
    return client.post("/api/library/check", json={"name": name, "text": text}).json()


def test_files_are_listed_by_kind_with_what_they_hold(client, folder):
    assert save(client, "checklists/colours.json", CHECKLIST).status_code == 200
    assert save(client, "pipelines/mine.yaml", PIPELINE).status_code == 200
    (folder / "judges" / "bad.yaml").write_text("judges: [org/one]\n")
    kinds = client.get("/api/library").json()["kinds"]
    assert [(one["name"], one["summary"]) for one in kinds["checklists"]] == [
        ("checklists/colours.json", "2 items, 1 penalty")
    ]
    assert kinds["pipelines"][0]["summary"] == "pipeline 'mine': direct generator, checklist scorer"
    assert kinds["judges"][0]["error"].startswith("judges/bad.yaml: expected either 'panel' or 'cascade'")
    assert kinds["prompts"] == []
    assert Checklist.parse((folder / "checklists" / "colours.json").read_text()) == Checklist.parse(QUESTIONS)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("checklists/a.json", "{", "checklists/a.json"),
        ("prompts/a.md", "# User\n{question}\n{target}\n", "prompts/a.md:3: {target} comes after {question}"),
        ("pipelines/a.yaml", "scorer: {metric: best}\n", "pipelines/a.yaml: "),
        ("pipelines/a.yaml", "scorer: [\n", "pipelines/a.yaml:2: not valid YAML"),
        ("pipelines/a.yaml", "generator: {prompt: ../../secret.md}\n", "which is not in the project folder"),
        ("pipelines/a.yaml", "scorer: {allow_code: true}\n", "start the app with --allow-code"),
        ("judges/a.yaml", "panel: {}\njudges: [{modle: x}]\n", "judges/a.yaml, judge 1: unknown key 'modle'"),
        ("judges/a.yaml", "panel: {}\njudges: [{model: x, examples: /etc/passwd}]\n", "not in the project folder"),
    ],
)
def test_a_text_that_the_parser_refuses_is_not_saved(client, folder, name, text, sentence):
    assert sentence in check(client, name, text)["error"]
    found = save(client, name, text)
    assert found.status_code == 400 and sentence in found.json()["error"]
    assert str(folder) not in found.json()["error"] and not (folder / name).exists()


def test_a_new_file_begins_with_a_valid_text(client):
    endings = {"prompts": "md", "checklists": "json", "pipelines": "yaml", "judges": "yaml"}
    for kind, text in NEW.items():
        assert check(client, f"{kind}/a.{endings[kind]}", text)["error"] is None


def opened(client, name):
    return client.get("/api/library/file", params={"name": name})


def test_an_edit_elsewhere_is_not_overwritten_unless_its_version_is_sent_back(client, folder):
    """The page shows the sentence first, and replaces the file only if it sends this version back."""
    name = "pipelines/mine.yaml"
    assert save(client, name, PIPELINE).status_code == 200
    assert "exists; open it" in error_of(save(client, name, PIPELINE))
    stamp = opened(client, name).json()["stamp"]
    (folder / name).write_text("name: theirs\n")
    for seen in (stamp, None, "0" * 16):
        found = save(client, name, PIPELINE, seen)
        assert ("has changed since it was opened" in error_of(found)) == (seen is not None)
        assert found.json()["stamp"] == opened(client, name).json()["stamp"]
        assert (folder / name).read_text() == "name: theirs\n"
    saved = save(client, name, PIPELINE, found.json()["stamp"]).json()
    assert saved["text"] == (folder / name).read_text() == PIPELINE
    (folder / name).unlink()
    gone = save(client, name, PIPELINE, saved["stamp"])
    assert error_of(gone) and gone.json()["stamp"] is None
    body = {"name": "checklists/a.json", "checklist": ["Is it mine?"]}  # as the editor sends it
    assert client.post("/api/library/file", json=body).status_code == 200
    assert "mine" in (folder / "checklists" / "a.json").read_text()


@pytest.mark.parametrize(
    "name",
    ["rows.jsonl", "../a.json", "checklists/../rows.json", "checklists/a.sh", "checklists/.a.json", "a.md", None],
)
def test_other_files_are_neither_read_nor_written(client, name):
    assert error_of(opened(client, name)) and error_of(save(client, name, CHECKLIST))


def test_a_folder_that_leads_out_of_the_project_is_not_used(client, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.json").write_text(CHECKLIST)
    (folder / "checklists").symlink_to(outside)
    assert client.get("/api/library").json()["kinds"]["checklists"] == []
    assert opened(client, "checklists/a.json").status_code == 403
    assert save(client, "checklists/b.json", CHECKLIST).status_code == 403 and not (outside / "b.json").exists()


def test_a_text_that_is_too_long_or_no_utf_8_is_refused(client):
    assert "1,048,576 bytes" in error_of(save(client, "prompts/a.md", "x" * 2**20 + "y"))
    half = b'{"name": "prompts/a.md", "text": "\\ud800"}'
    assert "surrogate" in client.post("/api/library/check", content=half).json()["error"]


def imported(client, file, output, **more):
    return client.post("/api/library/import", json={"file": file, "output": output, **more})


def test_formats_of_other_projects_are_imported(client, folder):
    points = {"Names a colour.": 5, "Lies.": -3}
    rubrics = [{"criterion": criterion, "points": number, "tags": []} for criterion, number in points.items()]
    prompt = [{"role": "user", "content": "Name a colour."}]
    (folder / "hb.jsonl").write_text(json.dumps({"prompt": prompt, "rubrics": rubrics}) + "\n")
    found = imported(client, "hb.jsonl", "imported/hb.jsonl").json()
    assert (found["format"], found["rows"], found["items"]) == ("healthbench", 1, 2)
    row = json.loads((folder / "imported" / "hb.jsonl").read_text())
    assert [item["weight"] for item in Checklist.parse(row["checklist"]).model_dump()["items"]] == [5, -3]
    assert "exists; choose another name" in imported(client, "hb.jsonl", "imported/hb.jsonl").json()["error"]
    other = {"items": [{"question": "Is it red?"}], "source_method": "tick", "id": "x"}
    (folder / "auto.json").write_text(json.dumps(other))
    found = imported(client, "auto.json", "checklists/auto.json", format="autochecklist").json()
    assert (found["rows"], found["items"]) == (None, 1)
    assert client.get("/api/library").json()["kinds"]["checklists"][0]["name"] == "checklists/auto.json"


def test_an_import_that_fails_writes_nothing(client, folder):
    row = {"prompt": "x", "rubrics": [{"criterion": "a", "points": "b"}]}
    (folder / "bad.jsonl").write_text(json.dumps(row) + "\n")
    sentence = error_of(imported(client, "bad.jsonl", "imported/bad.jsonl", format="healthbench"))
    assert "bad.jsonl, line 1" in sentence and str(folder) not in sentence
    assert not (folder / "imported" / "bad.jsonl").exists()
    for output in ("a.json", "../a.jsonl"):
        assert error_of(imported(client, "bad.jsonl", output))
