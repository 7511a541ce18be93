"""The command line as a test runs it: in this process, with files in a folder of its own."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from checklist_rewards.backends import engine as engines
from checklist_rewards.cli import app
from checklist_rewards.cli.output import console
from tests.fakes import FakeBackend


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run("score", "rows.jsonl", ...)` in an empty folder; gives typer's result (exit_code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 1000)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def engine(monkeypatch):
    """`engine(rule, ...)` puts a fake engine where any model would be loaded, and gives it."""

    def stand_in(*arguments, **options) -> FakeBackend:
        fake = FakeBackend(*arguments, **options)
        monkeypatch.setattr(engines, "_engines", {})
        monkeypatch.setattr(engines, "_build", lambda name, model, base_url, settings: fake)
        return fake

    return stand_in


@pytest.fixture
def no_engine(monkeypatch):
    """Loading any model fails the test."""

    def build(name, model, base_url, settings):
        raise AssertionError(f"a model was loaded: {model}")

    monkeypatch.setattr(engines, "_engines", {})
    monkeypatch.setattr(engines, "_build", build)


def write_jsonl(path: str | Path, *rows: object) -> None:
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_jsonl(path: str | Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
