"""Requirements with a number: "at least 100 words", "three paragraphs", "the word rain twice".

A rule starts from the number. The unit comes after it, the comparison before it. A number of words or characters
without any comparison is usually meant approximately, so it gives no check; a number of sentences or paragraphs is
exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from checklist_rewards.generators.constraints.amounts import Amount, amount, end_of_amount, numbers, quantity
from checklist_rewards.generators.constraints.reading import (
    A_PART,
    APPROXIMATE,
    CONDITIONAL,
    EACH_WORDS,
    PART,
    RESPONSE,
    PromptText,
    Requirement,
    Spec,
    Strings,
    conditional,
    contains,
    each,
    negated,
    one_line,
    pattern,
    regex_check,
    required,
    unexpressed,
)

_ADJECTIVES = one_line(
    r"""(?:(?:different|distinct|separate|short|long|brief|concise|clear|simple|complete|full|unique|main|key|detailed|
    total|individual|english|well-written|additional|unnumbered|unordered|markdown|distinctive|non-empty|informative|
    proper|such|very|text)[\s-]+)*"""
)
_PARTS = "sections?|parts?|phrases?|passages?|words?|texts?|portions?|areas?|segments?"
_CAPITALS = "(?:capital letters?|capitals|all-?caps|caps|upper-?case)"
_UNIT = pattern(
    rf"""[\s-]+{_ADJECTIVES}(?:
    (?P<capital_words>(?:all[- ]?caps?|(?:(?:fully|entirely|all)[- ])?(?:capital(?:ized|ised)?|upper-?case)) words?
    |words? (?:[a-z]+ ){{0,4}}?(?:in|with|using) (?:all |only |full |fully )?-?{_CAPITALS}(?: letters)?)
    |(?P<highlights>(?:highlighted (?:[a-z]+ )?|(?:italic|italici[sz]ed|emphasi[sz]ed) (?:text )?)(?:{_PARTS})
    |highlights\b)
    |(?P<words>words?)|(?P<sentences>sentences?)|(?P<paragraphs>paragraphs?)
    |(?P<bullets>bullet(?:ed)?[- ]?(?:points?|items?)|bullets?|bulletpoints?)
    |(?P<placeholders>place-?holders?)|(?P<hashtags>hash ?tags?)
    |(?P<exclamation>exclamation (?:marks?|points?))|(?P<question>question marks?)|(?P<commas>commas?)
    |(?P<semicolons>semi-?colons?)|(?P<colons>colons?)|(?P<hyphens>hyphens?)
    |(?P<dashes>(?:em |en |em-|en-)?dash(?:es)?)
    |(?P<emojis>emojis?|emoticons?)|(?P<characters>characters?)|(?P<lines>lines?(?! of (?:code|dialogue)))
    |(?P<parts>sections?|parts?|phrases?|passages?|portions?|(?:text )?segments?|areas?|(?:key ?)?points?|terms?|ideas?
    |chapters?|items?)
    |(?P<times>(?:different |separate )?times?)|(?P<pages>pages?)|(?P<syllables>syllables?)|(?P<stanzas>stanzas?
    |verses?)
    )\b(?!')"""
)
_OF_THE_WHOLE = ("words", "sentences", "characters", "lines", "capital_words")
"""Units that every part of a response has too."""
EMOJI = (
    r"\p{RI}\p{RI}|[0-9#*]\uFE0F?\u20E3"  # a flag; a keycap
    r"|(?:\p{Emoji}\uFE0F|\p{Emoji_Modifier_Base}\p{Emoji_Modifier}|(?!\p{RI})\p{Emoji_Presentation}(?!\uFE0E))"
    r"[\p{Emoji_Modifier}\U000E0020-\U000E007F]*"
    r"(?:\u200D[\p{Extended_Pictographic}\p{Emoji_Presentation}][\uFE0F\p{Emoji_Modifier}]*)*"
)
"""One emoji as people see it: with its skin tone, as a flag, as a sequence. A sign that is text by default (©, ™, ❤)
counts only with the variation selector that makes it an emoji."""
HASHTAG = r"(?<![\w#])#\w+"
_COUNTED: dict[str, tuple[Callable[[dict[str, int]], Spec], str]] = {
    "hashtags": (lambda b: regex_check(HASHTAG, **b), "hashtags"),
    "exclamation": (lambda b: {"type": "letters", "letters": "!", **b}, "exclamation marks"),
    "question": (lambda b: {"type": "letters", "letters": "?", **b}, "question marks"),
    "commas": (lambda b: {"type": "letters", "letters": ",", **b}, "commas"),
    "semicolons": (lambda b: {"type": "letters", "letters": ";", **b}, "semicolons"),
    "colons": (lambda b: {"type": "letters", "letters": ":", **b}, "colons"),
    "hyphens": (lambda b: {"type": "letters", "letters": "-", **b}, "hyphens"),
    "dashes": (lambda b: {"type": "letters", "letters": "-–—", **b}, "dashes"),
    "emojis": (lambda b: regex_check(EMOJI, **b), "emojis"),
    "characters": (lambda b: regex_check(r"\X", **b), "characters"),
    "lines": (lambda b: regex_check(r"(?m)^.*\S.*$", **b), "lines that are not empty"),
}
"""Units without a check of their own: the check for given bounds, and the name of the unit."""
_NOT_COUNTED = ("pages", "syllables", "stanzas")

