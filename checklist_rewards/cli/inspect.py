"""`inspect`: how good the items of a scored file are, as a table, JSON and one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import Columns
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import bars, console, warn_if_pocket, write_json
from checklist_rewards.cli.work import Work
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.items.items import FLAGS, ItemAnalysis, flagged
from checklist_rewards.evaluation.items.meta import Review, reads_of, review
from checklist_rewards.evaluation.items.page import page
from checklist_rewards.evaluation.items.paraphrase import Paraphraser, reworded
from checklist_rewards.evaluation.items.similarity import category_figures, similarity
from checklist_rewards.files.rows import Row, atomic_path, read_rows
from checklist_rewards.refiners.embedding import SentenceEmbedder
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.scores.table import SCORE_COLUMN, score_from

_WHAT = "What is looked at"
_SHOWN = 20


@dataclass(frozen=True)
class Looks:
    """What is looked at besides the answers that are in the file."""

    repeat: Annotated[
        list[Path] | None,
        typer.Option(rich_help_panel=_WHAT, help="The same rows scored again; may be given several times."),
    ] = None
    paraphrases: Annotated[
        int, typer.Option(min=0, rich_help_panel=_WHAT, help="Other wordings per item, written and read by --model.")
    ] = 0
    paraphrase_rows: Annotated[
        int, typer.Option(min=1, rich_help_panel=_WHAT, help="Rows that are read in other wordings, from the first.")
    ] = 50
    meta: Annotated[
        bool,
        typer.Option("--meta", rich_help_panel=_WHAT, help="Have --model judge the items by the meta-checklist."),
    ] = False
    human_key: Annotated[
        str | None,
        typer.Option(show_default=False, rich_help_panel=_WHAT, help="Key of a checklist by people, to compare with."),
    ] = None
    embed: Annotated[
        bool, typer.Option("--embed/--no-embed", rich_help_panel=_WHAT, help="Compare wordings by embeddings.")
    ] = True


@grouped
def inspect(
    rows: Annotated[
        Path,
        typer.Argument(metavar="SCORED", show_default=False, help="A file that `score`, `run` or `rerank` wrote."),
    ],
    looks: Looks,
    keys: o.Keys,
    judge: o.OnlyJudge,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", show_default=False, rich_help_panel=o.OUTPUT, help="An HTML page with plots."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", show_default=False, rich_help_panel=o.OUTPUT, help="All of it as JSON.")
    ] = None,
    checklist_key: o.ChecklistKey = None,
    kept: o.Kept = o.Kept(),  # noqa: B008 - frozen
) -> None:
    r"""Show which items of scored checklists earn their place.

    Per item: pass rate, variance, discrimination (item-rest correlation), the items that give the same answers or
    ask nearly the same, and how stable its answers are over **--repeat** files or **--paraphrases**. With
    **--meta** a judge looks at the wording of the items; with **--human-key** they are compared with people's.

    **Examples**

    ```
    checklist-rewards inspect scored.jsonl -o items.html --json items.json
    checklist-rewards inspect scored.jsonl --repeat again.jsonl --repeat third.jsonl
    checklist-rewards inspect scored.jsonl --meta --paraphrases 2 --model org/judge
    ```
    """
    _check_outputs(rows, output, json)
    embedder = SentenceEmbedder() if looks.embed else None
    if embedder is not None:
        embedder.check()
    if looks.paraphrases and judge.judge is not None:
        raise SampleError(f"--paraphrases {looks.paraphrases}: --model writes them, and --judge names several judges.")
    asks = looks.meta or looks.paraphrases > 0
    scorer = Work.of(o.Preset(), kept, judge=judge).pipeline().scorer if asks else None
    assert scorer is None or isinstance(scorer, ChecklistScorer)
    if scorer is not None:
        scorer.check()
        warn_if_pocket(judge.shown)
    columns = Columns.of(
        _first(rows), inputs=keys.input_key, checklist=checklist_key, reference=keys.reference_key,
        history=keys.history_key,
    )  # fmt: skip
    analysis, found = ItemAnalysis(), _Found()
    for row, score, repeats in _scores(rows, looks.repeat or ()):
        if score is None:
            found.unscored += 1
            continue
        analysis.add(score)
        for again in repeats:
            if again is not None:
                _repeat(analysis, score, again, row)
        if asks or looks.human_key is not None:
            _collect(found, columns, row, looks.human_key)
    if scorer is not None and looks.meta:
        with bars() as bar:
            whole = list(found.inputs.items())
            progress = bar("meta-checklist", sum(reads_of(found.checklists[id]) for id, _ in whole))
            found.reviews = review([(found.checklists[id], input) for id, input in whole], scorer, progress)
    if scorer is not None and looks.paraphrases:
        _paraphrase(analysis, found, columns, rows, looks, judge, scorer, kept)
    _tell(analysis, found, embedder, rows, output, json)
    missing = sum(score.total - score.answered for one in found.reviews for score in (*one.items, one.whole))
    if missing:
        console.print(f"{missing} questions of the meta-checklist were not answered.", style="yellow")
    raise typer.Exit(1 if missing else 0)


class _Found:
    """What the rows hold besides scores."""

    def __init__(self) -> None:
        self.unscored = 0
        self.checklists: dict[str, Checklist] = {}
        self.inputs: dict[str, str | None] = {}
        self.generated: list[Checklist] = []
        self.human: list[Checklist] = []
        self.reviews: list[Review] = []
        self.unchanged = 0

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Tables for the page: a heading, names and numbers."""
        tables: dict[str, dict[str, Any]] = {}
        if self.reviews:
            passed: dict[str, list[float]] = {}
            for one in self.reviews:
                for name, rate in one.pass_rates.items():
                    passed.setdefault(name, []).extend([] if rate is None else [rate])
            tables["Meta-checklist, pass rates"] = {
                name: sum(rates) / len(rates) if rates else None for name, rates in passed.items()
            }
        if self.human:
            near = similarity(self.generated, self.human)
            tables["Against people's checklists"] = {
                "checklists": near.checklists, "BLEU": near.bleu, **near.rouge, "count MAE": near.count_mae,
            }  # fmt: skip
            tagged, truth = self._categories()
            for line in category_figures(tagged, truth):
                tables[f"Category {line.category}"] = {
                    "precision": line.precision, "recall": line.recall, "F1": line.f1, "items": line.support,
                }  # fmt: skip
        return tables

    def _categories(self) -> tuple[list[str | None], list[str]]:
        """The categories of questions that both sides have, where people gave one."""
        tagged: list[str | None] = []
        truth: list[str] = []
        for made, by_people in zip(self.generated, self.human, strict=True):
            ours = {item.question: item.category for item in made.items}
            for item in by_people.items:
                if item.category is not None and item.question in ours:
                    tagged.append(ours[item.question])
                    truth.append(item.category)
        return tagged, truth


