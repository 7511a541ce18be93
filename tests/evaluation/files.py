"""Scored files as the command line writes them, made from verdicts instead of a judge."""

from pathlib import Path

from checklist_rewards.checklists import Checklist
from checklist_rewards.datasets.table import BatchScore
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.scores import Aggregation, Verdict, score_checklist

LOST = "lost"
NO_ANSWER = "no_answer: empty"


def said(answer: object, judge: str = "fake") -> Verdict:
    """P(yes), or probabilities of options, or a word; LOST for a read that failed, NO_ANSWER for no text."""
    if answer == LOST:
        return Verdict(unanswered="backend_error: gone", judge=judge)
    if answer == NO_ANSWER:
        return Verdict(unanswered=NO_ANSWER)
    if isinstance(answer, str):
        return Verdict(answer=answer, judge=judge, method="word")
    probabilities = {"yes": answer, "no": 1 - answer} if isinstance(answer, float) else answer
    return Verdict(probabilities, mass=0.9, judge=judge, method="logprobs")


def scored_file(path: str | Path, *rows: dict, judge: str = "fake", **rules: object) -> Path:
    """Each row has "checklist" and, under "said", what the judge says to every item; the rest is kept as columns.
    `rules` are those of `score_checklist`."""
    scores, kept = [], []
    for row in rows:
        checklist = Checklist.parse(row["checklist"])
        state = "empty" if NO_ANSWER in row["said"] else "answered"
        verdicts = [said(each, judge) for each in row["said"]]
        scores.append(score_checklist(checklist, verdicts, Aggregation(**rules), state=state))
        kept.append({key: value for key, value in row.items() if key != "said"})
    batch = BatchScore(scores, kept)
    (batch.to_parquet if str(path).endswith(".parquet") else batch.to_jsonl)(path)
    return Path(path)


def copied(path: Path, name: str) -> Path:
    """The rows of a file in a file of another format, in the same folder."""
    with write_rows(path.parent / name) as copy:
        for row in read_rows(path):
            copy.write(row.data)
    return path.parent / name
