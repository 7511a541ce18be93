"""Resolves model names and computes the identity of a model, on which stored reads depend. No engine is loaded here.

The commit of a Hub model is looked up once per process, and engines load that commit. So reads stored under a commit
come from it, even if the model is updated on the Hub during the run.

In a training process, a judge is loaded complete on every rank ([`load_whole`]). Trainers configure `from_pretrained`
to shard models: with DeepSpeed ZeRO-3, it splits every model among the ranks; with FSDP and
`FSDP_CPU_RAM_EFFICIENT_LOADING`, it fills all ranks but the first with zeros. The trainer never wraps the judge, so
the judge would keep the empty or zero weights.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checklist_rewards.backends.packaged import (
    ENGLISH_ENCODER,
    PACKAGED,
    POCKET,
    packaged_dir,
    packaged_key,
    progress_on_terminals,
    warn_of,
)
from checklist_rewards.errors import ModelError
from checklist_rewards.validation import unknown

logger = logging.getLogger(__name__)

UNNAMED = ""
"""The model of an engine for which the user named none. It is refused when an answer of it is needed."""
NO_MODEL = (
    "no model is named; pass model=... (--model in a command): a local folder, a Hub id, or with base_url the name of "
    "the model on the server. 'pocket' is a tiny model for demos and tests."
)
REFERENCE = "reference"
"""The name of the reference model of a trainer; see `reference.py`."""
NO_TRAINER = (
    "model='reference' is the reference model of a trainer, so it judges only in a reward of GRPOTrainer, RLOOTrainer "
    "or OnlineDPOTrainer, or in their evaluation. Elsewhere, name the base model itself, or pass a loaded model as "
    "Engine.of_model(model, tokenizer)."
)
_FSDP_LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"
_OFFLINE = "HF_HUB_OFFLINE"
_WHOLE = 64 * 2**20
_FILES = ("*.safetensors", "*.bin", "*.gguf", "*.json", "*.jinja", "*.model", "*.txt")
_CODE = ("**/*.py",)

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
"""Engine settings that affect where and how fast an answer is computed, but not the answer."""


def pocket_dir() -> Path:
    """The folder of the packaged pocket model."""
    return Path(__file__).resolve().parent.parent / "pocket"


def resolve_model(model: str | Path, revision: str | None = None) -> str:
    """Resolve the name of a model ("pocket", a packaged model, a local folder with a `config.json`, or a Hub id) to
    the absolute path of a folder, or a Hub id, without loading the model. Raises [`ModelError`] if the path does not
    exist, or if the Hub id, at this revision, is neither on the Hub nor in its local cache."""
    if str(model) == POCKET:
        warn_of(POCKET)
        return str(pocket_dir())
    if str(model) == UNNAMED:
        raise ModelError(NO_MODEL)
    if str(model) == REFERENCE:
        raise ModelError(NO_TRAINER)
    if model in PACKAGED:
        warn_of(str(model))
        return packaged_dir(str(model))
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"the folder {path} does not contain a model: it has no config.json.")
        return str(path.resolve())
    if (
        isinstance(model, Path)
        or path.is_absolute()
        or str(model).startswith((".", "~"))
        or str(model).count("/") != 1
    ):
        raise ModelError(
            f"model not found: {str(model)!r}; give {', '.join(map(repr, (POCKET, *PACKAGED)))}, an existing "
            "folder, or a Hub id such as 'org/name'."
        )
    hub_commit(str(model), revision)
    return str(model)


def model_folder(model: str | Path, revision: str | None = None) -> Path:
    """The folder with a model's files; for a Hub model, that of its local cache. Raises [`ModelError`] as
    [`resolve_model`] does."""
    resolved = resolve_model(model, revision)
    return Path(resolved) if Path(resolved).is_dir() else _hub_config(resolved, revision).parent


def config_of(model: str | Path, revision: str | None = None) -> dict[str, Any]:
    """The content of a model's `config.json`, read without loading the model. Raises [`ModelError`] as
    [`resolve_model`] does, or if the file is not valid."""
    path = model_folder(model, revision) / "config.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is not a valid model configuration ({error}).") from None


def is_encoder(model: str | Path) -> bool:
    """Whether a model is the packaged encoder, or a folder contains one according to its `config.json`. False for a
    Hub id, which is not looked up."""
    if model == ENGLISH_ENCODER:
        return True
    folder = Path(model).expanduser()
    try:
        config = config_of(folder) if folder.is_dir() else {}
    except ModelError:
        return False
    return any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or ())


def sees_images(model: str | Path, revision: str | None = None) -> bool:
    """Whether a model takes images, by the type in its `config.json`. Raises [`ModelError`] as [`config_of`]. Packaged
    models take none; they are not prepared for the answer."""
    return (
        str(model) not in (POCKET, *PACKAGED)
        and vision_class(config_of(model, revision).get("model_type")) is not None
    )


def vision_class(model_type: Any) -> str | None:
    """The class of transformers that takes images as tokens of its text, for a type of model. None if there is none:
    the text of Mllama attends to images in layers of their own, which only a server reads."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return None if model_type == "mllama" else MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(model_type)


