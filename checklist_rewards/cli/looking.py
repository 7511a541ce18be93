"""`inspect` and `report`: pages about scored files.

- `inspect`: item statistics of a scored file, as a table, JSON and an HTML page.
- `report`: files of a run as one HTML page.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from annotated_types import Ge

from checklist_rewards.backends import Sampling
from checklist_rewards.backends.embedding import SentenceEmbedder
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import Json, brief, grouped
from checklist_rewards.cli.output import bars, check_outputs, console, decimal, table
from checklist_rewards.cli.trust import Labelled
from checklist_rewards.cli.work import Work, asked
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.gradient import GradientForecast, GradientReport
from checklist_rewards.evaluation.items import FLAGS, ItemAnalysis, category_figures, flagged, similarity
from checklist_rewards.evaluation.labels import same_text, warn_of_no_text
from checklist_rewards.evaluation.scored import ScoredFile, ScoredText, kind_of_row
from checklist_rewards.evaluation.wording import Paraphraser, Review, reads_of, review, reworded
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.rows import SCORE_COLUMN, read_rows
from checklist_rewards.images import Image, shown
from checklist_rewards.messages import Images, images_of
from checklist_rewards.monitor.extra_reads import degenerate_replies
from checklist_rewards.rerank import sample_candidates
from checklist_rewards.rows import Columns, require_scores, write_rows_of
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.ui.report import MAX_ROWS, write_report
from checklist_rewards.ui.sections import analysed

_SHOWN, _PARAPHRASED = 20, 50


class Analyses(o.Options):
    """Optional analyses in addition to statistics of the answers in the file."""

    heading = "Analyses"
    shown = ("repeat", "paraphrases", "meta", "embed", "group_size")

    repeat: list[Path] | None = None
    """The same rows scored again, to measure stability. Repeatable."""
    paraphrases: Annotated[int, Ge(0)] = 0
    """Paraphrases per item, written by --model, which answers them about the first 50 rows."""
    meta: bool = False
    """Let --model judge the wording of the items."""
    human_key: str | None = None
    """Column of a checklist written by humans, to compare with."""
    embed: bool = True
    """Find similar items by their embeddings."""
    group_size: Annotated[int, Ge(2)] | None = None
    """Completions per group in training, to predict on how many groups a trainer gets a gradient. Defaults to the
    completions per prompt in the file."""


class Inspected(o.Options):
    """The file to inspect, and its page."""

    rows: Annotated[Path, typer.Argument(metavar="ROWS")]
    """A file written by `score` or `run`; with --policy.model, prompts with their checklists."""
    output: Annotated[Path | None, o.OUTPUT_FILE] = None
    """HTML page to write; see `report`."""


class Sampled(o.Options):
    """Completions to sample and score first, for a file of prompts with checklists."""

    heading = o.POLICY
    shown = ("n",)

    n: Annotated[int, Ge(2)] = 8
    """Completions per prompt."""
    prompts: Annotated[int, Ge(1)] = 64
    """Prompts to sample for, drawn at random."""
    scored: Path | None = None
    """File to keep the scored completions in (.jsonl). Defaults to not kept."""


@brief("json")
def inspect(
    inspected: Inspected,
    analyses: Analyses,
    policy: o.Policy,
    sampled: Sampled,
    keys: o.Keys,
    judge: o.JudgeOptions,
    json: Json = None,
    target_key: o.TargetKey = None,
    checklist_key: o.ChecklistKey = None,
    store_options: o.StoreOptions = o.StoreOptions(),  # noqa: B008 - frozen
) -> None:
    r"""Rank checklist items by how much they contribute: pass rate, variance, discrimination, redundancy.

    Also reported per item: discrimination as item-rest correlation, items with the same answers or similar wording,
    and the stability of answers over **--repeat** files or **--paraphrases**. With **--meta** a judge reviews the
    wording of the items. With **--human-key** the items are compared with a checklist written by humans.

    If prompts have several completions, the last line predicts on how many groups of a trainer the rewards differ.
    With **--policy.model**, completions are sampled and scored first, so that a set of checklists is known before
    training.

    **Examples**

    ```
    checklist-rewards inspect checklists.jsonl --policy.model org/policy --n 8 --model org/judge
    checklist-rewards inspect scored.jsonl -o items.html --json items.json
    checklist-rewards inspect scored.jsonl --repeat again.jsonl --repeat third.jsonl
    checklist-rewards inspect scored.jsonl --meta --paraphrases 2 --model org/judge
    ```
    """
    rows, output = inspected.rows, inspected.output
    check_outputs(output=output, json=json, scored=sampled.scored)
    if policy.model is None:
        names = ("n", "prompts", "scored", *o.SAMPLING)
        o.no_effect("without --policy.model, which samples the completions", *names)
        if not analyses.meta and not analyses.paraphrases:
            why = "without --policy.model, --meta and --paraphrases, which need a judge"
            o.no_effect(why, o.JudgeOptions, o.StoreOptions)
        policy.other_engine(judge)
    embedder = SentenceEmbedder() if analyses.embed else None
    if embedder is not None:
        embedder.validate()
    if analyses.paraphrases and judge.judge is not None:
        raise SampleError(
            f"--paraphrases {analyses.paraphrases} requires a single --model to write them; omit --judge."
        )
    asks = analyses.meta or analyses.paraphrases > 0
    work = Work.of(o.Preset(), store_options, judge=judge) if asks or policy.model is not None else None
    forecast = GradientForecast(analyses.group_size)
    images: Images = keys.images if asks or policy.model is not None else "ignore"
    named = keys.columns(target=target_key, checklist=checklist_key, images=images)
    with TemporaryDirectory() as folder:
        if work is not None and policy.model is not None:
            path = sampled.scored or Path(folder) / "scored.jsonl"
            named["target"] = _sample(rows, path, forecast, policy, sampled, named, judge, work)
            rows = path
        if work is not None and asks:
            work.scorer.validate()
        found = _Inspection(ScoredFile(rows, **named), analyses, forecast)
        found.read(None if work is None else work.scorer)
        if work is not None and analyses.paraphrases:
            found.pick(work.scorer)
        if work is not None and analyses.meta:
            found.review(work.scorer)
        if work is not None and analyses.paraphrases:
            found.paraphrase(judge, work)
        _print(found, embedder, output, json)
    missing = sum(score.total - score.answered for one in found.reviews for score in (*one.items, one.whole))
    if missing:
        console.print(f"{missing} questions of the meta-checklist were not answered.", style="yellow")
    raise typer.Exit(1 if missing else 0)


class _Inspection:
    """What is collected from the rows: statistics of their scores, checklists, inputs and reviews."""

    def __init__(self, file: ScoredFile, analyses: Analyses, forecast: GradientForecast) -> None:
        self.file, self.analyses, self.forecast = file, analyses, forecast
        self.analysis = ItemAnalysis()
        self.unscored = 0
        self.checklists: dict[str, Checklist] = {}
        self.inputs: dict[str, str | None] = {}
        self.images: dict[str, Sequence[Image]] = {}
        """The images of the inputs, which are in memory while they are held."""
        self.picked: list[tuple[ScoredText, Sample]] = []
        self.generated: list[Checklist] = []
        self.human: list[Checklist] = []
        self.reviews: list[Review] = []
        self.unchanged = 0

    def read(self, scorer: ChecklistScorer | None) -> None:
        """Read all rows. Raises [`SampleError`] for a file that `score` or `run` has not written, and for an image
        that a reviewing judge cannot take."""
        first, columns, analyses = self.file.first, self.file.columns, self.analyses
        if kind_of_row(first.data) != "rewards":
            require_scores(first.data, first.where)
        for row, repeats in _scored(self.file, analyses.repeat or ()):
            if (score := row.score) is None:
                self.unscored += 1
                continue
            self.analysis.add(score)
            if row.prompt_key is not None:
                text = columns.target_of(row.data, row.where).text if columns.target in row.data else ""
                self.forecast.add(row.prompt_key, score, len(text))
            for again in repeats:
                try:
                    if again.score is not None:
                        self.analysis.add_repeat(score, again.score)
                except SampleError as error:
                    raise SampleError(f"{row.where}: {error}") from None
            if analyses.meta or analyses.paraphrases or analyses.human_key is not None:
                self._collect(row, scorer)

    def _collect(self, row: ScoredText, scorer: ChecklistScorer | None) -> None:
        columns, human_key = row.columns, self.analyses.human_key
        checklist = columns.checklist_of(row.data, row.where)
        if checklist is None or checklist.id in self.checklists:
            return
        self.checklists[checklist.id] = checklist
        if self.analyses.meta and scorer is not None:
            input, _, self.images[checklist.id] = columns.context_of(row.data, row.where)
            scorer.check_images(None, row.where, input=input)
            self.inputs[checklist.id] = input
        if human_key is not None:
            value = columns.get(row.data, human_key, "--human-key", row.where)
            if value is not None:
                self.generated.append(checklist)
                self.human.append(Checklist.parse(value, f"{row.where}, {human_key}"))

    def review(self, scorer: ChecklistScorer) -> None:
        """Let the judge review the wording of the items."""
        asked = [(self.checklists[id], input) for id, input in self.inputs.items()]
        with bars() as bar:
            progress = bar("meta-checklist", sum(reads_of(checklist) for checklist, _ in asked))
            self.reviews = review(asked, scorer, progress)

    def pick(self, scorer: ChecklistScorer) -> None:
        """Read the first rows, which are scored again with paraphrased items. Raises [`SampleError`] for a row with an
        image that the judge cannot take."""
        answered = (text for text in self.file if text.score is not None and not text.score.no_answer)
        for text in islice(answered, _PARAPHRASED):
            checklist = self.file.columns.checklist_of(text.data, text.where)
            if checklist is not None:
                self.picked.append((text, text.asked(checklist).to_judge))
                scorer.check_sample(self.picked[-1][1], text.where)

    def paraphrase(self, judge: o.JudgeOptions, work: Work) -> None:
        """Score the picked rows again with paraphrased items, and compare the answers."""
        count = self.analyses.paraphrases
        writer = Paraphraser(judge.engine, count=count, store=work.store or False)
        items = {item.id: item for _, sample in self.picked for item in sample.checklist.items}
        wordings = dict(zip(items, writer.reword(list(items.values())), strict=True))
        self.unchanged = writer.unchanged
        again: list[tuple[Score, Sample]] = []
        for text, sample in self.picked:
            for number in range(count):
                other = reworded(sample.checklist, [wordings[item.id] for item in sample.checklist.items], number)
                again.append((text.judged, replace(sample, checklist=other)))
        with bars() as bar:
            progress = bar("paraphrases", sum(len(sample.checklist) for _, sample in again))
            scores = work.scorer.score_batch([sample for _, sample in again], progress)
        for (score, _), other_score in zip(again, scores, strict=True):
            self.analysis.add_repeat(score, other_score)

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Tables for the page: heading to names and numbers."""
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
        """Generated and human categories of the questions in both checklists that have a human category."""
        tagged: list[str | None] = []
        truth: list[str] = []
        for generated, human in zip(self.generated, self.human, strict=True):
            ours = {item.question: item.category for item in generated.items}
            for item in human.items:
                if item.category is not None and item.question in ours:
                    tagged.append(ours[item.question])
                    truth.append(item.category)
        return tagged, truth


