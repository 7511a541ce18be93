"""How fast is a served judge, next to a client that does nothing but post? `make bench`.

Against a server that answers at once (`instant.py`, a process of its own), in one run, interleaved; medians:

(a) lists    one-token verdicts whose prompts travel in lists, as on a vLLM server, through the whole scorer
(b) chats    the same where every read is a chat request
(c) aiohttp  a bare loop that posts the bodies of (b) and parses the answers: what the machine gives at most
(d) latency  1,000 reads, 256 at a time, where every answer takes 0.3 s

With `--rivals` the same texts and questions also go through `autochecklist` and `autorubric` from PyPI, each in an
environment of its own under `runs/bench/`; their defaults, their prompts, and fewer targets, since they take longer.

Prints a table and writes `runs/bench/http.json`.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from pathlib import Path

# This folder, which Python puts first for a script of it, would hide the standard library's `http` behind this file.
HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(path for path in sys.path if Path(path).resolve() != HERE)]

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
from pocket.world import FAMILIES, Constraint, words_of
from rich.console import Console
from rich.table import Table

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.chat import label_body
from checklist_rewards.prompts import load_prompt

RIVALS = {
    "autochecklist-item": "autochecklist==0.2.3",
    "autochecklist-logprobs": "autochecklist==0.2.3",
    "autochecklist-batch": "autochecklist==0.2.3",
    "autorubric": "autorubric==1.6.1",
}
QUESTIONS = 8
LATENCY_READS = 1000
LATENCY_CONCURRENCY = 256


def samples(targets: int, seed: int) -> list[Sample]:
    """Texts of about 150 words that no other seed has, with eight questions each."""
    rng = random.Random(seed)
    found = []
    for _ in range(targets):
        questions: dict[str, None] = {}
        while len(questions) < QUESTIONS:
            family = rng.choice(list(FAMILIES))
            values = FAMILIES[family].values
            questions[Constraint(family, rng.choice(values or words_of("train"))).question()] = None
        text = " ".join(rng.choice(words_of("train")) for _ in range(150))
        found.append(Sample(list(questions), f"{text} {rng.random()}", f"Write about {text[:30]}."))
    return found


@contextmanager
def instant_server() -> Iterator[str]:
    """Address of a server that answers at once, without the path."""
    command = [sys.executable, "-P", str(HERE / "instant.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


def score(backend: OpenAIBackend, batch: Sequence[Sample]) -> float:
    """Seconds to score a batch, nothing from a store."""
    scorer = ChecklistScorer(backend.model, backend=backend, store=False)
    started = time.perf_counter()
    scores = scorer.score_batch(batch)
    seconds = time.perf_counter() - started
    assert all(found.answered == QUESTIONS for found in scores), "a read of the benchmark was left unanswered"
    return seconds


def bodies(batch: Sequence[Sample]) -> list[dict[str, Any]]:
    """The chat requests that scoring the batch sends."""
    prompt = load_prompt("judges/item", "judge")
    found = []
    for sample in batch:
        prefix = prompt.prefix(input=sample.input, target=sample.target)
        for question in sample.checklist:
            messages = [{"role": "user", "content": prefix + prompt.tail(question)}]
            if prompt.system is not None:
                messages.insert(0, {"role": "system", "content": prompt.system})
            found.append(label_body("instant", messages, frozenset()))
    return found


def post(url: str, requests: Sequence[dict[str, Any]], concurrency: int) -> float:
    """Seconds to post all requests with aiohttp and nothing else."""

    async def all_of_them() -> float:
        slots = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def one(body: dict[str, Any]) -> Any:
                async with slots, session.post(f"{url}/chat/completions", json=body) as response:
                    return await response.json()

            started = time.perf_counter()
            await asyncio.gather(*map(one, requests))
            return time.perf_counter() - started

    return asyncio.run(all_of_them())


def throughput(url: str, targets: int, repeats: int, concurrency: int) -> dict[str, Any]:
    """Verdicts per second of lists, chats and the bare loop."""
    lists = OpenAIBackend("instant", f"{url}/v1", concurrency=concurrency)
    chats = OpenAIBackend("instant", f"{url}/chats/v1", concurrency=concurrency)
    runs: dict[str, Callable[[list[Sample]], float]] = {
        "lists": lambda batch: score(lists, batch),
        "chats": lambda batch: score(chats, batch),
        "aiohttp": lambda batch: post(f"{url}/chats/v1", bodies(batch), concurrency),
    }
    for run in runs.values():  # the first call opens connections
        run(samples(8, seed=-1))
    gc.collect()
    gc.freeze()  # a full collection takes as long as a run of these, and would fall on one of them by chance
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for repeat in range(repeats):
        batch = samples(targets, seed=repeat)
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            seconds[name].append(runs[name](batch))
    gc.unfreeze()
    reads = targets * QUESTIONS
    return {name: rate(reads, found) for name, found in seconds.items()} | {"reads": reads}


def latency(url: str, repeats: int) -> dict[str, Any]:
    """Seconds for 1,000 reads where every answer takes 0.3 s."""
    backend = OpenAIBackend("slow", f"{url}/chats/v1", concurrency=LATENCY_CONCURRENCY)
    found = [score(backend, samples(LATENCY_READS // QUESTIONS, seed=100 + repeat)) for repeat in range(repeats)]
    return {"reads": LATENCY_READS, "concurrency": LATENCY_CONCURRENCY, "seconds": statistics.median(found)}


def rivals(url: str, targets: int, folder: Path, repeats: int) -> dict[str, Any]:
    """Verdicts per second of other packages on the same texts and questions, or why there are none."""
    work = folder / "work.json"
    rows = [{"input": s.input, "target": s.target, "questions": s.checklist} for s in samples(targets, seed=0)]
    work.write_text(json.dumps(rows))
    found: dict[str, Any] = {}
    for name, requirement in RIVALS.items():
        try:
            python = environment(folder / requirement.partition("==")[0], requirement)
            command = [str(python), "-P", str(HERE / "rivals.py"), name, f"{url}/v1", str(work)]
            outcomes = [
                json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                for _ in range(repeats)
            ]
            found[name] = rate(outcomes[0]["verdicts"], [outcome["seconds"] for outcome in outcomes])
        except subprocess.CalledProcessError as error:
            found[name] = {"missing": f"{requirement}: {(error.stderr or '').strip().splitlines()[-1:]}"}
    return found


def environment(folder: Path, requirement: str) -> Path:
    """The Python of an environment that has `requirement`, made on first use."""
    python = folder / "bin" / "python"
    if not (folder / ".installed").is_file():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        subprocess.run(install, capture_output=True, text=True, check=True)
        (folder / ".installed").touch()
    return python


def rate(verdicts: int, seconds: Sequence[float]) -> dict[str, float]:
    """Verdicts per second, median and extremes."""
    return {
        "verdicts_per_second": verdicts / statistics.median(seconds),
        "slowest": verdicts / max(seconds),
        "fastest": verdicts / min(seconds),
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Print what was found."""
    table = Table(title=f"{found['throughput']['reads']} reads by HTTP", title_justify="left")
    for column in ("client", "verdicts/s", "slowest - fastest", "x aiohttp"):
        table.add_column(column, justify="left" if column == "client" else "right")
    bare = found["throughput"]["aiohttp"]["verdicts_per_second"]
    rows = {name: row for name, row in found["throughput"].items() if name != "reads"} | found["rivals"]
    for name, row in rows.items():
        if "missing" in row:
            console.print(f"{name}: skipped, {row['missing']}")
            continue
        speed = row["verdicts_per_second"]
        table.add_row(name, f"{speed:,.0f}", f"{row['slowest']:,.0f} - {row['fastest']:,.0f}", f"{speed / bare:.2f}")
    console.print(table)
    slow = found["latency"]
    console.print(f"{slow['reads']} reads at 0.3 s each, {slow['concurrency']} at a time: {slow['seconds']:.2f} s")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=256, help="texts with 8 questions each (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=64, help="requests at once (default: %(default)s)")
    parser.add_argument("--rivals", action="store_true", help="also time autochecklist and autorubric from PyPI")
    parser.add_argument("--rival-targets", type=int, default=24, help="texts for those (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/bench/http.json"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with instant_server() as url:
        found = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "load": os.getloadavg()[0],
            "throughput": throughput(url, arguments.targets, arguments.repeats, arguments.concurrency),
            "latency": latency(url, min(3, arguments.repeats)),
            "rivals": rivals(url, arguments.rival_targets, arguments.output.parent, 2) if arguments.rivals else {},
        }
    arguments.output.write_text(json.dumps(found, indent=2) + "\n")
    show(found, Console())
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
