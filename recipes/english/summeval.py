"""Checklists against ratings of people: SummEval, as in tables 3 and 4 of AutoChecklist.

    python recipes/english/summeval.py MODEL [--adapter FOLDER] --output runs/summeval

A checklist of five questions per dimension, written here, scores summaries of news articles. Per dimension: Spearman
correlation and mean absolute error between the score on the scale from 1 to 5 (4 x P + 1, P the mean P(yes)) and the
mean rating of three experts. Over all dimensions: the best-rated against the worst-rated summary of each article: how
often the best has the higher score (win rate), Cohen's d of the difference, and the paired t-test.

AutoChecklist's figures are of checklists written by gpt-5-mini and scored by gpt-5, on 100 summaries (table 4), and on
RewardBench pairs (table 3), which are not in the data. Writes `<output>/<name>.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.judges import add_judge, judge_of, probabilities_of_yes  # noqa: E402
from english.tasks import DATA  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from checklist_rewards.checklists import ChecklistItem  # noqa: E402
from checklist_rewards.errors import ChecklistRewardsError, SampleError  # noqa: E402
from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Numbers, Preferences  # noqa: E402
from checklist_rewards.files.store import Store  # noqa: E402
from checklist_rewards.judges import Judge, Read  # noqa: E402

QUESTIONS: dict[str, tuple[str, ...]] = {
    "coherence": (
        "Does the summary have a clear order?",
        "Does each sentence of the summary follow from the one before it?",
        "Can the summary be understood without the article?",
        "Is the summary free of abrupt changes of subject?",
        "Do the sentences of the summary form one text?",
    ),
    "consistency": (
        "Is every fact of the summary in the article?",
        "Are all names in the summary those of the article?",
        "Does the summary agree with the article about who did what?",
        "Is the summary free of invented information?",
        "Are numbers and quotations in the summary those of the article?",
    ),
    "fluency": (
        "Is the summary grammatical?",
        "Are all sentences of the summary complete?",
        "Is the summary free of repeated words and fragments?",
        "Is the punctuation of the summary correct?",
        "Does the summary read naturally?",
    ),
    "relevance": (
        "Does the summary tell the main event of the article?",
        "Does the summary leave out unimportant details?",
        "Does the summary name the most important people or organizations?",
        "Would a reader of the summary know what the article is about?",
        "Is most of the summary about the main subject of the article?",
    ),
}
PUBLISHED = {
    "coherence": (0.755, 0.703),
    "consistency": (0.835, 0.565),
    "fluency": (0.819, 0.829),
    "relevance": (0.612, 0.719),
}
"""Best Spearman and best MAE of gpt-5-mini's checklists, scored by gpt-5 (AutoChecklist, table 4)."""


class Rated(NamedTuple):
    """A summary with the mean ratings of the experts, from 1 to 5."""

    document: str
    article: str
    summary: str
    ratings: Mapping[str, float]

    @property
    def overall(self) -> float:
        """Mean rating over the dimensions."""
        return fmean(self.ratings.values())


def load(data: str | Path, documents: int, seed: int = 0) -> list[Rated]:
    """Four summaries each of some articles: the best, the worst and two random ones."""
    folder = Path(data) / "summeval"
    if not folder.is_dir():
        raise SampleError(f"{folder}: folder not found; set CHECKLIST_REWARDS_DATA to the folder that contains it.")
    articles = {row["doc_id"]: row["source"] for row in _rows(folder / "summeval_docs.jsonl.gz")}
    by_document: dict[str, list[Rated]] = {}
    for row in _rows(folder / "summeval_16sys_expert_mean.jsonl.gz"):
        rated = Rated(row["doc_id"], articles[row["doc_id"]], row["summary"], row["expert_mean"])
        by_document.setdefault(rated.document, []).append(rated)
    rng = random.Random(seed)
    chosen = []
    for document in rng.sample(sorted(by_document), min(documents, len(by_document))):
        worst, *others, best = sorted(by_document[document], key=lambda rated: rated.overall)
        chosen += [best, worst, *rng.sample(others, 2)]
    return chosen


def _rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scores(judge: Judge, rated: Sequence[Rated]) -> dict[str, list[float]]:
    """Mean P(yes) of every summary, by dimension."""
    items = {name: [ChecklistItem(question=question) for question in some] for name, some in QUESTIONS.items()}
    reads = [
        Read(item, one.summary, f"Summarize this article.\n\n{one.article}")
        for one in rated
        for some in items.values()
        for item in some
    ]
    yes = iter(probabilities_of_yes(judge, reads))
    found: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    for _ in rated:
        for name, some in items.items():
            found[name].append(fmean(next(yes) for _ in some))
    return found


def measure(found: Mapping[str, Sequence[float]], rated: Sequence[Rated], bootstrap: Bootstrap) -> dict[str, Any]:
    """Figures by dimension, and of best against worst."""
    documents = [one.document for one in rated]
    dimensions: dict[str, dict[str, Figure]] = {}
    for name, values in found.items():
        numbers = Numbers([4 * value + 1 for value in values], [one.ratings[name] for one in rated])
        figures = bootstrap.figures(numbers, documents)
        dimensions[name] = {"spearman": figures["spearman"], "mae": figures["mae"]}
    overall = [fmean(values[place] for values in found.values()) for place in range(len(rated))]
    first = range(0, len(rated), 4)  # best, worst, two others
    pairs = Preferences(
        [overall[place] - overall[place + 1] for place in first],
        [rated[place].overall - rated[place + 1].overall for place in first],
    )
    preferred = bootstrap.figures(pairs, [documents[place] for place in first])
    wanted = ("wins", "losses", "ties", "difference", "cohens_d", "t_test_p")
    return {"dimensions": dimensions, "pairs": {name: preferred[name] for name in wanted}}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Evaluate one judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_judge(parser)
    parser.add_argument("--output", type=Path, default=Path("runs/summeval"))
    parser.add_argument("--documents", type=int, default=25, help="articles, with four summaries each")
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--name", default="judge", help="name of the file of the figures")
    args = parser.parse_args(argv)
    rated = load(args.data, args.documents)
    args.output.mkdir(parents=True, exist_ok=True)
    judge = judge_of(args.model, args.adapter, Store(args.output / "store.sqlite"))
    found = measure(scores(judge, rated), rated, Bootstrap())
    table = Table("", "Spearman", "MAE", "published: Spearman, MAE", title=f"{args.model}: {len(rated)} summaries")
    for name, line in found["dimensions"].items():
        table.add_row(name, line["spearman"].shown(), line["mae"].shown(), "{}, {}".format(*PUBLISHED[name]))
    console = Console(width=140)
    console.print(table)
    console.print(
        "best over worst: " + ", ".join(f"{name} {figure.shown()}" for name, figure in found["pairs"].items())
    )
    summary = {
        "model": args.model,
        "summaries": len(rated),
        "dimensions": {
            name: {key: figure.model_dump() for key, figure in line.items()}
            for name, line in found["dimensions"].items()
        },
        "pairs": {name: figure.model_dump() for name, figure in found["pairs"].items()},
    }
    (args.output / f"{args.name}.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


if __name__ == "__main__":
    try:
        main()
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None
