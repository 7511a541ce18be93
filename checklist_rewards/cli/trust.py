"""`probe`, `agree` and `calibrate`: whether a judge can be trusted.

- `agree`: agreement of judges with labels, and with each other.
- `calibrate`: fit calibration maps for a judge's probabilities on labelled reads.
- `probe`: test whether a model can be used as a judge.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from checklist_rewards.backends.models import NO_MODEL, UNNAMED
from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import Json, brief, grouped
from checklist_rewards.cli.output import bars, check_outputs, console, decimal, plain_console, refuse, table
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import (
    Comparison,
    ItemAgreement,
    PairedTest,
    Section,
    Target,
    Unit,
    by_item,
    check_plots,
    compare,
    compare_judges,
    compare_raters,
    plot_reliability,
    units_against_labels,
    units_of_judges,
    verdict,
)
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.calibration import (
    KindReport,
    ThresholdChoice,
    ThresholdRule,
    fit_calibration,
    labelled_reads,
)
from checklist_rewards.evaluation.labels import Labels, other_texts, pairs_of
from checklist_rewards.evaluation.measures import AGAINST_LABELS, CATEGORICAL
from checklist_rewards.evaluation.rates import Rate, corrected_rates, win_rate
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.files.atomic import write_json
from checklist_rewards.judges import Ask
from checklist_rewards.judges.calibration import EMPTY, CalibrationMap, CalibrationMethod
from checklist_rewards.judges.probe import ProbeLine, ProbeReport
from checklist_rewards.judges.probe import probe as ask
from checklist_rewards.rows import Columns, read_checklist
from checklist_rewards.scores import Verdict

LABELS = "Labels and groups"


class Labelled(o.Options):
    """Options for the columns of labels, row ids and groups."""

    heading = LABELS
    shown = ("label_key", "labels", "id_key", "group_key")

    label_key: str | None = None
    """Column of the labels: a list with one label per item, a mapping by item id, or a number per row. Defaults to
    labels."""
    labels: Path | None = None
    """Separate file with the labels. Defaults to the scored file."""
    id_key: str | None = None
    """Column of row ids, to match rows across files. Defaults to id, else row number."""
    group_key: str | None = None
    """Column of groups of dependent rows, such as the document. A group is resampled and held out as one. Defaults to
    each row on its own."""
    target_key: str | None = None
    """Column of the judged text, which rows and labels of two files must share. Defaults to target, else
    completion."""
    checklist: Path | None = None
    """JSON file with a checklist to use for all rows."""
    checklist_key: str | None = None
    """Column of the checklist: a list of questions, or of items with weights. Defaults to checklist."""

    @property
    def named(self) -> bool:
        """Whether the user set an option for labels."""
        return self.label_key is not None or self.labels is not None

    def as_labels(self) -> Labels:
        """The labels that the options describe. Raises a [`ChecklistError`] for an unusable checklist."""
        return Labels(
            path=self.labels,
            key=self.label_key or Labels.key,
            id_key=self.id_key,
            group_key=self.group_key,
            target_key=self.target_key,
            checklist_key=self.checklist_key,
            shared=None if self.checklist is None else read_checklist(self.checklist),
        )


_SHOWN_RATES = _SHOWN_ITEMS = 20
_ORDER = (
    *CATEGORICAL,
    *AGAINST_LABELS,
    *("auc", "rmse", "mae", "bias", "pearson", "spearman", "kendall", "emd", "ks"),
)


class Agreed(o.Options):
    """The scorings whose agreement is measured."""

    heading = LABELS

    files: Annotated[list[Path], typer.Argument(metavar="SCORED...")]
    """Files written by `score` or `run`, one per judge."""
    label_range: Annotated[str, typer.Option(metavar="LOW,HIGH")] = "0,1"
    """Range of numeric row labels, worst to best."""
    input_key: str | None = None
    """Column of the input. Every two rows with the same value are compared as a preference pair."""


@grouped()
def agree(
    agreed: Agreed,
    labelled: Labelled,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
    json: Json = None,
) -> None:
    r"""Measure the agreement of judges with labels, or with each other, with confidence intervals.

    With labels (**--label-key**, **--labels**, or a single file with a column `labels`), each file is compared with
    the labels, and every two files are tested against each other (McNemar test and group permutation test). Without
    labels, every two files are compared, which must have the same texts.
    Unanswered items count only in the coverage. Figures of items are over the answers of judges. Answers of code
    checks are counted apart; scores of targets include them. Confidence intervals are 95 % bootstrap intervals that
    resample groups (**--group-key**), or rows.

    If only some of the rows have labels, the rates of all rows are corrected by them (prediction-powered inference).
    The labelled rows must be a random sample, or have the column `label_probability` of the app's order "sample";
    otherwise the rates are not corrected, with the reason. Labels in two files with different texts of the same ids
    also give the rate of wins of the first file over the second.

    **Examples**

    ```
    checklist-rewards agree scored.jsonl --label-key human --group-key document
    checklist-rewards agree one.jsonl other.jsonl --labels gold.jsonl --json agreement.json
    checklist-rewards agree candidates_scored.jsonl --label-key stars --label-range 1,5 --input-key prompt_id
    ```
    """
    files, input_key = agreed.files, agreed.input_key
    check_outputs(json=json)
    if len(files) > 1 and not labelled.named:
        o.no_effect("without --labels or --label-key", "label_range")
    if len(files) == 1 and labelled.labels is None:
        o.no_effect("without --labels", "target_key")
    increasing = "two increasing numbers, worst and best, such as 1,5"
    low, high = scale = _two("--label-range", agreed.label_range, increasing)
    if not low < high < float("inf"):
        raise SampleError(f"--label-range {agreed.label_range!r}: expected {increasing}.")
    labels = replace(labelled.as_labels(), any_scale=scale != (0, 1))
    scored = {str(path): labels.read(path) for path in files}
    alone = scored[str(files[0])] if len(files) < 2 else []
    against_labels = labelled.named or any(labels.key in row.data for row in alone)
    if alone and not against_labels:
        raise SampleError(
            f"{files[0]} is the only file and has no labels to compare with (no column {labels.key!r}); set "
            "--label-key or --labels, or add another scored file."
        )
    if len(scored) < len(files):
        raise SampleError(f"each scored file may be given only once, got {', '.join(map(str, files))}.")
    tests: list[PairedTest] = []
    rates: dict[str, list[Rate]] = {}
    apart: list[tuple[str, str]] = []  # files with different texts
    with bars() as bar:
        intervals = resampling.draws(bar)
        if against_labels:
            found = {name: labels.of(texts) for name, texts in scored.items()}
            scored = {name: texts for name, (texts, _) in found.items()}
            compared = [
                _with_labels((name, labels.key), texts, unmatched, scale, input_key, intervals)
                for name, (texts, unmatched) in found.items()
            ]
            rates |= {name: some for name, texts in scored.items() if (some := _rates(texts, *scale))}
            for (one, rows), (other, others) in combinations(scored.items(), 2):
                if other_texts(rows, others) is None:
                    continue
                if labels.path is not None:
                    pairs_of(rows, others, (one, other))  # raises: a label is of one text
                apart.append((one, other))
                rates.setdefault(one, []).append(win_rate(rows, others, (one, other)))
            tests = [
                compare_judges((one.one, other.one), units, others, intervals)
                for (one, units), (other, others) in combinations(compared, 2)
                if (one.one, other.one) not in apart
            ]
        else:
            compared = [
                _with_each_other(one, other, input_key, intervals) for one, other in combinations(scored.items(), 2)
            ]
        raters = compare_raters(list(scored.values()), intervals) if len(scored) > 1 and not apart else {}
    _show(compared, tests, raters, len(scored))
    for name, of_file in rates.items():
        _show_rates(name, of_file)
    if json is not None:
        write_json(
            json,
            {
                "bootstrap": {
                    "resamples": resampling.bootstrap,
                    "seed": resampling.seed,
                    "groups": labelled.group_key or "rows",
                },
                "comparisons": [comparison.model_dump() for comparison, _ in compared],
                "tests": [test.model_dump() for test in tests],
                "judges_among_each_other": {kind: section.model_dump() for kind, section in raters.items()},
                "rates": {name: [rate.model_dump() for rate in of_file] for name, of_file in rates.items()},
            },
        )


def _with_labels(
    names: tuple[str, str],
    texts: Sequence[ScoredText],
    unmatched: int,
    scale: tuple[float, float],
    input_key: str | None,
    intervals: Bootstrap,
) -> tuple[Comparison, list[Unit]]:
    units, targets = units_against_labels(texts)
    targets = [_scaled(target, texts, *scale) for target in targets]
    inputs = _inputs(texts, targets, input_key)
    compared = compare(names, units, targets, intervals, against_labels=True, inputs=inputs, unmatched_rows=unmatched)
    return compared, units


def _rates(texts: Sequence[ScoredText], low: float, high: float) -> list[Rate]:
    return corrected_rates(
        [
            replace(text, labels=(text.labels - low) / (high - low)) if isinstance(text.labels, int | float) else text
            for text in texts
        ]
    )


def _show_rates(name: str, rates: Sequence[Rate]) -> None:
    rows = (
        (r.name, *map(str, (r.judged_units, r.judged, r.labelled_units, r.labelled, r.corrected)))
        for r in rates[:_SHOWN_RATES]
    )
    heads = ("rate", "judged", "by the judge", "labelled", "by labels", "corrected")
    plain_console().print(table(*heads, rows=rows, title=f"rates of {name}"))
    for rate in rates:
        if rate.refused is not None:
            console.print(f"{rate.name}: not corrected, {rate.refused}.", style="yellow")


def _with_each_other(
    one: tuple[str, Sequence[ScoredText]],
    other: tuple[str, Sequence[ScoredText]],
    input_key: str | None,
    intervals: Bootstrap,
) -> tuple[Comparison, list[Unit]]:
    names = one[0], other[0]
    pairs, rows = pairs_of(one[1], other[1], names)
    units, targets, items = units_of_judges(pairs)
    inputs = _inputs(one[1], targets, input_key)
    found = compare(
        *(names, units, targets, intervals),
        against_labels=False,
        inputs=inputs,
        unmatched_rows=rows,
        unmatched_items=items,
    )
    return found, units


def _two(option: str, text: str, expected: str) -> tuple[float, float]:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise SampleError(f"{option} {text!r}: expected {expected}.") from None
    return first, second


def _scaled(target: Target, rows: Sequence[ScoredText], low: float, high: float) -> Target:
    """The target with its numeric label rescaled from [low, high] to [0, 1]."""
    if not target.given or target.other is None:
        return target
    if not low <= target.other <= high:
        where = next(row.where for row in rows if row.id == target.key)
        raise SampleError(
            f"{where}: label {target.other:g} is outside the range {low:g} to {high:g}; set --label-range to the "
            "worst and the best label."
        )
    return replace(target, other=(target.other - low) / (high - low))


def _inputs(rows: Sequence[ScoredText], targets: Sequence[Target], key: str | None) -> list[str] | None:
    if key is None:
        return None
    inputs = {row.id: str(Columns.get(row.data, key, "--input-key", row.where)) for row in rows}
    return [inputs[target.key] for target in targets]


def _show(
    compared: Sequence[tuple[Comparison, Sequence[Unit]]],
    tests: Sequence[PairedTest],
    raters: Mapping[str, Section],
    judges: int,
) -> None:
    console = plain_console()
    for comparison, _ in compared:
        if (sentence := verdict(comparison)) is not None:
            console.print(sentence)
    for comparison, units in compared:
        console.print(f"{comparison.one} and {comparison.other}: {_coverage(comparison)}")
        console.print(_comparison(comparison))
        for kind, section in comparison.items.items():
            if section.confusion is not None and section.units:
                console.print(f"{kind}: rows are {comparison.one}, columns are {comparison.other}")
                console.print(_confusion(section))
        if lines := by_item(units):
            console.print(_by_item(comparison, lines))
    if raters and judges > 2:
        console.print(f"Agreement among all {judges} judges:")
        rows = ((kind, str(section.units), *map(str, section.figures.values())) for kind, section in raters.items())
        console.print(table("items", "units", "alpha", "interval alpha", "Fleiss' kappa", rows=rows))
    for test in tests:
        console.print(f"{test.one} against {test.other}:")
        console.print(_test(test))


def _comparison(comparison: Comparison) -> Table:
    sections = {**comparison.items, "targets": comparison.targets, "preferences": comparison.preferences}
    shown = {name: section for name, section in sections.items() if section is not None and section.units}
    reasons = Counter(
        figure.refused for section in shown.values() for figure in section.figures.values() if figure.value is not None
    )
    once = max(reasons, key=reasons.__getitem__) if reasons and None not in reasons else None
    rows = [("units", *(str(section.units) for section in shown.values()))]
    names = dict.fromkeys(name for section in shown.values() for name in section.figures)
    for name in sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        figures = [section.figures.get(name) for section in shown.values()]
        if any(figure is not None and figure.value is not None for figure in figures):
            cells = ["" if figure is None else str(figure) for figure in figures]
            rows.append((name, *(cell.removesuffix(f" ({once})") for cell in cells)))
    return table(Column("", no_wrap=True), *shown, rows=rows, title=f"no intervals: {once}" if once else None)


def _by_item(comparison: Comparison, lines: Sequence[ItemAgreement]) -> Table:
    rows = (
        (line.question, str(line.answered), f"{line.equal:.0%}", decimal(line.one), decimal(line.other))
        for line in lines[:_SHOWN_ITEMS]
    )
    heads = ("question", "answers", "equal", comparison.one, comparison.other)
    shown = f"the {_SHOWN_ITEMS} questions of {len(lines)} with the lowest agreement, and the mean answers"
    return table(*heads, rows=rows, title=shown if len(lines) > _SHOWN_ITEMS else "by question, with the mean answers")


def _coverage(comparison: Comparison) -> str:
    parts = [f"coverage {comparison.coverage} of {comparison.units} items"]
    for what, count in (("rows", comparison.unmatched_rows), ("items", comparison.unmatched_items)):
        if count:
            parts.append(f"{count} {what} in one file only")
    if comparison.code_checks:
        equal = f"{comparison.code_checks_equal} of {comparison.code_checks} agree"
        parts.append(f"code checks: {equal} (they count in target scores only)")
    return "; ".join(parts)


def _confusion(section: Section) -> Table:
    assert section.labels is not None and section.confusion is not None
    rows = ((label, *map(str, row)) for label, row in zip(section.labels, section.confusion, strict=True))
    return table("", *section.labels, rows=rows)


def _test(test: PairedTest) -> Table:
    rows = (
        ("items answered by both", str(test.units)),
        ("correct only in the first, only in the second", f"{test.only_one_right}, {test.only_other_right}"),
        ("difference in accuracy", decimal(test.accuracy_difference)),
        ("p, McNemar (each item a group of its own)", decimal(test.mcnemar_p)),
        ("p, permutation of groups", decimal(test.permutation_p)),
    )
    return table(rows=rows, header=False)


class Fitting(o.Options):
    """What is calibrated, and how."""

    heading = "Calibration"

    rows: Annotated[Path, typer.Argument(metavar="SCORED")]
    """A file written by `score` or `run`."""
    output: Annotated[Path, o.OUTPUT_FILE]
    """JSON file to write the calibration to."""
    method: CalibrationMethod | None = None
    """Calibration method for yes/no items. Items with options always use temperature. Defaults to the lowest Brier
    score on held-out groups."""
    fit_threshold: ThresholdRule | None = None
    """Also fit a yes/no threshold: highest F1, or lowest cost."""
    costs: Annotated[str, typer.Option(metavar="YES,NO")] = "1,1"
    """For --fit-threshold cost: the cost of a wrong yes and of a wrong no."""
    contextual: bool = False
    """Subtract the bias of --model, measured by its answers about an empty target."""
    plots: Annotated[Path | None, typer.Option(rich_help_panel=o.OUTPUT)] = None
    """Folder to write plots to."""


@brief("json", "plots")
def calibrate(
    fitting: Fitting,
    labelled: Labelled,
    keys: o.Keys,
    judge: o.JudgeOptions,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
    json: Json = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Calibrate a judge on labelled reads, with its error on held-out groups before and after.

    Pass the result to `score`, `run` and other commands with **--calibration**, or to a scorer as `calibration`. The
    reported Brier score, calibration error (ECE), accuracy and F1 are cross-validated over groups; the saved
    calibration is fitted on all reads.

    **Examples**

    ```
    checklist-rewards calibrate scored.jsonl --label-key human --group-key document -o map.json --plots plots
    checklist-rewards calibrate scored.jsonl --label-key human -o map.json --fit-threshold cost --costs 5,1
    checklist-rewards score answers.jsonl -o calibrated.jsonl --model org/judge --calibration map.json
    ```
    """
    rows, output, fit_threshold, plots = fitting.rows, fitting.output, fitting.fit_threshold, fitting.plots
    check_outputs(folders={"--plots": plots}, output=output, json=json)
    check_plots(plots)
    if fit_threshold != "cost":
        o.no_effect("without --fit-threshold cost", "costs")
    if labelled.labels is None:
        o.no_effect("without --labels", "target_key")
    if not fitting.contextual:
        o.no_effect("without --contextual, which needs the judge", o.JudgeOptions, o.Keys, o.StoreOptions)
    costs = _two("--costs", fitting.costs, "two numbers, the cost of a wrong yes and of a wrong no, such as 5,1")
    threshold = None if fit_threshold is None else ThresholdChoice(fit_threshold, *costs)
    labels = labelled.as_labels()
    scored = labels.read(rows)
    texts, _ = labels.of(scored)
    reads = labelled_reads(texts)  # raises for unusable labels before the judge is called
    if fitting.contextual:
        empty = _empty_targets(scored, reads.judge, keys, judge, store_options)
        reads = labelled_reads(texts, empty)
    with bars() as bar:
        intervals = resampling.draws(bar)
        calibration, reports = fit_calibration(reads, method=fitting.method, threshold=threshold, bootstrap=intervals)
    calibration.save(output)
    stdout = plain_console()
    for report in reports:
        about = f"{report.kind} items: {report.reads} reads, {report.groups} groups, held out"
        stdout.print(f"{calibration.judge}, {about}")
        stdout.print(_table(report))
        stdout.print(f"saved: {report.method}, {_parameters(calibration.maps[report.kind])}")
        if not report.helped:
            console.print(
                f"On held-out groups the {report.method} map of {report.kind} items does not lower the Brier score; "
                "consider using the judge without calibration.",
                style="yellow",
            )
    if reads.left_out:
        stdout.print(f"{reads.left_out} labelled items without probabilities were skipped.")
    stdout.print(f"written: {output}")
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for report in reports:
            name = re.sub(r"\W+", "_", report.kind)
            curves = {"before": report.confidences["before"], report.method: report.confidences[report.method]}
            plot_reliability(plots / f"reliability_{name}.png", curves, f"{report.kind} items, held out")
    if json is not None:
        record = calibration.model_dump(include={"judge", "read_by", "contextual"})
        kinds = {report.kind: report.dumped for report in reports}
        write_json(json, {**record, "left_out": reads.left_out, "kinds": kinds})


