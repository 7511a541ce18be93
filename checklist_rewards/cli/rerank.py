"""`rerank`: rank candidates, given in the rows or sampled from a policy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any

import typer

from checklist_rewards.backends import Sampling
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.files import CHUNK_ROWS, RowFile
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import RunReport, bars
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.rows import PROMPT, Columns, read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, write_rows
from checklist_rewards.judges import Progress
from checklist_rewards.rerank import (
    Candidate,
    Pool,
    Ranking,
    Ties,
    check_candidates,
    check_gold,
    rerank_batch,
    sample_candidates,
    selection,
)
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores.reasons import Reason, Unanswered

RANKING_COLUMNS = ("checklist_best", "checklist_ranks", "checklist_scores")
_SCORES = ("score_of_the_best", "score_of_the_first", "score_on_average")
_GOLD = ("precision", "gold_picked", "gold_first", "gold_mean", "gold_best")
CANDIDATES = "candidates"
_POLICY = "Candidates"


@grouped
def rerank(
    files: o.Files,
    keys: o.Keys,
    judge: o.JudgeOptions,
    candidates_key: Annotated[
        str, typer.Option(rich_help_panel=_POLICY, help="Column of the candidates: a list of texts.")
    ] = CANDIDATES,
    gold_key: Annotated[
        str | None,
        typer.Option(
            show_default="none",
            rich_help_panel=_POLICY,
            help="Column of gold scores: a list with one number per candidate.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(show_default="none", rich_help_panel=_POLICY, help="Model to sample the candidates from."),
    ] = None,
    policy_base_url: Annotated[
        str | None,
        typer.Option(show_default=False, rich_help_panel=_POLICY, help="URL of the policy's server."),
    ] = None,
    policy_engine: Annotated[
        list[str] | None,
        typer.Option(
            show_default=False,
            rich_help_panel=_POLICY,
            help="Engine argument of the policy, as in --engine. Repeatable.",
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, rich_help_panel=_POLICY, help="Candidates to sample per input.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, rich_help_panel=_POLICY, help="Sampling temperature.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, rich_help_panel=_POLICY, help="Most tokens per candidate.")] = 512,
    seed: Annotated[int, typer.Option(rich_help_panel=_POLICY, help="Random seed of the sampling.")] = 0,
    ties: Annotated[
        Ties,
        typer.Option(
            rich_help_panel=_POLICY, help="Equal best scores: keep all, or pick the first or the shortest text."
        ),
    ] = "keep",
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Rank candidates by their checklist score (best-of-N).

    Adds to every row **checklist_best** (the texts with rank 1, usually one), **checklist_ranks** (1 is best, equal
    scores have equal ranks, null for a candidate without a score) and **checklist_scores**. Sampled candidates are
    added too. With gold scores, the summary reports the precision of the choice.

    Only the answers of the candidates are judged, without their thoughts; the columns have the full texts. A candidate
    without an answer gets the lowest score and ranks after all others (see --no-answer).

    **Examples**

    ```
    checklist-rewards rerank candidates.jsonl -o ranked.jsonl --gold-key human
    checklist-rewards rerank prompts.jsonl -o ranked.jsonl \
        --model org/judge --policy org/policy --n 16 --ties first
    ```
    """
    work = Work.of(o.Preset(), store_options, judge=judge)
    scorer = work.pipeline.scorer
    assert isinstance(scorer, ChecklistScorer)  # only presets can name another scorer
    if gold_key is not None and policy is not None:
        raise SampleError(
            f"--gold-key {gold_key} scores the candidates in the rows, but --policy {policy} samples new ones; omit "
            "one of the two."
        )
    file = RowFile(files.rows, files.output, files.summary, (checklist, store_options.store))
    columns = file.columns(
        inputs=keys.input_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    engine = o.policy(judge, policy, policy_base_url, policy_engine)
    sampling = Sampling(max_tokens, temperature, n=n, seed=seed)
    total, reads, asks = 0, 0, False
    for row in file:
        row_checklist = _checked(scorer, columns, row)
        if engine is None:
            candidates = _candidates(columns, row, candidates_key)
            if gold_key is not None:
                _gold(columns, row, gold_key, candidates)
        else:
            _prompt(columns, row)
        total += 1
        asks = asks or (row_checklist is not None and scorer.asks(row_checklist))
        reads += 0 if row_checklist is None else len(row_checklist) * (n if engine is not None else len(candidates))
    if engine is not None:
        _ = engine.identity  # raises if the policy is not found
    work.check_judge(asks)
    report, totals, store = RunReport("rerank"), _RerankTotals(), work.store
    with write_rows(files.output) as writer, bars() as bar:
        sampled = None if engine is None else bar("prompts sampled", total)
        progress = bar("reads", reads)
        for chunk in file.chunks(max(1, CHUNK_ROWS // n)):
            if engine is None:
                texts = [_candidates(columns, row, candidates_key) for row in chunk]
            else:
                texts = sample_candidates([_prompt(columns, row) for row in chunk], engine, sampling, store, sampled)
            rankings = _rankings(scorer, columns, chunk, texts, ties, progress)
            for row, candidates, ranking in zip(chunk, texts, rankings, strict=True):
                if engine is not None and len(candidates) < n:
                    report.miss(Unanswered(Reason.NO_REPLY, f"{len(candidates)} of {n} candidates"), row.number)
                if ranking is None:
                    if candidates:
                        report.miss(Unanswered(Reason.NO_CHECKLIST), row.number)
                else:
                    totals.add(ranking, None if gold_key is None else _gold(columns, row, gold_key, candidates))
                    for score in ranking.scores:
                        report.add(row.number, score)
                new = {} if engine is None else {CANDIDATES: candidates}
                writer.write(row.data | new | _ranking_columns(ranking))
            report.rows += len(chunk)
    report.extra |= totals.summary()
    raise typer.Exit(report.finish(files.output, scorer.receipt, files.summary))


class _RerankTotals:
    """Running totals over rankings: mean judge and gold scores of the picked, the first and the average candidate."""

    def __init__(self) -> None:
        self.tied = self.unpicked = 0
        self.scores: list[tuple[float, ...]] = []
        self.golds: list[tuple[float, ...]] = []

    def add(self, ranking: Ranking, gold: list[float] | None) -> None:
        self.tied += len(ranking.picked) > 1
        self.unpicked += not ranking.picked
        scores = [score.primary_score for score in ranking.scores if score.primary_score is not None]
        first = ranking.scores[0].primary_score
        if first is not None:
            self.scores.append((max(scores), first, fmean(scores)))
        if gold is not None and ranking.picked:
            measured = selection([ranking], [gold])
            self.golds.append(tuple(getattr(measured, name) for name in _GOLD))

    def summary(self) -> dict[str, Any]:
        lines: dict[str, Any] = {"rows with ties": self.tied, "rows without a pick": self.unpicked}
        for names, rows in ((_SCORES, self.scores), (_GOLD, self.golds)):
            if rows:
                means = [fmean(column) for column in zip(*rows, strict=True)]
                lines |= {name.replace("_", " "): mean for name, mean in zip(names, means, strict=True)}
        return lines


def _checked(judge: ChecklistScorer, columns: Columns, row: Row) -> Checklist | None:
    """The row's checklist. Raises an error for a row that cannot be ranked."""
    columns.input_of(row.data, row.where)
    columns.reference_of(row.data, row.where)
    checklist = columns.checklist_of(row.data, row.where)
    for item in checklist.items if checklist is not None else ():
        judge.check_item(item, row.where)
    return checklist


def _candidates(columns: Columns, row: Row, key: str) -> list[Candidate]:
    """The row's candidates with their answers. Raises [`SampleError`] for invalid candidates."""
    value = columns.list_of(row.data, key, "--candidates-key, or sample with --policy", row.where)
    texts = check_candidates(value, row.where)
    return [Candidate(text, columns.answer_of(row.data, text)) for text in texts]


def _gold(columns: Columns, row: Row, key: str, candidates: Sequence[str]) -> list[float]:
    return check_gold(columns.list_of(row.data, key, "--gold-key", row.where), candidates, row.where)


def _prompt(columns: Columns, row: Row) -> str | list[dict[str, str]]:
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)
    prompt = columns.messages_of(row.data, row.where)
    if prompt is None:
        raise SampleError(f"{row.where}: the input is empty; sampling candidates requires a prompt.")
    return prompt


def _rankings(
    judge: ChecklistScorer,
    columns: Columns,
    rows: Sequence[Row],
    texts: Sequence[Sequence[Candidate]],
    ties: Ties,
    progress: Progress,
) -> list[Ranking | None]:
    """One ranking per row, from a single scoring batch; None for a row without a checklist or candidates."""
    pools: list[Pool | None] = []
    for row, candidates in zip(rows, texts, strict=True):
        checklist = columns.checklist_of(row.data, row.where)
        input, history = columns.input_of(row.data, row.where)
        reference = columns.reference_of(row.data, row.where)
        usable = checklist is not None and candidates
        pools.append(Pool(checklist, candidates, input, reference, history) if usable else None)
    rankings = iter(rerank_batch(judge, [pool for pool in pools if pool is not None], ties=ties, progress=progress))
    return [None if pool is None else next(rankings) for pool in pools]


def _ranking_columns(ranking: Ranking | None) -> dict[str, Any]:
    if ranking is None:
        return dict.fromkeys(RANKING_COLUMNS)
    values = list(ranking.best), list(ranking.ranks), [score.model_dump() for score in ranking.scores]
    return dict(zip(RANKING_COLUMNS, values, strict=True))
