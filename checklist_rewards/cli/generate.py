"""`generate`: rows with an input in, the same rows with a checklist out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from checklist_rewards.backends import BackendName
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import PROMPT, Columns
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.report import Report, bars, warn_if_pocket
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.generators import DirectGenerator, Request
from checklist_rewards.generators.direct import DEFAULT_PROMPT
from checklist_rewards.rows import Row, write_rows


def generate(
    rows: o.Rows,
    output: o.Output,
    input_key: o.InputKey = None,
    reference_key: o.ReferenceKey = None,
    model: o.WriterModel = "pocket",
    backend: o.Backend = "auto",
    base_url: o.BaseUrl = None,
    prompt: o.WriterPrompt = DEFAULT_PROMPT,
    min_items: o.MinItems = 2,
    max_items: o.MaxItems = 8,
    temperature: o.Temperature = 0.7,
    max_tokens: o.MaxTokens = 512,
    seed: o.Seed = 0,
    store: o.StorePath = None,
    no_store: o.NoStore = False,
    summary: o.Summary = None,
) -> None:
    r"""Write a checklist for every input.

    Every row gets the columns **checklist**, checklist_id, checklist_source and checklist_model, and where
    the input has another name, a copy of it called **prompt**: the file is then a dataset for TRL's trainers,
    and for `score`. A row that gets no checklist is kept, with null, and named at the end.

    **Examples**

    ```
    checklist-rewards generate prompts.jsonl -o train.parquet --model org/model
    checklist-rewards generate tasks.csv -o tasks.jsonl \
        --input-key instruction --input-key context
    ```
    """
    kept = o.store_from(store, no_store)
    generator = writer_from(
        model, backend, base_url, prompt, min_items, max_items, temperature, max_tokens, seed, kept
    )
    file = RowFile(rows, output, summary)
    columns = file.columns(inputs=input_key, reference=reference_key)
    total = 0
    for row in file:
        request_of(columns, row)
        if PROMPT in row.data and columns.inputs != (PROMPT,):
            raise SampleError(
                f"{row.where}: the input is in {', '.join(columns.inputs)}, and there is another {PROMPT!r}, which a "
                "trainer would take for it; remove or rename that one."
            )
        total += 1
    generator.check()
    warn_if_pocket(model)
    report = Report("generate")
    with write_rows(output) as writer, bars() as bar:
        progress = bar("checklists", total)
        for chunk in file.chunks():
            made = generator.generate_batch([request_of(columns, row) for row in chunk], progress)
            for row, checklist in zip(chunk, made, strict=True):
                report.add_checklist(row.number, checklist)
                prompt_column = {PROMPT: columns.messages_of(row.data, row.where)}
                writer.write(row.data | prompt_column | checklist_columns(checklist))
            report.rows += len(chunk)
    raise typer.Exit(report.finish(output, None, summary))


def writer_from(
    model: str,
    backend: BackendName,
    base_url: str | None,
    prompt: str,
    min_items: int,
    max_items: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    store: bool | Path,
) -> DirectGenerator:
    """A generator; no model is loaded."""
    return DirectGenerator(
        model,
        backend=backend,
        base_url=base_url,
        prompt=prompt,
        min_items=min_items,
        max_items=max_items,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        store=store,
    )


def request_of(columns: Columns, row: Row) -> Request:
    """What a checklist is wanted for. Raises [`SampleError`] naming the row, if nothing is asked there."""
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)
    input, history = columns.input_of(row.data, row.where)
    if input is None or not input.strip():
        raise SampleError(
            f"{row.where}: the input is blank ({', '.join(columns.inputs)}); a checklist needs something asked."
        )
    return Request(input, columns.reference_of(row.data, row.where), history)


def checklist_columns(checklist: Checklist | GenerationError) -> dict[str, Any]:
    """The columns of a checklist dataset; all null where there is no checklist."""
    # The datasets library takes a second to import, and usage errors come first.
    from checklist_rewards.datasets import columns

    if isinstance(checklist, Checklist):
        return columns.checklist_columns(checklist)
    return dict.fromkeys(columns.CHECKLIST_COLUMNS)