def text_class(model_type: Any) -> str | None:
    """The class of transformers that continues text, for a type of model. None if there is none."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)


def model_identity(model: str | Path, settings: Mapping[str, Any] | None = None) -> str:
    """Compute a hash that changes whenever the model's answers may change.

    For a Hub model it depends on the commit. For a local folder it depends on the content of the files, including
    those of `subfolder` and, with `trust_remote_code`, the Python files; of a weight file above 64 MB, only the size,
    the modification time, and the first and last MB are hashed. For a packaged model it depends on the packages. Of
    the engine settings, an `adapter` and a local `tokenizer` are hashed by content, and all others are included unless
    they affect only speed or memory. Raises [`ModelError`] if the model or the adapter does not exist.
    """
    settings = dict(settings or {})
    revision, adapter = settings.pop("revision", None), settings.pop("adapter", None)
    parts = [_identity(model, revision)]
    if adapter is not None:
        parts.append(f"adapter {_folder_hash(adapter_dir(adapter))}")
    relevant = {name: settings[name] for name in sorted(settings) if name not in _NEUTRAL}
    if relevant:
        parts.append(json.dumps(relevant, sort_keys=True, default=str))
    parts += _other_files(model, relevant)
    return parts[0] if len(parts) == 1 else hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _identity(model: str | Path, revision: str | None) -> str:
    if model in PACKAGED:
        return hashlib.sha256(packaged_key(str(model)).encode()).hexdigest()[:32]
    resolved = resolve_model(model, revision)
    return _folder_hash(resolved) if Path(resolved).is_dir() else f"{resolved}@{hub_commit(resolved, revision)}"


def _other_files(model: str | Path, settings: Mapping[str, Any]) -> list[str]:
    """The hashes of the files that settings add to those at the top of a local model folder. Nothing for settings that
    add no file."""
    folders: list[tuple[str, Path, tuple[str, ...]]] = []
    folder = Path(model).expanduser()
    if model not in PACKAGED and folder.is_dir():
        if settings.get("trust_remote_code"):
            folders.append(("code", folder, _CODE))
        if subfolder := settings.get("subfolder"):
            folders.append(("subfolder", folder / str(subfolder), _FILES))
        if gguf := settings.get("gguf_file"):
            folders.append(("gguf_file", (folder / str(gguf)).parent, _FILES))
    if tokenizer := settings.get("tokenizer"):
        folders.append(("tokenizer", Path(str(tokenizer)).expanduser(), _FILES))
    found = [
        (name, _files(path, patterns), path) for name, path, patterns in folders if path != folder or name == "code"
    ]
    return [f"{name} {_hash_of(files, path)}" for name, files, path in found if files]


def adapter_dir(adapter: str | Path) -> str:
    """Resolve the folder of a LoRA adapter. Raises [`ModelError`] if it does not contain one."""
    path = Path(adapter).expanduser()
    if not (path / "adapter_config.json").is_file():
        raise ModelError(f"adapter={str(adapter)!r} is not a folder with an adapter_config.json.")
    return str(path.resolve())


def _folder_hash(folder: str) -> str:
    return _hash_of(_files(Path(folder), _FILES), Path(folder))


def _files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _hash_of(files: Sequence[Path], folder: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.relative_to(folder).as_posix()}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size <= _WHOLE:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
            else:
                digest.update(f"{file.stat().st_mtime_ns}".encode() + stream.read(2**20))
                stream.seek(-(2**20), 2)
                digest.update(stream.read())
    return digest.hexdigest()[:32]


def served_identity(model: str, addresses: Sequence[str]) -> str:
    """The identity of a served model: its name and the server's address. With several addresses, it is the name only:
    replicas can be added, moved and removed without a new read."""
    return f"{model}@{addresses[0].rstrip('/') if len(addresses) == 1 else 'replicas'}"


def decisions_identity(model: str, addresses: Sequence[str]) -> str:
    """The identity of a model behind a Decisions API, whose template is not that of its chat completions."""
    return f"{served_identity(model, addresses)}/decisions"


@functools.cache
def hub_commit(model: str, revision: str | None = None) -> str:
    """The commit of a Hub model, from the Hub or its local cache. Raises [`ModelError`] if it is in neither."""
    return _hub_config(model, revision).parent.name


def _hub_config(model: str, revision: str | None = None) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    with from_hub(model) as silence:
        try:
            return Path(hf_hub_download(model, "config.json", revision=revision))
        except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
            at = "" if revision is None else f" at revision {revision!r}"
            raise ModelError(
                f"model {model!r}{at} was found neither as a folder nor on the Hub nor in its local cache "
                f"({silence or _absence(error)})."
            ) from error


def _absence(error: Exception) -> str:
    """Why the Hub gives no file of a model."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):  # also a RepositoryNotFoundError
        return "it is gated: accept its terms on its page and log in with `hf auth login`"
    if isinstance(error, RepositoryNotFoundError):
        return "no such model; a private one requires `hf auth login`"
    return type(error).__name__


