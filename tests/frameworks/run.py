"""`make test-frameworks`: each adapter inside its framework, in an environment of its own under `.venv-frameworks`.

`versions.toml` holds what is installed there. A framework that cannot be installed is skipped with pip's reason. The
judge is the pocket model behind one `checklist-rewards serve` of the environment that runs this file, and in the
framework's own process where torch and transformers are there. The exit status is 1 if a test failed.

    python tests/frameworks/run.py            # all frameworks
    python tests/frameworks/run.py verl areal
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
HOMES = REPO / ".venv-frameworks"
STEP_SECONDS = 3600
TEST_SECONDS = 1800


def main(names: Sequence[str]) -> int:
    """Run the frameworks of these names, or all. Returns the exit status."""
    frameworks = tomllib.loads((HERE / "versions.toml").read_text(encoding="utf-8"))
    if unknown := [name for name in names if name not in frameworks]:
        print(f"unknown framework {', '.join(unknown)}; allowed: {', '.join(frameworks)}")
        return 2
    with reward_server() as server:
        outcomes = [outcome_of(name, frameworks[name]["pip"], server) for name in names or frameworks]
    print("\n".join(["make test-frameworks:", *outcomes]))
    return int(any(": FAILED " in outcome for outcome in outcomes))


def outcome_of(name: str, steps: Sequence[str], server: str) -> str:
    """Install and test one framework: a line with the result, the times and the reason. Whatever fails is an outcome,
    so that the others run too."""
    print(f"== {name}", flush=True)
    started = time.monotonic()
    result, reason = "skipped", install(HOMES / name, steps)
    installed = time.monotonic()
    if not reason:
        result, reason = run_tests(name, HOMES / name, server)
    times = f"install {installed - started:.0f} s, tests {time.monotonic() - installed:.0f} s"
    return f"{name}: {result} ({times})" + (f": {reason}" if reason else "")


def install(home: Path, steps: Sequence[str]) -> str:
    """Make the environment unless it is there with the same steps. Returns why it could not be made, or nothing."""
    stamp, wanted = home / "installed.txt", "\n".join(steps)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return ""
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install"]
    for step in (*steps, "pytest==9.2.0", f"--editable {REPO}"):
        command = [*pip, "--quiet", "--disable-pip-version-check", *step.split()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS, env=environment())
        except subprocess.TimeoutExpired:
            return f"pip install {step}: not finished after {STEP_SECONDS} s"
        if done.returncode:
            lines = done.stderr.splitlines()
            errors = [line for line in lines if "error" in line.lower()]
            return f"pip install {step}: {(errors or lines or ['no message'])[-1].strip()}"
    stamp.write_text(wanted, encoding="utf-8")
    return ""


def run_tests(name: str, home: Path, server: str) -> tuple[str, str]:
    """The result of `test_<name>.py` in this environment, and the reason if it did not pass."""
    options = ["-q", "-p", "no:cacheprovider", f"--confcutdir={HERE}", f"--rootdir={HERE}", "-c", os.devnull]
    command = [home / "bin" / "python", "-m", "pytest", *options, HERE / f"test_{name}.py"]
    settings = environment() | {"REWARD_SERVER": server, "HF_HUB_OFFLINE": "1"}
    try:
        status = subprocess.run(command, cwd=home, env=settings, timeout=TEST_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return "FAILED", f"not finished after {TEST_SECONDS} s"
    return ("passed", "") if status == 0 else ("FAILED", f"pytest ended with status {status}")


def environment() -> dict[str, str]:
    """The variables of this process without those that would show its packages to another environment."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CHECKLIST_REWARDS_CONFIG")
    return {name: value for name, value in os.environ.items() if name not in hidden}


@contextmanager
def reward_server() -> Iterator[str]:
    """The address of `checklist-rewards serve` with the pocket judge."""
    command = [sys.executable, "-m", "checklist_rewards.cli", "serve", "--port", "0", "--no-store"]
    with subprocess.Popen(
        [*command, "--model", "pocket", "--backend", "transformers"], cwd=REPO, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = next((line for line in process.stderr if "http://" in line), None)
        if line is None:
            raise SystemExit("checklist-rewards serve did not start; try: checklist-rewards serve --no-store")
        try:
            yield next(word for word in line.split() if word.startswith("http://")).rstrip(";")
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
