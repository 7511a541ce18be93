"""Servers in this process: the answer to every request is a function of the test, or is decided by its attributes."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any

from checklist_rewards.backends import pocket_dir
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai import client as loop
from tests.conftest import HANG

MODEL = SERVED_NAME = "judge"
SETTINGS = {"timeout": HANG, "attempts": 3, "pause": 0.01}
"""Of an engine on a server that fails."""
HASTY = {"timeout": 2.0, "attempts": 1}
"""Of one on a server that hangs: its sound answers are there long before, on a busy machine too."""
Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]
"""Called with the path and the body of a request; returns the status and the body of its response."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.respond(*self.server.get(self.path))

    def do_POST(self):
        self.server.headers.append(self.headers)
        self.respond(*self.server.post(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def respond(self, status, body):
        self.send_response(status)
        if status in (429, 503):
            self.send_header("retry-after-ms", "1")
        self.end_headers()
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        self.wfile.write(text.encode() if isinstance(text, str) else text)

    def log_message(self, *args):
        pass


class AnswerServer(ThreadingHTTPServer):
    """`cards` are what it says of its models."""

    request_queue_size = 1024

    def __init__(self, respond: Answer | None = None, cards: list[dict[str, Any]] | None = None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond, self.cards = respond, cards
        self.asked: list[Any] = []
        self.headers: list[Mapping[str, str]] = []
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"

    def get(self, path):
        return (200, listing(*self.cards)) if path == "/v1/models" else (404, {})

    def post(self, path, body):
        self.asked.append((path, body))
        return self.respond(path, body)

    def of(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests to a path."""
        return [body for asked, body in self.asked if asked.endswith(path)]

    @property
    def prompts(self) -> list[Any]:
        """The messages of the chats."""
        return [body["messages"] for body in self.of("/chat/completions")]


class BrokenServer(AnswerServer):
    """Answers completions with the statuses in `statuses`, one per request, the last one for ever, each as soon as
    `answers(server)` is true. `asked` has the bodies of the requests."""

    def __init__(self):
        super().__init__()
        self.statuses, self.names_tokens, self.fails = [200], True, lambda asked: False
        self.spoil, self.refuses = lambda choices: choices, lambda asked: False
        self.changed, self.active, self.most = threading.Condition(), 0, 0
        self.answers = lambda server: True
        self.finish, self.listing = "stop", 200  # the latter is the status of the list of models
        self.usage, self.metrics = lambda asked: {}, lambda: ""
        self.card = {"root": str(pocket_dir()), "max_model_len": 2048}  # {}: not vLLM; None: it lists no model

    def get(self, path):
        if path == "/metrics":
            return 200, self.metrics()
        if self.listing != 200:
            return refusal("no list", self.listing)
        return 200, listing(*([] if self.card is None else [self.card]))

    def post(self, path, body):
        self.asked.append(body)
        with self.changed:
            self.active += 1
            self.most = max(self.most, self.active)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.answers(self), HANG)
            self.active -= 1
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        complaint = self.refuses(body)
        status = 500 if self.fails(body) else 400 if complaint else status
        if status != 200:
            return refusal(complaint if isinstance(complaint, str) else f"status {status}", status)
        choices = self.chat(body) if "messages" in body else self.completions(body)
        return 200, {"choices": choices} | self.usage(body)

    def chat(self, asked):
        return chat("yes", LIKELY if "logprobs" in asked else None, self.finish)[1]["choices"]

    def completions(self, asked):
        choices = listed(asked["prompt"], asked["logprob_token_ids"] if self.names_tokens else ())[::-1]
        return self.spoil(choices) if len(choices) > 1 else choices


LIKELY = {"content": [{"top_logprobs": [{"token": "yes", "logprob": -0.5}, {"token": "no", "logprob": -1.5}]}]}


def listing(*cards: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": MODEL, "object": "model"} | card for card in cards]}


def listed(prompts: Sequence[Any], ids: Iterable[int], values: Sequence[float] = (-2.0,)) -> list[dict[str, Any]]:
    """The answers to a list of prompts, with the values in turn as log-probabilities of the tokens."""
    top = [{f"token_id:{token}": values[place % len(values)] for place, token in enumerate(ids)}]
    return [
        {"index": n, "text": "", "finish_reason": "length", "logprobs": {"top_logprobs": top}}
        for n in range(len(prompts))
    ]


def refusal(message: str, status: int = 400) -> tuple[int, Any]:
    return status, {"error": {"message": message}}


def chat(text: Any, logprobs: Any = None, finish: str = "stop", **message: Any) -> tuple[int, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text, **message}
    return 200, {"choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}]}


@contextmanager
def serving(server: AnswerServer | None = None) -> Iterator[Any]:
    """A server as long as the block lasts; by default a [`BrokenServer`]."""
    server = server or BrokenServer()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def answering(respond: Answer, *cards: dict[str, Any] | None) -> Iterator[AnswerServer]:
    """A server that answers by a function as long as the block lasts."""
    with serving(AnswerServer(respond, [card or {} for card in cards or ({},)])) as server:
        yield server


@contextmanager
def scripted(*replies: str) -> Iterator[AnswerServer]:
    """A server of a model "writer" that replies to chats in turn, and with the last reply for ever."""
    left = list(replies)
    with answering(lambda *_: chat(left.pop(0) if len(left) > 1 else left[0]), {"id": "writer"}) as server:
        yield server


def connect(server, **settings):
    return OpenAIBackend(SERVED_NAME, server.base_url, **{"pause": 0.01} | settings)


@contextmanager
def raw_server(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], ssl: SSLContext | None = None
) -> Iterator[str]:
    """The address of a server in the loop of the clients, whose connections `handle` serves byte by byte."""

    async def start():
        return await asyncio.start_server(handle, "127.0.0.1", 0, ssl=ssl)

    async def stop():
        server.close()

    server = loop.run(start())
    try:
        yield f"{'http' if ssl is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.run(stop())


async def request_in(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The head and the body of the next request of a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    size = sum(int(line.split(":")[1]) for line in head.lower().split("\r\n") if line.startswith("content-length"))
    return head, await reader.readexactly(size)
