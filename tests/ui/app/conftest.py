"""A project folder with a scored file and the app of that folder, in the process and in headless Chromium."""

import errno
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.cli import app as cli
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui.app import build_ui
from checklist_rewards.ui.guard import HEADER
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests.conftest import HANG, REPO
from tests.fakes import FakeBackend
from tests.ui import browser
from tests.ui.browser import AppPage
from tests.ui.files import write
from tests.waiting import printed
from tests.zygote import Program

TOKEN = "the-token-of-these-tests"
HOST = "http://127.0.0.1:8091"
QUESTIONS = ["Is it red?", {"question": "Is it blue?", "weight": -1}]
TEXTS = ["a red thing", "red and blue", "grey", "blue", "<script>document.title = 'broken'</script> red"]
POCKET_QUESTIONS = [
    "Does the response end with a question mark?",
    'Does the response contain the word "rain"?',
    "Does the response have exactly 2 sentences?",
]
POCKET_RESPONSES = [
    "The rain falls. Is it cold?",
    "Who is there?",
    "The cat sleeps. The dog runs.",
    "Rain falls on the river.",
    "The rain stops. The sun shines.",
    "Is it the rain?",
    "A bird sings.",
    "The river is deep. Where is the boat?",
    "The night is long. The rain is cold. We wait.",
    "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script> Is it?",
]


def colours(prefix: str, tail: str) -> float:
    """P(yes) of a judge that sees the colours, and is unsure about "and"."""
    colour = "red" if "red?" in tail else "blue"
    return 0.55 if "and" in prefix.rpartition("<response")[2] else 0.9 if colour in prefix else 0.1


def scored_rows(rule=colours) -> list[dict]:
    scorer = ChecklistScorer(backend=FakeBackend(rule), store=False)
    scores = scorer.score_batch([Sample(QUESTIONS, text, "Name a colour.") for text in TEXTS])
    return [
        {
            "id": f"r{number}",
            "prompt": "Name a colour.",
            "target": text,
            "checklist": QUESTIONS,
            "checklist_score": score.model_dump(mode="json"),
        }
        for number, (text, score) in enumerate(zip(TEXTS, scores, strict=True), start=1)
    ]


def logged(step: int) -> list[dict]:
    """Rows of a reward log."""
    rows = []
    for row in scored_rows():
        score = row["checklist_score"]
        texts = {"prompt": row["prompt"], "completion": row["target"]}
        rows.append({"step": step, **texts, "reward": score["primary_score"], "score": score})
    return rows


@pytest.fixture(params=["locks", "no locks"])
def locks(request, monkeypatch):
    """A file system with locks, and one without: Lustre without `-o flock`, some of FUSE."""

    def refused(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if request.param == "no locks":
        monkeypatch.setattr("checklist_rewards.files.atomic.fcntl.flock", refused)


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "project"
    (folder / "judges").mkdir(parents=True)
    rows = scored_rows()
    write(folder / "scored.jsonl", rows)
    write(folder / "rows.jsonl", [{key: row[key] for key in ("prompt", "target", "checklist")} for row in rows])
    return folder


def judging_of(folder, judge, writer=None, config=None, store=None) -> Judging:
    """What the app of a folder judges with: engines, or backends of an engine named "fake"."""
    judge, writer = (one if isinstance(one, Engine) else Engine("fake", one) for one in (judge, writer or judge))
    return Judging(Project.at(folder), PipelineConfig.parse(config or {}), {}, judge, writer, store)


def error_of(answer) -> str:
    """The sentence of a request that is refused."""
    assert answer.status_code in (400, 403), answer.text
    return answer.json()["error"]


@pytest.fixture
def judging(folder) -> Judging:
    return judging_of(folder, FakeBackend(colours, replies=["1. Is it red?\n2. Is it blue?\n3. Is it short?"]))


@pytest.fixture
def app(judging):
    return build_ui(judging, TOKEN)


@pytest.fixture
def client(app):
    """A page that has the token."""
    with TestClient(app, base_url=HOST, headers={HEADER: TOKEN}) as client:
        yield client


@pytest.fixture
def stranger(app):
    """A client without the token."""
    with TestClient(app, base_url=HOST) as client:
        yield client


def run(*arguments) -> str:
    """The output of a command of `checklist-rewards`, in this process."""
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project folder with ten responses, scored by the pocket judge."""
    folder = tmp_path_factory.mktemp("project")
    rows = [
        {"id": f"r{n}", "prompt": "Write about the weather.", "target": text, "checklist": POCKET_QUESTIONS}
        for n, text in enumerate(POCKET_RESPONSES)
    ]
    write(folder / "rows.jsonl", rows)
    run(
        "score", folder / "rows.jsonl", "-o", folder / "scored.jsonl", "--model", "pocket", "--backend", "transformers"
    )
    return folder


@pytest.fixture(scope="module")
def url(project):
    """The URL that `checklist-rewards ui` prints. Tests change the folder, so each module has its own server."""
    with started(project, "--backend", "transformers") as url:
        yield url


@contextmanager
def started(project: Path, *options: str):
    """`checklist-rewards ui` of a folder, and the URL that it prints."""
    command = ["-m", "tests.ui.app.served", "ui", str(project), "--port", "0", "--no-browser", *options]
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "400"}
    with Program(command, env=environment, cwd=REPO, output=subprocess.PIPE) as server:
        yield printed(server, r"http://127\.0\.0\.1:\d+/\?token=\S+")[0]
        server.send_signal(signal.SIGTERM)
        server.wait(HANG)


@pytest.fixture(scope="module")
def page(url, chromium) -> AppPage:
    """A browser that has opened the printed URL."""
    return AppPage(chromium, url, "#view table")


@pytest.fixture
def no_messages(page):
    """Nothing hostile ran during the test, and the console has no message."""
    yield
    assert browser.errors(page.driver) == []
    assert page.driver.title != "broken"


def improved(folder: Path) -> None:
    """Run `improve`, and write what it tested to `improved/steps.json`."""
    from contextlib import chdir

    from tests.cli.test_improving_improve import opposed

    (folder / "improved").mkdir()
    with chdir(folder / "improved"):
        opposed()
        options = ["--label-key", "stars", "--group-key", "doc", "--bootstrap", "50", "-o", "better.json"]
        run("improve", "checklist.json", "--data", "scored.jsonl", *options, "--json", "steps.json")
