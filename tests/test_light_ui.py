"""The wheel with the extra `ui` alone: the app starts, shows its page and a report, and judges without torch."""

import json
import signal
import subprocess

import pytest

from tests.conftest import HANG
from tests.test_light_install import installed_in
from tests.ui.files import scored_rows, write
from tests.waiting import printed, until

httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.slow

WORDS = {"question": "Is it short?", "check": {"type": "words", "at_most": 3}}


@pytest.fixture(scope="module")
def app(tmp_path_factory, fault_server):
    """A client of the app, whose judge is a server."""
    light = installed_in(tmp_path_factory.mktemp("ui"), "[ui]")
    project = light.folder / "project"
    project.mkdir()
    write(project / "scored.jsonl", scored_rows(20))
    write(project / "rows.jsonl", [{"prompt": "p", "target": "blue", "checklist": ["Is it fine (yes)?"]}])
    light.python("import importlib.util as u; assert not u.find_spec('torch') and not u.find_spec('transformers')")
    command = [light.bin / "checklist-rewards", "ui", project, "--port=0", "--no-browser", "--no-store"]
    command += ["--model=valid", f"--base-url={fault_server}"]
    environment = light.environment | {"COLUMNS": "400"}
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment) as server:
        found = printed(server, r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)")
        headers = {"x-checklist-rewards-token": found[2]}
        with httpx.Client(base_url=found[1], headers=headers, timeout=HANG, trust_env=False) as client:
            client.params = {"token": found[2]}
            yield client
        server.send_signal(signal.SIGINT)
        assert server.wait(HANG) == 0


def test_the_page_and_a_report_load(app):
    assert "app.js" in app.get("/").text and app.get("/static/app.js").status_code == 200
    report = app.get("/api/report", params={"file": "scored.jsonl"}).json()
    assert report["files"][0]["overview"]["rows"] == 20 and report["files"][0]["analysis"]["items"]


def test_a_code_check_and_a_served_judge_answer(app):
    body = {"target": "two words", "checklist": [WORDS, "Is it fine (yes)?", "Is it red (no)?"]}
    events = [json.loads(line) for line in app.post("/api/judge", json=body).text.splitlines()]
    assert [item["answer"] for item in events[-1]["score"]["items"]] == ["yes", "yes", "no"]


def test_a_job_runs(app):
    created = app.post("/api/jobs", json={"file": "rows.jsonl", "output": "out.jsonl"})
    assert created.status_code == 200, created.text
    until(lambda: app.get("/api/jobs").json()["jobs"][0]["state"] not in ("new", "running"))
    [job] = app.get("/api/jobs").json()["jobs"]
    assert (job["state"], job["summary"]["mean_score"]) == ("done", pytest.approx(0.94, abs=0.01)), job["message"]


def test_alpha_and_labels_need_nothing_else(app):
    queue = app.get("/api/annotate/queue", params={"file": "rows.jsonl", "annotator": "ann"}).json()
    assert len(queue["rows"]) == 1
    for annotator in ("ann", "bob"):
        task = app.get("/api/annotate/task", params={"file": "rows.jsonl", "annotator": annotator, "place": 0}).json()
        answer = {"row": task["id"], "item": task["items"][0]["key"], "text": task["text"], "label": "yes"}
        done = app.post("/api/annotate/answer", json={"file": "rows.jsonl", "annotator": annotator, **answer})
    assert done.status_code == 200 and "agreement" in done.json()
    assert app.post("/api/annotate/export", json={"file": "rows.jsonl"}).json()["name"] == "labels/rows.jsonl"
