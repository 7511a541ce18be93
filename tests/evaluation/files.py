"""Scored files as the command line writes them, made from verdicts instead of a judge."""

from collections.abc import Sequence
from pathlib import Path

from checklist_rewards.checklists import Checklist
from checklist_rewards.datasets.table import BatchScore
from checklist_rewards.evaluation.labels import Labels
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.scores import Aggregation, Score, Verdict, score_checklist

LOST = "lost"
NO_ANSWER = "no_answer: empty"
GRADED = {"question": "How clear?", "options": [{"label": "poor", "value": 0}, {"label": "fine", "value": 1}]}
ABSTAINING = {
    "question": "True?",
    "options": [{"label": "yes", "value": 1}, {"label": "no", "value": 0}, {"label": "cannot_assess", "na": True}],
}


def said(answer: object, judge: str = "fake") -> Verdict:
    """P(yes), or probabilities of options, or a word; LOST or None for a read that failed, NO_ANSWER for no text."""
    if answer is None or answer == LOST:
        return Verdict(unanswered="backend_error: gone", judge=judge)
    if answer == NO_ANSWER:
        return Verdict(unanswered=NO_ANSWER)
    if isinstance(answer, str):
        return Verdict(answer=answer, judge=judge, method="word")
    probabilities = answer if isinstance(answer, dict) else {"yes": float(answer), "no": 1 - float(answer)}
    return Verdict(probabilities, mass=0.9, judge=judge, method="logprobs")


def score_of(checklist: Checklist, *answers: object, judge: str = "fake", **rules: object) -> Score:
    """The score of a text of which the judge said this about each item. `rules` are those of `score_checklist`."""
    state = "empty" if NO_ANSWER in answers else "answered"
    return score_checklist(checklist, [said(each, judge) for each in answers], Aggregation(**rules), state=state)


def scored_file(path: str | Path, *rows: dict, judge: str = "fake", **rules: object) -> Path:
    """Each row has "checklist" and, under "said", what the judge says to every item; the rest is kept as columns.
    `rules` are those of `score_checklist`."""
    scores = [score_of(Checklist.parse(row["checklist"]), *row["said"], judge=judge, **rules) for row in rows]
    batch = BatchScore(scores, [{key: value for key, value in row.items() if key != "said"} for row in rows])
    (batch.to_parquet if str(path).endswith(".parquet") else batch.to_jsonl)(path)
    return Path(path)


def labelled(rows: Sequence[ScoredText], key: str = "labels") -> list[ScoredText]:
    """The rows with the labels in a column of theirs."""
    return Labels(key=key).of(rows)[0]


def copied(path: Path, name: str) -> Path:
    """The rows of a file in a file of another format, in the same folder."""
    with write_rows(path.parent / name) as copy:
        for row in read_rows(path):
            copy.write(row.data)
    return path.parent / name
