"""The conformance probe: test whether a model can be used as a judge.

A wrong chat template, an open thinking block or a checkpoint without its output head all produce numbers that look
like scores. The probe asks a judge twelve obvious questions: six short texts and six questions, where each text has
one true and one false question, and each question is true for one text and false for another. Neither text nor
question alone gives the answer away, and a judge that always answers yes has a margin of 0. The questions are about
form and made-up words; `english` and `english-encoder`, which judge only what an English text says, are asked about
that.

[`probe`] bypasses the store, because it tests the engine. It answers the twelve items like any other reads, and lets
the judge write the first words of its answers to find the position of the label. A cross-encoder has no prompt and
writes no text, so it only answers the items. [`ProbeReport`] holds the results; its `refusal` is a sentence, or None
if the judge passed.

    >>> probe("pocket").refusal is None  # doctest: +SKIP
    True
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from checklist_rewards.backends import Backend, Engine, ReadGroup, Reply, Sampling
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.packaged import OF_CONTENT
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import BackendError
from checklist_rewards.judges.base import Ask
from checklist_rewards.judges.logprob import DEFAULT_MASS_FLOOR, LABELS
from checklist_rewards.judges.settings import JudgeConfig
from checklist_rewards.markers import END_THINK, THINK
from checklist_rewards.prompts import PromptTemplate, prompt_messages
from checklist_rewards.scores import DEFAULT_THRESHOLD
from checklist_rewards.scores.reasons import Unanswered

Thinking = Literal["none", "closed", "open"]

LEAST_MARGIN = 0.3
"""Smallest difference between the mean P(yes) of yes items and of no items."""
_ANSWERED = 0.5
_OPENING_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ProbeItem:
    """One question about one text, with the correct answer."""

    input: str
    target: str
    question: str
    holds: bool


def _items(*texts: tuple[str, str, str]) -> tuple[ProbeItem, ...]:
    """For each (input, target, question), its question, which is true, and that of the text before, which is false."""
    return tuple(
        ProbeItem(input, target, asked, asked == question)
        for place, (input, target, question) in enumerate(texts)
        for asked in (question, texts[place - 1][2])
    )


PROBE_ITEMS = _items(
    (
        'Write a short text. Mention the word "permo". Use bullet points.',
        "The small permo sees a quiet lemma. Every napve likes the old diske.",
        'Does the response mention the word "permo"?',
    ),
    (
        'Write a short text. Mention the word "permo". End with a question mark.',
        "The tetla follows our cold tusde near a happy sirsu?",
        "Does the response end with a question mark?",
    ),
    (
        "Write a short text. Use exactly 2 sentences. End with a question mark.",
        "My vuszi paints the red melzo! This gerfi wants a new selli.",
        "Does the response have exactly 2 sentences?",
    ),
    (
        "Write a short text. Write in lower case only. Use exactly 2 sentences.",
        "the timpo finds a small felso. every doknu is old. our mopko moves the bright gatko.",
        "Is the response written in lower case only?",
    ),
    (
        "Write a short text. Use at least one digit. Write in lower case only.",
        "The 24 ronto holds this zatte. A pongu sees the quiet kerva.",
        "Does the response contain a digit?",
    ),
    (
        "Write a short text. Use bullet points. Use at least one digit.",
        "- The red totbi likes a zotni.\n- Every rusne wants the happy zomta.",
        "Does the response use bullet points?",
    ),
)
"""About form and made-up words."""

_DAY, _SAYS = "Write one sentence about your day.", "Does the response say that"

CONTENT_ITEMS = _items(
    (_DAY, "The train was two hours late because of heavy snow.", f"{_SAYS} the train was late?"),
    (_DAY, "My sister cooked a tomato soup for the whole family.", f"{_SAYS} the sister cooked a soup?"),
    (_DAY, "The dog chased two cats across our garden.", f"{_SAYS} a dog chased cats?"),
    (_DAY, "The orchestra played a symphony by Beethoven.", f"{_SAYS} an orchestra played a symphony?"),
    (_DAY, "Our team won the football match by two goals.", f"{_SAYS} the team won the match?"),
    (_DAY, "The doctor told him to stay in bed with his fever.", f"{_SAYS} the doctor told him to stay in bed?"),
)
"""About what an English text says."""


@dataclass(frozen=True, slots=True)
class ProbeLine:
    """The judge's result on one item."""

    item: ProbeItem
    p_yes: float | None
    """P(yes) / (P(yes) + P(no)); None if the engine returned no probabilities."""
    mass: float | None
    unanswered: Unanswered | None
    opening: str | None
    """First words of the judge's own reply; None if generation failed."""
    answer: str | None = None
    """The label as a word, if the engine returned no probabilities."""

    @property
    def value(self) -> float | None:
        """P(yes), or 1 or 0 for the words yes and no; None if the item is unanswered."""
        if self.unanswered is not None or (self.p_yes is None and self.answer is None):
            return None
        return float(self.answer == YES) if self.p_yes is None else self.p_yes

    @property
    def label_at(self) -> int | None:
        """Position of the first label among the words of `opening`, from 1; None if it has no label."""
        words = re.findall(r"\w+", self.opening or "")
        return next((at for at, word in enumerate(words, start=1) if word.casefold() in LABELS), None)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The results of the probe for one judge."""

    model: str
    lines: tuple[ProbeLine, ...]
    threshold: float
    least_margin: float
    labels: dict[str, tuple[str, ...]] | None
    """Tokens whose probabilities are summed for each label; None for a server, whose tokenizer is not visible."""
    tail: str | None
    """End of the rendered prompt, from the question on; None for a server."""
    taken: int
    """Number of the judge's own replies that the server took for a thought as a whole, so that no text was left."""
    thinking: Thinking | None
    """Thinking block at the end of the prompt: none, closed (empty), or open, in which case the next token is a
    thought and not a label. For a server: open if the judge's own reply opens a block, else None (unknown)."""
    encoder: bool = False
    """Whether the judge is a cross-encoder, which has no prompt and writes no text: `labels`, `tail`, `thinking` and
    the openings are None."""

    @property
    def answered(self) -> int:
        """Number of answered items."""
        return sum(line.unanswered is None for line in self.lines)

    @property
    def accuracy(self) -> float:
        """Fraction of items answered correctly, in [0, 1]; an unanswered item counts as wrong."""
        correct = [line.value is not None and (line.value >= self.threshold) == line.item.holds for line in self.lines]
        return sum(correct) / len(correct)

    @property
    def yes_mean(self) -> float | None:
        """Mean P(yes) over the answered items whose answer is yes. A word counts as 1 or 0."""
        return self._mean(True)

    @property
    def no_mean(self) -> float | None:
        """Mean P(yes) over the answered items whose answer is no."""
        return self._mean(False)

    @property
    def margin(self) -> float | None:
        """`yes_mean - no_mean`, from -1 to 1; None if either side has no answer."""
        yes, no = self.yes_mean, self.no_mean
        return None if yes is None or no is None else yes - no

    @property
    def mass(self) -> float | None:
        """Mean label mass: the probability that the next token is a label."""
        masses = [line.mass for line in self.lines if line.mass is not None]
        return fmean(masses) if masses else None

    @property
    def words(self) -> int:
        """Number of items answered with a word, because the engine returned no probabilities."""
        return sum(line.value is not None and line.p_yes is None for line in self.lines)

    @property
    def label_first(self) -> int:
        """Number of the judge's own replies that start with a label."""
        return sum(line.label_at == 1 for line in self.lines)

    @property
    def refusal(self) -> str | None:
        """Why this judge must not be used, as one sentence; None if it passed the probe."""
        total, margin = len(self.lines), self.margin
        if self.answered < total * _ANSWERED or margin is None:
            reasons = sorted({str(line.unanswered.reason) for line in self.lines if line.unanswered})
            mass = "" if self.mass is None else f"; yes and no have {self.mass:.1%} of the next token's probability"
            return (
                f"the judge {self.model!r} answered {self.answered} of {total} known items ({', '.join(reasons)})"
                f"{mass}{self._hint()}."
            )
        if margin < self.least_margin:
            return (
                f"the judge {self.model!r} cannot tell yes from no: its mean P(yes) is {self.yes_mean:.2f} for yes "
                f"items and {self.no_mean:.2f} for no items, a margin of {margin:.2f}; at least "
                f"{self.least_margin:.2f} is required{self._hint()}."
            )
        return None

    @property
    def advice(self) -> str | None:
        """What to change on a server whose reasoning parser takes replies for thoughts, as one sentence; else None.

        Reads of one token are not affected: a judge may pass the probe and need this in the modes that write.
        """
        if not self.taken:
            return None
        return (
            f"the server's reasoning parser took {self.taken} of {len(self.lines)} replies for thoughts, so modes "
            "that write (batch, quality, capture_reasoning, samples) get no text; start vLLM without "
            "--reasoning-parser or, for a judge that thinks, allow more max_tokens than its thoughts are long"
        )

    def _mean(self, holds: bool) -> float | None:
        values = [line.value for line in self.lines if line.item.holds is holds and line.value is not None]
        return fmean(values) if values else None

    def _hint(self) -> str:
        if self.advice is not None:
            return f"; {self.advice}"
        if self.encoder:
            return (
                "; an encoder answers only what it was trained on: compare it with labels of such questions by `agree`"
            )
        if self.thinking == "open":
            return "; the prompt ends inside a thinking block, so switch thinking off in the chat template"
        opening = next((line.opening for line in self.lines if line.opening and line.label_at != 1), None)
        return f"; its reply starts with {opening[:40]!r}, not with a label" if opening is not None else ""


