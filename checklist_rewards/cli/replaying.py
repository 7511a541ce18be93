"""`replay`, `diff` and `cascade`: score stored texts again, and compare two scorings.

- `replay`: by another judge, or from the stored answers with other settings; with `--repeat`, variance components.
- `diff`: what changes between two scorings of the same texts.
- `cascade`: what a cascade of two judges would cost, from their scored files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le
from rich.table import Table

from checklist_rewards.attacks.report import compare, is_attack, read_attack
from checklist_rewards.cli import options as o
from checklist_rewards.cli.attacking import show_comparison
from checklist_rewards.cli.forecast import forecast
from checklist_rewards.cli.options import FROM_STORED, Json, brief, grouped
from checklist_rewards.cli.output import RunReport, bars, check_outputs, console, decimal, plain_console, table
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import check_plots
from checklist_rewards.evaluation.bootstrap import Figure
from checklist_rewards.evaluation.cascade_replay import DEFAULT_TOLERANCE, choose, plot_curve
from checklist_rewards.evaluation.cascade_replay import replay as replay_cascade
from checklist_rewards.evaluation.differences import DifferenceReport, Differences
from checklist_rewards.evaluation.labels import Labels, pairs_of
from checklist_rewards.evaluation.replay import Replay
from checklist_rewards.evaluation.scored import ScoredFile, ScoredText, own_id, read_scored, stored_checklist
from checklist_rewards.evaluation.variance import Components, Variance, VarianceReport
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.rows import CHUNK_ROWS, SCORE_COLUMN, file_format, write_rows
from checklist_rewards.judges.calibration import Calibration
from checklist_rewards.judges.variants import MOST_REPEATS, how_repeated
from checklist_rewards.judges.weights import Weights
from checklist_rewards.keys import content_key
from checklist_rewards.rows import read_checklist, write_rows_of
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import Aggregation, Score
from checklist_rewards.scores.reasons import Reason, Unanswered

_SHOWN_ITEMS = 20
_QUESTION = 60


def show_variance(report: VarianceReport) -> None:
    """Print the tables of a report."""
    out = plain_console()
    rows = f"{report.rows} rows, {report.repeats} repeats, {report.how}"
    if report.incomplete:
        rows += f"; {report.incomplete} rows without a score in one of the repeats are left out"
    if report.scores is not None:
        out.print(_components(f"variance of the scores ({rows})", report.scores))
    if report.items:
        out.print(_item_variance(report))
    if report.needed is not None:
        out.print(f"A standard error of {report.precision:g} or less needs {report.needed} answers per question.")


def _components(title: str, components: Components) -> Table:
    parts = {name: f for name, f in components.figures.items() if name not in ("judge", "judge_share")}
    whole = sum(figure.value or 0.0 for figure in parts.values())
    shares = ("" if part.value is None or whole == 0 else f"{part.value / whole:.1%}" for part in parts.values())
    rows = ((name, figure.shown(4), share) for (name, figure), share in zip(parts.items(), shares, strict=True))
    found = table("component", "variance", "share", rows=rows, title=title)
    found.add_section()
    of_judge = components.figures["judge"].shown(4), _percent(components.figures["judge_share"])
    found.add_row("judge", *of_judge)
    return found


def _item_variance(report: VarianceReport) -> Table:
    more = report.all_items - min(_SHOWN_ITEMS, len(report.items))
    title = "items with the largest judge variance" + (f" ({more} more)" if more else "")
    rows = []
    for item in report.items[:_SHOWN_ITEMS]:
        figures = item.figures
        shown = figures["text"].shown(4), figures["judge"].shown(4), _percent(figures["judge_share"])
        rows.append((item.question[:_QUESTION], str(item.texts), *shown))
    return table("item", "texts", "text variance", "judge variance", "judge's share", rows=rows, title=title)


def _percent(figure: Figure) -> str:
    if figure.value is None:
        return ""
    known = figure.low is not None and figure.high is not None
    return f"{figure.value:.1%}" + (f" [{figure.low:.1%}, {figure.high:.1%}]" if known else "")


class Repeats(o.Options):
    """How often a judge is asked."""

    heading = "Repeats"
    shown = ("repeat",)

    repeat: Annotated[int, Ge(1), Le(MOST_REPEATS)] = 1
    """Ask every question this many times, and separate the variance of the judge from that of the texts. A judge with
    a sampling temperature is sampled again; for others the question is reworded, with its labels in another order
    every second time. The output has the first answers."""
    precision: float = 0.02
    """Wanted standard error of a score, above 0; the report has the repeats."""


@brief("judge", "metric", "threshold", "judge.calibration", "weights", "checklist", "json")
def replay(
    files: o.Files,
    judge: o.JudgeOptions,
    keys: o.Keys,
    repeats: Repeats,
    checklist: o.ChecklistFile = None,
    target_key: o.TargetKey = None,
    checklist_key: o.ChecklistKey = None,
    json: Json = None,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
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
    weights = None if judge.weights is None else Path(judge.weights)
    check_outputs(output=files.output, summary=files.summary, json=json)
    file_format(files.output)
    repeat, precision = repeats.repeat, repeats.precision
    if precision <= 0:
        raise SampleError(f"--precision {precision:g} is not allowed; it must be above 0.")
    if not judge.asks:
        of_judges = ("judge.engine_args", "concurrency", "budget", "price")
        o.no_effect("on stored answers; set --model to ask a judge", *of_judges, o.StoreOptions)
    if repeat == 1:
        o.no_effect("without --repeat of 2 or more", "json", "precision", o.Resampling)
    work = Work.of(o.Preset(), store_options, judge=judge, concurrency=concurrency, dry=dry) if judge.asks else None
    replayed = _replay(work, judge, repeat)
    images = keys.images if judge.asks else "ignore"
    named = keys.columns(checklist, target=target_key, checklist=checklist_key, images=images)
    texts = ScoredFile(files.rows, **named, output=files.output)
    if texts.kind == "pairs":
        raise SampleError(f"{files.rows} has pairs; `replay` requires a scored file or a reward log.")
    stored = _Again(texts, None if weights is None else Weights.load(weights), replayed.scorer)
    reads = _check(stored, replayed)
    if dry.dry_run:
        if repeat > 1:
            raise SampleError("--dry-run counts one answer per question; omit --repeat and multiply.")
        if work is None:
            console.print("The stored answers are aggregated again: no model is asked, and nothing was written.")
            return
        return forecast(work, samples=(text.sample for text in stored if text.sample is not None))
    if work is not None:
        work.pipeline.scorer.validate()
    report = RunReport("replay")
    variance = Variance(repeat) if repeat > 1 else None
    with write_rows_of(files.rows, files.output) as out, bars() as bar:
        progress = bar("reads", reads) if replayed.scorer is not None else None
        rows = iter(stored)
        while chunk := list(islice(rows, CHUNK_ROWS)):
            scores = iter(replayed.scores([text for text in chunk if text.sample is not None], progress))
            for text in chunk:
                found = next(scores) if text.sample is not None else None
                out.write(stored.written(text, None if found is None else found[0]))
                if found is None:
                    report.miss(Unanswered(Reason.NO_CHECKLIST), text.number)
                    continue
                report.add(text.number, found[0])
                if variance is not None:
                    variance.add(_prompt_of(text), found)
            report.rows += len(chunk)
    if work is not None:
        work.account(report)
    code = report.finish(files.output, replayed.receipt, files.summary)
    if stored.shaped:
        console.print(
            "Rewards of this log differ from its scores (shaping, held-out items or a monitor's penalty). `replay` "
            "cannot repeat that, so the new rewards are null; the new scores are complete.",
            style="yellow",
        )
    if variance is not None:
        assert replayed.scorer is not None
        with bars() as bar:
            result = variance.result(
                how_repeated(replayed.scorer.judge),
                resampling.draws(bar),
                precision,
            )
        show_variance(result)
        if json is not None:
            write_json(json, result.model_dump())
    raise typer.Exit(code)


@dataclass
class _Again:
    """How the texts of a file are scored again, and written in its format."""

    file: ScoredFile
    weights: Weights | None
    scorer: ChecklistScorer | None
    shaped: bool = False
    """Whether a reward of the log differs from its score. Set by the first pass."""

    def __iter__(self) -> Iterator[ScoredText]:
        """Every text, without a sample for a row that has no checklist."""
        return map(self._asked, self.file)

    def _asked(self, text: ScoredText) -> ScoredText:
        score, shared = text.score, self.file.columns.shared
        if text.reward is not None and score is not None:
            self.shaped |= score.primary_score is None or abs(text.reward - score.primary_score) > 1e-9
        given = text.checklist if shared is not None else stored_checklist(score, text.checklist, text.where)
        if given is None or (text.kind == "rewards" and text.data.get("completion") is None):
            return text
        if self.scorer is not None:
            given = self.scorer.prepared(given, text.where)
        if self.weights is not None:
            given = self.weights.of(given, text.where)
        asked = text.asked(given)
        if self.scorer is not None:
            self.scorer.check_sample(asked.to_judge, text.where)
        return asked

    def written(self, text: ScoredText, score: Score | None) -> dict[str, Any]:
        """The row with its new score."""
        dumped = None if score is None else score.model_dump()
        checklist = None if text.sample is None else text.checklist
        if text.kind == "rewards":
            reward = None if score is None or self.shaped else score.primary_score
            kept = {name: value for name, value in text.data.items() if name not in ("shaping", "parts")}
            if checklist is not None and "checklist_hash" in kept:
                kept["checklist_hash"] = checklist.id
            return kept | {"reward": reward, "score": dumped}
        new: dict[str, Any] = {}
        if checklist is not None and (self.file.columns.shared is not None or self.weights is not None):
            items = [item.model_dump(mode="json", exclude={"sources"}) for item in checklist.items]
            new = {self.file.columns.checklist: items}
        return {**text.data, **new, SCORE_COLUMN: dumped}


def _prompt_of(text: ScoredText) -> str:
    """Identity of the row's prompt. A row without one is on its own."""
    return content_key(text.prompt_key or text.where)


