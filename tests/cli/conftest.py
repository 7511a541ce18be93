"""What tests of commands share; the harness is `tests/commands.py`."""

from pathlib import Path

import pytest


@pytest.fixture
def vlm(run):
    """The folder of a model that takes images, in the working folder."""
    Path("vlm").mkdir()
    Path("vlm/config.json").write_text('{"model_type": "smolvlm"}')
    return "vlm"
