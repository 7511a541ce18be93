"""`fit` and `improve`: better checklists from labels.

- `fit`: item weights from ratings or preferences.
- `improve`: a better checklist, by changes that are tested one by one on held-out rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le

from checklist_rewards.backends import Engine
from checklist_rewards.backends.replies import NoReply
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import Json, brief
from checklist_rewards.cli.output import bars, check_outputs, console, plain_console, table
from checklist_rewards.cli.trust import LABELS, Labelled
from checklist_rewards.cli.work import CHECKLISTS, Work
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.fitting import By, Fit, fit_weights, labelled_scores
from checklist_rewards.evaluation.labels import text_of
from checklist_rewards.evaluation.scored import ScoredFile, ScoredText
from checklist_rewards.evolving.improve import FAULTS, Improvement
from checklist_rewards.evolving.improve import improve as improved
from checklist_rewards.evolving.rewriting import Rewriter
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.rows import SCORE_COLUMN, read_rows
from checklist_rewards.judges.labels import LabelCell, label_in, read_column
from checklist_rewards.keys import prompt_identity
from checklist_rewards.pipelines import WriterConfig
from checklist_rewards.rows import Columns, read_checklist
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.version import __version__

_SHOWN = 40
_QUESTION = 60
CHOSEN, REJECTED = "chosen", "rejected"
_REWRITES = (
    "Model that rewords, splits and adds items. It is also the judge, unless another is named. Defaults to none."
)


class Fitted(o.Options):
    """What weights are fitted to."""

    heading = LABELS

    rows: Annotated[Path, typer.Argument(metavar="SCORED")]
    """A file written by `score` or `run`."""
    output: Annotated[Path, o.OUTPUT_FILE]
    """JSON file of the weights."""
    pairs: Path | None = None
    """Preferences instead of labels: rows with `chosen` and `rejected`, each an id or the text of a scored row."""
    by: By | None = None
    """What has a weight of its own. Defaults to item if most items repeat, else category."""


@brief()
def fit(
    fitting: Fitted,
    labelled: Labelled,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
) -> None:
    r"""Fit the weights of checklist items to ratings or preferences of people.

    Weights shrink to the present ones, as far as cross-validation over groups finds useful, and are never of the other
    sign. All figures are measured on held-out groups. If the labels teach nothing, no file is written, and the message
    has the number of labels that would be needed. Pass the file to `score`, `run`, `replay` and other commands with
    **--weights**, or to a scorer or reward as `weights`. No model is used.

    **Examples**

    ```
    checklist-rewards fit scored.jsonl --label-key human --group-key document -o weights.json
    checklist-rewards fit scored.jsonl --pairs preferred.jsonl --by category -o weights.json
    checklist-rewards score answers.jsonl -o weighted.jsonl --model org/judge --weights weights.json
    ```
    """
    rows, output, pairs, by = fitting.rows, fitting.output, fitting.pairs, fitting.by
    check_outputs(output=output)
    if pairs is None and labelled.labels is None:
        o.no_effect("without --labels or --pairs", "target_key")
    if pairs is not None:
        o.no_effect("with --pairs, which are used instead of labels", "label_key", "labels")
    labels = labelled.as_labels()
    scored = labels.read(rows)
    if pairs is None:
        found = labelled_scores(labels.of(scored)[0], by=by)
    else:
        names = [{row.id, text_of(row.data.get(row.columns.target))} for row in scored]
        found = labelled_scores(scored, by=by, pairs=_pairs(pairs, names, "scored row"))
    with bars() as bar:
        fitted = fit_weights(found, resampling.draws(bar))
    _show(fitted)
    write_json(output, fitted.dumped())
    console.print(f"written: {output}")


def _pairs(path: Path, names: Sequence[set[str]], what: str) -> list[tuple[int, int]]:
    """The places of the chosen and the rejected row of each preference; a row has its id and its text as names."""
    places: dict[str, list[int]] = {}
    for place, of_row in enumerate(names):
        for name in of_row:
            places.setdefault(name, []).append(place)
    found = []
    for pair in read_rows(path):
        of_pair = []
        for name in (CHOSEN, REJECTED):
            if pair.data.get(name) is None:
                columns = ", ".join(map(repr, pair.data))
                raise SampleError(f"{pair.where}: {name!r} is missing; the row has {columns}.")
            value = text_of(pair.data[name])
            if len(places.get(value, ())) != 1:
                count = f"no {what}" if value not in places else f"{len(places[value])} {what}s"
                raise SampleError(
                    f"{pair.where}: {name!r} is {value!r:.60}, which is the id or text of {count}; it must name one."
                )
            of_pair += places[value]
        found.append((of_pair[0], of_pair[1]))
    return found


def _show(fitted: Fit) -> None:
    out = plain_console()
    what = "labels" if fitted.measure == "correlation" else "pairs"
    title = f"weights by {fitted.by}, {fitted.labels} {what} in {fitted.groups} groups"
    rows = []
    for line in sorted(fitted.weights, key=lambda line: -line.adds)[:_SHOWN]:
        interval = "" if line.low is None else f"{line.low:.2f} to {line.high:.2f}"
        numbers = (f"{line.before:.2f}", f"{line.weight:.2f}", interval, f"{line.adds:+.3f}", str(line.texts))
        rows.append((line.question[:_QUESTION], *numbers))
    out.print(table(fitted.by, "before", "weight", "95 % interval", "adds", "texts", rows=rows, title=title))
    if len(fitted.weights) > _SHOWN:
        out.print(f"{len(fitted.weights) - _SHOWN} more are in the file.")
    names = {"present": "present weights", "fitted": "fitted weights", "gain": "gain", "train": "fitted, in training"}
    figures = ((shown, fitted.figures[name].shown()) for name, shown in names.items())
    out.print(table(fitted.measure, "on held-out groups", rows=figures))
    gain = fitted.figures["gain"]
    if gain.refused is not None:
        console.print(f"The gain is not shown: it has no interval ({gain.refused}).", style="yellow")
    elif gain.low is not None and gain.low <= 0:
        more = "" if fitted.needed is None else f" About {fitted.needed:,} {what} would be needed to show it."
        console.print(f"The gain is not shown: its interval includes 0.{more}", style="yellow")


class Improved(o.Options):
    """What a checklist is improved on, and how."""

    heading = LABELS
    parts = (o.Part(WriterConfig, o.OF_WRITER, o.WRITER, only=("model",), helps={"model": _REWRITES}),)

    checklist: Annotated[Path, typer.Argument(metavar="CHECKLIST")]
    """JSON file with the checklist of all rows."""
    data: Path
    """Labelled texts: a file written by `score`, or with a judge any rows."""
    output: Annotated[Path, o.OUTPUT_FILE]
    """JSON file of the new checklist."""
    label_key: str = "label"
    """Column of the labels: a number per text, higher is better."""
    group_key: str | None = None
    """Column of groups of dependent rows. All rows of a group choose, confirm or test. Defaults to the input."""
    pairs: Path | None = None
    """Preferences instead of labels: rows with `chosen` and `rejected`, each an id or the text of a row of --data."""
    tolerance: Annotated[float, Ge(0), Le(0.99)] = 0.0
    """Also drop or merge items if the correlation falls by less than this."""
    patience: Annotated[int, Ge(1)] = 3
    """Refused changes in a row after which a stage ends."""
    max_reads: Annotated[Annotated[int, Ge(1)] | None, typer.Option(rich_help_panel=o.OUTPUT)] = None
    """Most reads of new items. Defaults to no limit."""


@brief("judge", "json")
def improve(
    how: Improved,
    judge: o.JudgeOptions,
    keys: o.Keys,
    target_key: o.TargetKey = None,
    json: Json = None,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Improve a checklist on labelled rows: change items, and keep what raises the agreement on other rows.

    Weak items are dropped, merged, turned (the sign of the weight), reworded, split and reweighted, and new items are
    added. A third of the groups chooses changes, a third confirms each of them, and a third measures the result. A
    change is kept if the correlation of scores and labels rises on the confirming rows, or with **--pairs** the
    fraction of pairs in order, at a level that counts all tries.

    Without a model, the stored answers of a scored file are used and nothing is read. With **--writer.model**, this
    model writes wordings and new items, and reads them unless **--model** or **--judge** is another judge. Rerun to
    resume: stored answers and replies are free. Exit code 1 if the judge left reads unanswered, or if the writer did
    not reply.

    **Examples**

    ```
    checklist-rewards improve checklist.json --data scored.jsonl --label-key human -o better.json
    checklist-rewards improve checklist.json --data labelled.jsonl -o better.json --writer.model org/writer
    ```
    """
    data, output, pairs, writer = how.data, how.output, how.pairs, how.given.get("writer.model")
    check_outputs(output=output, json=json)
    if writer is not None and not judge.asks:
        judge = judge.named(writer)
    if pairs is not None:
        o.no_effect("with --pairs, which are used instead of labels", "label_key")
    if not judge.asks:
        o.no_effect("on stored answers; set --model to ask a judge", o.JudgeOptions, o.StoreOptions, "max_reads")
    shared = read_checklist(how.checklist)
    work = Work.of(o.Preset(), store_options, judge=judge) if judge.asks else None
    label = None if pairs is not None else how.label_key
    rows, names = _labelled_rows(data, label, how.group_key, work is None, keys, target_key, shared)
    rewriter: Rewriter | None = None
    scorer: ChecklistScorer | None = None
    if work is not None:
        scorer = work.scorer
        for row in rows:
            scorer.check_sample(row.to_judge, row.where)
        scorer.validate()
        if writer is not None:
            engine = Engine(writer, *_place(judge.engine), judge.engine.settings)
            rewriter = Rewriter(work.engine(CHECKLISTS, engine), store=False if work.store is None else work.store)
    with bars() as bar:
        found = improved(
            shared,
            rows,
            pairs=None if pairs is None else _pairs(pairs, names, "row of --data"),
            scorer=scorer,
            writer=rewriter,
            tolerance=how.tolerance,
            patience=how.patience,
            max_reads=how.max_reads,
            bootstrap=resampling.draws(),
            progress=None if work is None else bar("reads", None),
        )
    _show_improvement(found)
    write_json(
        output,
        {
            "items": [item.model_dump(mode="json", exclude_defaults=True) for item in found.checklist.items],
            "source": "+".join(filter(None, (shared.source, f"improve/{__version__}"))),
        },
    )
    if json is not None:
        write_json(json, found.dumped())
    console.print(f"written: {output}")
    unanswered = 0 if scorer is None else scorer.receipt.unanswered
    if unanswered:
        console.print(
            f"The judge left {unanswered:,} reads unanswered; a rerun asks again for those that may succeed."
        )
    failures = [] if rewriter is None else rewriter.failures
    for reason, count in Counter(map(str, failures)).items():
        console.print(f"{count} requests to the writer proposed nothing: {reason}")
    raise typer.Exit(1 if unanswered or any(isinstance(error, NoReply) for error in failures) else 0)


