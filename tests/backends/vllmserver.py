"""vLLM's server as `python -m vllm.entrypoints.openai.api_server`, with its engine in a fork of it."""

import multiprocessing
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def engine_in_a_fork() -> Iterator[None]:
    """Engines that start here are forks, and their workers too. On a CPU, vLLM starts fresh processes, which import
    for ten seconds."""

    def fork():
        return multiprocessing.get_context("fork")

    with (
        patch("vllm.v1.engine.utils.get_mp_context", fork),
        patch("vllm.v1.executor.multiproc_executor.get_mp_context", fork),
    ):
        yield


if __name__ == "__main__":
    with engine_in_a_fork():
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