def _replay(work: Work | None, judge: o.JudgeOptions, repeats: int) -> Replay:
    """What answers and how its answers are aggregated. Raises [`SampleError`] for options without effect."""
    settings = judge.settings
    aggregation = judge.aggregation
    calibration = settings.get("calibration")
    if work is None:
        for name in settings:
            if name not in (*FROM_STORED, "calibration", "weights"):
                raise SampleError(
                    f"{o.JudgeOptions.option(name)} has no effect on stored answers; set --model to ask a judge."
                )
        loaded = None if calibration is None else Calibration.load(calibration)
        return Replay(None, aggregation, loaded, repeats)
    scorer = work.scorer
    if scorer.mode == "quality":
        aggregation.setdefault("primary_metric", scorer.aggregation.primary_metric)
    return Replay(scorer, aggregation, scorer.config.loaded_calibration, repeats)


def _check(stored: _Again, replayed: Replay) -> int:
    """Check all rows. Returns the number of reads."""
    reads = sum(replayed.check(text) for text in stored if text.sample is not None)
    if stored.weights is not None:
        stored.weights.check_used(stored.file.path)
    output = stored.file.output
    if output is not None and file_format(output) == ".csv" and stored.file.kind == "rewards":
        raise SampleError(f"--output {output}: a reward log is written as .jsonl or .parquet.")
    return reads


