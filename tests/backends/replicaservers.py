"""Replicas of a server, each with faults that a test switches on and off while requests run.

Every replica answers chats and decisions as the fault-injecting server does (`tests/faultserver.py`: the right answer
to a question stands in brackets), and lists of prompts with the log-probabilities of the requested tokens.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiohttp import web

from checklist_rewards.backends import pocket_dir
from tests import faultserver
from tests.backends.answerserver import listed
from tests.conftest import HANG

MODEL = "valid"
REFUSED, HANGS, BUSY, LIMITED, OTHER_MODEL = "refused", "hangs", "503", "429", "other model"
FAULTS = (REFUSED, HANGS, BUSY, LIMITED, OTHER_MODEL)


class Replica:
    """One replica. `fault` is what is wrong with it; `dies_after` requests it starts to have the fault `dies_of`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, card: dict | None):
        self.loop, self.card = loop, card
        self.fault: str | None = None
        self.dies_after, self.dies_of = -1, REFUSED
        self.retry_after = "0.05"
        self.received: list[dict] = []
        """The bodies of all requests that reached the replica."""
        self.headers: list[Mapping[str, str]] = []
        self.most = self._active = 0
        self._port = 0
        self._run(self._start())
        self.address = f"http://127.0.0.1:{self._port}/v1"

    def breaks(self, fault: str) -> None:
        self.fault = fault
        if fault == REFUSED:
            self._run(self._runner.cleanup())

    def recovers(self) -> None:
        fault, self.fault, self.dies_after = self.fault, None, -1
        if fault == REFUSED:
            self._run(self._start())

    def _run(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(HANG)

    async def _start(self) -> None:
        application = web.Application(client_max_size=2**26, middlewares=[self._faults])
        application.add_routes(
            [
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.post("/reset_prefix_cache", self._metrics),
                web.post("/v1/chat/completions", faultserver.chat),
                web.post("/v1/completions", self._completions),
                web.post("/v1/systemone", faultserver.decide),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = self._runner.addresses[0][1]

    @web.middleware
    async def _faults(self, request, handler):
        if request.method == "POST" and request.can_read_body:
            self.received.append(await request.json())
            self.headers.append(request.headers)
            if len(self.received) == self.dies_after:
                self.fault = self.dies_of
                if self.fault == REFUSED:
                    asyncio.ensure_future(self._runner.cleanup())
        if self.fault == REFUSED:
            request.transport.abort()
        if self.fault == HANGS:
            await asyncio.sleep(HANG)
        if self.fault in (BUSY, LIMITED):
            body = {"error": {"message": "later"}}
            return web.json_response(body, status=int(self.fault), headers={"Retry-After": self.retry_after})
        if self.fault == OTHER_MODEL and request.method == "POST":
            return web.json_response({"error": {"message": "The model `valid` does not exist."}}, status=404)
        self._active += request.method == "POST"
        self.most = max(self.most, self._active)
        try:
            return await handler(request)
        finally:
            self._active -= request.method == "POST"

    async def _models(self, request):
        name = "another" if self.fault == OTHER_MODEL else MODEL
        return web.json_response({"object": "list", "data": [{"id": name} | (self.card or {})]})

    async def _metrics(self, request):
        tokens = sum(len(prompt) for body in self.received for prompt in body.get("prompt", ()))
        return web.Response(
            text=f"vllm:prefix_cache_queries_total {tokens}\nvllm:prefix_cache_hits_total {tokens // 2}\n"
        )

    async def _completions(self, request):
        asked = await request.json()
        choices = listed(asked["prompt"], asked["logprob_token_ids"], (-1.0, -2.0))
        return web.Response(text=json.dumps({"choices": choices}), content_type="application/json")


@contextmanager
def replicas(count: int, card: dict | None = None) -> Iterator[list[Replica]]:
    """Sound replicas, as long as the block lasts. With a `card`, they look like vLLM servers of the pocket model."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started = [Replica(loop, card) for _ in range(count)]
    try:
        yield started
    finally:
        for replica in started:
            replica._run(replica._runner.cleanup())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG)


VLLM_CARD = {"root": str(pocket_dir()), "max_model_len": 2048}
