"""Live: the figures equal those of a report, and only what was added is read."""

import json

import pytest

from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.ui.figures import TrainingFigures
from checklist_rewards.ui.live import Live
from checklist_rewards.ui.project import Project
from tests.conftest import HANG
from tests.ui.app.conftest import error_of, logged
from tests.ui.files import monitor_rows, stated_rows, write

LOG = "runs/rewards.jsonl"


def lines(step, **more) -> list[str]:
    return [json.dumps(row | more) + "\n" for row in logged(step)]


def of_a_report(path):
    figures = TrainingFigures()
    for record, counts in ScoredFile(path).counted():
        if counts:
            figures.add(record)
    return json.loads(json.dumps(figures.as_json()))


@pytest.fixture
def log(folder):
    return write(folder / LOG, logged(0))


def add(path, *texts) -> None:
    with path.open("a") as file:
        file.write("".join(texts))


def test_figures_are_those_of_a_report_after_every_step_with_the_alarms_of_a_monitor(client, log):
    known = None
    for step in range(1, 4):
        found = client.get("/api/live", params={"file": LOG, "known": known}).json()
        assert found["training"] == of_a_report(log) and found["rows"] == 5 * step
        known = found["stamp"]
        assert client.get("/api/live", params={"file": LOG, "known": known}).status_code == 204
        add(log, *lines(step))
    assert found["latest"][-1]["completion"].startswith("<script>")
    before = client.get("/api/live", params={"file": LOG}).json()
    assert before["monitor"] is None and 0 <= before["quiet"] < HANG
    write(log.parent / "monitor.jsonl", monitor_rows(6))
    found = client.get("/api/live", params={"file": LOG, "known": before["stamp"]}).json()
    assert [alarm["step"] for alarm in found["monitor"]["alarms"]] == [3]
    assert client.get("/api/live", params={"file": LOG, "known": found["stamp"]}).status_code == 204
    report = client.get("/api/report", params={"file": LOG}).json()
    assert [one["name"] for one in report["monitors"]] == ["monitor.jsonl"]


def test_a_completion_without_an_answer_has_a_state_and_no_items(folder, log):
    write(log, stated_rows(1))
    latest = Live(Project.at(folder)).figures(LOG)["latest"]
    assert [one["state"] for one in latest[-5:]] == ["answered", "cut", "empty", "cut_in_thought", "unfinished"]
    assert [len(one["items"]) for one in latest[-5:]] == [2, 2, 0, 0, 0]


def test_only_what_was_added_is_read_and_a_line_once_it_is_complete(folder, log, monkeypatch):
    live, (whole, *more) = Live(Project.at(folder)), lines(1)
    assert live.figures(LOG)["rows"] == 5
    read, add_row = [], live._add
    monkeypatch.setattr(live, "_add", lambda *added: read.append(json.dumps(added[1].data) + "\n") or add_row(*added))
    add(log, *more, whole[:40])
    assert live.figures(LOG)["rows"] == 9 and read == more
    add(log, whole[40:])
    assert live.figures(LOG)["rows"] == 10 and read == [*more, whole]


def test_a_new_run_starts_again_and_other_ranks_are_included_unless_they_lie_outside(folder, log, tmp_path):
    live, other = Live(Project.at(folder)), log.parent / "rewards.rank1.jsonl"
    live.figures(LOG)
    log.write_text("".join(lines(0)[:2]))
    assert live.figures(LOG)["rows"] == 2
    write(tmp_path / "new.jsonl", logged(4)[:3]).replace(log)  # a longer file in its place
    assert live.figures(LOG)["training"]["steps"] == [4]
    other.write_text("".join(lines(0)))
    found = live.figures(LOG)
    assert found["rows"] == 8 and json.loads(json.dumps(found["training"])) == of_a_report(log)
    other.rename(tmp_path / "secret.jsonl")
    other.symlink_to(tmp_path / "secret.jsonl")
    assert Live(Project.at(folder)).figures(LOG)["rows"] == 3


def test_a_run_that_is_started_again_shows_its_last_steps_and_no_evaluations(folder, log):
    live = Live(Project.at(folder))
    parts = [*(lines(step, started="a", reward=0.1) for step in (1, 2, 3)), lines(3, started="a", evaluation=True)]
    parts += [lines(step, started="b", reward=0.9) for step in (3, 4)]  # the last step once more, and the next
    for added in parts:
        add(log, *added)
        found = live.figures(LOG)
        assert json.loads(json.dumps(found["training"])) == of_a_report(log)
    assert found["training"]["steps"] == [0, 1, 2, 3, 4] and found["rows"] == 5 * 7
    assert found["training"]["series"]["reward"][1:] == [pytest.approx(r) for r in (0.1, 0.1, 0.9, 0.9)]


def test_other_files_are_refused(client, folder):
    (folder / "broken.jsonl").write_text("{\n")
    for file, sentence in (("scored", "line 1: not a row of a reward log"), ("broken", "line 1: not valid JSON")):
        assert f"{file}.jsonl, {sentence}" in error_of(client.get("/api/live", params={"file": f"{file}.jsonl"}))
