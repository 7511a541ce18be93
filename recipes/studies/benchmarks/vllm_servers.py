"""Real vLLM servers of the pocket model, for benchmarks on one machine."""

from __future__ import annotations

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
from dataclasses import dataclass
from pathlib import Path

from checklist_rewards.backends import pocket_dir
from checklist_rewards.backends.openai.served import counts_in

MODEL, UNNAMED = "judge", "unknown"
"""sglang-router 0.3 lists the model of a vLLM server as `unknown`, so the servers serve it under this name too."""
BLOCK = 32
"""vLLM's smallest block on this CPU backend that is a multiple of 32; tokens of an incomplete block are not cached."""
START_SECONDS = 300
_PORTS = (20000, 32000)


@dataclass
class Server:
    """A vLLM server of the pocket model, with all its processes in one session, and on one core if `core` is given."""

    port: int
    log: Path
    core: int | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The URL without a path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server; it is not ready yet."""
        command = ["nice", "-n", "5", sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(pocket_dir()), "--served-model-name", MODEL, UNNAMED, "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--enforce-eager", "--dtype", "float32", "--block-size", str(BLOCK)]
        command += ["--kv-cache-memory-bytes", str(2**28)]
        if self.core is not None:
            command = ["taskset", "--cpu-list", str(self.core), *command]
        # The development mode has a route that empties the prefix cache.
        extra = {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_SERVER_DEV_MODE": "1"}
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                command,
                env=os.environ | extra | {"OMP_NUM_THREADS": "1"},
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the server and its engine at once."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def counts(self) -> tuple[int, int]:
        """Prompt tokens since the start: all, and those from the prefix cache."""
        counts = counts_in(get(f"{self.address}/metrics"))
        assert counts is not None, "the server has no prefix cache counters"
        return int(counts.queries), int(counts.hits)


def get(url: str, method: str = "GET") -> str:
    """The body of a response."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as response:
        return str(response.read().decode())


def free_port() -> int:
    """A port that is free now, and that the system does not give to an outgoing connection later."""
    while True:
        port = random.randrange(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> float:
    """Wait until a server answers. Returns the seconds."""
    started = time.monotonic()
    while time.monotonic() - started < START_SECONDS:
        if process.poll() is not None:
            break
        with suppress(urllib.error.URLError, OSError):
            get(url)
            return time.monotonic() - started
        time.sleep(0.2)
    raise SystemExit(f"the server for {url} did not start:\n{log.read_text()[-2000:]}")


@contextmanager
def vllm_servers(folder: Path, count: int, *, pinned: bool = False) -> Iterator[list[Server]]:
    """Servers that are ready, each on a core of its own if `pinned`."""
    cores = sorted(os.sched_getaffinity(0))
    if pinned and len(cores) < count:
        raise SystemExit(f"{count} servers with a core each need {count} cores; this machine has {len(cores)}.")
    servers = [
        Server(free_port(), folder / f"server{number}.log", cores[number] if pinned else None)
        for number in range(count)
    ]
    try:
        for server in servers:
            server.start()
        for server in servers:
            assert server.process is not None
            wait_for(f"{server.address}/health", server.process, server.log)
        yield servers
    finally:
        for server in servers:
            if server.process is not None:
                server.kill()