def probe(
    model: str | Engine = UNNAMED,
    *,
    prompt: str | Path | PromptTemplate | None = None,
    mass_floor: float = DEFAULT_MASS_FLOOR,
    threshold: float = DEFAULT_THRESHOLD,
    replies: bool = True,
) -> ProbeReport:
    """Ask a judge twelve questions with known answers.

    Args:
        model (`str` or [`Engine`]):
            The judge: a local folder, a Hub id, or an engine, such as that of a server.
        prompt, mass_floor (*optional*):
            As in [`JudgeConfig`].
        threshold (`float`, *optional*, defaults to `0.6`):
            Lowest P(yes) that counts as yes. Only `accuracy` depends on it.
        replies (`bool`, *optional*, defaults to `True`):
            Let the judge also write the first words of its answers, which show why labels have little probability.

    Returns:
        [`ProbeReport`]: The results, with a `refusal` if the judge must not be used.

    Raises:
        ModelError: If the model is not found, or its label probabilities cannot be read at all.
        SampleError: If `prompt` or `mass_floor` is given for a cross-encoder.
    """
    asked = Engine.of(model)
    judge = JudgeConfig(model=asked, prompt=prompt, mass_floor=mass_floor).build(store=False)
    judge.validate()
    engine = asked.load()
    assert judge.prompt is not None
    items = CONTENT_ITEMS if asked.model in OF_CONTENT else PROBE_ITEMS
    verdicts, _ = judge.answer([Ask(ChecklistItem(question=i.question), i.target, i.input) for i in items])
    written = _replies(engine, judge.prompt, items) if replies and engine.writes else [None] * len(items)
    openings = [None if reply is None else reply.text for reply in written]
    lines = tuple(
        ProbeLine(item, (v.probabilities or {}).get(YES), v.mass, v.unanswered, opening, v.answer)
        for item, v, opening in zip(items, verdicts, openings, strict=True)
    )
    tokens = asked.load().tokens
    tail = None if tokens is None else _tail(tokens, judge.prompt, items[0])
    return ProbeReport(
        model=judge.name,
        lines=lines,
        threshold=threshold,
        least_margin=LEAST_MARGIN,
        labels=None if tokens is None else _labels(tokens),
        tail=tail,
        taken=sum(r is not None and not (r.text or "").strip() and r.thought is not None for r in written),
        thinking=_thinking(tail, openings),
        encoder=asked.is_encoder,
    )