_SHOWN = 60


class Compared(o.Options):
    """Two files to compare, and how their rows are matched."""

    heading = o.ROWS

    one: Annotated[Path, typer.Argument(metavar="ONE")]
    """A scored file, a reward log, or a file of `attack`."""
    other: Annotated[Path, typer.Argument(metavar="OTHER")]
    """The same texts with other scores."""
    output: Annotated[Path | None, o.OUTPUT_FILE] = None
    """File with a row per text (.jsonl, .csv or .parquet): both scores and advantages, and all answers."""
    id_key: str | None = None
    """Column of row ids, to match rows across files. Defaults to id, else step, prompt and text."""
    target_key: str | None = None
    """Column of the text. Defaults to target, else completion."""


@grouped()
def diff(
    compared: Compared,
    json: Json = None,
    input_key: o.InputKey = None,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
) -> None:
    r"""Compare two scorings of the same texts: flipped answers, changed scores, and the order within groups.

    Reads two scored files, or two reward logs, for example a log and its `replay`. Rows are matched by their id, or by
    step, prompt and text, in any order; rows of one file only are counted and named. A group is the texts of a prompt,
    in a log the completions of one row of the dataset in one step.

    Of two files of `attack`, it compares the rise of each attack on the prompts of both.

    **Examples**

    ```
    checklist-rewards diff rewards.jsonl again.jsonl
    checklist-rewards diff scored.jsonl lenient.jsonl --json diff.json -o diff.parquet
    checklist-rewards diff attack.json attack-panel.json
    ```
    """
    files = one, other = [compared.one, compared.other]
    output, id_key, target_key = compared.output, compared.id_key, compared.target_key
    check_outputs(output=output, json=json)
    if output is not None:
        file_format(output)
    if any(map(is_attack, files)):
        o.no_effect("on files of `attack`", "id_key", "input_key", "target_key")
        with bars() as bar:
            draws = resampling.draws(bar)
            comparison = compare(read_attack(one), read_attack(other), draws)
        show_comparison(comparison)
        if output is not None:
            with write_rows(output) as attacks:
                for attack in comparison.attacks:
                    attacks.write(attack.model_dump())
        if json is not None:
            write_json(json, comparison.model_dump())
        return
    sources = [ScoredFile(path, inputs=input_key, target=target_key, id_key=id_key) for path in files]
    for source in sources:
        if source.kind == "pairs":
            raise SampleError(f"{source.path} has pairs; `diff` requires scored files or reward logs.")
    named = id_key is not None or all(_has_id(source) for source in sources)
    with Differences(named) as differences, bars() as bar:
        for side, source in enumerate(sources):
            loaded = bar(source.path.name, source.count())
            for text, _ in source.counted():
                differences.add(side, text)
                loaded(1)
        advance = bar("compared", None)
        # A refusal inside the block leaves an existing output unchanged.
        with nullcontext() if output is None else write_rows(output) as rows:
            for record in differences.rows():
                if rows is not None:
                    rows.write(record)
                advance(1)
            draws = resampling.draws(bar)
            report = differences.report((str(one), str(other)), draws)
            if report.rows == 0:
                raise SampleError(
                    f"{one} and {other} have no row in common: the first rows are {_first(report.only_one.first)} and "
                    f"{_first(report.only_other.first)} (set the id column with --id-key)."
                )
    _show(report)
    if json is not None:
        write_json(json, report.model_dump())


