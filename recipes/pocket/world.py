"""The pocket world: short instructions with constraints that code can check.

An instruction is an opener and two to five constraints (`Write a short text. Mention the word "bakto". Use exactly 2
sentences.`). A response is a few sentences of function words and invented content words of two syllables. Because
`Constraint.holds` is code, a judge, a checklist writer and a policy trained in this world can be measured exactly.

Two things are held out from training: the words of `TEST_WORDS`, which occur in no training text, and the pairs of
families in `UNSEEN_PAIRS`, which no training instruction combines.

This module requires only the standard library.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

Split = Literal["train", "test"]
Value = str | int | None

CONSONANTS, VOWELS, CODAS = "bdfgklmnprstvz", "aeiou", "klmnprst"
STEMS = tuple(c + v + d for c in CONSONANTS for v in VOWELS for d in CODAS)
SYLLABLES = tuple(c + v for c in CONSONANTS for v in VOWELS)
MARKS = (".", "?", "!")
_ALL_WORDS = [stem + syllable for stem in STEMS for syllable in SYLLABLES]
random.Random(7).shuffle(_ALL_WORDS)
TEST_WORDS, TRAIN_WORDS = tuple(_ALL_WORDS[:4000]), tuple(_ALL_WORDS[4000:])
EVERYDAY_WORDS = TRAIN_WORDS[:40]
"""Words that make up most of a generated response, so that the words of the instruction stand out."""
UNSEEN_PAIRS = (frozenset({"first", "bullets"}),)


def words_of(split: Split) -> tuple[str, ...]:
    """The content words of a split. The splits are disjoint."""
    return TRAIN_WORDS if split == "train" else TEST_WORDS


def words_in(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters and digits."""
    return re.findall(r"[a-z0-9]+", text.lower())


def count_sentences(text: str) -> int:
    """Number of sentences of a text. A sentence ends with a full stop, a question mark or an exclamation mark."""
    return len(re.findall(r"[.?!]+", text))


@dataclass(frozen=True)
class Family:
    """One kind of constraint: its instructions, its questions, and the check whether a text meets it."""

    instructions: tuple[str, ...]
    questions: tuple[str, ...]
    """The canonical question, then paraphrases on which the judge is trained too."""
    check: Callable[[str, Value], bool]
    values: tuple[int, ...] | None = None
    """Possible values, if the value is a number; otherwise None."""


FAMILIES: dict[str, Family] = {
    "mention": Family(
        ('Mention the word "{v}".', 'Use the word "{v}".', 'Include the word "{v}".'),
        ('Does the response mention the word "{v}"?', 'Does the word "{v}" appear in the response?'),
        lambda text, v: v in words_in(text),
    ),
    "avoid": Family(
        ('Do not use the word "{v}".', 'Avoid the word "{v}".', 'Leave out the word "{v}".'),
        ('Does the response avoid the word "{v}"?', 'Is the word "{v}" missing from the response?'),
        lambda text, v: v not in words_in(text),
    ),
    "first": Family(
        ('Begin with the word "{v}".', 'Start with the word "{v}".', 'Let the first word be "{v}".'),
        ('Does the response begin with the word "{v}"?', 'Is the first word of the response "{v}"?'),
        lambda text, v: words_in(text)[:1] == [v],
    ),
    "sentences": Family(
        ("Use exactly {v} sentences.", "Write exactly {v} sentences.", "Keep it to {v} sentences."),
        ("Does the response have exactly {v} sentences?", "Is the response exactly {v} sentences long?"),
        lambda text, v: count_sentences(text) == v,
        (1, 2, 3, 4),
    ),
    "question": Family(
        ("End with a question mark.", "Finish with a question.", "Let the text end in a question mark."),
        ("Does the response end with a question mark?", "Is the last sentence of the response a question?"),
        lambda text, v: text.rstrip().endswith("?"),
    ),
    "exclaim": Family(
        (
            "End with an exclamation mark.",
            "Finish with an exclamation mark.",
            "Let the text end in an exclamation mark.",
        ),
        ("Does the response end with an exclamation mark?", "Is an exclamation mark the end of the response?"),
        lambda text, v: text.rstrip().endswith("!"),
    ),
    "lowercase": Family(
        ("Write in lower case only.", "Use no capital letters.", "Keep all letters in lower case."),
        ("Is the response written in lower case only?", "Is the response free of capital letters?"),
        lambda text, v: text == text.lower(),
    ),
    "digits": Family(
        ("Use at least one digit.", "Include a digit.", "Write some number in digits."),
        ("Does the response contain a digit?", "Is there a digit in the response?"),
        lambda text, v: re.search(r"[0-9]", text) is not None,
    ),
    "no_digits": Family(
        ("Do not use digits.", "Avoid digits.", "Write without any digits."),
        ("Is the response free of digits?", "Does the response avoid digits?"),
        lambda text, v: re.search(r"[0-9]", text) is None,
    ),
    "bullets": Family(
        ("Use bullet points.", "Write it as a list of bullet points.", "Put each sentence in a bullet point."),
        ("Does the response use bullet points?", "Is the response a list of bullet points?"),
        lambda text, v: re.search(r"^- ", text, re.MULTILINE) is not None,
    ),
}
WORD_FAMILIES = ("mention", "avoid", "first")
OPENERS = (
    "Write a short text.",
    "Write a note.",
    "Write something.",
    "Write a text for me.",
    "Please write a short note.",
)
_CLASHES = (frozenset({"question", "exclaim"}), frozenset({"digits", "no_digits"}))
_ODDS = {"mention": 5, "avoid": 4, "first": 3, "sentences": 4}  # the other families: 2