def _scored(file: ScoredFile, repeats: Sequence[Path]) -> Iterator[tuple[ScoredText, list[ScoredText]]]:
    for first, *others in zip_longest(file, *map(ScoredFile, repeats)):
        if first is None or None in others:
            raise SampleError(
                f"{file.path} and the --repeat files must have the same rows, but their row counts differ."
            )
        for other in others:
            same = same_text(first.data, other.data, first.columns)
            if same is None:
                warn_of_no_text(first, "row number")
            elif not same:
                raise SampleError(
                    f"{other.where} is about another text than {first.where}; --repeat files have the same."
                )
        yield first, others


def _print(found: _Inspection, embedder: SentenceEmbedder | None, output: Path | None, json: Path | None) -> None:
    analysis, rows, predicted = found.analysis, found.file.path, found.forecast.report()
    reports, figures = analysis.report(embedder), found.figures
    flagged_items = flagged(reports)
    lines = []
    for line in flagged_items[:_SHOWN]:
        shown = (decimal(value, ".2f", "–") for value in (line.pass_rate, line.discrimination, line.stability))
        mark = " (penalty: passes if not)" if line.id in analysis.penalties else ""
        lines.append((line.question + mark, str(line.answered), *shown, ", ".join(line.flags)))
    if lines:
        console.print(table("question", "n", "pass", "discr.", "stable", "flags", rows=lines, title=f"inspect {rows}"))
    console.print(
        f"{len(reports)} items over {analysis.targets} targets ({found.unscored} rows without a score, "
        f"{analysis.no_answer} without an answer); {len(flagged_items)} flagged"
        + (f", {_SHOWN} shown." if len(flagged_items) > _SHOWN else ".")
    )
    for heading, values in figures.items():
        shown_values = ", ".join(
            f"{name} {'–' if value is None else f'{value:.3f}' if isinstance(value, float) else value}"
            for name, value in values.items()
        )
        console.print(f"{heading}: {shown_values}")
    if found.unchanged:
        console.print(f"{found.unchanged} items have fewer paraphrases than requested.", style="yellow")
    if predicted.prompts:
        _show_gradient(predicted)
    if json is not None:
        gradient = asdict(predicted) | {"gradient": predicted.gradient.model_dump(), "sentence": predicted.sentence}
        write_json(
            json,
            {
                "gradient": gradient if predicted.prompts else None,
                "targets": analysis.targets,
                "without_score": found.unscored,
                "no_answer": analysis.no_answer,
                "flags": FLAGS,
                "items": [asdict(line) for line in reports],
                "figures": figures,
            },
        )
    if output is not None:
        extra = {"items": analysed(analysis, reports), "tables": figures, "view": "trust"}
        write_report(output, [rows], title=f"Items of {rows.name}", inputs=found.file.named.get("inputs"), extra=extra)


