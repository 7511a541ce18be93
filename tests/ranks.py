"""Programs that train, in processes of their own, and scripts on two ranks: forks of `tests/zygote.py`."""

import json
import os
from pathlib import Path

from tests import zygote
from tests.conftest import HANG, REPO


def run(arguments: list[str], **environment: str) -> None:
    """Run a program to its end. What it wrote is shown if it fails."""
    paths = os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **environment}
    code, written = zygote.run(arguments, env=settings, timeout=10 * HANG)
    assert code == 0, f"{' '.join(map(str, arguments))} ended with {code}\n{written[-6000:]}"


def on_two_ranks(script: str, folder: Path, *more: str) -> list[dict]:
    """Run a script of `tests/` on two ranks of the CPU, as torchrun does, with `folder` and `more` as its arguments.

    Returns what each rank wrote to `<rank>.json` in the folder.
    """
    run(["-m", "tests.zygote", "2", str(REPO / "tests" / script), str(folder), *more], ACCELERATE_USE_CPU="true")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
