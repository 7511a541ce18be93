"""How many judges does a training run need? Tables from a simulation of 1 to 1,000 replicas.

    python recipes/studies/benchmarks/simulate.py                       # tables for the assumed engine
    python recipes/studies/benchmarks/simulate.py --engine engine.json  # for one measured by validate_simulation.py

The model is in `cluster.py`. The default engine is an assumption, not a measurement: 25,000 prompt tokens per second
and 12 ms per step, about what a 7B judge reaches on one large GPU. Give the figures of your own engine. The policies
`text` (all reads of a completion on one replica) and `prompt` (all completions of a prompt) use the package's router.

Prints the tables and writes them to `runs/bench/simulate.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from studies.benchmarks.cluster import Engine, Failure, Outcome, Senders, Traffic, simulate

SIZES = (1, 3, 10, 30, 100, 300, 1000)
PROMPTS_PER_REPLICA = 16
MOST = 128
"""Replicas that are tried."""
BILLION = 1_000_000_000
FAST_SENDERS = Senders(number=256, read_s=0)
"""Enough senders that only the engines count."""


def scaling(engine: Engine) -> Iterable[dict[str, Any]]:
    """The run grows with the replicas: what routing is worth, and hours for 10^9 reads."""
    for replicas in SIZES:
        for per_call in (None, 1):
            for policy in ("text", "prompt", "least", "round_robin"):
                traffic = Traffic(prompts=PROMPTS_PER_REPLICA * replicas, steps=1, per_call=per_call)
                if per_call and replicas > 100:
                    continue
                run = simulate(engine, traffic, replicas, policy, FAST_SENDERS)
                yield {
                    "replicas": replicas,
                    "requests": "chats" if per_call else "lists",
                    "policy": policy,
                    "reads/s": run.reads / run.seconds,
                    "cached": run.hit_rate,
                    "tokens/floor": run.computed / run.floor,
                    "engines busy": _busy(run, replicas),
                    "hours for 1e9 reads": BILLION / (run.reads / run.seconds) / 3600,
                }


def fixed_run(engine: Engine) -> Iterable[dict[str, Any]]:
    """One run of 512 prompts x 16 completions x 10 questions: seconds of scoring per step, and where they go."""
    for replicas in SIZES:
        for senders in (1, 8, 64):
            run = simulate(engine, Traffic(512, 16, 10, steps=1), replicas, "text", Senders(senders))
            yield {
                "replicas": replicas,
                "senders": senders,
                "seconds per step": run.step_s[0],
                "p99 of a call, s": run.quantile(0.99),
                "engines busy": _busy(run, replicas),
                "senders busy": run.sending_s / senders / run.seconds,
            }


def provision(engine: Engine) -> Iterable[dict[str, Any]]:
    """The fewest replicas that score a step within a time, rollouts ending over 30 s."""
    shapes = {
        "64 x 8 x 10, replies of 400": Traffic(64, 8, 10, spread_s=30, steps=1),
        "128 x 16 x 10, replies of 400": Traffic(128, 16, 10, spread_s=30, steps=1),
        "128 x 16 x 10, replies of 4,000": Traffic(128, 16, 10, target_tokens=4000, spread_s=30, steps=1),
        "512 x 16 x 20, replies of 1,000": Traffic(512, 16, 20, target_tokens=1000, spread_s=30, steps=1),
    }
    for name, traffic in shapes.items():
        seconds = cache(partial(_seconds_of_a_step, engine, traffic))
        for within in (1, 5, 15, 60):
            needed = fewest(lambda n, s=seconds, most=within: s(n) <= most, MOST)
            yield {"P x G x Q": name, "seconds after the last rollout": within, "replicas": needed or f"over {MOST}"}


def failing(engine: Engine) -> Iterable[dict[str, Any]]:
    """One replica dies in the middle of a step and comes back after a minute."""
    for replicas in (3, 10, 100):
        traffic = Traffic(prompts=PROMPTS_PER_REPLICA * replicas, steps=3)
        calm = simulate(engine, traffic, replicas, "text", FAST_SENDERS)
        failure = Failure(0, at_s=calm.seconds / 2)
        struck = simulate(engine, traffic, replicas, "text", FAST_SENDERS, [failure])
        yield {
            "replicas": replicas,
            "calls sent again": struck.retried,
            "run longer by": struck.seconds / calm.seconds - 1,
            "tokens computed more": struck.computed / calm.computed - 1,
        }


def fewest(enough: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 to `most` that is enough, or None. More never hurts, which makes halving right."""
    if not enough(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _seconds_of_a_step(engine: Engine, traffic: Traffic, replicas: int) -> float:
    return simulate(engine, traffic, replicas, "text", Senders(64)).step_s[0]


def _busy(run: Outcome, replicas: int) -> float:
    return run.busy_s / replicas / run.seconds


TABLES = {"scaling": scaling, "fixed_run": fixed_run, "provision": provision, "failing": failing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engine", type=Path, help="JSON file with fields of cluster.Engine")
    parser.add_argument("--table", choices=sorted(TABLES), action="append", help="only these tables")
    parser.add_argument("--output", type=Path, default=Path("runs/bench/simulate.json"))
    args = parser.parse_args()
    engine = replace(Engine(), **json.loads(args.engine.read_text())) if args.engine else Engine()
    found = {}
    for name in args.table or TABLES:
        found[name] = list(TABLES[name](engine))
        shown = Table(*found[name][0], title=(TABLES[name].__doc__ or "").strip())
        for row in found[name]:
            shown.add_row(*(f"{cell:,.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()))
        Console(width=140).print(shown)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps({"engine": vars(engine), **found}, indent=1))


if __name__ == "__main__":
    main()
