"""Requirements about given words: keywords, forbidden words, the start and the end, options, keys of JSON.

A rule starts from the quoted strings of an enumeration. The words before and after them give their role. Between a
verb and its strings only words of a fixed list may stand, so "use the word 'rain'" is read and "use a synonym of the
word 'rain'" is not. Keywords without quotation marks are read after "the word" and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from checklist_rewards.generators.constraints.amounts import NUMBER, number, numbers
from checklist_rewards.generators.constraints.counts import FUNCTION_WORDS, SECTION_MARK
from checklist_rewards.generators.constraints.reading import (
    A_PART,
    CONDITIONAL,
    NEGATION,
    PART,
    QUOTE,
    RESPONSE,
    PromptText,
    Requirement,
    Spec,
    Strings,
    conditional,
    contains,
    listed,
    negated,
    one_line,
    pattern,
    regex_check,
    required,
    unexpressed,
)

_LONGEST = 300
"""Number of characters of a string that can be a keyword or a phrase."""

_BETWEEN = one_line(
    r"""(?:[\s,:(\[]+(?:the|all|of|both|these|those|each|any|at least one|at least|one|either|following|specific|exact|
    exactly|given|required|two|three|four|five|six|\d|also|and|or|in|into|your|my|this|that|response|answer|story
    |essay|text|
    poem|letter|reply|output|email|article|summary|post|blog|song|it|somewhere|entire|whole|explicitly|always|directly|
    please|the use of|single|english|important|extra|certain|some|other|are|is|be|to|will|here|use|using|used|include|
    including|contain|containing|mention|mentioning|incorporate|incorporating|add|insert|say|saying|write|writing|have|
    employ|names?|hashtags?|string|line|quote|sentences?|expressions?|keywords?|words?|phrases?|terms?|letters?|like
    |such as|
    for example|for instance|e\.g\.|i\.e\.|namely|as|punctuation|marks?|characters?|symbols?|key))*[\s:,(\[-]*$"""
)
"""What may stand between a verb and its strings."""
_INCLUDE = pattern(
    r"""\b(?P<verb>includ(?:e|es|ing)|contain(?:s|ing)?|us(?:e|es|ing)|utili[sz](?:e|es|ing)|mention(?:s|ing)?
    |incorporat(?:e|es|ing)|featur(?:e|es|ing)|add(?:s|ing)?|insert(?:s|ing)?|employ(?:s|ing)?|say|weav(?:e
    |ing)(?: in)?
    |make use of|ha(?:ve|s|ving)|with|write|work in|put|place|sprinkle in)"""
    + _BETWEEN
)
_EXCLUDE = re.compile(NEGATION + _BETWEEN)
_NOUN = re.compile(
    r"\b(?:key ?words?|words?|phrases?|terms?|expressions?|sentences?|string|hashtags?|quote|names?|line|text)\b"
)
_MARKED = pattern(
    r"""\b(?:mark|label|tag|replac|highlight|annotat|fill|start|begin|end|prefix|preced|follow|titl|nam|complet
    |substitut
    |swap|match|compar)\w*\b[^,;]*$"""
)
"""Verbs that make "with the word" another requirement than to contain the word."""
_LETTERS = re.compile(r"\b(?:letters?|characters?|symbols?|punctuation(?: marks?)?)\b[\s:,(\[-]*$")
_EXAMPLES = re.compile(r"\b(?:like|such as|for example|for instance|e\.g\.)[\s:,(]*$")
_CLEAR_ALONE = frozenset(
    "include includes including contain contains containing mention mentions mentioning incorporate incorporating "
    "insert".split()
)
"""Verbs that need no noun such as "word" before the strings."""
_FOLLOWS = pattern(
    r"""\s*(?:[,.;:!?)\]\n-]|$|(?:and|in|as|at|somewhere|within|throughout|when|while|to|by|for|into|but|or|on
    |anywhere|
    inside|exactly|once|should|must|without|is|are|with|twice|so|before|after|because|using|verbatim)\b)"""
)
"""What follows a string that is no attribute of a noun (use "formal" language)."""
_PASSIVE = pattern(
    r"""\s*(?:(?:should|must|has to|have to|needs? to|may|can|will|shall|is|are|to)\s*(?P<no>not|never|n't)?
    |(?P<never>cannot|can't|must ?n't|shouldn't|never|is not|are not|not))?(?:\s+be)?\s*(?:all |both |also 
    |explicitly )*
    (?P<verb>used|included|appears?|mentioned|occurs?|present|contained|featured|incorporated|shown|found|allowed
    |permitted
    |forbidden|banned|prohibited|avoided|excluded|omitted|in (?:your|the) [a-z]+|in (?:it|there)|part of (?:it|(?:your
    |the) [a-z]+))\b"""
)
_REFUSED = ("forbidden", "banned", "prohibited", "avoided", "excluded", "omitted")
_PART_AFTER = pattern(
    rf"""[^.]{{0,12}}?\b(?:in|within|inside|of|at the (?:start|beginning|end) of)\s+(?:the |your |its )?(?:very )?
    (?:{PART}|each|every)\b|\s*(?:,\s*)?(?:in )?(?:each|every)\b"""
)

_MODAL = r"(?:should|must|has to|have to|needs? to|is|are|be|being|shall|will|reads?|say)"
_PLACED = one_line(
    r"""(?:with|by|on|using|saying)\b(?P<between>(?:[\s,:(]+(?:the|this|that|these|an?|exact|exactly|following|same
    |phrase|
    sentence|words?|text|line|message|statement|question|quote|string|of|closing|sign-off|greeting|in|your|response|
    signature|note|expression|term|characters?|letters?|emoji|tag|hashtag|disclaimer|salutation|remark|and|or|like|be
    |to|
    here|:|either|one of|any of|very|specific|given|required|symbol|keyword|answer|capital|lowercase|uppercase|reads|
    reading|saying|marker|both))*[\s:,(\[-]*)$"""
)
_ENDS = pattern(
    rf"""\b(?P<verb>end(?:s|ing)?|finish(?:es|ing)?|conclud(?:e|es|ing)|clos(?:e|es|ing)|wrap(?:s|ping)? (?:it )?up
    |sign(?:ing)? off)\b(?P<what>[^\x01]{{0,70}}?)\b{_PLACED}"""
)
_STARTS = pattern(
    rf"""\b(?P<verb>start(?:s|ing)?|begin(?:s|ning)?|open(?:s|ing)?|preface
    |prefix(?:ed)?)\b(?P<what>[^\x01]{{0,70}}?)\b
    {_PLACED}"""
)
_LAST = pattern(
    rf"""\b(?:very )?(?:(?:last|final|closing|ending|concluding) (?P<unit>words?|phrase|sentence|line|text|thing
    |statement)
    |end of (?=your|the (?:entire|whole|full)? ?(?:response|answer|reply|output)))\b
    (?P<what>[^\x01]{{0,40}}?)\b{_MODAL}\b[^\x01]{{0,30}}$"""
)
_FIRST = pattern(
    rf"""\b(?:very )?(?:first|opening|beginning|starting) (?P<unit>words?|phrase|sentence|line|text|thing)\b
    (?P<what>[^\x01]{{0,40}}?)\b{_MODAL}\b[^\x01]{{0,30}}$"""
)
_TO_THE_END = r"(?: of (?:your|the|this) (?:[a-z]+ ){0,2}[a-z]+)?\s*(?:[.,;:!)\n]|$|and\b)"
_AT_END = pattern(
    rf"""\s*(?:right )?(?:at|to) the (?:very )?end{_TO_THE_END}
    |\s*as (?:the|your) (?:very )?(?:last|final|closing|ending) (?:words?|phrase|sentence|line|statement)\b"""
)
_AT_START = pattern(
    rf"""\s*(?:right )?(?:at|to) the (?:very )?(?:start|beginning){_TO_THE_END}
    |\s*as (?:the|your) (?:very )?(?:first|opening) (?:words?|phrase|sentence|line)\b"""
)
_ADD = re.compile(r"\b(?:add|put|place|write|append|say|include)\b[^\x01]{0,60}$")
_SUBJECT = pattern(
    rf"""(?:^|[,:(\"-]|\b(?:{RESPONSE}|should|must|shall|will|to|and|then|please|also|always|needs?|has|have|only
    |finally|[a-z]+n't
    |lastly|first|either|may|can|be|it'?s|so|but|n't|not|never|start|begin|by))\s*$"""
)
"""What stands before the verb if the response as a whole starts or ends."""
_PARTICIPLE_SUBJECT = pattern(
    rf"""(?:^|[:(]|\b(?:by|please|always|avoid|without))\s*$|\b{RESPONSE},?\s*$
    |\b{RESPONSE},? (?:start|begin|open)\w* with \x01+,? and\s*$"""
)
_NTH = "(?:first|second|third|fourth|fifth|last|final|opening|closing|next)"
_INNER = one_line(
    rf"""(?:\b(?:each|every)\b|\b(?:a|the|new|next|another|same) (?:new |next |same )?(?:line|sentence|paragraph
    |section|
    bullet|slide|row|column|cell)\b|\b(?:all|any|both)\b[^,]*\b(?:sentences?|lines?|paragraphs?|words?|stanzas?
    |bullets?|
    points?|sections?|verses?|items?|names?|questions?|steps?)\b|\b(?:titles?|subtitles?|headings?|headlines?
    |sentences|
    lines|paragraphs|words|stanzas|bullets|sections|names|steps|verses|items|points|questions|{_NTH} (?:sentence|line|
    paragraph|stanza|section|bullet|verse|word)|paragraph \d+|subject line)\b)"""
)
_UNTIL_HERE = r"(?:(?!,|\band\b|\bbut\b|;).)*$"
_PART_HERE = re.compile(_INNER + _UNTIL_HERE)
ABOUT_PART = pattern(
    rf"""\b(?:each|every|titles?|subtitles?|headings?|headlines?|names|subject line|{_NTH} (?:sentence|line|paragraph|
    stanza|section|bullet|verse|word)|paragraph \d+)\b{_UNTIL_HERE}"""
)
"""The subject of a clause is a part of the response."""
_SENTENCES = re.compile(r"\b(?:each|every|all)(?: of)?(?: the| your)?(?: single)? sentences?\b")
ORDINALS = {
    word: n
    for n, word in enumerate("first second third fourth fifth sixth seventh eighth ninth tenth".split(), start=1)
}
_PARAGRAPH = re.compile(
    rf"\bparagraph ({NUMBER})\b|\b({'|'.join(ORDINALS)}|\d+(?=st|nd|rd|th))(?:st|nd|rd|th)? paragraph\b"
)
_OPTIONS = pattern(
    r"""\b(?:answer|respond|response|reply|choose|select|pick|output|state|say|classify|label|categori[sz]e)\b
    [^\x01]{0,90}
    \b(?:one of|either|from|options?|choices|only|with|following)\b[^\x01]{0,60}$"""
)
_CHOICE = re.compile(r"\b(?:one of|either|options?|choices|choose|select|pick)\b")
_ONLY = pattern(
    r"""\b(?:respond|reply|answer|output|return|write|say)\b[^\x01]{0,25}\bonly\b
    |\bonly (?:respond|reply|answer|output|say)\b|\bnothing (?:else )?but\b"""
)
_KEYS = re.compile(r"\b(?:keys?|fields?|properties|attributes)\b[^\x01.]{0,50}$")
_PRESENT = ("appear", "includ", "mention", "used")


def strings(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """The requirements about quoted strings that no other rule has `taken`."""
    for given in view.strings:
        if given.start in taken or any(len(value) > _LONGEST or "\n" in value for value in given.values):
            continue
        requirement = _role(view, given)
        if requirement is not None:
            taken.add(given.start)
            yield requirement


def _role(view: PromptText, given: Strings) -> Requirement | None:
    before, after = view.before(given.start, 160), view.after(given.end)
    decided, requirement = _place(view, given, before, after)
    if decided:
        return requirement
    return (
        _keys(view, given, before)
        or _options(given, before)
        or _alone(given, before, after)
        or _words(view, given, before, after)
    )


_PLACES = (
    ("ends", ("end", "finish", "conclud", "clos", "wrap", "sign", "last", "final"), _ENDS, _LAST, _AT_END),
    ("starts", ("start", "begin", "open", "pref", "first"), _STARTS, _FIRST, _AT_START),
)


def _place(view: PromptText, given: Strings, before: str, after: str) -> tuple[bool, Requirement | None]:
    """Whether the words speak of the start or the end of something, and the requirement if this is the response."""
    adds = _ADD.search(before)
    for kind, triggers, verbs, nouns, position in _PLACES:
        place = (verbs.search(before) or nouns.search(before)) if contains(before, triggers) else None
        suffix = position.match(after) if adds else None
        if place or suffix:
            start = given.start - len(before) + place.start() if place else given.start
            end = given.end + suffix.end() if suffix else given.end
            return True, _placed(view, given, before, after, place, start, end, kind)
    return False, None


def _placed(
    view: PromptText,
    given: Strings,
    before: str,
    after: str,
    place: re.Match[str] | None,
    start: int,
    end: int,
    kind: str,
) -> Requirement | None:
    groups = place.groupdict() if place else {}
    verb, unit, what = groups.get("verb"), groups.get("unit"), groups.get("what") or ""
    head, one = before[: place.start()] if place else before, given.one
    if verb and not (_PARTICIPLE_SUBJECT if verb.endswith("ing") else _SUBJECT).search(head):
        return None
    if view.text[given.start] == QUOTE and not _FOLLOWS.match(after):
        return None
    if one and len(one) == 1 and one.isalnum() and not negated(head):
        if not re.search(r"\b(?:letter|character|word|digit|number)\b", groups.get("between") or ""):
            return None
    around = head + what
    if re.search(r"\b(?:postscript|p\.\s?s)", around):
        return one and required(start, end, {"type": "postscript", "marker": one})  # type: ignore[return-value]
    if re.search(r"\b(?:sections?|chapters?|parts?)\b", around) and view.anywhere(SECTION_MARK):
        return None
    if conditional(head):
        return unexpressed(start, end, CONDITIONAL)
    if negated(head):
        return _not_placed(given, start, end, kind, head if unit else around)
    if one is None:
        return unexpressed(start, end, "one of several phrases at this place") if given.either else None
    return _with_word(start, end, kind, unit, one, head, around)


def _not_placed(given: Strings, start: int, end: int, kind: str, around: str) -> Requirement:
    """ "Do not start with "I"."."""
    if _PART_HERE.search(around) or _SENTENCES.search(around):
        return unexpressed(start, end, A_PART)
    any_of = "|".join(re.escape(value) for value in given.values)
    expression = rf"(?i)\A\W*(?:{any_of})(?!\w)" if kind == "starts" else rf"(?i)(?<!\w)(?:{any_of})\W*\Z"
    named = " or ".join(map(_quoted, given.values))
    question = f"Does the response {kind[:-1]} with something else than {named}?"
    return required(start, end, regex_check(expression, exactly=0), question)


def _with_word(start: int, end: int, kind: str, unit: str | None, one: str, head: str, around: str) -> Requirement:
    which = "last" if kind == "ends" else "first"
    if " " not in one:
        if _SENTENCES.search(around):
            return _verifiable(start, end, f"{which}_word", "sent", one)
        if kind == "starts" and (paragraph := _PARAGRAPH.search(around)):
            n = number(paragraph[1]) if paragraph[1] else ORDINALS.get(paragraph[2]) or int(paragraph[2])
            return required(start, end, {"type": "paragraph_start", "paragraph": n, "word": one})
    if _PART_HERE.search(head if unit else around):
        return unexpressed(start, end, A_PART)
    if unit == "word" and " " not in one:
        return _verifiable(start, end, f"{which}_word", "answer", one)
    return required(start, end, {"type": kind, "phrase": one}, f'Does the response {kind[:-1]} with "{one}"?')


def _verifiable(start: int, end: int, argument: str, of: str, word: str) -> Requirement:
    check = {"type": "verifiable", "name": f"{argument}:{argument}_{of}", "arguments": {argument: word}}
    return required(start, end, check)


def _keys(view: PromptText, given: Strings, before: str) -> Requirement | None:
    keys = _KEYS.search(before)
    if keys is None or "json" not in view.text or given.either:
        return None
    check = {"type": "json", "keys": list(given.values)}
    question = f"Is the response a JSON object with the keys {listed(given.values)}?"
    return required(given.start - len(before) + keys.start(), given.end, check, question)


def _options(given: Strings, before: str) -> Requirement | None:
    """One of several answers: "Answer with "agree" or "disagree"."."""
    options = _OPTIONS.search(before)
    if options is None or given.one is not None or "at least one" in options.group():
        return None
    only = _ONLY.search(before) is not None and given.either
    if negated(before[: options.end()]) or not (only or _CHOICE.search(options.group())):
        return None
    if _NOUN.search(before[-25:]) and "one of" not in before and not re.search(r"phrases?|sentences?", before[-25:]):
        return None
    start = given.start - len(before) + options.start()
    if conditional(before):
        return unexpressed(start, given.end, CONDITIONAL)
    if only:
        exact = "|".join(re.escape(value.rstrip(".")) for value in given.values)
        said = f"{', '.join(map(_quoted, given.values[:-1]))} or {_quoted(given.values[-1])}"
        check = regex_check(rf"(?i)\A\W*(?:{exact})\W*\Z", exactly=1)
        return required(start, given.end, check, f"Does the response consist only of {said}?")
    return required(start, given.end, one_of(given.values))


_ALONE = pattern(
    r"""\b(?:respond|reply|answer|output|return|write|say|print)\b(?: (?:with|back|me))*\s+
    (?:only|just|nothing but|nothing (?:else|other) (?:but|than)|simply)
    (?: (?:with|the|one|exact|single|word|phrase|sentence|text|following))*:?\s*$"""
)


def _alone(given: Strings, before: str, after: str) -> Requirement | None:
    """A given text and nothing else: "Reply with nothing but "done"."."""
    alone = _ALONE.search(before)
    if alone is None or given.one is None or negated(before[: alone.start()]) or conditional(before):
        return None
    if not re.match(r"\s*(?:[.;!)\n]|$|and nothing)", after):
        return None
    check = regex_check(rf"(?i)\A\W*{re.escape(given.one.strip('.'))}\W*\Z", exactly=1)
    question = f"Does the response consist only of {_quoted(given.one)}?"
    return required(given.start - len(before) + alone.start(), given.end, check, question)


def one_of(phrases: list[str] | tuple[str, ...]) -> Spec:
    """The check that one of several answers occurs, as IFEval checks it."""
    return {"type": "keywords", "words": list(phrases), "need": "any", "whole_words": False, "ignore_case": False}


def _quoted(value: str) -> str:
    return f'"{value}"'


def _words(view: PromptText, given: Strings, before: str, after: str) -> Requirement | None:
    """Keywords and forbidden words."""
    letters = _LETTERS.search(before) is not None and all(len(value) == 1 for value in given.values)
    excluded, included = _EXCLUDE.search(before), _INCLUDE.search(before)
    if excluded is None and included is None:
        return _passive(view, given, before, after, letters)
    role = excluded or included
    assert role is not None
    between, start = role.group(), given.start - len(before) + role.start()
    if conditional(before):
        return unexpressed(given.start, given.end, CONDITIONAL)
    noun = _NOUN.search(between)
    if excluded is not None:
        named = noun or letters
        if not named and not re.search(r"\b(?:us|includ|mention|contain|say|writ)\w*\b", between):
            return None
        if not named and not _FOLLOWS.match(after) and not _EXAMPLES.search(before):
            return None
        return _required(given, start, given.end, True, letters, after, between)
    assert included is not None
    verb, head = included["verb"], before[: included.start()]
    if _EXAMPLES.search(before):
        return unexpressed(given.start, given.end, "the words are examples") if noun else None
    if letters or (verb == "with" and _MARKED.search(head)):
        return None
    if not noun and (verb not in _CLEAR_ALONE or not _FOLLOWS.match(after)):
        return None
    if verb in ("has", "have", "having", "write", "put", "place"):
        if not re.search(r"\b(?:key ?words?|words?|phrases?)\b", between):
            return None
    return _required(given, start, given.end, negated(head), letters, after, between)


def _passive(view: PromptText, given: Strings, before: str, after: str, letters: bool) -> Requirement | None:
    """ "The word "rain" must not be used"."""
    passive = _PASSIVE.match(after)
    if passive is None or not (_NOUN.search(before[-40:]) or letters):
        return None
    refused = bool(passive["no"] or passive["never"] or passive["verb"] in _REFUSED)
    if passive["verb"] in ("allowed", "permitted") and not refused:
        return None
    if conditional(before):
        return unexpressed(given.start, given.end, CONDITIONAL)
    end = given.end + passive.end()
    return _required(given, given.start, end, refused, letters, view.after(end), "")


def _required(
    given: Strings, start: int, end: int, refused: bool, letters: bool, after: str, between: str
) -> Requirement:
    values = list(given.values)
    if _PART_AFTER.match(after) or re.search(r"\b(?:in|of) (?:each|every)\b", between):
        return unexpressed(start, end, A_PART)
    if refused and (letters or all(len(value) == 1 and not value.isalnum() for value in values)):
        check = {"type": "letters", "letters": "".join(values), "exactly": 0}
        return required(start, end, check, f"Does the response do without {listed(values)}?")
    if refused:
        return required(start, end, {"type": "forbidden", "words": values})
    either = given.either or re.search(r"\b(?:any|one|either)(?: one)? of\b|\bat least one\b|\beither\b", between)
    if either and len(values) > 1:
        return required(start, end, {"type": "keywords", "words": values, "need": "any"})
    return required(start, end, {"type": "keywords", "words": values})


_UNQUOTED = pattern(
    r"""\b(?P<noun>key ?words?|words?|terms?|phrases?)(?P<colon>\s*:)?\s*[\[(]?\s*
    (?P<list>[^\x01.;!?\n\[\](]{2,160}?)\s*[\])]?(?=\s+(?:in (?:your|the|its|my|this)|somewhere|throughout|within|to
    |as|
    at (?:least|all)|anywhere|should|must|when|while|for|into|and (?:make|write|use|do|ensure|avoid|end|start|keep
    |then|the)
    |is|are|but)\b|[.;!?\n\])]|$)"""
)
_WORD = re.compile(r"[\w'#@-]+(?: [\w'-]+){0,2}")
_COMMA = re.compile(r"\s*,\s*(?:and\s+|or\s+)?(?:the (?:key)?word )?|\s+(?:and|or)\s+(?:the (?:key)?word )?")
_HOW_OFTEN = re.compile(r"\s+(?:at least|at most|more than|less than|exactly|should (?:appear|be used) |once|twice)")
_NAMED = re.compile(
    r"(?:\b(?:the|a|following|these)|^|[^\w-])\s*(?:following )?key$|\b(?:the|these|following)\s*$|^\W*$"
)


def unquoted(view: PromptText, taken: set[int]) -> Iterator[Requirement]:
    """Keywords without quotation marks: "Include the keywords river, mill and boat."."""
    for match in _UNQUOTED.finditer(view.text):
        first = match.start("list")
        before = view.before(match.start()) + view.text[match.start() : first]
        excluded, included = _EXCLUDE.search(before), _INCLUDE.search(before)
        after = view.after(match.end())
        passive = None if excluded or included else _PASSIVE.match(after)
        if passive and not _NAMED.search(view.text[max(match.start() - 20, 0) : match.start()]):
            passive = None
        given = _enumerated(view, match, may_be_several=excluded is not None)
        if given is None or conditional(before) or not (excluded or included or passive):
            continue
        one_of_them = re.search(r"\bone of\b", before) and (match["colon"] or match["noun"].startswith("phrase"))
        if one_of_them or (_HOW_OFTEN.match(after) and numbers(after)):
            continue  # rules of their own
        if _STARTS.search(before) or _ENDS.search(before):
            _, requirement = _place(view, given, before, "") if given.one else (True, None)
            if requirement is not None and not match["noun"].startswith("phrase"):
                yield requirement
            continue
        role = excluded or included
        start = first - len(before) + role.start() if role else match.start()
        refused = excluded is not None or (included is not None and negated(before[: included.start()]))
        refused = refused or bool(passive and (passive["no"] or passive["never"] or passive["verb"] in _REFUSED))
        end = match.end() + passive.end() if passive else given.end
        between = role.group() if role else ""
        yield _required(given, start, end, refused, False, view.after(match.end("list")), between)


def _enumerated(view: PromptText, match: re.Match[str], may_be_several: bool) -> Strings | None:
    """The words of a list without quotation marks, if all of them can be keywords."""
    words = [word.strip() for word in _COMMA.split(match["list"]) if word.strip()]
    noun = match["noun"]
    if not words or any(not _WORD.fullmatch(word) or set(word.split()) & FUNCTION_WORDS for word in words):
        return None
    if not match["colon"]:
        if any(" " in word for word in words) or (len(words) > 1 and not noun.endswith("s") and not may_be_several):
            return None
        if len(words) == 1 and noun in ("words", "terms", "phrases"):
            return None
    values, end = [], match.start("list")
    for word in words:
        start = view.text.index(word, end)
        end = start + len(word)
        values.append(view.prompt[start:end])
    return Strings(tuple(values), match.start("list"), end, " or " in match["list"])
