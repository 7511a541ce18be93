"""Load test of the reward server (`make bench`).

`checklist_rewards.server` runs in a separate process with an engine that answers instantly, so the server itself is
measured: HTTP, row checks, the queue, planning, scoring, JSON. 64 clients send one row of eight questions per request,
each as soon as its last request is answered. This is the worst case: a trainer that sends whole batches costs far
less. Every text is new and no answer is stored, so no answer is reused.

Reports requests per second, latency (median, p99, maximum), errors, and the memory of all processes of the server,
sampled every second: if it does not grow, the mean of the last third of the run equals that of the first third. The
rate of `GET /health` in the same run is the upper bound for HTTP on this machine.

Every request has an id, which is the id of its first question, and its answer must contain it. At the end the engine
reports how many reads it computed. So a request that was lost, answered with the scores of another or scored twice is
noticed.

    python -P recipes/studies/benchmarks/serve.py --clients 512 --seconds 600

Prints a table and writes `runs/bench/serve.json`. Exit code 1 if a request failed, a row was not scored, or the number
of reads is not that of the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from studies.benchmarks.figures import Figure, figures, finish, memory_mib, parser_of, server
from studies.benchmarks.instant import Instant

QUESTIONS = [f"Does the response do what point {number} of the instruction asks for?" for number in range(1, 9)]
WORDS = "amber basil cedar delta ember fjord grove heron inlet jetty knoll larch maple north ocean pearl".split()
TEXT_WORDS = 100
HEALTH_SECONDS = 3.0
WARM_UP_SECONDS = 2.0


def serve() -> None:
    """Print a free local port, serve on it until the process is terminated, and print the number of reads."""
    from checklist_rewards import ChecklistScorer
    from checklist_rewards.cli.serving import listen, run_server
    from checklist_rewards.server import build_app

    engine = Instant(chunk_reads=4096)
    app = build_app(ChecklistScorer(backend=engine, store=False))
    with listen("127.0.0.1", 0) as listening:
        print(listening.getsockname()[1], flush=True)
        run_server(app, listening)
    print(engine.reads, flush=True)


def bodies(seed: int) -> Iterator[tuple[str, bytes]]:
    """Ids and bodies of requests of one row each, all different."""
    rng = random.Random(seed)
    for number in itertools.count():
        name = f"request-{seed}-{number}"
        target = " ".join(rng.choices(WORDS, k=TEXT_WORDS)) + f" {rng.random()}"
        checklist = [{"question": QUESTIONS[0], "id": name}, *QUESTIONS[1:]]
        row = {"checklist": checklist, "target": target, "input": "Write about the sea."}
        yield name, json.dumps({"samples": [row]}).encode()


async def ask(session: aiohttp.ClientSession, url: str, name: str, body: bytes | None) -> str | None:
    """Send a request. Returns the error, or None if the row was scored."""
    try:
        async with session.request("GET" if body is None else "POST", url, data=body) as response:
            content = await response.read()
    except aiohttp.ClientError as error:
        return type(error).__name__
    if response.status != 200:
        return f"status {response.status}"
    if body is None:
        return None
    if b'"errors":[]' not in content or b'"primary_score":0.8' not in content:
        return "not scored"
    return None if b'"id":"%s"' % name.encode() in content else "the answer to another request"


async def load(url: str, clients: int, seconds: float, *, rows: bool) -> tuple[list[float], Counter[str]]:
    """Latencies in seconds and failures of `clients` that send requests without a pause."""
    latencies: list[float] = []
    failures: Counter[str] = Counter()
    end = time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession, seed: int) -> None:
        requests = bodies(seed)
        while not latencies or time.perf_counter() < end:
            started = time.perf_counter()
            failure = await ask(session, url, *(next(requests) if rows else ("", None)))
            latencies.append(time.perf_counter() - started)
            if failure is not None:
                failures[failure] += 1

    first = random.randrange(10**9)  # ids and texts differ between the phases of a run
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session, first + seed) for seed in range(clients)))
    return latencies, failures


def resident(pid: int) -> float | None:
    """Memory of a process and its children in MiB; None if the system does not report it."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    own = memory_mib(pid)
    if own is None or not children.exists():
        return own
    return own + sum(resident(int(child)) or 0.0 for child in children.read_text().split())


async def measured(url: str, pid: int, clients: int, seconds: float) -> dict[str, Any]:
    """Run the load test, and sample the memory of the server every second."""
    memory: list[float | None] = []

    async def watch() -> None:
        while True:
            await asyncio.sleep(min(1.0, seconds / 12))
            memory.append(resident(pid))

    health_seconds = min(HEALTH_SECONDS, seconds)
    health, refused = await load(f"{url}/health", clients, health_seconds, rows=False)
    warm_up, warm_up_failures = await load(f"{url}/score", clients, min(WARM_UP_SECONDS, seconds), rows=True)
    memory.append(resident(pid))
    watching = asyncio.ensure_future(watch())
    started = time.perf_counter()
    latencies, failures = await load(f"{url}/score", clients, seconds, rows=True)
    took = time.perf_counter() - started
    watching.cancel()
    memory.append(resident(pid))
    cuts = statistics.quantiles(latencies, n=100)
    known = [megabytes for megabytes in memory if megabytes is not None]
    third = len(known) // 3
    return {
        "clients": clients,
        "seconds": took,
        "requests": len(latencies),
        "requests_per_second": len(latencies) / took,
        "health_per_second": len(health) / health_seconds,
        "milliseconds": {"p50": cuts[49] * 1e3, "p99": cuts[98] * 1e3, "worst": max(latencies) * 1e3},
        "failures": dict(failures + refused + warm_up_failures),
        "reads_expected": len(QUESTIONS) * (len(latencies) + len(warm_up)),
        "memory_mb": known,
        "memory_first_third_mb": statistics.fmean(known[:third]) if third else None,
        "memory_last_third_mb": statistics.fmean(known[-third:]) if third else None,
    }


def measured_figures(results: dict[str, Any]) -> list[Figure]:
    """The figures of a run."""
    rates = {"GET /health": results["health_per_second"], "POST /score": results["requests_per_second"]}
    found = figures("requests per second", rates, "GET /health")
    found += figures("ms per request", results["milliseconds"], "p50")
    first, last = results["memory_first_third_mb"], results["memory_last_third_mb"]
    if first is not None:
        found += figures("MiB", {"first third": first, "last third": last}, "first third", "memory")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = parser_of(__doc__, __file__, seconds=60.0, clients=64)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.serve:
        serve()
        return 0
    with server("-P", __file__, "--serve") as (url, process):
        results = asyncio.run(measured(url, process.pid, given.clients, given.seconds))
        process.terminate()
        results["reads"] = int(process.stdout.read()) if process.stdout else 0
    title = f"Reward server, {given.clients} clients, one row per request, {given.seconds:.0f} s"
    finish(given.output, title, measured_figures(results), results)
    print(f"{results['requests']:,} requests, errors: {results['failures'] or 'none'}")
    print(f"reads of the engine: {results['reads']:,}; of all requests: {results['reads_expected']:,}")
    return 1 if results["failures"] or results["reads"] != results["reads_expected"] else 0


if __name__ == "__main__":
    sys.exit(main())
