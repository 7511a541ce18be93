"""`score` and `run`: rows with checklists in, rows with scores out; `run` has the checklists written first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import Columns, read_checklist
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.generate import checklist_columns, request_of, writer_from
from checklist_rewards.cli.report import Report, bars, warn_if_pocket
from checklist_rewards.generators.direct import DEFAULT_PROMPT as WRITER_PROMPT
from checklist_rewards.judges import Progress
from checklist_rewards.judges.logprob import DEFAULT_MASS_FLOOR, DEFAULT_PROMPT
from checklist_rewards.rows import Row, write_rows
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import DEFAULT_MIN_ANSWERED, DEFAULT_THRESHOLD, Score

SCORE = "checklist_score"


def score(
    rows: o.Rows,
    output: o.Output,
    checklist: o.ChecklistFile = None,
    input_key: o.InputKey = None,
    target_key: o.TargetKey = None,
    checklist_key: o.ChecklistKey = None,
    reference_key: o.ReferenceKey = None,
    model: o.Model = "pocket",
    backend: o.Backend = "auto",
    base_url: o.BaseUrl = None,
    prompt: o.JudgePrompt = DEFAULT_PROMPT,
    metric: o.Metric = "expected",
    threshold: o.Threshold = DEFAULT_THRESHOLD,
    min_answered: o.MinAnswered = DEFAULT_MIN_ANSWERED,
    mass_floor: o.MassFloor = DEFAULT_MASS_FLOOR,
    store: o.StorePath = None,
    no_store: o.NoStore = False,
    summary: o.Summary = None,
) -> None:
    r"""Score texts by their checklists.

    Every row gets one more column, **checklist_score**: the primary score, every other aggregate, and for
    each item the answer with its probability. A row whose checklist is null is kept, without a score.
    Thinking (`<think>…</think>`) is no part of the text that is judged, as in training.

    **Examples**

    ```
    checklist-rewards score answers.jsonl -o scored.jsonl --model org/judge
    checklist-rewards score a.csv -o b.parquet --checklist polite.json
    checklist-rewards score infobench.jsonl -o scored.jsonl \
        --checklist-key decomposed_questions --target-key output \
        --input-key instruction --input-key input
    ```
    """
    judge = o.scorer_from(
        model, backend, base_url, prompt, metric, threshold, min_answered, mass_floor, o.store_from(store, no_store)
    )
    file = RowFile(rows, output, summary)
    columns = file.columns(
        inputs=input_key,
        target=target_key,
        checklist=checklist_key,
        reference=reference_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    reads = sum(_check(judge, columns, row, columns.checklist_of(row.data, row.where)) for row in file)
    judge.check()
    warn_if_pocket(model)
    report = Report("score")
    with write_rows(output) as writer, bars() as bar:
        progress = bar("reads", reads)
        for chunk in file.chunks():
            checklists = [columns.checklist_of(row.data, row.where) for row in chunk]
            scores = _scores(judge, columns, chunk, checklists, progress)
            for row, found in zip(chunk, scores, strict=True):
                writer.write(row.data | {SCORE: None if found is None else found.model_dump()})
                report.add(row.number, found) if found is not None else report.miss("no_checklist", row.number)
            report.rows += len(chunk)
    raise typer.Exit(report.finish(output, judge.receipt, summary))


def run(
    rows: o.Rows,
    output: o.Output,
    input_key: o.InputKey = None,
    target_key: o.TargetKey = None,
    reference_key: o.ReferenceKey = None,
    model: o.Model = "pocket",
    backend: o.Backend = "auto",
    base_url: o.BaseUrl = None,
    prompt: o.JudgePrompt = DEFAULT_PROMPT,
    metric: o.Metric = "expected",
    threshold: o.Threshold = DEFAULT_THRESHOLD,
    min_answered: o.MinAnswered = DEFAULT_MIN_ANSWERED,
    mass_floor: o.MassFloor = DEFAULT_MASS_FLOOR,
    generator_model: Annotated[
        str | None,
        typer.Option(rich_help_panel=o.WRITER, show_default="the judge", help="The model that writes the checklists."),
    ] = None,
    generator_base_url: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=o.WRITER, show_default=False, help="The server of --generator-model, if it is served."
        ),
    ] = None,
    generator_prompt: Annotated[
        str, typer.Option(rich_help_panel=o.WRITER, help="The writer's prompt: a packaged one, or a Markdown file.")
    ] = WRITER_PROMPT,
    min_items: o.MinItems = 2,
    max_items: o.MaxItems = 8,
    temperature: o.Temperature = 0.7,
    max_tokens: o.MaxTokens = 512,
    seed: o.Seed = 0,
    store: o.StorePath = None,
    no_store: o.NoStore = False,
    summary: o.Summary = None,
) -> None:
    r"""Write a checklist for every input and score the target by it.

    The same as **generate** and then **score**, in one go. The checklist is written from the input
    (and the reference) alone: the target is not seen. A row that gets no checklist is kept, without a score.

    **Examples**

    ```
    checklist-rewards run answers.jsonl -o scored.jsonl --model org/judge
    checklist-rewards run answers.jsonl -o scored.jsonl \
        --model org/judge --base-url http://localhost:8000/v1 \
        --generator-model org/writer
    ```
    """
    kept = o.store_from(store, no_store)
    judge = o.scorer_from(model, backend, base_url, prompt, metric, threshold, min_answered, mass_floor, kept)
    own = generator_model is not None
    generator = writer_from(
        generator_model if generator_model is not None else model,
        o.backend_beside(backend, generator_base_url) if own else backend,
        generator_base_url if own else base_url,
        generator_prompt,
        min_items,
        max_items,
        temperature,
        max_tokens,
        seed,
        kept,
    )
    file = RowFile(rows, output, summary)
    columns = file.columns(inputs=input_key, target=target_key, reference=reference_key)
    total = 0
    for row in file:
        request_of(columns, row)
        _check(judge, columns, row, None)
        total += 1
    judge.check()
    generator.check()
    warn_if_pocket(model, generator.model)
    report = Report("run")
    with write_rows(output) as writer, bars() as bar:
        written, reads = bar("checklists", total), bar("reads", 0)
        for chunk in file.chunks():
            made = generator.generate_batch([request_of(columns, row) for row in chunk], written)
            checklists = [checklist if isinstance(checklist, Checklist) else None for checklist in made]
            reads.expect(sum(len(checklist) for checklist in checklists if checklist is not None))
            scores = _scores(judge, columns, chunk, checklists, reads)
            for row, checklist, found in zip(chunk, made, scores, strict=True):
                dumped = None if found is None else found.model_dump()
                writer.write(row.data | checklist_columns(checklist) | {SCORE: dumped})
                report.add_checklist(row.number, checklist)
                if found is not None:
                    report.add(row.number, found)
            report.rows += len(chunk)
    raise typer.Exit(report.finish(output, judge.receipt, summary))


def _check(judge: ChecklistScorer, columns: Columns, row: Row, checklist: Checklist | None) -> int:
    """Refuse a row that cannot be scored; gives the number of its reads."""
    columns.target_of(row.data, row.where)
    columns.input_of(row.data, row.where)
    columns.reference_of(row.data, row.where)
    if checklist is None:
        return 0
    for item in checklist.items:
        judge.judge.check_item(item, row.where)
    return len(checklist)


def _scores(
    judge: ChecklistScorer,
    columns: Columns,
    rows: Sequence[Row],
    checklists: Sequence[Checklist | None],
    progress: Progress,
) -> list[Score | None]:
    """A score per row, all reads planned together; None where there is no checklist."""
    pairs = list(zip(rows, checklists, strict=True))
    samples = [columns.sample_of(row.data, row.where, found) for row, found in pairs if found is not None]
    scores = iter(judge.score_batch(samples, progress))
    return [None if found is None else next(scores) for _, found in pairs]
