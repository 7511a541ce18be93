"""Labels that people's answers do not give: negated questions, and questions about the form of a text.

People were asked what a text says, never what it does not say. A judge that has seen only their answers ignores the
*not* of a question, and looks for words where a question asks for capital letters. Two additions:

- *negated*: a label of a person, asked the other way round (`Is '...' missing from the summary?`), with the opposite
  label;
- *form*: questions about letters, signs, words and lists, whose answers code computes. The texts are those of the
  tasks, in other cases and layouts.

The wordings are not those of `probes.py`, nor those of `instructions.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence

from checklist_rewards.judges.labels import Labelled

NEGATED = {
    "realsumm": (
        "Is the following missing from the summary: '{}'?",
        "Does the summary leave out this fact: '{}'?",
        "Is it true that the summary does not say '{}'?",
        "Does the response not state that '{}'?",
        "Is it not mentioned that '{}'?",
    ),
    "semeval": (
        "Does the answer fail to express the following: '{}'?",
        "Does the response not mean the same as '{}'?",
        "Would a teacher who expects '{}' reject this answer?",
        "Is it wrong to say that this answer means '{}'?",
        "Is '{}' not what the answer says?",
    ),
    "argkp": (
        "Does the text not make this point: '{}'?",
        "Is '{}' absent from this argument?",
        "Does the response argue without saying that '{}'?",
        "Is it false that the argument could be summarized as '{}'?",
        "Does the author make no such claim: '{}'?",
    ),
    "evouna": (
        "Is the answer wrong, given that the right answer is '{}'?",
        "Does the response give an answer other than '{}'?",
        "Does the answer disagree with '{}'?",
        "Is '{}' not the answer of this response?",
        "Is the response incorrect, if '{}' is right?",
    ),
}
MOST_WORDS = 60
"""Longer texts are cut for questions about form."""
QUESTIONS = 4
"""Questions about the form of one text."""

_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")

Question = tuple[str, bool]
Kind = Callable[[str, str, random.Random], Question]


def negated(task: str, pair: Labelled, statement: str, rng: random.Random) -> Labelled:
    """The opposite question about the same text."""
    question = rng.choice(NEGATED[task]).replace("{}", statement)
    return Labelled(pair.target, question, 1 - pair.label, pair.group, pair.input, pair.reference)


def form_pairs(targets: Iterable[str], count: int, seed: int = 0) -> list[Labelled]:
    """Questions about the form of these texts, changed and unchanged; about as many answers yes as no.

    Args:
        targets (iterable of `str`): The texts.
        count (`int`): Number of labels.
        seed (`int`, *optional*, defaults to `0`): Seed of the changes and the questions.
    """
    rng = random.Random(seed)
    texts = [text for text in dict.fromkeys(targets) if len(_WORD.findall(text)) > 3]
    rng.shuffle(texts)
    pairs: list[Labelled] = []
    for number, text in enumerate(texts):
        if len(pairs) >= count:
            break
        layout, about = rng.choice(_LAYOUTS)
        changed = layout(rng.choice(_CASES)(" ".join(text.split()[:MOST_WORDS])))
        other = texts[(number + 1) % len(texts)]
        kinds = [kind for kind in rng.sample(KINDS, QUESTIONS) if kind is not about][: QUESTIONS - 1]
        for kind in [*kinds, about]:
            question, yes = _balanced(kind, changed, other, rng)
            pairs.append(Labelled(changed, question, float(yes), text))
    return pairs


def _bullets(text: str) -> str:
    words = text.split()
    size = max(2, len(words) // 4)
    return "\n".join(f"- {' '.join(words[start : start + size])}" for start in range(0, len(words), size))


def _highlighted(text: str) -> str:
    words = text.split()
    middle = len(words) // 2
    return " ".join([*words[:middle], f"*{words[middle]}*", *words[middle + 1 :]])


def _balanced(kind: Kind, text: str, other: str, rng: random.Random) -> Question:
    """A question of this kind: one whose answer is the wanted one if a few tries find it."""
    wanted = rng.random() < 0.5
    for _ in range(6):
        question = kind(text, other, rng)
        if question[1] == wanted:
            break
    return question


def _either(rng: random.Random, holds: bool, plain: Sequence[str], opposite: Sequence[str]) -> Question:
    """A plain question, or half as often its opposite."""
    if rng.random() < 1 / 3:
        return rng.choice(opposite), not holds
    return rng.choice(plain), holds


def _kind(holds: Callable[[str], bool], plain: Sequence[str], opposite: Sequence[str] = ()) -> Kind:
    """A kind of question with fixed wordings."""

    def kind(text: str, other: str, rng: random.Random) -> Question:
        if opposite:
            return _either(rng, holds(text), plain, opposite)
        return rng.choice(plain) if len(plain) > 1 else plain[0], holds(text)

    return kind


def _word(text: str, other: str, rng: random.Random) -> Question:
    word = rng.choice(_WORD.findall(rng.choice((text, other)))).lower()
    used = word in {some.lower() for some in _WORD.findall(text)}
    return _either(
        rng,
        used,
        (
            f"Does '{word}' occur in the text?",
            f"Is the word '{word}' used?",
            f"Does the writer use the word '{word}'?",
        ),
        (
            f"Is the text without the word '{word}'?",
            f"Is '{word}' never used?",
            f"Does the text not contain '{word}'?",
        ),
    )


def _first(text: str, other: str, rng: random.Random) -> Question:
    words = _WORD.findall(text)
    word = words[0] if rng.random() < 0.5 else rng.choice(words)
    holds = word.lower() == words[0].lower()
    return rng.choice((f"Is '{word}' the first word?", f"Does the text begin with '{word}'?")), holds


def _last(text: str, other: str, rng: random.Random) -> Question:
    words = _WORD.findall(text)
    word = words[-1] if rng.random() < 0.5 else rng.choice(words)
    holds = word.lower() == words[-1].lower()
    return rng.choice((f"Is '{word}' the last word?", f"Does the text finish with the word '{word}'?")), holds


def _length(text: str, other: str, rng: random.Random) -> Question:
    count = len(text.split())
    number = max(2, round(count * rng.choice((0.3, 0.5, 2, 3))))
    if rng.random() < 0.5:
        return f"Is the text longer than {number} words?", count > number
    return rng.choice((f"Is the text shorter than {number} words?", f"Is it at most {number} words long?")), (
        count < number
    )


def _end(text: str, other: str, rng: random.Random) -> Question:
    name, sign = rng.choice((("a question mark", "?"), ("an exclamation mark", "!"), ("a full stop", ".")))
    return rng.choice((f"Is the last sign {name}?", f"Does it close with {name}?")), text.endswith(sign)


_lower = _kind(
    lambda text: text == text.lower(),
    ("Are all letters of the text small?", "Is the response without capital letters?", "Is it all lowercase?"),
    ("Does the text have capital letters?", "Are some letters uppercase?"),
)
_upper = _kind(
    lambda text: text == text.upper(),
    ("Is every letter of the text a capital?", "Is the response in capitals?", "Is it all uppercase?"),
    ("Does the text have small letters?", "Are some letters lowercase?"),
)
_comma = _kind(
    lambda text: "," in text,
    ("Is there a comma in the text?", "Does the writer use commas?"),
    ("Is the text free of commas?", "Does the text not have a comma?", "Is it written with no comma?"),
)
_list = _kind(
    lambda text: text.startswith("- "),
    ("Is the text a list?", "Does the writer use bullets?", "Is it laid out as bullet points?"),
    ("Is the text not a list?", "Is it written without bullets?"),
)
_quotes = _kind(
    lambda text: text.startswith('"') and text.endswith('"'),
    ("Is the text put in double quotes?",),
)
_brackets = _kind(
    lambda text: re.search(r"\[.+\]", text) is not None,
    ("Is there something in square brackets?", "Does the text have a [placeholder]?"),
)
_title = _kind(
    lambda text: text.startswith("<<"),
    ("Is there a title in <<double angle brackets>>?", "Does it have a <<title>>?"),
)
_stars = _kind(
    lambda text: re.search(r"\*[^*]+\*", text) is not None,
    ("Is a part marked with *stars*?", "Is something highlighted, *like this*?"),
)
KINDS: tuple[Kind, ...] = (
    *(_lower, _upper, _word, _word, _comma, _first, _last, _list, _length, _end),
    *(_quotes, _brackets, _title, _stars),
)
"""Kinds of questions. That of a single word comes twice: it is the most common."""

_CASES: tuple[Callable[[str], str], ...] = (str, str, str.lower, str.lower, str.upper, str.upper, str.title)
_LAYOUTS: tuple[tuple[Callable[[str], str], Kind], ...] = (
    (str, _lower),
    (str, _upper),
    (str, _word),
    (lambda text: text.replace(",", ""), _comma),
    (lambda text: text.rstrip(" .") + "!", _end),
    (lambda text: text.rstrip(" .") + "?", _end),
    (lambda text: f'"{text}"', _quotes),
    (lambda text: f"<<{text.split()[0]}>>\n{text}", _title),
    (lambda text: f"{text} [name]", _brackets),
    (_bullets, _list),
    (_highlighted, _stars),
)
"""Changes of a text, each with the kind of question that is asked about it."""
