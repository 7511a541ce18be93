"""`score` and `run`: score rows by their checklists; `run` writes the checklists first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.cluster import run_on_ray, stores_of
from checklist_rewards.cli.dry import forecast
from checklist_rewards.cli.examples import ExampleInput
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.forecast import prices_from
from checklist_rewards.cli.generate import write_shared
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import RunReport, bars, warn_of_models
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.rows import Columns, read_checklist
from checklist_rewards.datasets.tasks import RowWork, Source
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import write_rows
from checklist_rewards.pipelines import Pipeline, source_from
from checklist_rewards.pipelines.pipeline import TRIED, a_few
from checklist_rewards.scorer import Sample


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
    cluster: o.Cluster = o.Cluster(),  # noqa: B008
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
) -> None:
    r"""Score texts by their checklists.

    Adds the column **checklist_score** to every row: the primary score, all other metrics, and the answer and
    probability of each item. Rows with a null checklist are kept without a score.

    As in training, only the answer of a text is judged, without its thought. A text without an answer (empty, cut in
    its thought, ending with a tool call) is scored as --no-answer says, and the judge is not asked.

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
    command = Work.of(preset, stores_of(cluster, store_options), judge=judge, concurrency=concurrency, dry=dry)
    pipe = command.pipeline
    named = {
        "inputs": keys.input_key,
        "target": target_key,
        "checklist": checklist_key,
        "reference": keys.reference_key,
        "history": keys.history_key,
        "shared": None if checklist is None else read_checklist(checklist),
    }
    report = RunReport("score")
    if cluster.ray:
        return run_on_ray(command, report, files, cluster, dry, store_options, command.judge_name, columns=named)
    file = RowFile(files.rows, files.output, files.summary, (checklist, store_options.store))
    columns = file.columns(**named)
    work = RowWork(pipe, columns, report, scores=True, checklists=Source.COLUMN)
    reads, asks = 0, False
    for prepared in map(work.prepare, file):
        if prepared.checklist is not None:
            reads += len(prepared.checklist)
            asks = asks or command.asks(prepared.checklist)
    prices = prices_from(dry.price)
    if dry.dry_run:
        return forecast(command, prices, samples=_samples(columns, file))
    command.check_judge(asks)
    with write_rows(files.output) as out, bars() as bar:
        progress = bar("reads", reads)
        for chunk in file.chunks():
            for row in work.process(list(map(work.prepare, chunk)), reads=progress):
                out.write(row)
    command.account(report, prices)
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
    cluster: o.Cluster = o.Cluster(),  # noqa: B008
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
    command = Work.of(
        preset,
        stores_of(cluster, store_options),
        writing=writer,
        writer=writer.engine_beside(judge) if checklist is None else None,
        judge=judge,
        concurrency=concurrency,
        dry=dry,
    )
    pipe = command.pipeline
    file_checklist = None if checklist is None else read_checklist(checklist)
    loaded_source = _source(command, source, file_checklist)
    per_row = file_checklist is None and loaded_source is None
    report = RunReport("run")
    named = {
        "inputs": keys.input_key,
        "target": target_key,
        "reference": keys.reference_key,
        "history": keys.history_key,
        "writer": command.writer_keys(keys) if per_row else {},
        "shared": file_checklist,
    }
    checklists: Source | Checklist | None = Source.WRITTEN if per_row else file_checklist
    if cluster.ray:
        if checklists is None:
            raise SampleError(
                "--source cannot be combined with --ray: write the checklist with `checklist-rewards generate`, then "
                "give it with --checklist."
            )
        return run_on_ray(
            command,
            report,
            files,
            cluster,
            dry,
            store_options,
            *command.model_names,
            columns=named,
            checklists=checklists,
        )
    file = RowFile(files.rows, files.output, files.summary, (checklist, source, store_options.store))
    columns = file.columns(**named)
    work = RowWork(pipe, columns, report, scores=True, checklists=checklists)
    total = sum(1 for _ in map(work.prepare, file))
    prices = prices_from(dry.price)
    if dry.dry_run:
        requests = (columns.request_of(row.data, row.where) for row in file) if per_row else ()
        samples = (columns.sample_of(row.data, row.where, file_checklist) for row in file)
        return forecast(command, prices, requests=requests, samples=samples, source=loaded_source)
    pipe.scorer.check()
    if file_checklist is None:
        pipe.check_writers()
    warn_of_models(*command.model_names)
    if loaded_source is not None:
        step = max(1, -(-total // TRIED))
        texts = a_few([columns.sample_of(row.data, row.where, ()) for row in islice(file, 0, None, step)])
        trial_texts = texts if pipe.tries_texts else []
        checklists = write_shared(pipe, loaded_source, report, trial_texts)
        work = RowWork(pipe, columns, report, scores=True, checklists=checklists)
    with write_rows(files.output) as out, bars() as bar:
        written, reads = bar("checklists", total) if per_row else None, bar("reads", 0)
        for chunk in file.chunks():
            for row in work.process(list(map(work.prepare, chunk)), written, reads):
                out.write(row)
    command.account(report, prices)
    raise typer.Exit(report.finish(files.output, _receipt(pipe), files.summary))


def _source(command: Work, source: Path | None, checklist: Checklist | None) -> Any:
    """The source of a corpus-level pipeline; None for other pipelines and with --checklist."""
    if source is not None and checklist is not None:
        raise SampleError(
            f"--source {source} has no effect with --checklist, which is used as it is; omit one of them."
        )
    if command.config.corpus_level and checklist is None:
        if source is None:
            raise SampleError(
                f"{command.config.name} writes one checklist for all rows and requires --source FILE (see "
                f"--example-input {command.config.name}), or set --checklist FILE."
            )
        return source_from(command.config, source)
    if source is not None:
        raise SampleError(
            f"--source {source} requires a corpus-level pipeline; {command.config.name} writes a checklist per row."
        )
    return None


def _receipt(pipe: Pipeline) -> Any:
    return getattr(pipe.scorer, "receipt", None)


def _samples(columns: Columns, file: RowFile) -> Iterator[Sample]:
    """The samples of the rows that have a checklist."""
    for row in file:
        checklist = columns.checklist_of(row.data, row.where)
        if checklist is not None:
            yield columns.sample_of(row.data, row.where, checklist)
