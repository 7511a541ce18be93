"""`rerank`: the best of several candidates, given in the rows or sampled from a policy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any

import typer

from checklist_rewards.backends import Sampling
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import PROMPT, Columns, read_checklist
from checklist_rewards.cli.files import CHUNK_ROWS, RowFile
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import Report, bars, warn_if_pocket
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, write_rows
from checklist_rewards.judges import Progress
from checklist_rewards.rerank import (
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

RANKING_COLUMNS = ("checklist_best", "checklist_ranks", "checklist_scores")
_SCORES = ("score_of_the_best", "score_of_the_first", "score_on_average")
_GOLD = ("precision", "gold_picked", "gold_first", "gold_mean", "gold_best")
CANDIDATES = "candidates"
_POLICY = "Candidates"


@grouped
def rerank(
    files: o.Files,
    keys: o.Keys,
    judge: o.Judge,
    candidates_key: Annotated[
        str, typer.Option(rich_help_panel=_POLICY, help="Key of the candidates, a list of texts.")
    ] = CANDIDATES,
    gold_key: Annotated[
        str | None,
        typer.Option(show_default="none", rich_help_panel=_POLICY, help="Key of their gold scores, one number each."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            show_default="none", rich_help_panel=_POLICY, help="Sample the candidates from this model instead."
        ),
    ] = None,
    policy_base_url: Annotated[
        str | None,
        typer.Option(show_default=False, rich_help_panel=_POLICY, help="The policy's server, if it is served."),
    ] = None,
    policy_engine: Annotated[
        list[str] | None,
        typer.Option(
            show_default=False,
            rich_help_panel=_POLICY,
            help="What the policy's engine is loaded with, as in --engine.",
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, rich_help_panel=_POLICY, help="Candidates to sample per input.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, rich_help_panel=_POLICY, help="Of the sampling.")] = 1.0,
    max_tokens: Annotated[
        int, typer.Option(min=1, rich_help_panel=_POLICY, help="Longest candidate, in tokens.")
    ] = 512,
    seed: Annotated[int, typer.Option(rich_help_panel=_POLICY, help="Another seed, other candidates.")] = 0,
    ties: Annotated[
        Ties,
        typer.Option(rich_help_panel=_POLICY, help="keep them, or break them towards the first or the shortest text."),
    ] = "keep",
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
    kept: o.Kept = o.Kept(),  # noqa: B008 - frozen
) -> None:
    r"""Rank candidates by their checklist score: best-of-N.

    Every row gets **checklist_best** (the texts that share rank 1: usually one), **checklist_ranks**
    (1 is best, equal scores have equal ranks, null for a candidate without a score) and **checklist_scores**,
    and where they were sampled, the candidates. With gold scores the summary tells how precise the choice was.

    **Examples**

    ```
    checklist-rewards rerank candidates.jsonl -o ranked.jsonl --gold-key human
    checklist-rewards rerank prompts.jsonl -o ranked.jsonl \
        --model org/judge --policy org/policy --n 16 --ties first
    ```
    """
    work = Work.of(o.Preset(), kept, judge=judge)
    scorer = work.pipeline().scorer
    assert isinstance(scorer, ChecklistScorer)  # no preset, so no scorer of somebody's own
    if gold_key is not None and policy is not None:
        raise SampleError(
            f"--gold-key {gold_key} belongs to candidates in the rows, and --policy {policy} samples new ones."
        )
    file = RowFile(files.rows, files.output, files.summary)
    columns = file.columns(
        inputs=keys.input_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    engine = o.policy(judge, policy, policy_base_url, policy_engine)
    sampling = Sampling(max_tokens, temperature, n=n, seed=seed)
    total = reads = 0
    for row in file:
        found = _checked(scorer, columns, row)
        if engine is None:
            candidates = _candidates(columns, row, candidates_key)
            if gold_key is not None:
                _gold(columns, row, gold_key, candidates)
        else:
            _prompt(columns, row)
        total += 1
        reads += 0 if found is None else len(found) * (n if engine is not None else len(candidates))
    scorer.check()
    if engine is not None:
        _ = engine.identity  # refuses a policy that is not there
    warn_if_pocket(judge.shown)
    report, outcome, opened = Report("rerank"), _Outcome(), work.store
    with write_rows(files.output) as writer, bars() as bar:
        sampled = None if engine is None else bar("prompts sampled", total)
        progress = bar("reads", reads)
        for chunk in file.chunks(max(1, CHUNK_ROWS // n)):
            if engine is None:
                texts = [_candidates(columns, row, candidates_key) for row in chunk]
            else:
                texts = sample_candidates([_prompt(columns, row) for row in chunk], engine, sampling, opened, sampled)
            rankings = _rankings(scorer, columns, chunk, texts, ties, progress)
            for row, of_row, ranking in zip(chunk, texts, rankings, strict=True):
                if engine is not None and len(of_row) < n:
                    report.miss("no_reply", row.number, f"{len(of_row)} of {n} candidates")
                if ranking is None:
                    if of_row:
                        report.miss("no_checklist", row.number)
                else:
                    outcome.add(ranking, None if gold_key is None else _gold(columns, row, gold_key, of_row))
                    for score in ranking.scores:
                        report.add(row.number, score)
                new = {} if engine is None else {CANDIDATES: of_row}
                writer.write(row.data | new | _ranking_columns(ranking))
            report.rows += len(chunk)
    report.extra |= outcome.summary()
    raise typer.Exit(report.finish(files.output, scorer.receipt, files.summary))


class _Outcome:
    """Running totals over rankings: what picking gained, by the judge's own score and by the gold one."""

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
    """The row's checklist; refuses what cannot be ranked."""
    columns.input_of(row.data, row.where)
    columns.reference_of(row.data, row.where)
    checklist = columns.checklist_of(row.data, row.where)
    for item in checklist.items if checklist is not None else ():
        judge.check_item(item, row.where)
    return checklist


