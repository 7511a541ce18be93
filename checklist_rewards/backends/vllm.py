"""The vLLM engine: loaded once, with prefix caching, and exact log-probabilities of labels.

A read is a prompt of token ids with one token to generate and `logprob_token_ids`. vLLM then returns the
log-probabilities of these tokens from the full vocabulary, whatever their rank. (A top-k list may not contain a label,
and `allowed_token_ids` does not help, since log-probabilities are computed before masking.) Prompts are ordered by
prefix, so that the first of a group fills the cache. A prompt with images has the placeholder of each image and the
pixels, which vLLM processes itself; its tokens are counted with the model's processor (`vision.py`).

vLLM runs its engine in a child process, so a script that scores at its top level needs `if __name__ == "__main__":`.
The engine's processes end with this one: when Python exits ([`close_all`]), and by a guard process if this one is
killed.
"""

from __future__ import annotations

import ast
import atexit
import json
import logging
import multiprocessing
import multiprocessing.connection
import multiprocessing.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import cached_property
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from checklist_rewards.backends.base import (
    MISSED,
    Answer,
    Arrived,
    Backend,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
    is_over,
    reply_seed,
)
from checklist_rewards.backends.models import (
    adapter_dir,
    from_hub,
    model_identity,
    pinned,
    resolve_model,
    sees_images,
    warn_about_copies,
)
from checklist_rewards.backends.reads import TokenAnswer, read_prompts
from checklist_rewards.backends.tokens import Ids, load_chat_tokenizer
from checklist_rewards.backends.trees import Branch
from checklist_rewards.backends.vision import Eyes, ImageError, Views, load_processor
from checklist_rewards.errors import BackendError, ModelError, UnguardedScriptError
from checklist_rewards.images import has_images
from checklist_rewards.scores.reasons import Reason, Unanswered

logger = logging.getLogger(__name__)

Done = Callable[[int, Any], None]
"""Called with the index and the output of each prompt."""

# One-token reads are many short prompts: many sequences and many tokens per step use a GPU fully.
_GPU = {"max_num_seqs": 1024, "max_num_batched_tokens": 16384}
# The prefix cache works in blocks. 32 tokens is the smallest block size with full speed on CPU (default: 128).
_CPU = {"dtype": "float32", "enforce_eager": True, "block_size": 32}
_CPU_KV_CACHE_BYTES = 2**30

# Environment variables of the engine's processes, unless the user has set them. vLLM logs to stdout, which would mix
# with the output of this package.
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",
}
# Without this, eager mode still compiles a function of the sampler, which takes 20 s and needs a C++ compiler.
_UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}
_UNBOUND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)

_GUARD = """
import contextlib, select, signal, sys
parent, *engine = map(int, sys.argv[1:])
poll = select.poll()
poll.register(parent, select.POLLIN)
poll.poll()
for fd in engine:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)
"""

_open: weakref.WeakSet[VLLMBackend] = weakref.WeakSet()
_loading = threading.Lock()
"""One engine loads at a time: what its processes inherit (the environment, the filter), and which processes are its
own, holds for this process."""


def close_all() -> None:
    """Close all engines of this process ([`VLLMBackend.close`])."""
    for backend in list(_open):
        backend.close()


# Exit handlers run in reverse order of registration: before that of multiprocessing, which was registered when
# `multiprocessing.util` was imported above, and waits for all children. vLLM's own may run later.
atexit.register(close_all)


