"""What `make test-versions` and `make test-frameworks` name exists, and is pinned."""

import importlib.util
import subprocess
import sys
import tomllib

from tests.conftest import REPO
from tests.test_light import OF_EXTRAS

VERSIONS, FRAMEWORKS = (
    tomllib.loads((REPO / "tests" / name / "versions.toml").read_text()) for name in ("versions", "frameworks")
)


def test_the_tests_exist_and_bounds_and_pins_are_versions(monkeypatch):
    assert all((REPO / path.partition("::")[0]).is_file() for paths in VERSIONS["tests"].values() for path in paths)
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [trl] = [dependency for dependency in extras["trl"] if dependency.startswith("trl")]
    assert VERSIONS["trl"]["versions"][0].startswith(trl.removeprefix("trl>="))
    spec = importlib.util.spec_from_file_location("run_versions", REPO / "tests" / "versions" / "run.py")
    runner = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, runner)
    spec.loader.exec_module(runner)
    bounds = runner.lowest_bounds()
    assert "pydantic==2.10" in bounds
    assert all("==" in bound and not {">", "<"} & set(bound) for bound in bounds)
    tests = (REPO / "tests" / "frameworks").glob("test_*.py")
    assert sorted(FRAMEWORKS) == sorted(path.stem.removeprefix("test_") for path in tests)
    assert all("==" in step for framework in FRAMEWORKS.values() for step in framework["pip"])


WITHOUT_EXTRAS = "import pytest, sys; sys.modules.update(dict.fromkeys({hidden})); sys.exit(pytest.main({arguments}))"


def test_the_tests_of_the_base_package_are_imported_without_the_libraries_of_extras():
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", *VERSIONS["tests"]["base"]]
    program = WITHOUT_EXTRAS.format(hidden=OF_EXTRAS, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
