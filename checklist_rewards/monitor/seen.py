"""What the monitor keeps of a completion: a few numbers per item, and a short text.

A [`Seen`] is computed from a [`ScoredText`], of a call or of a reward log. It holds only
what the signals compare, so that it is small enough to be sent between the ranks at every step.

An [`Observation`] holds the completions of one call of the reward, on all ranks. It is all that signals see, so the
same signals work in a training run and on a reward log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checklist_rewards.attacks.patterns import Pattern
from checklist_rewards.chat import prompt_text
from checklist_rewards.checklists import EVOLVING_CATEGORY
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.keys import content_key, described, prompt_identity
from checklist_rewards.monitor import text as texts
from checklist_rewards.scores import NO_ANSWER_STATES, Score, TargetState, item_keys

SHOWN = 2000
"""Characters of a text that are kept for alarms."""
PARTS = 8
"""Most parts of a step; see [`Observation.parts`]."""


@dataclass(frozen=True, slots=True)
class Line:
    """The answer to one item."""

    id: str
    category: str | None
    weight: float
    credit: float | None
    """Soft credit in [0, 1]; None if unanswered."""
    passed: bool | None
    mass: float | None
    unanswered: bool
    held_out: bool


@dataclass(frozen=True, slots=True)
class Retest:
    """One item read again."""

    item: str
    how: str
    """`reworded`, `reordered` (labels in another order), or `steering`: the item is the hidden steering question."""
    answer: str | None
    again: str | None
    """None if unanswered."""

    @property
    def flipped(self) -> bool | None:
        """Whether the answer changed; None if one is missing, and for the steering question."""
        if self.how == "steering" or self.answer is None or self.again is None:
            return None
        return self.answer != self.again


@dataclass(frozen=True, slots=True)
class Shadowed:
    """One completion read by both judges."""

    own: float
    shadow: float
    """Primary scores in [0, 1]."""
    agreement: tuple[int, int, int, int]
    """Number of items that pass with both judges, with the judge only, with the shadow judge only, with neither."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One completion."""

    group: str
    """Equal for the completions that the trainer compares; where that is not known, for those of one prompt and
    checklist."""
    prompt: str
    text: str
    """The judged text; what the policy wrote, if that has no answer."""
    reward: float | None
    score: float | None
    """Score over all items, before shaping and without regard to held-out items."""
    words: int
    repetition: float
    copied: float
    prompt_copied: float | None
    steering: str | None
    lines: tuple[Line, ...]
    """The answers of the judge; empty if it was not asked, because the completion has no answer."""
    shadow: Shadowed | None = None
    retests: tuple[Retest, ...] = ()
    prompt_key: str = ""
    """Hash of the whole prompt."""
    checklist: str | None = None
    """Hash of the checklist; None in logs without it."""
    own_items: str = ""
    """Hash of its items that do not evolve: those of the row in the dataset."""
    state: TargetState | None = None
    """What the policy made of its turn; None in logs without it."""
    attacks: tuple[str, ...] = ()
    """Names of the known attacks that the text shows."""

    @property
    def answered(self) -> bool:
        """Whether the completion has an answer, as far as is recorded."""
        return self.state not in NO_ANSWER_STATES