def _check_outputs(rows: Path, *outputs: Path | None) -> None:
    given = [path for path in outputs if path is not None]
    for path in given:
        if path.is_dir():
            raise SampleError(f"{path} is a folder; give a file.")
    taken = [path.resolve() for path in (rows, *given)]
    if len(set(taken)) < len(taken):
        raise SampleError("--output, --json and the scored file must be different files.")


def _first(path: Path) -> dict[str, Any]:
    row = next(iter(read_rows(path)), None)
    if row is None:
        raise SampleError(f"{path} has no rows.")
    if SCORE_COLUMN not in row.data:
        raise SampleError(f"{row.where}: there is no {SCORE_COLUMN!r}; give a file that `score` or `run` wrote.")
    return dict(row.data)


def _scores(path: Path, repeats: Sequence[Path]) -> Iterator[tuple[Row, Score | None, list[Score | None]]]:
    files = [read_rows(file) for file in (path, *repeats)]
    for line in zip_longest(*files):
        if any(row is None for row in line):
            raise SampleError(f"{path} and its repeats must have the same rows; they have different numbers of them.")
        first, *others = line
        yield first, _score(first), [_score(row) for row in others]


def _score(row: Row) -> Score | None:
    return score_from(row.data.get(SCORE_COLUMN), row.where)


