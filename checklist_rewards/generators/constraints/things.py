"""The things that are counted, left out or required: their names, and the checks that count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from checklist_rewards.checks.ifeval import quantity, question_of_instruction
from checklist_rewards.generators.constraints.lexicon import ANCHORS, COUNTED, learn
from checklist_rewards.generators.constraints.reading import Clause, Spec

EMOJI = (
    r"\p{RI}\p{RI}|[0-9#*]\uFE0F?\u20E3"  # a flag; a keycap
    r"|(?:\p{Emoji}\uFE0F|\p{Emoji_Modifier_Base}\p{Emoji_Modifier}|(?!\p{RI})\p{Emoji_Presentation}(?!\uFE0E))"
    r"[\p{Emoji_Modifier}\U000E0020-\U000E007F]*"
    r"(?:\u200D[\p{Extended_Pictographic}\p{Emoji_Presentation}][\uFE0F\p{Emoji_Modifier}]*)*"
)
"""One emoji as people see it: with its skin tone, as a flag, as a sequence. A sign that is text by default (©, ™, ❤)
counts only with the variation selector that makes it an emoji."""
DASH = r"[–—]|(?<=\S[ \t])-{1,3}(?=[ \t])|(?<=\w)--(?=\w)"
"""A dash: also a hyphen between spaces, but not the hyphen of "well-known" or of a bullet point."""


def regex_check(expression: str, **bounds: int) -> Spec:
    """The specification of a check with a regular expression."""
    return {"type": "regex", "pattern": expression, **bounds}


def _letters(letters: str) -> Spec:
    return {"type": "letters", "letters": letters}


class Thing(NamedTuple):
    """What can be counted or left out."""

    words: str
    """Its names, as in `lexicon.py`."""
    spec: Spec | None
    """The check without bounds; None if no check counts it."""
    uses: str = "cn"
    """How it can be required: `c` counted, `n` none of it, `s` some of it."""
    basic: str = "mark"
    """Its basic word."""


def _cased(cases: str) -> str:
    return " ".join(
        f"{before}{case}{letters}"
        for before in ("", "all_", "english_")
        for case in cases.split()
        for letters in ("", "_letters", "_letter")
        if letters or case not in ("small", "english")
    )


_UPPER = f"{_cased('capital uppercase upper_case capitalized')} capitals caps all_capitals all_caps"
_CAPITAL = " ".join(f"{case}_word {case}_words words_in_{case} words_with_{case}" for case in _UPPER.split())
THINGS = {
    "words": Thing("word words", {"type": "words"}, "c", "word"),
    "sentences": Thing("sentence sentences", {"type": "sentences"}, "c", "piece"),
    "paragraphs": Thing("paragraph paragraphs", {"type": "paragraphs"}, "c", "piece"),
    "characters": Thing("character characters chars", regex_check(r"\X"), "c", "piece"),
    "non-empty lines": Thing("line lines", regex_check(r"(?m)^.*\S.*$"), "c", "piece"),
    "words in capital letters": Thing(_CAPITAL, {"type": "capital_words"}, "c"),
    "highlighted passages": Thing("highlighted_section highlighted_sections highlights", {"type": "highlights"}, "c"),
    "bullet points": Thing(
        "bullet_points bullet_point bullets bullet bulletpoints bullet_list bullet_lists bulleted_list bulleted_lists "
        "bullet_point_list bullet_points_list list_of_bullet_points",
        {"type": "bullets"},
        "cns",
    ),
    "placeholders": Thing("placeholder placeholders", {"type": "placeholders"}, "c"),
    "hashtags": Thing("hashtag hashtags", regex_check(r"(?<![\w#])#\w+")),
    "exclamation marks": Thing(
        "exclamation_mark exclamation_marks exclamation_point exclamation_points", _letters("!")
    ),
    "question marks": Thing("question_mark question_marks", _letters("?")),
    "commas": Thing("comma commas", _letters(",")),
    "semicolons": Thing("semicolon semicolons", _letters(";")),
    "colons": Thing("colon colons", _letters(":")),
    "hyphens": Thing("hyphen hyphens", _letters("-")),
    "dashes": Thing("dash dashes em_dash em_dashes en_dashes", regex_check(DASH)),
    "emojis": Thing("emoji emojis emoticons", regex_check(EMOJI)),
    "digits": Thing("digit digits numeral numerals numbers", _letters("0123456789"), "n"),
    "parentheses": Thing("parenthesis parentheses", _letters("()"), "n"),
    "full stops": Thing("period periods full_stop full_stops", _letters("."), "n"),
    "asterisks": Thing("asterisk asterisks", _letters("*"), "n"),
    "punctuation marks": Thing("punctuation punctuation_marks", regex_check(r"\p{P}"), "n"),
    "headings": Thing("heading headings markdown_heading markdown_headings", regex_check(r"(?m)^\s*#{1,6}\s"), "n"),
    "upper": Thing(_UPPER, {"type": "casing", "casing": "lower"}, "n", "caps"),
    "lower": Thing(_cased("lowercase lower_case small"), {"type": "casing", "casing": "upper"}, "n", "caps"),
    "parts": Thing(
        "section sections part parts point points key_point key_points idea ideas item items chapters scenes segments "
        "areas portions passages page pages syllable syllables stanza stanzas verses",
        None,
        "c",
        "section",
    ),
}
"""The things, by the name that a question gives them; casing by what is required."""
_PHRASES: dict[str, str] = {}
for _name, _row in reversed(THINGS.items()):
    for _phrase in _row.words.split():
        _PHRASES[_phrase.replace("_", " ")] = _name
    learn(_row.basic, _row.words.split(), COUNTED if _row.basic in ("word", "piece", "section") else ANCHORS)


def thing_at(clause: Clause, at: int) -> str:
    """The name of the thing at a place of a clause, "" for none."""
    return _PHRASES.get(clause.words[at], "")


NAMES = {str(list(thing.spec.values())[-1]): name for name, thing in THINGS.items() if thing.spec}
"""The names of what checks count, by their letters or pattern, or by their type alone."""


def question_of(check: Mapping[str, Any]) -> str:
    """The question that a check answers."""
    name = NAMES.get(check.get("letters") or check.get("pattern") or check["type"], "")
    if check.get("exactly") == 0 and (name or check["type"] == "letters"):
        without = name or f'the letter "{check["letters"]}"'
        return f"Does the response do without {without}?"
    if name and check["type"] in ("letters", "regex"):
        bounds = {name: value for name, value in check.items() if name in ("at_least", "at_most", "exactly")}
        return f"Does the response have {quantity(bounds, name)}?"
    return question_of_instruction(check)
