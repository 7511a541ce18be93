"""A model that is in memory already, as an engine: the reference of a trainer, or any causal language model.

    >>> engine = Engine.of_model(policy, tokenizer)  # doctest: +SKIP
    >>> reward = ChecklistReward(model=engine)  # doctest: +SKIP

A read leaves the model as it was ([`frozen`]): no gradient is kept, and training modes, adapters and the state of all
random generators are those before the read, also after an error. Layers are in evaluation mode during a read. Adapters
are switched off, unless one is named: the base weights answer. The precision is that of the model's own forward pass.

The identity of the model, under which its reads are stored, is that of the folder or Hub model that it was loaded
from, in the precision in which it computes, if the weights and the tokenizer in memory are those of the files. So a
later run with the same base and precision, in any engine of the package, needs no second read. Otherwise (merged
adapters, trained weights, quantization) it is a hash of the weights in memory ([`weights_hash`]).

Where a forward pass is collective, because each rank holds a part of the weights (FSDP, ZeRO-3), all ranks must make
the same number of passes. There, no prefix is kept, the ranks put the rows of their reads together and share them
evenly, and a rank without a row reads a short row whose result is dropped ([`LiveBackend.together`]).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import AutoConfig

from checklist_rewards.backends.base import Answer, Arrived, Messages, ReadGroup, Reply, Sampling, Usage
from checklist_rewards.backends.inputs import Past, base_of
from checklist_rewards.backends.models import POCKET, model_folder, model_identity, pocket_dir, vision_class
from checklist_rewards.backends.packaged import ENGLISH_ENCODER, PACKAGED, packaged_folder
from checklist_rewards.backends.tokens import ChatTokenizer, Forms, chat_tokenizer, load_chat_tokenizer
from checklist_rewards.backends.transformers import Found, TransformersBackend, placed
from checklist_rewards.backends.trees import MAX_BATCH_TOKENS, TreeRow, tree_rows
from checklist_rewards.backends.vision import Views, load_processor
from checklist_rewards.errors import ChecklistRewardsError, ModelError
from checklist_rewards.markers import tokenizer_of

_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_SAMPLED = 4096
"""Most values of a weight that are hashed."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""An integer type for each size of a value in bytes."""
_KNOWN = 0.9
"""Least share of a checkpoint's weights that must be found in memory."""
_WRAPPED = ("base_model.model.", "_orig_mod.", "_fsdp_wrapped_module.", "module.")
_INNER = (".base_layer.", ".original_module.")
_ROUND = "a round of reads"

Offer = tuple[str, str, Any]
"""What a rank says at the start of a round: [`_ROUND`], "rows", "done" or "failed", and rows with labels or a
message."""


@contextmanager
def frozen(model: Any, adapter: str | None = None) -> Iterator[None]:
    """Context manager in which a model answers with frozen weights, and after which it is as before. All adapters are
    off but the one that is named, if one is."""
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    trained = [(weight, weight.requires_grad) for weight in model.parameters()]
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())  # inference tensors in a model's caches would stop a later backward pass
        stack.callback(_restore, training, trained)
        for module in training:
            module.training = False
        if adapter is not None:
            active = model.active_adapter
            stack.callback(model.set_adapter, active)
            model.set_adapter(adapter)
        elif hasattr(model, "disable_adapter"):
            layers = [module for module in modules if getattr(module, "disable_adapters", None) is False]
            if (
                layers
            ):  # PEFT's own context manager walks over all modules five times, and then switches all of them on
                stack.enter_context(_off(layers))
            else:  # adapters that are not layers, such as prompts
                stack.enter_context(model.disable_adapter())
        elif getattr(model, "_hf_peft_config_loaded", False):
            stack.callback(model.enable_adapters)
            model.disable_adapters()
        yield
        if torch.is_autocast_enabled(next(model.parameters()).device.type):
            torch.clear_autocast_cache()  # copies of weights that were made without gradients


@contextmanager
def _off(layers: Sequence[Any]) -> Iterator[None]:
    """Context manager in which these adapter layers of PEFT give what their base layers give."""
    try:
        for layer in layers:
            layer.enable_adapters(False)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def _restore(training: Sequence[Any], trained: Sequence[tuple[Any, bool]]) -> None:
    for module in training:
        module.training = True
    for weight, requires_grad in trained:  # switching adapters off and on makes all of them trainable
        if weight.requires_grad != requires_grad:
            weight.requires_grad_(requires_grad)


