"""Batch: jobs are files, run as processes that outlive the app, and are paused and resumed."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from checklist_rewards.backends import Engine
from checklist_rewards.files.store import Store
from checklist_rewards.ui import app as uploads
from checklist_rewards.ui import jobs as module
from checklist_rewards.ui.jobs import Jobs
from tests.ui.app.conftest import QUESTIONS, error_of, judging_of, scored_rows
from tests.ui.files import write
from tests.waiting import until

STORE = "/nowhere/answers.sqlite"  # only passed on
REQUEST = {"file": "rows.jsonl", "output": "scored/rows.jsonl"}
CLI = """
import json, sys, time
from pathlib import Path
options = dict(one.removeprefix("--").split("=", 1) for one in sys.argv[3:] if "=" in one)
folder = Path(options["output"]).parent.parent
(folder / "seen.json").write_text(json.dumps(sys.argv[1:]))
print("reads: 3 of 10 (30%), 3.0/s, 2 s left", file=sys.stderr, flush=True)
end = time.monotonic() + 120
while not (folder / "go.json").exists():
    assert time.monotonic() < end
    time.sleep(0.02)
if (folder / "fail.json").exists():
    print(f"error: {folder}/rows.jsonl, line 2: no.", file=sys.stderr)
    sys.exit(2)
