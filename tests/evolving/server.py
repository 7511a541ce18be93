"""An OpenAI-compatible server with scripted replies, in this process."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

from tests.serving import serving


class ScriptedServer:
    """Replies to the chats it gets with `replies` in turn, the last one for ever."""

    def __init__(self, *replies):
        self.replies, self.prompts = list(replies), []
        self.state = SimpleNamespace()  # every ASGI application of `serving` has one

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(self._answer(scope["path"], body)).encode()})

    def _answer(self, path, body):
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": "writer", "object": "model"}]}
        self.prompts.append(json.loads(body)["messages"])
        text = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {"id": "1", "object": "chat.completion", "created": 1, "model": "writer", "choices": choices}


@contextmanager
def scripted(*replies):
    """The server, and its base URL."""
    server = ScriptedServer(*replies)
    with serving(server) as address:
        yield server, f"{address}/v1"
