"""The command line as a test runs it: in this process, with files in a folder of its own."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from checklist_rewards.backends import engine as engines
from checklist_rewards.backends.models import NO_MODEL
from checklist_rewards.cli import app
from checklist_rewards.cli.output import console
from tests.fakes import FakeBackend


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run("score", "rows.jsonl", ...)` in an empty folder; gives typer's result (exit_code, stdout, stderr).

    A command that refuses to run without a model is run again with the pocket model, so that tests of other things
    need not name one. The refusal itself is tested in `test_commands_no_model.py`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 1000)

    def invoked(*arguments):
        given = [str(argument) for argument in arguments]
        done = CliRunner().invoke(app, given)
        refused = done.exit_code != 0 and NO_MODEL in done.output
        return CliRunner().invoke(app, [*given, "--model", "pocket"]) if refused else done

    return invoked


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


@pytest.fixture
def vlm(run):
    """The folder of a model that takes images, in the working folder."""
    Path("vlm").mkdir()
    Path("vlm/config.json").write_text('{"model_type": "smolvlm"}')
    return "vlm"


def write_jsonl(path: str | Path, *rows: object) -> None:
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_jsonl(path: str | Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
