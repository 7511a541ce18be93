"""The things that are counted, left out or required: their names, and the checks that count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from checklist_rewards.checks.ifeval import quantity, question_of_instruction
from checklist_rewards.generators.constraints.lexicon import learn
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

    symbol: str
    words: str
    """Its names, as in `lexicon.py`."""
    spec: Spec | None
    """The check without bounds; None if no check counts it."""
    name: str
    uses: str = "c"
    """How it can be required: `c` counted, `n` none of it, `s` some of it."""
    every: bool = False
    """Each part of a response has it too."""
    text: bool = True
    """It cannot be counted in every language."""


THINGS = {
    "words": Thing("W", "word words", {"type": "words"}, "words", every=True),
    "sentences": Thing("S", "sentence sentences", {"type": "sentences"}, "sentences", every=True),
    "paragraphs": Thing("S", "paragraph paragraphs", {"type": "paragraphs"}, "paragraphs", text=False),
    "characters": Thing("S", "character characters", regex_check(r"\X"), "characters", every=True),
    "lines": Thing("S", "line lines", regex_check(r"(?m)^.*\S.*$"), "non-empty lines", every=True),
    "capital_words": Thing(
        "C", "capital_words all_caps_words all_capital_words capitalized_words uppercase_words words_in_all_caps "
        "words_in_all_capital_letters words_in_capital_letters words_with_all_capital_letters words_in_all_capitals "
        "words_with_all_caps words_using_all_caps words_in_uppercase fully_capitalized_words words_in_all_uppercase "
        "all_-_caps_words words_with_capital_letters all_capitalized_words all_caps_word capitalized_word "
        "words_in_caps all_cap_words capital_letter_words words_in_all_uppercase_letters",
        {"type": "capital_words"}, "words in capital letters"),
    "highlights": Thing(
        "C", "highlighted_sections highlighted_parts highlighted_section highlighted_phrases highlighted_words "
        "highlighted_passages highlighted_text_sections highlights italicized_sections italic_sections "
        "highlighted_segments highlighted_areas highlighted_portions",
        {"type": "highlights"}, "highlighted passages", text=False),
    "bullets": Thing("C", "bullet_points bullet_point bullets bulletpoints bullet bullet_point_list bullet_list "
                     "bullet_lists bulleted_list bulleted_lists bulleted_points bullet_items bulleted_items "
                     "bullet_points_list list_of_bullet_points", {"type": "bullets"}, "bullet points", "cns",
                     every=True, text=False),
    "placeholders": Thing("C", "placeholder placeholders place_holders", {"type": "placeholders"}, "placeholders",
                          text=False),
    "hashtags": Thing("C", "hashtag hashtags hash_tags", regex_check(r"(?<![\w#])#\w+"), "hashtags", "cn", text=False),
    "exclamation": Thing("C", "exclamation_mark exclamation_marks exclamation_point exclamation_points", _letters("!"),
                         "exclamation marks", "cn"),
    "question": Thing("C", "question_mark question_marks", _letters("?"), "question marks", "cn"),
    "commas": Thing("C", "comma commas", _letters(","), "commas", "cn"),
    "semicolons": Thing("C", "semicolon semicolons semi_colons", _letters(";"), "semicolons", "cn"),
    "colons": Thing("C", "colon colons", _letters(":"), "colons", "cn"),
    "hyphens": Thing("C", "hyphen hyphens", _letters("-"), "hyphens", "cn"),
    "dashes": Thing("C", "dash dashes em_dash em_dashes en_dashes", regex_check(DASH), "dashes", "cn"),
    "emojis": Thing("C", "emoji emojis emoticons", regex_check(EMOJI), "emojis", "cn", text=False),
    "digits": Thing("C", "digit digits numerals numbers numeral", _letters("0123456789"), "digits", "n"),
    "parentheses": Thing("C", "parentheses parenthesis", _letters("()"), "parentheses", "n"),
    "periods": Thing("C", "period periods full_stop full_stops", _letters("."), "full stops", "n"),
    "asterisks": Thing("C", "asterisk asterisks", _letters("*"), "asterisks", "n"),
    "punctuation": Thing("C", "punctuation punctuation_marks", regex_check(r"\p{P}"), "punctuation marks", "n"),
    "headings": Thing("C", "markdown_headings markdown_heading headings heading", regex_check(r"(?m)^\s*#{1,6}\s"),
                      "headings", "n"),
    "upper": Thing("Z", "capital_letters capital_letter capitals caps uppercase upper_case uppercase_letters "
                   "upper_case_letters uppercase_letter all_caps all_capital_letters all_capitals all_uppercase "
                   "all_uppercase_letters all_upper_case fully_capitalized all_capital capitalized_letters "
                   "all_capitalized capital english_capital_letters "
                   "all_upper_case_letters",
                   {"type": "casing", "casing": "lower"}, "", "n"),
    "lower": Thing("Z", "lowercase lower_case lowercase_letters lower_case_letters all_lowercase "
                   "all_lowercase_letters all_lower_case small_letters all_lower_case_letters "
                   "english_lowercase_letters all_small_letters "
                   "lowercase_english_letters ",
                   {"type": "casing", "casing": "upper"}, "", "n"),
    "parts": Thing("T", "sections section parts part points ideas items chapters scenes "
                   "segments areas segment area idea portion portions passage passages item point key_points "
                   "key_point",
                   None, "parts"),
    "pages": Thing("T", "page pages", None, "pages"),
    "syllables": Thing("T", "syllable syllables", None, "syllables"),
    "stanzas": Thing("T", "stanza stanzas verses", None, "stanzas"),
}  # fmt: skip
"""The things, by name."""
_NAMES: dict[str, str] = {}
for _name, _row in reversed(THINGS.items()):
    for _phrase in _row.words.split():
        _NAMES[_phrase.replace("_-_", "-").replace("_", " ")] = _name
    learn(_row.symbol, _row.words.split(), trigger=True)


def thing_at(clause: Clause, at: int) -> str:
    """The name of the thing at a place, "" for none."""
    return _NAMES.get(clause.words[at], "")


_NAMED = {str(list(thing.spec.values())[-1]): thing.name for thing in THINGS.values() if thing.spec}
"""The names of what checks count, by their letters or pattern, or by their type alone."""


def question_of(check: Mapping[str, Any]) -> str:
    """The question that a check answers."""
    bounds = {name: value for name, value in check.items() if name in ("at_least", "at_most", "exactly")}
    name = _NAMED.get(check.get("letters") or check.get("pattern") or check["type"], "")
    if bounds == {"exactly": 0} and (name or check["type"] == "letters"):
        without = name or f'the letter "{check["letters"]}"'
        return f"Does the response do without {without}?"
    if name and check["type"] in ("letters", "regex"):
        return f"Does the response have {quantity(bounds, name)}?"
    return question_of_instruction(check)
