"""Judge rows about what people type when they try a judge: short texts, examples, and things it was never taught.

The world's own texts are well formed and come with the world's instructions. Somebody who tries the judge writes
"the old lamo sees a bako?", with words of any shape, with an instruction of any wording or with none, shows examples
of how a question was answered, or asks what a tiny model cannot know. For the last there is no right answer: half of
these rows say yes and half say no, so that the judge stays in the middle, and on its two labels.
"""

from __future__ import annotations

import random
from functools import lru_cache

from pocket.data import Encoder, Row, free_text, sample_families
from pocket.world import ADJECTIVES, EVERYDAY_WORDS, SYLLABLES, TRAIN_WORDS, WORD_FAMILIES, Constraint, words_in

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges.examples import Example, FewShot
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
"""Texts without an end mark; a and b are words, j an adjective, n a number."""


def word(rng: random.Random) -> str:
    """A word of any shape: the world's, an everyday one, or a made-up one of other syllables."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(TRAIN_WORDS)
    if kind < 0.55:
        return rng.choice(EVERYDAY_WORDS)
    return "".join(rng.choices(SYLLABLES, k=rng.choice((2, 2, 3))))


def text(rng: random.Random) -> str:
    """A short text: one of `SHAPES` or of the world's sentences, its case and end as they come."""
    if rng.random() < 0.3:
        made = free_text(rng, 2, "train")
    else:
        parts = {"a": word(rng), "b": word(rng), "j": rng.choice(ADJECTIVES), "n": rng.randint(2, 40)}
        made = rng.choice(SHAPES).format(**parts)
        made += rng.choice(("", ".", ".", "?", "?", "!"))
        if rng.random() < 0.15:
            made = f"{made.rstrip('.?!')}{rng.choice('.?!')} {text(rng)}"
    return made[:1].upper() + made[1:] if rng.random() < 0.4 else made


@lru_cache(maxsize=1)
def _english() -> tuple[str, ...]:
    lines = [line.strip() for path in sorted(prompts_dir().rglob("*.md")) for line in path.read_text().splitlines()]
    return tuple(line for line in lines if 15 < len(line) < 160)


def english(rng: random.Random) -> str:
    """A line of English, or a few words of one, from the prompt files."""
    words = rng.choice(_english()).split()
    start = rng.randrange(len(words))
    return " ".join(words[start : start + rng.randint(3, 14)])


def question(rng: random.Random, target: str, family: str) -> Constraint:
    """A constraint of a family, whose word is as often in the text as not."""
    present = [w for w in words_in(target) if w.isalpha()]
    if family not in WORD_FAMILIES:
        return Constraint(family, rng.randint(1, 3) if family == "sentences" else None)
    likely = present[0] if present and family == "first" and rng.random() < 0.7 else None
    named = likely or (rng.choice(present) if present and rng.random() < 0.5 else word(rng))
    return Constraint(family, named)


def _asked(rng: random.Random, target: str, family: str) -> tuple[str, Constraint]:
    constraint = question(rng, target, family)
    wording = rng.choice(constraint.questions()) if rng.random() < 0.3 else constraint.question()
    return wording, constraint


def _instruction(rng: random.Random, target: str) -> str | None:
    kind = rng.random()
    if kind < 0.5:
        return None
    return english(rng) if kind < 0.8 else f"Say that {target.rstrip('.?!')}."


def plain_row(encoder: Encoder, rng: random.Random, questions: int) -> Row:
    """A short text and questions about it."""
    target = text(rng)
    asked = [_asked(rng, target, family) for family in sample_families(rng, questions)]
    return encoder.judged(target, _instruction(rng, target), [(q, c.holds(target)) for q, c in asked], ends=True)


def shown_row(encoder: Encoder, rng: random.Random, questions: int) -> Row:
    """Questions with a few examples of right answers before each, as few-shot judging puts them."""
    target = text(rng)
    prefix = encoder.chat(encoder.judge.system, encoder.judge.prefix(input=_instruction(rng, target), target=target))
    tails = []
    for family in sample_families(rng, questions):
        wording, c = _asked(rng, target, family)
        item = ChecklistItem(question=wording)
        texts = {text(rng) for _ in range(rng.randint(1, 4))}
        pool = [Example(t, "yes" if c.holds(t) else "no", wording) for t in sorted(texts)]
        asked = FewShot(pool).question(item, target, wording, words=None, reason_first=False)
        tails.append((encoder.ids(encoder.judge.tail(asked)), c.holds(target)))
    return encoder.tree(prefix, tails)


def unknown_row(encoder: Encoder, rng: random.Random, questions: int) -> Row:
    """What nobody can know: any English as text, instruction and question, answered by a coin."""
    target = english(rng) if rng.random() < 0.6 else text(rng)
    asked = [(english(rng).rstrip(".,:;") + rng.choice(("?", "?", ".")), rng.random() < 0.5) for _ in range(questions)]
    return encoder.judged(target, english(rng) if rng.random() < 0.5 else None, asked)
