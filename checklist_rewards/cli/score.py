"""`score` and `run`: score rows by their checklists; `run` writes the checklists first."""

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
from checklist_rewards.cli.report import RunReport, bars, warn_if_pocket
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.rows import Row, write_rows
from checklist_rewards.judges import Progress
from checklist_rewards.pipelines import Pipeline, source_from
from checklist_rewards.pipelines.requests import TRIED
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score
from checklist_rewards.scores.reasons import Reason, Unanswered

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
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
) -> None:
    r"""Score texts by their checklists.

    Adds the column **checklist_score** to every row: the primary score, all other metrics, and the answer and
    probability of each item. Rows with a null checklist are kept without a score. As in training, thinking
    (`<think>…</think>`) is removed from the text before it is judged.

    With --pipeline, the judge settings of that pipeline apply, unless other options override them.

    **Examples**

    ```
    checklist-rewards score answers.jsonl -o scored.jsonl --model org/judge
    checklist-rewards score a.csv -o b.parquet --checklist polite.json --pipeline checkeval
    checklist-rewards score infobench.jsonl -o scored.jsonl \
        --checklist-key decomposed_questions --target-key output \
        --input-key instruction --input-key input
    ```
    """
    work = Work.of(preset, store_options, judge=judge, concurrency=concurrency, dry=dry)
    pipe = work.pipeline
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
        return forecast(work, prices, samples=_samples(columns, file))
    pipe.scorer.check()
    warn_if_pocket(judge.shown)
    report = RunReport("score")
    with write_rows(files.output) as out, bars() as bar:
        progress = bar("reads", reads)
        for chunk in file.chunks():
            checklists = [columns.checklist_of(row.data, row.where) for row in chunk]
            scores = _scores(pipe, columns, chunk, checklists, progress)
            for row, result in zip(chunk, scores, strict=True):
                out.write(row.data | {SCORE: None if result is None else result.model_dump()})
                report.add(row.number, result) if result is not None else report.miss(
                    Unanswered(Reason.NO_CHECKLIST), row.number
                )
            report.rows += len(chunk)
    work.account(report, prices)
    raise typer.Exit(report.finish(files.output, _receipt(pipe), files.summary))