Path(options["output"]).parent.mkdir(exist_ok=True)
Path(options["output"]).write_text("{}\\n")
Path(options["summary"]).write_text(json.dumps({"rows": 5, "mean_score": 0.25, "unanswered": {}}))
"""


@pytest.fixture
def judging(folder, tmp_path, monkeypatch):
    """What an app judges with whose command waits for the file go.json."""
    script = tmp_path / "command.py"
    script.write_text(CLI)
    monkeypatch.setattr(module, "COMMAND", (sys.executable, str(script)))
    engine = Engine("pocket", "transformers", settings={"dtype": "float32", "api_key": "sk-not-to-be-saved"})
    judging = judging_of(folder, engine, store=Store(":memory:"))
    judging.store_path = STORE
    yield judging
    (folder / "go.json").write_text("{}")
    until(lambda: not Jobs(judging).running())


def job_of(client):
    [job] = client.get("/api/jobs").json()["jobs"]
    return job


def test_a_job_is_a_file_without_keys_and_runs_the_command(client, folder):
    columns = {"target": "target", "input": ["prompt"], "checklist": "--config=/etc/passwd"}
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    write(folder / "rows.jsonl", [{**row, columns["checklist"]: row["checklist"]} for row in rows])
    body = {**REQUEST, "columns": columns, "settings": {"metric": "pass"}, "budget": 2}
    created = client.post("/api/jobs", json=body | {"price": {"pocket": [0.1, 0.4]}})
    assert created.status_code == 200, created.text
    job = until(lambda: job_of(client)["done"] and job_of(client))
    assert (job["state"], job["done"], job["total"]) == ("running", 3, 10)
    assert job["judge"] == "pocket", "also if the app has another judge later"
    saved = json.loads((folder / "jobs" / f"{job['id']}.json").read_text())
    assert "sk-not" not in json.dumps([saved, job]) and saved["columns"] == columns
    seen = json.loads((folder / "seen.json").read_text())
    assert seen[:3] == ["score", str(folder / "rows.jsonl"), f"--output={folder / 'scored' / 'rows.jsonl'}"]
    assert "--checklist-key=--config=/etc/passwd" in seen and "--input-key=prompt" in seen
    assert {"--model=pocket", "--backend=transformers", f"--store={STORE}", "--budget=2.0"} <= set(seen)
    assert "--price=pocket=0.1,0.4" in seen
    assert (folder / "jobs" / ".run" / f"{job['id']}.yaml").read_text().count("metric: pass") == 1
    (folder / "go.json").write_text("{}")
    job = until(lambda: job_of(client)["state"] == "done" and job_of(client))
    assert job["summary"]["mean_score"] == 0.25
    assert client.get("/api/download", params={"file": "scored/rows.jsonl"}).text == "{}\n"
    assert "scored/rows.jsonl exists; choose another name" in error_of(client.post("/api/jobs", json=REQUEST))


def test_columns_that_the_file_lacks_are_refused_before_a_job_takes_the_name_of_the_result(client, folder):
    (folder / "answers.csv").write_text("question,answer\nWho?,a red thing\n")
    (folder / "checklists").mkdir()
    (folder / "checklists" / "own.json").write_text(json.dumps(QUESTIONS))
    request: dict = {"file": "answers.csv", "output": "scored/answers.jsonl"}
    sentence = error_of(client.post("/api/jobs", json=request))
    assert sentence.startswith("answers.csv, line 2: column 'checklist' not found")
    assert client.get("/api/jobs").json()["jobs"] == []
    request["checklist"] = "checklists/own.json"
    assert "'answer'" in client.post("/api/jobs", json=request).json()["error"]  # of the response
    request["columns"] = {"target": "answer", "input": ["question"]}
    assert client.post("/api/jobs", json=request).status_code == 200
    (folder / "go.json").write_text("{}")
    until(lambda: job_of(client)["state"] == "done")
    # Its result has these columns too, so every view reads it by them.
    row, scored = {"question": "Who?", "answer": "a red thing"}, scored_rows()[0]
    kept = {name: scored[name] for name in ("checklist", "checklist_score")}
    write(folder / request["output"], [{"id": "r1", **row, **kept}])
    asked = {"file": request["output"]}
    head = client.get("/api/report", params=asked)
    assert unquote(head.headers["x-command"]).endswith("--input-key=question --target-key=answer")
    rows = client.get("/api/report", params={**asked, "rows": head.headers["x-stamp"]}).json()
    assert {"Who?", "a red thing"} <= set(rows["texts"]) and rows["tables"][0]["rows"]["words"]["all"] == 3
    found = client.get("/api/row", params={**asked, "id": "r1"}).json()
    assert (found["input"], found["target"]) == ("Who?", "a red thing")
    task = client.get("/api/annotate/task", params={**asked, "annotator": "ann", "place": 0}).json()
    assert (task["prompt"], task["target"]) == ("Who?", "a red thing")
    body = {**asked, "annotator": "ann", "row": task["id"], "item": task["items"][0]["key"], "text": task["text"]}
    assert client.post("/api/annotate/answer", json={**body, "label": "yes"}).status_code == 200
    commands = client.post("/api/annotate/export", json=asked).json()["commands"]
    named = "--input-key=question --target-key=answer --checklist=checklists/own.json"
    assert [named in command for command in commands if " score " in command] == [True, True]


def post(client, path, **body):
    return client.post(f"/api/{path}", json=body)


@pytest.mark.usefixtures("locks")
def test_a_job_that_was_killed_or_failed_says_so_and_its_result_is_not_replaced_once_it_was_edited(client, folder):
    post(client, "jobs", **REQUEST)
    id = until(lambda: job_of(client)["done"] and job_of(client))["id"]
    assert "already running" in error_of(post(client, "jobs/resume", id=id))
    os.killpg(int((folder / "jobs" / ".run" / f"{id}.lock").read_text()), signal.SIGKILL)
    assert until(lambda: job_of(client)["state"] == "stopped" and job_of(client))["message"] is None
    assert "is not running" in error_of(post(client, "jobs/pause", id=id))
    for name in ("fail", "go"):
        (folder / f"{name}.json").write_text("{}")
    post(client, "jobs/resume", id=id)
    assert until(lambda: job_of(client)["message"]) == "rows.jsonl, line 2: no."
    (folder / "fail.json").unlink()
    for _ in range(2):  # its own result is replaced
        assert post(client, "jobs/resume", id=id).status_code == 200
        until(lambda: job_of(client)["state"] == "done")
    result = folder / "scored" / "rows.jsonl"
    result.write_text("edited\n")
    os.utime(result, (result.stat().st_mtime + 5,) * 2)
    assert "scored/rows.jsonl exists" in error_of(post(client, "jobs/resume", id=id))
    assert result.read_text() == "edited\n"


def shipped(folder, judge, **change) -> dict:
    """A job file as it may come with a project, with the judge of the app."""
    (folder / "jobs").mkdir(exist_ok=True)
    job = {**REQUEST, "created": "now", "engine": judge, "id": "a", **change}
    (folder / "jobs" / f"{Path(job['id']).name}.json").write_text(json.dumps(job))
    return job


def test_a_job_file_that_came_with_the_project_starts_nothing_else(client, folder):
    engine = {"model": "pocket", "base_url": "http://evil.example/v1"}
    for change in ({"id": "a"}, {"id": "b", "command": ["rm"]}, {"id": "../c"}):
        shipped(folder, engine, **change)
    states = {job["id"]: job["state"] for job in client.get("/api/jobs").json()["jobs"]}
    assert states == {"a": "new", "b": "invalid", "c": "invalid"}
    assert "start the app with the same judge options" in error_of(post(client, "jobs/resume", id="a"))
    for id in ("../a", "b", "c", None, "A.json"):
        assert post(client, "jobs/resume", id=id).status_code == 400
    shutil.rmtree(folder / "jobs" / ".run", ignore_errors=True)
    (folder / "jobs" / ".run").symlink_to(folder.parent)
    assert "leads out of the project folder" in error_of(post(client, "jobs", **REQUEST))
    (folder / "jobs" / ".run").unlink()


REFUSED = [
    ({"file": "hidden.jsonl"}, "leads to '.env.json', which is not opened"),
    ({"output": "inside.jsonl"}, "is or lies behind a symbolic link"),
    ({"output": "loop.jsonl"}, "leads out of the project folder"),
    ({"output": "judges/x.yaml"}, "the result must be one of .jsonl, .csv, .parquet"),
    ({"output": "Annotations/ann.jsonl"}, "this folder is for the files of annotators"),
    ({"output": "scored.jsonl"}, "scored.jsonl exists; choose another name"),
    ({"checklist": "../x.json"}, "is not the name of a file of the project folder"),
    ({"settings": {"allow_code": True}}, "'allow_code' is not a setting"),
    ({"settings": {"judge": "../judge.yaml"}}, "is not the name of a file of the project folder"),
    ({"settings": {"judge": "code.yaml"}}, "trust_remote_code"),
    ({"budget": -1}, "budget"),
]


def test_a_job_is_checked_alike_however_it_is_started(client, folder, judging):
    outside = folder.parent
    (folder / ".env.json").write_text("{}\n")
    (folder / "code.yaml").write_text("{model: pocket, engine: {trust_remote_code: true}}\n")
    links = {"hidden": ".env.json", "inside": "nothing.jsonl", "loop": "loop.jsonl"}
    for name, target in links.items():
        (folder / f"{name}.jsonl").symlink_to(folder / target)
    judge = Jobs(judging)._judge()
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for change, sentence in REFUSED:
        shipped(folder, judge, **change)
        requests = [("jobs", REQUEST | change), ("jobs/resume", {"id": "a"})]
        if "budget" not in change:
            requests += [("jobs/resume", {"id": "a", "budget": 5})]
        if "exists" not in sentence:
            requests += [("jobs/forecast", REQUEST | change)]
        for path, body in requests:
            assert sentence in error_of(post(client, path, **body)), (path, body)
    for change, sentence in (
        ({"columns": {"target": ["a"]}}, "the job: columns.target"),
        ({"command": "rm"}, "the job: command: unknown key"),
    ):
        assert sentence in error_of(post(client, "jobs", **REQUEST, **change))
    assert [path.name for path in folder.glob("jobs/*.json")] == ["a.json"] and not (folder / "seen.json").exists()
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("to", ["outside.txt", "nowhere.txt", "project/scored.jsonl", ""])
def test_no_link_among_the_files_of_a_job_is_followed(client, folder, judging, to):
    """To a file or folder outside, to nothing, or to another file of the project."""
    (folder.parent / "outside.txt").write_text("mine")
    judge = Jobs(judging)._judge()
    for name in (".run", "a.json", *(f".run/a.{kind}" for kind in ("yaml", "log", "lock", "summary.json"))):
        shutil.rmtree(folder / "jobs", ignore_errors=True)
        shipped(folder, judge)
        link = folder / "jobs" / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder.parent / to)
        before = {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file() and path != link}
        error_of(post(client, "jobs/resume", id="a"))
        assert not (folder / "seen.json").exists() and client.get("/api/jobs").status_code == 200, name
        link.unlink()
        after = {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}
        assert {path: text for path, text in after.items() if path.parent.name != ".run"} == before, name


def test_a_preview_has_the_columns_and_short_texts(client, folder):
    write(folder / "long.jsonl", [{"a": "x" * 5000}, {"a": 1, "b": None}])
    found = client.get("/api/jobs/preview", params={"file": "long.jsonl"}).json()
    assert found["columns"] == ["a", "b"] and len(found["rows"][0]["a"]) < 250 and found["rows"][1]["b"] == "null"


def upload(client, name, content):
    return client.post("/api/upload", params={"name": name}, content=content)


def test_an_upload_is_checked_before_it_appears(client, folder, monkeypatch):
    assert upload(client, "new.jsonl", b'{"a": 1}\n').json() == {"name": "uploads/new.jsonl"}
    assert (folder / "uploads" / "new.jsonl").read_text() == '{"a": 1}\n'
    assert "uploads/new.jsonl exists" in upload(client, "new.jsonl", b"{}").json()["error"]
    assert upload(client, "bad.jsonl", b'{"a": 1}\n{\n').json()["error"].startswith("bad.jsonl, line 2, column 1: ")
    assert upload(client, "bad.csv", b"a\n\xff\xfe\n").json()["error"].startswith("bad.csv, line 2, byte 1: not UTF-8")
    assert upload(client, "bad.csv", b"PK\x03\x04").json()["error"].startswith("bad.csv: a workbook or an archive")
    for name in ("../x.jsonl", "a/x.jsonl", ".env", ".x.jsonl", "x.sh", "x.json", "x.parquet", "a\\b.jsonl", None):
        assert upload(client, name, b"{}").status_code in (400, 403)
    monkeypatch.setattr(uploads, "MAX_UPLOAD", 10)
    assert upload(client, "large.jsonl", b'{"a": "0123456789"}\n').status_code == 413
    assert [path.name for path in (folder / "uploads").iterdir()] == ["new.jsonl"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_an_upload_is_in_any_encoding_that_the_commands_read(client, encoding):
    for name, content in {"a.csv": "é\n", "a.jsonl": '{"é": 1}\n'}.items():
        assert upload(client, name, content.encode(encoding)).json() == {"name": f"uploads/{name}"}


def test_an_upload_does_not_follow_a_link_out_of_the_project(client, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "uploads").symlink_to(outside)
    assert upload(client, "new.jsonl", b"{}\n").status_code == 403
    assert not list(outside.iterdir())