def _has_id(source: ScoredFile) -> bool:
    return source.kind == "scored" and own_id(source.first.data) is not None


def _first(names: tuple[str, ...]) -> str:
    return names[0] if names else "missing"


def _show(report: DifferenceReport) -> None:
    out = plain_console()
    for name, only in ((report.one, report.only_one), (report.other, report.only_other)):
        if only.rows:
            more = ", …" if only.rows > len(only.first) else ""
            console.print(f"{name}: {only.rows} rows are only in this file: {', '.join(only.first)}{more}")
    out.print(_totals(report))
    if report.items:
        out.print(_item_flips(report))
    if report.reads:
        out.print(_reads(report))


def _totals(report: DifferenceReport) -> Table:
    counts, figures = report.counts, report.figures
    lines: list[tuple[str, str, Any]] = [
        ("rows in both", str(report.rows), None),
        ("answers flipped", _of(counts["flips"], counts["reads"]), figures.get("flips")),
        *(
            [("code checks flipped", _of(counts["checks_flipped"], counts["checks"]), None)]
            if counts["checks"]
            else []
        ),
        ("kappa (yes/no items)", "", figures.get("kappa")),
        ("change of P(yes)", "", figures.get("shift")),
        ("absolute change of P(yes)", "", figures.get("distance")),
        ("scores changed", _of(counts["changed"], counts["scored"]), None),
        ("change of the score", "", figures.get("change")),
        ("absolute change of the score", "", figures.get("size")),
        ("order within groups (Kendall)", f"{counts['ranked']} groups", figures.get("kendall")),
        ("advantages reversed", _of(counts["reversed"], counts["advantages"]), figures.get("advantages_reversed")),
        ("another best or worst text", _of(counts["other_pair"], counts["pairs"]), figures.get("other_pair")),
        ("best below worst", _of(counts["reversed_pair"], counts["pairs"]), figures.get("reversed_pair")),
        ("groups without variance", f"{counts['flat_one']} → {counts['flat_other']} of {counts['groups']}", None),
    ]
    if counts["unmatched_items"]:
        lines.append(("items in one of the two scores only", str(counts["unmatched_items"]), None))
    rows = ((name, count, "" if figure is None else figure.shown()) for name, count, figure in lines)
    return table("", "count", "share or mean", rows=rows, title=f"{report.one} → {report.other}")


def _item_flips(report: DifferenceReport) -> Table:
    more = report.all_items - min(_SHOWN_ITEMS, len(report.items))
    title = "items" + (f" with the most flips ({more} more)" if more else "")
    rows = []
    for item in report.items[:_SHOWN_ITEMS]:
        figures = (item.figures[name].shown(2) for name in ("flips", "kappa", "shift"))
        rows.append((item.question[:_SHOWN], _of(item.flips, item.reads), *figures))
    return table("item", "flips", "share", "kappa", "change of P(yes)", rows=rows, title=title)


