"""`pairs`: preference data from candidates, with a dataset card that tells how it was selected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import PROMPT, Columns, read_checklist
from checklist_rewards.cli.files import CHUNK_ROWS, RowFile
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import Report, bars, warn_if_pocket
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, atomic_path, file_format, write_rows
from checklist_rewards.preferences import (
    Form,
    Pair,
    Rule,
    ScoredPool,
    Select,
    Ties,
    Unanswered,
    choose_pair,
    keep_top,
    preference_card,
    rows_of,
)
from checklist_rewards.rerank import check_candidates
from checklist_rewards.scorer import ChecklistScorer, Sample

_RULE = "Which pairs"
_ROWS_AT_ONCE = CHUNK_ROWS // 8


@grouped
def pairs(
    files: o.Files,
    keys: o.Keys,
    judge: o.Judge,
    candidates_key: Annotated[
        str, typer.Option(rich_help_panel=o.ROWS, help="Key of the candidates, a list of texts.")
    ] = "candidates",
    form: Annotated[
        Form,
        typer.Option(rich_help_panel=o.OUTPUT, help="The trainer's: dpo, kto (unpaired), reward (with the margin)."),
    ] = "dpo",
    card: Annotated[
        Path | None,
        typer.Option(
            show_default="the output's name with .md",
            rich_help_panel=o.OUTPUT,
            help="The dataset card: the rule, and how many prompts were dropped for which reason.",
        ),
    ] = None,
    select: Annotated[
        Select,
        typer.Option(
            rich_help_panel=_RULE,
            help="rlcf: best_vs_worst, then the prompts whose pair differs most in a single item.",
        ),
    ] = "best_vs_worst",
    min_margin: Annotated[
        float, typer.Option(rich_help_panel=_RULE, help="Least difference of the two scores, 0 to 1.")
    ] = 0.0,
    top_fraction: Annotated[
        float | None,
        typer.Option(show_default="0.4", rich_help_panel=_RULE, help="Share of the pairs that rlcf keeps, 0 to 1."),
    ] = None,
    ties: Annotated[
        Ties, typer.Option(rich_help_panel=_RULE, help="drop, or keep with the earlier candidate as the chosen one.")
    ] = "drop",
    unanswered: Annotated[
        Unanswered,
        typer.Option(
            rich_help_panel=_RULE,
            help="shared: compare on the items answered for both. bounds: only where no answer could turn the order.",
        ),
    ] = "shared",
    seed: Annotated[int, typer.Option(rich_help_panel=_RULE, help="Another seed, other random pairs.")] = 0,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
    kept: o.Kept = o.Kept(),  # noqa: B008 - frozen
) -> None:
    r"""Make preference pairs of candidates by their checklist scores, for DPO, KTO or a reward model.

    Every row needs an input and **candidates**. At most one pair is taken per row: **prompt**, **chosen**,
    **rejected**, their scores, the checklist, and the items that **flipped** between the two. What the judge left
    unanswered decides no pair.

    **Examples**

    ```
    checklist-rewards pairs candidates.jsonl -o pairs.parquet --min-margin 0.1
    checklist-rewards pairs candidates.jsonl -o pairs.jsonl --select rlcf --top-fraction 0.4
    ```
    """
    scorer = Work.of(o.Preset(), kept, judge=judge).pipeline().scorer
    assert isinstance(scorer, ChecklistScorer)  # no preset, so no scorer of somebody's own
    rule = Rule(
        select,
        min_margin,
        ties,
        unanswered,
        top_fraction,
        seed,
        scorer.threshold,
        scorer.min_answered,
        scorer.abstention,
    )
    file = RowFile(files.rows, files.output, files.summary)
    card = _card_path(card, files)
    columns = file.columns(
        inputs=keys.input_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    reads = 0
    for row in file:
        found = columns.checklist_of(row.data, row.where)
        for item in found.items if found is not None else ():
            scorer.check_item(item, row.where)
        _prompt(columns, row)
        reads += len(_samples(columns, row, candidates_key, found)) * (0 if found is None else len(found))
    scorer.check()
    warn_if_pocket(judge.shown)
    report, dropped, made = Report("pairs"), Counter[str](), list[Pair]()
    with write_rows(files.output) as writer, bars() as bar:
        progress = bar("reads", reads)
        for chunk in file.chunks(_ROWS_AT_ONCE):
            lists = [columns.checklist_of(row.data, row.where) for row in chunk]
            samples = [_samples(columns, row, candidates_key, c) for row, c in zip(chunk, lists, strict=True)]
            scores = iter(scorer.score_batch([sample for of_row in samples for sample in of_row], progress))
            for row, of_list, of_row in zip(chunk, lists, samples, strict=True):
                if of_list is None:
                    report.miss("no_checklist", row.number)
                    dropped["no_checklist"] += 1
                    continue
                of_scores = [next(scores) for _ in of_row]
                for score in of_scores:
                    report.add(row.number, score)
                texts = [sample.target for sample in of_row]
                chosen = choose_pair(ScoredPool(_prompt(columns, row), of_list, texts, of_scores), rule)
                if isinstance(chosen, Pair):
                    made.append(chosen)
                else:
                    dropped[chosen] += 1
            report.rows += len(chunk)
        top = keep_top(made, rule.fraction)  # of all prompts, so only now
        if len(top) < len(made):
            dropped["not_top"] += len(made) - len(top)
        for pair in top:
            for line in rows_of(pair, form):
                writer.write(line)
    with atomic_path(card) as temporary:
        text = preference_card(files.output.stem, rule, form, len(top), dropped, judge.model)
        temporary.write_text(text, encoding="utf-8")
    report.extra |= _summary(top, dropped) | {"card": str(card)}
    raise typer.Exit(report.finish(files.output, scorer.receipt, files.summary))


def _card_path(card: Path | None, files: o.Files) -> Path:
    if file_format(files.output) == ".csv":
        raise SampleError(f"--output {files.output}: pairs hold lists, which CSV has not; allowed: .jsonl, .parquet.")
    card = files.output.with_suffix(".md") if card is None else card
    if card.is_dir():
        raise SampleError(f"--card {card} is a folder; give a file.")
    others = [path.resolve() for path in (files.rows, files.output, files.summary) if path is not None]
    if card.resolve() in others:
        raise SampleError(f"--card {card} is a file of this command already; give the card a name of its own.")
    return card


def _prompt(columns: Columns, row: Row) -> str | list[dict[str, str]]:
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)
    prompt = columns.messages_of(row.data, row.where)
    if prompt is None:
        raise SampleError(f"{row.where}: there is no input that a pair could answer.")
    return prompt


def _samples(columns: Columns, row: Row, key: str, checklist: Checklist | None) -> list[Sample]:
    """The row's candidates, ready to be scored; none where there is no checklist. Refuses what is no candidate."""
    value = columns.list_of(row.data, key, "--candidates-key", row.where)
    texts = check_candidates(value, row.where)
    input, history = columns.input_of(row.data, row.where)
    reference = columns.reference_of(row.data, row.where)
    return [] if checklist is None else [Sample(checklist, text, input, reference, history) for text in texts]


def _summary(kept: list[Pair], dropped: Counter[str]) -> dict[str, Any]:
    lines: dict[str, Any] = {"pairs": len(kept)}
    if kept:
        lines["mean margin"] = fmean(pair.margin for pair in kept)
    return lines | {f"dropped {reason}": count for reason, count in sorted(dropped.items())}