@grouped
def run(
    files: o.Files,
    preset: o.Preset,
    keys: o.WriterKeys,
    judge: o.JudgeOptions,
    writer: o.OwnWriter,
    source: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=o.PIPELINE,
            show_default=False,
            help="Source of a corpus-level pipeline: a JSON or YAML file; see --example-input.",
        ),
    ] = None,
    checklist: o.ChecklistFile = None,
    target_key: o.TargetKey = None,
    concurrency: o.Concurrency = None,
    dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
    example_input: ExampleInput = None,
) -> None:
    r"""Write a checklist for every input and score the target by it.

    Combines **generate** and **score**. The writer sees the input and its context, never the target. A row whose
    checklist could not be written is kept without a score.

    A corpus-level pipeline (checkeval, interacteval, feedback) writes one checklist from its --source and scores all
    rows by it. With --checklist, no checklist is written and all rows are scored by the given one.

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
    engine = writer.engine_beside(judge)
    work = Work.of(
        preset,
        store_options,
        writing=writer,
        writer=engine if checklist is None else None,
        judge=judge,
        concurrency=concurrency,
        dry=dry,
    )
    pipe = work.pipeline
    file_checklist = None if checklist is None else read_checklist(checklist)
    loaded_source = _source(work, source, file_checklist)
    file = RowFile(files.rows, files.output, files.summary)
    columns = file.columns(
        inputs=keys.input_key,
        target=target_key,
        reference=keys.reference_key,
        history=keys.history_key,
        writer={} if work.config.corpus_level or file_checklist is not None else work.writer_keys(keys),
        shared=file_checklist,
    )
    per_row = file_checklist is None and loaded_source is None
    total = 0
    for row in file:
        if per_row:
            pipe.check_request(columns.request_of(row.data, row.where), row.where)
        _check(pipe, columns, row, file_checklist)
        total += 1
    prices = prices_from(dry.price)
    if dry.dry_run:
        requests = (columns.request_of(row.data, row.where) for row in file) if per_row else ()
        samples = (columns.sample_of(row.data, row.where, file_checklist) for row in file)
        return forecast(work, prices, requests=requests, samples=samples, source=loaded_source)
    pipe.scorer.check()
    if file_checklist is None:
        pipe.check_writers()
    warn_if_pocket(judge.shown, engine.model)
    report = RunReport("run")
    shared: Checklist | GenerationError | None = file_checklist
    if loaded_source is not None:
        step = max(1, -(-total // TRIED))
        texts = [columns.sample_of(row.data, row.where, ()) for row in islice(file, 0, None, step)]
        trial_texts = texts if pipe.tries_texts else []
        shared = write_shared(pipe, loaded_source, report, trial_texts) or GenerationError("no checklist was written.")
    with write_rows(files.output) as out, bars() as bar:
        written, reads = bar("checklists", total) if per_row else None, bar("reads", 0)
        for chunk in file.chunks():
            generated: Sequence[Checklist | GenerationError]
            if per_row:
                generated = pipe.write_batch([columns.request_of(row.data, row.where) for row in chunk], written)
            else:
                assert shared is not None
                generated = [shared] * len(chunk)
            checklists = [checklist if isinstance(checklist, Checklist) else None for checklist in generated]
            reads.expect(sum(len(checklist) for checklist in checklists if checklist is not None))
            scores = _scores(pipe, columns, chunk, checklists, reads)
            for row, checklist_or_error, result in zip(chunk, generated, scores, strict=True):
                dumped = None if result is None else result.model_dump()
                out.write(row.data | checklist_columns(checklist_or_error) | {SCORE: dumped})
                if per_row:
                    report.add_checklist(row.number, checklist_or_error)
                elif result is None:
                    report.miss(Unanswered(Reason.NO_CHECKLIST), row.number)
                if result is not None:
                    report.add(row.number, result)
            report.rows += len(chunk)
    work.account(report, prices)
    raise typer.Exit(report.finish(files.output, _receipt(pipe), files.summary))


def _source(work: Work, source: Path | None, checklist: Checklist | None) -> Any:
    """The source of a corpus-level pipeline; None for other pipelines and with --checklist."""
    if source is not None and checklist is not None:
        raise SampleError(
            f"--source {source} has no effect with --checklist, which is used as it is; omit one of them."
        )
    if work.config.corpus_level and checklist is None:
        if source is None:
            raise SampleError(
                f"{work.config.name} writes one checklist for all rows and requires --source FILE (see "
                f"--example-input {work.config.name}), or set --checklist FILE."
            )
        return source_from(work.config, source)
    if source is not None:
        raise SampleError(
            f"--source {source} requires a corpus-level pipeline; {work.config.name} writes a checklist per row."
        )
    return None


def _receipt(pipe: Pipeline) -> Any:
    return getattr(pipe.scorer, "receipt", None)


def _check(pipe: Pipeline, columns: Columns, row: Row, checklist: Checklist | None) -> int:
    """Validate a row, and return its number of reads. Raises an error for a row that cannot be scored."""
    columns.target_of(row.data, row.where)
    columns.input_of(row.data, row.where)
    columns.reference_of(row.data, row.where)
    if checklist is None:
        return 0
    pipe.check_checklist(checklist, row.where)
    return len(checklist)


def _samples(columns: Columns, file: RowFile) -> Iterator[Sample]:
    """The samples of the rows that have a checklist."""
    for row in file:
        checklist = columns.checklist_of(row.data, row.where)
        if checklist is not None:
            yield columns.sample_of(row.data, row.where, checklist)


def _scores(
    pipe: Pipeline,
    columns: Columns,
    rows: Sequence[Row],
    checklists: Sequence[Checklist | None],
    progress: Progress,
) -> list[Score | None]:
    """One score per row, from a single scoring batch; None for a row without a checklist."""
    pairs = list(zip(rows, checklists, strict=True))
    samples = [columns.sample_of(row.data, row.where, checklist) for row, checklist in pairs if checklist is not None]
    scores = iter(pipe.score_batch(samples, progress))
    return [None if checklist is None else next(scores) for checklist in checklists]
