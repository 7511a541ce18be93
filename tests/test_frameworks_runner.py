"""`make test-frameworks` tries every framework, skips what cannot be installed, and fails for failed tests only."""

import contextlib
import importlib.util
import sys
import tomllib

import pytest

from tests.conftest import REPO

FOLDER = REPO / "tests" / "frameworks"


@pytest.fixture
def runner(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("run_frameworks", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HOMES", tmp_path)
    monkeypatch.setattr(module, "reward_server", lambda: contextlib.nullcontext("http://server"))
    return module


def test_every_pin_has_its_tests_and_every_test_its_pin():
    pins = tomllib.loads((FOLDER / "versions.toml").read_text())
    assert sorted(pins) == sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
    assert all("==" in step for framework in pins.values() for step in framework["pip"])


@pytest.mark.parametrize(("fails", "status"), [((), 0), (("verl",), 1)])
def test_a_framework_that_cannot_be_installed_is_skipped(runner, monkeypatch, capsys, fails, status):
    monkeypatch.setattr(runner, "install", lambda home, steps: "pip says no" if home.name == "areal" else None)
    monkeypatch.setattr(
        runner,
        "run_tests",
        lambda name, home, server: ("FAILED", "pytest ended with status 1") if name in fails else ("passed", ""),
    )
    assert runner.main(["verl", "areal", "skyrl"]) == status
    report = capsys.readouterr().out.split("make test-frameworks:\n")[1].splitlines()
    assert [line.split(" (")[0] for line in report] == [
        "verl: FAILED" if fails else "verl: passed",
        "areal: skipped",
        "skyrl: passed",
    ]
    assert report[1].endswith("pip says no")


@pytest.mark.slow
def test_an_unknown_framework_and_pips_reason_are_reported(runner, tmp_path, capsys):
    assert runner.main(["verll"]) == 2
    assert capsys.readouterr().out.startswith("unknown framework verll; allowed: verl, swift")
    reason = runner.install(tmp_path / "none", [f"{tmp_path}/no-such-package"])
    assert reason.startswith(f"pip install {tmp_path}/no-such-package: ERROR:")
    assert not (tmp_path / "none" / "installed.txt").exists()
