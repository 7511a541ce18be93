"""Scores from files: the state that they record, and scored texts as `diff` compares them, small enough to keep many
on disk."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from checklist_rewards.checklists import NO, YES
from checklist_rewards.scores import Score, TargetState, item_keys


def recorded_state(score: Score | None) -> TargetState | None:
    """What the policy made of its turn; None for a score that an earlier version wrote, which had no states."""
    return score.state if score is not None and "state" in score.model_fields_set else None


class StoredRead(NamedTuple):
    """One answer of a stored score."""

    question: str
    answer: str | None
    """None if unanswered, or if the judge was not asked because the text has no answer."""
    p: float | None
    """P(yes), or the expected value of an item with options; None without probabilities."""
    value: float | None


class StoredScore(NamedTuple):
    """A scored text, as it is compared."""

    name: str
    """The row in messages: its id, or its place in the file."""
    step: int | None
    prompt: str | None
    text: str | None
    score: float | None
    reads: dict[str, StoredRead]
    """By item id; the second of two equal questions has the key `<id>#2`."""

    def dumped(self) -> str:
        """The row as JSON, for [`Matching`]."""
        return json.dumps(self)

    @classmethod
    def loaded(cls, text: str) -> StoredScore:
        """Parse what [`dumped`] wrote."""
        name, step, prompt, completion, score, reads = json.loads(text)
        by_key = {key: StoredRead(*read) for key, read in reads.items()}
        return cls(name, step, prompt, completion, score, by_key)


def stored_reads(score: Score | None) -> dict[str, StoredRead]:
    """The answers of a score, by item."""
    reads = {}
    lines = () if score is None else score.items
    for key, line in zip(item_keys(lines), lines, strict=True):
        answered = line.unanswered is None
        p = None
        if answered and line.probabilities is not None:
            p = line.probabilities.get(YES) if line.probabilities.keys() == {YES, NO} else line.soft
        value = (line.value if line.soft is None else line.soft) if answered else None
        reads[_encodable(key)] = StoredRead(_encodable(line.question), line.answer if answered else None, p, value)
    return reads


def _encodable(text: str) -> str:
    """The text with half surrogate pairs as escapes: the database of a comparison stores UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def record_of(one: StoredScore, other: StoredScore, advantages: tuple[float, float] | None) -> dict[str, Any]:
    """A row of the output of `diff`: both scores, advantages and answers of a text."""
    known = one.score is not None and other.score is not None
    return {
        "row": one.name,
        "step": one.step,
        "prompt": one.prompt,
        "completion": one.text,
        "score_one": one.score,
        "score_other": other.score,
        "change": other.score - one.score if known else None,  # type: ignore[operator]
        "advantage_one": None if advantages is None else advantages[0],
        "advantage_other": None if advantages is None else advantages[1],
        "flips": sum(
            None not in (read.answer, other.reads[key].answer) and read.answer != other.reads[key].answer
            for key, read in one.reads.items()
            if key in other.reads
        ),
        "items": [
            {
                "id": key,
                "question": read.question,
                "one": read.answer,
                "other": other.reads[key].answer,
                "p_one": read.p,
                "p_other": other.reads[key].p,
            }
            for key, read in one.reads.items()
            if key in other.reads
        ],
    }