def _replies(engine: Backend, prompt: PromptTemplate, items: Sequence[ProbeItem]) -> Sequence[Reply | None]:
    prompts = [
        prompt_messages(prompt.system, prompt.prefix(target=i.target, input=i.input) + prompt.tail(i.question))
        for i in items
    ]
    try:
        replies = engine.generate(prompts, Sampling(max_tokens=_OPENING_TOKENS, temperature=0.0))
    except BackendError:
        return [None] * len(prompts)  # an engine that cannot generate can still be a judge
    return [reply for (reply,) in replies]


def _labels(tokens: Any) -> dict[str, tuple[str, ...]]:
    forms = tokens.label_groups((YES, NO))
    return {
        label: tuple(tokens.tokenizer.decode([token]) for token in ids)
        for label, ids in zip((YES, NO), forms, strict=True)
    }


def _tail(tokens: Any, prompt: PromptTemplate, item: ProbeItem) -> str:
    group = ReadGroup(
        prompt.system, prompt.prefix(target=item.target, input=item.input), (prompt.tail(item.question),)
    )
    return tokens.tokenizer.decode(tokens.groups([group])[0].tails[0], skip_special_tokens=False)


def _thinking(tail: str | None, openings: Sequence[str | None]) -> Thinking | None:
    if tail is None:
        return "open" if any(opening and opening.lstrip().startswith(THINK) for opening in openings) else None
    opened = tail.rfind(THINK)
    return "none" if opened < 0 else "closed" if tail.rfind(END_THINK) > opened else "open"
