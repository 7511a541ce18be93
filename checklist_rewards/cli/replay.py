"""`replay`: score stored texts again, by another judge or from their stored answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from dataclasses import replace as changed
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.dry import forecast
from checklist_rewards.cli.files import CHUNK_ROWS, RowFile
from checklist_rewards.cli.forecast import prices_from
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.labels import Json, Resamples, Seed
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import RunReport, bars, console, warn_of_models, write_json
from checklist_rewards.cli.variance import show_variance
from checklist_rewards.cli.work import Work
from checklist_rewards.datasets.rows import Columns, read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.evaluation.agreement.measures import DEFAULT_RESAMPLES
from checklist_rewards.evaluation.replay import Replay, StoredRow, Weights, stored_checklist
from checklist_rewards.evaluation.variance import Variance
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import Row, file_format, read_rows_for, write_rows
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.variants import MOST_REPEATS, how_repeated
from checklist_rewards.rewards.batch import content_key
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import Aggregation, Score, TargetState
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.scores.table import SCORE_COLUMN, score_from
from checklist_rewards.ui.records import RecordFile
from checklist_rewards.validation import finite_or_none

_FROM_STORED = {"metric": "primary_metric"} | {
    field.name: field.name for field in fields(Aggregation) if field.name != "primary_metric"
}
"""Options that need no judge, with their fields of [`Aggregation`]."""
REPEATS = "Repeats"


@grouped
def replay(
    files: o.Files,
    judge: o.OtherJudge,
    keys: o.Keys,
    checklist: o.ChecklistFile = None,
    target_key: o.TargetKey = None,
    checklist_key: o.ChecklistKey = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            rich_help_panel=o.ROWS,
            help="JSON or YAML file with new weights: a mapping of item ids, questions or categories to numbers.",
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_REPEATS,
            rich_help_panel=REPEATS,
            help="Ask every question this many times, and separate the variance of the judge from that of the texts. "
            "A judge with a sampling temperature is sampled again; for others the question is reworded, with its "
            "labels in another order every second time. The output has the first answers.",
        ),
    ] = 1,
    precision: Annotated[
        float,
        typer.Option(
            rich_help_panel=REPEATS, help="Wanted standard error of a score, above 0; the report has the repeats."
        ),
    ] = 0.02,
    json: Json = None,
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
    concurrency: o.Concurrency = None,
    dry: o.Dry = o.Dry(),  # noqa: B008 - frozen
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
) -> None:
    r"""Score a reward log or a scored file again, without sampling new texts.

    With **--model** (or --judge, --base-url), the questions are asked again by this judge. Without it, the stored
    answers are aggregated again with another metric, threshold, calibration, checklist or weights, and no model is
    used. The output has the format of the input, so `diff`, `report` and `agree` can read both files.

    Metric, threshold and the other rules of the score stay as they were, unless an option changes them. Of a reward
    log, the files of all ranks are read.

    **Examples**

    ```
    checklist-rewards replay rewards.jsonl -o again.jsonl --model org/judge
    checklist-rewards replay scored.jsonl -o lenient.jsonl --threshold 0.4 --weights weights.yaml
    checklist-rewards replay rewards.jsonl -o again.jsonl --model org/judge --repeat 4 --json variance.json
    ```
    """
    read = (checklist, weights, store_options.store)
    file = RowFile(files.rows, files.output, files.summary, read)
    check_outputs([files.rows, *read], output=files.output, summary=files.summary, json=json)
    if precision <= 0:
        raise SampleError(f"--precision {precision:g} is not allowed; it must be above 0.")
    if json is not None and repeat == 1:
        raise SampleError(f"--json {json} holds the variances of repeated answers; set --repeat to 2 or more.")
    work = Work.of(o.Preset(), store_options, judge=judge, concurrency=concurrency, dry=dry) if judge.asks else None
    replayed = _replay(work, judge, repeat)
    stored = StoredFile.of(
        file,
        new_weights=None if weights is None else _weights(weights),
        inputs=keys.input_key,
        target=target_key,
        checklist=checklist_key,
        reference=keys.reference_key,
        history=keys.history_key,
        shared=None if checklist is None else read_checklist(checklist),
        work=work,
    )
    reads, prompts = _check(stored, replayed)
    prices = prices_from(dry.price)
    if work is not None and dry.dry_run:
        if repeat > 1:
            raise SampleError("--dry-run counts one answer per question; omit --repeat and multiply.")
        return forecast(work, prices, samples=(row.sample for _, row in stored if row is not None))
    if work is not None:
        work.pipeline.scorer.check()
        warn_of_models(judge.shown)
    report = RunReport("replay")
    variance = Variance(repeat, by_prompt=prompts) if repeat > 1 else None
    with write_rows(files.output) as out, bars() as bar:
        progress = bar("reads", reads) if replayed.scorer is not None else None
        rows = iter(stored)
        while chunk := list(islice(rows, CHUNK_ROWS)):
            scores = iter(replayed.scores([row for _, row in chunk if row is not None], progress))
            for row, again in chunk:
                repeats = next(scores) if again is not None else None
                out.write(stored.written(row, again, None if repeats is None else repeats[0]))
                if repeats is None:
                    report.miss(Unanswered(Reason.NO_CHECKLIST), row.number)
                    continue
                report.add(row.number, repeats[0])
                if variance is not None and again is not None:
                    variance.add(stored.prompt_of(row), repeats)
            report.rows += len(chunk)
    if work is not None:
        work.account(report, prices)
    code = report.finish(files.output, replayed.receipt, files.summary)
    if stored.shaped:
        console.print(
            "[yellow]Rewards of this log differ from its scores (shaping, held-out items or a monitor's penalty). "
            "`replay` cannot repeat that, so the new rewards are null; the new scores are complete.[/]"
        )
    if variance is not None:
        assert replayed.scorer is not None
        with bars() as bar:
            result = variance.result(
                how_repeated(replayed.scorer.judge),
                Bootstrap(bootstrap, seed, bar("bootstrap draws", None)),
                precision,
            )
        show_variance(Console(), result)
        if json is not None:
            write_json(json, result.model_dump())
    raise typer.Exit(code)


@dataclass
class StoredFile:
    """A reward log or a scored file, read as stored rows and written in the same format."""

    file: RowFile
    paths: list[Path]
    is_log: bool
    columns: Columns
    new_weights: Weights | None
    work: Work | None
    shaped: bool = False
    """Whether a reward of the log differs from its score. Set by the first pass."""

    @classmethod
    def of(cls, file: RowFile, *, new_weights: Weights | None, work: Work | None, **named: Any) -> StoredFile:
        """The file; `named` as in [`Columns.of`]."""
        records = RecordFile(file.path)
        kind = records.kind()
        if kind == "pairs":
            raise SampleError(f"{file.path} has pairs; `replay` requires a scored file or a reward log.")
        is_log = kind == "rewards"
        return cls(file, records.paths if is_log else [file.path], is_log, file.columns(**named), new_weights, work)

    def __iter__(self) -> Iterator[tuple[Row, StoredRow | None]]:
        """Every row, with None for a row that has no checklist."""
        for row in chain.from_iterable(read_rows_for(path, self.file.output) for path in self.paths):
            yield row, self._stored(row)

    def _stored(self, row: Row) -> StoredRow | None:
        data, where = row.data, row.where
        column = "score" if self.is_log else SCORE_COLUMN
        if column not in data:
            raise SampleError(f"{where}: column {column!r} not found.")
        score = score_from(data[column], where)
        reward = finite_or_none(f"{where}: reward", data.get("reward")) if self.is_log else None
        if reward is not None and score is not None:
            self.shaped |= score.primary_score is None or abs(reward - score.primary_score) > 1e-9
        given = self.columns.shared
        if given is None and self.columns.checklist in data:
            given = self.columns.checklist_of(data, where)
        if self.columns.shared is None:
            given = stored_checklist(score, given, where)
        if given is None or (self.is_log and data.get("completion") is None):
            return None
        if self.work is not None:
            given = self.work.pipeline.scaled(given)
        if self.new_weights is not None:
            given = self.new_weights.of(given, where)
        sample = self.columns.sample_of(data, where, given)
        if self.is_log:
            # The text that was judged, with or without thinking, and what is known of it.
            state: TargetState = data["state"] if data.get("state") in get_args(TargetState) else "answered"
            sample = changed(sample, target=data["completion"], state=state)
        return StoredRow(sample, score, where)

    def prompt_of(self, row: Row) -> str:
        """Identity of the row's prompt."""
        return content_key([row.data.get(name) for name in self.columns.inputs])

    def written(self, row: Row, stored: StoredRow | None, score: Score | None) -> dict[str, Any]:
        """The row with its new score."""
        dumped = None if score is None else score.model_dump()
        if self.is_log:
            reward = None if score is None or self.shaped else score.primary_score
            kept = {name: value for name, value in row.data.items() if name not in ("shaping", "parts")}
            if stored is not None and "checklist_hash" in kept:
                kept["checklist_hash"] = stored.sample.checklist.id
            return kept | {"reward": reward, "score": dumped}
        new: dict[str, Any] = {}
        if stored is not None and (self.columns.shared is not None or self.new_weights is not None):
            items: Checklist = stored.sample.checklist
            new = {self.columns.checklist: [item.model_dump(mode="json", exclude={"sources"}) for item in items.items]}
        return row.data | new | {SCORE_COLUMN: dumped}


