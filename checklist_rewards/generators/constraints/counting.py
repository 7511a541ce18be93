"""What is counted: a table of things, and the rules that read how many of them are required.

Each [`Thing`] has the words that name it and the check without its bounds. "At most 3 commas", "commas at most three
times", "no commas" and "commas are forbidden" are read from the same row. A number of words or characters without any
comparison is usually meant approximately, so it gives no check; a number of sentences or paragraphs is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from checklist_rewards.generators.constraints.amounts import (
    NUMBER,
    Amount,
    Bounds,
    amount,
    has_number,
    number,
    numbers,
    quantity,
)
from checklist_rewards.generators.constraints.filtering import A_PART, APPROXIMATE, UNCLEAR, Found
from checklist_rewards.generators.constraints.reading import Clause, Spec, Strings, pattern


def regex_check(expression: str, **bounds: int) -> Spec:
    """The specification of a check with a regular expression."""
    return {"type": "regex", "pattern": expression, **bounds}


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


class Thing(NamedTuple):
    """What can be counted or left out."""

    noun: str
    """Pattern of its name."""
    spec: Spec | None
    """The check without bounds; None if no check counts it."""
    name: str
    uses: str
    """How it can be required: `c` counted, `n` none of it."""
    every: bool = False
    """Each part of a response has it too."""
    text: bool = True
    """It cannot be counted in every language."""


def _letters(letters: str) -> Spec:
    return {"type": "letters", "letters": letters}


_CAPS = "(?:capital letters?|capitals|all-?caps|caps|upper-?case)"
_PASSAGES = "(?:sections?|parts?|phrases?|passages?|words?|texts?|portions?|areas?|segments?)"
THINGS = {
    "capital_words": Thing(
        r"(?:(?:all[- ]?caps?|(?:(?:fully|entirely|all)[- ])?(?:capital(?:ized|ised)?|upper-?case)) words?"
        rf"|words? (?:[a-z]+ ){{0,4}}?(?:in|with|using) (?:all |only |full |fully )?-?{_CAPS}(?: letters)?)",
        {"type": "capital_words"}, "words in capital letters", "c"),
    "highlights": Thing(
        rf"(?:(?:highlighted (?:[a-z]+ )?|(?:italic|italici[sz]ed|emphasi[sz]ed) (?:text )?){_PASSAGES}|highlights\b)",
        {"type": "highlights"}, "highlighted passages", "c", text=False),
    "words": Thing("words?", {"type": "words"}, "words", "c", every=True),
    "sentences": Thing("sentences?", {"type": "sentences"}, "sentences", "c", every=True),
    "paragraphs": Thing("paragraphs?", {"type": "paragraphs"}, "paragraphs", "c", text=False),
    "bullets": Thing("(?:bullet(?:ed)?[- ]?(?:points?|items?)|bullets?|bulletpoints?)", {"type": "bullets"},
                     "bullet points", "cn", text=False),
    "placeholders": Thing("place-?holders?", {"type": "placeholders"}, "placeholders", "c", text=False),
    "hashtags": Thing("hash ?tags?", regex_check(r"(?<![\w#])#\w+"), "hashtags", "cn", text=False),
    "exclamation": Thing("exclamation (?:marks?|points?)", _letters("!"), "exclamation marks", "cn"),
    "question": Thing("question marks?", _letters("?"), "question marks", "cn"),
    "commas": Thing("commas?", _letters(","), "commas", "cn"),
    "semicolons": Thing("semi-?colons?", _letters(";"), "semicolons", "cn"),
    "colons": Thing("colons?", _letters(":"), "colons", "cn"),
    "hyphens": Thing("hyphens?", _letters("-"), "hyphens", "cn"),
    "dashes": Thing("(?:(?:em |en |em-|en-)?dash(?:es)?)", regex_check(DASH), "dashes", "cn"),
    "emojis": Thing("(?:emojis?|emoticons?)", regex_check(EMOJI), "emojis", "cn", text=False),
    "characters": Thing("characters?", regex_check(r"\X"), "characters", "c", every=True),
    "lines": Thing("lines?(?! of (?:code|dialogue))", regex_check(r"(?m)^.*\S.*$"), "lines that are not empty", "c",
                   every=True),
    "digits": Thing(r"(?:digits?|numerals?|numbers?\b(?! (?:of|one|\d)))", _letters("0123456789"), "digits", "n"),
    "parentheses": Thing("parenthes[ie]s", _letters("()"), "parentheses", "n"),
    "quotes": Thing("quotation marks?", _letters('"“”'), "quotation marks", "n"),
    "periods": Thing("(?:periods?|full stops?)", _letters("."), "full stops", "n"),
    "asterisks": Thing("asterisks?", _letters("*"), "asterisks", "n"),
    "punctuation": Thing("punctuation(?: marks?)?", regex_check(r"\p{P}"), "punctuation marks", "n"),
    "headings": Thing("(?:markdown )?headings?", regex_check(r"(?m)^\s*#{1,6}\s"), "headings", "n"),
    "upper": Thing(r"(?:capital letters?|capitals\b|upper-?case(?: letters?)?)(?! for\b)",
                   {"type": "casing", "casing": "lower"}, "", "n"),
    "lower": Thing(r"(?:lower-?case(?: letters?)?)(?! for\b)", {"type": "casing", "casing": "upper"}, "", "n"),
    "parts": Thing("(?:sections?|parts?|phrases?|passages?|portions?|(?:text )?segments?|areas?|(?:key ?)?points?|"
    "terms?"
                   "|ideas?|chapters?|items?|scenes?)", None, "parts", "c"),
    "times": Thing("(?:different |separate )?times?", None, "times", "c"),
    "pages": Thing("pages?", None, "pages", "c"),
    "syllables": Thing("syllables?", None, "syllables", "c"),
    "stanzas": Thing("(?:stanzas?|verses?)", None, "stanzas", "c"),
}  # fmt: skip
"""The things, by name. Earlier rows are tried first."""


def _named(use: str) -> str:
    return "|".join(f"(?P<{name}>{thing.noun})" for name, thing in THINGS.items() if use in thing.uses)


_ADJECTIVES = (
    r"(?:(?:different|distinct|separate|short|long|brief|concise|clear|simple|complete|full|unique|main|key|detailed|"
    r"total|individual|english|well-written|additional|unnumbered|unordered|markdown|distinctive|non-empty|proper|"
    r"such|"
    r"informative|very|text)[\s-]+)*"
)
_UNIT = re.compile(rf"[\s-]+{_ADJECTIVES}(?:{_named('c')})\b(?!')")


def question_of_bounds(check: Mapping[str, Any]) -> str:
    """The question of a counting check for which the check itself has none; "" if it has one."""
    bounds = {name: value for name, value in check.items() if name in ("at_least", "at_most", "exactly")}
    spec = {name: value for name, value in check.items() if name not in bounds}
    for thing in THINGS.values():
        if thing.spec == spec and bounds and spec["type"] in ("letters", "regex"):
            if bounds == {"exactly": 0}:
                return f"Does the response do without {thing.name}?"
            return f"Does the response have {quantity(bounds, thing.name)}?"
    return ""


def counted(start: int, end: int, thing: Thing, bounds: Bounds, denied: Bounds | None = None) -> Found:
    """A thing with its bounds, and with those under a negation."""
    if thing.spec is None:
        return Found(start, end, reason=f"code does not count {thing.name}")
    check: Spec = {**thing.spec, **bounds}
    refused: Spec | None = None if denied is None else {**thing.spec, **denied}
    return Found(
        start, end, check, refused, question_of_bounds(check), question_of_bounds(refused or {}), every=thing.every,
        counts=thing.text,
    )  # fmt: skip


_GIVEN = pattern(
    r"""\b(?:the|these|those|following|my|all|both|first|last|next|any|same|given|above|below|of the|previous|other
    |another|every|each|than|paragraph|section|chapter|page|line|sentence|bullet|part|step|day|version|point|number|and
    |or)\s*$"""
)
_ASKED = pattern(
    r"""(?:^|\b(?:in|with|of|using|into|as|contains?|containing|ha(?:s|ve|ving)|includ(?:e|es|ing)|be|is|are
    |writ(?:e|ing|ten)|compose|create|give|giv(?:e|ing) me|provide|generate|us(?:e|es|ing)|produce|make|list|add|to|by
    |consist(?:s|ing)? of|comprising|draft|for|need|needs|want|long|length|exact|short|brief|me|us|highlight|appears?
    |mention(?:ed)?|occurs?|used|featur(?:e|ing)|put|just|only|a|an|exactly)\b|[(:,\"-])\s*(?:a |an |the |me |us |out
    |total of )*$"""
)
_FIRST_ASKED = pattern(
    r"""[\s\W]*(?:please |now |can you |could you |i want you to |help me )?(?:write|give|provide|respond|answer|reply
    |compose|create|generate|draft|make|in|with|using)\b[^,;]{0,30}$"""
)
_LEFT_OUT = pattern(
    r"""\bexclud\w+[^.\n]{0,60} (?:word count|word limit)|\bnot (?:be )?(?:included|counted|part of)\b[^.\n]{0,40}
    \b(?:words?|count|limit)\b|\b(?:not including|excluding|without counting) (?:the )?(?:title|references|citations
    |bibliography|headings|code|table|signature|introduction|conclusion)""",
    re.IGNORECASE,
)
_HIGHLIGHT = re.compile(r"\b(?:highlight|emphasi[sz]e|italici[sz]e)(?:s|ed|ing|d)?\b[^,]{0,40}$")
_HIGHLIGHTED = re.compile(
    r"[^.,;\n]{0,60}?\b(?:should|must|are|to) be (?:highlighted|emphasi[sz]ed|italici[sz]ed|in italics)\b"
)
_MARKUP = re.compile(r"\*|markdown|asterisk|italic", re.IGNORECASE)
_CAPITALS_FOR = pattern(
    r"""\b(?:(?:use|using|with|in) (?:all[- ]?caps|(?:all )?capital letters|upper-?case)|capitali[sz]e)\b
    (?: (?:letters|for|in|on|to|emphasi[sz]e|stress|write|highlight))*\s*$"""
)
_IN_CAPITALS = pattern(
    r"""[^.,;\n]{0,40}?\b(?:should|must|are to|written|to) (?:be )?(?:written )?(?:in )?(?:all[ -])?(?:caps|capitals
    |capital letters|capitali[sz]ed|upper-?case)\b"""
)
_NUMBER_OF = re.compile(
    rf"\bnumber of (?:{_named('c')})\b(?P<rest>[^,.;]{{0,60}}?)\s*"
    r"\b(?:should|must|has to|needs to|is|to|shall)?\s*(?:be|is|not)?\s*$"
)
_MARKER = r"""[\"'`“‘\[*]*([A-Za-z]{2,20})\s+(?:[XN]\b|\[?#|\d\b|\{?number\b|\[?[a-z]\b)"""
SECTION_MARK = pattern(
    rf"""\b(?:mark|start|begin|label|separate|denote|indicate|precede|title|name|introduce|head|call|identify|divide
    |note)\w*\b[^.\n]{{0,80}}?\b(?:with|as|by|using|:)\s*(?:the )?(?:(?:word|keyword|marker|heading|header|label) )?
    {_MARKER}""",
    re.IGNORECASE,
)
_SECTIONS_LIKE = pattern(
    r"""\b(?:sections?|parts?|chapters?)\b[^.\n]{0,60}?(?:such as|like|i\.e\.|e\.g\.|for example|:)\s*:?\s*
    [\"'`“‘\[*]*([A-Za-z]{3,20})\s+(?:X\b|1\b|I\b)"""
)
_DIVIDER = re.compile(r"(?:separat|divid|delimit|mark|split)[^\n]{0,80}\n?[^\n]{0,20}(?<!\*)\*{3}(?!\*)")


def counts(clause: Clause) -> Iterator[Found]:
    """The things with a number: "at least 100 words", "three paragraphs", "the word rain twice"."""
    text, done, given = clause.text, 0, list(clause.strings)
    if not has_number(clause):
        return
    for match in numbers(text):
        if match.start() < done:
            continue
        found = amount(text, match, done)
        repeated = match.group() in ("once", "twice", "thrice")
        unit = None if repeated else _UNIT.match(text, found.end)
        if unit is None and not repeated:
            yield from _other_noun(clause, match, found)
            continue
        name = "times" if unit is None else str(unit.lastgroup)
        end = match.end() if unit is None else unit.end()
        found = found.after_unit(text, end)
        done = found.end
        if name == "times":
            yield from _times(clause, found, given)
        elif unit is not None:
            yield from _units(clause, found, name, unit)


def _other_noun(clause: Clause, match: re.Match[str], found: Amount) -> Iterator[Found]:
    """A number without a thing after it: "the number of words must be at least 50", "highlight two arguments"."""
    before, text = clause.text[: found.start], clause.text
    named = _NUMBER_OF.search(before) if "number of" in before else None
    if named is not None:
        if found.how not in ("bare", "about"):
            capitals = re.search(r"\b(?:capital|caps|upper-?case)", named["rest"])
            name = next(name for name, value in named.groupdict().items() if value and name != "rest")
            thing = THINGS["capital_words" if capitals else name]
            yield counted(named.start(), found.end, thing, found.bounds, found.denied)._replace(stated=found.start)
    elif (marked := _emphasis(clause, before)) and re.match(r"\s+[a-z]", text[match.end() :]) and found.how != "about":
        if found.start - marked.start() < 16:
            yield counted(marked.start(), found.end, THINGS["highlights"], found.several.bounds)


def _emphasis(clause: Clause, before: str) -> re.Match[str] | None:
    """The verb before a number, if it asks for Markdown emphasis: "highlight" alone may mean "mention"."""
    found = _HIGHLIGHT.search(before)
    return found if found and (found.group()[0] == "i" or clause.view.anywhere(_MARKUP)) else None


def _units(clause: Clause, found: Amount, name: str, unit: re.Match[str]) -> Iterator[Found]:
    text, start, end = clause.text, found.start, found.end
    before, after = text[:start], text[unit.end() :]
    if name == "words" and (answer := _short_answer(text, found, unit)):
        yield answer
        return
    if name in ("parts", "sentences", "words", "bullets"):
        marked = _emphasis(clause, before)
        if marked or _HIGHLIGHTED.match(after):
            start = marked.start() if marked else start
            name, found = "highlights", found.several
            yield counted(start, end, THINGS[name], found.bounds, found.denied)
            return
    if name == "parts":
        yield from _sections(clause, found, unit)
        return
    if name == "words" and (capitals := _CAPITALS_FOR.search(before)):
        name, start = "capital_words", capitals.start()
    elif name == "words" and (capitals := _IN_CAPITALS.match(after)):
        name, end = "capital_words", unit.end() + capitals.end()
    thing = THINGS[name]
    if found.how in ("bare", "only") and (reason := _bare(text, found, name, before)) is not None:
        if reason:
            yield Found(start, end, reason=reason)
    elif name == "characters" and max(found.low or 0, found.high or 0) < 20:
        return  # characters of a story
    elif found.how == "about":
        yield Found(start, end, reason=APPROXIMATE)
    elif name == "words" and clause.view.anywhere(_LEFT_OUT):
        yield Found(start, end, reason="a part of the response does not count")
    elif name == "paragraphs" and divided_by(clause, found.start):
        yield Found(start, end, {"type": name, "separator": "***", **found.bounds}, every=False, counts=False)
    else:
        several = name in ("placeholders", "capital_words", "hashtags", "emojis", "highlights")
        found = found.several if several else found
        yield counted(start, end, thing, found.bounds, found.denied)


def _bare(text: str, found: Amount, name: str, before: str) -> str | None:
    """Why a number without a comparison gives no check: a reason, "" if it is not asked for; None if it gives one."""
    if found.how == "bare" and (_GIVEN.search(before) or not _ASKED.search(before)):
        return ""
    low = found.low or 0
    if name in ("words", "characters"):
        if name == "words" and low <= 10 and (found.how == "only" or re.search(r"\b(?:in|using)\s*$", before)):
            return None
        if text[found.start : found.end].count("-") and low < 20:
            return A_PART
        if low >= 20 and not re.search(r"\b(?:list|set|number|pairs?) of\s*$", before):
            return f'a number of {name} without "at least" or "at most" may be approximate'
        return ""
    if name == "lines":
        return "code cannot tell these lines from the other lines of the response"
    if text[found.end - 1 : found.end + 1] and "-" in text[found.start : found.end] and name != "bullets":
        return None if _FIRST_ASKED.match(before) else A_PART
    return None


_MOST_WORDS = 10
"""A bare number of words up to this one is exact: "answer in three words"."""
_ANSWERED = pattern(
    r"""\b(?:respond|answer|reply|output|say|state|return)\b(?:(?!\band\b|\bbut\b)[^,;:]){0,40}
    \b(?:with|in|using|as)\s*(?:just |only |exactly )?(?:a |an )?$
    |\b(?:response|answer|reply|output|result)\b(?:(?!\band\b|\bbut\b)[^,;:]){0,40}
    \b(?:be|is|with|in)\s*(?:just |only |exactly )?(?:a |an )?$"""
)
_OBJECT = pattern(
    r"""[\s\W]*(?:please |now |then |also )*(?:write|give|provide|create|compose|generate|suggest|propose|draft
    |come up with|answer with|respond with|reply with)\s+(?:me |us )?(?:a |an |one |just a )?\s*$"""
)
_ALONE = re.compile(r"\s+only\s*(?:[.!,;]|$)|\s*[.!]?\s*$")
_FOR_THE_ANSWER = re.compile(r"\s*(?:[,;:.!?)]|to (?:describe|answer|say)\b|that (?:best )?describes?\b|and nothing)")
_WORDY = pattern(
    r"""\s+(?:answer|reply|response|slogan|motto|tagline|title|name|caption|headline|description|summary|phrase|verdict
    |definition|label|explanation)\b(?!s)"""
)


def _short_answer(text: str, found: Amount, unit: re.Match[str]) -> Found | None:
    """An answer of a few words: "respond with a single word", "one word only", "give a three-word answer"."""
    before, after = text[: found.start], text[unit.end() :]
    if (found.low or 0) > _MOST_WORDS or found.how not in ("bare", "only"):
        return None
    noun = _WORDY.match(after)
    if unit.group().startswith("-"):
        whole = noun and _OBJECT.match(before)
        return counted(found.start, unit.end() + noun.end(), THINGS["words"], found.bounds) if noun and whole else None
    if not (_ALONE.match(after) or _FOR_THE_ANSWER.match(after)):
        return None
    if _ANSWERED.search(before) or (not before.strip() and _ALONE.match(after) and "only" in after):
        return counted(found.start, unit.end(), THINGS["words"], found.bounds)
    return None


def _sections(clause: Clause, found: Amount, unit: re.Match[str]) -> Iterator[Found]:
    """Sections need a marker or a divider that code can see."""
    if not unit["parts"].startswith(("section", "part", "scene", "chapter")) or found.how == "about":
        return
    if divided_by(clause, found.start):
        if found.how != "bare" or _ASKED.search(clause.text[: found.start]):
            check = {"type": "paragraphs", "separator": "***", **found.bounds}
            yield Found(found.start, found.end, check, whole=True, counts=False)
    elif marker := clause.view.anywhere(SECTION_MARK) or clause.view.anywhere(_SECTIONS_LIKE):
        check = {"type": "sections", "marker": marker[1], **found.several.bounds}
        yield Found(found.start, found.end, check, whole=True, counts=False)


def divided_by(clause: Clause, position: int) -> bool:
    """Whether the prompt asks for a divider of three asterisks, in this or one of the next two clauses."""
    text = clause.view.text
    last = clause.start + position + 300
    return "***" in text and _DIVIDER.search(text, clause.start, last) is not None


_UNQUOTED_WORD = re.compile(r"\b(?:key)?(?:word|term|name|phrase)s?:?\s+(?P<word>[a-z][\w'-]*)\b")
_LETTER = pattern(
    r"""\b(?:letters?|characters?|symbols?|punctuation marks?)\s+(?:(?P<quoted>\x01+)
    |(?P<letter>[a-z#@!?&%$*])(?![\w'#]))"""
)
_MARKS = re.compile(
    r"\b(?:us(?:e|es|ing)|includ(?:e|es|ing)|contain(?:s|ing)?|ha(?:ve|s|ving)|employ|insert)\s+(?:(?:a|an|the|"
    r"any)\s+)?"
    rf"(?:{_named('n')})\s*$"
)
_CAPITAL_WORDS = re.compile(
    rf"\bwords (?:[a-z]+ ){{0,3}}?(?:in|with|of|using) (?:all |only )?{_CAPS}|\b(?:all[- ]caps|capital|capitali[sz]ed|"
    r"upper-?case) words\b"
)
FUNCTION_WORDS = frozenset(
    "that which of with in for to you and or like such as the a an is are be used should must can at on from by if "
    "it count limit counts limits choice order per length range number appears appear more no not only than".split()
)
"""Words that are no keywords where they follow "the word"."""
_USED = pattern(
    r"""\b(?:words?|keywords?|phrases?|terms?|names?|us(?:e|es|ing|ed)|includ\w+|mention\w*|contain\w*|appear\w*
    |repeat\w*|occur\w*|say|write|have|has|incorporat\w+|expression|hashtag|sentence)\b"""
)


def _times(clause: Clause, found: Amount, given: list[Strings]) -> Iterator[Found]:
    """How often a word, a letter, a mark or words in capital letters occur. Strings that were used leave `given`."""
    text, before = clause.text, clause.text[: found.start]
    bounds, denied = found.several.bounds, found.denied
    if found.how == "about":
        yield Found(found.start, found.end, reason=APPROXIMATE)
    elif capitals := _CAPITAL_WORDS.search(text):
        if found.how != "bare":
            start, end = min(found.start, capitals.start()), max(found.end, capitals.end())
            yield counted(start, end, THINGS["capital_words"], bounds, denied)._replace(stated=found.start)
    elif marks := _MARKS.search(before):
        yield counted(marks.start(), found.end, THINGS[str(marks.lastgroup)], bounds, denied)
    elif letter := _LETTER.search(text):
        value, at = letter["letter"], letter.start()
        if letter["quoted"]:
            near = next((strings for strings in given if strings.start == letter.start("quoted")), None)
            value = near.one if near and near.one and len(near.one) == 1 else None
        if value is not None:
            check, refused = {**_letters(value), **bounds}, denied and {**_letters(value), **denied}
            yield Found(min(found.start, at), max(found.end, letter.end()), check, refused, stated=found.start)
    elif words := _words_of(clause, found, text, given):
        each = re.match(r"\s+each\b(?! [a-z])", text[found.end :])
        start, end = min(found.start, words.start), max(found.end + (each.end() if each else 0), words.end)
        if _USED.search(text) and not (text[words.start] != "\x01" and found.how == "bare"):
            given[:] = [strings for strings in given if strings.start != words.start]
            if _SYNONYM.match(text, words.end):
                yield Found(start, end, reason=UNCLEAR)
                return
            for word in words.values:
                check = {"type": "keyword_count", "word": word}
                refused = {**check, **denied} if denied else None
                required = {**check, **found.bounds}
                yield Found(start, end, required, refused, whole=each is not None, stated=found.start)


_SYNONYM = re.compile(r"\s*,?\s+or (?:a|an|any|its|one of its|another)\b")
"""Another word is as good: "the word 'light' or a synonym"."""


def _words_of(clause: Clause, found: Amount, text: str, given: list[Strings]) -> Strings | None:
    """The words that are counted: the quoted strings next to the number, else the word after "the word"."""
    if given:
        return next((strings for strings in reversed(given) if strings.end <= found.start), given[0])
    words = [match for match in _UNQUOTED_WORD.finditer(text) if match["word"] not in FUNCTION_WORDS]
    if not words:
        return None
    match = next((match for match in reversed(words) if match.end() <= found.start), words[0])
    return Strings((clause.prompt(*match.span("word")),), *match.span("word"))


_FILLER = pattern(
    r"""(?:[\s,]+(?:any|a|an|the|single|use|using|used|usage|allowed|permitted|supposed|to|including|include|contain
    |containing|have|having|put|insert|add|write|writing|employ|of|in|your|(?:entire |whole )?response|answer|reply
    |text
    |output|story|essay|kinds?|types?|forms?|with|or|more|ever|also|be|should|must|question
    |(?:punctuation|symbols) (?:like|such as)|such as|all|extra|special|format|there|are|is|please))*\s+$"""
)
_LETTER_NAMED = r"(?:the )?letters? (?:[a-z](?![\w'])|\x01+)"
_ONE_THING = re.compile(rf"(?<![\w-])(?:(?P<letter>{_LETTER_NAMED})|{_named('n')})(?![\w])(?!-\w)")
_ALL_OF = r"(?:(?:\s*,\s*(?:or |and |nor )?|\s+(?:or|and|nor)\s+|/)(?:any |the )?"
_THING = "|".join((_LETTER_NAMED, *(thing.noun for thing in THINGS.values() if "n" in thing.uses)))
_LIST = re.compile(rf"(?<![\w-])(?:{_THING}){_ALL_OF}(?:{_THING}))*(?![\w])")
_NOT_ALL = pattern(
    r"""\s*(?:like|such as|only|after|before|between|where|more than|larger|to separate|greater|from|of the|at the
    |in the (?:title|first)|with \d|in a row)"""
)
_FREE = re.compile(r"[- ]free\b")
_NEGATED = re.compile(
    r"\b(?:no|not|n't|dont|never|nor|neither|without|avoid(?:ing)?|refrain(?:ing)? from|cannot|free of|devoid of"
    r"|exclud(?:e|ing)|omit(?:ting)?|skip(?:ping)?|leav(?:e|ing) out)$|n't$"
)
_PASSIVE_NO = re.compile(
    r"\s+(?:(?:should|must|may|can|are|is|do)\s*(?:not|n't)|cannot|can't|mustn't|shouldn't|aren't|(?:are|"
    r"is) (?:forbidden"
    r"|prohibited|banned))\b"
)
_OFTEN = re.compile(r"\b(?:more|fewer|less) than\b[^.;]*\b(?:times?|once|twice|thrice)\b")


def without(clause: Clause) -> Iterator[Found]:
    """What must not occur: commas, digits, emojis, a letter, capital letters."""
    text, done = clause.text, 0
    for match in _LIST.finditer(text):
        if match.start() < done:
            continue
        filler = _FILLER.search(text, 0, match.start())
        head = text[: filler.start() if filler else match.start()]
        free = _FREE.match(text, match.end())
        if filler and "quot" in match.group() and re.search(r"\b(?:in|with|put)\b", filler.group()):
            continue  # the whole response in quotation marks
        direct = bool(filler) and _NEGATED.search(head) is not None
        stated = _PASSIVE_NO.match(text, match.end()) and not _OFTEN.search(text, match.end())
        if not (direct or free or stated) or _NOT_ALL.match(text, match.end()):
            continue
        done = match.end()
        for thing in _ONE_THING.finditer(text, *match.span()):
            start, end = match.start(), free.end() if free else match.end()
            check, name = _none_of(clause, thing)
            if check is not None:
                question = f"Does the response do without {name}?" if name else ""
                every = thing.lastgroup not in ("hashtags", "emojis", "bullets", "headings")
                if free:
                    yield Found(start, end, check, None, question, every=every, counts=every)
                else:
                    yield Found(start, end, None, check, "", question, every=every, counts=every)


def _none_of(clause: Clause, thing: re.Match[str]) -> tuple[Spec | None, str]:
    """The check that a thing does not occur, and its name."""
    if thing.lastgroup != "letter":
        row = THINGS[str(thing.lastgroup)]
        assert row.spec is not None
        if row.spec["type"] == "casing":
            return row.spec, ""
        return {**row.spec, "exactly": 0}, "numbers in digits" if "number" in thing.group() else row.name
    value = thing.group()[-1]
    if value == "\x01":
        given = next((strings for strings in clause.strings if strings.start < thing.end() <= strings.end), None)
        if given is None or any(len(letter) != 1 for letter in given.values):
            return None, ""
        value = "".join(given.values)
    return {"type": "letters", "letters": value, "exactly": 0}, f'the letter "{value}"'


_COUNT_OF = pattern(
    rf"""\b(?P<unit>word|character|sentence|line|paragraph)[- ](?P<what>count|limit|length|minimum|maximum
    |requirement)s?
    \b\s*(?:(?:is|of|should be|must be|has to be|to be|between|at|:|=|for your (?:response|answer)|in your response|to
    |restriction|set)\s*)*(?=(?:[a-z<>≤≥=~]+ ){{0,3}}(?P<n>{NUMBER}))"""
)


def count_of(clause: Clause) -> Iterator[Found]:
    """ "Word count: 100 to 150", "word limit of 200", "a maximum word count of 50"."""
    for match in _COUNT_OF.finditer(clause.text):
        given = next((one for one in numbers(clause.text) if one.start() == match.start("n")), None)
        if given is None:
            continue
        found, what, before = amount(clause.text, given), match["what"], clause.text[: match.start()]
        low = found.how == "least" or what == "minimum" or re.search(r"\bmin(?:imum)?\s*$", before)
        high = what in ("limit", "maximum") or re.search(r"\bmax(?:imum)?\s*$", before)
        thing, end = THINGS[f"{match['unit']}s"], max(found.end, match.end("n"))
        if found.how == "about":
            yield Found(match.start(), end, reason=APPROXIMATE)
        elif found.how not in ("bare", "most"):
            yield counted(match.start(), end, thing, found.bounds)
        elif low or high or found.how == "most":
            value = number(given.group())
            yield counted(match.start(), end, thing, {"at_least" if low else "at_most": value})
        else:
            yield Found(match.start(), end, reason=f"a {match['unit']} count alone may be approximate")
