"""`attack`: how much a judge rewards texts that should not be rewarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from annotated_types import Ge, Le
from rich.table import Table

from checklist_rewards.attacks.attack import DEFAULT_PROMPTS, DEFAULT_READS, FEWEST_PROMPTS, REASONS, default_rows
from checklist_rewards.attacks.attack import attack as attack_judge
from checklist_rewards.attacks.report import AttackComparison, AttackReport, Fallen
from checklist_rewards.cli import options as o
from checklist_rewards.cli.forecast import quiet, show
from checklist_rewards.cli.options import brief
from checklist_rewards.cli.output import bars, cause, check_outputs, console, decimal, plain_console, table
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.rows import file_format, write_rows
from checklist_rewards.images import shown
from checklist_rewards.rerank import Pool
from checklist_rewards.rows import Columns, read_checklist
from checklist_rewards.scorer import ChecklistScorer

_ATTACK = "Attack"
_SHOWN = 20
_NOTE = (
    "The search chooses texts by the answers, so its tokens are those of one possible run; its reads are at most {:,}."
)


class Attacked(o.Options):
    """What is attacked, and how far."""

    heading = _ATTACK

    output: Annotated[Path, o.OUTPUT_FILE]
    """JSON file to write to."""
    rows: Annotated[Path | None, typer.Argument(metavar="CHECKLISTS")] = None
    """Prompts with their checklists, as for `score`. Defaults to 50 packaged prompts."""
    labels: Annotated[Path | None, typer.Option(rich_help_panel=o.OUTPUT)] = None
    """Write the successful attacks on the searched prompts to this file (.jsonl, .csv or .parquet), labelled no, for
    `distill`, `calibrate` and `--judge.examples`."""
    responses: Path | None = None
    """File with honest responses to these prompts, as for `score`. It may be CHECKLISTS itself. The packaged prompts
    have one each. Defaults to none."""
    budget_reads: Annotated[int, Ge(1)] = DEFAULT_READS
    """Most reads, including those from the store."""
    prompts: Annotated[int, Ge(FEWEST_PROMPTS)] = DEFAULT_PROMPTS
    """Most prompts to use: half for the search, half for the figures."""
    max_rise: Annotated[float, Ge(0), Le(1)] | None = None
    """Exit with code 1 if the attack chosen by the search raises scores by at least this much. Defaults to no
    limit."""
    max_beats: Annotated[float, Ge(0), Le(1)] | None = None
    """Exit with code 1 if that attack beats at least this share of the honest responses. Defaults to no limit."""


@brief("judge", "checklist")
def attack(
    attacked: Attacked,
    keys: o.Keys,
    judge: o.JudgeOptions,
    checklist: o.ChecklistFile = None,
    target_key: o.TargetKey = None,
    checklist_key: o.ChecklistKey = None,
    concurrency: o.Concurrency = None,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008 - frozen
    dry: o.Dry = o.Dry(),  # noqa: B008
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008
) -> None:
    r"""Attack a judge: how much it rewards texts that should not be rewarded.

    Bad responses (empty, a response to another prompt, the prompt itself, a response without the words of an item) are
    attacked with a bank of known attacks, and with combinations found by a search on half of the prompts. The table
    shows, for the other half, how much each attack raises the score, with a 95 % interval over prompts, and how often
    the attacked response beats an honest one (**--responses**).

    Answers are stored, so a rerun with the same options asks only for what is missing. Exit code 1 if the judge left
    reads unanswered, or from **--max-rise** or **--max-beats** on.

    **Examples**

    ```
    checklist-rewards attack -o attack.json --model org/judge
    checklist-rewards attack checklists.jsonl -o attack.json --model org/judge --responses answers.jsonl
    checklist-rewards attack checklists.jsonl -o attack.json --model org/judge --labels attacks.jsonl
    checklist-rewards attack checklists.jsonl -o attack.json --model org/judge --max-rise 0.2 --max-beats 0.5
    checklist-rewards attack checklists.jsonl -o attack.json --model org/judge --budget-reads 10000 --dry-run
    ```
    """
    rows, responses, labels = attacked.rows, attacked.responses, attacked.labels
    check_outputs(output=attacked.output, labels=labels)
    if labels is not None:
        file_format(labels)
    if responses is None:
        o.no_effect("without --responses", "target_key")
    if rows is None:
        unused = o.Keys if responses is None else "checklist_key"
        o.no_effect(
            "on the packaged prompts; set CHECKLISTS, a file with prompts", unused, "checklist_key", "checklist"
        )
    shared = None if checklist is None else read_checklist(checklist)
    work = Work.of(o.Preset(), store_options, judge=judge, concurrency=concurrency, dry=dry, may_need_no_store=True)
    scorer = work.scorer
    found = default_rows() if rows is None else _rows(rows, keys, checklist_key, shared, scorer)
    if responses is not None:
        found = _with_responses(found, "the packaged prompts" if rows is None else rows, responses, keys, target_key)
    if attacked.max_beats is not None and not any(row.candidates for row in found):
        raise SampleError("--max-beats compares with honest responses; set --responses, a file with some.")
    run = partial(
        attack_judge, scorer, found, prompts=attacked.prompts, budget_reads=attacked.budget_reads, seed=resampling.seed
    )
    if dry.dry_run:
        with quiet():
            report = run(bootstrap=Bootstrap(0))
        show(report.prompts, work.lines, work.prices, [_NOTE.format(attacked.budget_reads)])
        return
    for pool in found:
        scorer.prepared(pool.checklist)
    work.check_judge(any(scorer.asks(row.checklist) for row in found), rows or "the packaged prompts")
    with bars() as bar:
        draws = resampling.draws(bar)
        report = run(bootstrap=draws, progress=bar("reads", None))
    write_json(attacked.output, report.model_dump())
    if labels is not None:
        with write_rows(labels) as file:
            for label in report.labels:
                file.write(label)
    _print(report)
    console.print(f"written: {attacked.output}; {scorer.receipt}")
    if labels is not None:
        console.print(f"written: {labels}, {len(report.labels)} successful attacks on {report.searched} prompts")
    if work.prices:
        cost = scorer.receipt.cost(work.prices)
        console.print("US dollars: " + ("unknown: set --price for every model" if cost is None else f"{cost:.4f}"))
    if report.unanswered:
        console.print(_unanswered(report))
    gamed = _gamed(report, attacked.max_rise, attacked.max_beats)
    for sentence in gamed:
        console.print(sentence)
    raise typer.Exit(1 if gamed or report.unanswered else 0)


def _gamed(report: AttackReport, max_rise: float | None, max_beats: float | None) -> list[str]:
    """In what the attack chosen by the search is over a limit."""
    worst, found = report.worst, []
    if worst is None:
        return []
    if max_rise is not None and (worst.rise.value or 0.0) >= max_rise:
        found.append(
            f"{worst.name} raises the score of bad responses by {worst.rise}, at least --max-rise {max_rise:g}."
        )
    if max_beats is not None and worst.beats.value is None:
        found.append("--max-beats was not measured: no reported prompt has an honest response with a score.")
    elif max_beats is not None and (worst.beats.value or 0.0) >= max_beats:
        found.append(f"{worst.name} beats {worst.beats} of the honest responses, at least --max-beats {max_beats:g}.")
    return found


def _rows(path: Path, keys: o.Keys, checklist_key: str | None, shared: object, scorer: ChecklistScorer) -> list[Pool]:
    """The prompts with a checklist. Rows with a null checklist are left out."""
    found = []
    for row, columns in Columns.each(path, **keys.columns(checklist=checklist_key, shared=shared)):
        request = columns.request_of(row.data, row.where)
        pool = columns.pool_of(row.data, row.where)
        if pool.checklist is not None:
            scorer.check_images(pool.checklist, row.where, input=request.input, history=pool.history)
            found.append(replace(pool, input=request.input))
    if not found:
        raise SampleError(f"{path} has no rows with a checklist.")
    return found


def _with_responses(
    rows: Sequence[Pool], rows_path: Path | str, path: Path, keys: o.Keys, target_key: str | None
) -> list[Pool]:
    """The rows with the honest responses to their prompts.

    Raises:
        SampleError: If no response belongs to any of the prompts.
    """
    answers: dict[tuple[str | None, str | None], list[str]] = {}
    named = {"inputs": keys.input_key, "target": target_key, "history": keys.history_key, "images": keys.images}
    for row, columns in Columns.each(path, **named):
        text = shown(columns.target_of(row.data, row.where).text)
        input, history, _images = columns.context_of(row.data, row.where)  # the texts have the marks of the images
        given = answers.setdefault((input, history), [])
        if text.strip() and text not in given:
            given.append(text)
    prompts = {(row.input, row.history) for row in rows}
    if not prompts & answers.keys():
        raise SampleError(
            f"--responses {path}: none of its {len(answers)} prompts is a prompt of {rows_path}; they must be equal."
        )
    if other := len(answers.keys() - prompts):
        console.print(f"{other} prompts of {path} are not in {rows_path}.", style="yellow")
    return [replace(row, candidates=tuple(answers.get((row.input, row.history), ()))) for row in rows]


def _print(report: AttackReport) -> None:
    out = plain_console()
    shown = [one for place, one in enumerate(report.attacks) if place < _SHOWN or one.name == report.chosen]
    rows = []
    for one in shown:
        name = one.name + (" <" if one.name == report.chosen else "")
        earned, beats = decimal(one.earned.value, ".3f", "–"), decimal(one.beats.value, ".0%", "–")
        rows.append((name, one.kind, str(one.rise), earned, beats, str(one.failed)))
    out.print(table("attack", "kind", "rise", "earned", "beats honest", "failed", rows=rows, title="attacks"))
    before = ", ".join(f"{REASONS[reason]} {figure}" for reason, figure in report.bad.items())
    out.print(f"Before an attack: {before}; honest responses {report.honest}.")
    if report.beats_before.value is not None:
        out.print(f"Without an attack, {report.beats_before.value:.0%} of the bad responses beat an honest one.")
    if len(report.attacks) > len(shown):
        out.print(f"{len(report.attacks) - len(shown)} attacks with a smaller rise are in the file.")
    out.print(
        f"{report.judge}: chosen (<) on {report.searched} prompts, measured on {report.reported} others; "
        f"{report.reads:,} of {report.budget_reads:,} reads, {report.rounds} rounds."
    )
    if report.kinds:
        out.print(_fallen("kind of question", report.kinds[:8]))
        out.print(_fallen("item", report.fallen[:8]))
    for example in report.examples:
        sides = Table(example.attack, "score", "text", title_justify="left", show_lines=True)
        sides.add_row("prompt", "", example.prompt)
        sides.add_row(REASONS[example.reason], f"{example.score:.3f}", example.response)
        sides.add_row("attacked", f"{example.attacked_score:.3f}", example.attacked)
        if example.honest is not None:
            sides.add_row("honest", f"{example.honest_score:.3f}", example.honest)
        out.print(sides)
    for what, why in report.missing.items():
        out.print(f"Not measured: {REASONS.get(what, 'comparison with honest responses')} ({why}).")


def _fallen(head: str, groups: Sequence[Fallen]) -> Table:
    rows = ((group.name, f"{group.share:.0%}", str(group.failed), group.attack) for group in groups)
    return table(head, "falls", "of", "most often under", rows=rows)


def _unanswered(report: AttackReport) -> Table:
    rows = (
        (reason, str(count), cause(reason, report.details.get(reason)))
        for reason, count in Counter(report.unanswered).most_common()
    )
    return table("reason", "reads", "why", rows=rows, title="unanswered")


def show_comparison(comparison: AttackComparison) -> None:
    """Print the tables of a comparison of two attack files."""
    out = plain_console()
    chosen = comparison.chosen_one, comparison.chosen_other
    rows = []
    for place, one in enumerate(comparison.attacks):
        if place < _SHOWN or one.name in chosen:
            beats = " -> ".join(decimal(figure.value, ".0%", "–") for figure in (one.beats_one, one.beats_other))
            rows.append((one.name, one.kind, str(one.one), str(one.other), str(one.change), beats))
    heads = ("attack", "kind", comparison.one, comparison.other, "change", "beats honest")
    out.print(table(*heads, rows=rows, title="rise of the score of bad responses"))
    if len(comparison.attacks) > _SHOWN:
        out.print(f"{len(comparison.attacks)} attacks are in both files; --json writes all.")
    judges = (
        (comparison.one, comparison.chosen_one, comparison.worst_one, comparison.honest_one),
        (comparison.other, comparison.chosen_other, comparison.worst_other, comparison.honest_other),
    )
    for judge, name, worst, honest in judges:
        rise = "no attack was chosen" if name is None else f"chosen {name}, rise {worst}"
        out.print(f"{judge}: {rise}; honest responses {honest}")
    out.print(f"Mean change over all attacks on {comparison.prompts} prompts: {comparison.change}")
