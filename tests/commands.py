"""The command line as a test runs it: in this process, with files in a folder of its own."""

from pathlib import Path

import pytest


@pytest.fixture(name="run")
def command_line(tmp_path, monkeypatch):
    """Runs a command in an empty folder: `run("score rows.jsonl -o out.jsonl", "--weights", path, code=1)`.

    The first argument is split at blanks. `code` is the exit code that is expected, or several, or None for any.
    `refused` is a part of the error, or several: the command must end with code 2 and one sentence, print nothing else
    and change no file. Returns typer's result (exit_code, stdout, stderr, output).

    A command that refuses to run without a model is run again with the pocket model, so that tests of other things
    need not name one. The refusal itself is tested in `test_commands_no_model.py`.
    """
    from typer.testing import CliRunner

    from checklist_rewards.backends.models import NO_MODEL
    from checklist_rewards.cli import app
    from checklist_rewards.cli.output import console

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 1000)

    def run(command, *arguments, code=0, refused=None, with_model=True):
        given = [*command.split(), *map(str, arguments)]
        before = refused is not None and files_here()
        done = CliRunner().invoke(app, given)
        if with_model and done.exit_code != 0 and NO_MODEL in done.output:
            done = CliRunner().invoke(app, [*given, "--model", "pocket"])
        codes = (2,) if refused is not None else code if isinstance(code, tuple) else (code,)
        assert code is None or done.exit_code in codes, f"{done.output}\n{done.exception!r}"
        if refused is not None:
            check_refusal(done, [refused] if isinstance(refused, str) else refused)
            assert files_here() == before
        return done

    return run


def check_refusal(done, words):
    """The command ended with one sentence, which has these words."""
    said = " ".join(done.stderr.split())
    assert all(word in done.stderr or word in said for word in words), done.output
    assert done.stdout == "" and "Traceback" not in done.stderr, done.output
    if "Usage:" not in done.stderr:  # typer's own errors stand in a box
        [error] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.stderr.count("error: ") == 1 and error.endswith("."), done.stderr


def files_here():
    """Names and contents of all files below the current folder."""
    return {path: path.is_symlink() or (path.is_file() and path.read_bytes()) for path in Path().rglob("*")}


@pytest.fixture
def engine(monkeypatch):
    """`engine(rule, ...)` puts a fake engine where any model would be loaded, and gives it."""
    from checklist_rewards.backends import engine as engines
    from tests.fakes import FakeBackend

    def stand_in(*arguments, backend=None, **options):
        fake = backend or FakeBackend(*arguments, **options)
        monkeypatch.setattr(engines, "_engines", {})
        monkeypatch.setattr(engines, "_build", lambda name, model, base_url, settings: fake)
        return fake

    return stand_in


@pytest.fixture
def no_engine(monkeypatch):
    """Loading any model fails the test."""
    from checklist_rewards.backends import engine as engines

    def build(name, model, base_url, settings):
        raise AssertionError(f"a model was loaded: {model}")

    monkeypatch.setattr(engines, "_engines", {})
    monkeypatch.setattr(engines, "_build", build)
