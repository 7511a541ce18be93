"""`pairs`: preference data from scored candidates, with a dataset card that documents the selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.files import CHUNK_ROWS, RowFile
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import RunReport, bars
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.rows import PROMPT, Columns, read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.rows import Row, file_format, write_rows
from checklist_rewards.preferences import (
    Form,
    Pair,
    Rule,
    ScoredPool,
    Select,
    Ties,
    UnansweredItems,
    choose_pair,
    keep_top,
    preference_card,
    rows_of,
)
from checklist_rewards.rerank import Candidate, check_candidates
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores.reasons import Reason, Unanswered

_RULE = "Pair selection"
_ROWS_AT_ONCE = CHUNK_ROWS // 8


@grouped
def pairs(
    files: o.Files,
    keys: o.Keys,
    judge: o.JudgeOptions,
    candidates_key: Annotated[
        str, typer.Option(rich_help_panel=o.ROWS, help="Column of the candidates: a list of texts.")
    ] = "candidates",
    form: Annotated[
        Form,
        typer.Option(rich_help_panel=o.OUTPUT, help="Output format: dpo, kto (unpaired), reward (with the margin)."),
    ] = "dpo",
    card: Annotated[
        Path | None,
        typer.Option(
            show_default="the output's name with .md",
            rich_help_panel=o.OUTPUT,
            help="Dataset card to write: the selection rule, and the number of dropped prompts per reason.",
        ),
    ] = None,
    select: Annotated[
        Select,
        typer.Option(
            rich_help_panel=_RULE,
            help="How to choose the pair of a row. rlcf: best_vs_worst, then keep the pairs that differ most in a "
            "single item.",
        ),
    ] = "best_vs_worst",
    min_margin: Annotated[
        float, typer.Option(rich_help_panel=_RULE, help="Smallest difference of the two scores, 0 to 1.")
    ] = 0.0,
    top_fraction: Annotated[
        float | None,
        typer.Option(show_default="0.4", rich_help_panel=_RULE, help="Fraction of pairs that rlcf keeps, 0 to 1."),
    ] = None,
    ties: Annotated[
        Ties,
        typer.Option(
            rich_help_panel=_RULE, help="Pairs with equal scores: drop, or keep the earlier candidate as chosen."
        ),
    ] = "drop",
    unanswered: Annotated[
        UnansweredItems,
        typer.Option(
            rich_help_panel=_RULE,
            help="Pairs with unanswered items: shared compares the items answered for both texts; bounds drops the "
            "pair if a missing answer could reverse the order.",
        ),
    ] = "shared",
    seed: Annotated[int, typer.Option(rich_help_panel=_RULE, help="Random seed of --select random.")] = 0,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Build preference pairs from candidates by their checklist scores, for DPO, KTO or a reward model.

    Every row requires an input and **candidates** and gives at most one pair: **prompt**, **chosen**, **rejected**,
    both scores, the checklist, and the items that **flipped** between the two texts. Unanswered items never decide a
    pair.

    Only the answers of the candidates are judged, without their thoughts. The pairs have the full texts, so that the
    policy learns its own format. A candidate without an answer gets the lowest score (see --no-answer).

    **Examples**

    ```
    checklist-rewards pairs candidates.jsonl -o pairs.parquet --min-margin 0.1
    checklist-rewards pairs candidates.jsonl -o pairs.jsonl --select rlcf --top-fraction 0.4
    ```
    """
    work = Work.of(o.Preset(), store_options, judge=judge)
    scorer = work.pipeline.scorer
    assert isinstance(scorer, ChecklistScorer)  # only presets can name another scorer
    rule = Rule(
        select,
        min_margin,
        ties,
        unanswered,
        top_fraction,
        seed,
    )
    file = RowFile(files.rows, files.output, files.summary, (checklist, store_options.store))
    card = _card_path(card, files, file.others)
    columns = file.columns(
        inputs=keys.input_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    reads, asks = 0, False
    for row in file:
        row_checklist = columns.checklist_of(row.data, row.where)
        items = () if row_checklist is None else row_checklist.items
        for item in items:
            scorer.check_item(item, row.where)
        asks = asks or (row_checklist is not None and scorer.asks(row_checklist))
        _prompt(columns, row)
        columns.reference_of(row.data, row.where)
        reads += len(_candidates(columns, row, candidates_key)) * len(items)
    work.check_judge(asks)
    report, dropped, selected = RunReport("pairs"), Counter[str](), list[Pair]()
    with write_rows(files.output) as writer, bars() as bar:
        progress = bar("reads", reads)
        for chunk in file.chunks(_ROWS_AT_ONCE):
            checklists = [columns.checklist_of(row.data, row.where) for row in chunk]
            candidates = [_candidates(columns, row, candidates_key) for row in chunk]
            samples = [_samples(columns, *of_row) for of_row in zip(chunk, candidates, checklists, strict=True)]
            scores = iter(scorer.score_batch([sample for row_samples in samples for sample in row_samples], progress))
            for row, row_checklist, texts in zip(chunk, checklists, candidates, strict=True):
                if row_checklist is None:
                    report.miss(Unanswered(Reason.NO_CHECKLIST), row.number)
                    dropped["no_checklist"] += 1
                    continue
                row_scores = [next(scores) for _ in texts]
                for score in row_scores:
                    report.add(row.number, score)
                pair_or_reason = choose_pair(ScoredPool(_prompt(columns, row), row_checklist, texts, row_scores), rule)
                if isinstance(pair_or_reason, Pair):
                    selected.append(pair_or_reason)
                else:
                    dropped[pair_or_reason] += 1
            report.rows += len(chunk)
        top = keep_top(selected, rule.fraction)  # ranks the pairs of all rows, so it runs after the last chunk
        if len(top) < len(selected):
            dropped["not_top"] += len(selected) - len(top)
        for pair in top:
            for line in rows_of(pair, form):
                writer.write(line)
    write_text(card, preference_card(files.output.stem, rule, form, len(top), dropped, work.judge.model))
    report.extra |= _summary(top, dropped) | {"card": str(card)}
    raise typer.Exit(report.finish(files.output, scorer.receipt, files.summary))


def _card_path(card: Path | None, files: o.Files, others: Sequence[Path | None]) -> Path:
    if file_format(files.output) == ".csv":
        raise SampleError(f"--output {files.output}: CSV cannot hold the lists of a pair; allowed: .jsonl, .parquet.")
    card = files.output.with_suffix(".md") if card is None else card
    check_outputs([files.rows, *others], output=files.output, summary=files.summary, card=card)
    return card


def _prompt(columns: Columns, row: Row) -> str | list[dict[str, str]]:
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)
    prompt = columns.messages_of(row.data, row.where)
    if prompt is None:
        raise SampleError(f"{row.where}: the input is empty; a pair requires a prompt.")
    return prompt


def _candidates(columns: Columns, row: Row, key: str) -> list[Candidate]:
    """The row's candidates with their answers. Raises [`SampleError`] for invalid candidates."""
    texts = check_candidates(columns.list_of(row.data, key, "--candidates-key", row.where), row.where)
    return [Candidate(text, columns.answer_of(row.data, text)) for text in texts]


def _samples(columns: Columns, row: Row, candidates: Sequence[Candidate], checklist: Checklist | None) -> list[Sample]:
    """The answers of the row's candidates; empty without a checklist."""
    input, history = columns.input_of(row.data, row.where)
    reference = columns.reference_of(row.data, row.where)
    targets = [] if checklist is None else [candidate.target for candidate in candidates]
    return [Sample(checklist, target.text, input, reference, history, state=target.state) for target in targets]


def _summary(pairs: list[Pair], dropped: Counter[str]) -> dict[str, Any]:
    lines: dict[str, Any] = {"pairs": len(pairs)}
    if pairs:
        lines["mean margin"] = fmean(pair.margin for pair in pairs)
    return lines | {f"dropped {reason}": count for reason, count in sorted(dropped.items())}
