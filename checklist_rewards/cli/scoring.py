"""`generate`, `score` and `run`: write checklists, score texts, or both, in this process or on Ray.

With `--ray`, the same work is done on the shards of a dataset. `--example-input` prints an input of a pipeline as a
template.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.forecast import forecast
from checklist_rewards.cli.options import brief
from checklist_rewards.cli.output import RunReport, bars, check_outputs, console
from checklist_rewards.cli.work import RowRun, Work
from checklist_rewards.datasets.shards import Shard, find_shards, first_row
from checklist_rewards.datasets.tasks import RowWork, Source
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.rows import FORMATS, read_rows
from checklist_rewards.judges.weights import Weights
from checklist_rewards.pipelines import PipelineConfig, load_config, source_from
from checklist_rewards.pipelines.registry import GENERATORS
from checklist_rewards.prompts import load_prompt
from checklist_rewards.rows import Columns, read_checklist, write_rows_of
from checklist_rewards.scorer import Sample
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import import_extra

if TYPE_CHECKING:
    from checklist_rewards.pipelines import Pipeline

_ROW = {
    "input": "Write a polite answer to this complaint: my parcel is late.",
    "target": "We are sorry for the delay. Your parcel will reach you tomorrow.",
}
_EXTRA_FIELDS = {
    "reference": "I am sorry that your parcel is late. I have asked the carrier, and it will arrive on Friday.",
    "history": "user: Hello, I ordered on Monday.\n\nassistant: How can I help?",
    "context": "Orders arrive within five days.",
    "candidates": ["It is late.", "Sorry! It will come on Friday, I have checked."],
    "responses": ["Sorry! It will come on Friday, I have checked.", "It is late."],
    "chosen": "Sorry! It will come on Friday, I have checked.",
    "rejected": "It is late.",
}


def example_input(config: PipelineConfig) -> str:
    """An example row (JSONL) of a pipeline, or the example source (JSON) of a corpus-level pipeline.

    A source type without an example is shown as its JSON schema.
    """
    if config.source is not None:
        example = getattr(config.source, "example", None)
        if example is None:
            return json.dumps(config.source.model_json_schema(), indent=2)
        return example().model_dump_json(indent=2)
    parameters = inspect.signature(GENERATORS.get(config.generator.kind).factory).parameters
    prompt = config.generator.prompt or (parameters["prompt"].default if "prompt" in parameters else None)
    placeholders = load_prompt(prompt, "generator").placeholders if prompt else ()
    row = _ROW | {
        "candidates" if name == "responses" else name: value
        for name, value in _EXTRA_FIELDS.items()
        if name in placeholders
    }
    return json.dumps(row, ensure_ascii=False)


def _show(name: str | None) -> None:
    if name is not None:
        typer.echo(example_input(load_config(name)))
        raise typer.Exit


ExampleInput = Annotated[
    str | None,
    o.option(
        o.PIPELINE,
        "Print an example input of this pipeline and exit.",
        metavar="PIPELINE",
        is_eager=True,
        callback=_show,
    ),
]


def run_on_ray(
    command: str,
    work: Work,
    files: o.Files,
    cluster: o.Cluster,
    dry: o.Dry,
    store: o.StoreOptions,
    *,
    columns: dict[str, Any],
    scores: bool = True,
    checklists: Source | Checklist = Source.COLUMN,
) -> None:
    """Process all shards and print the report of all actors. `columns` has the arguments of [`Columns.of`]; `scores`
    and `checklists` are as in [`RowTask`]."""
    [module] = import_extra("checklist_rewards.datasets.ray", extra="ray")
    for name, value in (("--dry-run", dry.dry_run or None), ("--budget", dry.budget)):
        if value is not None:
            raise SampleError(f"{name} counts the calls of one process, so it cannot be combined with --ray; omit it.")
    shards = find_shards(files.rows)
    sources = (shard.source for shard in shards)
    check_outputs(*sources, folders={"--output": files.output}, summary=files.summary)
    if files.output.suffix.lower() in FORMATS:
        raise SampleError(
            f"--output {files.output} looks like a file; --ray writes a folder with one Parquet file per shard, so "
            "give the name of a folder."
        )
    first = first_row(shards)
    report = RunReport(command)
    task = work.task(Columns.of(first, **columns), scores=scores, checklists=checklists)
    keep = store.store or not store.no_store
    settings = {"actors": cluster.actors, "num_gpus": cluster.num_gpus, "shard_rows": cluster.shard_rows}
    weights = getattr(work.pipeline.scorer, "weights", None)
    if weights is not None and checklists is not Source.WRITTEN:
        check_weights(weights, task.columns, shards, files.rows)
    try:
        with bars() as bar:
            report += module.run_shards(
                task,
                files.rows,
                files.output,
                store=keep,
                progress=bar("rows", None),
                **{name: value for name, value in settings.items() if value is not None},
            )
    except KeyboardInterrupt:
        console.print(
            "Interrupted: finished shards are kept, and so are answers (unless --no-store is set); rerun the same "
            "command to continue.",
            style="yellow",
        )
        raise typer.Exit(130) from None
    work.account(report)
    raise typer.Exit(report.finish(files.output, report.judged, files.summary))


def check_weights(weights: Weights, columns: Columns, shards: Sequence[Shard], rows: Path) -> None:
    """[`Weights.check_used`] on the checklists of the shards, which are read until every weight has an item."""
    for checklist in _checklists(columns, shards):
        with suppress(ChecklistError):
            weights.of(checklist)
        if not weights.unused:
            return
    weights.check_used(rows)


def _checklists(columns: Columns, shards: Sequence[Shard]) -> Iterator[Checklist]:
    """The checklists of shards. The run lists the shards and rows that cannot be read."""
    if columns.shared is not None:
        yield columns.shared
        return
    for shard in shards:
        with suppress(SampleError):
            for row in read_rows(shard.source):
                with suppress(SampleError, ChecklistError):
                    if (checklist := columns.checklist_of(row.data, row.where)) is not None:
                        yield checklist


def stores_of(cluster: o.Cluster, store: o.StoreOptions) -> o.StoreOptions:
    """The store that this process opens: none with --ray, where --store is the folder of the stores of the shards.
    Refuses cluster options without --ray."""
    if cluster.ray:
        store.consistent()
        return o.StoreOptions(no_store=True)
    o.no_effect("without --ray", o.Cluster)
    return store


@brief("pipeline", "input_key")
def generate(
    files: o.Files,
    preset: o.Preset,
    keys: o.Keys,
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
    checklist-rewards generate tasks.csv -o tasks.jsonl --model org/model \
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
        o.no_effect(f"with {work.config.name}, which writes one checklist from a source", o.Keys)
        if cluster.ray:
            raise SampleError(f"{work.config.name} writes a single checklist, which needs no cluster; omit --ray.")
        return _shared(work, writer, files, dry)
    pipe = work.pipeline
    named = keys.columns(reference=None, writer=work.writer_keys(keys))
    what: dict[str, Any] = {"scores": False, "checklists": Source.WRITTEN}
    if cluster.ray:
        return run_on_ray("generate", work, files, cluster, dry, store_options, columns=named, **what)
    run = RowRun("generate", work, files, named)
    rows = RowWork(pipe, run.columns, run.report, **what)
    total = sum(1 for _ in map(rows.validate, run))
    if dry.dry_run:
        return forecast(work, requests=(run.columns.request_of(row.data, row.where) for row in run))
    pipe.check_writers()
    assert work.writer is not None
    work.writer.expect(total)
    with write_rows_of(files.rows, files.output) as out, bars() as bar:
        run.write(out, partial(rows.process, written=bar("checklists", total)))
    run.finish(None)


def _shared(work: Work, writer: o.Writer, files: o.Files, dry: o.Dry) -> None:
    """Write one checklist from a source to a JSON file."""
    name = work.config.name
    if files.output.suffix.lower() != ".json":
        raise SampleError(f"--output {files.output}: {name} writes a single checklist; choose a .json file.")
    check_outputs(output=files.output, summary=files.summary)
    source = source_from(work.config, files.rows)
    if dry.dry_run:
        return forecast(work, source=source)
    pipe = work.pipeline
    pipe.check_writers()
    report = RunReport("generate")
    checklist = write_shared(pipe, source, report)
    if checklist is not None:
        write_json(files.output, checklist.model_dump(mode="json"))
    work.account(report)
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


@brief("checklist", "metric", "threshold", "judge.mode", "judge.calibration", "judge", "input_key", "target_key")
def score(
    files: o.Files,
    preset: o.Preset,
    keys: o.Keys,
    judge: o.JudgeOptions,
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
    its thought, ending with a tool call) is scored as --no-answer says, and the judge is not asked. With --pipeline,
    the judge settings of that pipeline apply, unless other options override them.

    **Examples**

    ```
    checklist-rewards score answers.jsonl -o scored.jsonl --model org/judge
    checklist-rewards score a.csv -o b.parquet --checklist polite.json --pipeline checkeval --model org/judge
    checklist-rewards score infobench.jsonl -o scored.jsonl --model org/judge \
        --checklist-key decomposed_questions --target-key output \
        --input-key instruction --input-key input
    ```
    """
    store = stores_of(cluster, store_options)
    command = Work.of(preset, store, judge=judge, concurrency=concurrency, dry=dry, may_need_no_store=True)
    named = keys.columns(checklist, target=target_key, checklist=checklist_key)
    if cluster.ray:
        return run_on_ray("score", command, files, cluster, dry, store_options, columns=named)
    run = RowRun("score", command, files, named)
    work = RowWork(command.pipeline, run.columns, run.report, scores=True, checklists=Source.COLUMN)
    for found in map(work.validate, run):
        run.expect(found)
    if dry.dry_run:
        return forecast(command, samples=_samples(run))
    command.check_judge(run.asks, files.rows)
    with write_rows_of(files.rows, files.output) as out, bars() as bar:
        run.write(out, partial(work.process, reads=bar("reads", run.reads)))
    run.finish(command.receipt)