def _empty_targets(
    rows: Sequence[ScoredText],
    name: str,
    keys: o.Keys,
    judge: o.JudgeOptions,
    store_options: o.StoreOptions,
) -> dict[tuple[str, str], Verdict]:
    """The judge's verdict on every item for an empty target."""
    scorer = Work.of(o.Preset(), store_options, judge=judge).scorer
    if scorer.judge.name == UNNAMED:
        raise SampleError(NO_MODEL)
    if scorer.judge.name != name:
        raise SampleError(
            f"the file was scored by {name!r} but --model is {scorer.judge.name!r}; --contextual requires the same "
            "judge."
        )
    columns = replace(Columns.of(rows[0].data, **keys.columns()), folder=rows[0].columns.folder)
    reads, places, held = [], [], []
    for number, row in enumerate(rows):
        input, history, images = columns.context_of(row.data, row.where)
        held.append(images)  # in memory until the judge has answered
        scorer.check_images(None, row.where, input=input, history=history)
        reference = columns.reference_of(row.data, row.where)
        for key, item in zip(row.keys, row.items, strict=True):
            if item.check is None:
                scorer.judge.check_item(item, row.where)
                reads.append(Ask(item, EMPTY, input, reference, history, number))
                places.append((row.id, key))
    scorer.validate()
    with bars() as bar:
        verdicts, _ = scorer.judge.answer(reads, bar("empty targets", len(reads)))
    return dict(zip(places, verdicts, strict=True))