class LiveBackend(TransformersBackend):
    """A causal language model in memory.

    Args:
        model (`PreTrainedModel` or `PeftModel`): The model. It may be in training.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): Its tokenizer. Defaults to that of the files that the model
            was loaded from.
        adapter (`str`, *optional*): Name of the adapter to read with. By default, all adapters are off.
        max_batch_tokens (`int`, *optional*, defaults to `8192`): As in [`TransformersBackend`].
        forward (callable, *optional*): The module to call in place of the model, if one wraps it.
        gathered (callable, *optional*): Gives the values of all ranks, in their order, for the value of this one.
            Required if the forward pass is collective.
        rank (`int`, *optional*, defaults to `0`): The number of this process among the ranks.
        spare (`PreTrainedTokenizerBase`, *optional*): The tokenizer if none is given and the files have none.

    Raises:
        ModelError: If the model cannot answer with frozen weights, or has no tokenizer.
    """

    name = "transformers"
    model_name: str

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        adapter: str | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        forward: Any = None,
        gathered: Callable[[Any], list[Any]] | None = None,
        rank: int = 0,
        spare: Any = None,
    ):
        self.adapter, self.model = adapter, model
        self.sharded = is_sharded(model) or (forward is not None and forward is not model)
        if self.sharded and gathered is None:
            raise ModelError(
                f"each rank has a part of the weights of {model_name(model)!r} (FSDP or ZeRO-3), so all ranks must "
                "read together; a reward with model='reference' does that in TRL's trainers."
            )
        self._gathered, self._rank = (gathered if self.sharded else None), rank
        self._lock = _locks.setdefault(model, threading.RLock())  # type: ignore[assignment]
        self._depth = 0
        check_frozen(model, adapter)
        self.model_name = model_name(model)
        tokens, self._weights = _identified(model, tokenizer, adapter, spare)
        self._model_type = base_of(model).config.model_type
        self.sees = type(base_of(model)).__name__ == vision_class(self._model_type)
        self._given_processor, self._spare_processor = tokenizer, spare
        if self.sees and hasattr(tokenizer, "image_processor"):
            self._weights = self._with_pixels(self._weights)
        self._use(model, tokens, max_batch_tokens, forward)
        self._first = self._watched()

    @property
    def identity(self) -> str:  # type: ignore[override]
        """The identity of the weights and of the precision in which they answer, which autocast may change."""
        if self._computes != vars(self.model).get("forward"):  # a trainer has wrapped it in autocast
            self._use(self.model, self.tokens, self.max_batch_tokens, self._given)
        return self._identity

    def _use(self, model: Any, tokens: ChatTokenizer, max_batch_tokens: int, forward: Any = None) -> None:
        super()._use(model, tokens, max_batch_tokens, forward)
        self._computes, self._given = vars(model).get("forward"), forward
        self._identity = self._weights(self.precision)

    def _with_pixels(self, weights: Callable[[torch.dtype], str]) -> Callable[[torch.dtype], str]:
        """The identity with a processor that makes other pixels than that of the model's files."""
        given = _pixels(self._given_processor)
        try:
            if _pixels(load_processor(str(model_folder(self.model_name)))) == given:
                return weights
        except (ChecklistRewardsError, OSError, ValueError):  # not loaded from files
            pass
        return lambda precision: _hashed(weights(precision), given)

    def _processor(self) -> Any:
        """The processor that was given with the model; otherwise that of its files, or of the trainer."""
        if hasattr(self._given_processor, "image_processor"):
            return self._given_processor
        try:
            return load_processor(str(model_folder(self.model_name)))
        except (ChecklistRewardsError, OSError, ValueError):
            if not hasattr(self._spare_processor, "image_processor"):
                raise
            return self._spare_processor

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Context manager for forward passes: one thread at a time, with frozen weights."""
        with self._lock:
            if self._depth:  # inside a read, which has frozen the model for all of its passes
                yield
                return
            self._depth += 1
            try:
                with frozen(self.model, self.adapter):
                    yield
            finally:
                self._depth -= 1

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Compute the log-probabilities of the labels; see [`TransformersBackend.read`]. If the forward pass is
        collective, only within [`together`]."""
        self._check_weights()
        if self._gathered is not None and any(group.sees for group in groups):
            raise ModelError(
                f"each rank has a part of the weights of {self.model_name!r} (FSDP or ZeRO-3), so they cannot read "
                "prompts with images; name a judge of its own, or judge by text alone with images='ignore'."
            )
        with self.in_turn():
            return super().read(groups, labels)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample replies; see [`TransformersBackend.generate`]."""
        self._check_weights()
        return super().generate(prompts, sampling, arrived)

    def _check_weights(self) -> None:
        """Raise [`ModelError`] if the weights are no longer those of `identity`."""
        check_frozen(self.model, self.adapter)
        if self._watched() != self._first:
            of_adapter = "" if self.adapter is None else f" with the adapter {self.adapter!r}"
            raise ModelError(
                f"the weights of {self.model_name!r}{of_adapter} have changed since this engine was created, so it is "
                "no longer the same judge; train another adapter, or pass a copy."
            )

    def _watched(self) -> dict[str, int]:
        """A checksum of each weight that may be trained: those of the adapter to read with, and of the model if it has
        no adapters. The base weights under adapters are frozen. Nothing if each rank has a part of the weights."""
        configs = getattr(self.model, "peft_config", None) or {}
        if self.sharded or (configs and self.adapter is None):
            return {}
        return {
            name: _checksum(weight)
            for name, weight in self.model.named_parameters()
            if not configs or _of_adapter(name, [self.adapter])
        }

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context manager for reads of all ranks, if the forward pass is collective. All ranks must enter it equally
        often; it ends when no rank has anything left to read. If a rank fails in it, all raise [`ModelError`]."""
        if self._gathered is None:
            yield
            return
        try:
            yield
        except BaseException as error:
            if not isinstance(error, OtherRankError):
                self._gathered((_ROUND, "failed", str(error) or type(error).__name__))
            raise
        while self._round("done", None) is not None:
            pass

    def _answered(
        self, rows: Sequence[TreeRow[Any]], forms: Forms, past: Past | None = None, views: Views | None = None
    ) -> tuple[Found, int]:
        if self._gathered is None:
            return super()._answered(rows, forms, past, views)
        answers = self._round("rows", (rows, tuple(forms)))
        assert answers is not None
        return placed(rows, answers), sum(len(row.ids) for row in rows)

    def _round(self, kind: str, asked: Any) -> list[list[Answer]] | None:
        """Read the rows of all ranks together. Returns the reads of each row of this rank; None if no rank asks."""
        assert self._gathered is not None
        offers: list[Offer] = self._gathered((_ROUND, kind, asked))
        for number, offer in enumerate(offers):
            if not isinstance(offer, tuple) or len(offer) != 3 or offer[0] != _ROUND:
                raise OtherRankError(f"rank {number} did not take part in the reads of the reference model.")
            if offer[1] == "failed":
                raise OtherRankError(f"rank {number} failed: {offer[2]}")
        jobs = [
            (number, place, row, offer[2][1])
            for number, offer in enumerate(offers)
            if offer[1] == "rows"
            for place, row in enumerate(offer[2][0])
        ]
        if not any(offer[1] == "rows" for offer in offers):
            return None
        jobs.sort(key=lambda job: (job[3], self._kind(job[2]), -len(job[2].ids)))
        batches = [
            batch
            for _, alike in groupby(jobs, key=lambda job: job[3])
            for batch in self._batches(
                list(alike), lambda job: len(job[2].ids), self._costs.batch, lambda job: self._kind(job[2])
            )
        ]
        ranks, mine = len(offers), self._rank
        found: dict[tuple[int, int], list[tuple[float, ...]]] = {}
        with self.in_turn():
            for number in range(0, len(batches), ranks):
                batch = batches[number + mine] if number + mine < len(batches) else None
                if batch is None:
                    self._label_logprobs(list(tree_rows([([0], [([], None)])], 1)), ((0,),))
                    continue
                logprobs = iter(self._label_logprobs([job[2] for job in batch], batch[0][3]).tolist())
                for rank, place, row, _ in batch:
                    found[rank, place] = [tuple(next(logprobs)) for _ in row.values]
        merged = {place: logprobs for theirs in self._gathered(found) for place, logprobs in theirs.items()}
        count = len(asked[0]) if kind == "rows" else 0
        return [[Answer(logprobs) for logprobs in merged[mine, place]] for place in range(count)]


