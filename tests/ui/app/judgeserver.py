"""A judge's server that can be held, killed and started again on its port, and counts what it answered."""

from __future__ import annotations

import base64
import io
import json
import select
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.conftest import HANG
from tests.faultserver import choice


class JudgeServer:
    """Answers as `tests/faultserver.py` does, until `most` answers are given; then requests wait. It sees: a prompt
    with images is answered yes if all of them are red."""

    def __init__(self, most: int | None = None):
        self.most, self.answered, self.sent = most, Counter(), 0
        self.changed = threading.Condition()
        self._server = None
        self.start()

    def start(self, port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner, self._server.alive = self, True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        """Refuse connections, and drop the requests that wait."""
        with self.changed:
            self._server.alive = False
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def again(self, most: int | None = None) -> None:
        """Start on the same port, or go on answering."""
        with self.changed:
            self.most = most
            self.changed.notify_all()
        if not self._server.alive:
            self.start(self.port)

    @property
    def twice(self) -> list[str]:
        """The requests that were answered more than once."""
        return [text for text, times in self.answered.items() if times > 1]

    def full(self) -> bool:
        """Whether all answers that it may give are given."""
        return self.sent == self.most

    def may_answer(self, server, key: str, connection) -> bool:
        """Wait until the request may be answered; False if the server was killed or the client has left before."""
        with self.changed:
            free = self.changed.wait_for(
                lambda: not server.alive or self.most is None or self.answered.total() < self.most, HANG
            )
            left = select.select([connection], [], [], 0)[0] and not connection.recv(1, socket.MSG_PEEK)
            if not free or not server.alive or left:
                return False
            self.answered[key] += 1
            return True


def _text(content) -> str:
    """The text of a message, with what is seen in place of each image."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] if part["type"] == "text" else _seen(part["image_url"]["url"]) for part in content)


def _seen(url: str) -> str:
    from PIL import Image

    red, *others = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB").getpixel((0, 0))
    return "<image red>" if red > 200 and max(others) < 50 else "<image other>"


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *args):
        pass


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in ("valid", "upper")]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = "\n".join(_text(message["content"]) for message in asked["messages"])
        if "<image " in text:
            text += f"\nIs it red ({'no' if '<image other>' in text else 'yes'})?"
        owner = self.server.owner
        if not owner.may_answer(self.server, json.dumps([asked["model"], text]), self.connection):
            return
        usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}
        self._send(
            {"id": "1", "object": "chat.completion", "created": 1, "model": asked["model"], "usage": usage}
            | {"choices": [choice(asked, text, asked["model"], 0)]}
        )
        owner.sent += 1

    def _send(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args):
        pass
