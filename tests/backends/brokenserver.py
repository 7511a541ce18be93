"""A server in this process whose every answer a test decides: statuses, what it names, what it leaves out."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from checklist_rewards.backends import pocket_dir
from checklist_rewards.backends.openai import OpenAIBackend
from tests.conftest import HANG

SERVED_NAME = "judge"


class BrokenServer(BaseHTTPRequestHandler):
    """Answers completions with the statuses in `server.statuses`, one per request, the last one for ever, each as soon
    as `server.answers(server)` is true."""

    def do_GET(self):
        if self.path == "/metrics":
            return self.answer(200, self.server.metrics(), "text/plain")
        if self.server.listing != 200:
            return self.answer(self.server.listing, {"error": {"message": "no list"}})
        if self.server.card is None:
            return self.answer(200, {"object": "list", "data": []})
        card = {"id": SERVED_NAME, "object": "model"} | self.server.card
        self.answer(200, {"object": "list", "data": [card]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        with self.server.changed:
            self.server.active += 1
            self.server.most = max(self.server.most, self.server.active)
            self.server.changed.notify_all()
            self.server.changed.wait_for(lambda: self.server.answers(self.server), HANG)
            self.server.active -= 1
        statuses = self.server.statuses
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        complaint = self.server.refuses(asked)
        status = 500 if self.server.fails(asked) else 400 if complaint else status
        if status != 200:
            message = complaint if isinstance(complaint, str) else f"status {status}"
            return self.answer(status, {"error": {"message": message}})
        choices = self.chat(asked) if "messages" in asked else self.completions(asked)
        body = {"id": "1", "object": "x", "created": 0, "model": "m", "choices": choices}
        return self.answer(200, body | self.server.usage(asked))

    def chat(self, asked):
        top = [{"token": "yes", "logprob": -0.5}, {"token": "no", "logprob": -1.5}]
        logprobs = {"content": [{"token": "yes", "top_logprobs": top}]} if "logprobs" in asked else None
        message = {"role": "assistant", "content": "yes"}
        return [{"index": 0, "message": message, "finish_reason": self.server.finish, "logprobs": logprobs}]

    def completions(self, asked):
        named = {f"token_id:{token}": -2.0 for token in asked["logprob_token_ids"]} if self.server.names_tokens else {}
        choices = [
            {"index": n, "text": "", "finish_reason": "length", "logprobs": {"top_logprobs": [named]}}
            for n in reversed(range(len(asked["prompt"])))
        ]
        return self.server.spoil(choices) if len(choices) > 1 else choices

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status in (429, 503):
            self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write((body if isinstance(body, str) else json.dumps(body)).encode())

    def log_message(self, *args):
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024


@contextmanager
def serving() -> Iterator[_Server]:
    """The server, as long as the block lasts; see the attributes below for what it can be told."""
    server = _Server(("127.0.0.1", 0), BrokenServer)
    server.asked, server.statuses, server.names_tokens, server.fails = [], [200], True, lambda asked: False
    server.spoil, server.refuses = lambda choices: choices, lambda asked: False
    server.changed, server.active, server.most = threading.Condition(), 0, 0
    server.answers = lambda server: True
    server.finish, server.listing = "stop", 200  # the latter is the status of the list of models
    server.usage, server.metrics = lambda asked: {}, lambda: ""
    server.card = {"root": str(pocket_dir()), "max_model_len": 2048}  # {}: not vLLM; None: it lists no model
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    server.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def connect(server, **settings):
    return OpenAIBackend(SERVED_NAME, server.base_url, **{"pause": 0.01} | settings)
