"""Names of models: where a name points, and the identity that stored reads depend on. No engine is loaded here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from checklist_rewards.errors import ModelError

POCKET = "pocket"
_WHOLE = 64 * 2**20
_FILES = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model", "*.txt")


def pocket_dir() -> Path:
    """The folder of the packaged pocket model."""
    return Path(__file__).resolve().parent.parent / "pocket"


def resolve_model(model: str | Path) -> str:
    """Turn a model's name into a local folder or a Hub id, without loading anything.

    Args:
        model (`str` or `Path`): "pocket", a local folder with a `config.json`, or a Hub id ("org/name").

    Raises:
        ModelError: if it is a path that does not exist, or a Hub id that neither the Hub nor its local cache has.
    """
    if str(model) == POCKET:
        return str(pocket_dir())
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"the folder {path} holds no model: it has no config.json.")
        return str(path.resolve())
    if (
        isinstance(model, Path)
        or path.is_absolute()
        or str(model).startswith((".", "~"))
        or str(model).count("/") != 1
    ):
        raise ModelError(
            f"there is no model at {str(model)!r}; give 'pocket', an existing folder, or a Hub id such as 'org/name'."
        )
    _snapshot(str(model))
    return str(model)


def is_encoder(model: str | Path) -> bool:
    """Whether a folder holds a cross-encoder, by its `config.json`. A Hub id is not looked up: False."""
    path = Path(model).expanduser() / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    architectures = config.get("architectures") if isinstance(config, dict) else None
    return any(str(name).endswith("ForSequenceClassification") for name in architectures or ())


def model_identity(model: str | Path) -> str:
    """Hash that changes whenever the model does.

    A Hub model is its commit. A local folder is the content of its files; of a weight file above 64 MB only its size,
    modification time, first and last MB are hashed, so that identifying a large model takes no time.
    """
    resolved = resolve_model(model)
    folder = Path(resolved)
    if not folder.is_dir():
        return f"{resolved}@{_snapshot(resolved)}"
    digest = hashlib.sha256()
    for file in sorted({file for pattern in _FILES for file in folder.glob(pattern)}):
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size <= _WHOLE:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
            else:
                digest.update(f"{file.stat().st_mtime_ns}".encode() + stream.read(2**20))
                stream.seek(-(2**20), 2)
                digest.update(stream.read())
    return digest.hexdigest()[:32]


def served_identity(model: str, base_url: str) -> str:
    """A served model is known only by its name and address."""
    return f"{model}@{base_url.rstrip('/')}"


def _snapshot(model: str) -> str:
    """The commit of a Hub model, from the Hub or from its local cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(model, "config.json")).parent.name
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise ModelError(
            f"model {model!r} is neither an existing folder nor a model that the Hub or its local cache gives "
            f"({type(error).__name__})."
        ) from error
