"""Jobs: the rows that `score` writes, pause and resume through the store, and a restart of the app."""

import json
import threading
import time

import pytest

from checklist_rewards.backends import Engine
from checklist_rewards.files.rows import read_rows
from checklist_rewards.files.store import Store
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui import batch as jobs
from checklist_rewards.ui.batch import Batch
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.ui.app.conftest import colours, scored_rows

VALUES = {"name": "one", "file": "rows.jsonl", "target": "target", "prompt": "prompt", "checklist": "checklist"}


def until(batch, status):
    end = time.monotonic() + HANG
    while (job := batch.read("one")).status != status or "one" in batch._running:
        assert job.status in ("running", status), job.error
        assert time.monotonic() < end
        time.sleep(0.01)
    return job


def test_a_job_writes_the_rows_of_score(client, folder):
    found = client.get("/api/batch/columns", params={"file": "rows.jsonl"}).json()
    assert found == {
        "columns": ["prompt", "target", "checklist"],
        "prompt": "prompt",
        "target": "target",
        "checklist": "checklist",
    }
    dry = client.post("/api/batch/dry", json=VALUES).json()
    assert (dry["rows"], dry["reads"]) == (5, 10) and not (folder / "batch").exists()
    assert client.post("/api/batch/start", json=VALUES).status_code == 200
    end = time.monotonic() + HANG
    while (job := client.get("/api/batch").json()[0])["status"] != "done":
        assert job["status"] == "running" and time.monotonic() < end, job
        time.sleep(0.01)
    assert job["done"] == 5 and job["output"] == "batch/one.jsonl"
    rows = [row.data for row in read_rows(folder / "batch" / "one.jsonl")]
    for row, expected in zip(rows, scored_rows(), strict=True):
        items = expected["checklist_score"]["items"]
        assert row["checklist_score"]["primary_score"] == expected["checklist_score"]["primary_score"]
        assert [line["probabilities"] for line in row["checklist_score"]["items"]] == [
            i["probabilities"] for i in items
        ]


def test_a_paused_job_and_a_restarted_app_ask_only_for_the_rest(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "CHUNK", 1)
    reached, go = threading.Event(), threading.Event()

    def held(prefix, tail):
        if "grey" in prefix:
            reached.set()
            assert go.wait(HANG)
        return colours(prefix, tail)

    def opened(backend):
        engine = Engine("fake", backend)
        store = Store(tmp_path / "store.sqlite")
        return Batch(Judging(Project.at(folder), PipelineConfig(), {}, engine, engine, store))

    first = opened(FakeBackend(held))
    first.start(first.job(VALUES))
    assert reached.wait(HANG)
    first.pause("one")
    go.set()
    assert until(first, "paused").done == 3 and not (folder / "batch" / "one.jsonl").exists()
    stored = json.loads((folder / "batch" / "one.json").read_text())
    (folder / "batch" / "one.json").write_text(json.dumps({**stored, "status": "running"}))  # as after a crash

    backend = FakeBackend(colours)
    second = opened(backend)
    assert second.jobs()[0]["status"] == "stopped"
    second.start(second.job(second.jobs()[0]))
    assert until(second, "done").done == 5
    assert len(backend.asked) == 4  # two rows with two items each; the others are in the store


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"target": "none"}, "rows.jsonl, line 1: column 'none' not found"),
        ({"target": ""}, "target must be a name"),
        ({"name": "../one"}, "is not a name for a job"),
        ({"file": "../rows.jsonl"}, "is not the name of a file"),
        ({"checklist_file": "checklists/none.json"}, "not found in the project folder"),
        ({"settings": {"metric": "best"}}, "'best'"),
        ({"settings": 3}, "settings must be an object"),
    ],
)
def test_a_job_that_cannot_run_is_refused_before_the_judge_is_called(client, folder, change, sentence):
    answer = client.post("/api/batch/start", json=VALUES | change)
    assert answer.status_code in (400, 403) and sentence in answer.json()["error"]
    assert not (folder / "batch").exists()


def test_another_job_of_the_same_name_is_refused(client, judging):
    client.post("/api/batch/start", json=VALUES)
    answer = client.post("/api/batch/start", json=VALUES | {"settings": {"metric": "pass"}})
    assert answer.status_code == 400 and "with other settings" in answer.json()["error"]
