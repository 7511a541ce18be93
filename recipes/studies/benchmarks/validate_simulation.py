"""Measure an engine, simulate it, and compare the simulation with real runs.

    python recipes/studies/benchmarks/validate_simulation.py

Starts vLLM servers of the pocket model, one thread each. First it measures their costs:

- It times single requests of many sizes, with nothing in the cache, and fits the three costs of `cluster.Engine` by
  non-negative least squares.
- It times bursts of small requests. A server parses requests one after another in one process, while its engine works
  in another one: a sender in the model. The seconds per call of a sender are those with which the simulation takes as
  long as the bursts.

Then it sends the traffic of GRPO steps to one server and to two, in lists and one by one, and simulates the same
traffic with these costs. Reported are throughput, median and 99th percentile of a call, and tokens computed: real,
simulated, and the error. Servers on one machine slow each other down, so the costs are measured for each number of
servers, with all of them at work.

On few cores, the processes of two servers compete, and throughput of two servers is not that of two machines. With
`--pinned`, each server has one core. Then two servers are as fast as on two machines, but parsing requests and the
engine do not overlap as the model assumes; compare the gain of the second server.

The costs of one server are written to `runs/bench/engine.json`, which `simulate.py --engine` reads.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import aiohttp
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq, nnls
from studies.benchmarks.cluster import Call, Engine, Senders, Traffic, calls_of, simulate
from studies.benchmarks.vllm_servers import BLOCK, MODEL, Server, get, vllm_servers

from checklist_rewards.backends.openai.replicas import Replicas

TOKENS = range(100, 1000)
"""Ids of ordinary tokens of the pocket model."""
SIZES = [(tokens, reads) for reads in (1, 4, 16, 48) for tokens in (32, 128, 256, 448)]
"""Tokens per read and reads per request of the requests that are timed."""
SHAPES = {
    "lists": Traffic(12, 4, 8, prompt_tokens=128, target_tokens=192, question_tokens=24, steps=3),
    "chats": Traffic(12, 4, 8, prompt_tokens=128, target_tokens=192, question_tokens=24, steps=3, per_call=1),
}

BURST = Traffic(48, 1, 1, prompt_tokens=30, target_tokens=1, question_tokens=1, steps=1)
"""Requests sent to each server at once."""


async def ask(session: aiohttp.ClientSession, server: Server, prompts: Sequence[Sequence[int]]) -> float:
    """Seconds that a server takes to read one token after each prompt."""
    body = {"model": MODEL, "prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": 5}
    started = time.perf_counter()
    async with session.post(f"{server.address}/v1/completions", json=body) as response:
        found = await response.json()
        assert response.status == 200, found
    assert len(found["choices"]) == len(prompts)
    return time.perf_counter() - started


def ids(rng: random.Random, count: int) -> list[int]:
    return rng.choices(TOKENS, k=count)


async def engine_of(servers: Sequence[Server], repeats: int) -> Engine:
    """The costs of an engine, from requests that fit one step and that no cache knows."""
    rng = random.Random(0)
    seconds: dict[tuple[int, int], list[float]] = {}
    async with aiohttp.ClientSession() as session:
        for repeat in range(repeats + 1):
            for tokens, reads in rng.sample(SIZES, len(SIZES)):
                if tokens * reads > 2048:
                    continue
                bodies = [[ids(rng, tokens) for _ in range(reads)] for _ in servers]
                took = await asyncio.gather(*(ask(session, *pair) for pair in zip(servers, bodies, strict=True)))
                if repeat:  # the first round warms up
                    seconds.setdefault((tokens, reads), []).append(statistics.mean(took))
    rows = [(1.0, tokens * reads, reads) for tokens, reads in seconds]
    times = np.array([statistics.median(found) for found in seconds.values()])
    # Relative errors count: otherwise the largest requests alone decide.
    costs, _ = nnls(np.array(rows) / times[:, None], np.ones(len(times)))
    return Engine(*map(float, costs), step_tokens=2048, step_reads=128, block=BLOCK)


async def senders_of(servers: Sequence[Server], engine: Engine, repeats: int) -> Senders:
    """The costs of a call outside the engine, from bursts of calls."""
    rng = random.Random(1)
    count = len(servers)
    size = BURST.prompt_tokens + BURST.target_tokens + BURST.question_tokens
    seconds = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(repeats + 1):
            bodies = [[ids(rng, size)] for _ in range(BURST.prompts * count)]
            started = time.perf_counter()
            await asyncio.gather(*(ask(session, servers[n % count], body) for n, body in enumerate(bodies)))
            seconds.append(time.perf_counter() - started)
    real = statistics.median(seconds[1:])

    def error(call_s: float) -> float:
        traffic = replace(BURST, prompts=BURST.prompts * count)
        return simulate(engine, traffic, count, "round_robin", Senders(count, call_s, 0)).seconds - real

    return Senders(count, brentq(error, 0, real) if error(0) < 0 else 0.0, 0)


async def costs_of(servers: Sequence[Server], repeats: int) -> tuple[Engine, Senders]:
    """The costs of servers, all at work."""
    engine = await engine_of(servers, repeats)
    return engine, await senders_of(servers, engine, repeats)


async def run(servers: Sequence[Server], traffic: Traffic, seed: int) -> dict[str, float]:
    """Send traffic to servers, chosen by the package's class, and measure it."""
    rng = random.Random(seed)
    replicas = Replicas([server.address for server in servers], pause=1.0)
    latencies: list[float] = []
    elapsed = 0.0
    before = sum(_computed(server) for server in servers)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for step in range(traffic.steps):
            calls = list(calls_of(traffic, step, rng))
            texts = random.Random(f"{seed} {step}")
            prompts = {number: ids(texts, traffic.prompt_tokens) for number in sorted({call.prompt for call in calls})}
            targets = {call.target: ids(texts, call.lengths[1]) for call in calls}

            bodies = [
                [
                    prompts[call.prompt] + targets[call.target] + ids(texts, call.question_tokens)
                    for _ in range(call.questions)
                ]
                for call in calls
            ]

            async def one(call: Call, body: list[list[int]]) -> None:
                sent = replicas.choose(f"text {call.target}", time.monotonic(), call.questions)
                latencies.append(await ask(session, servers[sent.place], body))
                replicas.answered(sent)

            started = time.perf_counter()
            await asyncio.gather(*map(one, calls, bodies))
            elapsed += time.perf_counter() - started
    reads = traffic.steps * traffic.prompts * traffic.completions * traffic.questions
    return {
        "reads/s": reads / elapsed,
        "median of a call, s": statistics.median(latencies),
        "p99 of a call, s": float(np.quantile(latencies, 0.99)),
        "tokens computed": sum(_computed(server) for server in servers) - before,
    }


