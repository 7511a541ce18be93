"""Names of models: where a name points, and the identity that stored reads depend on. No engine is loaded here.

The commit of a Hub model is looked up once per process; engines load that commit, so what is stored under it was read
from it, whatever is pushed in between.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ModelError

POCKET = "pocket"
_WHOLE = 64 * 2**20
_FILES = ("*.safetensors", "*.bin", "*.gguf", "*.json", "*.jinja", "*.model", "*.txt")

_NEUTRAL = frozenset(
    # transformers
    "max_batch_tokens device_map max_memory offload_folder offload_buffers offload_state_dict low_cpu_mem_usage "
    "use_safetensors cache_dir local_files_only token force_download "
    # vLLM
    "tensor_parallel_size pipeline_parallel_size data_parallel_size gpu_memory_utilization kv_cache_memory_bytes "
    "swap_space cpu_offload_gb enable_sleep_mode enforce_eager enable_prefix_caching block_size max_num_seqs "
    "max_num_batched_tokens max_model_len max_lora_rank max_loras enable_lora distributed_executor_backend "
    "load_format download_dir hf_token disable_log_stats use_tqdm_on_load disable_custom_all_reduce "
    # servers
    "concurrency requests_per_minute tokens_per_minute timeout deadline attempts pause failures patience".split()
)
"""Settings of engines that change where and how fast an answer is computed, and not the answer."""


def pocket_dir() -> Path:
    """The folder of the packaged pocket model."""
    return Path(__file__).resolve().parent.parent / "pocket"


def resolve_model(model: str | Path, revision: str | None = None) -> str:
    """Turn a model's name into a local folder or a Hub id, without loading anything.

    Args:
        model (`str` or `Path`): "pocket", a local folder with a `config.json`, or a Hub id ("org/name").
        revision (`str`, *optional*): a branch, tag or commit of a Hub model.

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
    hub_commit(str(model), revision)
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


def model_identity(model: str | Path, settings: Mapping[str, Any] | None = None) -> str:
    """Hash that changes whenever the answers may.

    A Hub model is its commit. A local folder is the content of its files; of a weight file above 64 MB only its size,
    modification time, first and last MB are hashed, so that identifying a large model takes no time.

    Args:
        model (`str` or `Path`): see [`resolve_model`].
        settings (mapping, *optional*): what the engine is loaded with. `revision` is part of the commit, an `adapter`
            counts by its content, and every other setting counts unless it is known to change speed or memory only.

    Raises:
        ModelError: if there is no such model or adapter.
    """
    settings = dict(settings or {})
    revision, adapter = settings.pop("revision", None), settings.pop("adapter", None)
    resolved = resolve_model(model, revision)
    parts = [_folder_hash(resolved) if Path(resolved).is_dir() else f"{resolved}@{hub_commit(resolved, revision)}"]
    if adapter is not None:
        parts.append(f"adapter {_folder_hash(adapter_dir(adapter))}")
    told = {name: settings[name] for name in sorted(settings) if name not in _NEUTRAL}
    if told:
        parts.append(json.dumps(told, sort_keys=True, default=str))
    return parts[0] if len(parts) == 1 else hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def adapter_dir(adapter: str | Path) -> str:
    """The folder of a LoRA adapter. Raises [`ModelError`] if it holds none."""
    path = Path(adapter).expanduser()
    if not (path / "adapter_config.json").is_file():
        raise ModelError(f"adapter={str(adapter)!r} is not a folder with an adapter_config.json.")
    return str(path.resolve())


def _folder_hash(folder: str) -> str:
    digest = hashlib.sha256()
    for file in sorted({file for pattern in _FILES for file in Path(folder).glob(pattern)}):
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


@functools.cache
def hub_commit(model: str, revision: str | None = None) -> str:
    """The commit of a Hub model, from the Hub or from its local cache. Raises [`ModelError`] if neither has it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(model, "config.json", revision=revision)).parent.name
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        at = "" if revision is None else f" at revision {revision!r}"
        raise ModelError(
            f"model {model!r}{at} was found neither as a folder nor on the Hub nor in its local cache "
            f"({type(error).__name__})."
        ) from error


def pinned(path: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an engine with the commit that [`model_identity`] names as `revision`, for a Hub model."""
    if Path(path).is_dir():
        return {name: value for name, value in settings.items() if name != "revision"}
    return {**settings, "revision": hub_commit(path, settings.get("revision"))}