def _table(report: KindReport) -> Table:
    columns = {"before": report.before, **report.after}
    names = dict.fromkeys(name for figures in columns.values() for name in figures)
    rows = ((name, *(f[name].shown(4) if name in f else "" for f in columns.values())) for name in names)
    return table("", *columns, rows=rows)


def _parameters(fitted: CalibrationMap) -> str:
    named = {name: getattr(fitted, name) for name in ("temperature", "slope", "intercept", "threshold")}
    shown = [f"{name} {value:.4g}" for name, value in named.items() if value is not None]
    return ", ".join(shown if fitted.knots is None else [f"{len(fitted.knots)} knots", *shown])


_HIDDEN = "unknown: the model is on a server"
_NO_PROMPT = "not applicable: an encoder has no prompt"


@brief("judge.prompt", "json")
def probe(judge: o.JudgeModel, json: Json = None) -> None:
    """Test a judge on twelve obvious questions, and reject a model that cannot tell yes from no.

    Reports the separation of yes and no items, the probability mass of the labels at the next token, the tokens read
    as yes and no, the position of the label in the model's own replies, and the end of the prompt (an open thinking
    block makes every read useless). An encoder has no prompt and writes no text, so only its answers are
    reported. Answers are not stored. Exit code 1 if the judge is rejected.

    **Examples**

    ```
    checklist-rewards probe --model org/judge
    checklist-rewards probe --model org/judge --base-url http://localhost:8000/v1
    ```
    """
    check_outputs(json=json)
    given = judge.settings_of(o.OF_JUDGE)
    report = ask(judge.engine, **{name: given[name] for name in ("prompt", "mass_floor") if name in given})
    out = plain_console()
    out.print(_items(report))
    out.print(_facts(report))
    if json is not None:
        numbers = ("accuracy", "yes_mean", "no_mean", "margin", "mass", "answered", "label_first", "advice", "refusal")
        write_json(json, {**{name: getattr(report, name) for name in numbers}, **asdict(report)})
    if report.refusal is not None:
        refuse(report.refusal)
        raise typer.Exit(1)


