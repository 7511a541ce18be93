"""`--dry-run`: the same work with counters in place of the engines."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from checklist_rewards.backends.budget import Prices
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.cli.output import plain_console, table
from checklist_rewards.cli.work import CANDIDATES, CHECKLISTS, PURPOSES, SCORES, Counter, Work
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.rows import CHUNK_ROWS
from checklist_rewards.progress import FORECAST_VARIABLE
from checklist_rewards.rows import Request
from checklist_rewards.scorer import Sample

_CANDIDATES, _CANDIDATE = 4, "A candidate of some length, as they are. " * 25
_REFINED = "Requests of the refiners are not counted, because they depend on the checklists."
_STAGES = "Only the first stage that is not in the store is counted, because later stages depend on its replies."
_JUDGES = "Each judge of {} is counted with every read. A cascade sends fewer reads to its later judges."
_LONGEST = "Checklists not written yet are counted with {} questions each."


def forecast(
    work: Work,
    *,
    requests: Iterable[Request] = (),
    samples: Iterable[Sample] | None = None,
    source: Any = None,
) -> None:
    """Print the calls, tokens and price of writing checklists for `requests` or from a `source`, and of scoring
    `samples`: with requests, one sample per request, scored by the written checklist; otherwise each by its own."""
    pipe = work.pipeline
    for line in work.lines:
        if line.engine.model != UNNAMED:  # code checks alone need no model; a read without one is refused
            _ = line.identity  # raises if the model is not found
    stand_in = placeholder(getattr(pipe.generator, "max_items", None), work.config.universal)
    missing = rows = 0
    notes: list[str] = []
    shared: Checklist | None = None
    with quiet():
        if source is not None:
            try:
                shared = pipe.generate(source)
            except GenerationError:
                shared, missing = stand_in, 1
                notes.append(_STAGES)
        requests_left, samples_left = iter(requests), None if samples is None else iter(samples)
        while True:
            chunk = list(islice(requests_left, CHUNK_ROWS))
            batch = [] if samples_left is None else list(islice(samples_left, CHUNK_ROWS))
            if not chunk and not batch:
                break
            rows += len(chunk) or len(batch)
            results = _generated(work, chunk) if chunk else []
            missing += sum(not isinstance(result, Checklist) for result in results)
            checklists: Sequence[Any] = [result if isinstance(result, Checklist) else stand_in for result in results]
            if batch and not chunk:
                checklists = [shared if shared is not None else sample.checklist for sample in batch]
            pipe.score_batch(
                [replace(sample, checklist=c) for c, sample in zip(checklists, batch, strict=bool(batch))]
            )
    if missing:
        notes += [_REFINED] * bool(pipe.refiners)
        notes += [_LONGEST.format(len(stand_in))] * (samples is not None)
    if work.config.scorer.judge is not None and samples is not None:
        notes.append(_JUDGES.format(work.config.scorer.judge))
    lines = [line for line in work.lines if line.purpose != SCORES or samples is not None]
    show(rows, lines, work.prices, notes)


def _generated(work: Work, requests: Sequence[Request]) -> list[Checklist | GenerationError]:
    """The results of `write_batch`; a request that needs sampled candidates is counted with placeholder ones."""
    pipe = work.pipeline
    if not any(line.purpose == CANDIDATES for line in work.lines):
        return pipe.write_batch(requests)
    [writer] = [line for line in work.lines if line.purpose == CHECKLISTS]
    results = []
    for request in requests:
        before = writer.calls
        [result] = pipe.write_batch([request])
        if not isinstance(result, Checklist) and writer.calls == before:
            texts = tuple(f"{number}. {_CANDIDATE}" for number in range(_CANDIDATES))
            pipe.write_batch([replace(request, candidates=texts)])
        results.append(result)
    return results


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings about unanswered reads, because a dry run answers none."""
    package = logging.getLogger("checklist_rewards")
    before = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(before)


_QUESTION = "Does the response do what the instruction asks for under point {}, and in the form that it asks for?"
_ASKED_TWICE = (
    "Each read of a served model is counted as two requests: if the first returns no label probabilities, the answer "
    "is requested as text."
)
_FLOOR = (
    "Tokens with which several reads by {} start can be computed once, as the transformers engine does: about {:,} "
    "prompt tokens are computed then."
)
_USUAL_ITEMS = 10


def placeholder(max_items: int | None, universal: Sequence[ChecklistItem] = ()) -> Checklist:
    """A stand-in for a checklist that is not written yet."""
    questions = [_QUESTION.format(number) for number in range(1, (max_items or _USUAL_ITEMS) + 1)]
    return Checklist.parse([*questions, *universal])


_HEADS = ("for", "model", "calls", "prompt tokens, at most", "reply tokens, at most", "US dollars, at most")


def show(rows: int, lines: Sequence[Counter], prices: Prices, notes: Sequence[str]) -> None:
    """Print the table of calls, tokens and costs, and the notes; as JSON if [`FORECAST_VARIABLE`] asks for it."""
    lines = [line for line in lines if line.engine.model != UNNAMED]
    lines.sort(key=lambda line: PURPOSES.index(line.purpose))
    cells = []
    for line in lines:
        cost = line.cost(prices)
        counts = (line.calls, line.prompt_tokens, line.reply_tokens)
        price = "no --price" if cost is None else f"{cost:,.4f}"
        cells.append([line.purpose, line.engine.model, *(f"{count:,}" for count in counts), price])
    said = []
    if prices and len(lines) > 1:
        total = sum(line.cost(prices) or 0.0 for line in lines)
        said.append(f"Total of the models with a price: at most {total:,.4f} US dollars.")
    said.append(f"{rows} rows. Dry run: no request was sent, no model loaded, no file written.")
    by_bytes = [line.engine.model for line in lines if line.calls and line.bounds.tokens is None]
    said += notes
    said += [
        f"The tokenizer of {model} is not on this machine, so its prompts are counted as one token per byte. English "
        "text has about a quarter of that."
        for model in dict.fromkeys(by_bytes)
    ]
    said += [_FLOOR.format(line.engine.model, line.floor_tokens) for line in lines if line.floor_tokens]
    said += [_ASKED_TWICE] * any(line.calls and line.bounds.requests > 1 for line in lines)
    if os.environ.get(FORECAST_VARIABLE) == "json":
        print(json.dumps({"heads": _HEADS, "rows": cells, "notes": said}))
        return
    out = plain_console()
    out.print(table(*_HEADS, rows=cells))
    for note in said:
        out.print(note)
