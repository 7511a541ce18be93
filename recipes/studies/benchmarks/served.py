"""Benchmark of served judges, compared with a client that only posts requests (`make bench`).

The server (`instant.py`, a separate process) answers instantly. The clients take turns; medians are reported:

(a) lists    one-token verdicts through the whole scorer, with lists of prompts per request, as on a vLLM server
(b) chats    the same with one chat request per read
(c) aiohttp  a loop that only posts the requests of (b) and parses the responses: the upper bound on this machine
(d) decisions, aiohttp decisions
             (a) and (c) with a Decisions API: one request per text, with its eight questions
(e) latency  1,000 reads, 256 at a time, with responses after 0.3 s

With `--rivals`, `autochecklist` and `autorubric` from PyPI also score the same texts and questions, each in its own
environment under `runs/bench/`, with their default settings and prompts, and with fewer targets because they are
slower.

Prints a table and writes `runs/bench/served.json`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from pocket.world import distinct_questions, words_of
from studies.benchmarks.figures import figures, finish, parser_of, server, turns
from studies.benchmarks.instant import LATENCY

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion, SystemOne
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.wire import label_body
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
    """Texts of about 150 words with eight questions each. Every seed gives other texts."""
    rng = random.Random(seed)
    batch = []
    for _ in range(targets):
        questions = distinct_questions(rng, QUESTIONS)
        text = " ".join(rng.choice(words_of("train")) for _ in range(150))
        batch.append(Sample(questions, f"{text} {rng.random()}", f"Write about {text[:30]}."))
    return batch


def score(backend: OpenAIBackend | DecisionsBackend, batch: Sequence[Sample]) -> float:
    """Seconds to score a batch without a store."""
    scorer = ChecklistScorer(backend.model, backend=backend, store=False)
    started = time.perf_counter()
    scores = scorer.score_batch(batch)
    seconds = time.perf_counter() - started
    assert all(score.answered == QUESTIONS for score in scores), "a read of the benchmark is unanswered"
    return seconds


def bodies(batch: Sequence[Sample]) -> list[dict[str, Any]]:
    """The bodies of the chat requests for a batch."""
    prompt = load_prompt("judges/item", "judge")
    requests = []
    for sample in batch:
        prefix = prompt.prefix(input=sample.input, target=sample.target)
        for question in sample.checklist:
            messages = [{"role": "user", "content": prefix + prompt.tail(question)}]
            if prompt.system is not None:
                messages.insert(0, {"role": "system", "content": prompt.system})
            requests.append(label_body("instant", messages, frozenset()))
    return requests


def decision_bodies(batch: Sequence[Sample]) -> list[dict[str, Any]]:
    """The bodies of the requests to a Decisions API for a batch."""
    prompt = load_prompt("judges/decision", "judge")
    requests = []
    for sample in batch:
        state = prompt.prefix(input=sample.input, target=sample.target).rstrip()
        tails = [prompt.tail(question).strip() for question in sample.checklist]
        questions = {f"q{n}": DecisionQuestion("predicate", tail) for n, tail in enumerate(tails, start=1)}
        requests.append(SystemOne().body("instant", prompt.system, state, questions))
    return requests


def post(url: str, requests: Sequence[dict[str, Any]], concurrency: int) -> float:
    """Seconds to post all requests to `url` with aiohttp only."""

    async def all_of_them() -> float:
        slots = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def one(body: dict[str, Any]) -> Any:
                async with slots, session.post(url, json=body) as response:
                    return await response.json()

            started = time.perf_counter()
            await asyncio.gather(*map(one, requests))
            return time.perf_counter() - started

    return asyncio.run(all_of_them())


def throughput(url: str, targets: int, repeats: int, concurrency: int) -> dict[str, list[float]]:
    """Answers per second of lists, chats, decisions, and aiohttp with the requests of the last two."""
    lists = OpenAIBackend("instant", f"{url}/v1", concurrency=concurrency)
    chats = OpenAIBackend("instant", f"{url}/chats/v1", concurrency=concurrency)
    decisions = DecisionsBackend("instant", f"{url}/chats/v1", concurrency=concurrency)
    runs: dict[str, Callable[[list[Sample]], float]] = {
        "lists": lambda batch: score(lists, batch),
        "chats": lambda batch: score(chats, batch),
        "aiohttp": lambda batch: post(f"{url}/chats/v1/chat/completions", bodies(batch), concurrency),
        "decisions": lambda batch: score(decisions, batch),
        "aiohttp decisions": lambda batch: post(f"{url}/chats/v1/systemone", decision_bodies(batch), concurrency),
    }
    for run in runs.values():  # the first call opens connections
        run(samples(8, seed=-1))
    gc.collect()
    gc.freeze()  # a full collection takes as long as a run, and would hit a random one
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats):
        batch = samples(targets, seed=repeat)
        for name in turns(runs, repeat):
            seconds[name].append(runs[name](batch))
    gc.unfreeze()
    return {name: [targets * QUESTIONS / one for one in of_client] for name, of_client in seconds.items()}


def latency(url: str, repeats: int) -> list[float]:
    """Seconds for 1,000 reads with responses after 0.3 s."""
    backend = OpenAIBackend("slow", f"{url}/chats/v1", concurrency=LATENCY_CONCURRENCY)
    return [score(backend, samples(LATENCY_READS // QUESTIONS, seed=100 + repeat)) for repeat in range(repeats)]


def rivals(url: str, targets: int, folder: Path, repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Answers per second of other packages on the same texts and questions, and the errors of those that failed."""
    work = folder / "work.json"
    rows = [{"input": s.input, "target": s.target, "questions": s.checklist} for s in samples(targets, seed=0)]
    work.write_text(json.dumps(rows))
    rates: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for name, requirement in RIVALS.items():
        try:
            python = environment(folder / requirement.partition("==")[0], requirement)
            command = [str(python), "-P", str(HERE / "rivals.py"), name, f"{url}/v1", str(work)]
            outcomes = [
                json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                for _ in range(repeats)
            ]
            rates[name] = [outcome["verdicts"] / outcome["seconds"] for outcome in outcomes]
        except subprocess.CalledProcessError as error:
            missing[name] = f"{requirement}: {(error.stderr or '').strip().splitlines()[-1:]}"
    return rates, missing


