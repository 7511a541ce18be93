"""`rerank`, `pairs` and `refine`: several texts per prompt.

- `rerank`: rank candidates, given in the rows or sampled from a policy.
- `pairs`: preference data from scored candidates, with a dataset card that documents the selection.
- `refine`: a model answers, receives the failed items of its checklist as feedback, and answers again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from annotated_types import Ge

from checklist_rewards.backends import Sampling
from checklist_rewards.checklists import Checklist, key_of
from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import FROM_STORED, brief
from checklist_rewards.cli.output import RunReport, bars
from checklist_rewards.cli.work import ANSWERS, RowRun, Work, asked, require_input
from checklist_rewards.datasets.columns import checklist_columns
from checklist_rewards.errors import SampleError, warn_once
from checklist_rewards.evaluation.scored import stored_checklist
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.rows import CHUNK_ROWS, Row, file_format
from checklist_rewards.files.spool import Spool
from checklist_rewards.images import Image
from checklist_rewards.judges import Progress
from checklist_rewards.messages import images_of
from checklist_rewards.preferences import (
    PROMPT_PARTS,
    Form,
    Pair,
    Rule,
    ScoredPool,
    choose_pair,
    preference_card,
    rows_of,
    top_places,
)
from checklist_rewards.rerank import (
    Ranking,
    Ties,
    check_candidates,
    check_gold,
    rerank_batch,
    sample_candidates,
    selection,
)
from checklist_rewards.rows import Candidate, Columns, Sample, score_from, write_rows_of
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import Score, rescore
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.self_refine import (
    DEFAULT_ROUNDS,
    Method,
    Refinement,
    Task,
    refine_batch,
)

_STORED = "checklist_scores"
_HASHES = "checklist_hashes"
"""Column of hashes of what each score is of: a candidate, with its prompt and reference."""
RANKING_COLUMNS = ("checklist_best", "checklist_ranks", _STORED, _HASHES)
_SCORES = ("score_of_the_best", "score_of_the_first", "score_on_average")
_GOLD = ("precision", "gold_picked", "gold_first", "gold_mean", "gold_best")
_OR_SAMPLED = "--candidates-key, or sample with --policy.model"
CANDIDATES = "candidates"


class Ranked(o.Options):
    """The candidates, and how they are ranked."""

    heading = "Candidates"

    candidates_key: str = CANDIDATES
    """Column of the candidates: a list of texts."""
    gold_key: str | None = None
    """Column of gold scores: a list with one number per candidate. Defaults to none."""
    n: Annotated[int, Ge(1)] = 8
    """Candidates to sample per input."""
    ties: Ties = "keep"
    """Equal best scores: keep all, or pick the first or the shortest text."""


@brief("checklist", "metric")
def rerank(
    files: o.Files,
    keys: o.Keys,
    judge: o.JudgeOptions,
    policy: o.Policy,
    ranked: Ranked,
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
    checklist-rewards rerank candidates.jsonl -o ranked.jsonl --gold-key human --model org/judge
    checklist-rewards rerank checklists.jsonl -o ranked.jsonl \
        --model org/judge --policy.model org/policy --n 16 --ties first
    ```
    """
    candidates_key, gold_key, n = ranked.candidates_key, ranked.gold_key, ranked.n
    if policy.model is None:
        o.no_effect("without --policy.model, which samples the candidates", "n", *o.SAMPLING)
    else:
        o.no_effect("with --policy.model, which samples new candidates", "candidates_key", "gold_key")
    work = Work.of(o.Preset(), store_options, judge=judge, may_need_no_store=policy.model is None)
    scorer = work.scorer
    named = keys.columns(checklist, checklist=checklist_key)
    run = RowRun("rerank", work, files, named)
    columns, report = run.columns, run.report
    engine = policy.other_engine(judge)
    sampling = Sampling(policy.max_tokens, policy.temperature, n=n, seed=policy.seed)
    total = 0
    for row in run:
        row_checklist = _checked(scorer, columns, row)
        if engine is None:
            candidates = _candidates(columns, row, candidates_key, _OR_SAMPLED)
            if gold_key is not None:
                _gold(columns, row, gold_key, candidates)
        else:
            engine.check_images(images_of(asked(columns, row)), f"{row.where}: the prompt", "policy")
            if row.data.get(CANDIDATES) not in (None, "", []):
                warn_once(row.where, CANDIDATES, "the row's own candidates are replaced by those that are sampled")
            for name in PROMPT_PARTS[2:]:
                if row.data.get(name):
                    warn_once(row.where, name, "the policy that samples the candidates does not get this column")
        total += 1
        run.expect(row_checklist, n if engine is not None else len(candidates))
    if engine is not None:
        _ = engine.identity  # raises if the policy is not found
    work.check_judge(run.asks, files.rows)
    totals = _RerankTotals()
    with write_rows_of(files.rows, files.output) as writer, bars() as bar:
        sampled = None if engine is None else bar("prompts sampled", total)
        progress = bar("reads", run.reads)

        def processed(chunk: list[Row]) -> Iterator[dict[str, Any]]:
            if engine is None:
                texts = [_candidates(columns, row, candidates_key, _OR_SAMPLED) for row in chunk]
            else:
                prompts = [columns.asked_of(row.data, row.where) for row in chunk]
                texts = sample_candidates(prompts, engine, sampling, work.store, sampled)
            rankings = _rankings(scorer, columns, chunk, texts, ranked.ties, progress)
            for row, candidates, ranking in zip(chunk, texts, rankings, strict=True):
                if engine is not None and len(candidates) < n:
                    report.miss(Unanswered(Reason.NO_REPLY, f"{len(candidates)} of {n} candidates"), row.number)
                if ranking is None:
                    if candidates:
                        report.miss(Unanswered(Reason.NO_CHECKLIST), row.number)
                    elif engine is None:
                        report.miss(Unanswered(Reason.NO_REPLY, "the row has no candidates"), row.number)
                else:
                    totals.add(ranking, None if gold_key is None else _gold(columns, row, gold_key, candidates))
                    for score in ranking.scores:
                        report.add(row.number, score)
                new = {} if engine is None else {CANDIDATES: candidates}
                yield row.data | new | _ranking_columns(ranking, _hashes(columns, row, candidates))
            report.rows += len(chunk)

        run.write(writer, processed, max(1, CHUNK_ROWS // n))
    report.extra |= totals.summary()
    run.finish(scorer.receipt)


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
    pool = columns.pool_of(row.data, row.where)
    checklist: Checklist | None = pool.checklist
    if checklist is not None:
        where = columns.checklist_place(row.where)
        for item in judge.prepared(checklist, where).items:
            judge.check_item(item, where)
        judge.check_images(checklist, row.where, input=pool.input, history=pool.history)
    return checklist


def _candidates(columns: Columns, row: Row, key: str, option: str = "--candidates-key") -> list[Candidate]:
    """The row's candidates with their answers, none if no policy gave a reply. Raises [`SampleError`] for invalid
    candidates."""
    given = columns.list_of(row.data, key, option, row.where)
    texts = given if given == [] else check_candidates(given, row.where)
    return [Candidate(text, columns.answer_of(row.data, text)) for text in texts]


def _gold(columns: Columns, row: Row, key: str, candidates: Sequence[str]) -> list[float]:
    return check_gold(columns.list_of(row.data, key, "--gold-key", row.where), candidates, row.where)


def _prompt(columns: Columns, row: Row) -> str | list[dict[str, str]]:
    require_input(columns, row)
    prompt = columns.messages_of(row.data, row.where)
    if prompt is None:
        raise SampleError(f"{row.where}: the input is empty; a pair requires a prompt.")
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
    pools = [columns.pool_of(row.data, row.where, some) for row, some in zip(rows, texts, strict=True)]
    usable = [pool.checklist is not None and bool(pool.candidates) for pool in pools]
    rankings = iter(rerank_batch(judge, list(compress(pools, usable)), ties=ties, progress=progress))
    return [next(rankings) if each else None for each in usable]


def _hashes(columns: Columns, row: Row, candidates: Sequence[str]) -> list[str]:
    asked = json.dumps(
        [columns.asked_of(row.data, row.where), columns.reference_of(row.data, row.where)],
        default=lambda value: value.key if isinstance(value, Image) else repr(value),
    )
    return [key_of("ranked-1", asked, str(text)).hex()[:16] for text in candidates]


def _ranking_columns(ranking: Ranking | None, hashes: list[str]) -> dict[str, Any]:
    if ranking is None:
        return dict.fromkeys(RANKING_COLUMNS)
    values = list(ranking.best), list(ranking.ranks), [score.model_dump() for score in ranking.scores], hashes
    return dict(zip(RANKING_COLUMNS, values, strict=True))


_ROWS_AT_ONCE = CHUNK_ROWS // 8


class Paired(o.Options):
    """The candidates, how the pair of a row is chosen, and how it is written."""

    heading = o.OUTPUT
    shown = ("candidates_key", "form", "card", "select", "min_margin", "top_fraction")
    parts = (o.Part(Rule, "", "Pair selection"),)

    candidates_key: Annotated[str, typer.Option(rich_help_panel=o.ROWS)] = CANDIDATES
    """Column of the candidates: a list of texts."""
    form: Form = "dpo"
    """Output format: dpo, kto (unpaired), reward (with the margin)."""
    card: Path | None = None
    """Dataset card to write: the selection rule, and the number of dropped prompts per reason. Defaults to the
    output's name with .md."""


@brief("judge", "checklist")
def pairs(
    files: o.Files,
    keys: o.Keys,
    judge: o.JudgeOptions,
    paired: Paired,
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

    Without --model and --judge, the scores that `rerank` wrote into the rows are used.

    **Examples**

    ```
    checklist-rewards pairs ranked.jsonl -o pairs.parquet --min-margin 0.1
    checklist-rewards pairs candidates.jsonl -o pairs.jsonl --select rlcf --top-fraction 0.4 --model org/judge
    ```
    """
    if not judge.asks:
        o.no_effect("without a judge; set --model to score the candidates", "judge.engine_args")
    work = Work.of(o.Preset(), store_options, judge=judge, may_need_no_store=True)
    scorer = work.scorer
    rule, candidates_key, form = Rule(**paired.given), paired.candidates_key, paired.form
    card = files.output.with_suffix(".md") if paired.card is None else paired.card
    run = RowRun("pairs", work, files, keys.columns(checklist, checklist=checklist_key), card=card)
    if file_format(files.output) == ".csv":
        raise SampleError(f"--output {files.output}: CSV cannot hold the lists of a pair; allowed: .jsonl, .parquet.")
    columns, report = run.columns, run.report
    stored = None if judge.asks else StoredScores(columns, candidates_key, judge)
    for row in run:
        row_checklist = columns.checklist_of(row.data, row.where)
        _prompt(columns, row)
        columns.reference_of(row.data, row.where)
        texts = _candidates(columns, row, candidates_key)
        if row_checklist is None or (stored is not None and stored.of(row, row_checklist) is not None) or not texts:
            continue
        _checked(scorer, columns, row)
        run.expect(row_checklist, len(texts))
    work.check_judge(run.asks, files.rows)
    dropped, judges = Counter[str](), set[str]()
    differences, margins = list[float](), list[float]()
    with write_rows_of(files.rows, files.output) as writer, bars() as bar:
        progress, spool = bar("reads", run.reads), Spool(files.output.parent)
        for chunk in run.chunks(_ROWS_AT_ONCE):
            checklists = [columns.checklist_of(row.data, row.where) for row in chunk]
            candidates = [_candidates(columns, row, candidates_key) for row in chunk]
            found = [
                None if stored is None or row_checklist is None else stored.of(row, row_checklist)
                for row, row_checklist in zip(chunk, checklists, strict=True)
            ]
            samples = [
                sample
                for row, texts, row_checklist, known in zip(chunk, candidates, checklists, found, strict=True)
                if known is None and row_checklist is not None
                for sample in columns.pool_of(row.data, row.where, texts).samples
            ]
            scores = iter(scorer.score_batch(samples, progress))
            for row, row_checklist, texts, known in zip(chunk, checklists, candidates, found, strict=True):
                if row_checklist is None:
                    report.miss(Unanswered(Reason.NO_CHECKLIST), row.number)
                    dropped["no_checklist"] += 1
                    continue
                if known is None:
                    known = scorer.prepared(row_checklist), [next(scores) for _ in texts]
                asked, row_scores = known
                for score in row_scores:
                    report.add(row.number, score)
                    judges |= {line.judge for line in score.items if line.judge and line.method != "check"}
                parts = {name: row.data[name] for name in PROMPT_PARTS if name in row.data}
                pool = ScoredPool(_prompt(columns, row), asked, texts, row_scores, parts)
                pair_or_reason = choose_pair(pool, rule)
                if isinstance(pair_or_reason, Pair):
                    spool.write({"rows": rows_of(pair_or_reason, form)})
                    differences.append(pair_or_reason.largest_difference)
                    margins.append(pair_or_reason.margin)
                else:
                    dropped[pair_or_reason] += 1
            report.rows += len(chunk)
        top = top_places(differences, rule.fraction)  # ranks the pairs of all rows, so it runs after the last chunk
        if len(top) < len(differences):
            dropped["not_top"] += len(differences) - len(top)
        for place, pair in enumerate(spool):
            for line in pair["rows"] if place in top else ():
                writer.write(line)
        spool.close()
    write_text(card, preference_card(files.output.stem, rule, form, len(top), dropped, sorted(judges)))
    report.extra |= _summary([margins[place] for place in top], dropped) | {"card": str(card)}
    run.finish(scorer.receipt)


class StoredScores:
    """The scores that `rerank` wrote into the rows, for a command without a judge.

    Args:
        columns ([`Columns`]): How rows are read.
        candidates_key (`str`): Column of the candidates.
        judge ([`JudgeOptions`]): Options of the user; those of the aggregation apply to stored answers.
    """

    def __init__(self, columns: Columns, candidates_key: str, judge: o.JudgeOptions):
        self.columns, self.candidates_key = columns, candidates_key
        self.settings, self.rules = judge.settings, judge.aggregation

    def of(self, row: Row, checklist: Checklist) -> tuple[Checklist, list[Score]] | None:
        """The checklist as it was asked and the score of each candidate; None for a row without scores.

        Raises:
            SampleError: If the scores are not those of the row's candidates and checklist, or if an option has no
                effect on them.
        """
        best, ranks, scored, hashes = (self._list(row, name) for name in RANKING_COLUMNS)
        if scored is None:
            return None
        again = "set --model to score the candidates again"
        for name in self.settings:
            if name not in FROM_STORED:
                option = o.JudgeOptions.option(name)
                raise SampleError(f"{row.where}: {option} has no effect on the stored {_STORED}; {again}.")
        texts = _candidates(self.columns, row, self.candidates_key)
        scores = [score for value in scored if (score := score_from(value, f"{row.where}, {_STORED}")) is not None]
        first = None if ranks is None else [t for t, place in zip(texts, ranks, strict=False) if place == 1]
        if len(scores) != len(texts) or (best is not None and first != best):
            raise SampleError(f"{row.where}: {_STORED} has the scores of other candidates than the row; {again}.")
        if hashes is not None and hashes != _hashes(self.columns, row, texts):  # None in files of earlier versions
            raise SampleError(
                f"{row.where}: a candidate, the prompt or the reference has changed since {_STORED} was written; "
                f"{again}."
            )
        # Without --checklist, with the weights of the judge's run.
        asked = stored_checklist(scores[0], checklist, row.where, shared=self.columns.shared is not None)
        assert asked is not None
        if any(item.id not in {line.id for line in score.items} for score in scores for item in asked.items):
            raise SampleError(f"{row.where}: {_STORED} has no answer to some items of the checklist; {again}.")
        questions = {item.id: item.question for item in asked.items}
        for line in (line for score in scores for line in score.items):
            if (question := questions.get(line.id, line.question)) != line.question:
                raise SampleError(
                    f"{row.where}: {_STORED} answers {line.question!r:.60}, but the checklist asks {question!r:.60} "
                    f"under the same id; {again}."
                )
        return asked, [self._rescored(asked, score, row.where) for score in scores]

    def _rescored(self, checklist: Checklist, score: Score, where: str) -> Score:
        if score.no_answer and self.rules.get("no_answer") == "judge":
            raise SampleError(f"{where}: no judge has read a candidate without an answer; set --model to ask one.")
        return rescore(checklist, score, replace(score.aggregation, **self.rules))

    def _list(self, row: Row, name: str) -> list[Any] | None:
        if row.data.get(name) in (None, ""):
            return None
        value = self.columns.list_of(row.data, name, "--candidates-key", row.where)
        if not isinstance(value, list):
            raise SampleError(f"{row.where}: {name} must be a list, got {type(value).__name__} {value!r:.60}.")
        return value


def _summary(margins: list[float], dropped: Counter[str]) -> dict[str, Any]:
    lines: dict[str, Any] = {"pairs": len(margins)}
    if margins:
        lines["mean margin"] = fmean(margins)
    return lines | {f"dropped {reason}": count for reason, count in sorted(dropped.items())}


class Answers(o.Policy):
    """The model that writes the answers and the checklists; the judge by default."""

    temperature: Annotated[float, Ge(0)] = 0.0
    """Sampling temperature of the answers; 0 is greedy."""


class Refined(o.Options):
    """How answers are revised."""

    heading = "Answers"

    rounds: Annotated[int, Ge(0)] = DEFAULT_ROUNDS
    """Most revisions after the first answer."""
    method: Method = "checklist"
    """Feedback for a revision: checklist, the judge's verdicts; critique, the model's own review, with the checklist
    used only to score."""


@brief("pipeline", "policy.temperature", "policy.max_tokens", "checklist")
def refine(
    files: o.Files,
    preset: o.Preset,
    keys: o.Keys,
    judge: o.JudgeOptions,
    policy: Answers,
    refined: Refined,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
    spending: o.Spending = o.Spending(),  # noqa: B008 - frozen
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
) -> None:
    r"""Let a model revise its own answers until they pass their checklists (STICK).

    Adds to every row **refined** (the answer with the highest score; the earliest of equal ones), **refined_round**
    (the round of that answer; 0 is the first answer), **refined_stopped** (why refinement ended) and
    **refined_rounds** (every answer with its state, its score and the feedback). For a row without a checklist one is
    written, in the same columns as by `generate`.

    Thoughts are removed from the answers. A reply without an answer (cut in its thought, empty) never passes, and the
    feedback names what is missing.

    **Examples**

    ```
    checklist-rewards refine prompts.jsonl -o refined.jsonl --model org/model --base-url http://localhost:8000/v1
    checklist-rewards refine prompts.jsonl -o reviewed.jsonl --method critique \
        --model org/judge --policy.model org/policy
    ```
    """
    rounds, method = refined.rounds, refined.method
    answerer = policy.other_engine(judge) or judge.engine
    dry = o.Dry(price=spending.price, budget=spending.budget)
    work = Work.of(preset, store_options, writer=answerer, judge=judge, dry=dry)
    engine = work.writer
    assert engine is not None
    if work.config.corpus_level:
        raise SampleError(
            f"--pipeline {work.config.name} writes one checklist for all rows; write it with `generate`, then set "
            "--checklist."
        )
    named = keys.columns(checklist, checklist=checklist_key)
    run = RowRun("refine", work, files, named)
    columns, report = run.columns, run.report
    total = written = 0
    for row in run:
        task = _task(columns, row, checklist_key)
        images = images_of(task.prompt)
        engine.check_images(images, f"{row.where}: the prompt")
        if task.checklist is not None:
            work.pipeline.check_checklist(task.checklist, columns.checklist_place(row.where))
        work.pipeline.check_sample(Sample(task.checklist or (), "an answer", images=images), row.where)
        written += task.checklist is None
        total += 1
    sampling = Sampling(policy.max_tokens, policy.temperature, seed=policy.seed)
    pipe, answering = work.pipeline, work.engine(ANSWERS, engine)
    pipe.check_writers()
    work.check_judge(True, None if written else files.rows)
    totals = _RefineTotals()
    with write_rows_of(files.rows, files.output) as out, bars() as bar:
        progress = bar("replies at most", total * (1 + rounds * (2 if method == "critique" else 1)))
        how: dict[str, Any] = {"rounds": rounds, "method": method, "sampling": sampling, "progress": progress}

        def processed(chunk: list[Row]) -> Iterator[dict[str, Any]]:
            tasks = [_task(columns, row, checklist_key) for row in chunk]
            refinements = refine_batch(tasks, answering, pipe.scorer, pipe, store=work.store, **how)
            for row, task, refinement in zip(chunk, tasks, refinements, strict=True):
                _count(report, row, refinement)
                totals.add(refinement)
                new = checklist_columns(refinement.checklist) if task.checklist is None else {}
                yield row.data | new | _refined_columns(refinement)
            report.rows += len(chunk)

        run.write(out, processed)
    report.extra |= totals.summary()
    run.finish(work.receipt)


class _RefineTotals:
    """Running totals: scores of the first and the best answers."""

    def __init__(self) -> None:
        self.passed = self.answers = 0
        self.scores: list[tuple[float, float]] = []

    def add(self, refinement: Refinement) -> None:
        score = None if refinement.best is None else refinement.rounds[refinement.best].score
        # `stopped` does not tell: method="critique" continues after an answer that passes.
        answered = refinement.best is not None and refinement.rounds[refinement.best].has_answer
        self.passed += answered and score is not None and all(line.passed for line in score.items)
        self.answers += len(refinement.rounds)
        best = None if score is None else score.primary_score
        plain = refinement.rounds[0].score if refinement.rounds else None
        if plain is not None and plain.primary_score is not None and best is not None:
            self.scores.append((plain.primary_score, best))

    def summary(self) -> dict[str, Any]:
        lines: dict[str, Any] = {"answers": self.answers, "rows that pass": self.passed}
        if self.scores:
            first, best = (fmean(column) for column in zip(*self.scores, strict=True))
            lines |= {"score of the first": first, "score of the best": best}
        return lines


def _task(columns: Columns, row: Row, checklist_key: str | None) -> Task:
    """The row as a task. Raises [`SampleError`] for a blank input."""
    prompt = asked(columns, row)
    has_checklist = columns.shared is not None or checklist_key is not None or columns.checklist in row.data
    checklist = columns.checklist_of(row.data, row.where) if has_checklist else None
    return Task(prompt, checklist, columns.reference_of(row.data, row.where))


def _count(report: RunReport, row: Row, refinement: Refinement) -> None:
    stopped = Unanswered(refinement.stopped)
    if stopped.reason == Reason.NO_REPLY:
        report.miss(stopped, row.number)
    if stopped.reason == Reason.NO_CHECKLIST:
        report.miss(Unanswered(Reason.NOT_GENERATED, stopped.detail), row.number)
    scores = [step.score for step in refinement.rounds if step.score is not None]
    if scores:
        report.add(row.number, scores[refinement.best or 0])


def _refined_columns(refinement: Refinement) -> dict[str, Any]:
    return {
        "refined": refinement.text,
        "refined_round": refinement.best,
        "refined_stopped": refinement.stopped,
        "refined_rounds": [
            {
                "text": step.text,
                "state": step.state,
                "score": None if step.score is None else step.score.model_dump(),
                "feedback": step.feedback,
            }
            for step in refinement.rounds
        ],
    }