def simulated(engine: Engine, senders: Senders, traffic: Traffic, seed: int) -> dict[str, float]:
    """The same figures of the same traffic by simulation."""
    outcome = simulate(engine, traffic, senders.number, "text", senders, seed=seed)
    return {
        "reads/s": outcome.reads / outcome.seconds,
        "median of a call, s": outcome.quantile(0.5),
        "p99 of a call, s": outcome.quantile(0.99),
        "tokens computed": outcome.computed,
    }


def _computed(server: Server) -> int:
    queries, hits = server.counts()
    return queries - hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--servers", type=int, default=2, help="most servers (default: %(default)s)")
    parser.add_argument("--pinned", action="store_true", help="all processes of a server on one core")
    parser.add_argument("--repeats", type=int, default=5, help="of every measurement (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/bench/validate_simulation.json"))
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    rows: list[dict[str, Any]] = []
    costs: dict[int, tuple[Engine, Senders]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        vllm_servers(Path(folder), args.servers, pinned=args.pinned) as servers,
    ):
        for count in sorted({1, args.servers}):
            engine, senders = costs[count] = asyncio.run(costs_of(servers[:count], args.repeats))
            for name, traffic in SHAPES.items():
                found: dict[str, list[float]] = {}
                for seed in range(args.repeats):
                    for server in servers:
                        get(f"{server.address}/reset_prefix_cache", "POST")
                    for figure, value in asyncio.run(run(servers[:count], traffic, seed)).items():
                        found.setdefault(figure, []).append(value)
                expected = [simulated(engine, senders, traffic, seed) for seed in range(args.repeats)]
                for figure, values in found.items():
                    real = statistics.median(values)
                    model = statistics.median(one[figure] for one in expected)
                    shown = {"real": real, "simulated": model, "error": model / real - 1}
                    rows.append({"servers": count, "requests": name, "figure": figure, **shown})
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{cell:,.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    console = Console(width=120)
    for pair in costs.values():
        console.print(*pair)
    console.print(table)
    print(f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    (args.output.parent / "engine.json").write_text(json.dumps(asdict(costs[1][0]), indent=1) + "\n")
    found_costs = {count: [asdict(engine), asdict(senders)] for count, (engine, senders) in costs.items()}
    args.output.write_text(json.dumps({"costs": found_costs, "load": load, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
