"""Stands in for vLLM: its processes, and no model.

As in vLLM, the engine is a process of its own that multiprocessing waits for at exit, and has a worker process, which
does not notice that the engine was killed. A finalizer stops both. Every label is equally probable.

With `STANDIN_VLLM_WAITS=load` or `generate`, loading or a step does not return. `STANDIN_VLLM_LOG` is the file in
which each engine writes that it is ready.
"""

import multiprocessing
import os
import signal
import time
import weakref
from math import log
from pathlib import Path
from types import SimpleNamespace

REPLY = '{"questions": [{"question": "Does the text mention rain?", "weight": 100}]}'


class LLM:
    def __init__(self, path, **_):
        context = multiprocessing.get_context("spawn")
        ready, waits = context.Pipe(duplex=False)
        process = context.Process(target=_engine, args=(waits,), name="EngineCore")
        process.start()
        self._finalizer = weakref.finalize(self, _stop, process)
        ready.recv()
        self.model_config = SimpleNamespace(
            tokenizer=path,
            tokenizer_revision=None,
            trust_remote_code=False,
            max_model_len=2048,
            hf_text_config=SimpleNamespace(max_position_embeddings=2048),
        )
        limits = SimpleNamespace(max_num_batched_tokens=2**20)
        self.llm_engine = SimpleNamespace(
            engine_core=SimpleNamespace(shutdown=self._finalizer),
            vllm_config=SimpleNamespace(scheduler_config=limits),
            step=self._step,
        )
        self._waiting = []
        _reached("load")

    def enqueue(self, prompts, params, **_):
        for number, own in enumerate(params):
            outputs = [self._read(own.logprob_token_ids)] if own.logprob_token_ids else [self._reply()] * own.n
            request = SimpleNamespace(request_id=str(number), finished=True, outputs=outputs, num_cached_tokens=0)
            self._waiting.append(request)
        return [f"{number}-0" for number in range(len(prompts))]

    def _read(self, ids):
        even = SimpleNamespace(logprob=-log(len(ids)))
        return SimpleNamespace(logprobs=[dict.fromkeys(ids, even)], finish_reason="length")

    def _reply(self):
        from transformers import AutoTokenizer

        written = AutoTokenizer.from_pretrained(self.model_config.tokenizer)(REPLY).input_ids
        return SimpleNamespace(token_ids=[*written, 0], finish_reason="stop")

    def _step(self):
        _reached("generate")
        waiting, self._waiting = self._waiting, []
        return waiting


class SamplingParams(SimpleNamespace):
    logprob_token_ids = seed = None
    n = 1


class TokensPrompt(SimpleNamespace):
    pass


def _reached(place):
    with Path(os.environ["STANDIN_VLLM_LOG"]).open("a") as log_file:
        log_file.write(f"{place}\n")
    if os.environ.get("STANDIN_VLLM_WAITS") == place:
        time.sleep(600)


def _engine(waits):
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    worker.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end(*_):
        worker.terminate()
        worker.join()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    waits.send("ready")
    time.sleep(600)


def _stop(process):
    process.terminate()
    process.join()
