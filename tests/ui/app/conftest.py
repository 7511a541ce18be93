"""A project folder with a scored file, and the app of that folder."""

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui.app import build_ui
from checklist_rewards.ui.guard import HEADER
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests.fakes import FakeBackend

TOKEN = "the-token-of-these-tests"
HOST = "http://127.0.0.1:8091"
QUESTIONS = ["Is it red?", {"question": "Is it blue?", "weight": -1}]
TEXTS = ["a red thing", "red and blue", "grey", "blue", "<script>document.title = 'broken'</script> red"]


def colours(prefix: str, tail: str) -> float:
    """P(yes) of a judge that sees the colours, and is unsure about "and"."""
    colour = "red" if "red?" in tail else "blue"
    return 0.55 if "and" in prefix.rpartition("<response")[2] else 0.9 if colour in prefix else 0.1


def write_jsonl(path: Path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


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


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    write_jsonl(folder / "scored.jsonl", scored_rows())
    rows = [{key: row[key] for key in ("prompt", "target", "checklist")} for row in scored_rows()]
    write_jsonl(folder / "rows.jsonl", rows)
    return folder


@pytest.fixture
def judging(folder) -> Judging:
    engine = Engine("fake", FakeBackend(colours, replies=["1. Is it red?\n2. Is it blue?\n3. Is it short?"]))
    return Judging(Project.at(folder), PipelineConfig(), {}, engine, engine)


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