@dataclass(frozen=True)
class Observation:
    """The completions of one call of the reward, on all ranks."""

    step: int
    seen: Sequence[Seen]
    in_step: Mapping[str, Mapping[str, int]] | None = None
    """The [`openings`] of the whole step, if these are a part of it."""

    @cached_property
    def openings(self) -> Mapping[str, Mapping[str, int]]:
        """How many completions with an answer begin with the same words: by these words, then by prompt."""
        openings: dict[str, Counter[str]] = {}
        for one in self.answered:
            openings.setdefault(texts.opening(one.text), Counter())[self.prompts[one.group]] += 1
        return openings

    @cached_property
    def prompts(self) -> Mapping[str, str]:
        """The prompt of each group: that of its first completion. Environments may change it for the others."""
        prompts: dict[str, str] = {}
        for one in self.seen:
            prompts.setdefault(one.group, one.prompt_key or one.group)
        return prompts

    @cached_property
    def groups(self) -> Mapping[str, Sequence[Seen]]:
        """The completions by group."""
        groups: dict[str, list[Seen]] = {}
        for one in self.seen:
            groups.setdefault(one.group, []).append(one)
        return groups

    @cached_property
    def parts(self) -> list[Observation]:
        """The completions as at most [`PARTS`] observations. Those of one prompt are in the same one."""
        places: dict[str, int] = {}
        parts: list[list[Seen]] = []
        for one in self.seen:
            place = places.setdefault(self.prompts[one.group], len(places)) % PARTS
            if place == len(parts):
                parts.append([])
            parts[place].append(one)
        return [Observation(self.step, part, self.openings) for part in parts]

    @cached_property
    def rewarded(self) -> list[list[Seen]]:
        """The groups, without completions that have no reward, as far as two remain."""
        groups = [[one for one in group if one.reward is not None] for group in self.groups.values()]
        return [group for group in groups if len(group) > 1]

    @property
    def answered(self) -> list[Seen]:
        """The completions with an answer."""
        return [one for one in self.seen if one.answered]


def seen_of(text: ScoredText, retests: Sequence[Retest] = (), attacks: Sequence[Pattern] = ()) -> Seen:
    """Reduce a completion to what the signals need.

    `text` is a row of a reward log, or a completion of a call in this shape: `completion` is the judged text,
    `written` what the policy wrote if that has no answer, and `group` the group of the completion, which defaults to
    its prompt and items. `attacks` are looked for in the text."""
    data, score, judged = text.data, text.score, text.data["completion"]
    prompt, written, group = data.get("prompt"), data.get("written"), data.get("group")
    items = () if score is None else score.items
    held_out, shadow = text.held_out, text.shadow
    lines = tuple(
        Line(
            item.id,
            item.category,
            item.weight,
            item.credit(),
            item.passed,
            item.mass,
            item.unanswered is not None,
            item.id in held_out,
        )
        for item in (() if score is None or score.no_answer else items)
        if not item.not_needed
    )
    own_items = [item.id for item in items if item.category != EVOLVING_CATEGORY]
    question, identity = asked(prompt), prompt_identity(prompt, text.prompt_images)
    questions = [item.question for item in items]
    return Seen(
        group if isinstance(group, str) else content_key([identity, [item.id for item in items]]),
        question[:SHOWN],
        (judged if written is None else _shown(written))[:SHOWN],
        text.reward,
        None if score is None else score.primary_score,
        texts.words(judged),
        texts.repetition(judged),
        texts.copied(judged, questions),
        texts.prompt_copied(judged, question),
        texts.steering(judged),
        lines,
        None if shadow is None or score is None else _shadowed(score, shadow),
        tuple(retests),
        content_key(identity),
        text.checklist_hash,
        content_key(own_items),
        text.state,
        tuple(pattern.name for pattern in attacks if pattern.shown(judged, question, questions)),
    )


def asked(prompt: Any) -> str:
    """A prompt as one text."""
    if isinstance(prompt, str):
        return prompt
    try:
        input, history = prompt_text(prompt, images="ignore")
    except SampleError:
        return str(described(prompt))
    return "\n\n".join(part for part in (history, input) if part)


def _shown(written: Any) -> str:
    return written if isinstance(written, str) else json.dumps(described(written), ensure_ascii=False)


def _shadowed(score: Score, shadow: Score) -> Shadowed | None:
    if score.no_answer or shadow.no_answer or score.primary_score is None or shadow.primary_score is None:
        return None
    theirs = {key: line.passed for key, line in zip(item_keys(shadow.items), shadow.items, strict=True)}
    # Code checks are the same on both sides, so they say nothing about the judges.
    table = [0, 0, 0, 0]
    for key, line in zip(item_keys(score.items), score.items, strict=True):
        other = theirs.get(key)
        if line.passed is not None and other is not None and not line.by_code:
            table[2 * (not line.passed) + (not other)] += 1
    return Shadowed(score.primary_score, shadow.primary_score, (table[0], table[1], table[2], table[3]))