def _phrase(pattern: str, value: Value) -> str:
    text = pattern.replace("{v}", str(value))
    return text.replace("1 sentences", "1 sentence") if value == 1 else text


@dataclass(frozen=True)
class Constraint:
    """One constraint of an instruction. `value` is a word, a number or None, depending on the family."""

    family: str
    value: Value = None

    def instruction(self, rng: random.Random) -> str:
        """A random wording of the instruction, a full sentence."""
        return _phrase(rng.choice(FAMILIES[self.family].instructions), self.value)

    def question(self) -> str:
        """The canonical yes/no question. Yes means that the constraint holds."""
        return _phrase(FAMILIES[self.family].questions[0], self.value)

    def questions(self) -> list[str]:
        """The canonical question and its paraphrases."""
        return [_phrase(pattern, self.value) for pattern in FAMILIES[self.family].questions]

    def holds(self, text: str) -> bool:
        """Whether `text` meets the constraint."""
        return FAMILIES[self.family].check(text, self.value)


@dataclass(frozen=True)
class Task:
    """An instruction and its constraints, in order."""

    instruction: str
    constraints: tuple[Constraint, ...]


def sample_task(rng: random.Random, *, split: Split) -> Task:
    """A task with two to five compatible constraints.

    `"test"` draws held-out words, and three in ten tasks combine a pair of families that training never combines.
    """
    families = _sample_families(rng, split)
    words = rng.sample(words_of(split), len(families))
    constraints = tuple(Constraint(f, _value(rng, f, w)) for f, w in zip(families, words, strict=True))
    sentences = [rng.choice(OPENERS), *(c.instruction(rng) for c in constraints)]
    return Task(" ".join(sentences), constraints)


def _value(rng: random.Random, family: str, word: str) -> Value:
    values = FAMILIES[family].values
    return word if family in WORD_FAMILIES else rng.choice(values) if values else None


def _sample_families(rng: random.Random, split: Split) -> list[str]:
    pool = [f for f in FAMILIES for _ in range(_ODDS.get(f, 2))]
    chosen = sorted(rng.choice(UNSEEN_PAIRS)) if split == "test" and rng.random() < 0.3 else []
    target = rng.choices((2, 3, 4, 5), (3, 4, 3, 1))[0]
    while len(chosen) < target:
        family = rng.choice(pool)
        again = family in chosen and (family not in ("mention", "avoid") or chosen.count(family) > 1)
        banned = _CLASHES + (UNSEEN_PAIRS if split == "train" else ())
        if not again and not any(pair <= {family, other} for pair in banned for other in chosen if len(pair) == 2):
            chosen.append(family)
    rng.shuffle(chosen)
    return chosen


def tasks(n: int, *, seed: int, split: Split) -> list[Task]:
    """`n` tasks. The same seed gives the same tasks."""
    rng = random.Random(f"{split}-{seed}")
    return [sample_task(rng, split=split) for _ in range(n)]


def satisfaction(task: Task, text: str) -> float:
    """Fraction of the task's constraints that `text` meets, in [0, 1]: the gold reward."""
    return sum(c.holds(text) for c in task.constraints) / len(task.constraints)


def distinct_questions(rng: random.Random, count: int) -> list[str]:
    """`count` different questions about words of the training split."""
    questions: dict[str, None] = {}
    while len(questions) < count:
        family = rng.choice(list(FAMILIES))
        questions[Constraint(family, rng.choice(FAMILIES[family].values or TRAIN_WORDS)).question()] = None
    return list(questions)


@lru_cache(maxsize=1)
def _question_patterns() -> list[tuple[str, re.Pattern[str]]]:
    patterns = []
    for name, family in FAMILIES.items():
        group = "([0-9]+)" if family.values else "([a-z]+)"
        for question in family.questions:
            pattern = re.escape(question).replace(re.escape("{v}"), group).replace(r"sentences", r"sentences?")
            patterns.append((name, re.compile(pattern)))
    return patterns


def parse_question(question: str) -> Constraint | None:
    """The constraint of a question or paraphrase; None for a question that is not from this world."""
    for name, pattern in _question_patterns():
        if match := pattern.fullmatch(question.strip()):
            value: Value = match.group(1) if match.groups() else None
            return Constraint(name, int(value) if FAMILIES[name].values and value else value)
    return None


@dataclass(frozen=True)
class Plan:
    """The properties of a text; `write_text` writes a text with exactly these."""

    sentences: int
    mark: str = "."
    lowercase: bool = False
    digits: bool = False
    bullets: bool = False
    first: str | None = None
    words: tuple[str, ...] = ()
    banned: frozenset[str] = field(default_factory=frozenset)