def _show_gradient(predicted: GradientReport) -> None:
    def share(value: float | None) -> str:
        return decimal(value, ".0%", "–")

    lines = {
        "items that all completions of a prompt pass": share(predicted.all_pass),
        "items that none passes": share(predicted.none_pass),
        "reads with a label mass below 0.5": share(predicted.low_mass),
        "correlation of score and length": decimal(predicted.length, "+.2f", "–"),
    }
    lines |= {f"items that {fault}": f"{n} of {predicted.items}" for fault, n in predicted.faults.items()}
    lines |= {f"prompts on which {name!r} is as good": share(value) for name, value in predicted.canaries.items()}
    console.print(table(rows=lines.items(), title="before training", header=False))
    console.print(predicted.sentence)


def _sample(
    rows: Path,
    path: Path,
    forecast: GradientForecast,
    policy: o.Policy,
    sampled: Sampled,
    named: dict[str, Any],
    judge: o.JudgeOptions,
    work: Work,
) -> str:
    """Sample completions for some prompts, score them and degenerate replies, and write the scored rows. Returns the
    column of the completions."""
    scorer = work.scorer
    data = list(read_rows(rows))
    if not data:
        raise SampleError(f"{rows} has no rows.")
    columns = replace(Columns.of(data[0], **named), target_named=True)
    found = [(row, columns.checklist_of(row.data, row.where)) for row in data]
    known = [(row, checklist) for row, checklist in found if checklist is not None]
    known = random.Random(0).sample(known, min(sampled.prompts, len(known)))
    engine = policy.other_engine(judge)
    assert engine is not None
    prompts = []
    for row, checklist in known:
        prompt = asked(columns, row)
        for item in checklist.items:
            scorer.check_item(item, row.where)
        input, history, _ = columns.context_of(row.data, row.where)
        scorer.check_images(checklist, row.where, input=input, history=history)
        engine.check_images(images_of(prompt), f"{row.where}: the prompt", "policy")
        prompts.append(prompt)
    _ = engine.identity  # raises if the policy is not found
    scorer.validate()
    sampling = Sampling(policy.max_tokens, policy.temperature, n=sampled.n, seed=policy.seed)
    with write_rows_of(rows, path) as out, bars() as bar:
        progress = bar("prompts sampled", len(prompts))
        texts = sample_candidates(prompts, engine, sampling, work.store, progress)
        progress = bar("reads", None)
        for (row, checklist), candidates in zip(known, texts, strict=True):
            base = columns.sample_of(row.data | {columns.target: ""}, row.where, checklist)
            canaries = degenerate_replies(shown(base.input or ""), checklist)
            prompt = ScoredText("", row.where, data=row.data, columns=columns).prompt_key or ""
            samples = [replace(base, target=each.target.text, state=each.target.state) for each in candidates]
            fakes = [replace(base, target=text, state="answered") for text in canaries.values()]
            scores = scorer.score_batch([*samples, *fakes], progress)
            for text, score in zip(candidates, scores, strict=False):
                out.write(row.data | {columns.target: str(text), SCORE_COLUMN: score.model_dump()})
            for name, fake, score in zip(canaries, fakes, scores[len(samples) :], strict=True):
                if fake.target.strip():
                    forecast.add_canary(prompt, name, score)
    return columns.target


