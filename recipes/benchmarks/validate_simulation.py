"""Measure an engine, simulate it, and compare the simulation with real runs.

    python recipes/benchmarks/validate_simulation.py

Starts vLLM servers of the pocket model, one thread each. First it times single requests of many sizes, with nothing in
the cache, and fits the three costs of `cluster.Engine` by non-negative least squares. Then it sends the traffic of
GRPO steps to one server and to two, in lists and one by one, and simulates the same traffic with these costs. Reported
are throughput, median and 99th percentile of a call, and tokens computed: real, simulated, and the error.

The fitted costs are written to `runs/bench/engine.json`, which `simulate.py --engine` reads.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

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
from benchmarks.cluster import Call, Engine, Senders, Traffic, calls_of, simulate
from benchmarks.vllm_servers import BLOCK, MODEL, Server, get, vllm_servers
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from checklist_rewards.backends.openai.replicas import Replicas

TOKENS = range(100, 1500)
"""Ids of ordinary tokens of the pocket model."""
SIZES = [(tokens, reads) for reads in (1, 4, 16, 48) for tokens in (32, 128, 256, 448)]
"""Tokens per read and reads per request of the requests that are timed."""
SHAPES = {
    "lists": Traffic(12, 4, 8, prompt_tokens=128, target_tokens=192, question_tokens=24, steps=3),
    "chats": Traffic(12, 4, 8, prompt_tokens=128, target_tokens=192, question_tokens=24, steps=3, per_call=1),
}


async def ask(session: aiohttp.ClientSession, server: Server, prompts: Sequence[Sequence[int]]) -> float:
    """Seconds that a server takes to read one token after each prompt."""
    body = {"model": MODEL, "prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": 5}
    started = time.perf_counter()
    async with session.post(f"{server.address}/v1/completions", json=body) as response:
        found = await response.json()
        response.raise_for_status()
    assert len(found["choices"]) == len(prompts)
    return time.perf_counter() - started


def ids(rng: random.Random, count: int) -> list[int]:
    return rng.choices(TOKENS, k=count)


async def measured(server: Server, repeats: int) -> Engine:
    """The costs of a server's engine, from requests that fit one step and that no cache knows."""
    rng = random.Random(0)
    seconds: dict[tuple[int, int], list[float]] = {}
    async with aiohttp.ClientSession() as session:
        for repeat in range(repeats + 1):
            for tokens, reads in rng.sample(SIZES, len(SIZES)):
                if tokens * reads > 2048:
                    continue
                took = await ask(session, server, [ids(rng, tokens) for _ in range(reads)])
                if repeat:  # the first round warms up
                    seconds.setdefault((tokens, reads), []).append(took)
    rows = [(1.0, tokens * reads, reads) for tokens, reads in seconds]
    times = np.array([statistics.median(found) for found in seconds.values()])
    # Relative errors count: otherwise the largest requests alone decide.
    costs, _ = nnls(np.array(rows) / times[:, None], np.ones(len(times)))
    return Engine(*map(float, costs), step_tokens=2048, step_reads=128)


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


def simulated(engine: Engine, traffic: Traffic, replicas: int, seed: int) -> dict[str, float]:
    """The same figures of the same traffic by simulation."""
    outcome = simulate(engine, traffic, replicas, "text", Senders(1, 0, 0), seed=seed)
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
    parser.add_argument("--servers", type=int, default=2, help="one core each (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of every measurement (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/bench/validate_simulation.json"))
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, vllm_servers(Path(folder), args.servers) as servers:
        engine = replace(asyncio.run(measured(servers[0], args.repeats)), block=BLOCK)
        for count in sorted({1, args.servers}):
            for name, traffic in SHAPES.items():
                found: dict[str, list[float]] = {}
                for seed in range(args.repeats):
                    for server in servers:
                        get(f"{server.address}/reset_prefix_cache", "POST")
                    for figure, value in asyncio.run(run(servers[:count], traffic, seed)).items():
                        found.setdefault(figure, []).append(value)
                expected = [simulated(engine, traffic, count, seed) for seed in range(args.repeats)]
                for figure, values in found.items():
                    real = statistics.median(values)
                    model = statistics.median(one[figure] for one in expected)
                    shown = {"real": real, "simulated": model, "error": model / real - 1}
                    rows.append({"servers": count, "requests": name, "figure": figure, **shown})
    table = Table(*rows[0], title=f"{engine}", title_justify="left")
    for row in rows:
        table.add_row(*(f"{cell:,.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    Console(width=120).print(table)
    print(f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    (args.output.parent / "engine.json").write_text(json.dumps(asdict(engine), indent=1) + "\n")
    args.output.write_text(json.dumps({"engine": asdict(engine), "load": load, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
