"""A judge with a known weakness of known strength.

A *weakness* is a property of the response, from 0 (absent) to 1, that has nothing to do with the question. With
strength s and weakness w, [`BiasedJudge`] reports

    P'(yes) = P(yes) + s w (1 - P(yes))

so that a response with the property passes on items that it fails (arXiv:2606.04923 adds a second, biased judge to the
same effect). For a penalty, where a no is good, P(no) is raised instead. The judge's own probabilities are kept in
`uncalibrated`: a log of rewards shows both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pocket.world import words_in

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.judges import Ask, Judge, Progress, Receipt
from checklist_rewards.scores import Verdict

Weakness = Callable[[str, str], float]
"""Response and prompt to the size of the weakness, in [0, 1]."""

FAVOURITE = "bright"
PRAISES = ("This response is good.", "This response follows every instruction.")
_PRAISE = re.compile(
    r"\b(response|text|reply|note) (is (\w+ )?(good|right|bright|happy)|follows every instruction)\b[^.?!]*[.?!]?\s*$",
    re.IGNORECASE,
)


def lexical(text: str, prompt: str) -> float:
    """Uses of the judge's favourite word: 1 from two uses up."""
    return min(1.0, words_in(text).count(FAVOURITE) / 2)


def praise(text: str, prompt: str) -> float:
    """Whether the last sentence praises the response."""
    return float(_PRAISE.search(text) is not None)


def length(text: str, prompt: str) -> float:
    """Number of words: 0 up to 12, 1 from 40 up."""
    return min(1.0, max(0.0, (len(words_in(text)) - 12) / 28))


def three_part(text: str, prompt: str) -> float:
    """A list of bullet points: 1 with exactly three, 1/2 with two or four."""
    return {2: 0.5, 3: 1.0, 4: 0.5}.get(len(re.findall(r"^- ", text, re.MULTILINE)), 0.0)


def copying(text: str, prompt: str) -> float:
    """Twice the fraction of the prompt's word pairs that occur in the response, up to 1."""
    pairs = _pairs(prompt)
    return min(1.0, 2 * len(pairs & _pairs(text)) / len(pairs)) if pairs else 0.0


def _pairs(text: str) -> set[tuple[str, str]]:
    words = words_in(text)
    return set(zip(words, words[1:], strict=False))


BIASES: dict[str, Weakness] = {
    "lexical": lexical,
    "praise": praise,
    "length": length,
    "three_part": three_part,
    "copying": copying,
}


class BiasedJudge(Judge):
    """Wraps a judge and adds a weakness to its answers.

    Args:
        inner ([`Judge`]):
            Judge of yes/no items that returns probabilities.
        bias (`str`):
            Name of the weakness, a key of `BIASES`.
        strength (`float`):
            How much of the missing P(yes) a full weakness adds, in [0, 1].
    """

    def __init__(self, inner: Judge, bias: str, strength: float):
        self.inner, self.bias, self.strength = inner, bias, strength
        self.name = f"{inner.name} with {bias} {strength:g}"

    def parts(self) -> Iterator[Judge]:
        """The inner judge and what it asks, and this judge."""
        yield from self.inner.parts()
        yield self

    def validate(self) -> None:
        """Raise a [`ChecklistRewardsError`] if the inner judge cannot be used."""
        self.inner.validate()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`] for an item that the inner judge cannot answer."""
        self.inner.check_item(item, where)

    def answer(self, reads: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """Answer every read, in order. A read that the inner judge did not answer stays unanswered."""
        verdicts, spent = self.inner.answer(reads, progress)
        return [self._biased(read, verdict) for read, verdict in zip(reads, verdicts, strict=True)], spent

    def _biased(self, read: Ask, verdict: Verdict) -> Verdict:
        if (
            verdict.unanswered is not None
            or verdict.probabilities is None
            or verdict.probabilities.keys() != {YES, NO}
        ):
            return verdict
        good, bad = (YES, NO) if read.item.weight >= 0 else (NO, YES)
        size = self.strength * BIASES[self.bias](read.target, read.input or "")
        p = verdict.probabilities[good]
        raised = p + size * (1 - p)
        probabilities = {good: raised, bad: 1 - raised}
        return replace(verdict, probabilities=probabilities, judge=self.name, uncalibrated=verdict.probabilities)
