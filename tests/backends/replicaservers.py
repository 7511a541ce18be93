"""Replicas of a server, each with faults that a test switches on and off while requests run.

Every replica answers chats and decisions as the fault-injecting server does (`tests/faultserver.py`: the right answer
to a question stands in brackets), and lists of prompts with the log-probabilities of the requested tokens.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from socketserver import TCPServer
from typing import Any

from checklist_rewards.backends import pocket_dir
from tests import faultserver
from tests.backends.answerserver import AnswerServer, listed, listing, refusal
from tests.conftest import HANG

MODEL = "valid"
REFUSED, HANGS, BUSY, LIMITED, OTHER_MODEL = "refused", "hangs", "503", "429", "other model"
FAULTS = (REFUSED, HANGS, BUSY, LIMITED, OTHER_MODEL)
VLLM_CARD = {"root": str(pocket_dir()), "max_model_len": 2048}


class Replica(AnswerServer):
    """One replica. `fault` is what is wrong with it; `dies_after` requests it starts to have the fault `dies_of`."""

    def __init__(self, card: dict[str, Any] | None):
        super().__init__()
        self.card, self.address = card, self.base_url
        self.fault: str | None = None
        self.dies_after, self.dies_of = -1, REFUSED
        self.received: list[dict[str, Any]] = []
        """The bodies of all requests that reached the replica."""
        self._ended = threading.Event()
        self._serve()

    def breaks(self, fault: str) -> None:
        self.fault = fault
        if fault == REFUSED:
            self.end()

    def recovers(self) -> None:
        fault, self.fault, self.dies_after = self.fault, None, -1
        if fault == REFUSED:
            TCPServer.__init__(self, self.server_address, self.RequestHandlerClass)  # on the same port
            self._serve()

    def end(self) -> None:
        self._ended.set()
        self.shutdown()
        self.server_close()

    def _serve(self) -> None:
        self._ended.clear()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address):
        """Of a request that is refused, or whose client is gone."""

    def get(self, path):
        if (failed := self._failed(False)) is not None:
            return failed
        if path == "/metrics":
            tokens = sum(len(prompt) for body in self.received for prompt in body.get("prompt", ()))
            return 200, f"vllm:prefix_cache_queries_total {tokens}\nvllm:prefix_cache_hits_total {tokens // 2}\n"
        return 200, listing({"id": "another" if self.fault == OTHER_MODEL else MODEL} | (self.card or {}))

    def post(self, path, body):
        self.received.append(body)
        if len(self.received) == self.dies_after:
            self.breaks(self.dies_of)
        if (failed := self._failed(True)) is not None:
            return failed
        if path == "/v1/chat/completions":
            text = "\n".join(message["content"] for message in body["messages"])
            return 200, {"choices": [faultserver.choice(body, text, MODEL, 0)]}
        if path == "/v1/systemone":
            asked = body["questions"].items()
            return 200, {"answers": {name: faultserver.decided(question, MODEL, True) for name, question in asked}}
        return 200, {"choices": listed(body["prompt"], body["logprob_token_ids"], (-1.0, -2.0))}

    def _failed(self, is_post: bool) -> tuple[int, Any] | None:
        if self.fault == HANGS:
            self._ended.wait(HANG)
        if self.fault == REFUSED:
            raise ConnectionError("refused")
        if self.fault in (BUSY, LIMITED):
            return refusal("later", int(self.fault))
        if self.fault == OTHER_MODEL and is_post:
            return refusal("The model `valid` does not exist.", 404)
        return None


@contextmanager
def replicas(count: int, card: dict[str, Any] | None = None) -> Iterator[list[Replica]]:
    """Sound replicas, as long as the block lasts. With a `card`, they look like vLLM servers of the pocket model."""
    with ExitStack() as stack:
        started = [Replica(card) for _ in range(count)]
        for replica in started:
            stack.callback(lambda replica=replica: replica.fault == REFUSED or replica.end())
        yield started