class Page(o.Options):
    """The files of a run, and the page about them."""

    heading = o.OUTPUT

    files: Annotated[list[Path], typer.Argument(metavar="FILE...")]
    """Scored files, reward logs, pairs (.jsonl, .csv, .parquet); annotations, monitor logs (.jsonl); --json of agree,
    calibrate and inspect, the file of attack, --summary of score (.json)."""
    output: Annotated[Path, o.OUTPUT_FILE] = Path("report.html")
    """HTML file to write."""
    max_rows: Annotated[int, Ge(1)] = MAX_ROWS
    """Most rows per file on the page. Of a larger file a random sample is shown; figures use all rows."""


@grouped()
def report(
    page: Page,
    labelled: Labelled,
    input_key: o.InputKey = None,
    resampling: o.Resampling = o.Resampling(),  # noqa: B008
) -> None:
    r"""Write one HTML page about a run: scores, every answer, training curves, comparisons, agreement with labels.

    The page is a single file that opens from disk and loads nothing. A reward log (**log=** of a reward) shows what
    the policy learned. Two scored files with the same rows, and two reward logs, are compared as **agree** does. With
    **--label-key** or **--labels** the page shows how far the judge agrees with people.

    **Examples**

    ```
    checklist-rewards report scored.jsonl -o report.html
    checklist-rewards report runs/demo/rewards.jsonl -o runs/demo/report.html
    checklist-rewards report small.jsonl large.jsonl --label-key human -o judges.html
    checklist-rewards report scored.jsonl agreement.json calibration.json summary.json
    ```
    """
    if not labelled.named:
        o.no_effect("without --labels or --label-key", "group_key", "checklist", "checklist_key")
    files, output = page.files, page.output
    check_outputs(output=output)
    inputs = [path.resolve() for path in [*files, *filter(None, [labelled.labels])]]
    if len(set(inputs)) < len(inputs):
        raise SampleError(f"each file may be given only once, got {', '.join(map(str, files))}.")
    with bars() as bar:
        shown = write_report(
            output,
            files,
            labels=labelled.as_labels() if labelled.named else None,
            max_rows=page.max_rows,
            seed=resampling.seed,
            intervals=resampling.draws(),
            inputs=input_key,
            target=labelled.target_key,
            id_key=labelled.id_key,
            progress=bar,
        )
    for file in shown:
        part = "" if file.shown == file.rows else f", a sample of {file.shown:,} on the page"
        console.print(f"{file.name}: {file.rows:,} rows{part}")
    console.print(f"written: {output}")
