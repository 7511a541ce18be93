"""Scored texts as `diff` compares them: small enough to keep many on disk."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from checklist_rewards.checklists import NO, YES
from checklist_rewards.scores import Score


class StoredRead(NamedTuple):
    """One answer of a stored score."""

    question: str
    answer: str | None
    """None if unanswered."""
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
    seen: Counter[str] = Counter()
    reads = {}
    for line in () if score is None else score.items:
        seen[line.id] += 1
        key = line.id if seen[line.id] == 1 else f"{line.id}#{seen[line.id]}"
        answered = line.unanswered is None
        p = None
        if answered and line.probabilities is not None:
            p = line.probabilities.get(YES) if line.probabilities.keys() == {YES, NO} else line.soft
        value = (line.value if line.soft is None else line.soft) if answered else None
        reads[key] = StoredRead(line.question, line.answer if answered else None, p, value)
    return reads


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