def sample_plan(rng: random.Random, max_sentences: int = 4) -> Plan:
    """A random plan. Each yes/no property is on in about half of the plans."""
    return Plan(
        sentences=rng.randint(1, max_sentences),
        mark=rng.choice(MARKS),
        lowercase=rng.random() < 0.5,
        digits=rng.random() < 0.5,
        bullets=rng.random() < 0.4,
    )


def write_response(rng: random.Random, task: Task, violate: float = 0.0, split: Split = "train") -> str:
    """A response to `task` that breaks each constraint with probability `violate`, independently.

    The rest of the text consists of everyday words, or, in a quarter of the texts, of any words of `split`.
    """
    plan = replace(
        sample_plan(rng), lowercase=rng.random() < 0.15, digits=rng.random() < 0.3, bullets=rng.random() < 0.15
    )
    for c in task.constraints:
        plan = _carry_out(rng, plan, c, rng.random() >= violate)
    return write_text(rng, plan, words_of(split) if rng.random() < 0.25 else EVERYDAY_WORDS)


def _carry_out(rng: random.Random, plan: Plan, c: Constraint, keep: bool) -> Plan:
    word = str(c.value)
    match c.family:
        case "mention" | "avoid":
            if (c.family == "mention") == keep:
                return replace(plan, words=(*plan.words, word))
            return replace(plan, banned=plan.banned | {word})
        case "first":
            return replace(plan, first=word) if keep else plan
        case "sentences":
            count = int(c.value or 1)
            return replace(plan, sentences=count if keep else rng.choice([n for n in (1, 2, 3, 4) if n != count]))
        case "question" | "exclaim":
            mark = "?" if c.family == "question" else "!"
            return replace(plan, mark=mark if keep else rng.choice([m for m in MARKS if m != mark]))
        case "no_digits":
            return replace(plan, digits=not keep)
        case _:
            return replace(plan, **{c.family: keep})


_DETERMINERS = ("the", "a", "the", "this", "every", "our", "my")
ADJECTIVES = ("small", "old", "red", "quiet", "new", "cold", "bright", "happy")
_VERBS = ("sees", "finds", "likes", "holds", "wants", "moves", "knows", "paints", "follows", "is")
_PREPOSITIONS = ("near", "under", "behind", "with", "from", "beside", "for", "over")
FUNCTION_WORDS = tuple(sorted({*_DETERMINERS, *ADJECTIVES, *_VERBS, *_PREPOSITIONS, "and"}))


def write_text(rng: random.Random, plan: Plan, vocabulary: tuple[str, ...]) -> str:
    """A text with exactly the properties of `plan`: sentences of one to four noun phrases.

    The planned words are the first nouns of the sentences in turn, a position that a small policy can learn to fill.
    """
    if plan.sentences <= 0:
        return ""
    homes = [i % plan.sentences for i in range(len(plan.words))]
    digit_home = rng.randrange(plan.sentences) if plan.digits else -1
    sentences = []
    for i in range(plan.sentences):
        words = [w for w, home in zip(plan.words, homes, strict=True) if home == i]
        last = i == plan.sentences - 1
        mark = plan.mark if last else rng.choice("....?!")
        sentence = _sentence(rng, plan, words, vocabulary, plan.first if i == 0 else None, i == digit_home)
        sentences.append((sentence if plan.lowercase else sentence[:1].upper() + sentence[1:]) + mark)
    return "\n".join(f"- {s}" for s in sentences) if plan.bullets else " ".join(sentences)


def _sentence(
    rng: random.Random, plan: Plan, words: list[str], vocabulary: tuple[str, ...], first: str | None, digit: bool
) -> str:
    count = max(len(words), rng.choice((1, 2, 2, 2, 3)))
    taken = plan.banned | {first} | set(plan.words)
    while len(words) < count:
        word = rng.choice(vocabulary)
        words = words if word in taken else [*words, word]
    phrases = [_noun_phrase(rng, w) for w in words]
    if digit:
        spot = rng.randrange(len(words))
        phrases[spot] = f"{rng.choice(('', 'the '))}{rng.randint(2, 40)} {words[spot]}"
        if phrases[0][0].isdigit() and not first:
            phrases[0] = f"the {phrases[0]}"
    if first:
        phrases.insert(0, first)
    if len(phrases) == 1:
        return f"{phrases[0]} is {rng.choice(ADJECTIVES)}"
    text = f"{phrases[0]} {rng.choice(_VERBS)} {phrases[1]}"
    for phrase in phrases[2:]:
        text += f" {rng.choice((*_PREPOSITIONS, 'and', 'and', 'and'))} {phrase}"
    return text


def _noun_phrase(rng: random.Random, word: str) -> str:
    kind = rng.random()
    if kind < 0.25:
        return word
    determiner = rng.choice(_DETERMINERS)
    return f"{determiner} {word}" if kind < 0.75 else f"{determiner} {rng.choice(ADJECTIVES)} {word}"
