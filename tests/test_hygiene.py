"""The house rules that tools can check: the rows' direction, lint, format, types, and what a wheel holds."""

import ast
import email
import importlib
import re
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
    [["lint-imports"], ["ruff", "check", "."], ["ruff", "format", "--check", "."]],
    ids=lambda command: command[0] + (command[1] if len(command) > 1 else ""),
)
def test_the_tools_find_nothing(command):
    """Without mypy, which takes a minute: `make lint` and the pre-commit hook run it."""
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_outgrows_one_idea():
    lengths = {p.relative_to(REPO): len(p.read_text().splitlines()) for p in REPO.glob("checklist_rewards/**/*.py")}
    assert {path: n for path, n in lengths.items() if n > 800} == {}


def test_no_module_imports_itself_through_others():
    import grimp

    graph = grimp.build_graph("checklist_rewards", cache_dir=None)  # includes imports inside functions
    cycles = {
        (importer, imported)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if graph.chain_exists(importer=imported, imported=importer)
    }
    assert set(cycles) == set()


def test_no_pattern_of_re_repeats_a_group_possessively():
    """Python 3.11 before 3.11.5 then keeps half of a group that does not match ("1，2" was 1.2). `regex` does not."""
    repeated = re.compile(r"\)([*+?]|\{\d*,?\d*\})\+")
    found = [
        f"{path.relative_to(REPO)}:{call.lineno}"
        for path in REPO.glob("checklist_rewards/**/*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("re.")
        for part in ast.walk(call)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and repeated.search(part.value)
    ]
    assert found == []


@pytest.mark.slow
def test_the_page_on_pypi_has_authors_and_classifiers_and_a_description_without_relative_targets(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Author"] == "The checklist-rewards authors"
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Description-Content-Type"] == "text/markdown"
    assert "Programming Language :: Python :: 3.11" in metadata.get_all("Classifier")
    description = metadata.get_payload()
    assert description.startswith("# checklist-rewards\n") and description.rstrip().endswith("NOTICE")
    targets = re.findall(r"\]\(([^)\s]*)", description) + re.findall(r"""(?:src|href)=["']([^"']*)""", description)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


@pytest.mark.slow
def test_the_wheel_carries_prompts_recipes_and_the_pocket_model_and_works_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        archive.extractall(tmp_path / "site")
    for name in (
        "_prompts/judges/item.md",
        "_recipes/demo.py",
        "_recipes/pocket/world.py",
        "pocket/model.safetensors",
        "english_encoder/difference.safetensors",
        "english_writer/adapter_model.safetensors",
        "py.typed",
        "ui/page/index.html",
        "ui/page/main.js",
    ):
        assert f"checklist_rewards/{name}" in names
    assert sum(size for name, size in sizes.items() if "/pocket/" in name) < 12 * 2**20
    code = (
        "import checklist_rewards, sys\n"
        "from checklist_rewards.prompts import load_prompt\n"
        "from checklist_rewards import ChecklistScorer\n"
        "assert sys.argv[1] in checklist_rewards.__file__\n"
        "load_prompt('judges/item', 'judge')\n"
        "ChecklistScorer('pocket', store=False).validate()\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        check=True,
    )


def test_recipes_import_only_names_that_exist():
    """Most recipes are too slow to run here."""
    names = {}
    for path in sorted(REPO.glob("recipes/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "checklist_rewards":
                names |= {(str(node.module), alias.name): str(path.relative_to(REPO)) for alias in node.names}
    assert {path: name for name, path in names.items() if not exists(*name)} == {}


def exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ImportError:
        return False