_EACH_BEFORE = re.compile(r"\b(?:each|every|per|any)\b[^,]*$")
_FOR_EACH = re.compile(r"[^.,;]{0,40}?\)?\s*\b(?:of|for|per|in|to|about) (?:each|every)\b")
_EACH_AFTER = pattern(
    r"""(?:[\s,]+(?:long|in length|exactly|only))*[\s,)]+(?:each|apiece|every|in each|for each|in every|for every
    |per)\b
    |-?(?:long )?\s*(?:sentences?|titles?|headlines?|phrases?|slogans?|taglines?|introductions?|intro|conclusions?
    |quotes?
    |paragraphs?|answers to|lines?|stanzas?|steps?|bullets?|sections?|chapters?)\b"""
)
_OF_PART = re.compile(rf"\b{PART}\b(?:(?!,|\band\b|\bbut\b|\bin (?:your|the) (?:entire|whole)?).)*$")
_LIMITED = pattern(
    rf"""\b(?:limit|restrict|cap|confine|keep)(?:s|ing|ping)?\s+
    (?!(?:(?:the|your|this|its|it|each|entire|whole|overall|total|length|size|of|word|count)\s+)*
    (?:{RESPONSE}\s+(?:length\s+)?|length\s+|count\s+|size\s+)?(?:to|at|under|below|within|between)\b)
    [a-z' ]+?\s+(?:to|at|under|below|within|between)\b[^,;]*$
    |\b(?!(?:{RESPONSE}|be|is|are|and|but|strictly|length|count)\b)[a-z']+ limited to\b[^,;]*$"""
)
"""A limit on something else than the response: "limit each description to 50 words"."""
_BRACKETED = pattern(
    r"""\b(?:descriptions?|explanations?|definitions?|introductions?|titles?|summaries|bios|biograph(?:y|ies)|answers
    |examples?|reasons?|captions?|tips?|steps?|items?|sentences|paragraphs?|headings?|names?|conclusions?)
    \s*\([^()]{0,20}$"""
)
_OTHERS = pattern(
    rf"""[\s\W]*(?:the|my|a|an|our|his|her|their|some|most|many)\s+(?:(?!{RESPONSE}\b)[a-z]+\s+){{1,4}}
    (?:has|have|had|contains?|contained|is|are|was|were)\b"""
)
"""A statement about something else: "the book has"."""
_PAST = re.compile(r"\b(?:had|contained|was|were)\s+(?:a |an )?$")
_GIVEN = pattern(
    r"""\b(?:the|these|those|following|my|all|both|first|last|next|any|same|given|above|below|of the|previous|other
    |another
    |every|each|than|paragraph|section|chapter|page|line|sentence|bullet|part|step|day|version|point|number|and
    |or)\s*$"""
)
_ASKED = pattern(
    r"""(?:^|\b(?:in|with|of|using|into|as|contains?|containing|ha(?:s|ve|ving)|includ(?:e|es|ing)|be|is|are|
    writ(?:e|ing|ten)|compose|create|give|giv(?:e|ing) me|provide|generate|us(?:e|es|ing)|produce|make|consist(?:s
    |ing)? of
    |comprising|list|add|to|by|draft|for|need|needs|want|long|length|exact|short|brief|me|us|highlight|appears?
    |mention(?:ed)?|occurs?|used|featur(?:e|ing)|put|just|only|a|an|exactly)\b|[(:,\"-])
    \s*(?:a |an |the |me |us |out |total of )*$"""
)
_FIRST_ASKED = pattern(
    r"""[\s\W]*(?:please |now |can you |could you |i want you to |help me )?(?:write|give|provide|respond|answer|reply
    |compose|create|generate|draft|make|in|with|using)\b[^,;]{0,30}$"""
)
_LEFT_OUT = pattern(
    r"""\bexclud\w+[^.\n]{0,60} (?:word count|word limit)
    |\bnot (?:be )?(?:included|counted|part of)\b[^.\n]{0,40}\b(?:words?|count|limit)\b
    |\b(?:not including|excluding|without counting) (?:the )?(?:title|references|citations|bibliography|headings|code
    |table
    |signature|introduction|conclusion)""",
    re.IGNORECASE,
)
_HIGHLIGHT = re.compile(r"\b(?:highlight|emphasi[sz]e|italici[sz]e|bold)(?:s|ed|ing|d)?\b[^,]{0,40}$")
_HIGHLIGHTED = re.compile(
    r"[^.,;\n]{0,60}?\b(?:should|must|are|to) be (?:highlighted|emphasi[sz]ed|italici[sz]ed|in italics)\b"
)
_MARKUP = re.compile(r"\*|markdown|asterisk|italic|bold", re.IGNORECASE)
_CAPITALS_FOR = pattern(
    r"""\b(?:(?:use|using|with|in) (?:all[- ]?caps|(?:all )?capital letters|upper-?case)|capitali[sz]e)\b
    (?: (?:letters|for|in|on|to|emphasi[sz]e|stress|write|highlight))*\s*$"""
)
_CAPITAL = ("cap", "upper")
_IN_CAPITALS = pattern(
    r"""[^.,;\n]{0,40}?\b(?:should|must|are to|written|to) (?:be )?(?:written )?(?:in )?(?:all[ -])?
    (?:caps|capitals|capital letters|capitali[sz]ed|upper-?case)\b"""
)
_NUMBER_OF = pattern(
    r"""\bnumber of (?P<unit>words|sentences|paragraphs|bullet points|bullets|placeholders|hashtags|characters|lines)
    (?P<rest>[^,.;]{0,60}?)\s*\b(?:should|must|has to|needs to|is|to|shall)?\s*(?:be|is|not)?\s*$"""
)
_MARKER = r"""[\"'`“‘\[*]*([A-Za-z]{2,20})\s+(?:[XN]\b|\[?#|\d\b|\{?number\b|\[?[a-z]\b)"""
SECTION_MARK = pattern(
    rf"""\b(?:mark|start|begin|label|separate|denote|indicate|precede|title|name|introduce|head|call|identify|divide
    |note)
    \w*\b[^.\n]{{0,80}}?\b(?:with|as|by|using|:)\s*(?:the )?(?:(?:word|keyword|marker|heading|header
    |label) )?{_MARKER}""",
    re.IGNORECASE,
)
_SECTIONS_LIKE = pattern(
    r"""\b(?:sections?|parts?|chapters?)\b[^.\n]{0,60}?(?:such as|like|i\.e\.|e\.g\.|for example|:)\s*:?\s*
    [\"'`“‘\[*]*([A-Za-z]{3,20})\s+(?:X\b|1\b|I\b)"""
)
_DIVIDER = re.compile(r"(?:separat|divid|delimit|mark|split)[^\n]{0,80}\n?[^\n]{0,20}(?<!\*)\*{3}(?!\*)")


