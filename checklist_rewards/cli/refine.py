"""`refine`: a model answers, receives the failed items of its checklist as feedback, and answers again."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated, Any

import typer

from checklist_rewards.backends import Sampling
from checklist_rewards.cli import options as o
from checklist_rewards.cli.dry import forecast_refine
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.forecast import ANSWERS, prices_from
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import RunReport, bars, warn_of_models
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.columns import checklist_columns
from checklist_rewards.datasets.rows import PROMPT, Columns, read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, write_rows
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.self_refine import (
    DEFAULT_ROUNDS,
    Method,
    Refinement,
    Task,
    refine_batch,
)

_PANEL = "Answers"


def _answers(help: str, *names: str, default: str | bool = True, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL, help=help, show_default=default, **more)


@grouped
def refine(
    files: o.Files,
    preset: o.Preset,
    keys: o.Keys,
    judge: o.JudgeOptions,
    policy: Annotated[
        str | None, _answers("Model that writes the answers and the checklists.", default="the judge")
    ] = None,
    policy_base_url: Annotated[str | None, _answers("URL of the policy's server.", default=False)] = None,
    policy_engine: Annotated[
        list[str] | None, _answers("Engine argument of the policy, as in --engine. Repeatable.", default=False)
    ] = None,
    rounds: Annotated[int, _answers("Most revisions after the first answer.", min=0)] = DEFAULT_ROUNDS,
    method: Annotated[
        Method,
        _answers(
            "Feedback for a revision: checklist, the judge's verdicts; critique, the model's own review, with the "
            "checklist used only to score."
        ),
    ] = "checklist",
    temperature: Annotated[float, _answers("Sampling temperature of the answers; 0 is greedy.", min=0)] = 0.0,
    max_tokens: Annotated[int, _answers("Most tokens per answer.", min=1)] = 512,
    seed: Annotated[int, _answers("Random seed of the sampling.")] = 0,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
    dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
) -> None:
    r"""Let a model revise its own answers until they pass their checklists (STICK).

    Adds to every row **refined** (the answer with the highest score; the earliest of equal ones), **refined_round**
    (the round of that answer; 0 is the first answer), **refined_stopped** (why refinement ended) and
    **refined_rounds** (every answer with its state, its score and the feedback). For a row without a checklist one is
    written, in the same columns as by `generate`.

    Thoughts are removed from the answers. A reply without an answer (cut in its thought, empty) never passes, and the
    model is told what is missing.

    **Examples**

    ```
    checklist-rewards refine prompts.jsonl -o refined.jsonl --model org/model --base-url http://localhost:8000/v1
    checklist-rewards refine prompts.jsonl -o reviewed.jsonl --model org/judge --policy org/policy --method critique
    checklist-rewards refine prompts.jsonl -o refined.jsonl --model org/model --dry-run --price org/model=0.15,0.60
    ```
    """
    answerer = o.policy(judge, policy, policy_base_url, policy_engine) or judge.engine
    work = Work.of(preset, store_options, writer=answerer, judge=judge, dry=dry)
    engine = work.writer
    assert engine is not None
    if work.config.corpus_level:
        raise SampleError(
            f"--pipeline {work.config.name} writes one checklist for all rows; write it with `generate`, then set "
            "--checklist."
        )
    file = RowFile(files.rows, files.output, files.summary, (checklist, store_options.store))
    columns = file.columns(
        inputs=keys.input_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
    )
    total = 0
    for row in file:
        _task(columns, row, checklist_key)
        total += 1
    prices = prices_from(dry.price)
    sampling = Sampling(max_tokens, temperature, seed=seed)
    if dry.dry_run:
        tasks = [_task(columns, row, checklist_key) for row in file]
        return forecast_refine(work, engine, prices, tasks, rounds=rounds, method=method, sampling=sampling)
    pipe, answering = work.pipeline, work.engine(ANSWERS, engine)
    pipe.check()
    warn_of_models(*work.model_names)
    report, totals = RunReport("refine"), _RefineTotals()
    with write_rows(files.output) as out, bars() as bar:
        progress = bar("replies at most", total * (1 + rounds * (2 if method == "critique" else 1)))
        for chunk in file.chunks():
            refinements = refine_batch(
                [_task(columns, row, checklist_key) for row in chunk],
                answering,
                pipe.scorer,
                pipe,
                rounds=rounds,
                method=method,
                sampling=sampling,
                store=work.store,
                progress=progress,
            )
            for row, refinement in zip(chunk, refinements, strict=True):
                _count(report, row, refinement)
                totals.add(refinement)
                written = _task(columns, row, checklist_key).checklist is None
                new = checklist_columns(refinement.checklist) if written else {}
                out.write(row.data | new | _refined_columns(refinement))
            report.rows += len(chunk)
    report.extra |= totals.summary()
    work.account(report, prices)
    raise typer.Exit(report.finish(files.output, getattr(pipe.scorer, "receipt", None), files.summary))


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
    if not columns.inputs:
        columns.get(row.data, PROMPT, "--input-key", row.where)
    prompt = columns.messages_of(row.data, row.where)
    if prompt is None or (isinstance(prompt, str) and not prompt.strip()):
        raise SampleError(f"{row.where}: the input is empty.")
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