_SILENCE = 60
"""Seconds for which a Hub counts as responding or not, before it is contacted again."""


@contextmanager
def from_hub(model: str) -> Iterator[str]:
    """Context manager for loading a model that may be a Hub id. It gives the reason why nothing can be downloaded; ""
    if the Hub responds, or if `model` is a folder. If the Hub does not respond, files come from the local cache only,
    as with `HF_HUB_OFFLINE=1`, also in processes that are started inside. Otherwise huggingface_hub would repeat every
    request for half a minute."""
    from huggingface_hub import constants

    if Path(model).is_dir() or constants.HF_HUB_OFFLINE:
        yield "" if Path(model).is_dir() else "HF_HUB_OFFLINE is set"
        return
    reason = _silence(constants.ENDPOINT, int(time.monotonic() // _SILENCE))
    if not reason:
        yield ""
        return
    variable = os.environ.get(_OFFLINE)
    constants.HF_HUB_OFFLINE, os.environ[_OFFLINE] = True, "1"
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = False
        if variable is None:
            os.environ.pop(_OFFLINE, None)
        else:
            os.environ[_OFFLINE] = variable


@functools.lru_cache(maxsize=1)
def _silence(endpoint: str, _period: int) -> str:
    """Why the Hub does not respond; "" if it does."""
    import httpx
    from huggingface_hub import constants, get_session

    try:
        get_session().head(endpoint, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except httpx.TransportError as error:
        reason = f"{endpoint} does not respond: {str(error) or type(error).__name__}"
        _warn_once(reason)
        return reason
    return ""


@functools.cache
def _warn_once(reason: str) -> None:
    logger.warning("%s. Models are loaded from the local cache.", reason)


def check_settings(engine: str, settings: Iterable[str], allowed: Sequence[str]) -> None:
    """Raise [`ModelError`] for a setting that an engine does not have."""
    for name in settings:
        if name not in allowed:
            raise ModelError(unknown(f"engine setting of {engine}", name, allowed))


def pinned(path: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Engine settings in which `revision` is the commit used by [`model_identity`], for a Hub model."""
    if Path(path).is_dir():
        return {name: value for name, value in settings.items() if name != "revision"}
    return {**settings, "revision": hub_commit(path, settings.get("revision"))}


def load_whole(kind: Any, path: str, **options: Any) -> Any:
    """Call `kind.from_pretrained(path, **options)` with all weights on this rank, even if the trainer shards
    models."""
    warn_about_copies()
    with _unsharded(), from_hub(path), progress_on_terminals():
        return kind.from_pretrained(path, **options)


def load_adapted(kinds: Sequence[Any], path: str, adapter: str | None, options: Mapping[str, Any]) -> Any:
    """Load a model as [`load_whole`], with the first of some classes that takes all weights of a LoRA adapter. Raises
    [`ModelError`] if none does."""
    misfit = None
    for kind in kinds:
        loaded = load_whole(kind, path, **options)
        misfit = None if adapter is None else _add_adapter(loaded, adapter)
        if misfit is None:
            return loaded
        del loaded  # before the next is loaded
    raise ModelError(
        f"the adapter {adapter!r} cannot be loaded into the model {path!r}: {misfit}; if it belongs to this model, "
        "merge it with merge_and_unload of peft."
    )


def _add_adapter(model: Any, adapter: str) -> str | None:
    """Add an adapter to a model. Why not all of its weights are used; None if they are."""
    try:
        info = model.load_adapter(adapter_dir(adapter))
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        return "its weights have other sizes"
    if info is None:  # transformers 5.1 to 5.6 only log it
        return None
    lost = [*sorted(info.unexpected_keys), *sorted(info.missing_keys)]
    return f"{len(lost)} of its weights have no place or are missing, such as {lost[0]}" if lost else None


def warn_about_copies() -> None:
    """Warn, on the first rank only, if several training processes load the judge."""
    processes = int(os.environ.get("WORLD_SIZE") or 1)
    if processes > 1 and os.environ.get("RANK", "0") == "0":
        logger.warning(
            "each of the %d processes loads its own copy of the judge, in addition to the policy; to load it only "
            "once, serve it (vllm serve, or checklist-rewards serve) and pass its base_url.",
            processes,
        )


@contextmanager
def _unsharded() -> Iterator[None]:
    from transformers.integrations import deepspeed

    reference = deepspeed._hf_deepspeed_config_weak_ref
    config = None if reference is None else reference()
    efficient = os.environ.pop(_FSDP_LOADING, None)
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)
        if efficient is not None:
            os.environ[_FSDP_LOADING] = efficient