class OtherRankError(ModelError):
    """Another rank has failed."""


def is_sharded(model: Any) -> bool:
    """Whether ranks have parts of the weights, so that a forward pass is collective (FSDP, ZeRO-3)."""
    return any(hasattr(weight, "ds_id") or hasattr(weight, "full_tensor") for weight in model.parameters())


def check_frozen(model: Any, adapter: str | None = None) -> None:
    """Raise [`ModelError`] if a model that is being trained has no frozen weights to read with: switching its adapters
    off would not give the weights that it started from."""
    configs = getattr(model, "peft_config", None) or {}
    if adapter is not None and adapter not in configs:
        raise ModelError(f"the model has no adapter {adapter!r}, only {', '.join(configs) or 'none'}.")
    biased = [name for name, config in configs.items() if getattr(config, "bias", "none") != "none"]
    if biased and adapter is None:
        raise ModelError(
            f"the adapter {biased[0]!r} trains biases of the base model (bias={configs[biased[0]].bias!r}), so the "
            "base model changes during training and cannot be the judge; use bias='none'."
        )
    own = [
        name for name, weight in model.named_parameters() if weight.requires_grad and not _of_adapter(name, configs)
    ]
    if configs and own:
        raise ModelError(
            f"the weight {own[0]} of the base model is trained, so the base model changes during training and cannot "
            "be the judge; train adapters only."
        )