class VLLMBackend(Backend):
    """A language model in a vLLM engine, with or without vision.

    Args:
        model (`str`): "pocket", a folder or a Hub id.
        adapter (`str`, *optional*): The folder of a LoRA adapter, which is applied to every prompt.
        **settings: Arguments of `vllm.LLM`, such as `gpu_memory_utilization=0.3` together with a trainer,
            `tensor_parallel_size=2`, `quantization="fp8"` or `revision="v2"`. They override this package's defaults.
            With `enable_sleep_mode=True`, the engine sleeps between calls; see [`stay_awake`].

    Raises:
        ModelError: If the model cannot be loaded, or if a setting is unknown to vLLM.
    """

    chunk_reads = 4096
    in_process = True
    continues = True

    def __init__(self, model: str, *, adapter: str | None = None, **settings: Any):
        self.identity = model_identity(model, settings if adapter is None else {**settings, "adapter": adapter})
        path = resolve_model(model, settings.get("revision"))
        if set("*?[") & set(path):  # vLLM looks for the weights with a pattern
            raise ModelError(f"vLLM finds no weights in a folder with *, ? or [ in its path; rename {path!r}.")
        self.sees = sees_images(model, settings.get("revision"))
        self._path = path
        engine = pinned(path, settings)
        if "revision" in engine:
            engine.setdefault("tokenizer_revision", engine["revision"])
        self._adapter = None if adapter is None else adapter_dir(adapter)
        if self._adapter is not None:
            engine = {"enable_lora": True, "max_lora_rank": _lora_rank(self._adapter), **engine}
        self._refused_schemas: set[str] = set()
        self.sleeps = bool(engine.get("enable_sleep_mode"))
        self._users = 0
        self._counting = threading.Lock()
        self._lock = threading.Lock()  # trainers may score from several threads; vLLM accepts one call at a time
        _warn_about_sharing()
        try:
            with _loading, _ended_unless_loaded() as children:
                self.llm = _load(path, engine)
                if self._adapter is not None:  # now, not at the first call, when the files may have changed
                    self.llm.llm_engine.add_lora(self._lora())
                loaded = self.llm.model_config  # use the same tokenizer as the engine
                self.tokens = load_chat_tokenizer(
                    loaded.tokenizer, revision=loaded.tokenizer_revision, trust_remote_code=loaded.trust_remote_code
                )
        except ModelError:
            raise
        except Exception as error:  # vLLM raises many types of errors while loading
            raise ModelError(f"model {model!r} cannot be loaded with vLLM: {_short(error)}{_advice(error)}") from error
        from vllm.platforms import current_platform

        guard = _kill_after_us(children)
        self._close = weakref.finalize(self, _shut_down, os.getpid(), self.llm, _tree(children), guard)
        _open.add(self)
        _wake_if_killed(children, self.llm)
        config = self.llm.model_config
        self.limit: int = config.max_model_len
        # If vLLM has reduced the context to fit the memory, the limit depends on the machine, not on the model. Such a
        # read is not stored as too long, because a larger machine would answer it.
        self._reduced = self.limit < getattr(config.hf_text_config, "max_position_embeddings", self.limit)
        detail = f"over the engine's context of {self.limit} tokens" if self._reduced else ""
        self.over_limit = Unanswered(Reason.TOO_LONG, detail)
        # vLLM divides prompts that are longer than a step. On a CPU, vLLM 0.32 ends if it divides one that is sampled
        # with a seed: "CPU Generator does not use offset".
        self._most_at_once: int | None = None
        if current_platform.is_cpu():
            self._most_at_once = int(self.llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens)
        self._asleep = False
        self._sleep_if_unused()

    def close(self) -> None:
        """End the engine's processes. Later calls raise [`BackendError`]."""
        self._close()

    @contextmanager
    def stay_awake(self) -> Iterator[None]:
        """Keep the engine awake between the calls inside this context. An engine loaded with `enable_sleep_mode=True`
        sleeps between calls: its GPU memory is free for the policy, its weights are in CPU memory, and its prefix
        cache is cleared."""
        with self._counting:
            self._users += 1
        try:
            yield
        finally:
            with self._counting:
                self._users -= 1
                self._sleep_if_unused()

    def _wake(self) -> None:
        if self._asleep:
            self.llm.wake_up()
            self._asleep = False

    def _sleep_if_unused(self) -> None:
        if not self.sleeps or self._asleep or self._users:
            return
        try:
            self.llm.sleep(level=1)
            self._asleep = True
        except Exception as error:  # the answers are complete; a broken engine fails at the next call
            logger.warning("the judge's vLLM engine cannot be put to sleep: %s", _short(error))

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Compute the log-probabilities of the labels. Shared prefixes are computed once by the prefix cache."""
        over = Answer(None, self.over_limit, keep=not self._reduced)
        views = Views(self.eyes) if any(group.sees for group in groups) else None
        tokenized = self.tokens.groups(groups) if views is None else self.eyes.send(groups, views)

        def ask(branches: list[Branch[int]], ids: Ids) -> tuple[list[TokenAnswer], int]:
            return self._ask([[*prefix, *tail] for prefix, tails in branches for tail, _ in tails], ids, views)

        return read_prompts(self.tokens, groups, labels, ask, limit=self.limit, over_limit=over, tokenized=tokenized)

    @cached_property
    def eyes(self) -> Eyes:
        """Tokenizes prompts with images. Raises [`ModelError`] if the model does not see, or has no processor."""
        config = self.llm.model_config
        if not self.sees:
            raise ModelError(f"{type(config.hf_config).__name__} takes no images.")
        settings = {"trust_remote_code": True} if config.trust_remote_code else {}
        of_images = {} if config.multimodal_config is None else config.multimodal_config.mm_processor_kwargs or {}
        for name, value in of_images.items():
            settings |= value if name == "images_kwargs" else {name: value}
        return Eyes(self.tokens, load_processor(self._path, revision=config.revision, **settings), config.hf_config)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Sample replies with vLLM's continuous batching. `arrived` is called as each prompt finishes."""
        seen = any(has_images(message["content"]) for messages in prompts for message in messages)
        views = Views(self.eyes) if seen else None
        replies = [[Reply(None, unanswered=MISSED)] * sampling.n for _ in prompts]  # until they are done
        ids: dict[int, Ids] = {}
        for index, messages in enumerate(prompts):
            try:
                prompt = self.tokens.prompt(messages) if views is None else self.eyes.send_prompt(messages, views)
            except ImageError as error:
                replies[index] = [Reply(None, unanswered=Unanswered(Reason.BACKEND_ERROR, str(error)))] * sampling.n
                continue
            if len(prompt) < self.limit:
                ids[index] = prompt
            else:
                replies[index] = [Reply(None, unanswered=self.over_limit, keep=not self._reduced)] * sampling.n
        fitting = list(ids)

        def done(place: int, output: Any) -> None:
            index = fitting[place]
            if isinstance(output, BackendError):
                why = Unanswered(Reason.BACKEND_ERROR, str(output))
                replies[index] = [Reply(None, unanswered=why)] * sampling.n
            else:
                counts = [len(ids[index]), *[0] * (sampling.n - 1)]
                replies[index] = [self._reply(*sample) for sample in zip(output.outputs, counts, strict=True)]
            if arrived is not None:
                arrived(index, replies[index])

        if ids:
            self._sample(list(ids.values()), sampling, done, views)
        return replies

    def _sample(self, prompts: list[Ids], sampling: Sampling, done: Done, views: Views | None) -> None:
        """Sample replies. A schema that vLLM does not support is not enforced."""
        schema = None if sampling.schema in self._refused_schemas else sampling.schema
        if schema is None:
            self._stream(prompts, self._params(prompts, sampling, None, views), done, views)
            return
        failed: list[int] = []  # an engine may refuse a schema that vLLM has accepted, if it holds others already

        def sampled(place: int, output: Any) -> None:
            if isinstance(output, BackendError) or any(s.finish_reason == "error" for s in output.outputs):
                failed.append(place)
            else:
                done(place, output)

        why: object = "every reply ended with 'error'"
        try:
            self._stream(prompts, self._params(prompts, sampling, schema, views), sampled, views)
        except BackendError as error:
            failed, why = list(range(len(prompts))), error
        again = [prompts[place] for place in failed]
        # Fails too if it was not the schema.
        params = self._params(again, sampling, None, views)
        replied: list[int] = []

        def sampled_again(place: int, output: Any) -> None:
            if not isinstance(output, BackendError):
                replied.append(place)
            done(failed[place], output)

        self._stream(again, params, sampled_again, views)
        if replied and len(failed) == len(prompts):
            logger.warning("vLLM cannot enforce the JSON schema of the replies: %s", why)
            self._refused_schemas.add(schema)

    def _params(self, prompts: list[Ids], sampling: Sampling, schema: str | None, views: Views | None) -> list[Any]:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        return [
            SamplingParams(
                n=sampling.n,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=min(sampling.max_tokens, self.limit - len(prompt)),
                seed=reply_seed(sampling.seed, prompt if views is None else views.named(prompt)),
                detokenize=False,
                structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
            )
            for prompt in prompts
        ]

    def _ask(self, prompts: list[Ids], ids: Ids, views: Views | None = None) -> tuple[list[TokenAnswer], int]:
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=ids, detokenize=False)
        answers: list[TokenAnswer] = [MISSED] * len(prompts)
        computed = 0

        def done(place: int, output: Any) -> None:
            nonlocal computed
            if isinstance(output, BackendError):
                answers[place] = Unanswered(Reason.BACKEND_ERROR, str(output))
            else:
                answers[place] = _answer(output.outputs[0], ids)
                computed += len(prompts[place]) - (output.num_cached_tokens or 0)

        self._stream(prompts, [params] * len(prompts), done, views)
        return answers, computed

    def _lora(self) -> Any:
        if self._adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, self._adapter)

    def _stream(self, prompts: list[Ids], params: list[Any], done: Done, views: Views | None = None) -> None:
        """Call `done` with the index and output of each prompt as soon as it is finished. The output is an error for a
        prompt with images that vLLM refuses. `done` is not called for prompts that are not finished in time."""
        waves = list(_waves(prompts, params, self._most_at_once))
        while waves:
            wave = waves.pop(0)
            requests = _requests([prompts[place] for place in wave], views)
            try:
                self._stream_at_once(requests, [params[place] for place in wave], wave, done)
            except _RefusedError as error:
                if views is None:
                    raise
                if len(wave) == 1:
                    done(wave[0], error)
                else:
                    waves[:0] = [wave[: len(wave) // 2], wave[len(wave) // 2 :]]

    def _stream_at_once(self, requests: list[Any], params: list[Any], places: Sequence[int], done: Done) -> None:
        with self.stay_awake(), self._lock:
            try:
                self._wake()
                ids = self.llm.enqueue(requests, params, use_tqdm=False, lora_request=self._lora())
            except Exception as error:
                raise _failure(error) from error
            # An output has the id of its request; the engine's own id has a random suffix.
            waiting = {request.partition("-")[0]: place for place, request in zip(places, ids, strict=True)}
            try:
                while waiting and not is_over():
                    for output in self._step():
                        if output.finished and output.request_id in waiting:
                            done(waiting.pop(output.request_id), output)
            finally:
                if waiting:  # interrupted, or no time left: the remaining requests must not run in the next call
                    with suppress(Exception):
                        self.llm.llm_engine.abort_request(ids, internal=True)

    def _step(self) -> list[Any]:
        try:
            return self.llm.llm_engine.step()
        except Exception as error:
            raise BackendError(f"vLLM failed: {_short(error)}") from error

    def _reply(self, sample: Any, prompt_tokens: int) -> Reply:
        if sample.finish_reason not in ("stop", "length"):
            why = Unanswered(Reason.BACKEND_ERROR, f"vLLM ended the reply with {sample.finish_reason!r}")
            return Reply(None, unanswered=why)
        stopped = sample.finish_reason == "stop"  # the last token is the end-of-sequence token
        tokens = list(sample.token_ids)
        text = self.tokens.decode(tokens[:-1] if stopped else tokens)
        return Reply(text, sample.finish_reason, prompt_tokens=prompt_tokens, completion_tokens=len(tokens))


def _requests(prompts: Sequence[Ids], views: Views | None) -> list[Any]:
    """Prompts as vLLM takes them: ids with one placeholder per image, and the pixels, of which there is one object for
    all prompts. The hash of the pixels is the key of vLLM's cache of processed images, so it computes none itself."""
    from vllm import TokensPrompt

    pictures: dict[str, Any] = {}
    requests = []
    for prompt in prompts:
        ids, images = (prompt, []) if views is None else views.sent.get(tuple(prompt), (prompt, []))
        request = TokensPrompt(prompt_token_ids=ids)
        if images:
            for image in images:
                if image.key not in pictures:
                    pictures[image.key] = image.pillow
            request["multi_modal_data"] = {"image": [pictures[image.key] for image in images]}
            request["multi_modal_uuids"] = {"image": [image.key for image in images]}
        requests.append(request)
    return requests


def _answer(sample: Any, ids: Sequence[int]) -> TokenAnswer:
    if not sample.logprobs:  # aborted, for example because the KV cache is full
        return Unanswered(Reason.BACKEND_ERROR, f"vLLM ended the read with {sample.finish_reason!r}")
    next_token = sample.logprobs[0]
    return {token: next_token[token].logprob for token in ids}


def _lora_rank(adapter: str) -> int:
    """The rank of an adapter, rounded up to one that vLLM supports."""
    try:
        rank = int(json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"adapter={adapter!r}: adapter_config.json has no valid rank 'r' ({error}).") from error
    return next((size for size in _LORA_RANKS if size >= rank), rank)


def _waves(prompts: Sequence[Sequence[int]], params: Sequence[Any], most: int | None) -> Iterator[Sequence[int]]:
    """The indices of the prompts to sample at once, so that with their replies they fit one step of `most` tokens and
    none is divided. Of a prompt that is longer by itself, the seed is removed. Without seeds, or a limit: all at once.
    """
    if not prompts:
        return
    if most is None or all(own.seed is None for own in params):
        yield range(len(prompts))
        return
    wave: list[int] = []
    size = 0
    for place, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
        needed = own.n * (len(prompt) + 1)
        if needed > most:
            own.seed = None
            logger.warning(
                "a prompt of %d tokens is sampled without its seed: vLLM on a CPU divides prompts above %d tokens, "
                "which it cannot do with a seed (see max_num_batched_tokens).",
                len(prompt),
                most,
            )
        if wave and size + needed > most:
            yield wave
            wave, size = [], 0
        wave.append(place)
        size += needed
    yield wave


def _load(path: str, engine: Mapping[str, Any]) -> Any:
    if "logits" in str(mode := engine.get("logprobs_mode", "raw_logprobs")):
        raise ModelError(
            f"engine argument logprobs_mode={mode!r} returns logits, and labels are read from log-probabilities; omit "
            "it, or use 'raw_logprobs'."
        )
    with _environment(_QUIET):
        from vllm import LLM
        from vllm.platforms import current_platform
    defaults: dict[str, Any] = {
        "enable_prefix_caching": True,
        "max_model_len": -1,  # the model's maximum, or as much as fits the memory
        "use_tqdm_on_load": sys.stderr.isatty(),
    }
    environment = dict(_QUIET)
    if current_platform.is_cpu():
        environment |= _UNCOMPILED
        if "OMP_NUM_THREADS" in os.environ:
            environment |= _UNBOUND  # otherwise vLLM ignores the user's setting and uses all cores but one
        defaults |= _CPU
        if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
            defaults["kv_cache_memory_bytes"] = _CPU_KV_CACHE_BYTES
    else:
        defaults |= _GPU
    with from_hub(path), _environment(environment):
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") != "0" and (current_platform.is_cpu() or _spawns()):
            _refuse_unguarded_script()
        return LLM(path, **defaults | dict(engine))


def _spawns() -> bool:
    """Whether vLLM starts its engine as a fresh process, for example because CUDA is initialized, not as a fork."""
    from vllm.utils.system_utils import get_mp_context

    return bool(get_mp_context().get_start_method() == "spawn")


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the engine's processes start, and restore the environment afterwards: vLLM also
    sets variables while it loads (LD_PRELOAD, LOCAL_WORLD_SIZE, …), which would affect a trainer in this process."""
    before = dict(os.environ)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in os.environ.keys() | before.keys():
            if name not in before:
                del os.environ[name]
            elif os.environ.get(name) != before[name]:
                os.environ[name] = before[name]


@contextmanager
def _ended_unless_loaded() -> Iterator[list[BaseProcess]]:
    """Context manager that gives the processes that start in it, after it, and ends them if it is left by an error, an
    interruption, or SIGTERM where that would end this process at once."""
    before, children = set(multiprocessing.active_children()), list[BaseProcess]()
    in_main_thread = threading.current_thread() is threading.main_thread()
    catches = in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if catches:
        signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield children
        children += _started_since(before)
    except BaseException as error:
        _kill(_tree(_started_since(before)))
        if isinstance(error, _Terminated):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        if signal.getsignal(signal.SIGTERM) is _raise_terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _started_since(before: Set[BaseProcess]) -> list[BaseProcess]:
    """The child processes that vLLM has started since then. It names its processes; those of a data loader, which may
    start in another thread, have no name of their own."""
    children = [child for child in multiprocessing.active_children() if child not in before]
    return [child for child in children if not child.name.startswith(f"{type(child).__name__}-")]


class _Terminated(BaseException):
    """SIGTERM has arrived."""


def _raise_terminated(*_: Any) -> None:
    raise _Terminated


def _tree(children: Sequence[BaseProcess]) -> list[Any]:
    """The processes of an engine as objects of psutil: its children, and theirs."""
    import psutil

    found: list[Any] = []
    for child in children:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            found += [process, *process.children(recursive=True)]
    return found


def _kill(processes: Sequence[Any]) -> None:
    import psutil

    for process in processes:
        with suppress(psutil.NoSuchProcess):  # has ended, or another process has its number
            process.kill()


def _shut_down(owner: int, llm: Any, processes: Sequence[Any], guard: subprocess.Popen[bytes] | None) -> None:
    """End an engine. In a fork of the process that started it, do nothing."""
    if os.getpid() != owner:
        return
    with suppress(Exception):  # an engine that has failed is killed
        llm.llm_engine.engine_core.shutdown()
    _kill(processes)
    if guard is not None:
        guard.kill()
        guard.wait()


def _kill_after_us(children: Sequence[BaseProcess]) -> subprocess.Popen[bytes] | None:
    """Start a process that kills the processes of an engine when this one has ended for any reason."""
    if not children or not hasattr(os, "pidfd_open"):
        return None
    fds = [os.pidfd_open(os.getpid())]
    try:
        for process in _tree(children):
            with suppress(ProcessLookupError):
                fds.append(os.pidfd_open(process.pid))
        return subprocess.Popen(
            [sys.executable, "-ISc", _GUARD, *map(str, fds)],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            start_new_session=True,  # Ctrl-C is for the parent
        )
    finally:
        for fd in fds:
            os.close(fd)


def _wake_if_killed(children: Sequence[BaseProcess], llm: Any) -> None:
    """Let a call fail if the engine is killed, for example for lack of memory. vLLM itself would wait forever."""
    outputs = getattr(llm.llm_engine.engine_core, "outputs_queue", None)
    if not children or outputs is None:
        return

    def wait() -> None:
        multiprocessing.connection.wait([child.sentinel for child in children])
        outputs.put_nowait(RuntimeError("the engine's process has ended"))

    threading.Thread(target=wait, name="vllm-engine-watch", daemon=True).start()


def _advice(error: Exception) -> str:
    """What to do if the engine's process has ended. The reason is only in what it has written; most often, another
    process uses the GPU. vLLM reports that too only there."""
    if "root cause above" not in str(error):
        return ""
    return (
        ". If the messages above name memory: by default vLLM takes 92 % of a GPU, so together with a trainer or "
        "another process set gpu_memory_utilization below the share that is free, such as 0.3 (--engine-args "
        "gpu_memory_utilization=0.3)"
    )


class _RefusedError(BackendError):
    """vLLM has refused a call for one of its prompts, such as one with too many images, before computing any."""


def _failure(error: Exception) -> BackendError:
    """The error of a call, which vLLM may have refused with a ValueError or, later, with a class of its own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    refused = names & {"ValueError", "VLLMClientError"}
    return (_RefusedError if refused else BackendError)(f"vLLM failed: {_short(error)}")


def _short(error: Exception) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {error}", 400, placeholder=" …")


def _refuse_unguarded_script() -> None:
    """Raise [`UnguardedScriptError`] if the main script is at a line that a child process would run again. Without it,
    the child runs the whole script up to here, and vLLM then reports only that its engine has not started."""
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path is None or (spec is not None and spec.name.rpartition(".")[2] == "__main__"):
        return  # an interactive session, or a package that is run: these are not imported again
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        is_script = frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"
        if is_script and not _guarded(path, frame.f_lineno):
            raise UnguardedScriptError(
                f"vLLM starts its engine in a separate process, which imports {path} again: put the code that scores "
                f"(line {frame.f_lineno}) under `if __name__ == '__main__':`."
            )
        frame = frame.f_back


def _guarded(path: str, line: int) -> bool:
    """Whether a line of a script is under `if __name__ == "__main__":`, or cannot be found."""
    try:
        body = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return True
    statement = next((one for one in body if one.lineno <= line <= (one.end_lineno or one.lineno)), None)
    if not isinstance(statement, ast.If):
        return statement is None
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    return "__name__" in names


def _warn_about_sharing() -> None:
    warn_about_copies()
    if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0":
        logger.warning(
            "VLLM_ENABLE_V1_MULTIPROCESSING=0: the judge shares this process and vLLM's global state with all other "
            "engines in it; to separate them, serve the judge (vllm serve) and pass its base_url."
        )