def counts(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The requirements with a number. Adds the starts of the quoted strings that they use to `taken`."""
    done = 0
    for match in numbers(view.text):
        if match.start() < done:
            continue
        unit = _UNIT.match(view.text, end_of_amount(view, match)) or _UNIT.match(view.text, match.end())
        if match.group() in ("once", "twice", "thrice"):
            found = amount(view, match)
            given = list(_times(view, found, found.end, taken))
            done = found.end if given else done
            yield from given
        elif unit is not None:
            found = amount(view, match)
            end = found.with_words_after(view, unit.end())
            kind = str(unit.lastgroup)
            yield from _times(view, found, end, taken) if kind == "times" else _units(view, found, kind, unit, end)
            done = end
        else:
            yield from _other_noun(view, match)


def _other_noun(view: PromptText, match: re.Match[str]) -> Iterator[Requirement]:
    """A number without a unit after it: "the number of words must be at least 50", "highlight two arguments"."""
    before = view.before(match.start())
    if "number of" in before and (counted := _number_of(view, amount(view, match))):
        yield counted
    elif (
        (emphasis := _emphasis(view, before))
        and re.match(r"\s+[a-z]", view.text[match.end() : match.end() + 2])
        and not emphasis.group().startswith("bold")
    ):
        found = amount(view, match)
        start = match.start() - len(before) + emphasis.start()
        if found.start - start < 16 and not found.unclear:
            yield required(start, found.end, {"type": "highlights", **found.at_least})


def _number_of(view: PromptText, found: Amount) -> Requirement | None:
    before = view.before(found.start)
    named = _NUMBER_OF.search(before)
    if named is None or found.bare or found.unclear or each(before):
        return None
    unit = {"bullet points": "bullets"}.get(named["unit"], named["unit"])
    kind = "capital_words" if re.search(r"\b(?:capital|caps|upper-?case)", named["rest"]) else unit
    return counted(found.start - len(before) + named.start(), found.end, kind, found.bounds)


def counted(start: int, end: int, kind: str, bounds: dict[str, int]) -> Requirement:
    """The requirement of a number of units."""
    if kind not in _COUNTED:
        return required(start, end, {"type": kind, **bounds})
    make, thing = _COUNTED[kind]
    return required(start, end, make(bounds), f"Does the response have {quantity(bounds, thing)}?")


def _emphasis(view: PromptText, before: str) -> re.Match[str] | None:
    """The verb before a number, if it asks for Markdown emphasis: "highlight" alone may mean "mention"."""
    found = _HIGHLIGHT.search(before) if contains(before, ("highlight", "emphasi", "itali", "bold")) else None
    if found and found.group().startswith(("highlight", "emphasi")) and not view.anywhere(_MARKUP):
        return None
    return found


def _units(view: PromptText, found: Amount, kind: str, unit: re.Match[str], end: int) -> Iterator[Requirement]:
    before, after, start = view.before(found.start, 200), view.after(unit.end()), found.start
    if kind == "words" and (answer := _short_answer(view, found, unit, before, after)) is not None:
        yield answer
        return
    if _OTHERS.match(before) or (contains(before, ("had", "contained", "was", "were")) and _PAST.search(before)):
        return
    highlight = _emphasis(view, before)
    highlighted = contains(after, ("highlighted", "italic", "emphasi")) and _HIGHLIGHTED.match(after)
    if kind in ("parts", "sentences", "words", "bullets") and (highlight or highlighted):
        if highlight:
            start += highlight.start() - len(before)
        if highlight and highlight.group().startswith("bold"):
            check = regex_check(r"\*\*[^\n*]+\*\*|__[^\n_]+__", **found.at_least)
            number_of = quantity(found.at_least, "passages")
            yield required(start, end, check, f"Does the response have {number_of} in bold?")
            return
        kind, found.bare = "highlights", False
    elif kind == "parts":
        yield from _sections(view, found, unit, end, before)
        return
    elif kind == "words" and contains(before, _CAPITAL) and (capitals := _CAPITALS_FOR.search(before)):
        kind, start = "capital_words", start - len(before) + capitals.start()
    elif kind == "words" and contains(after, _CAPITAL) and (capitals := _IN_CAPITALS.match(after)):
        kind, end = "capital_words", unit.end() + capitals.end()
    if found.conditional:
        yield unexpressed(start, end, CONDITIONAL)
    elif _about_part(view, found, kind, unit, before, after):
        yield unexpressed(start, end, A_PART)
    elif found.bare or found.only:
        yield from _bare(view, found, kind, before, start, end)
    else:
        yield from _bounded(view, found, kind, start, end)


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
_OTHERS_ANSWER = ("who", "which", "where", "character", "how", "why")
_OF_ANOTHER = re.compile(r"\b(?:who|which|where|how|why|characters?)\b")
_ALONE = re.compile(r"\s+only\s*(?:[.!,;]|$)|\s*[.!]?\s*$")
_WORDY = pattern(
    r"""\s+(?:answer|reply|response|slogan|motto|tagline|title|name|caption|headline|description|summary|phrase|verdict
    |definition|label|explanation)\b(?!s)"""
)


def _short_answer(view: PromptText, found: Amount, unit: re.Match[str], before: str, after: str) -> Requirement | None:
    """An answer of a few words: "respond with a single word", "one word only", "give a three-word answer"."""
    if (found.low or 0) > _MOST_WORDS or found.unclear or not (found.bare or found.only) or negated(before):
        return None
    if contains(before, _OTHERS_ANSWER) and _OF_ANOTHER.search(before):
        return None
    hyphened = view.text[found.end : unit.end()].startswith("-")
    if hyphened and _WORDY.match(after) and _OBJECT.match(before):
        noun = _WORDY.match(after)
        return counted(found.start, unit.end() + (noun.end() if noun else 0), "words", found.bounds)
    if hyphened or not (after.strip(" .!") == "" or _ALONE.match(after) or _FOR_THE_ANSWER.match(after)):
        return None
    if _ANSWERED.search(before) or (not before.strip() and _ALONE.match(after) and "only" in after):
        return counted(found.start, unit.end(), "words", found.bounds)
    return None


_FOR_THE_ANSWER = re.compile(r"\s*(?:[,;:.!?)]|to (?:describe|answer|say)\b|that (?:best )?describes?\b|and nothing)")


def _about_part(view: PromptText, found: Amount, kind: str, unit: re.Match[str], before: str, after: str) -> bool:
    each_after = bool(_EACH_AFTER.match(after) or (contains(after, EACH_WORDS) and _FOR_EACH.match(after)))
    if kind not in _OF_THE_WHOLE:
        return kind == "bullets" and each_after
    until = before + view.text[found.start : unit.start()]
    return bool(
        each_after
        or (contains(until, (*EACH_WORDS, "any")) and _EACH_BEFORE.search(until))
        or _OF_PART.search(before)
        or (contains(until, ("limit", "restrict", "cap", "confine", "keep")) and _LIMITED.search(until))
        or ("(" in until and _BRACKETED.search(until))
    )


def _bare(view: PromptText, found: Amount, kind: str, before: str, start: int, end: int) -> Iterator[Requirement]:
    """A number without a comparison, or with "only" or "just"."""
    if found.bare and (_GIVEN.search(before) or not _ASKED.search(before)):
        return
    low = found.low or 0
    if kind in ("words", "characters"):
        if kind == "words" and low <= 10 and (found.only or re.search(r"\b(?:in|using)\s*$", before)):
            yield counted(start, end, kind, found.bounds)
        elif low >= 20 and not re.search(r"\b(?:list|set|number|pairs?) of\s*$", before):
            yield unexpressed(start, end, f'a number of {kind} without "at least" or "at most" may be approximate')
    elif negated(before):
        return
    elif kind == "lines":
        yield unexpressed(start, end, "code cannot tell these lines from the other lines of the response")
    elif view.text[found.end] == "-" and kind != "bullets" and not _FIRST_ASKED.match(before):
        yield unexpressed(start, end, "it may be about a part of the response")
    else:
        yield from _bounded(view, found, kind, start, end)


def _bounded(view: PromptText, found: Amount, kind: str, start: int, end: int) -> Iterator[Requirement]:
    if kind == "characters" and max(found.low or 0, found.high or 0) < 20:
        return  # characters of a story
    if found.about:
        yield unexpressed(start, end, APPROXIMATE)
    elif kind == "words" and view.anywhere(_LEFT_OUT):
        yield unexpressed(start, end, "a part of the response does not count")
    elif kind in _NOT_COUNTED:
        yield unexpressed(start, end, f"code does not count {kind}")
    elif kind == "paragraphs" and _divided(view, start):
        yield required(start, end, {"type": kind, "separator": "***", **found.bounds})
    else:
        several = found.bare and kind in ("placeholders", "capital_words", "hashtags", "emojis")
        yield counted(start, end, kind, found.at_least if several or kind == "highlights" else found.bounds)


def _sections(view: PromptText, found: Amount, unit: re.Match[str], end: int, before: str) -> Iterator[Requirement]:
    """Sections need a marker or a divider that code can see."""
    noun = unit["parts"].strip()
    if not noun.startswith(("section", "part", "scene", "chapter")) or found.unclear:
        return
    if _divided(view, found.start):
        if not found.bare or _ASKED.search(before):
            yield required(found.start, end, {"type": "paragraphs", "separator": "***", **found.bounds})
    elif marker := view.anywhere(SECTION_MARK) or view.anywhere(_SECTIONS_LIKE):
        yield required(found.start, end, {"type": "sections", "marker": marker[1], **found.at_least})


def _divided(view: PromptText, position: int) -> bool:
    """Whether the prompt asks for a divider of three asterisks, in this or one of the next two clauses."""
    start = view.start_of_clause(position)
    return "***" in view.text and _DIVIDER.search(view.text, start, position + 300) is not None


_UNQUOTED_WORD = re.compile(r"\b(?:key)?(?:word|term|name|phrase)s?:?\s+(?P<word>[a-z][\w'-]*)\b")
_LETTER = pattern(
    r"""\b(?:letters?|characters?|symbols?|punctuation marks?)\s+(?:(?P<quoted>\x01+)
    |(?P<letter>[a-z#@!?&%$*])(?![\w'#]))"""
)
_MARKS = pattern(
    r"""\b(?:us(?:e|es|ing)|includ(?:e|es|ing)|contain(?:s|ing)?|ha(?:ve|s|ving)|employ|insert)\s+
    (?:(?:a|an|the|any)\s+)?
    (?:(?P<semicolons>semi-?colons?)|(?P<colons>colons?)|(?P<hyphens>hyphens?)
    |(?P<dashes>(?:em |en |em-|en-)?dash(?:es)?)
    |(?P<exclamation>exclamation (?:marks?|points?))|(?P<question>question marks?)|(?P<commas>commas?)
    |(?P<emojis>emojis?|emoticons?)|(?P<hashtags>hash ?tags?))\s*$"""
)
_CAPITAL_WORDS = pattern(
    r"""\bwords (?:[a-z]+ ){0,3}?(?:in|with|of|using) (?:all |only )?(?:capital letters|capitals|caps|upper-?case)
    |\b(?:all[- ]caps|capital|capitali[sz]ed|upper-?case) words\b"""
)
FUNCTION_WORDS = frozenset(
    "that which of with in for to you and or like such as the a an is are be used should must can at on from by if it "
    "count limit counts limits choice order per length range number appears appear more no not only than".split()
)
"""Words that are no keywords where they follow "the word"."""
_USED = pattern(
    r"""\b(?:words?|keywords?|phrases?|terms?|names?|us(?:e|es|ing|ed)|includ\w+|mention\w*|contain\w*|appear\w*
    |repeat\w*
    |occur\w*|say|write|have|has|incorporat\w+|expression|hashtag|sentence)\b"""
)
_EACH_PART = pattern(
    rf"""\b(?:in|per|for) (?:each|every)\b|\b(?:each|every) (?:sentence|line|paragraph|section|stanza|word)\b|\bper\b
    |\b(?:in|within) the (?:{PART})\b"""
)


def _times(view: PromptText, found: Amount, end: int, taken: set[int]) -> Iterator[Requirement]:
    """How often a word, a letter or words in capital letters occur."""
    first = view.start_of_clause(found.start)
    text = view.text[first : view.end_of_clause(found.start)]
    if capitals := _CAPITAL_WORDS.search(text):
        if not (found.bare or found.unclear):
            start = min(found.start, first + capitals.start())
            yield counted(start, max(end, first + capitals.end()), "capital_words", found.bounds)
        return
    before = view.before(found.start)
    if marks := _MARKS.search(before):
        if not found.unclear and not _EACH_PART.search(text):
            bounds = found.at_least if found.bare else found.bounds
            yield counted(found.start - len(before) + marks.start(), end, str(marks.lastgroup), bounds)
        return
    if (letter := _LETTER.search(text)) and not _EACH_PART.search(text):
        value = letter["letter"]
        if letter["quoted"] and (given := view.strings_at(first + letter.start("quoted"))):
            taken.add(given.start)
            value = given.one if given.one and len(given.one) == 1 else None
        if value is not None and not found.unclear:
            start, last = min(found.start, first + letter.start()), max(end, first + letter.end())
            bounds = found.at_least if found.bare else found.bounds
            yield required(start, last, {"type": "letters", "letters": value, **bounds})
        return
    words = _words_of(view, found, first, text, taken)
    if words is None or not _USED.search(text) or (view.text[words.start] != "\x01" and found.bare):
        return
    taken.add(words.start)
    start, last = min(found.start, words.start), max(end, words.end)
    if found.unclear or conditional(text[: max(start - first, 0)]):
        yield unexpressed(start, last, APPROXIMATE if found.about else CONDITIONAL)
    elif _EACH_PART.search(text):
        yield unexpressed(start, last, A_PART)
    else:
        for word in words.values:
            yield required(start, last, {"type": "keyword_count", "word": word, **found.bounds})


def _words_of(view: PromptText, found: Amount, first: int, text: str, taken: set[int]) -> Strings | None:
    """The words that are counted: the quoted strings next to the number, else the word after "the word"."""
    given = view.strings_in(first, first + len(text))
    near = [s for s in given if first <= s.start and s.end <= first + len(text) and s.start not in taken]
    if near:
        return next((strings for strings in reversed(near) if strings.end <= found.start), near[0])
    words = [match for match in _UNQUOTED_WORD.finditer(text) if match["word"] not in FUNCTION_WORDS]
    before = [match for match in words if first + match.end() <= found.start]
    if not words:
        return None
    match = before[-1] if before else words[0]
    start, end = first + match.start("word"), first + match.end("word")
    return Strings((view.prompt[start:end],), start, end, False)
