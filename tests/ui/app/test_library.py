"""The library: files of the project, checked before they are written."""

import pytest


def save(client, name, text, stamp=None):
    return client.post("/api/library/file", json={"name": name, "text": text, "stamp": stamp})


FILES = {
    "checklists/polite.json": '["Is it polite?"]',
    "prompts/mine.md": "Write a checklist.\n{input}\n",
    "pipelines/mine.yaml": "name: mine\nscorer: {metric: pass}\n",
    "judges/two.yaml": "panel: {}\njudges:\n  - {model: pocket}\n",
}


def test_files_are_saved_listed_and_opened(client, folder):
    for name, text in FILES.items():
        assert save(client, name, text).status_code == 200, name
        assert (folder / name).read_text() == text
        found = client.get("/api/library/file", params={"name": name}).json()
        assert found["text"] == text
    listed = client.get("/api/library").json()
    assert sorted(name for names in listed.values() for name in names) == sorted(FILES)
    choices = client.get("/api/choices").json()
    assert choices["pipeline_files"] == ["pipelines/mine.yaml"] and choices["judge_files"] == ["judges/two.yaml"]
    body = {"target": "red", "checklist": ["Is it red?"], "settings": {"pipeline": "pipelines/mine.yaml"}}
    assert '"primary_metric":"pass"' in client.post("/api/judge", json=body).text


def test_a_file_that_somebody_else_changed_is_not_overwritten(client, folder):
    first = save(client, "prompts/a.md", "one").json()
    assert save(client, "prompts/a.md", "two", first["stamp"]).status_code == 200
    lost = save(client, "prompts/a.md", "three", first["stamp"])
    assert lost.status_code == 400 and "not the version that was opened" in lost.json()["error"]
    assert (folder / "prompts" / "a.md").read_text() == "two"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("checklists/a.json", "[]", "the checklist is empty"),
        ("checklists/a.yaml", "[]", "is not a file of the library"),
        ("scored.jsonl", "{}", "is not a file of the library"),
        ("annotations/ann.jsonl", "{}", "is not a file of the library"),
        ("prompts/../scored.md", "x", "is not the name of a file"),
        ("prompts/a.md", " ", "the prompt is empty"),
        ("pipelines/a.yaml", "name: a\nscorer: {metric: best}", "'best'"),
        ("pipelines/a.yaml", "name: a\nscorer: {prompt: /etc/passwd}", "not in the project folder"),
        ("pipelines/a.yaml", "name: a\nscorer: {allow_code: true}", "--allow-code"),
        ("pipelines/a.yaml", "[1]", "expected a mapping, got list"),
        ("judges/a.yaml", "panel: {}", "`judges` must be a list"),
        ("judges/a.yaml", "judges:\n  - {model: pocket, examples: ../../x.jsonl}", "not in the project folder"),
        (3, "x", "needs a name"),
    ],
)
def test_what_is_not_such_a_file_is_refused(client, folder, name, text, sentence):
    answer = save(client, name, text)
    assert answer.status_code in (400, 403) and sentence in answer.json()["error"]
    assert not any((folder / one).exists() for one in ("checklists", "prompts", "pipelines", "judges"))
