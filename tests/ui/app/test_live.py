"""Live: the figures equal those of a report, and only what was added is read."""

import json

import pytest

from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.ui.figures import TrainingFigures
from checklist_rewards.ui.live import Live
from checklist_rewards.ui.project import Project
from tests.conftest import HANG
from tests.ui.app.conftest import scored_rows
from tests.ui.files import monitor_rows, stated_rows, write


def lines(step, **more):
    return [
        json.dumps(
            {
                "step": step,
                "prompt": row["prompt"],
                "completion": row["target"],
                "reward": row["checklist_score"]["primary_score"],
                "score": row["checklist_score"],
                **more,
            }
        )
        + "\n"
        for row in scored_rows()
    ]


def of_a_report(path):
    figures = TrainingFigures()
    for record in ScoredFile(path):
        if record.counts:
            figures.add(record)
    return json.loads(json.dumps(figures.as_json()))


@pytest.fixture
def log(folder):
    path = folder / "runs" / "rewards.jsonl"
    path.parent.mkdir()
    path.write_text("".join(lines(0)))
    return path


def test_figures_are_those_of_a_report_after_every_step(client, log):
    known = None
    for step in range(1, 4):
        found = client.get("/api/live", params={"file": "runs/rewards.jsonl", "known": known}).json()
        assert found["training"] == of_a_report(log) and found["rows"] == 5 * step
        known = found["stamp"]
        assert client.get("/api/live", params={"file": "runs/rewards.jsonl", "known": known}).status_code == 204
        with log.open("a") as file:
            file.write("".join(lines(step)))
    assert found["latest"][-1]["completion"].startswith("<script>")


def test_a_completion_without_an_answer_has_a_state_and_no_items(folder):
    path = folder / "runs" / "rewards.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in stated_rows(1)))
    latest = Live(Project.at(folder)).figures("runs/rewards.jsonl")["latest"]
    assert [one["state"] for one in latest[-5:]] == ["answered", "cut", "empty", "cut_in_thought", "unfinished"]
    assert [len(one["items"]) for one in latest[-5:]] == [2, 2, 0, 0, 0]


def test_only_what_was_added_is_read(folder, log, monkeypatch):
    live = Live(Project.at(folder))
    live.figures("runs/rewards.jsonl")
    read = []
    monkeypatch.setattr(live, "_add", lambda followed, row, counts: read.append(json.dumps(row.data) + "\n"))
    with log.open("a") as file:
        file.write("".join(lines(1)) + '{"step": 2, "comp')
    live.figures("runs/rewards.jsonl")
    assert read == lines(1)


def test_a_line_that_is_still_written_is_read_when_it_is_complete(folder, log):
    live, whole = Live(Project.at(folder)), lines(1)[0]
    with log.open("a") as file:
        file.write(whole[:40])
    assert live.figures("runs/rewards.jsonl")["rows"] == 5
    with log.open("a") as file:
        file.write(whole[40:])
    assert live.figures("runs/rewards.jsonl")["rows"] == 6


def test_a_new_run_starts_again_and_other_ranks_are_included(folder, log):
    live = Live(Project.at(folder))
    live.figures("runs/rewards.jsonl")
    log.write_text("".join(lines(0)[:2]))
    assert live.figures("runs/rewards.jsonl")["rows"] == 2
    (log.parent / "rewards.rank1.jsonl").write_text("".join(lines(0)))
    found = live.figures("runs/rewards.jsonl")
    assert found["rows"] == 7 and json.loads(json.dumps(found["training"])) == of_a_report(log)


def test_a_run_that_is_started_again_shows_its_last_steps_and_no_evaluations(folder, log):
    live = Live(Project.at(folder))
    parts = [*(lines(step, started="a", reward=0.1) for step in (1, 2, 3)), lines(3, started="a", evaluation=True)]
    parts += [lines(step, started="b", reward=0.9) for step in (3, 4)]  # the last step once more, and the next
    for added in parts:
        with log.open("a") as file:
            file.write("".join(added))
        found = live.figures("runs/rewards.jsonl")
        assert json.loads(json.dumps(found["training"])) == of_a_report(log)
    assert found["training"]["steps"] == [0, 1, 2, 3, 4] and found["rows"] == 5 * 7
    assert found["training"]["series"]["reward"][1:] == [pytest.approx(r) for r in (0.1, 0.1, 0.9, 0.9)]


def test_a_log_of_another_rank_outside_of_the_project_is_not_read(folder, log, tmp_path):
    (tmp_path / "secret.jsonl").write_text("".join(lines(0)))
    (log.parent / "rewards.rank1.jsonl").symlink_to(tmp_path / "secret.jsonl")
    assert Live(Project.at(folder)).figures("runs/rewards.jsonl")["rows"] == 5


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("scored.jsonl", "scored.jsonl, line 1: not a row of a reward log"),
        ("../a.jsonl", "is not the name of a file"),
        ("none.jsonl", "not found"),
        ("broken.jsonl", "broken.jsonl, line 1: not valid JSON"),
    ],
)
def test_other_files_are_refused(client, folder, file, sentence):
    (folder / "broken.jsonl").write_text("{\n")
    found = client.get("/api/live", params={"file": file})
    assert found.status_code in (400, 403) and sentence in found.json()["error"]


def test_alarms_of_a_monitor_in_the_same_folder_come_with_the_figures(client, log):
    asked = {"file": "runs/rewards.jsonl"}
    before = client.get("/api/live", params=asked).json()
    assert before["monitor"] is None and 0 <= before["quiet"] < HANG
    write(log.parent / "monitor.jsonl", monitor_rows(6))
    found = client.get("/api/live", params={**asked, "known": before["stamp"]}).json()
    assert [alarm["step"] for alarm in found["monitor"]["alarms"]] == [3]
    assert client.get("/api/live", params={**asked, "known": found["stamp"]}).status_code == 204
    report = client.get("/api/report", params=asked).json()
    assert [one["name"] for one in report["monitors"]] == ["monitor.jsonl"]
