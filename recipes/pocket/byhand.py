"""Judge rows of what people type when they try the judge: short texts, examples, and questions it cannot answer.

Texts of the pocket world are well-formed and come with its instructions. A user who tries the judge types "the old
lamo sees a bako?", uses words of any form and an instruction of any wording or none, adds examples of answered
questions, or asks what a tiny model cannot know. Questions of the last kind have no correct answer: half of these rows
are answered yes and half no, so that P(yes) stays near 0.5 and the mass on the two labels.
"""

from __future__ import annotations

import random
from functools import lru_cache

from pocket.data import Encoder, Row, free_text, sample_families
from pocket.world import ADJECTIVES, EVERYDAY_WORDS, SYLLABLES, TRAIN_WORDS, WORD_FAMILIES, Constraint, words_in

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges import FewShot, Labelled
from checklist_rewards.prompts import prompts_dir

SHAPES = (
    "{a}",
    "{a} {b}",
    "a {a}",
    "a {a} is {j}",
    "the {a} is {j}",
    "the {j} {a} sees a {b}",
    "the {a} and the {b}",
    "the {n} {a}s",
    "my {n} {a} like this",
    "are there {n} {a}",
    "is it a {a}",
    "is the {a} {j}",
    "{a}, {b} and {a}",
    "say {a}",
    "here is the {a}",
    "I like my {a} {j}",
    "{a} is near the {b}",
    "it is {j}",
    "no {a} here",
    "hello",
)
"""Texts without an end mark: a and b are words, j is an adjective, n is a number."""


def word(rng: random.Random) -> str:
    """A word of any form: of the pocket world, an everyday word, or made up of other syllables."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(TRAIN_WORDS)
    if kind < 0.55:
        return rng.choice(EVERYDAY_WORDS)
    return "".join(rng.choices(SYLLABLES, k=rng.choice((2, 2, 3))))


def text(rng: random.Random) -> str:
    """A short text: one of `SHAPES` or sentences of the pocket world, with random case and end mark."""
    if rng.random() < 0.3:
        typed = free_text(rng, 2, "train")
    else:
        parts = {"a": word(rng), "b": word(rng), "j": rng.choice(ADJECTIVES), "n": rng.randint(2, 40)}
        typed = rng.choice(SHAPES).format(**parts)
        typed += rng.choice(("", ".", ".", "?", "?", "!"))
        if rng.random() < 0.15:
            typed = f"{typed.rstrip('.?!')}{rng.choice('.?!')} {text(rng)}"
    return typed[:1].upper() + typed[1:] if rng.random() < 0.4 else typed


@lru_cache(maxsize=1)
def _english() -> tuple[str, ...]:
    lines = [line.strip() for path in sorted(prompts_dir().rglob("*.md")) for line in path.read_text().splitlines()]
    return tuple(line for line in lines if 15 < len(line) < 160)


def english(rng: random.Random) -> str:
    """A few words of a line of the prompt files."""
    words = rng.choice(_english()).split()
    start = rng.randrange(len(words))
    return " ".join(words[start : start + rng.randint(3, 14)])


def question(rng: random.Random, target: str, family: str) -> Constraint:
    """A constraint of a family. Its word occurs in about half of the texts."""
    present = [w for w in words_in(target) if w.isalpha()]
    if family not in WORD_FAMILIES:
        return Constraint(family, rng.randint(1, 3) if family == "sentences" else None)
    likely = present[0] if present and family == "first" and rng.random() < 0.7 else None
    named = likely or (rng.choice(present) if present and rng.random() < 0.5 else word(rng))
    return Constraint(family, named)


def _question(rng: random.Random, target: str, family: str) -> tuple[str, Constraint]:
    constraint = question(rng, target, family)
    wording = rng.choice(constraint.questions()) if rng.random() < 0.3 else constraint.question()
    return wording, constraint


def _instruction(rng: random.Random, target: str) -> str | None:
    kind = rng.random()
    if kind < 0.5:
        return None
    return english(rng) if kind < 0.8 else f"Say that {target.rstrip('.?!')}."


def plain_row(encoder: Encoder, rng: random.Random, questions: int) -> Row:
    """A short text with questions."""
    target = text(rng)
    pairs = [_question(rng, target, family) for family in sample_families(rng, questions)]
    return encoder.judged(target, _instruction(rng, target), [(q, c.holds(target)) for q, c in pairs], ends=True)


def shown_row(encoder: Encoder, rng: random.Random, questions: int) -> Row:
    """Questions with a few correctly answered examples before each, as in few-shot judging."""
    target = text(rng)
    prefix = encoder.chat(encoder.judge.system, encoder.judge.prefix(input=_instruction(rng, target), target=target))
    tails = []
    for family in sample_families(rng, questions):
        wording, c = _question(rng, target, family)
        item = ChecklistItem(question=wording)
        texts = {text(rng) for _ in range(rng.randint(1, 4))}
        pool = [Labelled(t, wording, "yes" if c.holds(t) else "no") for t in sorted(texts)]
        rendered = FewShot(pool).question(item, target, wording, words=None, reason_first=False)
        tails.append((encoder.ids(encoder.judge.tail(rendered)), c.holds(target)))
    return encoder.tree(prefix, tails)


def unknown_row(encoder: Encoder, rng: random.Random, questions: int) -> Row:
    """Questions without a correct answer: random English as text, instruction and question, answered at random."""
    target = english(rng) if rng.random() < 0.6 else text(rng)
    pairs = [(english(rng).rstrip(".,:;") + rng.choice(("?", "?", ".")), rng.random() < 0.5) for _ in range(questions)]
    return encoder.judged(target, english(rng) if rng.random() < 0.5 else None, pairs)
