"""`score` and `run`: rows with checklists in, rows with scores out; `run` has the checklists written first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import Columns, read_checklist
from checklist_rewards.cli.dry import forecast
from checklist_rewards.cli.examples import ExampleInput
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.forecast import prices_from
from checklist_rewards.cli.generate import checklist_columns, write_shared
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import Report, bars, warn_if_pocket
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.rows import Row, write_rows
from checklist_rewards.judges import Progress
from checklist_rewards.pipelines import Pipeline, source_from
from checklist_rewards.pipelines.requests import TRIED
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score

SCORE = "checklist_score"


@grouped
def score(
    files: o.Files,
    preset: o.Preset,
    keys: o.Keys,
    judge: o.OnlyJudge,
    checklist: o.ChecklistFile = None,
    target_key: o.TargetKey = None,
    checklist_key: o.ChecklistKey = None,
    concurrency: o.Concurrency = None,
    dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
    kept: o.Kept = o.Kept(),  # noqa: B008
) -> None:
    r"""Score texts by their checklists.

    Every row gets one more column, **checklist_score**: the primary score, every other aggregate, and for
    each item the answer with its probability. A row whose checklist is null is kept, without a score.
    Thinking (`<think>…</think>`) is no part of the text that is judged, as in training.

    With --pipeline the answers are asked for and added up as that pipeline does it; other options beat it.

    **Examples**

    ```
    checklist-rewards score answers.jsonl -o scored.jsonl --model org/judge
    checklist-rewards score a.csv -o b.parquet --checklist polite.json --pipeline checkeval
    checklist-rewards score infobench.jsonl -o scored.jsonl \
        --checklist-key decomposed_questions --target-key output \
        --input-key instruction --input-key input
    ```
    """
    work = Work.of(preset, kept, judge=judge, concurrency=concurrency, dry=dry)
    pipe = work.pipeline()
    file = RowFile(files.rows, files.output, files.summary)
    columns = file.columns(
        inputs=keys.input_key,
        target=target_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    reads = sum(_check(pipe, columns, row, columns.checklist_of(row.data, row.where)) for row in file)
    prices = prices_from(dry.price)
    if dry.dry_run:
        return forecast(work, prices, samples=_samples(columns, file), writes=False)
    pipe.scorer.check()
    warn_if_pocket(judge.shown)
    report = Report("score")
    with write_rows(files.output) as out, bars() as bar:
        progress = bar("reads", reads)
        for chunk in file.chunks():
            checklists = [columns.checklist_of(row.data, row.where) for row in chunk]
            scores = _scores(pipe, columns, chunk, checklists, progress)
            for row, found in zip(chunk, scores, strict=True):
                out.write(row.data | {SCORE: None if found is None else found.model_dump()})
                report.add(row.number, found) if found is not None else report.miss("no_checklist", row.number)
            report.rows += len(chunk)
    work.account(report, pipe, prices)
    raise typer.Exit(report.finish(files.output, _receipt(pipe), files.summary))


@grouped
def run(
    files: o.Files,
    preset: o.Preset,
    keys: o.WriterKeys,
    judge: o.Judge,
    writer: o.OwnWriter,
    source: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=o.PIPELINE,
            show_default=False,
            help="What a corpus-level pipeline works from: a JSON or YAML file; see --example-input.",
        ),
    ] = None,
    checklist: o.ChecklistFile = None,
    target_key: o.TargetKey = None,
    concurrency: o.Concurrency = None,
    dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
    kept: o.Kept = o.Kept(),  # noqa: B008
    example_input: ExampleInput = None,
) -> None:
    r"""Write a checklist for every input and score the target by it.

    The same as **generate** and then **score**, in one go. The checklist is written from the input and what
    belongs to it: the target is not seen. A row that gets no checklist is kept, without a score.

    A corpus-level pipeline (checkeval, interacteval, feedback) writes one checklist from its --source and scores all
    rows by it. With --checklist nothing is written, and all rows are scored by that one.

    **Examples**

    ```
    checklist-rewards run answers.jsonl -o scored.jsonl --model org/judge
    checklist-rewards run answers.jsonl -o scored.jsonl --pipeline rocketeval \
        --model org/judge --base-url http://localhost:8000/v1 \
        --generator-model org/writer
    checklist-rewards run summaries.jsonl -o scored.jsonl --pipeline checkeval --source dimensions.json \
        --model org/judge --dry-run --price org/judge=0.15,0.60
    ```
    """
    work = Work.of(
        preset,
        kept,
        writing=writer,
        writer=writer.engine_beside(judge),
        judge=judge,
        concurrency=concurrency,
        dry=dry,
    )
    pipe = work.pipeline()
    given = None if checklist is None else read_checklist(checklist)
    found_source = _source(work, source, given)
    file = RowFile(files.rows, files.output, files.summary)
    columns = file.columns(
        inputs=keys.input_key,
        target=target_key,
        reference=keys.reference_key,
        history=keys.history_key,
        writer={} if work.config.corpus_level or given is not None else work.writer_keys(keys),
        shared=given,
    )
    per_row = given is None and found_source is None
    total = 0
    for row in file:
        if per_row:
            pipe.check_request(columns.request_of(row.data, row.where), row.where)
        _check(pipe, columns, row, given)
        total += 1
    prices = prices_from(dry.price)
    if dry.dry_run:
        requests = (columns.request_of(row.data, row.where) for row in file) if per_row else ()
        samples = (columns.sample_of(row.data, row.where, given) for row in file)
        return forecast(work, prices, requests=requests, samples=samples, source=found_source, writes=given is None)
    pipe = work.metered() if given is None else pipe
    pipe.scorer.check()
    if given is None:
        pipe.check_writers()
    warn_if_pocket(judge.shown, work.writer.model)
    report = Report("run")
    shared: Checklist | GenerationError | None = given
    if found_source is not None:
        step = max(1, -(-total // TRIED))
        texts = [columns.sample_of(row.data, row.where, ()) for row in islice(file, 0, None, step)]
        tried = texts if pipe.tries_texts else []
        shared = write_shared(pipe, found_source, report, tried) or GenerationError("no checklist was written.")
    with write_rows(files.output) as out, bars() as bar:
        written, reads = bar("checklists", total) if per_row else None, bar("reads", 0)
        for chunk in file.chunks():
            made: Sequence[Checklist | GenerationError]
            if per_row:
                made = pipe.generate_batch([columns.request_of(row.data, row.where) for row in chunk], written)
            else:
                assert shared is not None
                made = [shared] * len(chunk)
            checklists = [checklist if isinstance(checklist, Checklist) else None for checklist in made]
            reads.expect(sum(len(checklist) for checklist in checklists if checklist is not None))
            scores = _scores(pipe, columns, chunk, checklists, reads)
            for row, one, found in zip(chunk, made, scores, strict=True):
                dumped = None if found is None else found.model_dump()
                out.write(row.data | checklist_columns(one) | {SCORE: dumped})
                if per_row:
                    report.add_checklist(row.number, one)
                elif found is None:
                    report.miss("no_checklist", row.number)
                if found is not None:
                    report.add(row.number, found)
            report.rows += len(chunk)
    work.account(report, pipe, prices)
    raise typer.Exit(report.finish(files.output, _receipt(pipe), files.summary))


def _source(work: Work, source: Path | None, given: Checklist | None) -> Any:
    """What a corpus-level pipeline works from; None where a checklist is written per input, or none is written."""
    if source is not None and given is not None:
        raise SampleError(f"--source {source} is what a checklist is written from, and --checklist gives one already.")
    if work.config.corpus_level and given is None:
        if source is None:
            raise SampleError(
                f"{work.config.name} writes one checklist for all rows: give --source FILE to write it from (see "
                f"--example-input {work.config.name}), or --checklist FILE."
            )
        return source_from(work.config, source)
    if source is not None:
        raise SampleError(f"--source {source} is for corpus-level pipelines; {work.config.name} writes from the rows.")
    return None


def _receipt(pipe: Pipeline) -> Any:
    return getattr(pipe.scorer, "receipt", None)


def _check(pipe: Pipeline, columns: Columns, row: Row, checklist: Checklist | None) -> int:
    """Refuse a row that cannot be scored; gives the number of its reads."""
    columns.target_of(row.data, row.where)
    columns.input_of(row.data, row.where)
    columns.reference_of(row.data, row.where)
    if checklist is None:
        return 0
    pipe.check_checklist(checklist, row.where)
    return len(checklist)


def _samples(columns: Columns, file: RowFile) -> Iterator[Sample]:
    """The rows that have a checklist."""
    for row in file:
        found = columns.checklist_of(row.data, row.where)
        if found is not None:
            yield columns.sample_of(row.data, row.where, found)


def _scores(
    pipe: Pipeline,
    columns: Columns,
    rows: Sequence[Row],
    checklists: Sequence[Checklist | None],
    progress: Progress,
) -> list[Score | None]:
    """A score per row, all reads planned together; None where there is no checklist."""
    pairs = list(zip(rows, checklists, strict=True))
    samples = [columns.sample_of(row.data, row.where, found) for row, found in pairs if found is not None]
    scores = iter(pipe.score_batch(samples, progress))
    return [None if found is None else next(scores) for _, found in pairs]
