"""An engine and an OpenAI-compatible server with constant responses, to measure what stands before them.

`/v1/chat/completions` answers yes with log-probabilities, or with the JSON verdict that AutoChecklist or Autorubric
requests. `/v1/completions` returns, for every prompt of the list, the log-probabilities of the requested tokens, as in
vLLM. `/v1/systemone` answers every question of a request with yes. `/v1/models` lists the pocket model like a vLLM
server, `/chats/v1/models` like another server, so that every read is a chat request. The model "slow" answers after
0.3 seconds. HTTP is implemented here, because a framework would be slower than the measured clients.

    python -P recipes/studies/benchmarks/instant.py        # prints its port, and serves until stdin is closed
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from checklist_rewards.backends import (
    Answer,
    Arrived,
    Backend,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
    pocket_dir,
)

LATENCY = 0.3
SLOW = "slow"
YES, NO = -0.2, -1.9
LABEL_MASS = 0.9
"""Probability of all requested tokens together. The judge rejects less than half, and more than 1."""
_QUESTION = re.compile(rb"Q\d+: ")
_TOP = [{"token": "yes", "logprob": YES, "bytes": None}, {"token": "no", "logprob": NO, "bytes": None}]
_DECISION_USAGE = {"input_tokens": 400, "output_tokens": 8}
_USAGE = {"prompt_tokens": 400, "completion_tokens": 1, "total_tokens": 401}


class Instant(Backend):
    """An engine that answers yes to every read, with P(yes) = 0.85, and counts the reads.

    Args:
        chunk_reads (`int`): Most reads of a call.
    """

    identity = "instant"
    _READ = Answer((YES, NO))

    def __init__(self, chunk_reads: int):
        self.chunk_reads, self.reads = chunk_reads, 0

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Answer yes to every read."""
        self.reads += sum(len(group.tails) for group in groups)
        return [self._READ for group in groups for _ in group.tails], Usage()

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Not supported."""
        raise NotImplementedError("the benchmarks generate no text with this engine")


def chat(content: str, logprobs: bool) -> bytes:
    """A chat completion."""
    tokens = {"content": [{**_TOP[0], "top_logprobs": _TOP}]} if logprobs else None
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "logprobs": tokens, "finish_reason": "stop"}
    return http({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@lru_cache(maxsize=64)
def completions(prompts: int, ids: tuple[int, ...]) -> bytes:
    """A one-token completion for each of `prompts` prompts, with the log-probabilities of `ids`."""
    named = {f"token_id:{token}": math.log(LABEL_MASS / len(ids)) for token in ids}
    logprobs = {"top_logprobs": [named], "tokens": ["x"], "token_logprobs": [-1.0], "text_offset": [0]}
    choices = [{"index": n, "text": "x", "logprobs": logprobs, "finish_reason": "length"} for n in range(prompts)]
    return http({"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": choices})


@lru_cache(maxsize=64)
def decisions(names: tuple[str, ...]) -> bytes:
    """The decisions about the questions `names`, with their label masses."""
    answers = {name: {"type": "noul", "noul": 0.8} for name in names}
    masses = {name: {"label_mass": 0.97, "argmax_is_label": True} for name in names}
    return http({"model": "m", "answers": answers, "diagnostics": masses, "usage": _DECISION_USAGE})


def http(body: dict[str, Any]) -> bytes:
    """An HTTP response."""
    text = json.dumps(body | ({"usage": _USAGE} if "choices" in body else {})).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


@lru_cache(maxsize=64)
def _answers(count: int) -> bytes:
    answers = [{"question_index": number, "answer": "YES"} for number in range(1, count + 1)]
    return chat(json.dumps({"answers": answers}), False)


# The client is recognized by words of its request, and gets a prepared answer of the right form.
_VERDICT = chat('{"criterion_status": "MET", "explanation": "It is."}', False)
_ANSWER = chat('{"answer": "YES"}', False)
_LABEL = chat("yes", True)
_CARD = {"id": "instant", "object": "model", "root": str(pocket_dir()), "max_model_len": 8192}
_MODELS = http({"object": "list", "data": [_CARD | {"id": name} for name in ("instant", SLOW)]})
_CHATS = http({"object": "list", "data": [{"id": name, "object": "model"} for name in ("instant", SLOW)]})

_EMPTY = http({})


def answer(path: bytes, body: bytes) -> bytes:
    """The response to a request."""
    if b"/models" in path:
        return _CHATS if path.startswith(b"/chats") else _MODELS
    if path.endswith(b"/chat/completions"):
        if b"criterion_status" in body:
            return _VERDICT
        if b"question_index" in body:
            return _answers(len(_QUESTION.findall(body)))
        return _LABEL if b'"logprobs"' in body else _ANSWER
    if path.endswith(b"/systemone"):
        return decisions(tuple(json.loads(body)["questions"]))
    if not path.endswith(b"/completions"):
        return _EMPTY
    request = json.loads(body)
    return completions(len(request["prompt"]), tuple(request["logprob_token_ids"]))


class Connection(asyncio.Protocol):
    """The connection of a client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.buffer[:end])
            place = head.lower().find(b"content-length:")
            length = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            response = answer(head.split(b" ", 2)[1], body)
            if SLOW.encode() in body[:200]:
                asyncio.get_running_loop().call_later(LATENCY, self.send, response)
            else:
                self.send(response)

    def send(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)


async def serve() -> None:
    """Serve on a free local port until stdin is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
