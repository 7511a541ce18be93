"""Checklists against ratings of people: SummEval (Fabbri et al. 2021), as in table 4 of AutoChecklist.

A checklist of five questions per dimension, written here, scores summaries of news articles. Per dimension: Spearman
correlation and mean absolute error between the score on the scale from 1 to 5 (4 x P + 1, P the mean P(yes)) and the
mean rating of three experts. `validation.py` runs it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from studies.common import checklist_scores, data_file, json_lines
from studies.judges.floors import LENGTH, OVERLAP
from studies.judges.realsumm import content_recall

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.evaluation.agreement import Bootstrap, Numbers
from checklist_rewards.judges import Ask, Judge

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
CONSTANT = "always the median rating"
OF_EACH = 4
"""Summaries per article."""

Scores = Mapping[str, Sequence[float | None]]
"""By dimension, the score of every summary, in [0, 1]; None if it does not fit the model."""


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
    """The summaries of four random systems for each of some random articles, in the order of the articles."""
    return [rated for some in _drawn(data, documents, seed)[0] for rated in some]


def _drawn(data: str | Path, documents: int, seed: int) -> tuple[list[list[Rated]], list[Rated]]:
    """The chosen summaries by article, and all summaries of the other articles."""
    sources = json_lines(data_file("summeval/summeval_docs.jsonl.gz", data))
    articles = {row["doc_id"]: row["source"] for row in sources}
    by_document: dict[str, list[Rated]] = {}
    for row in json_lines(data_file("summeval/summeval_16sys_expert_mean.jsonl.gz", data)):
        rated = Rated(row["doc_id"], articles[row["doc_id"]], row["summary"], row["expert_mean"])
        by_document.setdefault(rated.document, []).append(rated)
    rng = random.Random(seed)
    order = rng.sample(sorted(by_document), len(by_document))
    chosen = [rng.sample(by_document[document], OF_EACH) for document in order[:documents]]
    return chosen, [rated for document in order[documents:] for rated in by_document[document]]


def judged(judge: Judge, rated: Sequence[Rated], progress: Progress | None = None) -> Scores:
    """Mean P(yes) of every summary, by dimension."""
    items = {name: [ChecklistItem(question=question) for question in some] for name, some in QUESTIONS.items()}
    checklists = [
        [Ask(item, one.summary, f"Summarize this article.\n\n{one.article}") for item in some]
        for one in rated
        for some in items.values()
    ]
    found = checklist_scores(judge, checklists, progress)
    return {name: found[place :: len(items)] for place, name in enumerate(items)}


def floors(data: str | Path, documents: int, seed: int = 0) -> dict[str, Scores]:
    """Scores that need no judge, the same in every dimension but the last: the fraction of the summary's content words
    that are in the article, its number of characters, and the median rating of the other articles' summaries."""
    chosen, others = _drawn(data, documents, seed)
    rated = [one for some in chosen for one in some]
    overlaps = [content_recall(one.article, one.summary) for one in rated]
    lengths = [float(len(one.summary)) for one in rated]
    constant = {
        name: [(median(one.ratings[name] for one in others or rated) - 1) / 4] * len(rated) for name in QUESTIONS
    }
    return {
        OVERLAP: dict.fromkeys(QUESTIONS, overlaps),
        LENGTH: dict.fromkeys(QUESTIONS, lengths),
        CONSTANT: constant,
    }


def measure(scores: Scores, rated: Sequence[Rated], bootstrap: Bootstrap) -> dict[str, Any]:
    """Spearman correlation and MAE by dimension, with intervals over articles, and `n` summaries with a score. The MAE
    is None for scores outside [0, 1]."""
    found = {}
    for name, values in scores.items():
        known = [(value, one) for value, one in zip(values, rated, strict=True) if value is not None]
        if not known:
            found[name] = {"n": 0, "spearman": None, "mae": None}
            continue
        on_stars, ratings = [4 * value + 1 for value, _ in known], [one.ratings[name] for _, one in known]
        numbers = Numbers(on_stars, ratings, only=["spearman", "mae"])
        figures = bootstrap.figures(numbers, [one.document for _, one in known])
        on_scale = all(0 <= value <= 1 for value, _ in known)
        found[name] = {
            "n": len(known),
            "spearman": figures["spearman"].model_dump(),
            "mae": figures["mae"].model_dump() if on_scale else None,
        }
    return found


def best_and_worst(scores: Scores, rated: Sequence[Rated]) -> tuple[list[float | None], list[str]]:
    """For each article, the mean score over the dimensions of its best-rated summary minus that of its worst-rated
    one, of the four that were read; with the articles."""
    differences: list[float | None] = []
    documents = []
    for start in range(0, len(rated), OF_EACH):
        places = sorted(range(start, start + OF_EACH), key=lambda place: rated[place].overall)
        worst, best = places[0], places[-1]
        if rated[best].overall > rated[worst].overall:
            both = [[values[place] for values in scores.values()] for place in (best, worst)]
            means = [fmean(v for v in some if v is not None) if None not in some else None for some in both]
            differences.append(None if means[0] is None or means[1] is None else means[0] - means[1])
            documents.append(rated[start].document)
    return differences, documents
