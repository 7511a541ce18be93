"""The front of the command line: help, version, and what starting costs."""

import json
import os
import subprocess
import sys

import pytest
from typer.main import get_command

from checklist_rewards import __version__
from checklist_rewards.cli import app
from checklist_rewards.cli.training import recipes_dir
from tests import zygote
from tests.conftest import REPO
from tests.evaluation.files import scored_file


def test_the_list_of_commands_says_what_each_command_says_and_each_has_an_example(run):
    from checklist_rewards.cli.commands import _ENTRIES

    commands = get_command(app).commands
    assert list(commands) == list(_ENTRIES) and "Exit codes" in run("--help").stdout
    for name, entry in _ENTRIES.items():
        shown = commands[name].help or ""
        assert " ".join(shown.split("\n\n")[0].split()) == entry.summary, name
        assert commands[name].rich_help_panel == entry.heading
        assert f"checklist-rewards {name} " in run(f"{name} --help").stdout


def test_the_package_runs_as_a_module_and_says_which_model_it_loads(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"target": "a", "checklist": ["Is it a?"]}))
    command = ["-m", "checklist_rewards", "score", "rows.jsonl", "-o", "out.jsonl", "--model", "pocket", "--no-store"]
    code, written = zygote.run(command, cwd=tmp_path)
    assert code == 0 and "loading pocket in transformers\nloaded pocket in " in written, written
    assert written.count("pocket is for tests and demos") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [("--version", 0, __version__), ("scoer", 2, "score"), ("score", 2, "Missing"), ("--nonsense", 2, "--nonsense")],
)
def test_version_and_bad_usage(run, arguments, code, shown):
    assert shown in run(arguments, code=code).output


def test_the_demo_is_found_and_gets_its_options(run, monkeypatch, tmp_path):
    assert (recipes_dir() / "demo.py").is_file()
    (tmp_path / "demo.py").write_text("import sys, beside\nprint('ran', sys.argv[1:], __name__)\n")
    (tmp_path / "beside.py").write_text("")
    monkeypatch.setattr("checklist_rewards.cli.training.recipes_dir", lambda: tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    assert run("demo --output here --steps 3").stdout == "ran ['--output', 'here', '--steps', '3'] __main__\n"


INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == "checklist_rewards.cli.commands":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from checklist_rewards.cli import main
assert "checklist_rewards.scorer" not in sys.modules, "it takes half a second to import"
main()
"""


def test_ctrl_c_while_the_command_line_is_imported_is_one_sentence():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Interrupted: the command had not begun.\n")


def test_a_character_that_the_encoding_of_stdout_lacks_is_escaped(tmp_path):
    for name in ("one.jsonl", "two.jsonl"):
        scored_file(tmp_path / name, {"target": "a", "checklist": ["Is it a?"], "said": [0.9]})
    command = [sys.executable, "-m", "checklist_rewards", "diff", "one.jsonl", "two.jsonl"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(REPO)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("one.jsonl \\u2192 two.jsonl"), done.stderr


STARTS = """
import sys
from contextlib import suppress
from checklist_rewards.cli import main

def loaded():
    return {name for name in sys.modules if name.startswith("checklist_rewards.")} | heavy & set(sys.modules)

heavy = {"torch", "transformers", "datasets", "vllm", "aiohttp", "pyarrow"}
for arguments in (["--help"], ["score", "--help"], ["score", "missing.jsonl", "-o", "out.jsonl"]):
    sys.argv[1:] = arguments
    with suppress(SystemExit):
        main()
    assert not heavy & loaded(), (arguments, heavy & loaded())
    if arguments == ["--help"]:
        assert not {"checklist_rewards.cli.scoring", "checklist_rewards.pipelines"} & loaded(), loaded()
"""


def test_no_engine_is_imported_to_show_help_or_to_refuse_and_no_command_to_list_them(tmp_path):
    done = subprocess.run([sys.executable, "-c", STARTS], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "missing.jsonl: cannot be read" in done.stderr, done.stderr
    assert "Score texts by their checklists." in done.stdout and "Trust" in done.stdout
