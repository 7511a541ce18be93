"""Instructions of open-instruct's verifiers and of IFBench that no other check can express, by name and arguments.

Policies are trained on them in `IF_multi_constraints_upto5` and its like; `ifeval.py` converts its rows. Each rule is
that of the verifier, odd cases included, so that a reward and the trainer's own agree; only words are cut by a pattern
of our own where the verifier uses NLTK (letters and digits, with apostrophes and hyphens inside; every other mark
alone). All take linear time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.checks.builtin import parts_of
from checklist_rewards.checks.ifbench import RULES, TOKEN, Arguments, Rule
from checklist_rewards.checks.ifeval_text import sentences_of

_MARKS = re.compile(r"[^\w\s]")


def _same(text: str, other: str) -> bool:
    return text.strip().casefold() == other.strip().casefold()


def _no_neighbours(text: str, _: Arguments) -> bool:
    letters = [word[0].lower() for word in text.split()]
    if any(len(letter) != 1 for letter in letters):
        return len(letters) < 2
    return all(ord(after) - ord(before) != 1 for before, after in zip(letters, letters[1:], strict=False))


def _hyphens(text: str, _: Arguments) -> bool:
    wanted = sentences_of(text.replace("-", " "))
    return all(
        part == sentence and part.strip() == part for part, sentence in zip(text.split("-"), wanted, strict=False)
    )


def _bigrams(text: str, _: Arguments) -> bool:
    words = text.split()
    return all(a.startswith("<<") and b.endswith(">>") for a, b in zip(words[::2], words[1::2], strict=False))


def _repeated_phrase(text: str, given: Arguments) -> bool:
    """The phrase occurs so often, each time with one other word between its first and its last."""
    phrase, words = given["phrase"].split(), text.split(" ")
    if len(phrase) < 2:
        return False
    found, start = [], None
    for place, word in enumerate(words):
        if start is None and word.endswith(phrase[0]):
            start = place
        elif start is not None and place > start + 1 and word.startswith(phrase[-1]):
            found.append([phrase[0], *words[start + 1 : place], phrase[-1]])
            start = None
    changed = [len(f) == len(phrase) and sum(a != b for a, b in zip(f, phrase, strict=True)) for f in found]
    return (
        len(found) == given["small_n"]
        and all(count is not False and count <= 1 for count in changed)
        and changed[-1:] == [1]
    )


def _composition(text: str, given: Arguments) -> bool:
    parts = parts_of(text, "***")
    inner = [part for n, part in enumerate(parts) if part.strip() or n not in (0, len(parts) - 1)]
    sentences = [sentences_of(part) for part in inner]
    return len(inner) == 3 and all(
        len(each) == given["n_sent"] and all(len(TOKEN.findall(one)) == given["n_words"] for one in each)
        for each in sentences
    )


def _position(text: str, given: Arguments) -> bool:
    sentences, n, m = sentences_of(text), given["n"], given["m"]
    words = TOKEN.findall(sentences[n - 1]) if 0 < n <= len(sentences) else []
    return 0 < m <= len(words) and words[m - 1] == given["keyword"].strip()


def _unique(text: str, _: Arguments) -> bool:
    words = TOKEN.findall(text)
    return len(words) == len(set(words))


def _start_end(text: str, _: Arguments) -> bool:
    words = TOKEN.findall(text)
    return len(words) > 1 and words[0].lower() == words[-1].lower()


def _first_words(text: str, given: Arguments) -> bool:
    return all(_same(sentence.split()[0], given["first_word"]) for sentence in sentences_of(text))


def _last_words(text: str, given: Arguments) -> bool:
    return all(_same(_MARKS.sub("", sentence.split()[-1]), given["last_word"]) for sentence in sentences_of(text))


def _first_word(text: str, given: Arguments) -> bool:
    return _same((text.split() or [""])[0], given["first_word"])


def _last_word(text: str, given: Arguments) -> bool:
    return _same(_MARKS.sub("", (text.split() or [""])[-1]), given["last_word"])


def _copied(text: str, given: Arguments) -> bool:
    times = given.get("N", 1)
    copies = text.split("******") if times > 1 else [text]
    return len(copies) == times and all(_same(copy, given["prompt_to_repeat"]) for copy in copies)


_TEXT, _NUMBER = str, int
_RULES: dict[str, tuple[Mapping[str, type[Any]], Rule, str]] = {
    **RULES,
    "keywords:no_adjacent_consecutive": (
        {},
        _no_neighbours,
        "avoid neighbouring words that start with neighbouring letters of the alphabet",
    ),
    "detectable_format:sentence_hyphens": ({}, _hyphens, "connect all sentences with hyphens, without spaces"),
    "detectable_format:bigram_wrapping": ({}, _bigrams, "wrap every two words in double angular brackets"),
    "detectable_format:square_brackets": (
        {},
        lambda text, _: all(w.startswith("[") and w.endswith("]") for w in text.split()),
        "put every word in square brackets",
    ),
    "copy:repeat_phrase": (
        {"phrase": _TEXT, "small_n": _NUMBER},
        _repeated_phrase,
        'repeat "{phrase}" {small_n} times with another word in its middle',
    ),
    "copy:copying_multiple": (
        {"prompt_to_repeat": _TEXT, "N": _NUMBER},
        _copied,
        "consist of the request, copied {N} times",
    ),
    "copy:copy": ({"prompt_to_repeat": _TEXT}, _copied, "consist of a copy of the request"),
    "count:counting_composition": (
        {"n_sent": _NUMBER, "n_words": _NUMBER},
        _composition,
        "have three paragraphs of {n_sent} sentences with {n_words} words each",
    ),
    "count:count_unique": ({}, _unique, "do without a repeated word"),
    "keywords:palindrome": (
        {},
        lambda text, _: any(word == word[::-1] for word in text.split()),
        "contain a palindrome",
    ),
    "keywords:keyword_specific_position": (
        {"keyword": _TEXT, "n": _NUMBER, "m": _NUMBER},
        _position,
        'have "{keyword}" as word {m} of sentence {n}',
    ),
    "keywords:start_end": ({}, _start_end, "start and end with the same word"),
    "first_word:first_word_sent": ({"first_word": _TEXT}, _first_words, 'start every sentence with "{first_word}"'),
    "first_word:first_word_answer": ({"first_word": _TEXT}, _first_word, 'start with the word "{first_word}"'),
    "last_word:last_word_sent": ({"last_word": _TEXT}, _last_words, 'end every sentence with "{last_word}"'),
    "last_word:last_word_answer": ({"last_word": _TEXT}, _last_word, 'end with the word "{last_word}"'),
}
"""The arguments, the rule and the words of a question, by the verifiers' names."""