def _place(judge: Engine) -> tuple[Any, str | None]:
    """Backend and URL of the writer: those of the judge if it is on a server, else any."""
    return ("auto" if judge.base_url is None else judge.backend, judge.base_url)


def _labelled_rows(
    path: Path,
    label_key: str | None,
    group_key: str | None,
    stored: bool,
    keys: o.Keys,
    target_key: str | None,
    shared: Checklist,
) -> tuple[list[ScoredText], list[set[str]]]:
    """The rows that have a label, which is a number or yes or no, and their ids and texts; all rows for
    preferences. Raises [`SampleError`]."""
    found: list[ScoredText] = []
    names: list[set[str]] = []
    file = ScoredFile(path, **keys.columns(target=target_key, shared=shared), unscored=True)
    rows = list(file)
    cells = () if label_key is None else [LabelCell(r.where, label_in(r.data, label_key, r.where)) for r in rows]
    labels = iter(read_column(cells, label_key or ""))
    for row in rows:
        for key, option_name in ((label_key, "--label-key"), (group_key, "--group-key")):
            if key is not None:
                Columns.get(row.data, key, option_name, row.where)
        label = 0.0 if label_key is None else next(labels)
        if label is None:
            continue
        assert isinstance(label, float)  # cells without items
        if stored and SCORE_COLUMN not in row.data:
            raise SampleError(
                f"{row.where}: column {SCORE_COLUMN!r} not found; score the rows first, or name a judge with --model."
            )
        sample = row.columns.sample_of(row.data, row.where, shared)
        asked = prompt_identity((sample.input or row.where, sample.history), row.prompt_images)
        group = str(asked if group_key is None else row.data[group_key])
        score = row.score if stored else None
        found.append(replace(row, id=row.where, score=score, group=group, labels=label, sample=sample))
        names.append({text_of(row.data.get(file.columns.target)), *([row.id] if row.has_id else [])})
    if not found:
        raise SampleError(f"{path}: no row has a label in column {label_key!r}.")
    return found, names


def _show_improvement(found: Improvement) -> None:
    out = plain_console()
    if found.findings:
        rows = ((line.item.question[:_QUESTION], line.fault, line.detail) for line in found.findings[:_SHOWN])
        out.print(table("item", "fault", "found", rows=rows, title="weak items"))
        for fault in dict.fromkeys(line.fault for line in found.findings):
            out.print(f"{fault}: {FAULTS[fault]}")
    out.print(found.diff())