def _candidates(columns: Columns, row: Row, key: str) -> list[str]:
    return check_candidates(
        columns.list_of(row.data, key, "--candidates-key, or sample with --policy", row.where), row.where
    )


def _gold(columns: Columns, row: Row, key: str, candidates: Sequence[str]) -> list[float]:
    return check_gold(columns.list_of(row.data, key, "--gold-key", row.where), candidates, row.where)


def _prompt(columns: Columns, row: Row) -> str | list[dict[str, str]]:
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)
    prompt = columns.messages_of(row.data, row.where)
    if prompt is None:
        raise SampleError(f"{row.where}: there is no input to sample candidates for.")
    return prompt


def _rankings(
    judge: ChecklistScorer,
    columns: Columns,
    rows: Sequence[Row],
    texts: Sequence[Sequence[str]],
    ties: Ties,
    progress: Progress,
) -> list[Ranking | None]:
    """A ranking per row, all reads planned together; None where there is no checklist, or no candidate."""
    pools: list[Pool | None] = []
    for row, of_row in zip(rows, texts, strict=True):
        checklist = columns.checklist_of(row.data, row.where)
        input, history = columns.input_of(row.data, row.where)
        reference = columns.reference_of(row.data, row.where)
        pools.append(Pool(checklist, of_row, input, reference, history) if checklist is not None and of_row else None)
    rankings = iter(rerank_batch(judge, [pool for pool in pools if pool is not None], ties=ties, progress=progress))
    return [None if pool is None else next(rankings) for pool in pools]


def _ranking_columns(ranking: Ranking | None) -> dict[str, Any]:
    if ranking is None:
        return dict.fromkeys(RANKING_COLUMNS)
    values = list(ranking.best), list(ranking.ranks), [score.model_dump() for score in ranking.scores]
    return dict(zip(RANKING_COLUMNS, values, strict=True))
