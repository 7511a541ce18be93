"""`make test-versions` and `make test-frameworks` skip what cannot be installed, and only failed tests fail them."""

import contextlib
import importlib.util
import sys
import tomllib

import pytest

from tests.conftest import REPO

VERSIONS, FRAMEWORKS = (
    tomllib.loads((REPO / "tests" / name / "versions.toml").read_text()) for name in ("versions", "frameworks")
)


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """Loads a runner by the name of its folder, with its environments in a folder of its own."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"run_{name}", REPO / "tests" / name / "run.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "HOMES", tmp_path)
        return module

    return load


def test_the_tests_exist_and_bounds_and_pins_are_versions(runner):
    assert all((REPO / path).is_file() for paths in VERSIONS["tests"].values() for path in paths)
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [trl] = [dependency for dependency in extras["trl"] if dependency.startswith("trl")]
    assert VERSIONS["trl"]["versions"][0].startswith(trl.removeprefix("trl>="))
    bounds = runner("versions").lowest_bounds()
    assert "pydantic==2.10" in bounds and "aiohttp==3.10" in bounds
    assert all("==" in bound and not {">", "<"} & set(bound) for bound in bounds)
    tests = (REPO / "tests" / "frameworks").glob("test_*.py")
    assert sorted(FRAMEWORKS) == sorted(path.stem.removeprefix("test_") for path in tests)
    assert all("==" in step for framework in FRAMEWORKS.values() for step in framework["pip"])


@pytest.mark.parametrize(("fails", "status"), [(False, 0), (True, 1)])
def test_outcomes_of_versions_are_a_table(runner, monkeypatch, capsys, fails, status):
    versions, steps = runner("versions"), {}

    def installed(home, *commands):
        home.mkdir(exist_ok=True)
        steps[home.name] = commands[0]
        return "pip says no" if home.name == "trl-1.13.0" else None

    result = ("FAILED", "1 failed") if fails else ("passed", "3 passed")
    monkeypatch.setattr(versions, "installed", installed)
    monkeypatch.setattr(versions, "tested", lambda python, path, tests: result)
    assert versions.main(["trl=1.13.0", "transformers=5.0.0", "torch"]) == status
    report = capsys.readouterr().out.split("make test-versions:\n")[1].splitlines()
    assert report[:2] == [
        "| trl 1.13.0 | skipped | 0 s | pip says no |",
        f"| transformers 5.0.0 | {result[0]} | 0 s | {result[1]} |",
    ]
    hidden = (versions.HOMES / "transformers-5.0.0" / "sitecustomize.py").read_text()
    assert "sys.modules['vllm'] = None" in hidden
    # Only what cannot be imported without its dependencies gets them.
    assert "--no-deps" in steps["transformers-5.0.0"] and "--no-deps" not in steps["torch-2.15.0"]


@pytest.mark.parametrize(("fails", "status"), [((), 0), (("verl",), 1)])
def test_a_framework_that_cannot_be_installed_is_skipped(runner, monkeypatch, capsys, fails, status):
    frameworks = runner("frameworks")

    def run_tests(name, home, server):
        return ("FAILED", "pytest ended with status 1") if name in fails else ("passed", "")

    monkeypatch.setattr(frameworks, "reward_server", lambda: contextlib.nullcontext("http://server"))
    monkeypatch.setattr(frameworks, "install", lambda home, steps: "pip says no" if home.name == "areal" else None)
    monkeypatch.setattr(frameworks, "run_tests", run_tests)
    assert frameworks.main(["verl", "areal", "skyrl"]) == status
    report = capsys.readouterr().out.split("make test-frameworks:\n")[1].splitlines()
    verl = "verl: FAILED" if fails else "verl: passed"
    assert [line.split(" (")[0] for line in report] == [verl, "areal: skipped", "skyrl: passed"]
    assert report[1].endswith("pip says no")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("versions", "trl=0.1", "unknown: trl=0.1; allowed: trl=1.6.0, "),
        ("frameworks", "verll", "unknown framework verll; allowed: verl, swift"),
    ],
)
def test_an_unknown_name_is_refused(runner, capsys, name, given, said):
    assert runner(name).main([given]) == 2
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.slow
def test_pips_reason_is_reported(runner, tmp_path):
    reason = runner("frameworks").install(tmp_path / "none", [f"{tmp_path}/no-such-package"])
    assert reason.startswith(f"pip install {tmp_path}/no-such-package: ERROR:")
    assert not (tmp_path / "none" / "installed.txt").exists()