VERIFIABLE = tuple(_RULES)
"""The names of the instructions."""


@register_check
class Verifiable(Check):
    """An instruction of open-instruct's verifiers or of IFBench, by its name and arguments."""

    offered = False
    summary = "The text follows this instruction of open-instruct's verifiers or of IFBench."
    example = {"name": "keywords:start_end"}
    type: Literal["verifiable"] = "verifiable"
    name: str
    arguments: Arguments = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Verifiable:
        if self.name not in _RULES:
            raise ValueError(f"unknown name {self.name!r}; allowed: {', '.join(VERIFIABLE)}")
        wanted = _RULES[self.name][0]
        for key, kind in wanted.items():
            value = self.arguments.get(key)
            if not isinstance(value, kind) or isinstance(value, bool) or value == "":
                raise ValueError(f"the argument {key!r} must be {'a text' if kind is str else 'a whole number'}")
        if unknown := self.arguments.keys() - wanted.keys():
            raise ValueError(f"unknown argument {sorted(unknown)[0]!r}; allowed: {', '.join(wanted) or 'none'}")
        return self

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return _RULES[self.name][1](text, self.arguments)


def verifiable_spec(name: str, arguments: Arguments) -> dict[str, Any]:
    """The specification of an instruction, from the arguments of a row; others are left out."""
    wanted = _RULES[name][0]
    texts = {key: value[0] if isinstance(value, list) and value else value for key, value in arguments.items()}
    return {"type": "verifiable", "name": name, "arguments": {key: texts[key] for key in wanted}}


def verifiable_words(name: str, arguments: Arguments) -> str:
    """What the instruction asks for, as the end of "Does the response ...?"."""
    return _RULES[name][2].format_map(arguments)
