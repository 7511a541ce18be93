"""What `generate`, `score`, `run` and `refine` do under `--dry-run`: the same work, with counters for engines.

What `refine` asks depends on its answers, so there the most is counted: answers as long as they may be, which fail
every item, so that all rounds are gone through.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from checklist_rewards.backends import Arrived, Engine, Messages, Progress, Reply, Sampling
from checklist_rewards.chat import prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.files import CHUNK_ROWS
from checklist_rewards.cli.forecast import Counter, Line, placeholder, show
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.store import Key, Store
from checklist_rewards.generators import Request
from checklist_rewards.judges.base import Prices
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.pipelines import Pipeline
from checklist_rewards.pipelines.pipeline import Scorer
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score, Verdict, score_checklist
from checklist_rewards.self_refine import Method, Task, refine_batch

_CANDIDATES, _CANDIDATE = 4, "A candidate of some length, as they are. " * 25
_REFINED = "What the refiners ask is not counted: it depends on the checklists."
_STAGES = "The source's first stage that is not in the store is counted; later ones depend on its replies."
_ALL_ROUNDS = "Counted as if no answer passed before the last round, and each were as long as --max-tokens allows."
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
    _refuse_remote(work)
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


def forecast_refine(
    work: Work,
    policy: Engine,
    prices: Prices,
    tasks: Sequence[Task],
    *,
    rounds: int,
    method: Method,
    sampling: Sampling,
) -> None:
    """Print what refining would take at most; see [`refine_batch`] for the arguments."""
    _refuse_remote(work)
    counters: list[Counter] = []

    def put(engine: Engine) -> Engine:
        counters.append(Counter(engine))
        return Engine(engine.model, counters[-1])

    pipe, answers = work.pipeline(put), _Longest(policy)
    stand_in = placeholder(getattr(pipe.generator, "max_items", None), work.config.universal)
    notes, kept = [_ALL_ROUNDS], None if work.store is None else _ReadOnly(work.store)
    with _quiet():
        for start in range(0, len(tasks), CHUNK_ROWS):
            chunk = list(tasks[start : start + CHUNK_ROWS])
            bare = [number for number, task in enumerate(chunk) if task.checklist is None]
            asked = [prompt_text(chunk[number].prompt) for number in bare]
            requests = [
                Request(input or "", chunk[number].reference, history)
                for number, (input, history) in zip(bare, asked, strict=True)
            ]
            made = _generated(pipe, requests, counters[1], sampled=len(counters) > 2) if requests else []
            for number, found in zip(bare, made, strict=True):
                checklist = found if isinstance(found, Checklist) else stand_in
                chunk[number] = replace(chunk[number], checklist=checklist)
            if any(not isinstance(found, Checklist) for found in made):
                notes[1:] = [_LONGEST.format(len(stand_in))]
            refine_batch(
                chunk,
                Engine(policy.model, answers),
                _NeverPleased(pipe.scorer),
                rounds=rounds,
                method=method,
                sampling=sampling,
                store=kept,  # type: ignore[arg-type]
            )
    judge, writer, *candidates = counters
    lines = [Line("answers", answers), *(Line("candidates", counter) for counter in candidates)]
    show(len(tasks), [*lines, Line("checklists", writer), Line("scores", judge)], prices, notes)


def _refuse_remote(work: Work) -> None:
    if work.judge.backend == REMOTE:
        raise SampleError(
            f"--dry-run counts what this process would ask, and with --backend remote it is the server at "
            f"{work.judge.base_url} that asks; leave one of the two away."
        )


class _Longest(Counter):
    """Counts, and replies with as much text as it may."""

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """See [`Backend`]."""
        super().generate(prompts, sampling, arrived)
        return [[Reply(("and " * sampling.max_tokens).strip(), "length")] * sampling.n for _ in prompts]


class _NeverPleased:
    """Has the real judge's prompts counted, and fails every item of what the store does not answer."""

    def __init__(self, scorer: Scorer):
        self.scorer = scorer
        self.check = scorer.check

    def score_batch(self, samples: Sequence[Sample], progress: Progress | None = None) -> list[Score]:
        """See [`Scorer`]."""
        scores = self.scorer.score_batch(samples, progress)
        return [
            score if score.answered == score.total else score_checklist(sample.checklist, _worst(sample.checklist))
            for sample, score in zip(samples, scores, strict=True)
        ]


def _worst(checklist: Checklist) -> list[Verdict]:
    verdicts = []
    for item in checklist.items:
        values = {label: value for label, value in item.values.items() if value is not None}
        verdicts.append(Verdict(answer=(min if item.weight >= 0 else max)(values, key=values.__getitem__)))
    return verdicts


class _ReadOnly:
    """A store that takes nothing: the texts of a dry run are nobody's replies."""

    def __init__(self, store: Store):
        self.get = store.get

    def put(self, answers: Iterable[tuple[Key, str]]) -> None:
        """Keep nothing."""
        for _ in answers:
            pass


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
