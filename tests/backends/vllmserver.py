"""vLLM's server as `python -m vllm.entrypoints.openai.api_server`, with its engine in a fork of it."""

import multiprocessing
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def engine_in_a_fork() -> Iterator[None]:
    """Engines that start here are forks. On a CPU, vLLM starts fresh processes: ten seconds of imports in each."""
    with patch("vllm.v1.engine.utils.get_mp_context", lambda: multiprocessing.get_context("fork")):
        yield


if __name__ == "__main__":
    with engine_in_a_fork():
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