def _repeat(analysis: ItemAnalysis, score: Score, again: Score, row: Row) -> None:
    try:
        analysis.add_repeat(score, again)
    except SampleError as error:
        raise SampleError(f"{row.where}: {error}") from None


def _collect(found: _Found, columns: Columns, row: Row, human_key: str | None) -> None:
    checklist = columns.checklist_of(row.data, row.where)
    if checklist is None or checklist.id in found.checklists:
        return
    found.checklists[checklist.id] = checklist
    found.inputs[checklist.id] = columns.input_of(row.data, row.where)[0]
    if human_key is not None:
        value = columns.get(row.data, human_key, "--human-key", row.where)
        if value is not None:
            found.generated.append(checklist)
            found.human.append(Checklist.parse(value, f"{row.where}, {human_key}"))


def _paraphrase(
    analysis: ItemAnalysis,
    found: _Found,
    columns: Columns,
    path: Path,
    looks: Looks,
    judge: o.OnlyJudge,
    scorer: ChecklistScorer,
    kept: o.Kept,
) -> None:
    """Read the first rows again in other wordings, and compare the answers."""
    engine = judge.engine
    writer = Paraphraser(
        engine,
        count=looks.paraphrases,
        store=kept.opened() or False,
    )
    picked = [(row, score) for row, score, _ in _scores(path, ()) if score is not None][: looks.paraphrase_rows]
    lists = [columns.checklist_of(row.data, row.where) for row, _ in picked]
    items = {item.id: item for checklist in lists if checklist is not None for item in checklist.items}
    wordings = dict(zip(items, writer.reword(list(items.values())), strict=True))
    found.unchanged = writer.unchanged
    again: list[tuple[Score, Sample]] = []
    for (row, score), checklist in zip(picked, lists, strict=True):
        if checklist is None:
            continue
        sample = columns.sample_of(row.data, row.where, checklist)
        for number in range(looks.paraphrases):
            other = reworded(checklist, [wordings[item.id] for item in checklist.items], number)
            again.append((score, Sample(other, sample.target, sample.input, sample.reference, sample.history)))
    with bars() as bar:
        progress = bar("other wordings", sum(len(sample.checklist) for _, sample in again))
        scores = scorer.score_batch([sample for _, sample in again], progress)
    for (score, _), other_score in zip(again, scores, strict=True):
        analysis.add_repeat(score, other_score)


def _tell(
    analysis: ItemAnalysis,
    found: _Found,
    embedder: SentenceEmbedder | None,
    rows: Path,
    output: Path | None,
    json: Path | None,
) -> None:
    reports, figures = analysis.report(embedder), found.figures
    standing_out = flagged(reports)
    table = Table(
        "question", "n", "pass", "discr.", "stable", "stands out", title=f"inspect {rows}", title_justify="left"
    )
    for line in standing_out[:_SHOWN]:
        numbers = (line.pass_rate, line.discrimination, line.stability)
        shown = ["–" if value is None else f"{value:.2f}" for value in numbers]
        table.add_row(escape(line.question), str(line.answered), *shown, ", ".join(line.flags))
    console.print(table)
    console.print(
        f"{len(reports)} items over {analysis.targets} targets ({found.unscored} rows without a score); "
        f"{len(standing_out)} stand out" + (f", {_SHOWN} shown." if len(standing_out) > _SHOWN else ".")
    )
    for heading, values in figures.items():
        shown_values = ", ".join(
            f"{name} {'–' if value is None else f'{value:.3f}' if isinstance(value, float) else value}"
            for name, value in values.items()
        )
        console.print(f"{escape(heading)}: {escape(shown_values)}")
    if found.unchanged:
        console.print(f"{found.unchanged} items got fewer other wordings than asked for.", style="yellow")
    if json is not None:
        write_json(
            json,
            {
                "targets": analysis.targets,
                "without_score": found.unscored,
                "flags": FLAGS,
                "items": [asdict(line) for line in reports],
                "figures": figures,
            },
        )
    if output is not None:
        text = page(reports, title=f"Items of {rows.name}", targets=analysis.targets, figures=figures)
        with atomic_path(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
