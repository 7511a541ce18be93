"""Evaluate a judge on the benchmarks of published work, from their own files: graded rubrics, and preference pairs.

    python recipes/studies/published.py rubrics charm100.json --judge org/judge
    python recipes/studies/published.py rubrics ricechem/q1.json ricechem/q2.json ... --judge org/judge
    python recipes/studies/published.py rubrics OpenAI_rubric_dataset.json Grok3_rubric_dataset.json ...
    python recipes/studies/published.py pairs rewardbench.jsonl --pipeline tick --writer org/model ...

`rubrics` takes every file that `checklists import` reads. CHARM-100, RiceChem and ResearcherBench are `RubricDataset`
files in the repository of Autorubric (`examples/data/`, `researcher_bench/output/`; one file per question of RiceChem,
one per system of ResearcherBench). None of them is part of this repository. Of each file it reports the mean score,
which is the coverage of ResearcherBench, and, where the file has people's labels, the agreement with them on each
criterion.

`pairs` takes rows with `prompt`, `chosen`, `rejected`, and `subset` if there are any; RewardBench is such a file. It
reports wins, losses and ties per subset, and the mean over subsets. Checklists are read from `checklist`, or written
by a pipeline from the prompt.

Intervals are 95 % bootstrap intervals over rows. Answers are kept in `<output>/store.sqlite`, so an interrupted run
continues. Tables are written to `<output>/tables.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import markdown, run_main, save_json
from rich.console import Console

from checklist_rewards import Checklist, ChecklistScorer, Sample, Score
from checklist_rewards.chat import prompt_text
from checklist_rewards.datasets import build_checklists
from checklist_rewards.datasets.importing import LABELS, TARGET, imported_rows
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Preferences, Unit, compare
from checklist_rewards.evaluation.agreement.compare import units_against_labels
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Mean
from checklist_rewards.evaluation.labels import labelled
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.files.rows import read_rows
from checklist_rewards.rows import Columns

CHUNK = 256
SHOWN = ("wins", "losses", "ties", "difference", "cohens_d")
PUBLISHED = (
    ("Autorubric, Gemini-3-Flash", "CHARM-100, factual_accuracy", 0.870, 0.642, None),
    ("Autorubric, Gemini-3-Flash", "CHARM-100, naturalness", 0.580, None, 0.719),
    ("Autorubric, Gemini-3-Flash", "CHARM-100, satisfaction", 0.420, None, 0.648),
    ("Autorubric, Gemini-3-Flash", "CHARM-100, specificity", 0.395, None, 0.549),
    ("Autorubric, Gemini-3-Flash", "CHARM-100, helpfulness", 0.380, None, 0.625),
    ("Autorubric, Gemini-3-Flash", "CHARM-100, response_length", 0.810, 0.552, None),
    ("Autorubric, Gemini-3-Flash, no examples", "RiceChem, test split", 0.772, None, None),
    ("Autorubric, Gemini-3-Flash, 5 examples", "RiceChem, test split", 0.800, None, None),
    ("GPT-4, no examples (Sonkar et al.)", "RiceChem, test split", 0.709, None, None),
    ("RoBERTa-large on MNLI, fine-tuned (Sonkar et al.)", "RiceChem, test split", 0.868, None, None),
)
"""Accuracy, kappa and weighted kappa of tables 2 and 5 of Autorubric's paper. All of RiceChem is 1,240 answers; the
published figures are of a tenth."""


@dataclass(frozen=True)
class Graded:
    """The scored rows of a file, with their labels."""

    name: str
    rows: list[ScoredText]

    @property
    def units(self) -> list[Unit]:
        """The labelled items, each with both answers."""
        return units_against_labels(self.rows)[0]


def scored(
    scorer: ChecklistScorer, rows: Iterable[tuple[Mapping[str, Any], Checklist]]
) -> Iterator[tuple[Mapping[str, Any], Checklist, Score]]:
    """Each row with its score."""
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK)):
        samples = []
        for row, checklist in chunk:
            asked, history = prompt_text(row["prompt"])
            samples.append(Sample(checklist, row[TARGET], asked, row.get("reference"), history))
        for (row, checklist), score in zip(chunk, scorer.score_batch(samples), strict=True):
            yield row, checklist, score


def graded(path: Path, scorer: ChecklistScorer) -> Graded:
    """Score the rows of a file. Raises [`SampleError`] if they have no text to score."""
    rows: list[ScoredText] = []
    for number, (row, checklist, score) in enumerate(scored(scorer, _with_target(path)), start=1):
        where = f"{path}, row {number}"
        name = f"{path.stem}/{number}"
        rows += labelled([ScoredText(name, where, score, data=row, columns=Columns.of({}, shared=checklist))], LABELS)
    return Graded(path.stem, rows)


def _with_target(path: Path) -> Iterator[tuple[Mapping[str, Any], Checklist]]:
    for number, (row, checklist) in enumerate(imported_rows(path).rows, start=1):
        if not isinstance(row.get(TARGET), str):
            raise SampleError(f"{path}, row {number}: there is no text to score; the keys are {', '.join(row)}.")
        yield row, checklist


def agreement(some: Sequence[Graded], judge: str, bootstrap: Bootstrap) -> dict[str, dict[str, Any]]:
    """The figures of each criterion of each file, and of all yes/no criteria together."""
    of_criteria: dict[str, list[Unit]] = {}
    for one in some:
        for unit in one.units:
            of_criteria.setdefault(f"{one.name}, {unit.item.category or unit.item.id}", []).append(unit)
            if unit.item.options is None:
                of_criteria.setdefault("all yes/no", []).append(unit)
    found = {}
    for name, units in of_criteria.items():
        compared = compare((judge, "people"), units, [], bootstrap, against_labels=True)
        [section] = compared.items.values()
        figures = section.figures | _steps(units, bootstrap) | {"answered": compared.coverage}
        found[name] = {"n": section.units} | {key: figure.model_dump() for key, figure in figures.items()}
    return found


def _steps(units: Sequence[Unit], bootstrap: Bootstrap) -> dict[str, Figure]:
    """Of items with options that have a value: how often the answer is at most one step off, and the mean rise over
    the label."""
    values = sorted({value for value in units[0].item.values.values() if value is not None})
    known = [
        (values.index(unit.one.value), values.index(unit.other.value), unit.group)
        for unit in units
        if unit.one is not None and unit.one.value is not None
        if unit.other is not None and unit.other.value is not None
    ]
    groups = [group for _, _, group in known]
    bias = Mean("bias", [values[one] - values[other] for one, other, _ in known])
    near = Mean("adjacent", [abs(one - other) <= 1 for one, other, _ in known])
    return bootstrap.figures(bias, groups) | (bootstrap.figures(near, groups) if len(values) > 2 else {})


def rubrics(args: argparse.Namespace, scorer: ChecklistScorer, bootstrap: Bootstrap) -> dict[str, Any]:
    """The figures of files with rubrics."""
    some = [graded(path, scorer) for path in args.files]
    means = {}
    for one in some:
        values = [row.judged.primary_score for row in one.rows if row.judged.primary_score is not None]
        mean = bootstrap.figures(Mean("score", values), range(len(values)))["score"]
        means[one.name] = {"rows": len(one.rows), "unscored": len(one.rows) - len(values), "score": mean.model_dump()}
    return {"scores": means, "agreement": agreement(some, args.judge, bootstrap)}


def pairs(args: argparse.Namespace, scorer: ChecklistScorer, bootstrap: Bootstrap) -> dict[str, Any]:
    """The figures of files with pairs, by subset."""
    rows = [(row.data, row.where) for path in args.files for row in read_rows(path)]
    for data, where in rows:
        for key in ("prompt", "chosen", "rejected"):
            if data.get(key) is None:
                raise SampleError(f"{where}: {key!r} is missing; the keys are {', '.join(data)}.")
    if args.pipeline is not None:
        settings = {name: value for name, value in (("model", args.writer), ("base_url", args.writer_url)) if value}
        prompts = [data["prompt"] for data, _ in rows]
        written = build_checklists(prompts, pipeline=args.pipeline, store=args.output / "store.sqlite", **settings)
        checklists = [Checklist.parse(row["checklist"]) for row in written]
    else:
        checklists = [Checklist.parse(data.get("checklist"), where) for data, where in rows]
    sides = [
        ({"prompt": data["prompt"], TARGET: data[side]}, checklist)
        for (data, _), checklist in zip(rows, checklists, strict=True)
        for side in ("chosen", "rejected")
    ]
    scores = [score.primary_score for _, _, score in scored(scorer, sides)]
    differences = [
        None if chosen is None or rejected is None else chosen - rejected
        for chosen, rejected in zip(scores[::2], scores[1::2], strict=True)
    ]
    of_subsets: dict[str, list[float | None]] = {}
    for (data, _), difference in zip(rows, differences, strict=True):
        of_subsets.setdefault(str(data.get(args.subset_key) or "all"), []).append(difference)
    found = {name: preferences(some, bootstrap) for name, some in of_subsets.items()}
    wins = [one["wins"]["value"] for one in found.values() if one["n"]]
    return {"subsets": found, "mean_of_subsets": fmean(wins) if wins else None}


def tables(found: Mapping[str, Any]) -> str:
    """All figures as Markdown."""
    if "subsets" in found:
        rows = [
            [name, one["n"], one["unread"], *(_shown(one.get(key)) for key in SHOWN)]
            for name, one in found["subsets"].items()
        ]
        mean = found["mean_of_subsets"]
        rows.append(["mean of subsets", "", "", "" if mean is None else f"{mean:.3f}", "", "", "", ""])
        return markdown(["subset", "n", "without a score", *SHOWN], rows)
    parts = [
        markdown(
            ["file", "rows", "without a score", "mean score"],
            [[name, one["rows"], one["unscored"], _shown(one["score"])] for name, one in found["scores"].items()],
        )
    ]
    if found["agreement"]:
        shown = ["accuracy", "adjacent", "kappa", "weighted_kappa", "f1", "spearman", "bias", "answered"]
        labelled = [
            [name, one["n"], *(_shown(one.get(key)) for key in shown)] for name, one in found["agreement"].items()
        ]
        parts.append(markdown(["criterion", "n", *shown], labelled))
        published = [["" if cell is None else cell for cell in row] for row in PUBLISHED]
        parts.append(markdown(["published", "criterion", "accuracy", "kappa", "weighted_kappa"], published))
    return "\n\n".join(parts)


def _shown(figure: Mapping[str, Any] | None) -> str:
    return "" if figure is None or figure["value"] is None else Figure(**figure).shown()


def preferences(differences: Sequence[float | None], bootstrap: Bootstrap) -> dict[str, Any]:
    """How often the chosen text has the higher score, and by how much. A difference is score(chosen) -
    score(rejected), or None if one of them has no score."""
    known = [difference for difference in differences if difference is not None]
    found: dict[str, Any] = {"n": len(known), "unread": len(differences) - len(known)}
    if not known:
        return found
    figures = bootstrap.figures(Preferences(known, [1.0] * len(known)), range(len(known)))
    return found | {name: figures[name].model_dump() for name in SHOWN}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Evaluate a judge; returns the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=("rubrics", "pairs"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--judge", default="english-encoder")
    parser.add_argument("--base-url", help="server of the judge, if it is served")
    parser.add_argument("--metric", default="weighted", help="the score of a row; see `score --metric`")
    parser.add_argument("--subset-key", default="subset", help="key of a pair's subset")
    parser.add_argument("--pipeline", help="writes the checklists of pairs that have none")
    parser.add_argument("--writer", help="the model of the pipeline")
    parser.add_argument("--writer-url", help="server of the writer, if it is served")
    parser.add_argument("--output", type=Path, default=Path("runs/published"))
    parser.add_argument("--resamples", type=int, default=1000)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    scorer = ChecklistScorer(
        args.judge, base_url=args.base_url, metric=args.metric, store=args.output / "store.sqlite"
    )
    found = (rubrics if args.kind == "rubrics" else pairs)(args, scorer, Bootstrap(args.resamples))
    save_json(args.output / "summary.json", found)
    text = tables(found)
    (args.output / "tables.md").write_text(f"{text}\n", encoding="utf-8")
    Console(width=200).print(text)
    return found


if __name__ == "__main__":
    run_main(main)
