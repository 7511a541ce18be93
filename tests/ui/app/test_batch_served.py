"""Batch with served judges: whatever ends the job, the app or the server, no stored answer is lost or asked again."""

import json
import os
import shlex
import signal
import subprocess

import httpx
import pytest
import yaml

from checklist_rewards import BatchScore, ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui import jobs as module
from checklist_rewards.ui.guard import HEADER
from checklist_rewards.ui.jobs import Jobs
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests import zygote
from tests.conftest import HANG, REPO
from tests.jsonl import read_jsonl
from tests.ui.app.judgeserver import JudgeServer
from tests.ui.files import write
from tests.waiting import printed, until
from tests.zygote import Program

ROWS = 40
CHECKLIST = ["Is it fine (yes)?", {"question": "Is it red (no)?", "weight": -1}, "Is it short (no)?"]
REQUEST = {"file": "rows.jsonl", "output": "scored.jsonl"}
ENGINE = {"concurrency": 8, "pause": 0.01, "attempts": 3}


@pytest.fixture(autouse=True)
def jobs_are_forks(monkeypatch):
    zygote.start()
    monkeypatch.setattr(module, "COMMAND", (*zygote.PYTHON, "-m", "checklist_rewards.cli"))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    monkeypatch.setattr(module, "_GRACE", 0.5)  # requests that the server holds are not answered in any time
    server = JudgeServer()
    yield server
    server.kill()


@pytest.fixture
def folder(tmp_path, server):
    folder = tmp_path / "project"
    (folder / "judges").mkdir(parents=True)
    rows = [{"prompt": "Name a colour.", "target": f"text {n}", "checklist": CHECKLIST} for n in range(ROWS)]
    write(folder / "rows.jsonl", rows)
    settings = f"base_url: '{server.url}', engine_args: {json.dumps(ENGINE)}"
    halved = {"method": "temperature", "temperature": 2.0, "reads": 40}
    Calibration(judge="valid", read_by="top_logprobs", maps={"yes/no": halved}).save(folder / "map.json")
    (folder / "judges" / "one.yaml").write_text(f"{{model: valid, {settings}}}\n")
    (folder / "judges" / "calibrated.yaml").write_text(f"{{model: valid, {settings}, calibration: ../map.json}}\n")
    (folder / "judges" / "panel.yaml").write_text(
        f"panel: {{rule: mean}}\njudges:\n  - {{model: valid, {settings}}}\n  - {{model: upper, {settings}}}\n"
    )
    return folder


def jobs_of(folder, server, jury=None, **engine) -> Jobs:
    """The jobs of an app that was started with the served judge, or with a file of judges."""
    given = Engine("pocket") if jury else Engine("valid", "openai", server.url, ENGINE | engine)
    config = PipelineConfig.parse({"scorer": {"judge": str(folder / jury)}} if jury else {})
    store = folder / "answers.sqlite"
    return Jobs(Judging(Project.at(folder), config, {}, given, given, Store(store), str(store)))


def ended(jobs, id):
    return until(lambda: jobs.shown(id)["state"] not in ("running", "pausing") and jobs.shown(id))


def answers_all(jobs, id, folder, server, least=0, most=0) -> dict:
    """The job ends with all answers, of which the server was asked so many twice; gives the job."""
    done = ended(jobs, id)
    assert (done["state"], done["summary"]["unanswered"]) == ("done", {})
    repeated = len(server.twice)
    assert least <= repeated <= most and server.answered.total() == 3 * ROWS + repeated
    assert scores(folder) == expected(folder, model="valid", base_url=server.url)
    return done


def scores(folder):
    return [row["checklist_score"] for row in read_jsonl(folder / "scored.jsonl")]


def stored(folder) -> int:
    return len(Store(folder / "answers.sqlite"))


def expected(folder, **judge):
    scorer = ChecklistScorer(store=False, **judge)
    samples = [Sample(CHECKLIST, f"text {n}", "Name a colour.") for n in range(ROWS)]
    return [score.model_dump(mode="json") for score in scorer.score_batch(samples)]