def model_name(model: Any) -> str:
    """The name under which a model in memory was loaded: "pocket", a packaged name, a folder or a Hub id."""
    name = str(getattr(model.config, "_name_or_path", "") or "")
    if not name:
        return type(base_of(model)).__name__
    known = {str(pocket_dir()): POCKET}
    known |= {str(_folder(packaged)): packaged for packaged in PACKAGED if packaged != ENGLISH_ENCODER}
    return known.get(str(Path(name).resolve()), name)


def _folder(packaged: str) -> Path | None:
    try:
        return packaged_folder(packaged)
    except ModelError:  # its packages are not installed
        return None


def _identified(
    model: Any, tokenizer: Any, adapter: str | None, spare: Any = None
) -> tuple[ChatTokenizer, Callable[[torch.dtype], str]]:
    """The tokenizer of a model in memory, and the identity of both for a precision in which it computes."""
    name, revision = model_name(model), getattr(model.config, "_commit_hash", None)
    given, spare = map(tokenizer_of, (tokenizer, spare))
    try:
        folder = model_folder(name, revision)
        filed = load_chat_tokenizer(str(folder))
    except (ChecklistRewardsError, OSError, ValueError):  # not loaded from files, or they have no tokenizer
        if given is None and spare is None:
            raise ModelError(f"{name!r} has no tokenizer in its files; pass the tokenizer.") from None
        tokens = chat_tokenizer(spare if given is None else given)
        return tokens, partial(_memory_identity, model, tokens, weights_hash(model, adapter))
    tokens = filed if given is None or _rules(chat_tokenizer(given)) == _rules(filed) else chat_tokenizer(given)
    if tokens is filed and adapter is None and not _unseen(model) and _same_weights(model, folder):
        return tokens, partial(_file_identity, model, name, folder)
    return tokens, partial(_memory_identity, model, tokens, weights_hash(model, adapter))


def _file_identity(model: Any, name: str, folder: Path, precision: torch.dtype) -> str:
    """That of the transformers engine for a model's files, in this precision and on this device."""
    cpu = model.get_input_embeddings().weight.device.type == "cpu"
    usual = torch.float32 if cpu else AutoConfig.from_pretrained(folder).get_text_config().dtype or torch.float32
    settings = {"revision": getattr(model.config, "_commit_hash", None)}
    settings["dtype"] = None if precision == usual else str(precision).removeprefix("torch.")
    return model_identity(name, {key: value for key, value in settings.items() if value is not None})


