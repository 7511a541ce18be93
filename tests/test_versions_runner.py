"""`make test-versions` tries what `versions.toml` names and skips what cannot be installed; failed tests fail it."""

import importlib.util
import sys
import tomllib

import pytest

from tests.conftest import REPO

FOLDER = REPO / "tests" / "versions"
SETTINGS = tomllib.loads((FOLDER / "versions.toml").read_text())


@pytest.fixture
def runner(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("run_versions", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HOMES", tmp_path)
    return module


def test_the_tests_exist_and_the_lowest_trl_is_the_bound():
    assert all((REPO / path).is_file() for paths in SETTINGS["tests"].values() for path in paths)
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [trl] = [dependency for dependency in extras["trl"] if dependency.startswith("trl")]
    assert SETTINGS["trl"]["versions"][0].startswith(trl.removeprefix("trl>="))


def test_every_lowest_bound_is_one_version(runner):
    bounds = runner.lowest_bounds()
    assert "pydantic==2.10" in bounds and "aiohttp==3.10" in bounds
    assert all("==" in bound and not {">", "<"} & set(bound) for bound in bounds)


@pytest.mark.parametrize(("fails", "status"), [(False, 0), (True, 1)])
def test_outcomes_are_a_table(runner, monkeypatch, capsys, fails, status):
    def installed(home, *commands):
        home.mkdir(exist_ok=True)
        return "pip says no" if home.name == "trl-1.13.0" else None

    monkeypatch.setattr(runner, "installed", installed)
    monkeypatch.setattr(
        runner, "tested", lambda python, path, tests: ("FAILED", "1 failed") if fails else ("passed", "3 passed")
    )
    assert runner.main(["trl=1.13.0", "transformers=5.0.0"]) == status
    report = capsys.readouterr().out.split("make test-versions:\n")[1].splitlines()
    assert report == [
        "| trl 1.13.0 | skipped | 0 s | pip says no |",
        f"| transformers 5.0.0 | {'FAILED | 0 s | 1 failed' if fails else 'passed | 0 s | 3 passed'} |",
    ]
    hidden = (runner.HOMES / "transformers-5.0.0" / "sitecustomize.py").read_text()
    assert "sys.modules['vllm'] = None" in hidden


def test_only_a_package_that_cannot_be_imported_without_its_dependencies_gets_them(runner, monkeypatch):
    steps = {}
    monkeypatch.setattr(runner, "installed", lambda home, *commands: steps.setdefault(home.name, commands[0]) and "no")
    runner.main(["torch", "transformers=5.0.0"])
    alone = {name: "--no-deps" in step for name, step in steps.items()}
    assert alone == {"transformers-5.0.0": True, "torch-2.15.0": False}


def test_an_unknown_name_is_refused(runner, capsys):
    assert runner.main(["trl=0.1"]) == 2
    assert capsys.readouterr().out.startswith("unknown: trl=0.1; allowed: trl=1.6.0, ")