def test_a_served_judge_is_paused_and_resumed_and_only_the_requests_in_flight_are_repeated(folder, server):
    jobs = jobs_of(folder, server)
    table = jobs.forecast({**REQUEST, "price": {"valid": [1.0, 2.0]}})  # a dry run of the command
    assert table["heads"][:3] == ["for", "model", "calls"]
    assert table["rows"][0][:3] == ["scores", "valid", str(3 * ROWS)] and server.answered.total() == 0
    assert "Dry run: no request was sent" in table["notes"][0]
    with pytest.raises(SampleError, match=r"rows\.jsonl, line 1: .*'none'"):
        jobs.forecast({**REQUEST, "columns": {"target": "none"}})
    assert not (folder / "scored.jsonl").exists() and not list(folder.glob("jobs/.run/*.yaml"))
    server.again(most=30)
    id = jobs.create(REQUEST)["id"]
    until(server.full)
    assert jobs.shown(id)["state"] == "running"
    before = stored(folder)
    assert 0 < before <= 30
    jobs.pause(id)
    assert ended(jobs, id)["state"] == "paused" and stored(folder) == before
    server.again()
    jobs.resume(id)
    # The server may answer requests that it held before it sees that their client has left.
    done = answers_all(jobs, id, folder, server, 30 - before, 30 - before + ENGINE["concurrency"])
    receipt = done["summary"]["receipt"]
    assert (receipt["stored"], receipt["asked"]) == (before, 3 * ROWS - before)
    assert done["summary"]["mean_score"] == BatchScore.from_jsonl(folder / "scored.jsonl").mean


def test_what_a_server_that_stays_away_left_open_is_asked_again_when_it_is_back(folder, server):
    jobs = jobs_of(folder, server, patience=0.2, failures=2)
    server.again(most=50)
    id = jobs.create(REQUEST)["id"]
    until(server.full)
    server.kill()
    first = ended(jobs, id)
    assert first["summary"]["unanswered"] == {"backend_error": 3 * ROWS - 50} and stored(folder) == 50
    assert sum(score["answered"] for score in scores(folder)) == 50
    server.again()
    jobs.resume(id)
    answers_all(jobs, id, folder, server)


@pytest.mark.parametrize(
    ("jury", "models", "settings"),
    [("judges/calibrated.yaml", ["valid"], {}), ("judges/panel.yaml", ["valid", "upper"], {"judge": "panel"})],
    ids=["command line", "page"],
)
def test_a_file_of_judges_has_a_price_per_model_and_the_figures_of_the_scorer(folder, server, jury, models, settings):
    settings = {name: jury for name in settings}
    jobs = jobs_of(folder, server, None if settings else jury)
    prices = {model: [100.0, 1000.0] for model in models}
    request = {**REQUEST, "settings": settings, "price": prices, "budget": 50}
    table = jobs.forecast(request)
    assert [row[:3] for row in table["rows"]] == [["scores", model, str(3 * ROWS)] for model in models]
    assert all(float(row[-1]) > 0 for row in table["rows"]) and server.answered.total() == 0
    done = ended(jobs, jobs.create(request)["id"])
    assert (done["state"], done["message"]) == ("done", None)
    assert server.answered.total() == 3 * ROWS * len(models) and server.twice == []
    dollars = 3 * ROWS * len(models) * (100 * 100.0 + 1 * 1000.0) / 1e6
    assert done["summary"]["US_dollars"] == pytest.approx(dollars)
    found = scores(folder)
    assert found == expected(folder, judge=folder / jury)
    assert len(found[0]["items"][0]["votes"] or []) == (2 if len(models) == 2 else 0)
    assert (found[0]["items"][0]["confidence"] < 0.9) == ("calibrated" in jury)