def environment(folder: Path, requirement: str) -> Path:
    """The Python of an environment with `requirement`, created at the first call."""
    python = folder / "bin" / "python"
    if not (folder / ".installed").is_file():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        subprocess.run(install, capture_output=True, text=True, check=True)
        (folder / ".installed").touch()
    return python


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script."""
    parser = parser_of(__doc__, __file__, targets=256, repeats=5, concurrency=64, rival_targets=24)
    parser.add_argument("--rivals", action="store_true", help="also measure autochecklist and autorubric from PyPI")
    given = parser.parse_args(argv)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with server("-P", str(HERE / "instant.py")) as (url, _):
        rates = throughput(url, given.targets, given.repeats, given.concurrency)
        slow = latency(url, min(3, given.repeats))
        others, missing = rivals(url, given.rival_targets, given.output.parent, 2) if given.rivals else ({}, {})
    decisions = {name: values for name, values in rates.items() if "decisions" in name}
    chats = {name: values for name, values in rates.items() if name not in decisions} | others
    bound = LATENCY_READS / LATENCY_CONCURRENCY * LATENCY
    found = [
        *figures("answers per second", chats, "aiohttp"),
        *figures("answers per second", decisions, "aiohttp decisions"),
        *figures(
            "seconds", {"least": bound, "scorer": slow}, "least", f"{LATENCY_READS} answers after {LATENCY} s each"
        ),
    ]
    for name, why in missing.items():
        print(f"{name}: skipped ({why})")
    title = "Answers over HTTP, from a server that answers at once"
    return finish(given.output, title, found, {"reads": given.targets * QUESTIONS, "missing": missing})


if __name__ == "__main__":
    main()
