"""Commands in processes of their own, and scripts on two ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import HANG, REPO


def run(command: list[str], **environment: str) -> None:
    """Run a command to its end. What it wrote is shown if it fails."""
    paths = os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=10 * HANG,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def on_two_ranks(script: str, folder: Path) -> list[dict]:
    """Run a script of `tests/` under torchrun on two ranks of the CPU, with `folder` as its argument.

    Returns what each rank wrote to `<rank>.json` in the folder.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    run([*torchrun, str(REPO / "tests" / script), str(folder)], ACCELERATE_USE_CPU="true")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
