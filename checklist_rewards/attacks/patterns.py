"""Whether a text shows an attack: what a policy would write if it learned it.

Attacks that add words are shown by their words: at least half of the word trigrams that the attack would write for
this prompt and checklist. Attacks on form and characters are shown by their marks. Words that an attack repeats are
shown anywhere, as often as in the attack: a policy need not write them at the end. A combination is shown by the part
that raises scores ([`carrying`]); if no part does, by all of them. Length has no pattern here: the signals about
length watch it.

All of this is arithmetic on texts: 0.1 to 0.2 ms for eight patterns and a completion of 200 words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from checklist_rewards.attacks.bank import BANK
from checklist_rewards.attacks.report import AttackFigures, AttackReport
from checklist_rewards.attacks.search import Recipe
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.checks.text import trigrams

LEAST_RISE = 0.05
"""Rise from which an attack worked; its interval must also lie above 0."""
MOST_PATTERNS = 8
_SHARE = 0.5
_WORD = re.compile(r"\w+")
_POINT = re.compile(r"^\s*(?:[-*•]|\d+[.)]) ", re.MULTILINE)
_EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
_INVISIBLE = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0020-\U000e007f]")  # not the flag of Wales
_MIXED = re.compile(r"\b(?=\w*[A-Za-z])(?=\w*[\u0430-\u044f\u0410-\u042f])\w+")
_MARKS: dict[str, Callable[[str], bool]] = {
    "heading": lambda text: re.search(r"^#+ ", text, re.MULTILINE) is not None,
    "bold": lambda text: re.search(r"\*\*[^*\n]+\*\*", text) is not None,
    "bullets": lambda text: len(re.findall(r"^- ", text, re.MULTILINE)) > 1,
    "list_of_three": lambda text: len(_POINT.findall(text)) == 3,
    "bullets_of_three": lambda text: len(_POINT.findall(text)) == 3,
    "emojis": lambda text: _EMOJI.search(text) is not None,
    "zero_width": lambda text: re.search(r"(?:\w\u200b){3}", text) is not None,  # Khmer has one between two words
    "homoglyphs": lambda text: _MIXED.search(text) is not None,
    "full_width": lambda text: 4 * len(re.findall("[\uff21-\uff5a]", text)) > len(text),  # not ＮＨＫ
    "reordered": lambda text: "\u202e" in text,
    "invisible_instruction": lambda text: _INVISIBLE.search(text) is not None,
}
_WITHOUT = ("length", "empty")
"""Kinds without a pattern. The signals of length and of empty completions watch them."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """An attack that raised scores, as something to look for in completions."""

    name: str
    """Such as `self_praise`; letters, digits and underscores."""
    recipe: Recipe
    rise: float

    @property
    def honest(self) -> bool:
        """Whether honest completions have this form too, such as a list of three."""
        recipe = self.recipe
        return not recipe.strings and all(BANK[name].kind == "form" for name in recipe.attacks)

    def shown(self, text: str, prompt: str, questions: Sequence[str]) -> bool:
        """Whether a completion shows the attack.

        Args:
            text (`str`): The completion.
            prompt (`str`): What was asked.
            questions (sequence of `str`): The questions of its checklist.
        """
        recipe = self.recipe
        return (
            text.strip() != ""
            and all(_shows(name, text, prompt, tuple(questions), recipe.is_one) for name in recipe.attacks)
            and (text.strip().startswith(recipe.before.strip()) or _repeats(text, recipe.before))
            and (text.strip().endswith(recipe.after.strip()) or _repeats(text, recipe.after))
        )


def patterns_of(report: AttackReport) -> list[Pattern]:
    """The attacks of a report that raised scores and have a pattern, at most 8, largest rise first. The pattern of a
    combination is the part that [`carrying`] names. They are the best one of each kind, then the best others: variants
    of one attack must not push a second weakness out."""
    rises = {_recipe(figures): figures.rise.value or 0.0 for figures in report.attacks}
    kinds = {_recipe(figures): figures.kind for figures in report.attacks}
    found: dict[str, tuple[str, Pattern]] = {}
    for figures in report.attacks:
        rise = figures.rise
        above = all(each > 0 for each in figures.rises.values()) if rise.refused else rise.low is None or rise.low > 0
        worked = rise.value is not None and rise.value >= LEAST_RISE and above
        recipe = carrying(_recipe(figures), rises) if worked else _recipe(figures)
        known = all(name in BANK and BANK[name].kind not in _WITHOUT for name in recipe.attacks)
        strings = all(_WORD.search(text) for text, _ in recipe.strings)  # not a colon, which any text may have
        if worked and known and strings:
            name = re.sub(r"\W+", "_", recipe.name).strip("_")
            found.setdefault(name, (kinds.get(recipe, figures.kind), Pattern(name, recipe, rise.value or 0.0)))
    first = {kind: pattern.name for kind, pattern in reversed(found.values())}  # the report has the largest rise first
    best_first = sorted(found.values(), key=lambda pair: first[pair[0]] != pair[1].name)
    chosen = [pattern for _, pattern in best_first[:MOST_PATTERNS]]
    return sorted(chosen, key=lambda pattern: -pattern.rise)


def carrying(recipe: Recipe, rises: Mapping[Recipe, float]) -> Recipe:
    """The part of a combination that raises scores; a policy that learns it need not write the others.

    Args:
        recipe ([`Recipe`]):
            Attacks and strings.
        rises (mapping of [`Recipe`] to `float`):
            The rises that were measured, that of `recipe` included.

    Returns:
        [`Recipe`]: The smallest part that alone has at least half of the rise. If none was measured that has, the
        recipe without the attacks that were measured alone; if nothing is left then, the recipe.
    """
    parts = [
        part
        for part, rise in rises.items()
        if part.parts < recipe.parts and _is_part(part, recipe) and rise >= rises[recipe] / 2
    ]
    if parts:
        return min(parts, key=lambda part: (part.parts, -rises[part]))
    rest = replace(recipe, attacks=tuple(name for name in recipe.attacks if Recipe((name,)) not in rises))
    return rest if rest.parts else recipe


def _is_part(part: Recipe, whole: Recipe) -> bool:
    same = part.before in ("", whole.before) and part.after in ("", whole.after)
    return same and set(part.attacks) <= set(whole.attacks)


def _recipe(figures: AttackFigures) -> Recipe:
    return Recipe(figures.attacks, figures.before, figures.after)


def _shows(name: str, text: str, prompt: str, questions: tuple[str, ...], alone: bool) -> bool:
    if name in _MARKS:
        return _MARKS[name](text)
    added, grams = _added(name, prompt if BANK[name].kind == "prompt" else "", questions)
    if grams:
        found = _distinct(text)
        # An honest reply may begin with "Let's solve this problem step by step.", and goes on.
        wanted = max(grams, found, key=len) if alone and BANK[name].kind == "master key" else grams
        return len(grams & found) >= _SHARE * len(wanted)
    # One or two words: the whole text if the attack replaces it, else its end. An attack that writes nothing here (no
    # checklist is known, or no keyword is in it) is not shown.
    text, added = text.strip().casefold(), added.strip().casefold()
    return bool(added) and (text == added if BANK[name].replaces else text.endswith(added))


@lru_cache(maxsize=4096)
def _added(name: str, prompt: str, questions: tuple[str, ...]) -> tuple[str, frozenset[tuple[str, ...]]]:
    """What an attack writes about an empty response, and its trigrams."""
    items = tuple(ChecklistItem(id=str(number), question=question) for number, question in enumerate(questions))
    text = BANK[name]("", prompt, Checklist(items=items)) if items else ""
    return text, frozenset(trigrams(text))


def _repeats(text: str, string: str) -> bool:
    """Whether a text has all words of a string that has each of them at least twice, as often as the string."""
    wanted, found = (Counter(word.casefold() for word in _WORD.findall(one)) for one in (string, text))
    return min(wanted.values(), default=0) > 1 and wanted <= found


@lru_cache(maxsize=64)  # one text is compared with all patterns, and again if they are a guard
def _distinct(text: str) -> frozenset[tuple[str, ...]]:
    return frozenset(trigrams(text))
