"""`generate`: write a checklist for every row, or one checklist from a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.cluster import run_on_ray, stores_of
from checklist_rewards.cli.dry import forecast
from checklist_rewards.cli.examples import ExampleInput
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.forecast import prices_from
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import RunReport, bars, warn_of_models, write_json
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.tasks import RowWork, Source
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.rows import write_rows
from checklist_rewards.pipelines import Pipeline, source_from
from checklist_rewards.scores.reasons import Reason, Unanswered


@grouped
def generate(
    files: o.Files,
    preset: o.Preset,
    keys: o.WriterKeys,
    writer: o.Writer,
    concurrency: o.Concurrency = None,
    dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
    cluster: o.Cluster = o.Cluster(),  # noqa: B008
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
    example_input: ExampleInput = None,
) -> None:
    r"""Write a checklist for every input, or one for a whole corpus.

    Adds the columns **checklist**, checklist_id, checklist_source and checklist_model to every row. If the input
    column has another name, it is copied to **prompt**. The output is a dataset for TRL trainers and for `score`.
    A row whose checklist could not be written has null there and is listed at the end.

    Corpus-level pipelines (checkeval, interacteval, feedback) take a source, a JSON or YAML file, instead of rows,
    and write one checklist to a .json file for `score --checklist`.

    **Examples**

    ```
    checklist-rewards generate prompts.jsonl -o train.parquet --model org/model
    checklist-rewards generate tasks.csv -o tasks.jsonl \
        --input-key instruction --input-key context
    checklist-rewards generate pairs.jsonl -o rubrics.jsonl --pipeline openrubrics_pairwise \
        --model org/model --base-url http://localhost:8000/v1
    checklist-rewards generate --example-input checkeval > dimensions.json
    checklist-rewards generate dimensions.json -o shared.json --pipeline checkeval --model org/model
    ```
    """
    work = Work.of(
        preset,
        stores_of(cluster, store_options),
        writing=writer,
        writer=writer.engine,
        concurrency=concurrency,
        dry=dry,
    )
    if work.config.corpus_level:
        if cluster.ray:
            raise SampleError(f"{work.config.name} writes a single checklist, which needs no cluster; omit --ray.")
        return _shared(work, writer, files, dry)
    pipe = work.pipeline
    named = {"inputs": keys.input_key, "history": keys.history_key, "writer": work.writer_keys(keys)}
    report = RunReport("generate")
    if cluster.ray:
        names, source = work.model_names, Source.WRITTEN
        return run_on_ray(
            work, report, files, cluster, dry, store_options, *names, columns=named, scores=False, checklists=source
        )
    file = RowFile(files.rows, files.output, files.summary, (store_options.store,))
    columns = file.columns(**named)
    rows = RowWork(pipe, columns, report, scores=False, checklists=Source.WRITTEN)
    total = sum(1 for _ in map(rows.prepare, file))
    prices = prices_from(dry.price)
    if dry.dry_run:
        return forecast(work, prices, requests=(columns.request_of(row.data, row.where) for row in file))
    pipe.check_writers()
    if pipe.needs_writer:
        warn_of_models(*work.model_names)
    with write_rows(files.output) as out, bars() as bar:
        progress = bar("checklists", total)
        for chunk in file.chunks():
            for row in rows.process(list(map(rows.prepare, chunk)), progress):
                out.write(row)
    work.account(report, prices)
    raise typer.Exit(report.finish(files.output, None, files.summary))


def _shared(work: Work, writer: o.Writer, files: o.Files, dry: o.Dry) -> None:
    """Write one checklist from a source to a JSON file."""
    name = work.config.name
    if files.output.suffix.lower() != ".json":
        raise SampleError(f"--output {files.output}: {name} writes a single checklist; choose a .json file.")
    check_outputs([files.rows], output=files.output, summary=files.summary)
    source = source_from(work.config, files.rows)
    prices = prices_from(dry.price)
    if dry.dry_run:
        return forecast(work, prices, source=source)
    pipe = work.pipeline
    pipe.check_writers()
    warn_of_models(*work.model_names)
    report = RunReport("generate")
    checklist = write_shared(pipe, source, report)
    if checklist is not None:
        write_json(files.output, checklist.model_dump(mode="json"))
    work.account(report, prices)
    raise typer.Exit(report.finish(files.output if checklist is not None else Path("nothing"), None, files.summary))


def write_shared(pipe: Pipeline, source: Any, report: RunReport, samples: Any = ()) -> Checklist | None:
    """The checklist of a corpus-level pipeline, or None if a stage failed. Adds the stages to the report."""
    checklist: Checklist | None = None
    try:
        checklist = pipe.generate(source, samples)
        report.extra["questions"] = len(checklist)
    except GenerationError as error:
        raw = f" The last reply was {error.raw!r:.120}" if error.raw else ""
        report.miss(Unanswered(Reason.NOT_GENERATED, f"{error}{raw}"), 0)
    for stage in pipe.generator.stages:
        report.extra[f"stage {stage.name}"] = f"{stage.asked} sent, {stage.kept} kept, {stage.seconds:.1f} s"
    return checklist
