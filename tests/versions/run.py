"""`make test-versions`: parts of the suite with other versions of TRL, transformers, torch and `datasets`.

`versions.toml` holds what is tried. Every version is installed once under `.venv-versions`: an overlay before the
packages of the environment that runs this file, or, for this package without extras, an environment of its own with
every dependency at its lowest bound. The exit status is 1 if a test failed; a Python that is not on this machine is
skipped.

    python tests/versions/run.py                     # all
    python tests/versions/run.py trl base            # of some
    python tests/versions/run.py trl=1.6.0           # one version
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
HOMES = REPO / ".venv-versions"
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
TEST_SECONDS = 3600


@dataclass(frozen=True)
class Outcome:
    """What became of one version."""

    name: str
    result: str
    """`passed`, `FAILED` or `skipped`."""
    seconds: float = 0.0
    reason: str = ""
    """The last line of pytest, or why it did not run."""

    def __str__(self) -> str:
        return f"| {self.name} | {self.result} | {self.seconds:.0f} s | {self.reason} |"


def main(names: Sequence[str]) -> int:
    """Run what these names select, or all. Returns the exit status."""
    settings = tomllib.loads((HERE / "versions.toml").read_text(encoding="utf-8"))
    tests = settings.pop("tests")
    pairs = [(package, version) for package in settings for version in settings[package]["versions"]]
    wanted = [pair for pair in pairs if not names or pair[0] in names or "=".join(pair) in names]
    if unknown := [name for name in names if not any(name in (pair[0], "=".join(pair)) for pair in pairs)]:
        print(f"unknown: {', '.join(unknown)}; allowed: {', '.join('='.join(pair) for pair in pairs)}")
        return 2
    outcomes = []
    for package, version in wanted:
        print(f"== {package} {version}", flush=True)
        groups = [*settings[package]["tests"], *settings[package].get("also", {}).get(version, ())]
        files = [file for group in groups for file in tests[group]]
        outcomes.append(outcome_of(package, version, settings[package], files))
    print("\n".join(["make test-versions:", *map(str, outcomes)]))
    return int(any(outcome.result == "FAILED" for outcome in outcomes))


def outcome_of(package: str, version: str, settings: dict[str, Any], tests: Sequence[str]) -> Outcome:
    """Install and test one version. Whatever fails is an outcome, so that the others run too."""
    name, home = f"{package} {version}", HOMES / f"{package}-{version}"
    python, path = Path(sys.executable), str(home)
    if package == "base":
        name, path = f"base package, lowest bounds, Python {version}", str(REPO)
        if (found := python_of(version)) is None:
            return Outcome(name, "skipped", reason=f"python{version} not found")
        python = home / "bin" / "python"
        reason = installed(home, [found, "-m", "venv", home], [python, *PIP, *lowest_bounds(), *TOOLS])
    else:
        pins = [f"{package}=={version}", *settings.get("together", {}).get(version, ())]
        alone = [] if settings.get("dependencies") else ["--no-deps"]
        reason = installed(home, [python, *PIP, *alone, "--target", home, *pins])
        if reason is None:
            hidden = settings.get("without", {}).get(version, ())
            lines = [f"sys.modules[{module!r}] = None  # not installed, for this overlay" for module in hidden]
            (home / "sitecustomize.py").write_text("\n".join(["import sys", *lines, ""]), encoding="utf-8")
    if reason is not None:
        return Outcome(name, "skipped", reason=reason)
    started = time.monotonic()
    result, reason = tested(python, path, tests)
    return Outcome(name, result, time.monotonic() - started, reason)


TOOLS = ["pytest==9.2.0", "pytest-timeout==2.4.0", "hypothesis==6.170.15"]


def lowest_bounds() -> list[str]:
    """The dependencies of the base package, each at the lowest version that `pyproject.toml` allows."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [re.sub(r">=([\w.]+).*", r"==\1", dependency) for dependency in project["dependencies"]]


def python_of(version: str) -> Path | None:
    """The Python of this version on the path, or among those of pyenv, whose shims fail for all but the active one."""
    on_path = shutil.which(f"python{version}")
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/python")
    for python in [*([Path(on_path)] if on_path else []), *sorted(of_pyenv)]:
        if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return python
    return None


def installed(home: Path, *commands: Sequence[object]) -> str | None:
    """Run the commands that make a folder unless it was made by the same ones. Returns why it could not be made."""
    stamp = home / "installed.txt"
    steps = [list(map(str, command)) for command in commands]
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == repr(steps):
        return None
    shutil.rmtree(home, ignore_errors=True)
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, env=environment())
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return (lines or done.stderr.splitlines() or ["no message"])[-1].strip()
    stamp.write_text(repr(steps), encoding="utf-8")
    return None


def tested(python: Path, path: str, tests: Sequence[str]) -> tuple[str, str]:
    """The result of these files of the suite with `path` before all packages, and the last line of pytest."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "900", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=REPO,
            env=environment() | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
            timeout=TEST_SECONDS,
            stdout=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return "FAILED", f"not finished after {TEST_SECONDS} s"
    print(done.stdout, flush=True)
    last = (done.stdout.splitlines() or ["no output"])[-1].strip("= ")
    return ("FAILED" if done.returncode else "passed"), last


def environment() -> dict[str, str]:
    """The variables of this process without those that would show its packages to another environment."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CHECKLIST_REWARDS_CONFIG")
    return {name: value for name, value in os.environ.items() if name not in hidden}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