@brief("pipeline", "source", "metric", "threshold", "input_key", "target_key")
def run(
    files: o.Files,
    preset: o.Preset,
    keys: o.Keys,
    judge: o.JudgeOptions,
    writer: o.OwnWriter,
    source: Annotated[
        Path | None,
        o.option(o.PIPELINE, "Source of a corpus-level pipeline: a JSON or YAML file; see --example-input."),
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
        --writer.model org/writer
    checklist-rewards run summaries.jsonl -o scored.jsonl --pipeline checkeval --source dimensions.json \
        --model org/judge --dry-run --price org/judge=0.15,0.60
    ```
    """
    if checklist is not None:
        o.no_effect("with --checklist, which is used as it is", o.OwnWriter, "source")
    command = Work.of(
        preset,
        stores_of(cluster, store_options),
        writing=writer,
        writer=(writer.other_engine(judge) or judge.engine) if checklist is None else None,
        judge=judge,
        concurrency=concurrency,
        dry=dry,
    )
    pipe = command.pipeline
    file_checklist = None if checklist is None else read_checklist(checklist)
    loaded_source = _source(command, source, file_checklist)
    per_row = file_checklist is None and loaded_source is None
    writer_columns = command.writer_keys(keys) if per_row else {}
    named = keys.columns(target=target_key, writer=writer_columns, shared=file_checklist)
    checklists: Source | Checklist | None = Source.WRITTEN if per_row else file_checklist
    if cluster.ray:
        if checklists is None:
            raise SampleError(
                "--source cannot be combined with --ray: write the checklist with `checklist-rewards generate`, then "
                "give it with --checklist."
            )
        return run_on_ray("run", command, files, cluster, dry, store_options, columns=named, checklists=checklists)
    this = RowRun("run", command, files, named)
    columns, report = this.columns, this.report
    work = RowWork(pipe, columns, report, scores=True, checklists=checklists)
    total = sum(1 for _ in map(work.validate, this))
    if dry.dry_run:
        requests = (columns.request_of(row.data, row.where) for row in this) if per_row else ()
        samples = (columns.sample_of(row.data, row.where, file_checklist) for row in this)
        return forecast(command, requests=requests, samples=samples, source=loaded_source)
    command.check_judge(True, None if file_checklist is None else files.rows)
    if file_checklist is None:
        pipe.check_writers()
    if loaded_source is not None:
        from checklist_rewards.pipelines.assembly import TRIED, a_few

        step = max(1, -(-total // TRIED))
        texts = a_few([columns.sample_of(row.data, row.where, ()) for row in islice(this, 0, None, step)])
        trial_texts = texts if pipe.tries_texts else []
        checklists = write_shared(pipe, loaded_source, report, trial_texts)
        work = RowWork(pipe, columns, report, scores=True, checklists=checklists)
    with write_rows_of(files.rows, files.output) as out, bars() as bar:
        written, reads = bar("checklists", total) if per_row else None, bar("reads", 0)
        this.write(out, partial(work.process, written=written, reads=reads))
    this.finish(command.receipt)


def _source(command: Work, source: Path | None, checklist: Checklist | None) -> Any:
    """The source of a corpus-level pipeline; None for other pipelines and with --checklist."""
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


def _samples(run: RowRun) -> Iterator[Sample]:
    """The samples of the rows that have a checklist."""
    for row in run:
        checklist = run.columns.checklist_of(row.data, row.where)
        if checklist is not None:
            yield run.columns.sample_of(row.data, row.where, checklist)
