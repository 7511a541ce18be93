"""A server in this process whose answer to every request is a function of the test."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "judge"
Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]
"""Called with the path and the body of a request; returns the status and the body of its response."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        listing = {"object": "list", "data": [{"id": MODEL} | card for card in self.server.cards]}
        self.respond(*((200, listing) if self.path == "/v1/models" else (404, {})))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        self.respond(*self.server.respond(self.path, body))

    def respond(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *args):
        pass


class AnswerServer(ThreadingHTTPServer):
    request_queue_size = 1024
    asked: list[tuple[str, dict[str, Any]]]
    base_url: str

    def of(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests to a path."""
        return [body for asked, body in self.asked if asked.endswith(path)]

    @property
    def prompts(self) -> list[Any]:
        """The messages of the chats."""
        return [body["messages"] for body in self.of("/chat/completions")]


@contextmanager
def answering(respond: Answer, *cards: dict[str, Any] | None) -> Iterator[AnswerServer]:
    """The server as long as the block lasts. `cards` are what it says of its models."""
    server = AnswerServer(("127.0.0.1", 0), _Handler)
    server.respond, server.cards, server.asked = respond, [card or {} for card in cards or ({},)], []
    server.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def refusal(message: str, status: int = 400) -> tuple[int, Any]:
    return status, {"error": {"message": message}}


def chat(text: Any, logprobs: Any = None, finish: str = "stop", **message: Any) -> tuple[int, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text, **message}
    return 200, {"choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}]}


@contextmanager
def scripted(*replies: str) -> Iterator[AnswerServer]:
    """A server of a model "writer" that replies to chats in turn, and with the last reply for ever."""
    left = list(replies)
    with answering(lambda *_: chat(left.pop(0) if len(left) > 1 else left[0]), {"id": "writer"}) as server:
        yield server