def test_the_exported_code_of_a_job_gives_its_figures(folder, server):
    rows = [{"ask": "Name a colour.", "more": "Or two.", "answer": f"t {n}", "rubric": CHECKLIST} for n in range(4)]
    write(folder / "named.jsonl", [*rows, {**rows[0], "rubric": None}])
    columns = {"input": ["ask", "more"], "target": "answer", "checklist": "rubric"}
    settings = {"judge": "judges/panel.yaml", "metric": "pass", "threshold": 0.95, "min_answered": 0.25}
    request = {"file": "named.jsonl", "output": "out.jsonl", "columns": columns, "settings": settings}
    jobs = jobs_of(folder, server)
    code = jobs.code(request)
    assert ended(jobs, jobs.create(request)["id"])["state"] == "done"
    expected = read_jsonl(folder / "out.jsonl")
    assert PipelineConfig.parse(yaml.safe_load(code["yaml"])) == jobs.judging.config_of(settings)
    environment = {**os.environ, "PYTHONPATH": str(REPO), "XDG_CACHE_HOME": str(folder.parent / "cache")}
    script = folder.parent / "exported.py"
    script.write_text(code["python"])
    command = f'checklist-rewards() {{ {shlex.join(zygote.PYTHON)} -m checklist_rewards.cli "$@"; }}\n{code["cli"]}'
    (folder / "out.jsonl").unlink()
    status, written = zygote.run([script], cwd=folder, env=environment)
    assert status == 0, written
    assert read_jsonl(folder / "out.jsonl") == expected
    (folder / "out.jsonl").unlink()
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # a row has no checklist
    assert read_jsonl(folder / "out.jsonl") == expected


def test_only_an_app_with_the_same_file_of_judges_resumes(folder, server):
    server.again(most=10)
    jobs = jobs_of(folder, server, "judges/panel.yaml")
    id = jobs.create(REQUEST)["id"]
    until(server.full)
    restarted = jobs_of(folder, server, "judges/panel.yaml")
    assert restarted.running() == [id]
    restarted.pause(id)
    assert ended(jobs, id)["state"] == ended(restarted, id)["state"] == "paused"
    assert jobs.shown(id)["engine"]["judge"] == "judges/panel.yaml"
    for other in (jobs_of(folder, server), jobs_of(folder, server, "judges/one.yaml")):
        with pytest.raises(SampleError, match=r"started with the judge 'judges/panel.yaml'; start the app with"):
            other.resume(id)
    server.again()
    restarted.resume(id)
    assert ended(jobs, id)["state"] == "done"
    assert scores(folder) == expected(folder, judge=folder / "judges" / "panel.yaml")


def test_a_job_goes_on_when_the_app_is_killed_and_an_app_started_again_shows_it(folder, server):
    command = ["-m", "checklist_rewards.cli", "ui", folder, "--port=0", "--no-browser"]
    command += f"--model=valid --base-url={server.url} --engine-args=concurrency=8 --store={folder}/s.sqlite".split()
    server.again(most=20)
    app, client = started(command)
    created = client.post("/api/jobs", json=REQUEST)
    assert created.status_code == 200, created.text
    until(server.full)
    app.kill()
    app.wait(HANG)
    app, client = started(command)
    try:
        [job] = client.get("/api/jobs").json()["jobs"]
        assert (job["id"], job["state"]) == (created.json()["id"], "running")
        server.again()
        [job] = until(lambda: [job for job in client.get("/api/jobs").json()["jobs"] if job["state"] == "done"])
        assert server.answered.total() == 3 * ROWS and server.twice == []
        assert scores(folder) == expected(folder, model="valid", base_url=server.url)
    finally:
        app.send_signal(signal.SIGTERM)
        app.wait(HANG)


def started(command):
    """The process of an app, and a client with its token."""
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "400"}
    app = Program(command, env=environment, output=subprocess.PIPE)
    found = printed(app, r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)")
    return app, httpx.Client(base_url=found[1], headers={HEADER: found[2]}, timeout=HANG, trust_env=False)
