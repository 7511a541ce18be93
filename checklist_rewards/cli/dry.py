"""What `generate`, `score` and `run` do under `--dry-run`: the same work, with counters for engines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.files import CHUNK_ROWS
from checklist_rewards.cli.forecast import Counter, Line, placeholder, show
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import Request
from checklist_rewards.judges.base import Prices
from checklist_rewards.pipelines import Pipeline
from checklist_rewards.replies import Engine
from checklist_rewards.scorer import Sample

_CANDIDATES, _CANDIDATE = 4, "A candidate of some length, as they are. " * 25
_REFINED = "What the refiners ask is not counted: it depends on the checklists."
_STAGES = "The source's first stage that is not in the store is counted; later ones depend on its replies."
_LONGEST = "Checklists that are not written yet are counted at {} questions each."


def forecast(
    work: Work,
    prices: Prices,
    *,
    requests: Iterable[Request] = (),
    samples: Iterable[Sample] | None = None,
    source: Any = None,
    writes: bool = True,
) -> None:
    """Print what it would take.

    Args:
        work ([`Work`]): config, engines and store.
        prices: of the models.
        requests (iterable of [`Request`]): what checklists are wanted for.
        samples (iterable of [`Sample`], *optional*): what is to be scored; one per request where checklists are
            written per input. Its own checklist is used where nothing is written.
        source (*optional*): of a corpus-level pipeline.
        writes (`bool`, *optional*, defaults to `True`): whether checklists are written at all.
    """
    counters: list[Counter] = []

    def put(engine: Engine) -> Engine:
        counters.append(Counter(engine))
        return Engine(engine.model, counters[-1])

    pipe = work.pipeline(put)
    stand_in = placeholder(getattr(pipe.generator, "max_items", None), work.config.universal)
    missing = rows = 0
    notes: list[str] = []
    shared: Checklist | None = None
    with _quiet():
        if source is not None:
            try:
                shared = pipe.generate(source)
            except GenerationError:
                shared, missing = stand_in, 1
                notes.append(_STAGES)
        asked, scored = iter(requests), None if samples is None else iter(samples)
        while True:
            chunk = list(islice(asked, CHUNK_ROWS))
            batch = [] if scored is None else list(islice(scored, CHUNK_ROWS))
            if not chunk and not batch:
                break
            rows += len(chunk) or len(batch)
            made = _generated(pipe, chunk, counters[1], sampled=len(counters) > 2) if chunk else []
            missing += sum(not isinstance(found, Checklist) for found in made)
            checklists: Sequence[Any] = [found if isinstance(found, Checklist) else stand_in for found in made]
            if batch and not chunk:
                checklists = [shared if shared is not None else sample.checklist for sample in batch]
            pipe.score_batch(
                [
                    Sample(found, sample.target, sample.input, sample.reference, sample.history)
                    for found, sample in zip(checklists, batch, strict=bool(batch))
                ]
            )
    if missing:
        notes += [_REFINED] * bool(pipe.refiners)
        notes += [_LONGEST.format(len(stand_in))] * (scored is not None)
    judge, writer, *candidates = counters
    lines = [*(Line("candidates", counter) for counter in candidates), Line("checklists", writer)] if writes else []
    show(rows, lines + [Line("scores", judge)] * (samples is not None), prices, notes)


def _generated(
    pipe: Pipeline, requests: Sequence[Request], writer: Counter, *, sampled: bool
) -> list[Checklist | GenerationError]:
    """What `generate_batch` gives; a request that waits for candidates is counted as if it had them."""
    if not sampled:
        return pipe.generate_batch(requests)
    made = []
    for request in requests:
        before = writer.calls
        [found] = pipe.generate_batch([request])
        if not isinstance(found, Checklist) and writer.calls == before:
            texts = tuple(f"{number}. {_CANDIDATE}" for number in range(_CANDIDATES))
            pipe.generate_batch([replace(request, candidates=texts)])
        made.append(found)
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings about what was left unanswered: here that is everything."""
    package = logging.getLogger("checklist_rewards")
    before = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(before)