def _replay(work: Work | None, judge: o.OtherJudge, repeats: int) -> Replay:
    """What answers and how its answers are aggregated. Raises [`SampleError`] for options without effect."""
    settings = judge.settings
    aggregation = {field: settings[name] for name, field in _FROM_STORED.items() if name in settings}
    calibration = settings.get("calibration")
    if work is None:
        for name in settings:
            if name not in (*_FROM_STORED, "calibration"):
                option = name.replace("_", "-")
                raise SampleError(f"--{option} has no effect on stored answers; set --model to ask a judge.")
        loaded = None if calibration is None else Calibration.load(calibration)
        return Replay(None, aggregation, loaded, repeats)
    scorer = work.pipeline.scorer
    assert isinstance(scorer, ChecklistScorer)  # only presets can name another scorer
    if scorer.mode == "quality":
        aggregation.setdefault("primary_metric", scorer.aggregation.primary_metric)
    return Replay(scorer, aggregation, scorer.settings.loaded_calibration, repeats)


def _weights(path: Path) -> Weights:
    value = read_value(read_text(path), path)
    if not isinstance(value, Mapping) or not value:
        raise SampleError(f"{path} must map item ids, questions or categories to weights, got {value!r:.60}.")
    return Weights({str(name): weight for name, weight in value.items()})


def _check(stored: StoredFile, replayed: Replay) -> tuple[int, bool]:
    """Check all rows. Returns the number of reads, and whether a prompt has several texts."""
    reads, rows, prompts = 0, 0, set[bytes]()
    for row, again in stored:
        if again is None:
            continue
        reads += replayed.check(again)
        if replayed.repeats > 1:
            rows += 1
            prompts.add(bytes.fromhex(stored.prompt_of(row))[:8])
    weights = stored.new_weights
    if weights is not None and weights.unused:
        name = sorted(weights.unused)[0]
        raise SampleError(
            f"--weights: no item of {stored.file.path} has the id, question or category {name!r:.60}; correct it or "
            "remove it."
        )
    if file_format(stored.file.output) == ".csv" and stored.is_log:
        raise SampleError(f"--output {stored.file.output}: a reward log is written as .jsonl or .parquet.")
    return reads, len(prompts) < rows