def _memory_identity(model: Any, tokens: ChatTokenizer, weights: str, precision: torch.dtype) -> str:
    return _hashed(weights, _rules(tokens), *([] if precision == model.dtype else [str(precision)]))


def weights_hash(model: Any, adapter: str | None = None) -> str:
    """A hash of the weights in memory, and of those of a named adapter: shapes, precisions, sums and up to 4,096
    values of each. If the ranks hold parts of the weights that cannot be put together here (FSDP 1, ZeRO-3), a hash of
    their names and of the name of the model."""
    configs = getattr(model, "peft_config", None) or {}
    digest = hashlib.sha256(repr(getattr(model.config, "quantization_config", None)).encode())
    for name, weight in sorted(model.named_parameters()):
        others = [other for other in configs if other != adapter]
        if _of_adapter(name, others):
            continue
        digest.update(f"{_plain(name)} {weight.dtype}".encode())
        if _unseen(model):
            digest.update(model_name(model).encode())
            continue
        values = _whole(weight).detach().flatten()
        step = -(-values.numel() // _SAMPLED) or 1
        total = values.sum(dtype=torch.float64) if values.is_floating_point() else values.sum()
        sample = values[::step].to("cpu")
        digest.update(f"{tuple(weight.shape)} {total.item()!r}".encode())
        digest.update(sample.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def _same_weights(model: Any, folder: Path) -> bool:
    """Whether the weights in memory are those of a model's files."""
    from safetensors import SafetensorError, safe_open

    configs = getattr(model, "peft_config", None) or {}
    live = {_plain(name): weight for name, weight in model.named_parameters() if not _of_adapter(name, configs)}
    with suppress(Exception):  # conversions of some architectures and quantizers cannot be reverted
        from transformers.core_model_loading import revert_weight_conversion

        live = revert_weight_conversion(base_of(model), live)
    total = found = 0
    try:
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    total += 1
                    weight = live.get(name)
                    if weight is None:
                        continue
                    stored = tensors.get_slice(name)
                    if list(stored.get_shape()) != list(weight.shape):
                        return False
                    if not torch.equal(stored[...].to(weight.dtype), _whole(weight).detach().to("cpu")):
                        return False
                    found += 1
    except (OSError, SafetensorError):
        return False
    return total > 0 and found >= _KNOWN * total


def _unseen(model: Any) -> bool:
    """Whether the weights of a model are parts that cannot be put together here."""
    return any(hasattr(weight, "ds_id") for weight in model.parameters()) or any(
        type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()
    )


def _whole(weight: Any) -> torch.Tensor:
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def _checksum(weight: Any) -> int:
    """The sum of the bits of all values, which does not depend on the order of summation. 0 for a weight that is not
    in memory (offloading)."""
    if weight.is_meta:
        return 0
    return int(weight.detach().contiguous().view(_INTEGERS[weight.element_size()]).sum(dtype=torch.int64))


def _plain(name: str) -> str:
    """The name of a weight as in the files of its model."""
    for wrapped in _WRAPPED:
        name = name.replace(wrapped, "") if wrapped != "module." else name.removeprefix(wrapped)
    for inner in _INNER:
        name = name.replace(inner, ".")
    return name


def _of_adapter(name: str, adapters: Any) -> bool:
    """Whether a weight belongs to one of these adapters. PEFT puts the adapter's name into that of the weight."""
    return not set(adapters).isdisjoint(name.split("."))


def _pixels(processor: Any) -> str:
    """What decides how a processor turns an image into pixels, as text."""
    return json.dumps(processor.image_processor.to_dict(), sort_keys=True, default=str)


def _rules(tokens: ChatTokenizer) -> str:
    """What decides how a tokenizer turns a prompt into ids, as text."""
    backend = getattr(tokens.tokenizer, "backend_tokenizer", None)
    vocabulary = sorted(tokens.tokenizer.get_vocab().items()) if backend is None else backend.to_str()
    return f"{vocabulary}\0{tokens.tokenizer.chat_template}\0{sorted(tokens.encoder.control)}"


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