def _items(report: ProbeReport) -> Table:
    rows = (
        (
            line.item.question,
            "yes" if line.item.holds else "no",
            _answer(line) if line.unanswered is None else line.unanswered,
            decimal(line.mass, ".3f"),
            "none" if report.encoder else repr((line.opening or "")[:24]),
        )
        for line in report.lines
    )
    return table("question", "truth", "P(yes)", "mass", "its reply", rows=rows)


def _facts(report: ProbeReport) -> Table:
    hidden = _NO_PROMPT if report.encoder else _HIDDEN
    forms = hidden
    if report.labels is not None:
        forms = "; ".join(f"{label}: {' '.join(map(repr, tokens))}" for label, tokens in report.labels.items())
    first = f"first word in {report.label_first} of {len(report.lines)}"
    if all(line.opening is None for line in report.lines):
        first = "not applicable: an encoder writes no text" if report.encoder else "none: it writes no text"
    others = sorted({line.label_at for line in report.lines if line.label_at is not None and line.label_at > 1})
    rows = (
        ("accuracy", f"{report.accuracy:.2f} at threshold {report.threshold}"),
        ("mean P(yes), yes items", decimal(report.yes_mean, ".3f")),
        ("mean P(yes), no items", decimal(report.no_mean, ".3f")),
        ("margin", f"{decimal(report.margin, '.3f')}, at least {report.least_margin} required"),
        ("mean mass", decimal(report.mass, ".3f")),
        *((("read as words", f"{report.words} of {len(report.lines)}: no log-probabilities"),) * (report.words > 0)),
        ("tokens read", forms),
        ("label in its own replies", first + (f"; also as word {', '.join(map(str, others))}" if others else "")),
        ("end of the prompt", hidden if report.tail is None else repr(report.tail)),
        ("thinking block at the end", report.thinking or hidden),
        *((("replies without text", report.advice),) if report.advice is not None else ()),
        ("verdict", "rejected" if report.refusal is not None else "usable as a judge"),
    )
    return table(rows=rows, header=False)


def _answer(line: ProbeLine) -> str:
    return f"{line.answer} (word)" if line.p_yes is None and line.answer is not None else decimal(line.p_yes, ".3f")
