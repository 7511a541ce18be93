"""`demo`: runs `recipes/demo.py`, from the checkout or from inside the wheel."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import typer

import checklist_rewards
from checklist_rewards.errors import SampleError
from checklist_rewards.validation import import_extra

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}


def demo(context: typer.Context) -> None:
    """Run an end-to-end demo with the pocket model: checklists, GRPO, best-of-8 and a plot.

    Takes a few minutes on a few CPU cores, downloads nothing, and writes to runs/demo. All options are passed to
    recipes/demo.py; see **checklist-rewards demo -- --help**.

    **Example**

    ```
    checklist-rewards demo --output runs/demo
    ```
    """
    import_extra("matplotlib", "trl", extra="recipes")
    folder = recipes_dir()
    script = folder / "demo.py"
    sys.path.insert(0, str(folder))
    sys.argv = [str(script), *context.args]
    runpy.run_path(str(script), run_name="__main__")


def recipes_dir() -> Path:
    """The folder of the recipes: inside the wheel, or at the top of a source checkout.

    Raises:
        SampleError: If neither folder has the recipes.
    """
    package = Path(checklist_rewards.__file__).resolve().parent
    for folder in (package / "_recipes", package.parent / "recipes"):
        if (folder / "demo.py").is_file():
            return folder
    raise SampleError(f"recipes not found in {package} or {package.parent}; reinstall checklist-rewards.")
