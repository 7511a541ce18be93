"""The house rules that tools can check: the rows' direction, lint, format, types, and what a wheel holds."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["lint-imports"], ["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=lambda command: command[0] + (command[1] if len(command) > 1 else ""),
)
def test_the_tools_find_nothing(command):
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_outgrows_one_idea():
    lengths = {p.relative_to(REPO): len(p.read_text().splitlines()) for p in REPO.glob("checklist_rewards/**/*.py")}
    assert {path: n for path, n in lengths.items() if n > 420} == {}


@pytest.mark.slow
def test_the_wheel_carries_prompts_recipes_and_the_pocket_model_and_works_alone(tmp_path):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=REPO, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        archive.extractall(tmp_path / "site")
    for name in (
        "_prompts/judges/item.md",
        "_recipes/demo.py",
        "_recipes/pocket/world.py",
        "pocket/model.safetensors",
    ):
        assert f"checklist_rewards/{name}" in names
    assert sum(size for name, size in sizes.items() if "/pocket/" in name) < 12 * 2**20
    code = (
        "import checklist_rewards, sys\n"
        "from checklist_rewards.prompts import load_prompt\n"
        "from checklist_rewards import ChecklistScorer\n"
        "assert sys.argv[1] in checklist_rewards.__file__\n"
        "load_prompt('judges/item', 'judge')\n"
        "ChecklistScorer('pocket', store=False).check()\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        check=True,
    )