def _reads(report: DifferenceReport) -> Table:
    rows = []
    for read in report.reads:
        p = "" if read.p_one is None or read.p_other is None else f"{read.p_one:.2f} → {read.p_other:.2f}"
        texts = ((text or "").replace("\n", " ")[:_SHOWN] for text in (read.question, read.completion))
        rows.append((read.row, *texts, f"{read.one} → {read.other}", p))
    return table("row", "question", "text", "answers", "P(yes)", rows=rows, title="reads that differ most")


def _of(count: int, total: int) -> str:
    return f"{count} of {total}"


_SHOWN_STEP = 5


class Cascade(o.Options):
    """Two files of a cascade, and what is tried."""

    cheap: Annotated[Path, typer.Argument(metavar="CHEAP")]
    """A file scored by the cheap judge."""
    strong: Annotated[Path, typer.Argument(metavar="STRONG")]
    """The same rows scored by the strong judge."""
    label_key: Annotated[str | None, typer.Option(rich_help_panel=o.ROWS)] = None
    """Column of labels to measure agreement with. Defaults to the strong judge's answers."""
    id_key: Annotated[str | None, typer.Option(rich_help_panel=o.ROWS)] = None
    """Column of row ids. Defaults to id, else row number."""
    cheap_cost: Annotated[float, Ge(0)] = 0.0
    """Price of a cheap read relative to a strong read."""
    tolerance: Annotated[float, Ge(0), Le(1)] = DEFAULT_TOLERANCE
    """Largest loss of agreement to accept for a lower cost."""
    threshold: Annotated[float, Ge(0), Le(1)] = Aggregation.threshold
    """Lowest P(yes), from 0 to 1, that counts as yes."""
    plot: Annotated[Path | None, typer.Option(rich_help_panel=o.OUTPUT)] = None
    """Plot of cost against agreement (.png)."""


@grouped()
def cascade(
    files: Cascade,
    json: Json = None,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
) -> None:
    r"""Simulate a judge cascade from two scored files: cost against agreement at each margin.

    In a cascade, the cheap judge answers first. The strong judge is asked only if the margin of the cheap judge (the
    probability of its best answer minus that of the second best) is too small. This command calls no model: it tries
    every margin on the answers in both files.

    **Example**

    ```
    checklist-rewards cascade small.jsonl large.jsonl --label-key human --cheap-cost 0.05 --plot curve.png
    ```
    """
    cheap, strong, id_key, label_key = files.cheap, files.strong, files.id_key, files.label_key
    check_outputs(plot=files.plot, json=json)
    check_plots(files.plot)
    shared = None if checklist is None else read_checklist(checklist)
    scored = [read_scored(path, id_key=id_key, checklist=checklist_key, shared=shared) for path in (cheap, strong)]
    pairs, unpaired = pairs_of(scored[0], scored[1], (str(cheap), str(strong)))
    if label_key is not None:
        texts, _ = Labels(key=label_key).of([first for first, _ in pairs])
        for text in texts:
            if isinstance(text.labels, int | float):
                raise SampleError(
                    f"{text.where}: {label_key!r} must hold one label per item, got a single number for the whole "
                    f"target ({text.labels:g})."
                )
        pairs = [(text, second) for text, (_, second) in zip(texts, pairs, strict=True)]
    curve = replay_cascade(
        pairs, by_labels=label_key is not None, cheap_cost=files.cheap_cost, threshold=files.threshold
    )
    chosen = choose(curve, tolerance=files.tolerance)
    rows = []
    for point in sorted({*curve[::_SHOWN_STEP], chosen}, key=lambda point: point.margin):
        agreement = decimal(point.agreement, missing="–") + (" <" if point == chosen else "")
        rows.append((f"{point.margin:.2f}", f"{point.escalated:.1%}", f"{point.cost:.3f}", agreement))
    console.print(table("margin", "escalated", "cost", "agreement", rows=rows, title="cascade"))
    console.print(
        f"{len(pairs)} rows; {chosen.coverage:.1%} of the reads have an answer and a label"
        + (f"; {unpaired} rows are in one file only" if unpaired else "")
        + f". Chosen margin: {chosen.margin:.2f}, the cheapest within {files.tolerance:g} of the best agreement."
    )
    if json is not None:
        write_json(
            json,
            {"rows": len(pairs), "unpaired": unpaired, "chosen": asdict(chosen), "curve": list(map(asdict, curve))},
        )
    if files.plot is not None:
        plot_curve(curve, chosen, files.plot)
